# DISTINCT and GROUP BY return the same groups from a GroupAggregate above a GpuSort as from core's HashAggregate.
#
# The queries are random: one to three columns of groups (types of all kinds, also such as have no order or no hash,
# expressions, collations, NULLs, values that are equal but differ), with aggregates and without, HAVING, ORDER BY and LIMIT;
# DISTINCT, UNION, IN (SELECT ...) that is made unique, joins of groups, groups of groups, and columns that depend on a
# primary key.  They read tables of many columns, of which some are dropped, added, generated or the system's, partitions,
# children, indexes, bitmaps and whole rows, in subqueries that are rescanned, cursors and prepared statements, by parallel
# workers and with memory limits from 64 kB on.  Answers are compared as in 020_random.pl, lists in any order, and sums but
# for rounding.  Then the plans: which HashAggregates are replaced, and which must stay.
#
#   SEED=n    repeats the cases of an earlier run; printed when a case fails
#   CASES=n   120 by default
#   SETTINGS="a=1 b=2"   more settings for the server

use strict;
use warnings;

use GpusortTest;
use RandomTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($seed, $cases) = begin_cases(120);

# Kinds beside those of RandomTest.pm: without an order, without a hash function, or without keys of GpuSort
my %more_kinds = (xid => '(R)::text::xid', tid => "('(' || (R) % 4000 || ',' || (R) % 7 || ')')::tid", money => '((R) % 100000)::int::money', pg_lsn => "('0/' || to_hex(R % 65536))::pg_lsn",
	tsvector => "to_tsvector('simple', (R)::text)", odd => 'ROW((R) % 2000)::odd', even => 'ROW((R) % 2000)::even', int4multirange => 'int4multirange(int4range((R % 50)::int, (R % 50 + 3)::int))');
$kinds{$_} = [ $more_kinds{$_}, undef ] foreach sort keys %more_kinds;
my @group_kinds = ((sort keys %more_kinds) x 2, grep({ !/ long|late|40 digits/ } @plain_kinds));
# equal values of these kinds are the same text
my @one_form = grep { defined $kinds{$_} } ('int2', 'int4', 'int8', 'oid', 'date', 'timestamp', 'uuid', 'name', 'bool', 'text', 'varchar', 'colour', 'inet', 'float8: one form', 'numeric: one form');
# the kinds of the columns g0, g1 and g2 of the table that was made last
my %kind_of;

my @groups = ('few', 'few', 'few', 'mid', 'mid', 'many', 'many', 'id', 'gen', 'late', 'x', 'x', 'x COLLATE "en-x-icu"', 'x COLLATE nocase', 'x COLLATE libc', 'lower(x)', ('g0', 'g1', 'g2') x 4);
my @expressions = ('id % 10', 'i4 / 1000', 'mid > 100', 'f8 > 0', 'NULL::int', 'nullif(few, 1)', 'ROW(few, x)::pair', 'ARRAY[few, mid]', 'ARRAY[f8, -0.0]', '(mid % 500)::small', 'hashint4(mid)',
	'CASE WHEN id % 2 = 0 THEN hashint4(mid) ELSE hashint4(mid) + 0 END', 'CASE WHEN id % 2 = 0 THEN 0::float8 ELSE -0.0::float8 END', 'CASE WHEN id % 2 = 0 THEN 1.0 ELSE 1.00 END', 'n', 'round(n, 1)', 'f8',
	'ctid', 'tableoid', 'tableoid::regclass', 'repeat(few::text, 1000)', 'few::numeric', "few::text COLLATE \"C\"", 'x::char(9)', 'x::varchar', 'x::name', '(SELECT few)', '(SELECT count(*) FROM pg_namespace WHERE oid = mid::oid)', "'a'::text");

# Aggregates that are the same whatever the order of rows; lists; those that are rounded
my @aggregates = ('count(*)', 'count(*)', 'count(*)', 'count(i4)', 'count(n)', 'sum(i4)', 'sum(i8)', 'avg(i4)', 'sum(n)', 'avg(n)', 'max(n)', 'min(f8)', 'max(id)', 'min(x)', 'max(x COLLATE "C")', 'stddev(i4)', 'var_pop(n)',
	'bool_and(id > 3)', 'bit_or(i4)', 'max(late)', 'min(more)', 'max(gen)', 'count(g0)', 'max(ARRAY[i4, few])', 'sum(random() * 0)', 'count(t.*)', 'max(ctid)', 'count(DISTINCT i4)', 'max(tableoid)', 'sum((SELECT few))', 'own_sum(few)',
	'range_agg(int4range(id, id + 2))', 'grouping(KEY)', 'sum(m)', 'own_max(id)');
my @lists = (map({ "array_agg($_)" } 'i4', 'f8', 'x', 'n', 'few'), "string_agg(x, ',')", 'json_agg(i4)', 'jsonb_agg(mid)', 'own_list(id)');
my @rounded = ('sum(least(greatest(f8, -1e3), 1e3))', 'avg(f4)', 'stddev(m)', 'regr_slope(m, few)', 'corr(m, mid)');

