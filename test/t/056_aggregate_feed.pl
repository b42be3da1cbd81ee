# The processes of a parallel query feed the sort below a GpuSort Aggregate, or compute their shares of the groups, and the answers
# are core's.
#
# 051 and 052 have random queries in parallel plans, too.  Here are the plans, groups that do not fit in the memory of a
# process, states of all kinds, workers that cannot be started, rescans, and what is left behind after errors and cancels.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('aggregate_feed', settings => "shared_preload_libraries = 'gpusort'\nautovacuum = off\nclient_min_messages = warning\n");
$node->start;
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION gpusort;
CREATE TABLE big AS SELECT i AS id, CASE WHEN i % 5 > 0 THEN 1 ELSE nullif(i / 5 % 50, 7) END AS few, i / 3 AS many, hashint8(i) AS k, hashint8(i)::float8 AS f, (hashint8(i) % 99999)::numeric / 8 AS n,
	nullif(i % 1000, 0) AS v, left(md5((i % 300)::text), i % 9) AS x FROM generate_series(1, 120000) i;
CREATE TABLE none (LIKE big);
CREATE TABLE small AS SELECT * FROM big WHERE id <= 2000;
ANALYZE;
CREATE FUNCTION unsafe(int) RETURNS int LANGUAGE sql VOLATILE PARALLEL UNSAFE AS 'SELECT $1';
SQL
my $session = session($node);
answer($session, map { "SET $_" } 'max_parallel_workers_per_gather = 3', 'min_parallel_table_scan_size = 0', 'parallel_setup_cost = 0', 'gpusort.force = on');
my $median = 'percentile_cont(0.5) WITHIN GROUP (ORDER BY k)';
my $plan = "EXPLAIN (COSTS OFF)";

# ---- plans ----

like(answer($session, "$plan SELECT count(DISTINCT x) FROM big"),
	qr/Custom Scan \(GpuSort Aggregate\).*->  Custom Scan \(GpuSort\)\n.*->  Gather\n.*->  Parallel Custom Scan \(GpuSort Feed\)\n +->  Parallel Seq Scan/s, 'without groups, all processes feed a sort');
like(answer($session, "$plan $_"), qr/Gather\n.*->  (?:Custom Scan \(GpuSort Aggregate\)|GroupAggregate)\n.*->  Parallel Custom Scan \(GpuSort\)\n.*Shared by: (?:v|x COLLATE "C")\n.*Parallel Seq Scan/s, "shared: $_")
  foreach 'SELECT v, count(DISTINCT x), count(*), avg(n) FROM big GROUP BY v HAVING count(DISTINCT x) > 2', 'SELECT x, mode() WITHIN GROUP (ORDER BY f) FROM big GROUP BY x',
  'SELECT x, percentile_cont(0.5) WITHIN GROUP (ORDER BY f), avg(v) FILTER (WHERE v > 3) FROM big GROUP BY x';
unlike(answer($session, "$plan $_"), qr/GpuSort Feed|Shared by/, "neither: $_")
  foreach 'SELECT count(DISTINCT k), array_agg(x ORDER BY x) FROM big', 'SELECT count(DISTINCT unsafe(k)) FROM big', 'SELECT count(*), sum(v) FROM big', 'SELECT few, count(DISTINCT k) FROM big GROUP BY ROLLUP (few)';
unlike(answer($session, 'SET gpusort.force = off', "$plan SELECT $median FROM small", 'SET gpusort.force = on'), qr/GpuSort Feed/, 'few rows are not worth it');

# ---- answers ----

sub same_answer
{
	my ($name, @query) = @_;
	my $core = answer($session, 'SET gpusort.enabled = off', @query);
	isnt($core, '', "core answers: $name");
	return is(answer($session, 'SET gpusort.enabled = on', @query), $core, $name);
}

# states of all kinds: by value, of fixed and of any length, internal; NULL until a value comes; and the float sums are exact
my $states = 'count(*), count(v), sum(v), avg(v), avg(n), sum(n), max(x), min(few), var_pop(v), bool_and(v > 3), bit_or(v), max(n), sum(f), avg(f), sum(v) FILTER (WHERE v = 3), max(x) FILTER (WHERE false)';
my @aggregates = ($median, 'percentile_disc(ARRAY[0.1, 0.9]) WITHIN GROUP (ORDER BY v DESC)', 'mode() WITHIN GROUP (ORDER BY v)', 'count(DISTINCT k)', 'count(DISTINCT v) FILTER (WHERE k > 0)', 'sum(DISTINCT v)',
	'percentile_cont(0.3) WITHIN GROUP (ORDER BY nullif(v, v))', 'avg(DISTINCT f)');
