# Aggregates that GpuSort Aggregate computes for groups give the same results with GpuSort and without, in the same order.
#
# The queries are random: one to three columns of groups (types of all kinds that hash, NULLs, values that are equal but
# differ, expressions, collations), from one group to as many as rows; percentile_cont(), percentile_disc(), mode(),
# count(DISTINCT), sum(DISTINCT) and gpu_sort_agg(), others with DISTINCT or ORDER BY, one to six in a query, with FILTER, DESC and arrays of
# fractions; and beside them other aggregates, which the node computes, too.  With HAVING, ORDER BY and LIMIT, over tables, partitions,
# joins and windows whose run conditions have outer columns, in subqueries that are rescanned, cursors and prepared statements.  Statistics are often of an empty table, and
# memory limits so low that rows of groups are written to partitions, and keys to runs.  Answers are compared as in
# 020_random.pl; where the result of an aggregate depends on the order of rows, its elements are compared in any order, or
# it is compared but for rounding.  Then large groups, plans that must stay core's, what is left behind, errors and permissions.
#
#   SEED=n    repeats the cases of an earlier run; printed when a case fails
#   CASES=n   240 by default
#   SETTINGS="a=1 b=2"   more settings for the server

use strict;
use warnings;

use GpusortTest;
use RandomTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($seed, $cases) = begin_cases(240);

# Columns of groups beside those of make_table(): few and many values, and kinds that change from table to table
my @groups = ('few', 'few', 'few', 'mid', 'mid', 'id', 'g0', 'g0', 'g1', 'g1', 'g2', 'g2', 'x', 'x COLLATE "en-x-icu"', 'x COLLATE nocase', 'x COLLATE libc', 'lower(x)');
my @expressions = ('id % 10', 'i4 / 1000', "date_trunc('month', tz)", "date_trunc('hour', tz)", "coalesce(d, '2024-01-01')", 'mid > 100', 'f8 > 0', 'NULL::int', 'nullif(few, 1)', 'ROW(few, g1)::pair',
	'ARRAY[few, mid]', 'ARRAY[f8, -0.0]', '(mid % 500)::small', 'hashint4(mid)', 'CASE WHEN id % 2 = 0 THEN hashint4(mid) ELSE hashint4(mid) + 0 END', 'CASE WHEN id % 2 = 0 THEN 0::float8 ELSE -0.0::float8 END',
	'round(n, 1)', 'repeat(few::text, 1000)', 'extract(dow FROM tz)', 'i2');
my @group_kinds = ('int2', 'int4', 'int8', 'float4', 'float8', 'numeric', 'numeric', 'numeric: 40 digits', 'text', 'text: long', 'text: cases', 'varchar', 'char(12)', 'name', 'date', 'timestamp',
	'timestamptz', 'time', 'interval', 'uuid', 'bool', 'inet', 'bytea', 'colour', 'small', 'label', 'int[]', 'int4range', 'pair');

# Columns of values, and their types.  The sums of m are exact.
my %types = (i2 => 'int2', i4 => 'int4', i8 => 'int8', f4 => 'float4', f8 => 'float8', d => 'date', ts => 'timestamp', tz => 'timestamptz', s => 'small');
my @names = sort keys %types;

# Core's other aggregates: what is the same whatever the order of rows; lists; and what is rounded
my @others = ('count(*)', 'count(*)', 'count(i4)', 'sum(i2)', 'sum(i4)', 'sum(i8)', 'avg(i4)', 'sum(n)', 'avg(n)', 'max(n)', 'sum(m)', 'avg(m)', 'min(f8)', 'max(f4)', 'min(d)', 'max(tz)',
	'stddev(i4)', 'var_pop(n)', 'bool_and(id > 3)', 'every(f8 > 0)', 'bit_or(i4)', 'bit_and(i2)', 'min(x)', 'max(x COLLATE "C")', 'max(g1 COLLATE "C")', 'min(n + i2)', 'sum(iv)', 'avg(iv)', 'max(ARRAY[i2, s])',
	'min(s)', 'sum(random() * 0)', 'regr_count(m, i2)', 'count(few = 1 OR NULL)', 'range_agg(int4range(id, id + 2))',
	'own_most(mid)', 'own_max(mid)', 'own_max(i4)', 'own_max(x)', 'own_array(mid)');
my @lists = (map({ "array_agg($_)" } 'i4', 'd', 'f8', 'x', 'n', 'few'), map({ "string_agg($_, ',')" } 'x', 'id::text'), map({ "json_agg($_)" } 'i4', 'x', 'f4'), 'jsonb_agg(mid)');
my @rounded = ('stddev(m)', 'regr_slope(m, few)', 'corr(m, mid)', 'var_samp(m)', 'regr_intercept(mid, m)');

