# Aggregates that GpuSort Aggregate computes for groups give the same results with GpuSort and without, in the same order.
#
# The random queries are the groups with aggregates that sort of RandomQueries.pm.  Then large groups, plans that must stay
# core's, what is left behind, errors and permissions.
#
#   SEED=n, CASES=n (240 by default), SETTINGS="a=1 b=2": see RandomTest.pm

use strict;
use warnings;

use GpusortTest;
use RandomTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

begin_cases(240);

my $node = random_node('grouped_aggregates', '(GpuSort Aggregate)');
my @icu = has_icu($node) ? ('en-x-icu', 'nocase') : ();
random_queries($node, 'postgres', 'with groups', least => 0.25, collations => [ 'C', 'C', 'libc', @icu ], table => { strings => 0 }, with => { 'gpusort.force' => [ 'on', 'on', 'off' ] },
	forms => [ ('sorted groups') x 8, 'sets', 'error' ], ways => [ ('plain') x 8, ('prepared') x 3, ('lateral') x 4, 'join', 'cte', 'cursor', 'subselect' ]);

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

# zeros that differ in their bits are equal, also in words; v tells their rows apart
answer($session, "CREATE TABLE zeros AS SELECT i % 2 AS g, i * 7 % 100 AS v, (CASE WHEN i % 4 < 2 THEN '-0' ELSE '0' END)::float4 AS z FROM generate_series(1, 99) i");
same_answer("rows behind zeros: $_", "SELECT $_, array_agg(v ORDER BY z, v), array_agg(v ORDER BY z DESC, v DESC), count(DISTINCT z), string_agg(DISTINCT v::text, z::text) FROM zeros GROUP BY 1 ORDER BY 1")
  foreach 'g', 'g + z', '1::int';

# texts that are equal in the order of a group, or of an aggregate, and differ in another one
if (@icu)
{
	answer($session, "CREATE TABLE alike AS SELECT i AS v, (CASE WHEN i % 2 = 0 THEN 'A' ELSE 'a' END || i % 3)::text COLLATE nocase AS x FROM generate_series(1, 50) i");
	same_answer("two orders of equal texts: $_", "SELECT $_")
	  foreach 'array_agg(x ORDER BY x, x USING ~<~, v), count(DISTINCT v) FROM alike',
	  map { "lower(min(v::text || x)), $_ FROM alike GROUP BY x ORDER BY 1" } 'array_agg(x ORDER BY x USING ~<~)', 'array_agg(x ORDER BY x USING ~>~), count(DISTINCT v)', 'percentile_disc(ARRAY[0, 1]) WITHIN GROUP (ORDER BY x USING ~>~), count(DISTINCT v)';
}

# ---- plans ----

like(answer($session, "EXPLAIN (COSTS OFF) SELECT few + 1, x, $median, count(*) FROM big GROUP BY few, x HAVING count(DISTINCT v) > 3 ORDER BY x DESC, few"),
	qr/^Result\n +->  Custom Scan \(GpuSort\)\n +Sort Key: x DESC, few\n +->  Custom Scan \(GpuSort Aggregate\)\n +Filter: \(\(?count\(DISTINCT v\)\)? > 3\)\n +Group Key: x, few\n +Aggregates: percentile_cont\(.*\), count\(DISTINCT v\), count\(\*\)\n +->  Seq Scan on big$/,
	'EXPLAIN shows the groups and the aggregates, and a sort by the order of texts');
my $own = 'count(DISTINCT v)';
answer($session, 'SET gpusort.force = off');
like(answer($session, "EXPLAIN SELECT $_ FROM big GROUP BY 1"), qr/GpuSort Aggregate/, "groups of few rows and of many: $_")
  foreach "id + 1, $median", "id + 1, $own", "few, $own", "few + 1, $own", "id / 1000, $own", "id - id % 1000, $own", 'id + 1, gpu_sort_agg(v)';
answer($session, 'SET gpusort.force = on');
same_answer('wrong fractions do no harm where no group has values', 'SELECT few, percentile_disc(ARRAY[2]) WITHIN GROUP (ORDER BY nullif(k, k)), count(*) FROM big GROUP BY few ORDER BY few');
same_answer('an error in the array of fractions is one in any case', "SELECT attempt('SELECT few, percentile_disc(ARRAY[1 / (SELECT 0)::float8]) WITHIN GROUP (ORDER BY nullif(k, k)) FROM big GROUP BY few')");
same_answer('but a single one does', "SELECT attempt('SELECT few, percentile_disc(2) WITHIN GROUP (ORDER BY nullif(k, k)), count(*) FROM big GROUP BY few')");
foreach my $query (
	(map { "SELECT few, $own, $_ FROM big GROUP BY few ORDER BY few" }  'percentile_cont(few / 100.0) WITHIN GROUP (ORDER BY v)',
		'count(DISTINCT to_jsonb(x))', 'rank(5) WITHIN GROUP (ORDER BY v)', 'count(random() >= 0)', 'sum((SELECT v))', 'GROUPING(few)', 'count(DISTINCT (SELECT v))'),
	"SELECT few, count(DISTINCT x), sum((CASE v % 3 WHEN 0 THEN 1e300 WHEN 1 THEN -1e300 ELSE 1 END)::float8) FROM (SELECT * FROM big ORDER BY few, v, k) q GROUP BY few ORDER BY few",
	"SELECT few, $own FROM big GROUP BY GROUPING SETS ((few), ()) ORDER BY few",
	"SELECT few, x, $own FROM big WHERE id < 999 GROUP BY ROLLUP (few, x) ORDER BY few, x",
	"SELECT few, $own, md5(array_agg(id)::text), md5(string_agg(x, '')), md5(json_agg(v)::text) FROM (SELECT * FROM big ORDER BY few, k, id) q GROUP BY few ORDER BY few")
{
	unlike(answer($session, "EXPLAIN $query"), qr/GpuSort Aggregate/, "core's plan: $query");
	same_answer("core's answer", $query);
}