my $all = join(', ', @aggregates, $states);
foreach my $limit ('64kB', '1MB', '1GB')
{
	answer($session, "SET gpusort.memory_limit = '$limit'");
	same_answer("$limit: $_", $_)
	  foreach "SELECT $all FROM big", "SELECT $all FROM none", "SELECT $all FROM big WHERE v = 77 OR id = 3", "SELECT few, $all FROM big GROUP BY few ORDER BY few",
	  "SELECT count(*), sum(hashtext(q::text)) FROM (SELECT many, $all FROM big GROUP BY many) q", "SELECT few, x, count(DISTINCT k), count(*) FROM big GROUP BY x, few ORDER BY x DESC, few NULLS FIRST",
	  "SELECT date '2024-01-01' + id % 50, percentile_disc((SELECT ARRAY[0.1, 0.9])) WITHIN GROUP (ORDER BY v), count(DISTINCT v + (SELECT 3)) FILTER (WHERE v > (SELECT 500)) FROM big GROUP BY 1 ORDER BY 1",
	  "SELECT x COLLATE \"C\", f > 0, $median FROM big WHERE id % 2 = 0 GROUP BY 1, 2 ORDER BY 1, 2", "SELECT few, $median FROM none GROUP BY few UNION ALL SELECT 0, 0", 'SELECT md5(gpu_sort_agg(nullif(v, 9))::text), count(DISTINCT nullif(v, 9)), count(DISTINCT k), count(*) FROM big';
}
answer($session, "SET gpusort.memory_limit = '1MB'");
same_answer("by $_->[0]", @$_[1 .. $#$_], "SELECT few, $all FROM big GROUP BY few ORDER BY few", 'RESET max_parallel_workers', 'RESET parallel_leader_participation')
  foreach [ 'the leader alone', 'SET max_parallel_workers = 0' ], [ 'one worker', 'SET max_parallel_workers = 1' ], [ 'workers alone', 'SET parallel_leader_participation = off' ];
same_answer('joined', "SELECT a.few, $median, count(*) FROM (SELECT b.few, s.k FROM big b JOIN small s ON b.v = s.id) a GROUP BY few ORDER BY few");

same_answer($_, $_) foreach 'SELECT few, count(DISTINCT k) FROM big WHERE few = 1 GROUP BY few', 'SELECT few, v, count(DISTINCT k) FROM big WHERE few = v GROUP BY few, v ORDER BY few', 'SELECT count(DISTINCT 1) FROM big', 'SELECT mode() WITHIN GROUP (ORDER BY 7), sum(DISTINCT few) FROM big',
  'SELECT few, count(DISTINCT v % 7), count(DISTINCT k) FROM big GROUP BY few ORDER BY few', "SELECT count(DISTINCT v % 7), avg(f) FROM big";
is(answer($session, 'SET plan_cache_mode = force_generic_plan', 'PREPARE q(float8) AS SELECT few, percentile_cont(ARRAY[1 / $1]) WITHIN GROUP (ORDER BY k) FROM big WHERE id < 0 GROUP BY few', 'EXECUTE q(0)', "SELECT 'ends'") . $session->{err},
	'ends', 'without rows, fractions are not evaluated');

# a Gather is executed again
answer($session, 'SET enable_material = off', 'SET enable_hashjoin = off', 'SET enable_memoize = off', 'SET enable_mergejoin = off');
same_answer('rescanned', "SELECT g, q.* FROM generate_series(1, 3) g LEFT JOIN (SELECT few, $median, avg(n) FROM big GROUP BY few OFFSET 0) q ON q.few % 3 = g ORDER BY g, few");
same_answer('in a cursor', 'BEGIN', "DECLARE c SCROLL CURSOR FOR SELECT few, $median, avg(n) FROM big GROUP BY few ORDER BY few", 'FETCH 5 FROM c', 'FETCH BACKWARD 3 FROM c', 'MOVE FIRST FROM c', 'FETCH ALL FROM c', 'COMMIT');

# ---- memory ----

# the groups of 120000 rows do not fit: rows are sent, and sorted
answer($session, "SET gpusort.memory_limit = '64kB'", 'SET work_mem = \'64kB\'');
like(answer($session, "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT many, $median FROM big GROUP BY many"), qr/^  Buffers: .*temp read=\d+ written=\d+/m, 'rows of groups that do not fit are written');

# ---- what is left behind ----

my $left = q{SELECT count(*) FROM pg_ls_tmpdir(); SELECT count(*) FROM pg_backend_memory_contexts WHERE name ~ '^GpuSort (Aggregate|group)'; SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'};
is(answer($session, $left), "0\n0\n0", 'nothing is left after the queries');
foreach my $bad ('count(DISTINCT 1 / (id - 100000))', 'sum(1 / (id - 119999))', 'percentile_disc(3) WITHIN GROUP (ORDER BY k)')
{
	foreach my $group ('few', 'many')
	{
		$session->{err} = '';
		answer($session, "SELECT $group, $bad, count(DISTINCT v) FROM big GROUP BY $group");
		like($session->{err}, qr/ERROR:  (division by zero|percentile value 3 is not between 0 and 1)/, "$bad by $group is an error");
		is(answer($session, $left), "0\n0\n0", 'and nothing is left');
	}
}
my $cancelled = 0;
foreach my $ms (3, 10, 30, 60, 100, 150)
{
	$session->{err} = '';
	answer($session, "SET statement_timeout = $ms", "SELECT many, $all FROM big GROUP BY many", 'RESET statement_timeout');
	$cancelled++ if $session->{err} =~ /canceling statement/;
	is(answer($session, $left), "0\n0\n0", "nothing is left after $ms ms");
}
cmp_ok($cancelled, '>', 0, "$cancelled queries were cancelled");

leave($session);
$node->stop;
done_testing();