# SQL that makes table t, whose statistics may be of none or of a few of its rows
sub make_table
{
	my $rows = pick(0, 1, 2, 100, 3000, 8000, 8000, 15000);
	my %values = ((map { $_ => value_of($types{$_}, distinct => pick(1, 3, 1000, 2_000_000_000), nulls => pick(0, 0, 20, 100)) . "::$types{$_}" } @names),
		few => value_of('int4', distinct => 4, special => 0, nulls => pick(0, 20)), mid => value_of('int4', distinct => 300, special => 0, nulls => pick(0, 0, 5)),
		x => value_of(pick('text', 'text: cases'), distinct => pick(3, 30, 1000), nulls => pick(0, 10)), n => value_of('numeric', distinct => pick(3, 1000, 1_000_000), nulls => pick(0, 10)),
		m => pick('', "CASE WHEN i % 999 = 5 THEN ('{NaN,-Infinity,Infinity,-0}'::float8[])[1 + i / 999 % 4] ELSE ") . "(rnd(i, 5, 20000) - 10000) / 8.0", iv => "rnd(i, 6, 99) * interval '1 h'");
	$values{m} .= ' END' if $values{m} =~ /CASE/;
	$values{"g$_"} = value_of($_ == 1 ? 'text' : pick(@group_kinds), distinct => pick(2, 30, 30, 500, 2_000_000_000), nulls => pick(0, 0, 20)) foreach 0 .. 2;
	my $select = 'SELECT i AS id, ' . join(', ', map { "$values{$_} AS $_" } sort keys %values) . ' FROM generate_series';
	my $first = pick(0, 0, 100, $rows);
	return "DROP TABLE IF EXISTS t; CREATE TEMP TABLE shape AS $select(1, 0) i; CREATE TABLE t (LIKE shape)"
	  . (chance(20) ? ' PARTITION BY HASH (id); ' . join('', map { "CREATE TABLE t_$_ PARTITION OF t FOR VALUES WITH (MODULUS 2, REMAINDER $_); " } 0 .. 1) : '; ')
	  . "DROP TABLE shape; INSERT INTO t $select(1, $first) i; ANALYZE t; INSERT INTO t $select($first + 1, $rows) i; " . (chance(30) ? 'DELETE FROM t WHERE id % 3 = 1; ' : '') . "\n";
}

sub filter
{
	my ($way) = @_;
	return !chance(25) ? '' : ' FILTER (WHERE ' . pick('id % 3 = 0', 'i4 > 0', 'f8 IS NOT NULL', 'false', 'NULL', "d < '2024-01-01' OR i2 < 5", 'few = 1', $way eq 'lateral' ? 'id % 5 <> o.r' : ()) . ')';
}

# An aggregate whose rows must be in order.  Rows that tie in it do not differ, but perhaps in the form of equal values.
sub make_ordered
{
	my ($one, $several) = @_;
	my ($by, $then) = directions(pick('few', 'mid', 'i4', 'n', 'x COLLATE "C"', 'x', 'iv', 'g0', 'g1', 'tz', 'ARRAY[few, i2]'), pick('id', 'few', 'x', 'f8'));
	my $v = pick('x', 'n', 'iv', 'g1', 'i4', 'id', 'f8', '(x || few)', 'ROW(few, x)::pair');
	my ($w) = directions(pick('x', 'n', 'iv', 'x COLLATE "C"', 'lower(x)'));
	return pick("array_agg($v ORDER BY $by, $then, id)", "array_agg($v ORDER BY $by, id DESC)", "string_agg(x, ',' ORDER BY $by, id)", "string_agg(id::text, few::text ORDER BY $by, $then, id)",
		"json_agg($v ORDER BY $by, id)", "own_list(id ORDER BY $by, id)", "own_sum(few ORDER BY $by)", 'max(n ORDER BY id)', "count(DISTINCT $v)", "array_agg(DISTINCT i4)", 'array_agg(DISTINCT few ORDER BY few DESC)',
		"string_agg(DISTINCT x COLLATE \"C\", ',')", "string_agg(DISTINCT x COLLATE \"C\", few::text ORDER BY x COLLATE \"C\" DESC, few::text)", 'count(DISTINCT (few, x))', 'sum(DISTINCT n)', 'own_sum(DISTINCT few)',
		(map { "sum(DISTINCT $_ ORDER BY $_ DESC)" } 'i4 / 7.0::float8', 'i2 / 7.0::float4'),
		"mode() WITHIN GROUP (ORDER BY $w)", "percentile_disc($one) WITHIN GROUP (ORDER BY $w)", "percentile_disc($several) WITHIN GROUP (ORDER BY $w)",
		"percentile_cont($one) WITHIN GROUP (ORDER BY iv)", "percentile_cont($several) WITHIN GROUP (ORDER BY iv DESC)");
}

# An aggregate that sorts
sub make_own
{
	my ($way) = @_;
	my $one = pick('0', '1', '0.5', '0.5', '1/3.0', 'NULL::float8', '(SELECT 0.7)', rand(), $way eq 'prepared' ? ('$1') x 8 : $way eq 'lateral' ? ('o.f') x 8 : ());
	my $several = pick("'{0.1,0.9,NULL}'", "'{{0.9,0.1},{0.5,0.33}}'", "'{}'", 'NULL', "ARRAY[$one, 0.25]", "ARRAY[0.5, $one]") . '::float8[]';
	my $v = chance(80) ? pick(@names) : pick('i2 % 100', 'i4 / 3', '-f8', 'i4::int8', 'i2::float8', 'id', '7', 'CASE WHEN id % 2 = 0 THEN i8 END', 'few', 'm', 'hashint4(id)', $way eq 'lateral' ? ('id % 7 * o.r', 'id + o.r') : ());
	my ($by) = directions($v);
	# there is no percentile_cont() of dates, and no percentile between two infinities
	my ($cont) = directions(pick('i4', 'i2', 'm', 'least(abs(f8), 1e300)', 'i8', 's'));
	return make_ordered($one, $several) . filter($way) if chance(35);
	return "gpu_sort_agg($v)" . filter($way) if chance(10) && $v ne 'm';
	return pick(("count(DISTINCT $v)") x 3, (map { "$_(DISTINCT " . pick('i2', 'i4', 'i8', 'f4', 'm', 's') . ')' } 'sum', 'avg'), ("mode() WITHIN GROUP (ORDER BY $by)") x 3,
		map({ ("percentile_disc($_) WITHIN GROUP (ORDER BY $by)", "percentile_cont($_) WITHIN GROUP (ORDER BY $cont)") } $one, $one, $several)) . filter($way);
}

