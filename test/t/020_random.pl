# Random queries give the same answers with GpuSort and without.
#
# The tables have random types, sizes, shares of NULLs and numbers of distinct values.
# Some values are compressed or stored out of line, and some columns have common
# prefixes.  Some tables are sorted by a column, and in some the first rows are unlike
# the rest, so that what a sort learns from them is wrong later.  In a part of the tables,
# strings of few values and of each kind of collation stand in front of columns of few
# values in which types are nested: arrays, ranges and rows of them, and domains.
# The queries have random ORDER BY lists, planner settings and small memory limits,
# and read sorts in each way in which an executor does: to the end, up to a LIMIT,
# back and forth by cursors, repeatedly as the inner side of a join, and below
# DISTINCT, GROUP BY, windows and merge joins.  The server runs each query twice: with
# gpusort.enabled = off, and with gpusort.enabled and gpusort.force on.
#
# Two answers are equal if their key columns are the same in sequence, by the types'
# own equality (1.0 and 1.00, or -0 and 0, are equal keys, so either may come first),
# and if their rows are the same as a multiset, unless the query may choose among rows
# with equal keys.  The test first checks that this comparison finds differences.
#
#   SEED=n               repeats the cases of an earlier run; printed when a case fails
#   CASES=n              500 by default
#   SETTINGS="a=1 b=2"   more settings for the server, such as another engine
#
# Without the setting gpusort.force there is no node to test, and core is compared
# with core.  With it, the test fails if less than half of the cases used the node.

use strict;
use warnings;

use FindBin;
use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = $ENV{SEED} // int(rand(1_000_000_000));
my $cases = $ENV{CASES} // 500;

# A number below n; an element of a list; true with a probability of p percent.
sub below { return int(rand($_[0])) }
sub pick { return $_[ below(scalar @_) ] }
sub chance { return rand(100) < $_[0] }