# SQL that makes table t, whose statistics may be of none or of a few of its rows
sub make_table
{
	my $rows = pick(0, 1, 100, 3000, 6000, 6000, 9000);
	%kind_of = map { $_ => pick(@group_kinds) } 'g0', 'g1';
	# no query can group by a type without a hash function and by one without an order
	$kind_of{g1} = pick(@one_form) if $kind_of{g0} eq 'xid' || $kind_of{g1} eq 'xid';
	$kind_of{g2} = pick(@one_form);
	my %values = (few => value_of('int4', distinct => 4, special => 0, nulls => pick(0, 20)), mid => value_of('int4', distinct => 300, special => 0, nulls => pick(0, 0, 5)),
		many => value_of('int8', distinct => 1_000_000_000, nulls => pick(0, 5)), i4 => value_of('int4', distinct => pick(3, 1000)), i8 => value_of('int8', nulls => pick(0, 20)), f4 => 'rnd(i, 8, 1000)::float4 / 8',
		f8 => value_of('float8', distinct => pick(3, 1000), nulls => pick(0, 10)), x => value_of(pick('text', 'text: cases'), distinct => pick(3, 300, 1_000_000), nulls => pick(0, 10)),
		n => value_of('numeric', distinct => pick(3, 1000), nulls => pick(0, 10)), m => '(rnd(i, 5, 20000) - 10000)::float8 / 8',
		map { $_ => value_of($kind_of{$_}, distinct => pick(2, 30, 500, 2_000_000_000), nulls => pick(0, 0, 20)) . '::' . ($kind_of{$_} =~ s/:.*//r) } 'g0', 'g1', 'g2');
	my @columns = sort keys %values;
	my $names = join ', ', 'id', 'gone', @columns;
	my $select = "SELECT i, repeat('gone', i % 9), " . join(', ', map { "$values{$_} AS $_" } @columns) . ' FROM generate_series';
	my $first = pick(0, 100, $rows, $rows);
	my $early = int($first / 2);
	my $shape = pick('plain', 'plain', 'plain', 'hash', 'list', 'child');
	my $sql = "DROP TABLE IF EXISTS t CASCADE; DROP TABLE IF EXISTS shape; CREATE TEMP TABLE shape AS SELECT i AS id, 'x'::text AS gone, " . join(', ', map { "$values{$_} AS $_" } @columns) . " FROM generate_series(1, 0) i; "
	  . "CREATE TABLE t (LIKE shape, gen int GENERATED ALWAYS AS (few * 2 + id % 3) STORED)"
	  . ($shape eq 'hash' ? ' PARTITION BY HASH (id)' : $shape eq 'list' ? ' PARTITION BY LIST (few)' : '') . '; ';
	$sql .= "CREATE TABLE t_$_ PARTITION OF t FOR VALUES WITH (MODULUS 2, REMAINDER $_); " foreach $shape eq 'hash' ? (0 .. 1) : ();
	# the columns of a partition have other numbers
	$sql .= "CREATE TABLE t_0 (b int, LIKE shape, gen int GENERATED ALWAYS AS (few * 2 + id % 3) STORED); ALTER TABLE t_0 DROP b; ALTER TABLE t ATTACH PARTITION t_0 FOR VALUES IN (0, 1, NULL); CREATE TABLE t_1 PARTITION OF t DEFAULT; " if $shape eq 'list';
	$sql .= "INSERT INTO t ($names) $select(1, $early) i; ";
	$sql .= 'ALTER TABLE t DROP COLUMN gone; ' if chance(30);
	$names =~ s/gone, // if $sql =~ /DROP COLUMN gone/;
	$select =~ s/repeat\(.*?\), // if $sql =~ /DROP COLUMN gone/;
	$sql .= "ALTER TABLE t ADD COLUMN late int8 DEFAULT 77, ADD COLUMN more text DEFAULT 'more'; ";
	$sql .= 'CREATE TABLE t_child (own int DEFAULT 5) INHERITS (t); ' if $shape eq 'child';
	my @parts = ([ 't', $early + 1, $first ], [ $shape eq 'child' ? 't_child' : 't', $first + 1, $rows ]);
	$sql .= "INSERT INTO $_->[0] ($names, late) " . ($select =~ s/ FROM generate_series$/, i % 50 FROM generate_series/r) . "($_->[1], $_->[2]) i; " . pick('ANALYZE t; ', 'VACUUM ANALYZE t; ') foreach @parts[ 0 .. pick(0, 1) ];
	$sql .= 'CREATE INDEX ON t (mid, few, id); ' if chance(50);
	$sql .= 'DELETE FROM t WHERE id % 3 = 1; ' if chance(30);
	return "$sql\n";
}

# An expression by which the rows of a query are put in sequence, whatever the type of the column
sub sortable
{
	my ($name, $key) = @_;
	my $kind = $kind_of{$key} // '';
	return $kind =~ /^(?:xid|odd|even)$/ ? "$name\::text COLLATE \"C\"" : $name;
}

sub filter
{
	return chance(15) ? ' FILTER (WHERE ' . pick('id % 3 = 0', 'i4 > 0', 'false', 'few = 1') . ')' : '';
}

sub pick_keys
{
	return map { chance(80) ? pick(@groups) : pick(@expressions) } 1 .. pick(1, 1, 1, 2, 2, 3);
}

sub pick_from
{
	return pick(('t') x 16, '(SELECT t.*, t.ctid, t.tableoid FROM t WHERE id % 3 = 0 UNION ALL SELECT t.*, t.ctid, t.tableoid FROM t WHERE id % 3 > 0) t', '(SELECT t.*, t.ctid, t.tableoid FROM t JOIN generate_series(0, 4) j ON j = id % 7) t',
		'(SELECT t.*, t.ctid, t.tableoid FROM t ORDER BY i4, id) t', '(SELECT u.*, u.ctid, u.tableoid FROM generate_series(0, 9) j LEFT JOIN t u ON u.id = j) t', 't TABLESAMPLE BERNOULLI (50) REPEATABLE (7)',
		'(SELECT t.*, t.ctid, t.tableoid FROM t OFFSET 0) t', 'ONLY t');
}

# A query of groups without an order; the columns are called k0 ... and a0 ...  Returns it, expressions that its caller
# selects, columns by which the rows can be put in sequence, and the columns' names.
sub make_groups
{
	my ($way) = @_;
	my @keys = pick_keys();
	my $from = pick_from();
	my $where = pick(('true') x 6, 'id % 5 <> 0', 'few IS NOT NULL', 'false', 'i4 > 0', 'mid < 50', $way eq 'lateral' ? ('id % 7 <> o.r', 'id <= o.r * 100', 'few = o.r') : $way eq 'prepared' ? 'id % 7 <> $1' : ());
	my $select = join ', ', map { "$keys[$_] AS k$_" } 0 .. $#keys;
	my @names = map { "k$_" } 0 .. $#keys;
	my @by = map { sortable("k$_", $keys[$_]) } 0 .. $#keys;
	my $form = pick('distinct', 'distinct', 'groups', ('aggregates') x 4, 'union', 'again');
	if ($form eq 'distinct') { return ("SELECT DISTINCT $select FROM $from WHERE $where", join(', ', @names), \@by, \@names) }
	if ($form eq 'union')
	{
		my $other = chance(50) ? $select : join ', ', map { "NULL AS k$_" } 0 .. $#keys;
		return ("SELECT $select FROM $from WHERE $where UNION SELECT $other FROM t WHERE id % 2 = 0", join(', ', @names), \@by, \@names);
	}
	if ($form eq 'again')
	{
		return ("SELECT k0, count(*) AS a0 FROM (SELECT DISTINCT $select FROM $from WHERE $where) q GROUP BY k0", 'k0, a0', [ $by[0] ], [ 'k0', 'a0' ]) if chance(50);
		return ("SELECT DISTINCT a0 AS k0 FROM (SELECT count(*) AS a0 FROM $from WHERE $where GROUP BY " . join(', ', map { $_ =~ /^'|NULL/ ? "($_ || '')" : $_ } @keys) . ') q', 'k0', ['k0'], ['k0']);
	}
	my @list = $form eq 'groups' ? () : map { pick((@aggregates) x 3, (@lists) x 1, @rounded) } 1 .. pick(1, 1, 2, 3, 6);
	my @forms = map { "a$_" } 0 .. $#list;
	foreach my $i (0 .. $#list)
	{
		my $hash = "count(*) + sum(hashtextextended(coalesce(e::text, 'NULL'), 0)::numeric)";
		$forms[$i] = "(SELECT $hash FROM unnest(a$i) e)" if $list[$i] =~ /^(?:array_agg|own_list)/;
		$forms[$i] = "(SELECT $hash FROM string_to_table(a$i, ',') e)" if $list[$i] =~ /^string_agg/;
		$forms[$i] = "(SELECT $hash FROM $1_array_elements(a$i) e)" if $list[$i] =~ /^(jsonb?)_agg/;
		$forms[$i] = "ROW(a$i)::near" if grep { $list[$i] eq $_ } @rounded;
		$list[$i] =~ s/KEY/$keys[0]/ or $list[$i] .= filter();
		$list[$i] = "coalesce($list[$i], $list[$i])" if chance(5);
	}
	my $having = !chance(25) ? '' : ' HAVING ' . pick('count(*) > 1', 'max(i4) > 7', 'false', "max(i4) > 7 AND $keys[0] IS NOT NULL", "$keys[0] IS NOT NULL", '(SELECT max(g) FROM generate_series(1, 9) g WHERE g <= count(i4)) > 1', $way eq 'lateral' ? 'count(*) > o.r' : ());
	$select .= ", $list[$_] AS a$_" foreach 0 .. $#list;
	return ("SELECT $select FROM $from WHERE $where GROUP BY " . join(', ', map { "k$_" } reverse 0 .. $#keys) . $having,
		join(', ', @names, map { "$forms[$_] AS a$_" } 0 .. $#list), \@by, [ @names, map { "a$_" } 0 .. $#list ]);
}

# A setting that puts a plan into a worker
my $debug_parallel;

sub make_case
{
	my $way = pick(('plain') x 8, ('prepared') x 2, ('lateral') x 4, 'join', 'cte', 'cursor', 'held', 'subplan', 'error', 'in', 'in', 'depends', 'both', 'limit', 'recursive', 'row');
	my ($sql, $forms, $by, $names) = make_groups($way);
	my %case = (how => 'table', steps => [], kind => $way);
	# the planner of the inner query does not know of the order
	my $ordered = sub { my ($query) = @_; return "SELECT $forms FROM ($query OFFSET 0) q ORDER BY " . join(', ', @$by) };
	my $full = chance(75) ? $ordered->($sql) : "SELECT $forms FROM ($sql) q ORDER BY " . join(', ', directions(@$by)) . pick('', ' LIMIT 10', ' LIMIT 20 OFFSET 3');
	if ($way eq 'prepared')
	{
		@case{ 'how', 'steps' } = ('prepared', [ '(int)', '(' . pick(0, 3, 'NULL') . ')' ]);
		$full = "SELECT * FROM ($full) q WHERE \$1 IS DISTINCT FROM 8";
	}
	elsif ($way eq 'lateral')
	{
		$full .= ' OFFSET coalesce(o.r, 0) % 2' if $full !~ /OFFSET 3/;
		# the groups are rewound for the second row of v
		$full = "SELECT v.y, i.* FROM (VALUES (1), (2)) v(y) LEFT JOIN ($full) i ON true" if chance(40);
		$full = "SELECT o.r, l.* FROM (VALUES (3), (3), (0), (NULL), (5)) o(r), LATERAL ($full) l";
		$names = [ 'r', @$names ];
	}
	elsif ($way eq 'join') { $full = "SELECT q.* FROM generate_series(1, 3) j LEFT JOIN ($full) q ON " . pick('true', 'j <> 2', 'j = 7') }
	elsif ($way eq 'cte') { $full = "WITH q AS MATERIALIZED ($full) SELECT * FROM q UNION ALL SELECT * FROM q" }
	elsif ($way eq 'cursor' || $way eq 'held')
	{
		# all rows in the order of the groups
		$case{how} = ($way eq 'held' ? 'SCROLL CURSOR WITH HOLD' : pick('SCROLL CURSOR', 'NO SCROLL CURSOR'));
		my $key = pick('g2', 'mid', 'many', 'few, g2', 'id', 'g2, mid');
		$full = pick("SELECT DISTINCT 1 AS one, $key FROM t", "SELECT 1 AS one, $key, count(*) AS a0, sum(i4) AS a1 FROM t GROUP BY $key");
		$names = ['one'];
		$case{rows} = 1;
		$case{steps} = pick([ 'MOVE FORWARD 5', 'FETCH FORWARD ALL' ], ['FETCH FORWARD ALL']);
		$case{steps} = pick([ 'FETCH FORWARD ALL', 'FETCH BACKWARD ALL' ], [ 'MOVE FORWARD 7', 'MOVE BACKWARD ALL', 'FETCH FORWARD ALL' ]) if $case{how} !~ /NO/;
		# which rows come first is not known
		$case{steps} = ['FETCH FORWARD ALL'] if $case{steps}[0] eq 'MOVE FORWARD 5';
	}
	elsif ($way eq 'subplan')
	{
		my $inner = pick("SELECT count(*) FROM (SELECT DISTINCT g0 FROM t WHERE id % 5 <> o.r) q", 'SELECT max(c) FROM (SELECT count(*) AS c FROM t WHERE few = o.r GROUP BY mid) q', 'SELECT sum(c) FROM (SELECT mid, count(*) AS c FROM t GROUP BY mid) q',
			'SELECT count(*) FROM (SELECT mid, g1 FROM t GROUP BY mid, g1 HAVING mid > o.r) q');
		($full, $names) = ("SELECT o.r, ($inner) AS c, o.r IN (SELECT few FROM t GROUP BY few, g0) AS i FROM generate_series(0, 4) o(r) ORDER BY 1", [ 'r', 'c', 'i' ]);
	}
	elsif ($way eq 'error')
	{
		my $bad = pick('sum(1 / (id - id))', 'json_object_agg(NULL::text, id)', 'max(id) FILTER (WHERE 1 / (id - id) > 0)', 'min((id / (id - id))::text)', 'sum((2000 + id)::small)', 'own_sum((few + 2147483640 + mid)::int)');
		($full, $names) = ("SELECT attempt(\$e\$SELECT count(*) FROM (SELECT mid, $bad FROM " . pick('t', 't WHERE false', 't WHERE i4 IS NULL') . ' GROUP BY 1 OFFSET 0) q$e$) AS e', ['e']);
	}
	elsif ($way eq 'in')
	{
		# the planner makes the subquery's rows unique, by the operator of IN
		my ($outer, $inner) = @{ pick([ 'b.id', 'mid' ], [ 'b.id', 'many' ], [ 'b.big', 'mid' ], [ 'b.n', 'n' ], [ 'b.o', 'ROW(coalesce(mid, 0))::odd' ], [ 'b.e', 'ROW(coalesce(mid, 0))::even' ], [ '(b.id, b.small)', 'mid, few' ], [ 'b.x', 'x' ], [ 'b.id', 'f8' ], [ 'b.x', 'x COLLATE nocase' ]) };
		($full, $names) = ("SELECT b.id, b.small FROM b WHERE " . ($outer =~ /[oe]$/ ? 'b.id < 30 AND ' : '') . "$outer IN (SELECT $inner FROM t WHERE " . pick('true', 'id % 5 = 0', 'few = 1') . ') ORDER BY 1, 2', [ 'id', 'small' ]);
	}
	elsif ($way eq 'depends')
	{
		# columns that depend on the primary key, which alone makes the groups
		($full, $names) = ('SELECT * FROM (SELECT ' . pick('b.*, count(*) AS c', 'b.x, b.id, b.small + 1 AS s', 'b.id, b AS w, sum(t.i4) AS c', 'b.small, b.id, max(t.id) - b.id AS c')
			  . ' FROM b ' . pick('LEFT JOIN', 'JOIN', 'RIGHT JOIN') . ' t ON b.id = t.mid GROUP BY b.id OFFSET 0) q ORDER BY id', ['id']);
		$case{rows} = 1;
	}
	elsif ($way eq 'both')
	{
		($full, $names) = ('SELECT * FROM (SELECT few, mid, count(*) AS c FROM t GROUP BY few, mid) a ' . pick('JOIN', 'LEFT JOIN', 'FULL JOIN') . ' (SELECT mid, few, max(id) AS m FROM ' . pick('t', 't WHERE id % 2 = 0') . ' GROUP BY mid, few) z USING (mid, few) ORDER BY mid, few, c, m', [ 'mid', 'few', 'c', 'm' ]);
	}
	elsif ($way eq 'limit') { ($full, $names) = ("SELECT count(*) AS c FROM ($sql LIMIT " . pick(1, 7, 300) . pick('', ' OFFSET 2') . ') q', ['c']) }
	elsif ($way eq 'recursive')
	{
		($full, $names) = ('WITH RECURSIVE r AS (SELECT DISTINCT few AS k, 0 AS depth FROM t UNION ALL SELECT * FROM (SELECT DISTINCT (r.k + b.small) % 50, r.depth + 1 FROM r JOIN b ON b.id % 10 = r.k WHERE r.depth < 3) q) SELECT k, depth, count(*) AS c FROM r GROUP BY k, depth ORDER BY 1, 2', [ 'k', 'depth', 'c' ]);
	}
	elsif ($way eq 'row')
	{
		# whole rows, which have all columns
		($full, $names) = (pick('SELECT few, mid, count(w) AS c FROM (SELECT few, mid, (t.*)::text AS w FROM t) q GROUP BY few, mid ORDER BY few, mid', 'SELECT few, mid, sum(hashtext(t::text)) AS c FROM t GROUP BY few, mid ORDER BY few, mid',
			'SELECT few, mid, count(*) AS c FROM (SELECT few, mid, t.*::text AS w FROM t GROUP BY few, mid, t.*::text OFFSET 0) q GROUP BY few, mid ORDER BY few, mid', 'SELECT few, mid, count(t) AS c FROM t GROUP BY tableoid, few, mid ORDER BY few, mid, tableoid'), [ 'few', 'mid', 'c' ]);
	}
	my @both = ((map { $_ => pick('on', 'on', 'on', 'off') } 'enable_material', 'enable_seqscan', 'enable_indexscan', 'enable_hashjoin', 'enable_memoize'), 'enable_partitionwise_aggregate', pick('on', 'off'), 'enable_mergejoin', pick('on', 'off'),
		'work_mem', pick('64kB', '4MB', '64MB'), 'plan_cache_mode', pick('force_generic_plan', 'force_custom_plan'), 'max_parallel_workers_per_gather', pick(0, 0, 0, 2), 'parallel_leader_participation', pick('on', 'on', 'off'),
		'hash_mem_multiplier', pick(1, 2, 1000), $debug_parallel, pick(('off') x 9, 'on'), map { $_ => 0 } 'parallel_setup_cost', 'parallel_tuple_cost', 'min_parallel_table_scan_size');
	@both = (@both, 'enable_hashjoin', 'off', 'enable_seqscan', 'off', 'enable_mergejoin', 'off') if $way eq 'in';
	return { %case, sql => $full, names => $names, both => \@both, with => [ 'gpusort.memory_limit', pick('64kB', '64kB', '256kB', '4MB', '1GB'), 'gpusort.force', pick(('on') x 5, 'off') ] };
}

my $locales = make_locales('en_US.UTF-8');
my $node = new_node('sorted_groups', init => [ extra => [ '--locale=C' ] ],
	settings => "shared_preload_libraries = 'gpusort'\nautovacuum = off\nrestart_after_crash = on\nclient_min_messages = warning\n");
{
	local $ENV{LOCPATH} = $locales // '';
	$node->start;
}
# the plans that are counted have an Agg that sorts
$node->safe_psql('postgres', random_schema() =~ s/\(GpuSort\)/GroupAggregate/r . "CREATE COLLATION libc (provider = libc, locale = '" . ($locales ? 'en_US.UTF-8' : 'C') . "')");
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION gpusort;
CREATE FUNCTION attempt(query text) RETURNS text LANGUAGE plpgsql AS 'BEGIN EXECUTE query; RETURN ''no error''; EXCEPTION WHEN others THEN RETURN SQLERRM; END';
-- numbers that are equal but for rounding
CREATE TYPE near AS (x float8);
CREATE FUNCTION is_near(near, near) RETURNS bool LANGUAGE sql IMMUTABLE
AS 'SELECT ($1).x IS NOT DISTINCT FROM ($2).x OR coalesce(abs(($1).x - ($2).x) <= 1e-7 * (1 + abs(($1).x)), false)';
CREATE OPERATOR = (FUNCTION = is_near, LEFTARG = near, RIGHTARG = near);
CREATE AGGREGATE own_sum(int) (SFUNC = int4pl, STYPE = int, INITCOND = 0);
CREATE AGGREGATE own_list(anycompatible) (SFUNC = array_append, STYPE = anycompatiblearray);
-- composite types, by functions that the planner does not inline, whose hash operator calls more values equal than the order of records does: those with the same remainder
CREATE TYPE odd AS (x int);
CREATE FUNCTION odd_eq(odd, odd) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT AS 'BEGIN RETURN ($1).x % 10 = ($2).x % 10; END';
CREATE FUNCTION odd_hash(odd) RETURNS int LANGUAGE plpgsql IMMUTABLE STRICT AS 'BEGIN RETURN hashint4(($1).x % 10); END';
CREATE OPERATOR = (FUNCTION = odd_eq, LEFTARG = odd, RIGHTARG = odd, COMMUTATOR = =, HASHES);
CREATE OPERATOR CLASS odd_ops DEFAULT FOR TYPE odd USING hash AS OPERATOR 1 =, FUNCTION 1 odd_hash(odd);
-- and one with an order of the same kind
CREATE TYPE even AS (x int);
CREATE FUNCTION even_eq(even, even) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT AS 'BEGIN RETURN ($1).x % 10 = ($2).x % 10; END';
CREATE FUNCTION even_lt(even, even) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT AS 'BEGIN RETURN ($1).x % 10 < ($2).x % 10; END';
CREATE FUNCTION even_gt(even, even) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT AS 'BEGIN RETURN ($1).x % 10 > ($2).x % 10; END';
CREATE FUNCTION even_cmp(even, even) RETURNS int LANGUAGE plpgsql IMMUTABLE STRICT AS 'BEGIN RETURN btint4cmp(($1).x % 10, ($2).x % 10); END';
CREATE FUNCTION even_hash(even) RETURNS int LANGUAGE plpgsql IMMUTABLE STRICT AS 'BEGIN RETURN hashint4(($1).x % 10); END';
CREATE OPERATOR = (FUNCTION = even_eq, LEFTARG = even, RIGHTARG = even, COMMUTATOR = =, HASHES, MERGES);
CREATE OPERATOR < (FUNCTION = even_lt, LEFTARG = even, RIGHTARG = even);
CREATE OPERATOR > (FUNCTION = even_gt, LEFTARG = even, RIGHTARG = even);
CREATE OPERATOR CLASS even_order DEFAULT FOR TYPE even USING btree AS OPERATOR 1 <, OPERATOR 3 =, OPERATOR 5 >, FUNCTION 1 even_cmp(even, even);
CREATE OPERATOR CLASS even_hashes DEFAULT FOR TYPE even USING hash AS OPERATOR 1 =, FUNCTION 1 even_hash(even);
-- what the subqueries of IN are joined with
CREATE TABLE b AS SELECT i AS id, i % 7 AS small, i::int8 AS big, i::numeric AS n, ROW(i)::odd AS o, ROW(i)::even AS e, i::text AS x, repeat('wide', 50) AS pad FROM generate_series(1, 1000) i;
ALTER TABLE b ADD PRIMARY KEY (id);
CREATE INDEX ON b (big);
CREATE INDEX ON b (n);
CREATE INDEX ON b (x);
CREATE INDEX ON b (e);
CREATE INDEX ON b USING hash (o);
VACUUM ANALYZE b;
SQL
$debug_parallel = $node->safe_psql('postgres', "SELECT name FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')");
if (!has_icu($node)) { s/"en-x-icu"|nocase/"C"/ foreach @groups }

# ---- random queries ----

srand($seed);
my ($script, @texts) = ('');
foreach my $i (1 .. $cases)
{
	$script .= make_table() if $i % 10 == 1;
	my $case = make_case();
	$case->{sql} =~ s/nocase/"C"/g if !has_icu($node);
	push @texts, "-- $case->{kind}: $case->{how} @{ $case->{steps} }\n-- @{ $case->{both} } @{ $case->{with} }\n$case->{sql}";
	$script .= compare_call($i, $case);
}
my ($done, $used) = check_cases($node, 'postgres', $script, \@texts, 'of groups');
cmp_ok($used, '>=', $cases / 3, "$used of $cases plans had a GroupAggregate");

# ---- plans ----

$node->safe_psql('postgres', <<'SQL');
-- k and x have many values, v some, few few
CREATE TABLE big AS SELECT i AS id, hashint8(i)::int8 AS k, i % 50 AS few, i % 1000 AS v, i / 8.0::float8 AS f, (i % 60000)::numeric AS n, 'the same ' || i AS x, md5(i::text) AS pad FROM generate_series(1, 100000) i;
CREATE TABLE ids AS SELECT i AS id, hashint8(i)::int8 AS k, ROW(i)::odd AS o FROM generate_series(1, 200000) i;
CREATE INDEX ON ids (k);
CREATE INDEX ON ids (id);
CREATE INDEX ON big (v, few);
VACUUM ANALYZE;
SQL
my $session = session($node);
# core's planner takes a hash table
my @hash = ('SET max_parallel_workers_per_gather = 0', "SET work_mem = '1GB'", 'SET enable_indexscan = off', 'SET enable_indexonlyscan = off', 'SET enable_bitmapscan = off');
answer($session, @hash);

# The plans of a query without GpuSort, and with it, by costs or wherever it can
sub plans
{
	my ($query, $force, $options) = @_;
	return map { answer($session, "SET gpusort.force = $force", "SET gpusort.enabled = $_", 'EXPLAIN (' . ($options // 'COSTS OFF') . ") $query") } 'off', 'on';
}

# The answers to a query with GpuSort and without, as multisets
sub same_answer
{
	my ($name, $query) = @_;
	my ($off, $on) = map { answer($session, 'SET gpusort.force = on', "SET gpusort.enabled = $_", "SELECT count(*), sum(hashtextextended(q::text, 0)::numeric) FROM ($query) q") } 'off', 'on';
	like($off, qr/^\d+\|/, 'there is an answer');
	return is($on, $off, "core's answer: $name");
}

# by their costs, a HashAggregate of many groups is replaced; with a filter, and with a condition on the groups
my $sorted = qr/GroupAggregate\n *Group Key: .*\n(?: *Filter: .*\n)?(?: *Group Key.*\n)* *->  Custom Scan \(GpuSort\)\n *Sort Key: .*\n/;
foreach my $query ('SELECT k, count(*), sum(v) FROM big GROUP BY k', 'SELECT k, v, count(*), avg(f), max(pad) FROM big WHERE v > 5 GROUP BY v, k HAVING sum(v) > 6 AND k > 0', 'SELECT id, id + few, min(x) FROM big GROUP BY id, few', 'SELECT DISTINCT k FROM big',
	'SELECT DISTINCT few FROM big', 'SELECT few, v FROM big GROUP BY few, v', 'SELECT k FROM big GROUP BY k HAVING k > 0', 'SELECT DISTINCT n, k FROM big', 'SELECT b.k, count(*) FROM big b JOIN ids USING (id) GROUP BY b.k',
	'SELECT count(*) FROM (SELECT k, count(*) FROM big GROUP BY k) q', 'SELECT few, (SELECT count(*) FROM (SELECT DISTINCT k FROM big OFFSET 0) q) FROM big', 'WITH q AS MATERIALIZED (SELECT DISTINCT k FROM big) SELECT * FROM q, q r WHERE q.k = r.k + 1')
{
	my ($off, $on) = plans($query, 'off');
	ok($off =~ /HashAggregate/ && $off !~ /GpuSort|GroupAggregate/ && $on =~ /$sorted/ && $on !~ /HashAggregate/, "GpuSort in place of a hash table: $query") or diag("$off\n$on");
	same_answer($query, $query);
}

# The cost that decides is that of the plan, whose scan returns chosen columns only.
foreach my $query ('SELECT DISTINCT n FROM big', 'SELECT id, count(pad) FROM big GROUP BY id', 'SELECT k, count(*) FROM big GROUP BY k')
{
	my ($agg, $sort) = (plans($query, 'on', 'COSTS'))[1] =~ /GroupAggregate  \(cost=([\d.]+).*GpuSort\)  \(cost=([\d.]+)/s;
	cmp_ok($agg // 0, '>=', $sort // 1, "an aggregate costs no less than its sort: $query");
}

# By their costs, hash tables of few groups stay if there are aggregates; and of expressions, whose number is not known.
foreach my $query ('SELECT few, count(*) FROM big GROUP BY few', 'SELECT few, v, count(*) FROM big GROUP BY few, v', 'SELECT few, v, sum(id) FROM big GROUP BY v, few HAVING count(*) > 1', 'SELECT k / 1000, count(*) FROM big GROUP BY 1',
	'SELECT few + v FROM big GROUP BY 1', 'SELECT DISTINCT left(x, 2) FROM big', 'SELECT k % 3, n + 1, count(*) FROM big GROUP BY 1, 2', 'SELECT few, count(*) FROM big WHERE k < 1000 GROUP BY few', 'SELECT k, count(*) FROM (SELECT * FROM big LIMIT 100) b GROUP BY k')
{
	my ($off, $on) = plans($query, 'off');
	ok($on eq $off && $on =~ /HashAggregate/, "a hash table of few groups: $query") or diag("$off\n$on");
}

# GpuSort is stable: aggregates that show the order of rows show that of the table.
foreach my $query ((map { "SELECT v AS k, count(*), $_ AS a FROM big GROUP BY v" } 'array_agg(id)', "string_agg(x, ',')", "string_agg(pad::bytea, '')", 'json_agg(id)', 'jsonb_agg(id)', 'json_object_agg(id, few)', 'own_sum(id)', 'own_max(id)', 'own_list(id)',
			'sum(few) + own_sum(id)', 'array_agg(id) FILTER (WHERE few > 3)', 'sum(id / 7.0::float8)'),
	'SELECT v AS k, own_list(id) AS a FROM big GROUP BY v HAVING own_sum(id) > 3')
{
	my ($off, $on) = plans($query, 'on');
	like($on, qr/GroupAggregate.*GpuSort/s, "sorted: $query") or diag("$off\n$on");
	same_answer("rows of a group in order: $query", "SELECT md5(string_agg(q::text, ',' ORDER BY k)) FROM ($query) q");
}

# An index has the order of groups or windows, or begins with it, but the table's rows have another one.  Reading it takes
# longer than a GpuSort, unless the first rows suffice.
answer($session, 'CREATE INDEX big_k ON big (k, v)', 'SET enable_hashagg = off', 'SET enable_indexscan = on');
foreach my $query ('SELECT k, v, max(f), array_agg(id) FROM big GROUP BY k, v', 'SELECT k, sum(f) FROM big GROUP BY k HAVING count(pad) > 1 ORDER BY k',
	'SELECT DISTINCT ON (k) v, k FROM big WHERE f > 0 ORDER BY k, v', 'SELECT id + 1 AS i, pad, v, sum(v) OVER (PARTITION BY k ORDER BY v), k FROM big WHERE f > 0',
	'SELECT v, row_number() OVER (PARTITION BY k ORDER BY v) AS r, k FROM big WHERE f > 0')
{
	my ($off, $on) = plans($query, 'off');
	ok($off =~ /Index Scan using big_k/ && $on =~ /(?:GroupAggregate|WindowAgg|Unique)(?:\n *(?:Group Key|Filter|Window): .*)*\n *->  Custom Scan \(GpuSort\).*Seq Scan/s, "GpuSort in place of an index scan: $query") or diag("$off\n$on");
	same_answer("in place of an index scan: $query", $query);
	($off, $on) = plans("$query LIMIT 3", 'off');
	ok($on eq $off && $on =~ /Index Scan using big_k/, "an index scan for a few rows: $query") or diag("$off\n$on");
}
my $first = 'SELECT * FROM (SELECT v, row_number() OVER (PARTITION BY k ORDER BY v) AS r, k FROM big WHERE f > 0) q WHERE r <= 2';
like((plans($first, 'off', 'ANALYZE, COSTS OFF'))[1], qr/Bound per Group: 2/, 'GpuSort drops rows in place of an index scan');
same_answer('the first rows of each group, in place of an index scan', $first);
my @ends = plans('SELECT * FROM (SELECT id, rank() OVER (ORDER BY k, v) AS r FROM big) q WHERE r <= 10', 'off');
ok($ends[1] eq $ends[0] && $ends[0] =~ /Index Scan using big_k/, 'an index scan for a window that ends') or diag("@ends");
# what a CTE or a subquery of an expression returns may be read in part; a function's rows have an order that costs nothing
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION rows_of_big() RETURNS TABLE (a int8, b int) LANGUAGE plpgsql COST 1000000000 ROWS 100000 AS $$ BEGIN RETURN QUERY SELECT k, v FROM big; END $$;
SQL
foreach my $query ('WITH c AS MATERIALIZED (SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v) AS r FROM big) SELECT * FROM c LIMIT 10',
	'SELECT ARRAY(SELECT row_number() OVER (PARTITION BY k ORDER BY v) FROM big WHERE f > 0)', 'SELECT EXISTS (SELECT sum(f) FROM big GROUP BY k)',
	'SELECT a, b, o, count(*) OVER (PARTITION BY o ORDER BY a) FROM rows_of_big() WITH ORDINALITY x(a, b, o) LIMIT 10')
{
	my ($off, $on) = plans($query, 'off');
	is($on =~ s/Custom Scan \(GpuSort\)/Sort/gr, $off, "core's plan: $query");
}
# a column above a sort stays there if it is an expression, and where its input is no scan of a table
foreach my $query ('SELECT rn, v, k, count(*) OVER (PARTITION BY k ORDER BY v) FROM (SELECT row_number() OVER (ORDER BY k, v, id) AS rn, v, k FROM big) s WHERE rn <= 50000',
	'SELECT count(*) FROM (SELECT DISTINCT ON (k) r AS a, r AS b, k, v FROM (SELECT random() AS r, k, v FROM big ORDER BY k OFFSET 0) s ORDER BY k, v) q WHERE a <> b',
	'SELECT v AS a, v AS b, k, v + 1 AS c, sum(v) OVER (PARTITION BY k ORDER BY v) FROM big WHERE f > 0')
{
	same_answer("columns above a sort: $query", $query);
}
answer($session, 'DROP INDEX big_k', 'RESET enable_hashagg', 'SET enable_indexscan = off');

# Groups of texts are sorted by their bytes, as nobody wants them in order; in the order of their collation where somebody does
answer($session, "CREATE TABLE texts AS SELECT (word COLLATE libc) p, word::char(30) COLLATE libc b, word COLLATE \"C\" c, CASE WHEN i % 10 = 0 THEN word END COLLATE libc few_values, ('k' || lpad(i::text, 10, '0')) COLLATE libc lies, ('k' || lpad(i::text, 10, '0')) COLLATE \"C\" lies_c, i id
  FROM (SELECT i, 'name ' || hashint4(i % 40000) AS word FROM generate_series(1, 60000) i) s", 'VACUUM ANALYZE texts');
SKIP:
{
	skip 'there is no locale en_US.UTF-8', 31 unless $locales;
	foreach my $column ('p', 'b')
	{
		foreach my $query ("SELECT DISTINCT $column FROM texts", "SELECT $column, count(*), min(id) FROM texts GROUP BY $column", "SELECT count(DISTINCT $column) FROM texts", "SELECT id % 7, count(DISTINCT $column), count(*) FROM texts GROUP BY 1")
		{
			my ($off, $on) = plans($query, 'on');
			unlike($on, qr/COLLATE libc/, "groups are not sorted by strcoll(): $query");
			like($on, qr/$column COLLATE "C"/, "but by bytes: $query") if $query =~ /^SELECT (?:DISTINCT|\w,)/;
			same_answer($query, $query);
		}
		same_answer('both', "SELECT string_agg(DISTINCT $column, ','), count(DISTINCT $column) FROM texts");
		same_answer('DISTINCT in order', "SELECT row_number() OVER (), $column FROM (SELECT DISTINCT $column FROM texts ORDER BY $column OFFSET 0) q");
		same_answer('DISTINCT ON in order', "SELECT row_number() OVER (), q.* FROM (SELECT DISTINCT ON ($column) $column, id FROM texts ORDER BY $column, id DESC) q");
	}
	like((plans('SELECT DISTINCT p FROM texts ORDER BY p', 'on'))[1], qr/COLLATE libc/, 'DISTINCT in order');
	like((plans("SELECT string_agg(DISTINCT p, ',') FROM texts", 'on'))[1], qr/COLLATE libc/, 'a list shows the order');
	# in a table's order, core compares each row once
	like((plans('SELECT * FROM texts ORDER BY lies', 'off'))[1], qr/\A *Sort\n/, 'rows in order are left to core');
	like((plans('SELECT * FROM texts ORDER BY lies DESC', 'off'))[1], qr/GpuSort/, 'those in reverse are not');
	like((plans('SELECT * FROM texts ORDER BY p', 'off'))[1], qr/GpuSort/, 'nor those in any order');
}
unlike((plans('SELECT count(DISTINCT lies_c) FROM texts', 'off'))[1], qr/GpuSort/, 'nor count(DISTINCT) of them');
like((plans('SELECT count(DISTINCT c) FROM texts', 'off'))[1], qr/GpuSort/, 'of those in any order it is');
# count(DISTINCT) does not sort NULLs: rows are no input of a sort below
unlike((plans('SELECT count(DISTINCT few_values) FROM texts', 'off'))[1], qr/\(GpuSort\)/, 'nine of ten are NULL');
same_answer('nine of ten are NULL', 'SELECT count(DISTINCT few_values), count(DISTINCT few_values COLLATE "C") FROM texts');
# a hash table that fits in memory, where sorted texts do not
answer($session, "CREATE TABLE urls AS SELECT ('https://www.example.com/articles/2024/' || hashint4(i) % 30000) COLLATE libc p FROM generate_series(1, 200000) i", 'VACUUM ANALYZE urls');
like((plans('SELECT DISTINCT p FROM urls', 'off'))[1], qr/$sorted/, 'the sorted texts fit in memory');
answer($session, "SET work_mem = '4MB'");
like((plans('SELECT DISTINCT p FROM urls', 'off'))[1], qr/\AHashAggregate/, 'only the hash table fits in memory');
# temporary files that exceed a limit, or might: core's choice stands
answer($session, "SET temp_file_limit = '2MB'");
foreach my $query ('SELECT k, count(*), sum(v) FROM big GROUP BY k', 'SELECT DISTINCT k FROM big')
{
	my ($off, $on) = plans($query, 'off');
	ok($on eq $off && $on =~ /HashAggregate/, "temporary files are limited: $query") or diag("$off\n$on");
}
answer($session, 'RESET temp_file_limit', "SET work_mem = '1GB'");

# By its force, GpuSort must not take hash tables of several sets of groups.
foreach my $query (
	'SELECT k, count(*) FROM big GROUP BY GROUPING SETS ((k), (few))', 'SELECT k FROM big GROUP BY GROUPING SETS ((k), (v))')
{
	my ($off, $on) = plans($query, 'on');
	ok($on eq $off && $on =~ /HashAggregate/, "the hash table stays: $query") or diag("$off\n$on");
}
foreach my $query ('SELECT k, count(*) FROM big GROUP BY ROLLUP (k, few)', 'SELECT few, count(*) FROM big GROUP BY CUBE (few, v)')
{
	my ($off, $on) = plans($query, 'on');
	is($on =~ s/Custom Scan \(GpuSort\)/Sort/r, $off, "sets of groups stay as they are: $query");
	same_answer($query, $query);
}
answer($session, 'SET enable_sort = off');
foreach my $query ('SELECT k, count(*) FROM big GROUP BY k', 'SELECT DISTINCT k FROM big')
{
	my ($off, $on) = plans($query, 'on');
	ok($on eq $off && $on =~ /HashAggregate/, "no sort without enable_sort: $query");
}
answer($session, 'RESET enable_sort');
foreach my $query ('SELECT DISTINCT id::text::xid AS k FROM ids', 'SELECT k::text::xid AS k, count(*) FROM big GROUP BY 1', 'SELECT few, ROW(v)::even, count(*) FROM big GROUP BY 1, 2')
{
	my ($off, $on) = plans($query, 'on');
	ok($off eq $on && $on =~ /HashAggregate/, "a type without an order: $query") or diag("$off\n$on");
	same_answer($query, $query);
}

# an operator of IN that calls more values equal than the type's order does
answer($session, 'SET enable_hashjoin = off', 'SET enable_mergejoin = off', 'SET enable_seqscan = off', 'SET enable_indexscan = on', 'SET enable_material = off');
my $unique = 'SELECT b.id FROM b WHERE b.o IN (SELECT ROW(v)::odd FROM big)';
my ($core_unique, $our_unique) = plans($unique, 'on');
ok($core_unique eq $our_unique && $core_unique =~ /HashAggregate/, 'an operator that is not of the order') or diag("$core_unique\n$our_unique");
same_answer('an operator that is not of the order', $unique);
$unique = 'SELECT ids.id FROM ids WHERE k IN (SELECT k FROM big)';
($core_unique, $our_unique) = plans($unique, 'on');
ok($core_unique =~ /HashAggregate/ && $our_unique =~ /$sorted/, 'the rows of IN are made unique') or diag("$core_unique\n$our_unique");
same_answer('IN', $unique);
answer($session, 'RESET ALL', @hash);

# Only the columns that are needed are sorted.  Core's scan returns all of them.
foreach my $case (
	[ 'SELECT k, count(*), sum(v) FROM big WHERE pad > \'0\' GROUP BY k', 'k, v' ],
	[ 'SELECT DISTINCT k FROM big', 'k' ],
	[ 'SELECT id + 1, max(pad) FILTER (WHERE few > 3) FROM big GROUP BY id HAVING sum(n) > 0', 'id, few, n, pad' ],
	[ 'SELECT k, count(big) FROM big GROUP BY k', undef ],
	[ 'SELECT k, max(ctid) FROM big GROUP BY k', 'k, ctid' ],
	[ 'SELECT few, v FROM big GROUP BY few, v HAVING v > 2 AND few > (SELECT 3)', 'few, v' ])
{
	my ($query, $columns) = @$case;
	my ($off, $on) = plans($query, 'on', 'COSTS OFF, VERBOSE');
	my ($scan) = $on =~ /Seq Scan on public\.big\n *Output: (.*)/;
	is(($scan // '') =~ s/big\.//gr, $columns, "columns: $query") or diag($on) if defined $columns;
	ok($on =~ /$sorted/ || $on =~ /GroupAggregate.*GpuSort/s, "and they are sorted: $query") or diag($on);
	same_answer($query, $query);
}
# an index scan and a bitmap scan return columns, too
foreach my $scan ([ 'enable_indexscan', 'Index Scan' ], [ 'enable_indexonlyscan', 'Index Only Scan' ], [ 'enable_bitmapscan', 'Bitmap Heap Scan' ])
{
	my $query = 'SELECT few, count(*)' . ($scan->[1] eq 'Index Only Scan' ? '' : ', sum(id)') . ' FROM big WHERE v < 300 GROUP BY few';
	answer($session, 'SET enable_seqscan = off', map { "SET $_ = " . ($_ eq $scan->[0] || ($scan->[1] eq 'Index Only Scan' && $_ eq 'enable_indexscan') ? 'on' : 'off') } 'enable_indexscan', 'enable_indexonlyscan', 'enable_bitmapscan');
	my ($off, $on) = plans($query, 'on', 'COSTS OFF, VERBOSE');
	like($on, qr/GroupAggregate.*GpuSort.*$scan->[1].*\n *Output: (?:few|id, few)\n/s, "columns of an $scan->[1]") or diag($on);
	same_answer($scan->[1], $query);
}
answer($session, 'RESET ALL', @hash);

# rows that repeat another one are dropped while they are gathered, but not below aggregates
foreach my $limit ('64kB', '1GB')
{
	answer($session, "SET gpusort.memory_limit = '$limit'");
	my $options = 'ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF';
	like((plans($_, 'on', $options))[1], qr/Bound per Group: 1\n *Rows Removed by Bound: [5-9]\d{4}\n/, "$_ drops rows, $limit") foreach 'SELECT DISTINCT few FROM big', 'SELECT few FROM big GROUP BY few HAVING few > 3', $limit eq '1GB' ? ('SELECT DISTINCT v, few FROM big', 'SELECT few + v FROM big GROUP BY 1') : ();
	my $aggregates = (plans('SELECT few, count(*) FROM big GROUP BY few', 'on', $options))[1];
	like($aggregates, qr/\A(?!.*Bound).*GroupAggregate.*GpuSort/s, "aggregates need all rows, $limit");
}
answer($session, 'RESET gpusort.memory_limit');

# ---- workers ----

my @parallel = ('SET max_parallel_workers_per_gather = 2', map { "SET $_ = 0" } 'parallel_setup_cost', 'parallel_tuple_cost', 'min_parallel_table_scan_size');
answer($session, @parallel, 'SET gpusort.force = on', 'SET gpusort.enabled = on');
my $partial = 'SELECT few, count(*) + sum(id) AS c FROM big GROUP BY few, v';
my $joined = "SELECT * FROM ($partial) a FULL JOIN (SELECT few, count(*) AS d FROM big GROUP BY few) b USING (few)";
my $analyzed = answer($session, "EXPLAIN (ANALYZE, VERBOSE, COSTS OFF, TIMING OFF, SUMMARY OFF) $partial");
like($analyzed, qr/Gather.*Partial GroupAggregate \(actual rows=[\d.]+ loops=3\)\n(?: *(?:Output|Group Key|Worker).*\n)* *->  Custom Scan \(GpuSort\) \(actual rows=3333[\d.]+ loops=3\)\n.*Worker 1:/s, 'workers make groups by sorting') or diag($analyzed);
$session->{err} = '';
answer($session, 'SET client_min_messages = log', 'SET debug_print_plan = on', $partial =~ s/$/ LIMIT 0/r, "SELECT count(*) FROM ($joined) q", 'RESET debug_print_plan', 'RESET client_min_messages');
my @printed = grep { /AGG/ } split /LOG:  plan:/, $session->{err};
is(scalar @printed, 2, 'two plans are printed');
foreach my $plan (@printed)
{
	# a worker finds a node by its number
	my %times;
	my $sorts = 0;
	while ($plan =~ /\{GATHER\b/g)
	{
		my ($gather) = substr($plan, $-[0]) =~ /^(\{(?:[^{}]++|(?1))*\})/;
		$times{$_}++ foreach $gather =~ /:plan_node_id (\d+)/g;
		$sorts += () = $gather =~ /\{CUSTOMSCAN\b/g;
	}
	ok($sorts > 0 && !(grep { $_ > 1 } values %times), "no two nodes below a Gather have the same number, $sorts sorts") or diag(join(' ', map { "$_: $times{$_}" } sort keys %times));
}
same_answer("workers: $_", $_) foreach $partial, $joined, 'SELECT DISTINCT few, v FROM big', 'SELECT k, count(*), max(x) FROM big GROUP BY k', 'SELECT ids.id FROM ids WHERE k IN (SELECT k FROM big WHERE v > 3)';
answer($session, "SET $debug_parallel = on", 'SET max_parallel_workers_per_gather = 0');
same_answer("in a worker: $_", $_) foreach 'SELECT DISTINCT few, v FROM big', 'SELECT k, count(*), max(x) FROM big GROUP BY k';
answer($session, 'RESET ALL', @hash);

# ---- rows that change ----

# A query locks rows, or updates them, which another session has changed.  Then it looks at the new rows.
sub answer_after_update
{
	my ($enabled, $query) = @_;
	$node->safe_psql('postgres', 'DROP TABLE IF EXISTS account; CREATE TABLE account AS SELECT i AS id, i AS v, 0 AS n FROM generate_series(1, 5) i');
	my $writer = session($node);
	answer($writer, 'BEGIN', 'UPDATE account SET v = v + 3 WHERE id IN (2, 4)');
	my ($stdout, $stderr);
	my $reader = in_background($node, \$stdout, \$stderr, "SET gpusort.enabled = $enabled", 'SET gpusort.force = on', @hash, 'SET enable_hashjoin = off', 'SET enable_mergejoin = off', $query);
	ok(poll($node, "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted"), 'a row is locked');
	answer($writer, 'COMMIT');
	$reader->finish;
	leave($writer);
	return "$stdout$stderr" . $node->safe_psql('postgres', 'SELECT * FROM account ORDER BY id');
}
my $few_groups = 'SELECT v, count(*) AS c FROM big WHERE id < 3000 GROUP BY v';
foreach my $query (
	"SELECT a.*, q.c FROM account a JOIN ($few_groups OFFSET 0) q ON q.v = a.v ORDER BY a.id FOR UPDATE OF a",
	'SELECT a.*, q.c FROM account a, LATERAL (SELECT few, count(*) AS c FROM big WHERE v = a.v GROUP BY few OFFSET 0) q WHERE q.c = 100 ORDER BY a.id FOR UPDATE OF a',
	'UPDATE account SET n = v WHERE (SELECT count(*) FROM (SELECT DISTINCT v FROM big WHERE few < account.v OFFSET 0) q) BETWEEN 30 AND 90 RETURNING *',
	"UPDATE account SET n = q.c FROM ($few_groups) q WHERE q.v = account.v RETURNING account.*, q.*",
	"UPDATE account SET n = 1 WHERE v > (SELECT min(c) FROM ($few_groups) q) RETURNING *",
	'DELETE FROM account WHERE v IN (SELECT DISTINCT v FROM big WHERE few < 5 OFFSET 0) RETURNING *')
{
	my ($core, $ours) = map { answer_after_update($_, $query) } 'off', 'on';
	is($ours, $core, "core's rows after an update: $query");
	unlike($ours, qr/ERROR/, 'without an error');
	like($node->safe_psql('postgres', join('; ', 'SET gpusort.force = on', @hash, 'SET enable_hashjoin = off', 'SET enable_mergejoin = off', "EXPLAIN $query")), qr/GroupAggregate.*GpuSort/s, 'by a sort');
}

# ---- what is left behind ----

my $files = 'SELECT count(*) FROM pg_ls_tmpdir()';
my $contexts = q{SELECT count(*) FROM pg_backend_memory_contexts WHERE name ~ '^GpuSort'};
answer($session, 'SET gpusort.force = on', "SET gpusort.memory_limit = '64kB'");
my $kept = answer($session, 'SELECT count(*) FROM (SELECT DISTINCT k FROM big) q', $contexts) =~ s/.*\n//r;
foreach my $bad ('sum(1000 / (100000 - id))', 'max(1000 / (100000 - id))', 'sum((id / 99)::small)', 'count(1000 / (100000 - id)) FILTER (WHERE v = 0)')
{
	foreach my $group ('few', 'k')
	{
		my ($off, $on) = map { answer($session, "SET gpusort.enabled = $_", "BEGIN; SELECT attempt('SELECT $group, $bad FROM big GROUP BY 1'); $files; $contexts; COMMIT") } 'off', 'on';
		is($on, $off, "core's error: $bad by $group");
		like($on, qr/(?:division by zero|check constraint).*\n0\n$kept$/, 'nothing is left when the transaction goes on');
	}
}
my $cancelled = 0;
foreach my $query ('SELECT k, count(*), sum(n) FROM big GROUP BY k', 'SELECT DISTINCT x, pad FROM big')
{
	foreach my $ms (3, 20, 60, 100, 150, 200)
	{
		$session->{err} = '';
		my $left = answer($session, "SET statement_timeout = $ms", "SELECT count(q) FROM ($query OFFSET 0) q", 'RESET statement_timeout', $files, $contexts);
		$cancelled += $session->{err} =~ /canceling statement due to statement timeout/;
		like($left, qr/^(?:\d\d+\n)?0\n$kept$/, "nothing is left after $ms ms");
	}
}
cmp_ok($cancelled, '>=', 4, "$cancelled queries were cancelled");

# rescans take no more memory
answer($session, 'BEGIN', 'DECLARE c NO SCROLL CURSOR FOR SELECT g, l.* FROM generate_series(1, 400) g, LATERAL (SELECT few, count(*), max(x), sum(n) FROM big WHERE id BETWEEN g * 50 AND g * 50 + 300 GROUP BY few LIMIT 1) l, '
	  . 'LATERAL (SELECT DISTINCT x, v FROM big WHERE id BETWEEN g * 50 AND g * 50 + 300 LIMIT 1) m', 'MOVE 20 FROM c');
my $bytes = 'SELECT sum(used_bytes), count(*) FROM pg_backend_memory_contexts';
my ($before, $few_contexts) = split /\|/, answer($session, $bytes);
my ($after, $many_contexts) = split /\|/, answer($session, 'MOVE 60 FROM c', $bytes);
cmp_ok($after, '<', $before + 20000, 'rescans leave no memory');
cmp_ok($many_contexts, '<=', $few_contexts, 'and no memory contexts');
answer($session, 'COMMIT');

leave($session);
unlike(slurp_file($node->logfile), qr/WARNING/, 'no resource is leaked');
$node->stop;
done_testing();