# Returns a query and the columns that are compared in sequence
sub make_query
{
	my ($way) = @_;
	my @keys = map { chance(75) ? pick(@groups) : pick(@expressions) } 1 .. pick(1, 1, 1, 2, 2, 3);
	my @own = map { make_own($way) } 1 .. pick(1, 1, 2, 3, 6);
	my @beside = map { pick((@others) x 2, (@lists) x 2, @rounded) . filter($way) } 1 .. pick(0, 0, 1, 1, 2, 4, 7);
	my @list = @own;
	# states or results that are changed in place are used again
	push @list, pick('ROW(array_changed(own_array(mid)), own_array(mid), array_changed(own_array(mid)))::text', 'ROW(own_more(mid), own_count(mid))::text') if chance(8);
	push @list, 'count(*)' if $way eq 'correlated';
	splice @list, below(@list), 0, $_ foreach @beside;
	# the forms in which results are compared
	my @forms = map { "a$_" } 0 .. $#list;
	foreach my $i (0 .. $#list)
	{
		if ($list[$i] =~ /^\w+\((?:DISTINCT|.*ORDER BY)/)
		{
			$forms[$i] = "a$i\::text" if $list[$i] =~ /^json/;
			next;
		}
		my $hash = "count(*) + sum(hashtextextended(coalesce(e::text, 'NULL'), 0)::numeric)";
		$forms[$i] = "(SELECT $hash FROM unnest(a$i) e)" if $list[$i] =~ /^array_agg/;
		$forms[$i] = "(SELECT $hash FROM string_to_table(a$i, ',') e)" if $list[$i] =~ /^string_agg/;
		$forms[$i] = "(SELECT $hash FROM $1_array_elements(a$i) e)" if $list[$i] =~ /^(jsonb?)_agg/;
		$forms[$i] = "ROW(a$i)::near" if grep { index($list[$i], $_) == 0 } @rounded;
		$list[$i] = pick("($list[$i])", "coalesce($list[$i], $list[$i])", map { "CASE WHEN $_ THEN $list[$i] END" } 'count(DISTINCT i4) > 3', 'count(*) > 1') if chance(10);
	}
	my $names = join ', ', (map { "k$_" } 0 .. $#keys), (map { "$forms[$_] AS a$_" } 0 .. $#list);
	my $select = join ', ', (map { "$keys[$_] AS k$_" } 0 .. $#keys), (map { "$list[$_] AS a$_" } 0 .. $#list);
	my $from = pick(('t') x 8, '(SELECT * FROM t WHERE id % 3 = 0 UNION ALL SELECT * FROM t WHERE id % 3 > 0) t', '(SELECT t.* FROM t JOIN generate_series(0, 4) j ON j = id % 7) t', '(SELECT * FROM t ORDER BY i4, id) t',
		'(SELECT u.* FROM generate_series(0, 9) j LEFT JOIN t u ON u.id = j) t', '(SELECT * FROM t ORDER BY id LIMIT 500) t', 't TABLESAMPLE BERNOULLI (50) REPEATABLE (7)', '(SELECT * FROM t OFFSET 0) t');
	$from = "(SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY few ORDER BY id) AS place FROM t) w WHERE place <= o.r * @{[ pick(1, 5, 100) ]}) t"
	  if $way eq 'correlated' || ($way eq 'lateral' && chance(20));
	my $where = pick(('true') x 5, 'id % 5 <> 0', 'few IS NOT NULL', 'false', 'i4 > 0', $way eq 'lateral' ? ('id % 7 <> o.r', 'id <= o.r * 100', 'few = o.r') : $way eq 'prepared' ? 'id % 7 <> $2' : ());
	my $having = !chance(25) ? '' : ' HAVING ' . pick('count(*) > 3', 'count(DISTINCT i4) > 2', "$own[0] IS NOT NULL", "max(i4) > 7 AND $keys[0] IS NOT NULL", 'false', '(SELECT max(g) FROM generate_series(1, 20) g WHERE g <= count(DISTINCT i2)) > 3',
		$way eq 'lateral' ? ('count(*) > o.r', "$own[0] IS NULL OR o.r = 3") : ());
	my @by = directions(map { "k$_" } 0 .. $#keys);
	@by = reverse @by if chance(50);
	my $query = "SELECT $select FROM $from WHERE $where GROUP BY " . join(', ', map { "k$_" } reverse 0 .. $#keys) . $having;
	# the order of the groups is asked for above the node or of it
	my $order = (chance(15) ? 'ORDER BY count(DISTINCT i4), ' : 'ORDER BY ') . join(', ', @by);
	$query = !chance(20) ? "$query $order" . pick(('') x 5, ' LIMIT 10', ' OFFSET 3 LIMIT 50') : "SELECT * FROM ($query OFFSET 0) q ORDER BY " . join(', ', @by);
	$query = "SELECT $names FROM ($query) q";
	return ("SELECT o.r, (SELECT sum(a$#list) + count(q) FROM ($query) q) AS rows FROM (VALUES (1), (2), (3), (NULL), (2), (30)) o(r)", 'r', 'rows') if $way eq 'correlated';
	return ($query, (map { "k$_" } 0 .. $#keys), (map { "a$_" } 0 .. $#list));
}

sub make_case
{
	my $way = pick(('plain') x 8, ('prepared') x 3, ('lateral') x 4, 'join', 'cte', 'cursor', 'subselect', 'error', 'correlated');
	my ($sql, @columns) = make_query($way);
	my %case = (how => 'table', steps => [], kind => $way);
	if ($way eq 'prepared')
	{
		@case{ 'how', 'steps' } = ('prepared', [ '(float8, int)', '(' . pick('0.3', '1', 'NULL', '0') . ', ' . pick(0, 3, 'NULL') . ')' ]);
		$sql .= ' WHERE $1 IS DISTINCT FROM 7 AND $2 IS DISTINCT FROM 8';
	}
	elsif ($way eq 'lateral')
	{
		$sql .= ' OFFSET coalesce(o.r, 0) % 2';
		# the node is rewound for the second row of v
		$sql = "SELECT v.y, i.* FROM (VALUES (1), (2)) v(y) LEFT JOIN ($sql) i ON true" if chance(40) && $sql !~ /place <= o\.r/;
		($sql, @columns) = ("SELECT o.r, l.* FROM (VALUES (3, 0.5), (3, 0.1), (0, 0), (NULL, NULL), (5, 1::float8)) o(r, f), LATERAL ($sql) l", 'r', @columns);
	}
	elsif ($way eq 'join') { $sql = "SELECT q.* FROM generate_series(1, 3) j LEFT JOIN ($sql OFFSET 0) q ON " . pick('true', 'j <> 2', 'j = 7') }
	elsif ($way eq 'cte') { $sql = "WITH q AS MATERIALIZED ($sql) SELECT * FROM q UNION ALL SELECT * FROM q" }
	elsif ($way eq 'subselect') { ($sql, @columns) = ("SELECT r, (SELECT a0 FROM ($sql) q LIMIT 1 OFFSET r * 3) AS c FROM generate_series(0, 4) r", 'r', 'c') }
	elsif ($way eq 'cursor')
	{
		$case{how} = pick('SCROLL CURSOR', 'SCROLL CURSOR WITH HOLD', 'NO SCROLL CURSOR');
		my @back = $case{how} =~ /NO/ ? () : ('FETCH BACKWARD 5', 'FETCH LAST', 'FETCH FIRST', 'MOVE BACKWARD ALL');
		$case{steps} = [ (map { pick('FETCH FORWARD 5', 'MOVE FORWARD 30', @back) } 1 .. 5), 'FETCH FORWARD 100' ];
	}
	elsif ($way eq 'error')
	{
		# a fraction or an argument is wrong, unless there is no row
		my $wrong = pick('2', '-1e-9', "'NaN'") . '::float8';
		my $bad = pick('count(DISTINCT 1 / (id - id))', 'sum(1 / (id - id))', 'mode() WITHIN GROUP (ORDER BY (2000 + id)::small)', 'json_object_agg(NULL::text, id)', 'max(id) FILTER (WHERE 1 / (id - id) > 0)',
			"percentile_cont($wrong) WITHIN GROUP (ORDER BY i4)", "percentile_disc(ARRAY[$wrong]) WITHIN GROUP (ORDER BY d)", 'string_agg((id / (id - id))::text, x)');
		($sql, @columns) = ("SELECT attempt(\$e\$SELECT few, $bad, mode() WITHIN GROUP (ORDER BY i4) FROM " . pick('t', 't WHERE false', 't WHERE i4 IS NULL') . ' GROUP BY 1$e$) AS e', 'e');
	}
	my @both = ('enable_material', pick('on', 'off', 'off'), 'enable_hashjoin', pick('on', 'off'), 'enable_partitionwise_aggregate', pick('on', 'off'), 'work_mem', pick('64kB', '4MB', '64MB'),
		'plan_cache_mode', pick('force_generic_plan', 'force_custom_plan'), 'max_parallel_workers_per_gather', pick(0, 0, 0, 2), map { $_ => 0 } 'parallel_setup_cost', 'parallel_tuple_cost', 'min_parallel_table_scan_size');
	# core keeps a hash table, and the rows of a sort that it may rewind, if only a run condition below has another value
	push @both, 'enable_hashagg', 'off' if $sql =~ /place <= o\.r/;
	return { %case, sql => $sql, names => \@columns, both => \@both, with => [ 'gpusort.memory_limit', pick('64kB', '64kB', '64kB', '256kB', '1MB', '4MB', '1GB'), 'gpusort.force', pick('on', 'on', 'off') ] };
}

my $locales = make_locales('en_US.UTF-8');
my $node = new_node('grouped_aggregates', init => [ extra => [ '--locale=C' ] ],
	settings => "shared_preload_libraries = 'gpusort'\nautovacuum = off\nrestart_after_crash = on\nclient_min_messages = warning\n");
{
	local $ENV{LOCPATH} = $locales // '';
	$node->start;
}
# the plans that are counted are those with the node
$node->safe_psql('postgres', random_schema() =~ s/\(GpuSort\)/(GpuSort Aggregate)/r . "CREATE COLLATION libc (provider = libc, locale = '" . ($locales ? 'en_US.UTF-8' : 'C') . "')");
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
SQL
@groups = map { s/"en-x-icu"|nocase/"C"/r } @groups if !has_icu($node);

# ---- random queries ----

srand($seed);
my ($script, @texts) = ('');
foreach my $i (1 .. $cases)
{
	$script .= make_table() if $i % 12 == 1;
	my $case = make_case();
	push @texts, "-- $case->{kind}: $case->{how} @{ $case->{steps} }\n-- @{ $case->{both} } @{ $case->{with} }\n$case->{sql}";
	$script .= compare_call($i, $case);
}
my ($done, $used) = check_cases($node, 'postgres', $script, \@texts, 'with groups');
cmp_ok($used, '>=', $cases / 3, "$used of $cases plans had a GpuSort Aggregate");

# ---- large groups ----

$node->safe_psql('postgres', <<'SQL');
CREATE ROLE alice LOGIN;
-- one group of 160000 rows, and 48 of 800
CREATE TABLE big AS SELECT i AS id, CASE WHEN i % 5 > 0 THEN 1 ELSE nullif(i / 5 % 50, 7) END AS few, hashint8(i)::int8 AS k, i % 1000 AS v, i / 8.0::float8 AS f, i::numeric AS n, (i % 3)::text AS x
	FROM generate_series(1, 200000) i;
CREATE TABLE none (LIKE big);
-- 20 groups of 3000 rows, two of each hash value
CREATE TABLE collide AS SELECT x, i AS v FROM (SELECT i::text AS x, count(*) OVER (PARTITION BY hashtext(i::text)) AS n FROM generate_series(1, 300000) i) a, generate_series(1, 3000) i WHERE n > 1 ORDER BY x;
GRANT SELECT ON big TO alice;
ALTER TABLE big ADD PRIMARY KEY (id);
ANALYZE big;
SQL
my $session = session($node);
# from 16 on, core may sort the rows for count(DISTINCT), which shows in array_agg()
answer($session, 'SET max_parallel_workers_per_gather = 0', 'SET gpusort.force = on', "SELECT set_config(name, 'off', false) FROM pg_settings WHERE name = 'enable_presorted_aggregate'");
my $median = 'percentile_cont(0.5) WITHIN GROUP (ORDER BY k)';
my $mode = 'mode() WITHIN GROUP (ORDER BY v DESC)';

# The answers to a query with GpuSort and without
sub both_answers
{
	my (@query) = @_;
	return map { answer($session, "SET gpusort.enabled = $_", @query) } 'off', 'on';
}

sub same_answer
{
	my ($name, @query) = @_;
	my ($off, $on) = both_answers(@query);
	return is($on, $off, $name);
}

foreach my $query (
	"SELECT few, count(DISTINCT k), $mode, percentile_disc(ARRAY[0.9, 0.1, 0]) WITHIN GROUP (ORDER BY k DESC), percentile_cont(0.3) WITHIN GROUP (ORDER BY f), max(id), avg(f), count(*) FROM big GROUP BY few ORDER BY few DESC",
	"SELECT few, x, $median, count(DISTINCT v), count(DISTINCT v) FILTER (WHERE k > 0) FROM big WHERE few = 1 OR id < 9000 GROUP BY x, few ORDER BY few NULLS FIRST, x",
	'SELECT sum(hashint8extended(a + id, row_number)::numeric) FROM (SELECT *, row_number() OVER () FROM (SELECT id, count(DISTINCT v) + mode() WITHIN GROUP (ORDER BY k) + sum(v) AS a FROM big GROUP BY id / 3, id ORDER BY id / 3, id DESC OFFSET 0) q) q')
{
	my $core = answer($session, 'SET gpusort.enabled = off', $query);
	is(answer($session, 'SET gpusort.enabled = on', "SET gpusort.memory_limit = '$_'", $query), $core, "groups of all sizes, $_") foreach '64kB', '1MB', '1GB';
}

# arrays of all values, NULLs at the end
my $arrays = 'SELECT few, %1$s = array_agg(nullif(v, 5) ORDER BY nullif(v, 5)), %2$s = array_agg(k ORDER BY k) FILTER (WHERE v > 990), %3$s = array_agg(nullif(v, v) ORDER BY v), count(DISTINCT k), '
  . "$median FROM big GROUP BY few ORDER BY few";
my @sorted = ('gpu_sort_agg(nullif(v, 5))', 'gpu_sort_agg(k) FILTER (WHERE v > 990)', 'gpu_sort_agg(nullif(v, v))');
my @unsorted = map { s/gpu_sort_agg\((.*?\)?)\)/array_agg($1 ORDER BY $1)/r } @sorted;
my ($gpusort, $core) = map { my @list = @$_; $arrays =~ s/%(\d)\$s/$list[$1 - 1]/gr } \@sorted, \@unsorted;
foreach my $limit ('64kB', '1MB', '1GB')
{
	like(answer($session, 'SET gpusort.enabled = on', "SET gpusort.memory_limit = '$limit'", "EXPLAIN $gpusort"), qr/GpuSort Aggregate/, "arrays of groups, $limit: plan");
	is(answer($session, $gpusort), answer($session, 'SET gpusort.enabled = off', $core), "arrays of groups, $limit");
}
like(answer($session, 'SET gpusort.enabled = on', 'EXPLAIN SELECT few, gpu_sort_agg(v) FROM big GROUP BY few'), qr/^Custom Scan \(GpuSort Aggregate/, 'the node also takes the place of a HashAggregate');

same_answer('groups whose hashes are equal, and that do not fit in memory together', "SET gpusort.memory_limit = '64kB'",
	'SELECT x, count(DISTINCT v), sum(v), cardinality(array_agg(x)), mode() WITHIN GROUP (ORDER BY v) FROM collide GROUP BY x ORDER BY x');
# core's hash functions return integers whose Datum is another one
same_answer("groups of hash values, $_", "SELECT h, count(DISTINCT id), count(*) FROM (SELECT id, CASE WHEN id % 2 = 0 THEN hash$_ ELSE hash$_ + 0 END AS h FROM big WHERE id < 5000) q GROUP BY h ORDER BY h")
  foreach 'int4(id / 50)', "text((id / 50)::text)";

# ---- plans ----

like(answer($session, "EXPLAIN (COSTS OFF) SELECT few + 1, x, $median, count(*) FROM big GROUP BY few, x HAVING count(DISTINCT v) > 3 ORDER BY x DESC, few"),
	qr/^Custom Scan \(GpuSort Aggregate\)\n +Filter: \(\(?count\(DISTINCT v\)\)? > 3\)\n +Group Key: x, few\n +Aggregates: percentile_cont\(.*\), count\(DISTINCT v\), count\(\*\)\n +->  Seq Scan on big$/,
	'EXPLAIN shows the groups and the aggregates');
my $own = 'count(DISTINCT v)';
# the planner's number of groups counts if it can know it
answer($session, 'SET gpusort.force = off');
foreach my $group ('id', 'id + 1', '(7 - id) - 5')
{
	unlike(answer($session, "EXPLAIN SELECT $group, $median FROM big GROUP BY 1"), qr/GpuSort Aggregate/, "groups of one row: $group");
	like(answer($session, "EXPLAIN SELECT $group, $own FROM big GROUP BY 1"), qr/GpuSort Aggregate\).*\n +Group Key.*\n +Aggregates.*\n.*GpuSort\)/, "groups of one row, in order: $group")
	  if $group ne 'id';	# an index has them
}
unlike(answer($session, 'EXPLAIN SELECT id, gpu_sort_agg(v) FROM big GROUP BY id'), qr/GpuSort Aggregate/, 'groups of one row of a HashAggregate');
like(answer($session, "EXPLAIN SELECT $_, $own FROM big GROUP BY 1"), qr/GpuSort Aggregate/, "groups of many rows: $_") foreach 'few', 'few + 1', 'id / 1000', 'id % 100 + 1', 'id - id % 1000';
answer($session, 'SET gpusort.force = on');
same_answer('wrong fractions do no harm where no group has values', 'SELECT few, percentile_disc(ARRAY[2]) WITHIN GROUP (ORDER BY nullif(k, k)), count(*) FROM big GROUP BY few ORDER BY few');
same_answer('an error in the array of fractions is one in any case', "SELECT attempt('SELECT few, percentile_disc(ARRAY[1 / (SELECT 0)::float8]) WITHIN GROUP (ORDER BY nullif(k, k)) FROM big GROUP BY few')");
same_answer('but a single one does', "SELECT attempt('SELECT few, percentile_disc(2) WITHIN GROUP (ORDER BY nullif(k, k)), count(*) FROM big GROUP BY few')");
foreach my $query (
	(map { "SELECT few, $own, $_ FROM big GROUP BY few ORDER BY few" }  'percentile_cont(few / 100.0) WITHIN GROUP (ORDER BY v)',
		'cardinality(own_list(id))', 'count(DISTINCT to_jsonb(x))', 'rank(5) WITHIN GROUP (ORDER BY v)', 'count(random() >= 0)', 'sum((SELECT v))', 'GROUPING(few)', 'count(DISTINCT (SELECT v))'),
	"SELECT few, count(DISTINCT x), sum((CASE v % 3 WHEN 0 THEN 1e300 WHEN 1 THEN -1e300 ELSE 1 END)::float8) FROM (SELECT * FROM big ORDER BY few, v, k) q GROUP BY few ORDER BY few",
	"SELECT few, $own FROM big GROUP BY GROUPING SETS ((few), ()) ORDER BY few",
	"SELECT few, x, $own FROM big WHERE id < 999 GROUP BY ROLLUP (few, x) ORDER BY few, x",
	"SELECT id, k, $own FROM big WHERE id < 99 GROUP BY id ORDER BY id",
	"SELECT few, $own, md5(array_agg(id)::text), md5(string_agg(x, '')), md5(json_agg(v)::text) FROM (SELECT * FROM big ORDER BY few, k, id) q GROUP BY few ORDER BY few")
{
	unlike(answer($session, "EXPLAIN $query"), qr/GpuSort Aggregate/, "core's plan: $query");
	same_answer("core's answer", $query);
}

# how many rows there are without groups, and with groups of nothing
foreach my $table ('none', 'big', 'big WHERE id > 100')
{
	same_answer("rows of $table: $_", "SELECT $own, $median, count(*) FROM $table $_")
	  foreach 'GROUP BY few ORDER BY few', 'GROUP BY ()', '', 'GROUP BY ()  HAVING count(*) > 7', "GROUP BY 'x'::text", 'GROUP BY few HAVING false', 'GROUP BY few + 1, few HAVING count(*) < 0';
}

# ---- what is left behind ----

my $files = 'SELECT count(*) FROM pg_ls_tmpdir()';
my $contexts = q{SELECT count(*) FROM pg_backend_memory_contexts WHERE name ~ '^GpuSort (Aggregate|group)'};
my $wide = "SELECT few, $median, $mode, count(DISTINCT k % 70000), string_agg(x, '') FROM big GROUP BY few";
my $narrow = "SELECT id / 2, $median, $mode, array_agg(x) FROM big GROUP BY id / 2";
answer($session, 'SET gpusort.enabled = on');
foreach my $limit ('64kB', '1GB')
{
	answer($session, "SET gpusort.memory_limit = '$limit'", "SET work_mem = '1GB'");
	like(answer($session, "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) $_"), $limit eq '64kB' ? qr/temp read=\d+ written=\d+/ : qr/\A(?!.*temp )/s, "rows and keys beyond $limit are written")
	  foreach $wide, $narrow;
}
answer($session, "SET gpusort.memory_limit = '64kB'");
is(answer($session, $files, $contexts), "0\n0", 'no temporary file and no memory is left');

# rescans take no more memory
answer($session, 'BEGIN', "DECLARE c NO SCROLL CURSOR FOR SELECT g, l.* FROM generate_series(1, 400) g, LATERAL (SELECT few, $mode, $median, percentile_disc(ARRAY[0.1, g / 1000.0]) WITHIN GROUP (ORDER BY v), array_agg(x), avg(f) "
	. 'FROM big WHERE id BETWEEN g * 50 AND g * 50 + 300 GROUP BY few LIMIT 1) l', 'MOVE 50 FROM c');
my $bytes = 'SELECT sum(used_bytes), count(*) FROM pg_backend_memory_contexts';
my ($before, $few_contexts) = split /\|/, answer($session, $bytes);
my ($after, $many_contexts) = split /\|/, answer($session, 'MOVE 340 FROM c', $bytes);
cmp_ok($after, '<', $before + 20000, 'rescans leave no memory');
cmp_ok($many_contexts, '<=', $few_contexts, 'and no memory contexts');
answer($session, 'COMMIT');

# a transaction goes on after an error in each of the stages
foreach my $bad ('count(DISTINCT 1000 / (200000 - id))', 'sum(1000 / (200000 - id))', 'percentile_disc(3) WITHIN GROUP (ORDER BY k)', 'mode() WITHIN GROUP (ORDER BY (id / 199)::small)', 'json_object_agg(nullif(id, 199999), 1)')
{
	foreach my $group ('few', 'id / 2')
	{
		my ($off, $on) = both_answers("BEGIN; SELECT attempt('SELECT $group, $mode, $bad FROM big WHERE id > 150000 GROUP BY 1'); $files; $contexts; COMMIT");
		is($on, $off, "core's error: $bad by $group");
		like($on, qr/[^0]\n0\n0$/, 'nothing is left when the transaction goes on');
	}
}

# cancelled in each of the stages
my $cancelled = 0;
foreach my $query ($wide, $narrow, "SELECT * FROM ($narrow) q ORDER BY 2")
{
	foreach my $ms (3, 20, 60, 100, 150, 200, 300, 400)
	{
		$session->{err} = '';
		my $left = answer($session, "SET statement_timeout = $ms", "SELECT count(q) FROM ($query OFFSET 0) q", 'RESET statement_timeout', $files, $contexts);
		$cancelled += $session->{err} =~ /canceling statement due to statement timeout/;
		like($left, qr/^(?:\d\d+\n)?0\n0$/, "nothing is left after $ms ms");
	}
}
cmp_ok($cancelled, '>=', 6, "$cancelled queries were cancelled");

# ---- own functions ----

answer($session, <<'SQL');
RESET gpusort.memory_limit;
CREATE FUNCTION joined(text, int) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT coalesce($1, '') || '.' || $2 $$;
CREATE AGGREGATE joined(int) (SFUNC = joined, STYPE = text);
CREATE FUNCTION finished(a int[]) RETURNS int[] LANGUAGE plpgsql AS 'BEGIN a[2] := 7; RETURN a; END';
CREATE AGGREGATE finished(int) (SFUNC = array_append, STYPE = int[], INITCOND = '{}', FINALFUNC = finished);
CREATE FUNCTION changed(a int[]) RETURNS int[] LANGUAGE plpgsql AS 'BEGIN a[1] := coalesce(a[1], 0) + 100; RETURN a; END';
CREATE FUNCTION made(n int) RETURNS int[] LANGUAGE plpgsql AS 'DECLARE a int[]; BEGIN FOR i IN 1 .. n LOOP a[i] := -i; END LOOP; RETURN a; END';
SQL
foreach my $rest ('FROM (SELECT * FROM big WHERE id < 9 OFFSET 0) q', 'FROM big WHERE id < 400 GROUP BY few')
{
	same_answer("an array that a function changes is used twice $rest", "SELECT changed(finished($_)), made(5), finished($_), made(6), changed(finished($_)), count(DISTINCT v) $rest")
	  foreach 'id ORDER BY id DESC', $rest =~ /GROUP/ ? () : 'id';
	same_answer("floats are added in the order of the query $rest", "SELECT sum(DISTINCT f / 7 ORDER BY f / 7 DESC), avg(DISTINCT f / 7 ORDER BY f / 7 DESC), sum(DISTINCT v ORDER BY v DESC) $rest");
	same_answer("an aggregate of users $rest", "SELECT joined(v::int ORDER BY id), count(DISTINCT v) $rest");
}
answer($session, 'ALTER FUNCTION joined(text, int) STRICT');
foreach my $query ('joined(v::int), count(DISTINCT v) FROM (SELECT * FROM big WHERE id < 9 OFFSET 0) q', 'joined(v::int ORDER BY v) FROM big WHERE id < 9', 'few, joined(v::int), count(DISTINCT v) FROM big GROUP BY few')
{
	$session->{err} = '';
	both_answers("SELECT $query");
	like($session->{err}, qr/\A(?:ERROR:  aggregate \d+ needs to have compatible input type and transition type\n){2}\z/, "the function of an aggregate has become strict: $query");
}

# functions ask by what they are called (test/extension/aggregate_test.c), and register callbacks
my $module = built_file('extension_test.so');
$node->safe_psql('postgres', <<"SQL");
CREATE FUNCTION told_transition(internal, bigint) RETURNS internal LANGUAGE C AS '$module';
CREATE FUNCTION told_final(internal) RETURNS text LANGUAGE C AS '$module';
CREATE FUNCTION told_again(internal) RETURNS text LANGUAGE C AS '$module', 'told_final';
CREATE FUNCTION told_calls() RETURNS bigint LANGUAGE C VOLATILE AS '$module';
CREATE AGGREGATE told(bigint) (SFUNC = told_transition, STYPE = internal, FINALFUNC = told_final);
CREATE AGGREGATE told_again(bigint) (SFUNC = told_transition, STYPE = internal, FINALFUNC = told_again);
SQL
same_answer("functions of other extensions find out: $_", "SELECT $_", 'SELECT told_calls()')
  foreach 'told(k), count(DISTINCT v) FROM big WHERE id < 5000', 'told(k + 1), told(k), told_again(k), count(DISTINCT v) FROM big WHERE id < 5000', 'few, told(k), count(DISTINCT v) FROM big WHERE id < 5000 GROUP BY few ORDER BY few',
  'told(k ORDER BY k) FROM big WHERE id < 5000', 'few, told(DISTINCT k ORDER BY k), told_again(DISTINCT k ORDER BY k) FROM big WHERE id < 5000 GROUP BY few ORDER BY few';

# ---- more aggregates than a tuple has columns ----

foreach my $workers (0, 2)
{
	my $many = join ', ', map { "max(v + $_) + min(v + $_) + sum(id + $_)" } 1 .. 600;
	my @parallel = ('SET parallel_setup_cost = 0', 'SET parallel_tuple_cost = 0', 'SET min_parallel_table_scan_size = 0', "SET max_parallel_workers_per_gather = $workers");

	same_answer("many aggregates, $workers workers $_", @parallel, "SELECT md5(r::text) FROM (SELECT count(DISTINCT v), $many FROM big WHERE id < 3000 $_) r")
	  foreach '', 'GROUP BY few ORDER BY few';
	answer($session, map { /(\w+) =/ ? "RESET $1" : () } @parallel);
}

# ---- scans that are repeated ----

same_answer('a window has a condition that changes from scan to scan', <<"SQL");
SELECT n, (SELECT sum(rows) FROM (SELECT few, count(*) AS rows, $median AS m
	FROM (SELECT id, k, f, n, v, few, row_number() OVER (PARTITION BY v ORDER BY k) AS place FROM big WHERE id < 20000) w WHERE place <= n.n GROUP BY few) q WHERE m IS NOT NULL)
FROM generate_series(1, 4) n
SQL

# ---- permissions ----

foreach my $case (
	[ 'sum(k)', 'sum(int8)', 'aggregate sum' ],
	[ 'count(DISTINCT k)', 'count("any")', 'aggregate count' ],
	# its owner calls the functions of an aggregate
	[ 'avg(k)', 'int8_avg_accum(internal, int8)', 'function int8_avg_accum', 'avg(int8)' ],
	[ 'avg(k)', 'numeric_poly_avg(internal)', 'function numeric_poly_avg', 'avg(int8)' ])
{
	my ($aggregate, $function, $denied, $owned) = @$case;
	answer($session, "REVOKE EXECUTE ON FUNCTION $function FROM PUBLIC", $owned ? "ALTER AGGREGATE $owned OWNER TO alice" : (), 'SET ROLE alice');
	$session->{err} = '';
	both_answers("SELECT few, $mode, $aggregate FROM big GROUP BY few");
	is($session->{err}, "ERROR:  permission denied for $denied\n" x 2, "$denied: the same error with GpuSort and without");
	answer($session, 'RESET ROLE', $owned ? "ALTER AGGREGATE $owned OWNER TO CURRENT_USER" : (), "GRANT EXECUTE ON FUNCTION $function TO PUBLIC");
}

leave($session);
# gpu_sort_agg() warns where there is no device
unlike(slurp_file($node->logfile), qr/WARNING:  (?!gpusort sorts on the CPU)/, 'no resource is leaked');
$node->stop;
done_testing();