# For each type: an expression for a value, an array of special values, and true if
# the type has collations.  In the expression, R stands for an integer in [0, D),
# D for its bound, and P for a prefix that all values of the column have in common.  A
# word after a colon tells several kinds of values of one type apart.
my %types = (
	int2 => [ '((R) % 65536 - 32768)::int2', '{32767,-32768,0,-1}' ],
	int4 => [ '((R) - D / 2)::int4', '{2147483647,-2147483648,0,-1}' ],
	int8 => [ '((R) - D / 2) * 4294967291', '{9223372036854775807,-9223372036854775808,0,-1}' ],
	oid => [ '(R)::oid', '{0,2147483648,4294967295}' ],
	bool => [ '(R) % 2 = 0', '{t,f}' ],
	float4 => [ '(((R) - D / 2) / 7.0)::float4', '{NaN,Infinity,-Infinity,0,-0,1e-45,-1e-45,3.4e38,-3.4e38}' ],
	float8 => [ '(((R) - D / 2) / 7.0)::float8', '{NaN,Infinity,-Infinity,0,-0,5e-324,-5e-324,1.7e308,-1.7e308}' ],
	numeric => [ '((R) - D / 2)::numeric / (10::numeric ^ ((R) % 9)) * (1 + 1e25 * ((R) % 3))',
		'{NaN,Infinity,-Infinity,0,0.00,1,1.0,1.000,-1,1e100,1e-100,-1e-100,12345678901234567890.123456789,'
		  . '12345678901234567890.12345679,9999,10000,10001,0.0001,99999999}' ],
	text => [ "CASE (R) % 4 WHEN 0 THEN md5((R)::text) WHEN 1 THEN 'more than sixteen bytes that are the same ' || (R) "
		  . "WHEN 2 THEN translate((R)::text, '0123456789', 'aAáÁbBzZ- ') ELSE (R)::text END",
		"{\"\",\" \",a,A,aa,\"a \",\x01,ä,ß,ss,\xF0\x9F\x98\x80,z}", 1 ],
	# values that are longer than what a page stores in line, some of them compressed
	'text: long' => [ "CASE (R) % 8 WHEN 0 THEN repeat(md5((R)::text), 90) ELSE (R)::text END", '{"",1,a}', 1 ],
	'text: differs late' => [ "CASE (R) % 8 WHEN 0 THEN repeat('a', 2500) || (R) ELSE repeat('a', ((R) % 40)::int) END", '{"",a,aaa}', 1 ],
	'bytea: long' => [ "CASE (R) % 8 WHEN 0 THEN convert_to(repeat(md5((R)::text), 90), 'UTF8') ELSE '\\x00ff' END",
		'{"","\\\\x00"}' ],
	'numeric: long' => [ "CASE (R) % 8 WHEN 0 THEN (repeat('1234567890', 500) || (R))::numeric ELSE R END", '{NaN,0,1.0,1.00,-1e100}' ],
	'numeric: 40 digits' => [ "(repeat('12345', 8) || (R))::numeric / 10::numeric ^ ((R) % 3)", '{1234512345123451234512345123451234512345,0}' ],
	# values that equal the prefix, are shorter, or lack it; under ICU what follows may
	# change the weight of its last letter
	'text: prefix' => [ "CASE (R) % 30 WHEN 0 THEN P WHEN 1 THEN left(P, ((R) % 300)::int) WHEN 2 THEN md5((R)::text) "
		  . "WHEN 3 THEN upper(P) || (R) WHEN 4 THEN P || P || (R) ELSE P || ('{\"\",h,\xCC\x81,\xCC\xA7\xCC\x81,\xE0\xB8\x81,\xE0\xB9\x8C,\x01}'::text[])[1 + (R) % 7] "
		  . "|| CASE (R) % 2 WHEN 0 THEN md5((R)::text) ELSE (R)::text END END",
		'{"",p,a,z}', 1 ],
	'bytea: prefix' => [ "convert_to(CASE (R) % 30 WHEN 0 THEN P WHEN 1 THEN left(P, ((R) % 300)::int) WHEN 2 THEN (R)::text "
		  . "ELSE P || (R) END, 'UTF8') || CASE (R) % 5 WHEN 0 THEN '\\x00'::bytea ELSE '' END", '{"","\\\\x00"}' ],
	'text: cases' => [ "CASE (R) % 2 WHEN 0 THEN upper(md5(((R) / 2)::text)) ELSE md5(((R) / 2)::text) END", '{a,A,"",ä}', 1 ],
	varchar => [ "translate((R)::text, '0123456789', 'abcABC_é ')::varchar", '{"",a,A,"a "}', 1 ],
	'char(12)' => [ "translate((R)::text, '0123456789', 'abcABC_é ')::char(12)", '{"",a,A,"a  ",b}', 1 ],
	name => [ "md5((R)::text)::name", '{"",a,A}', 1 ],
	'"char"' => [ 'chr(33 + ((R) % 90)::int)::"char"', '{a,z}' ],
	bytea => [ "decode(repeat('00', ((R) % 3)::int) || md5((R)::text), 'hex')",
		'{"","\\\\x00","\\\\x0000","\\\\xff","\\\\x00ff"}' ],
	date => [ "date '2000-01-01' + ((R) % 200000 - 100000)::int", '{infinity,-infinity,4713-01-01 BC,5874897-12-31}' ],
	time => [ "time '00:00' + ((R) % 86400000) * interval '1 ms'", '{00:00,24:00,23:59:59.999999}' ],
	timetz => [ "((time '00:00' + ((R) % 86400) * interval '1 s')::text "
		  . "|| ('{+00,-05,+13:30,+01}'::text[])[1 + (R) % 4])::timetz",
		'{00:00+00,01:00+01,24:00-15}' ],
	timestamp => [ "timestamp '2000-01-01' + ((R) - D / 2) * interval '1 s'", '{infinity,-infinity,4713-01-01 00:00:00 BC}' ],
	timestamptz => [ "timestamptz '2000-01-01 UTC' + ((R) - D / 2) * interval '1 s'", '{infinity,-infinity}' ],
	interval => [ "CASE (R) % 3 WHEN 0 THEN ((R) % 100 - 50) * interval '1 mon' "
		  . "WHEN 1 THEN ((R) % 3000 - 1500) * interval '1 day' ELSE ((R) % 100000 - 50000) * interval '1 hour 7 s' END",
		'{1 mon,30 days,720:00:00,-1 mon,-30 days,178000000 years,-178000000 years,0}' ],
	uuid => [ 'md5((R)::text)::uuid', '{00000000-0000-0000-0000-000000000000,ffffffff-ffff-ffff-ffff-ffffffffffff}' ],
	macaddr => [ 'substr(md5((R)::text), 1, 12)::macaddr', '{00:00:00:00:00:00,ff:ff:ff:ff:ff:ff}' ],
	macaddr8 => [ 'substr(md5((R)::text), 1, 16)::macaddr8', '{00:00:00:00:00:00:00:00}' ],
	inet => [ "CASE (R) % 3 WHEN 0 THEN inet '2001:db8::/40' + (R) "
		  . "ELSE set_masklen(inet '0.0.0.0' + (R), ((R) % 33)::int) END",
		'{0.0.0.0/0,10.0.0.0/8,10.0.0.0/9,10.0.0.0,"::/0","::1"}' ],
	'inet: IPv6' => [ "set_masklen(('2001:db8:' || to_hex((R) % 3) || '::' || to_hex((R) % 65536))::inet, ((R) / 3 % 129)::int)",
		'{2001:db8::1/64,2001:db8::/64,2001:db8::1,2001:db8::,"::/0","::/128","::ffff:10.0.0.1",10.0.0.1/24,10.0.0.1}' ],
	'cidr: IPv6' => [ "network(set_masklen(('2001:db8:' || to_hex((R) % 65536) || '::' || to_hex((R) % 7))::inet, ((R) / 3 % 129)::int))",
		'{2001:db8::/32,2001:db8::/64,2001:db8::/128,"::/0",10.0.0.0/8}' ],
	cidr => [ "network(set_masklen(inet '0.0.0.0' + (R), ((R) % 33)::int))", '{0.0.0.0/0,10.0.0.0/8,"::/0"}' ],
	colour => [ "('{z,k,m,a}'::colour[])[1 + (R) % 4]", '{z,k,m,a}' ],
	small => [ '((R) % 1000)::int', '{0,999}' ],
	label => [ "translate((R)::text, '0123456789', 'aAbBcCdDé-')", '{"",a,A}', 1 ],
	'int[]' => [ 'ARRAY[(R) % 10, (R) % 3, R]::int[]', '{"{}","{NULL}","{1}","{1,NULL}","[0:0]={1}","{{1},{2}}","{{1,2}}"}' ],
	'int[]: long' => [ 'CASE (R) % 8 WHEN 0 THEN array_fill((R)::int, ARRAY[1000]) || NULL ELSE array_fill(1, ARRAY[((R) % 40)::int]) END', '{"{}"}' ],
	'int8[]: prefix' => [ 'array_fill(7::int8, ARRAY[20]) || R || (R) % 3', '{"{}","{7,7,7}"}' ],
	'small[]' => [ 'ARRAY[(R) % 10, NULL, (R) % 3]::small[]', '{"{}","{1}"}' ],
	'float8[]' => [ 'ARRAY[(R) % 2, (R) / 7.0]::float8[]', '{"{0}","{-0}","{NaN}","{NULL,1}"}' ],
	'timestamptz[]' => [ "ARRAY[timestamptz '2000-01-01 UTC' + ((R) % 1000) * interval '1 s', 'infinity']", '{"{infinity}","{-infinity}"}' ],
	varbit => [ '((R) % 4096)::int::bit(12)::varbit << ((R) % 5)::int', '{"",0,00,1}' ],
	# not 0: if all values were long, the rows of a query as text would be more than an array can hold
	'varbit: long' => [ "repeat('10', CASE (R) % 8 WHEN 7 THEN 30000 ELSE 70 END)::varbit || (R)::bit(20)::varbit", '{"",0,1}' ],
	'bit(40)' => [ '(R)::bit(40)', '{0000000000000000000000000000000000000000}' ],
	int4range => [ 'int4range(((R) % 50)::int, ((R) % 50 + (R) % 7)::int)', '{empty,"(,)","[1,)","(,1)"}' ],
	tstzrange => [ "tstzrange(timestamptz '2000-01-01 UTC' + ((R) % 50) * interval '1 s', timestamptz '2000-01-02 UTC' + (R) * interval '1 s', "
		  . "('{[],[),(],()}'::text[])[1 + (R) % 4])", '{empty,"(,)","[infinity,)","(,infinity)"}' ],
	pair => [ "ROW((R) % 50, CASE (R) % 3 WHEN 0 THEN NULL ELSE md5((R)::text) END)::pair", '{"(,)","(1,)","(,a)"}' ],
	# types without keys
	'label[]' => [ "ARRAY[md5((R)::text), 'a']::label[]", undef ],
	jsonb => [ 'to_jsonb((R) % 1000)', undef ]);