# a sort by nothing but columns of groups; eight of them fill a row's flags
same_answer("aggregates of a group's own columns: $_", "SELECT few, v % 2, count(DISTINCT few) FILTER (WHERE v > 500), mode() WITHIN GROUP (ORDER BY v % 2 DESC), percentile_disc(0.5) WITHIN GROUP (ORDER BY few) FILTER (WHERE v < 9), $own FROM big WHERE id < 9000 GROUP BY few, v % 2 $_ ORDER BY few, v % 2 $_")
  foreach '', ', v % 3, v % 4, v % 5, v % 6, v % 7, v % 8', ', x, n';
same_answer("columns that the groups determine, equal names and states of any size: $_", $_)
  foreach "SELECT id, k, $own FROM big WHERE id < 99 GROUP BY id ORDER BY id", "SELECT few, $own, cardinality(own_list(id)) FROM big GROUP BY few ORDER BY few",
  @icu ? "SELECT min(n COLLATE \"C\"), $own FROM (SELECT v, (CASE WHEN k > 0 THEN 'A' ELSE 'a' END || few)::name COLLATE nocase AS n FROM big) q GROUP BY n ORDER BY n" : ();

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

# numbers with few digits, one of which has no word
answer($session, "CREATE TABLE digits AS SELECT 1 AS g, (CASE i WHEN 5000 THEN 9999999999 ELSE i / 100.0 END)::numeric(12, 2) AS n FROM generate_series(1, 20000) i");
cmp_ok(answer($session, q{SELECT bytes FROM (SELECT g, count(DISTINCT n) AS n, (SELECT sum(used_bytes) FROM pg_backend_memory_contexts WHERE name ~ '^GpuSort group') AS bytes FROM digits GROUP BY g OFFSET 0) q WHERE n > 0}),
	'<', 20000, 'distinct numbers take no memory');

# rescans take no more memory
answer($session, 'BEGIN', "DECLARE c NO SCROLL CURSOR FOR SELECT g, l.*, m.* FROM generate_series(1, 400) g, LATERAL (SELECT few, $mode, $median, percentile_disc(ARRAY[0.1, g / 1000.0]) WITHIN GROUP (ORDER BY v), array_agg(x), avg(f) "
	. 'FROM big WHERE id BETWEEN g * 50 AND g * 50 + 300 GROUP BY few LIMIT 1) l, LATERAL (SELECT percentile_disc(array_fill(0.7, ARRAY[100])) WITHIN GROUP (ORDER BY n) FROM digits WHERE n < g.g % 5 + 1) m', 'MOVE 50 FROM c');
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
answer($session, <<'SQL');
CREATE FUNCTION changing(n int, a int[]) RETURNS int LANGUAGE plpgsql AS 'BEGIN a[1] := 1000; RETURN n + cardinality(a); END';
CREATE FUNCTION reading(n int, a int[]) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN n + a[1]; END';
CREATE AGGREGATE changing(int[]) (SFUNC = changing, STYPE = int, INITCOND = 0);
CREATE AGGREGATE reading(int[]) (SFUNC = reading, STYPE = int, INITCOND = 0);
SQL
same_answer('an aggregate changes an array that is the argument of another one, too', "SELECT changing(array_append('{}'::int[], id)), reading(array_append('{}'::int[], id)), count(DISTINCT v) FROM big WHERE id < 9");
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

# ---- parallel plans, and more columns than a tuple has ----

answer($session, 'CREATE TABLE wide (id int PRIMARY KEY, ' . join(', ', map { "c$_ int" } 1 .. 1500) . ')', 'INSERT INTO wide (id, c1, c2) SELECT i, i % 7, i % 5 FROM generate_series(1, 50) i');
foreach my $workers (0, 2)
{
	my $many = join ', ', map { "max(v + $_) + min(v + $_) + sum(id + $_)" } 1 .. 600;
	my @parallel = ('SET parallel_setup_cost = 0', 'SET parallel_tuple_cost = 0', 'SET min_parallel_table_scan_size = 0', "SET max_parallel_workers_per_gather = $workers");

	same_answer("rows for which an order fails are left out, $workers workers: $_", @parallel, "SELECT few, $_ FILTER (WHERE v > 0) FROM big GROUP BY few ORDER BY few")
	  foreach 'count(DISTINCT (1000 / v)::text)', 'max(id ORDER BY (1000 / v)::text)';
	same_answer("many columns that the groups determine, $workers workers", @parallel, 'SELECT md5(string_agg(r::text, NULL)) FROM (SELECT wide.*, count(DISTINCT c1), ' . join(', ', map { "max(c1 + $_) + min(c2 - $_) + sum(c1 - $_)" } 1 .. 140) . ' FROM wide GROUP BY id ORDER BY id) r');
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

same_answer('a filter changes from scan to scan, and groups are sorted', "SELECT n, q.* FROM generate_series(1, 4) n, LATERAL (SELECT x, $median, array_agg(v) FILTER (WHERE v <> n) AS a FROM big WHERE id < 900 GROUP BY x ORDER BY x OFFSET 0) q ORDER BY n, x");

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
