# RandomTables.pm - random tables for random queries.
#
# make_table() makes table t: columns of which each has its use (few, mid and many values, exact
# sums, text, ...), columns c1, c2... of random kinds, NULLs, values out of line, sorted or not; plain, with
# partitions or children; with dropped, added and generated columns, indexes and old statistics.

package RandomTables;

use strict;
use warnings;

use Encode qw(encode_utf8);
use Exporter 'import';
use List::Util qw(shuffle);
use RandomValues;

our @EXPORT = qw(make_table collation_for);

# A collation for a column.  Core's hash function of names does not know of collations that ignore cases.
sub collation_for
{
	my ($column, $collations) = @_;
	return ' COLLATE "' . pick(grep { $_ ne 'nocase' || $column->{type} ne 'name' } @{ $collations // ['C'] }) . '"';
}

# random.sql has operator classes of users for int, which have another order, and for these types, which have
# core's order
my $own_types = qr/^(?:uuid|bytea|macaddr|inet)$/;

# The columns that each table has, and how value_of() makes them
sub fixed_columns
{
	my ($rows) = @_;
	my %typed = (i2 => 'int2', i4 => 'int4', i8 => 'int8', f4 => 'float4', f8 => 'float8', d => 'date', ts => 'timestamp', tz => 'timestamptz', s => 'small');
	return (few => [ 'int4', distinct => 4, special => 0, nulls => pick(0, 20) ],
		mid => [ 'int4', distinct => 300, special => 0, nulls => pick(0, 0, 5) ],
		many => [ 'int8', distinct => 1_000_000_000, nulls => pick(0, 5, 33) ],
		up => [ 'int4', order => pick('up', 'down', 'saw'), rows => $rows, special => 0 ],
		x => [ pick('text', 'text: cases'), distinct => pick(3, 300, 1_000_000), nulls => pick(0, 10) ],
		n => [ pick('numeric', 'numeric', 'numeric: 40 digits'), distinct => pick(3, 1000, 1_000_000), nulls => pick(0, 10) ],
		m => [ 'float8: exact', special => chance(30) ],
		w => [ 'numeric(12, 2)', nulls => pick(0, 2) ],
		iv => [ 'interval: one form', distinct => pick(30, 1000), nulls => pick(0, 20) ],
		map { $_ => [ $typed{$_}, distinct => pick(1, 3, 1000, 2_000_000_000), nulls => pick(0, 0, 20, 100) ] } sort keys %typed);
}

# A column c1, c2...
sub random_column
{
	my ($number, $strings, $want, $rows) = @_;
	my $kind = pick(@{ $want->{kinds} // ($strings ? ($number <= 4 ? \@string_kinds : \@keyed_kinds)
		: chance(20) ? \@group_kinds : chance(15) ? [ 'text: prefix', 'bytea: prefix' ] : \@keyed_kinds) });
	my $type = $kind =~ s/:.*//r;
	my $value = value_of($kind, nulls => pick(0, 0, 0, 2, 50, 100), $strings ? (distinct => pick(1, 2, 3, 10)) : chance(30) ? (distinct => pick(2, 30, 500)) : ());
	# the first rows are unlike the rest, so that what a sort learns from them is wrong later
	my @alike = grep { s/:.*//r eq $type } @plain_kinds;
	$value = 'CASE WHEN i <= ' . ($rows > 2000 ? 2000 : 100) . ' THEN ' . value_of(pick(@alike)) . " ELSE $value END" if @alike && !$strings && chance(15);
	return { name => "c$number", kind => $kind, type => $type, value => $value };
}

# make_table(HOW => ...): a random table t: its {sql}, {columns} and number of {rows}.
#
#   rows => [...]         numbers of rows to pick from
#   kinds => [...]        of c1, c2...
#   collations => [...]   of its strings
#   strings => p          percent of tables whose first columns are few strings
#   copy => {...}         strings of {alphabets}, {kinds} and {types} instead of values by SQL
#   amcheck => 1          indexes of users' operator classes are checked
sub make_table
{
	my (%want) = @_;
	my $rows = pick(@{ $want{rows} // [ 0, 1, 2, 10, (1000) x 6, (5000) x 4, 20000 ] });
	return copied_table($want{copy}, $rows) if $want{copy};
	my $strings = chance($want{strings} // 15);
	my %fixed = fixed_columns($rows);
	my @columns = (map({ { name => $_, kind => $fixed{$_}[0], type => $fixed{$_}[0] =~ s/:.*//r, value => value_of(@{ $fixed{$_} }) } } sort keys %fixed),
		map { random_column($_, $strings, \%want, $rows) } 1 .. ($strings ? 8 : 3 + below(3)));
	@columns = shuffle(@columns);
	my %table = (rows => $rows, strings => $strings, columns => \@columns);
	foreach my $column (@columns)
	{
		$column->{collated} = $kinds{ $column->{kind} }[2];
		$column->{keyed} = defined $kinds{ $column->{kind} }[1];
		$column->{own} = $column->{type} =~ /^int4$/ || $column->{kind} =~ $own_types;
	}
	my $shape = pick(('plain') x 6, 'hash', 'list', 'child');
	my ($sorted) = chance(25) ? grep { $_->{name} eq 'c1' && $_->{keyed} } @columns : ();
	my $order = $sorted ? ' ORDER BY c1' . pick('', ' DESC') : '';
	my $names = join ', ', 'id', 'pad', map { $_->{name} } @columns;
	my $select = "SELECT * FROM (SELECT i, repeat('pad', rnd(i, 7, 30)::int), " . join(', ', map { "$_->{value} AS $_->{name}" } @columns) . ' FROM generate_series';
	my $first = pick(0, 100, int($rows / 2), $rows, $rows);
	$first = $rows if $first > $rows;
	my $made = 'gen int GENERATED ALWAYS AS (few * 2 + id % 3) STORED';

	my @sql = ('DROP TABLE IF EXISTS t CASCADE', 'CREATE TABLE t (id int, gone text, '
		  . join(', ', map { "$_->{name} $_->{type}" . ($_->{collated} && $_->{name} =~ /^[cx]/ && chance(50) ? collation_for($_, $want{collations}) : '') } @columns)
		  . ", $made, pad text)" . ($shape eq 'hash' ? ' PARTITION BY HASH (id)' : $shape eq 'list' ? ' PARTITION BY LIST (few)' : ''));
	push @sql, map { "ALTER TABLE t ALTER $_->{name} SET STORAGE EXTERNAL" } grep { $_->{kind} =~ /long|late/ && chance(50) } @columns;
	push @sql, 'ALTER TABLE t DROP gone' if chance(50);
	push @sql, map { "CREATE TABLE t_$_ PARTITION OF t FOR VALUES WITH (MODULUS 2, REMAINDER $_)" } $shape eq 'hash' ? (0, 1) : ();
	# the columns of this partition have other numbers
	push @sql, 'CREATE TABLE t_0 (b int, LIKE t INCLUDING GENERATED)', 'ALTER TABLE t_0 DROP b', 'ALTER TABLE t ATTACH PARTITION t_0 FOR VALUES IN (0, 1, NULL)',
	  'CREATE TABLE t_1 PARTITION OF t DEFAULT' if $shape eq 'list';
	push @sql, "INSERT INTO t ($names) $select(1, $first) i) s$order", chance(50) ? 'ANALYZE t' : ();
	push @sql, "ALTER TABLE t ADD late int8 DEFAULT 77, ADD more text DEFAULT 'more'";
	push @sql, 'CREATE TABLE t_child (own int DEFAULT 5) INHERITS (t)' if $shape eq 'child';
	push @sql, 'INSERT INTO ' . ($shape eq 'child' ? 't_child' : 't') . " ($names, late) " . ($select =~ s/\* FROM/*, row_number() OVER () % 50 FROM/r) . "($first + 1, $rows) i) s$order";
	push @sql, 'DELETE FROM t WHERE id % 3 = 1' if chance(20);
	push @sql, 'CREATE INDEX ON t (id)', chance(30) ? 'CREATE INDEX ON t (mid, few, id)' : ();
	# an index for incremental sorts; some values are too long for it, and some types have no order
	push @sql, 'DO $$ BEGIN CREATE INDEX ON t (c1); EXCEPTION WHEN program_limit_exceeded OR undefined_object THEN NULL; END $$' if $table{presorted} = chance(30);
	my @own = grep { $_->{own} } @columns;
	if (chance(50))
	{
		my $column = pick(@own, grep { $_->{type} ne 'int4' } @own);
		my $class = $column->{type} eq 'int4' ? pick('turned', 'turned', 'unsigned') : "own_$column->{type}";
		push @sql, 'SET gpusort.force = on', "CREATE INDEX own ON t ($column->{name} $class" . pick('', '', ' DESC', ' NULLS FIRST') . ')', 'RESET gpusort.force';
		push @sql, "SELECT bt_index_check('own')" if $want{amcheck} && $shape !~ /hash|list/;
	}
	push @sql, 'ANALYZE t' if chance(60);
	push @sql, 'VACUUM ANALYZE t' if chance(15);
	$table{sql} = join(";\n", @sql) . ";\n";
	return \%table;
}

# A table whose strings are of an alphabet
sub copied_table
{
	my ($copy, $rows) = @_;
	my $times = $rows >= 300 && chance(10) ? 20 : 1;
	my (@columns, @makers, @nulls);
	my $sql = '';
	foreach my $i (1 .. 2 + below(3))
	{
		my ($kind, $type) = map { pick(@$_) } @$copy{ 'kinds', 'types' };
		push @columns, { name => "c$i", kind => $kind, type => $type, collated => 1, keyed => 1 };
		push @makers, strings_of($kind, pick(@{ $copy->{alphabets} }));
		push @nulls, pick(0, 0, 3, 50);
		$sql .= " ALTER TABLE t ALTER c$i SET STORAGE EXTERNAL;" if $kind eq 'long' && $type ne 'name' && chance(40);
	}
	my $about = join ', ', map { "$_->{name} $_->{type}" } @columns;
	$sql = "DROP TABLE IF EXISTS t; CREATE TABLE t (id int, few int, mid int, $about);$sql\nCOPY t FROM stdin;\n";
	foreach my $id (1 .. $rows)
	{
		my @values = map { chance($nulls[$_]) ? undef : $makers[$_]->() } 0 .. $#columns;
		# the server's limit for values of char(40) is an error, that of name is not
		$sql .= join("\t", $id, below(4), below(300), map { copied($columns[$_]{type} eq 'char(40)' && defined $values[$_] ? substr($values[$_], 0, 40) : $values[$_]) } 0 .. $#columns) . "\n";
	}
	$sql .= "\\.\n";
	# the beginnings and the ends of rows in new pairs
	my $pairs = join ', ', map { $_->{type} eq 'text' ? "left(a.$_->{name}, i) || b.$_->{name}" : "a.$_->{name}" } @columns;
	$sql .= "INSERT INTO t SELECT a.id + $rows * i, a.few, a.mid, $pairs FROM t a, generate_series(1, $times) i, t b "
	  . "WHERE b.id = (a.id::bigint * i * 7919) % $rows + 1 AND octet_length(concat(a.*)) < 2000;\n" if $times > 1;
	$sql .= 'CREATE TABLE u (LIKE t INCLUDING STORAGE); INSERT INTO u SELECT * FROM t ORDER BY c1' . pick('', ' DESC') . ", id; DROP TABLE t; ALTER TABLE u RENAME TO t;\n"
	  if chance(20);
	return { rows => $rows * $times, columns => \@columns, copied => 1, about => join('; ', map { "$_->{name} $_->{type}: $_->{kind}" } @columns), sql => encode_utf8("${sql}ANALYZE t;\n") };
}

1;