my @all_types = sort keys %types;
my @keyed_types = grep { defined $types{$_}[1] } @all_types;
my @collations = ('C', 'C', 'C', 'default', 'english', 'en-x-icu', 'und-x-icu', 'cs-x-icu', 'nocase');

# Types of strings, and their collations
$types{citext} = [ "translate((R)::text, '0123456789', 'aAbBcCdDé-')::citext", '{"",a,A,"a "}', 1 ];
my @strings = ('text', 'text: prefix', 'text: differs late', 'text: cases', 'label', 'citext', 'name', 'char(12)');

# Nested types: SQL that makes them, and their names, which are in %types.
my $nested_schema = 'CREATE DOMAIN shade AS colour;';
my @nested;
$types{shade} = $types{colour};
foreach my $type ('int2', 'int4', 'int8', 'float4', 'float8', 'bool', '"char"', 'date', 'timestamptz', 'timetz', 'interval', 'uuid',
	'macaddr', 'numeric', 'name', 'colour', 'shade', 'small')
{
	my $n = $type =~ s/\W//gr;
	my $value = $types{$type}[0];
	my $next = $value =~ s/\bR\b/R + 1/gr;
	$nested_schema .= "CREATE DOMAIN ${n}_d AS $type; CREATE DOMAIN ${n}s AS $type\[]; CREATE TYPE ${n}_range AS RANGE (subtype = $type); "
	  . "CREATE DOMAIN ${n}_range_d AS ${n}_range; CREATE TYPE ${n}_row AS (a $type, b ${n}_d, c text COLLATE \"C\"); CREATE DOMAIN ${n}_row_d AS ${n}_row;\n";
	$types{"${n}_d"} = [ $value, $types{$type}[1] ];
	$types{$_} = [ "(ARRAY[$value, $next])[1 : 1 + ((R) % 2)::int]::${n}s", '{"{}","{NULL}"}' ] foreach "$type\[]", "${n}_d[]", "${n}s";
	$types{$_} = [ "${n}_range(least($value, $next), greatest($value, $next), ('{[],[),(],()}'::text[])[1 + (R) % 4])", '{empty,"(,)"}' ]
	  foreach "${n}_range", "${n}_range_d";
	$types{$_} = [ "ROW($value, CASE (R) % 3 WHEN 0 THEN NULL ELSE $next END, md5(((R) / 2)::text))::${n}_row", '{"(,,)"}' ]
	  foreach "${n}_row", "${n}_row_d";
	# a domain of an enum has no operator that could compare the answers
	push @nested, "${n}_d" if $type !~ /colour|shade/;
	push @nested, "$type\[]", "${n}_d[]", "${n}s", "${n}_range", "${n}_range_d", "${n}_row", "${n}_row_d";
}
push @nested, grep { /colour|shade/ } @nested;

# A string literal of up to 303 bytes, which may end in a character that has another
# weight in front of what may follow: c before h, a Thai vowel before a consonant.
sub make_prefix
{
	my $unit = pick('p', 'https://www.example.com/café/', ' ', 'Äß-', '9');
	my $last = pick('', '', 'c', "\xE0\xB9\x80", "e\xCC\x81");
	my $length = below(pick(20, 60, 301));
	my $text = $unit x ($length / length $unit);
	return "'$text" . 'q' x ($length - length $text) . "$last'";
}

# An expression for a value of column c$i, in terms of the row's number i.
sub make_value
{
	my ($type, $few) = @_;
	my ($value, $special) = @{ $types{$type} };
	my $distinct = $few ? pick(1, 2, 3, 10) : pick(1, 3, 10, 1000, 2_000_000_000, 2_000_000_000);
	my $salt = below(1_000_000_000);
	my $prefix = make_prefix();
	$value =~ s/\bR\b/rnd(i, $salt, $distinct)/g;
	$value =~ s/\bD\b/$distinct/g;
	$value =~ s/\bP\b/$prefix/g;
	$type =~ s/:.*//;
	$value = "CASE WHEN rnd(i, $salt + 1, 12) = 0 THEN "
	  . "('$special'::text[])[1 + rnd(i, $salt + 2, cardinality('$special'::text[]))]::$type ELSE $value END"
	  if defined $special && chance(80);
	return $value;
}

# Makes a random table t: its SQL, its columns and its number of rows.
sub make_table
{
	my %table = (rows => pick(0, 1, 2, 10, 10, (1000) x 8, (20000) x 3), nested => chance(35));
	my $first = $table{rows} > 2000 ? 2000 : 100;
	my (@columns, @values, @storage);
	my $n = $table{nested} ? 8 : 3 + below(5);
	foreach my $i (1 .. $n)
	{
		my $type = pick(
			$table{nested} ? ($i <= 4 ? @strings : @nested)
			: chance(10) ? @all_types
			: chance(15) ? ('text: prefix', 'bytea: prefix')
			: @keyed_types);
		my $sql_type = $type =~ s/:.*//r;
		my $value = make_value($type, $table{nested});
		my $nulls = pick(0, 0, 0, 2, 50, 100);
		if (!$table{nested} && chance(20))
		{
			my @kinds = grep { s/:.*//r eq $sql_type } @all_types;
			$value = "CASE WHEN i <= $first THEN " . make_value(pick(@kinds)) . " ELSE $value END";
		}
		$value = "CASE WHEN rnd(i, " . below(1_000_000_000) . ", 100) >= $nulls THEN $value END" if $nulls;
		my $collated = $types{$type}[2];
		push @{ $table{columns} }, { name => "c$i", collated => $collated };
		push @columns, "c$i $sql_type" . ($collated && chance(50) ? ' COLLATE "' . pick(@collations) . '"' : '');
		push @values, $value;
		push @storage, "ALTER TABLE t ALTER c$i SET STORAGE EXTERNAL; " if $type =~ /long|late/ && chance(50);
	}
	$table{sql} = 'DROP TABLE IF EXISTS t; CREATE TABLE t (id int, ' . join(', ', @columns) . ", pad text); @storage"
	  . "INSERT INTO t SELECT i, " . join(', ', @values) . ", repeat('pad', (rnd(i, 7, 30))::int) "
	  . "FROM generate_series(1, $table{rows}) i;";
	if (chance(25))
	{
		$table{sorted} = $table{columns}[0];
		$table{sql} .= ' CREATE TABLE u (LIKE t INCLUDING STORAGE); INSERT INTO u SELECT * FROM t ORDER BY c1'
		  . pick('', ' DESC') . '; DROP TABLE t; ALTER TABLE u RENAME TO t;';
	}
	$table{sql} .= ' CREATE INDEX ON t (id);';
	if (chance(30))
	{
		# an index for incremental sorts; some values are too long for it
		$table{sorted} = $table{columns}[0];
		$table{sql} .= ' DO $$ BEGIN CREATE INDEX ON t (c1); EXCEPTION WHEN program_limit_exceeded THEN NULL; END $$;';
	}
	$table{sql} .= ' ANALYZE t;' if chance(70);
	return \%table;
}

# Keys: their expressions, the ORDER BY list that calls them k1, k2..., and these names.
sub make_keys
{
	my ($table, $alias) = @_;
	my $n = pick(1, 1, 2, 2, 3, 4);
	my (@select, @order, @names);
	$n = 2 + below(4) if $table->{nested};
	foreach my $i (1 .. $n)
	{
		my $column = $table->{sorted} && $i == 1 && chance(70) ? $table->{sorted} : pick(@{ $table->{columns} });
		# strings in front
		$column = pick(@{ $table->{columns} }[ 0 .. 3 ]) if $table->{nested} && $i <= $n / 2 && chance(70);
		my $value = "$alias.$column->{name}";
		if (chance(8))
		{
			$value = pick("$value IS NULL", "$alias.id % 7", "length($value\::text)", "- $alias.id");
		}
		elsif ($column->{collated} && chance(40))
		{
			$value .= ' COLLATE "' . pick(@collations) . '"';
		}
		push @select, $value;
		push @names, "k$i";
		push @order, "k$i" . pick('', '', ' ASC', ' DESC', ' DESC') . pick('', '', '', ' NULLS FIRST', ' NULLS LAST');
	}
	return (\@select, join(', ', @order), @names);
}

sub name_keys
{
	return join ', ', map { "$_[$_] AS k" . ($_ + 1) } 0 .. $#_;
}

# Makes a random query on t: its text, how it is read, the steps of its cursor, the
# columns that are compared in sequence, and whether all rows are compared as a multiset.
sub make_query
{
	my ($table) = @_;
	my ($expressions, $order, @names) = make_keys($table, 't');
	my $keys = name_keys(@$expressions);
	my $list = join ', ', @names;
	my @columns = map { "t.$_->{name}" } @{ $table->{columns} };
	my $rest = pick('', ', t.id', ', t.id', ', t.*', ', t.id, t.pad', ', t.id, ' . pick(@columns) . ' AS p');
	my $plain = "SELECT $keys$rest FROM t" . pick('', '', '', ' WHERE t.id % 3 <> 0') . " ORDER BY $order";
	my %case = (how => 'table', steps => [], names => \@names, rows => 1, sql => $plain);
	my $kind = pick('plain', 'plain', 'plain', 'limit', 'limit', 'ties', 'distinct', 'distinct on', 'group', 'window',
		'join', 'cte', 'cursor', 'cursor', 'hold', 'loop', 'prepared', 'update', 'hidden', 'lateral', 'lateral', 'lateral limit', 'presorted');
	$case{kind} = $kind;

	if ($kind eq 'limit')
	{
		$case{sql} .= ' LIMIT ' . pick(0, 1, 10, 500, 30000, 'NULL', '(SELECT 20)');
		$case{sql} .= ' OFFSET ' . pick(0, 1, 7, 900) if chance(40);
		$case{rows} = 0;
	}
	elsif ($kind eq 'ties')
	{
		$case{sql} .= ' FETCH FIRST ' . pick(1, 10, 500) . ' ROWS WITH TIES';
	}
	elsif ($kind eq 'distinct')
	{
		@case{ 'sql', 'rows' } = ("SELECT DISTINCT $keys FROM t ORDER BY $order", 0);
	}
	elsif ($kind eq 'distinct on')
	{
		$case{sql} = "SELECT DISTINCT ON (k1) $keys, t.id FROM t ORDER BY $order, t.id";
	}
	elsif ($kind eq 'group')
	{
		$case{sql} = "SELECT $list, count(*) AS n, sum(id) AS s FROM (SELECT $keys, t.id FROM t) g "
		  . "GROUP BY $list ORDER BY $order";
		@case{ 'names', 'rows' } = ([ @names, 'n', 's' ], 0);
	}
	elsif ($kind eq 'window')
	{
		my $by = pick("ORDER BY $order", "PARTITION BY $names[0] ORDER BY $order", "PARTITION BY $names[-1]");
		$case{sql} = "SELECT *, rank() OVER w AS r, count(*) OVER w AS n FROM (SELECT $keys, t.id FROM t) g WINDOW w AS ($by)";
		$case{sql} .= " ORDER BY $order";
	}
	elsif ($kind eq 'join')
	{
		my @on = map { my $c = pick(@{ $table->{columns} })->{name}; "a.$c = b.$c" } 0 .. below(2);
		my ($k, $o, @n) = make_keys($table, 'a');
		@case{ 'sql', 'names' } = ('SELECT ' . name_keys(@$k) . ", a.id, b.id AS other FROM (SELECT * FROM t WHERE id <= 300) a "
			  . pick('JOIN', 'JOIN', 'LEFT JOIN', 'FULL JOIN')
			  . " (SELECT * FROM t WHERE id BETWEEN 100 AND 400) b ON " . join(' AND ', @on) . " ORDER BY $o", \@n);
		$case{settings} = { enable_hashjoin => 'off', enable_nestloop => 'off' };
	}
	elsif ($kind eq 'cte')
	{
		my $outer = pick($order, join ', ', reverse @names);
		my $limit = pick('', ' LIMIT 200');
		$case{sql} = "WITH x AS MATERIALIZED ($plain) SELECT * FROM x ORDER BY $outer$limit";
		$case{rows} = 0 if $limit;
	}
	elsif ($kind eq 'cursor' || $kind eq 'hold')
	{
		my $n = $table->{rows};
		@case{ 'how', 'rows' } = ($kind, 0);
		@{ $case{steps} } = map {
			pick('FETCH FORWARD ' . pick(1, 5, 100), 'FETCH BACKWARD ' . pick(1, 5, 100), 'FETCH FIRST', 'FETCH LAST',
				'FETCH ABSOLUTE ' . (below($n + 3) - 1), 'FETCH RELATIVE ' . (below(21) - 10), 'MOVE FORWARD ' . below($n + 2),
				'MOVE BACKWARD ALL', 'MOVE BACKWARD ' . below($n + 2), 'MOVE LAST', 'FETCH NEXT', 'FETCH PRIOR')
		} 1 .. 3 + below(12);
		push @{ $case{steps} }, 'MOVE ABSOLUTE 0', 'FETCH ALL' if $n <= 1000;
		$case{no_scroll} = 1, $case{steps} = [ 'FETCH 3', 'MOVE 50', 'FETCH 1000' ] if chance(15);
	}
	elsif ($kind eq 'loop' || $kind eq 'prepared')
	{
		$case{how} = $kind;
	}
	elsif ($kind eq 'update')
	{
		$case{sql} .= ' FOR UPDATE';
	}
	elsif ($kind eq 'hidden')
	{
		# keys that are not in the sort's output; the query looks them up by id
		my $by = $order =~ s/k(\d)/($expressions->[$1 - 1])/gr;
		$by = '(' . join(', ', @$expressions) . ')' . pick('', ' DESC') if @$expressions > 1 && chance(40);
		my @looked_up = map { "(SELECT " . s/\bt\./u./gr . " FROM t u WHERE u.id = s.id)" } @$expressions;
		$case{sql} = 'SELECT ' . name_keys(@looked_up) . ", s.id FROM (SELECT t.id FROM t ORDER BY $by OFFSET 0) s";
	}
	elsif ($kind eq 'presorted')
	{
		# an incremental sort, if there is an index
		my $by = $order =~ s/k(\d)/($expressions->[$1 - 1])/gr;
		$case{sql} = "SELECT t.c1 AS k0, $keys, t.id FROM t ORDER BY t.c1" . pick('', ' DESC') . ", $by";
		@case{ 'sql', 'rows' } = ("$case{sql} LIMIT 300", 0) if chance(30);
		$case{names} = [ 'k0', @names ];
		$case{settings} = { map { $_ => 'off' } 'enable_seqscan', 'enable_bitmapscan', 'enable_sort' };
	}
	elsif ($kind =~ /lateral/)
	{
		# The parameter changes the sorted rows, or only the limit.  When core's parallel
		# workers start again, they keep the first limit and lose rows.
		my $inner = $kind eq 'lateral' ? "WHERE t.id % 5 <> o.i % 3 ORDER BY $order" : "ORDER BY $order LIMIT "
		  . pick('o.i * 7', '20 - o.i', 'CASE WHEN o.i > 2 THEN NULL ELSE 9 END');
		$case{sql} = "SELECT o.i, s.* FROM generate_series(1, 4) o(i), LATERAL (SELECT $keys$rest FROM t $inner) s";
		@case{ 'names', 'rows' } = ([ 'i', @names ], $kind eq 'lateral');
		$case{settings} = { max_parallel_workers_per_gather => 0 } if $kind eq 'lateral limit';
	}
	return \%case;
}

# Planner settings for both runs.
sub make_settings
{
	my ($case) = @_;
	my %set = %{ $case->{settings} // {} };
	$set{work_mem} = pick('64kB', '64kB', '256kB', '4MB', '64MB');
	$set{$_} //= 'off' foreach grep { chance(50) } 'enable_hashagg', 'enable_incremental_sort', 'enable_material';
	$set{enable_hashagg} = 'off' if chance(60);
	$set{enable_seqscan} = 'off' if chance(25);
	if (!exists $set{max_parallel_workers_per_gather} && chance(30))
	{
		@set{ 'max_parallel_workers_per_gather', 'parallel_setup_cost', 'parallel_tuple_cost', 'min_parallel_table_scan_size' } =
		  (pick(1, 2), 0, 0, 0);
	}
	return \%set;
}

sub quote_list
{
	return 'ARRAY[' . join(', ', map { "\$q\$$_\$q\$" } @_) . ']::text[]';
}

my $schema = slurp_file("$FindBin::Bin/random.sql") . $nested_schema . <<'SQL';
DO $$ BEGIN
	CREATE COLLATION english (provider = libc, locale = 'en_US.UTF-8');
EXCEPTION WHEN OTHERS THEN
	CREATE COLLATION english FROM "C";
END $$;
SQL
my $node = new_node('random', init => [ extra => [ '-E', 'UTF8', '--locale=C.UTF-8' ] ], settings => <<'CONF');
shared_preload_libraries = 'gpusort'
autovacuum = off
restart_after_crash = on
client_min_messages = warning
CONF
{
	# without it, the collation english is another name of C
	my $locales = make_locales('en_US.UTF-8');
	local $ENV{LOCPATH} = $locales if defined $locales;
	$node->start;
}
my $has_citext = $node->safe_psql('postgres', "SELECT count(*) > 0 FROM pg_available_extensions WHERE name = 'citext'") eq 't';
$schema .= 'CREATE EXTENSION citext;' if $has_citext;
@strings = grep { $_ ne 'citext' } @strings if !$has_citext;

my $has_node = $node->safe_psql('postgres', "SELECT count(*) FROM pg_settings WHERE name = 'gpusort.force'");
my $limit = $node->safe_psql('postgres', "SELECT min_val FROM pg_settings WHERE name = 'gpusort.memory_limit'");
my @off = $has_node ? ('gpusort.enabled', 'off') : ();
note("SEED=$seed CASES=$cases");
diag('the server has no gpusort.force, so core is compared with core') unless $has_node;

# databases by their default collation
my %databases = (
	c => "LOCALE 'C'",
	libc => "LOCALE 'C.UTF-8'",
	icu => "LOCALE_PROVIDER icu ICU_LOCALE 'en' LOCALE 'C.UTF-8'");
if (!has_icu($node))
{
	delete $databases{icu};
	@collations = grep { !/icu|nocase/ } @collations;
}

sub call
{
	my ($i, $off, $on, $case, $both, $with) = @_;
	my $how = { cursor => 'SCROLL CURSOR', hold => 'SCROLL CURSOR WITH HOLD' }->{ $case->{how} } // $case->{how};
	$how =~ s/SCROLL/NO SCROLL/ if $case->{no_scroll};
	return "CALL compare($i, \$q\$$off\$q\$, \$q\$$on\$q\$, '$how', " . quote_list(@{ $case->{steps} }) . ', '
	  . quote_list(@{ $case->{names} }) . ', ' . ($case->{rows} ? 'true' : 'false') . ', '
	  . join(', ', map { quote_list(@$_) } $both, \@off, $with) . ');';
}

# Runs SQL in a database.  Returns the messages and the verdicts; after a crash, those so far.
sub run_sql
{
	my ($database, $sql) = @_;
	my $script = PostgreSQL::Test::Utils::tempdir() . '/script.sql';
	append_to_file($script, $sql);
	my ($rc, $ignored, $stderr) = $node->psql($database, "\\i $script", on_error_stop => 0);
	$node->poll_query_until($database, undef, '');
	my $stdout = $node->safe_psql($database, 'SELECT case_no, nodes, verdict FROM verdict');
	my %verdicts = map { my ($i, @v) = split /\|/; $i => \@v } split /\n/, $stdout;
	return ($stderr, %verdicts);
}

# the comparison finds differences
$node->safe_psql('postgres', $schema);
{
	my %case = (how => 'table', steps => [], names => ['k1'], rows => 1);
	my $q = 'SELECT i / 2 AS k1, i FROM generate_series(1, 20) i ORDER BY';
	my ($stderr, %verdicts) = run_sql('postgres', join "\n",
		call(1, "$q k1", "$q k1 DESC", \%case, [], []),
		call(2, "$q k1, i", "$q k1, i DESC", \%case, [], []),
		call(3, "$q k1", "$q k1 LIMIT 19", \%case, [], []),
		call(4, "$q k1", "SELECT k1, i + (i = 7)::int AS i FROM ($q k1) s", \%case, [], []),
		call(5, "$q k1", "$q k1 DESC", { %case, how => 'loop' }, [], []),
		call(6, "$q k1", "$q k1 DESC", { %case, how => 'hold', steps => [ 'MOVE 3', 'FETCH BACKWARD 1' ] }, [], []));
	is(join(', ', $stderr, map { $verdicts{$_} ? $verdicts{$_}[1] : 'none' } 1 .. 6),
		', other keys in row 1, same, 19 rows, not 20, other rows, other keys in row 1, other keys in row 1',
		'the comparison finds different answers');
}

my ($used, $done, $number) = (0, 0, 0);
foreach my $database (sort keys %databases)
{
	$node->safe_psql('postgres', "CREATE DATABASE $database TEMPLATE template0 ENCODING 'UTF8' $databases{$database}");
	$node->safe_psql($database, $schema);
	my (%sql, $table);
	# code of other modules may have called rand() in between
	srand(3 * $seed + $number++);
	my $share = int($cases / 3) + ($database eq 'c' ? $cases % 3 : 0);
	my $script = '';
	foreach my $i (1 .. $share)
	{
		if ($i % 8 == 1)
		{
			$table = make_table();
			$script .= "$table->{sql}\n";
		}
		my $case = make_query($table);
		my $settings = make_settings($case);
		my @both = map { $_ => $settings->{$_} } sort keys %$settings;
		my @with = $has_node ? ('gpusort.enabled', 'on', 'gpusort.force', 'on', 'gpusort.min_rows', 0) : ();
		push @with, 'gpusort.memory_limit', $limit if $limit ne '' && chance(50);
		$sql{$i} = join "\n", $table->{sql}, "-- $case->{kind}: $case->{how} @{ $case->{steps} }", "-- @both @with", $case->{sql};
		$script .= call($i, $case->{sql}, $case->{sql}, $case, \@both, \@with) . "\n";
	}
	my ($stderr, %verdicts) = run_sql($database, $script);
	my @bad = grep { !$verdicts{$_} || $verdicts{$_}[1] ne 'same' } 1 .. $share;
	is(scalar @bad, 0, "$share queries give the same answers, $databases{$database}");
	diag("SEED=$seed CASES=$cases, database $database, case $_: "
		  . ($verdicts{$_} ? $verdicts{$_}[1] : 'an error') . "\n$sql{$_}\n") foreach grep { defined } @bad[ 0 .. 2 ];
	diag(substr($stderr, 0, 3000)) if $stderr =~ /ERROR|WARNING|connection/;
	$done += grep { $verdicts{$_} } 1 .. $share;
	$used += grep { $verdicts{$_} && $verdicts{$_}[0] > 0 } 1 .. $share;
	last if $stderr =~ /server closed the connection|connection to server was lost/;
}
SKIP:
{
	skip('the server has no GpuSort node', 1) unless $has_node;
	cmp_ok($used, '>=', $done / 2, "$used of $done plans had a GpuSort");
}
$node->stop;

done_testing();
