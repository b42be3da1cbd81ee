# Windows that all processes compute, each for shares of a sorted stream: the answers are core's.
#
# Queries of one window and of several, and of groups beside them, with any number of workers, with a leader that takes part and one that does not,
# with memory for all rows and without, in subqueries, joins, lateral joins and cursors.  Then what ends in between: a
# LIMIT, a cancel, a worker that is killed; and what EXPLAIN and the counters say.
#
#   SEED=n, CASES=n (60 by default)

use strict;
use warnings;

use GpusortTest;
use RandomTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($seed, $cases) = begin_cases(60);
my $node = new_node('shares', settings => "shared_preload_libraries = 'gpusort'\nautovacuum = off\nmax_worker_processes = 16\nmax_parallel_workers = 16\nrestart_after_crash = on");
$node->start;
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION gpusort;
CREATE TABLE t AS SELECT i AS id, i % 7 AS few, CASE WHEN i % 11 > 0 THEN hashint4(i) % 500 END AS mid, hashint4(i + 1) AS k, (i % 97) / 8.0::float8 AS f,
	(hashint4(i) % 300)::text COLLATE "C" AS x, CASE WHEN i % 3 > 0 THEN i::numeric / 10 END AS n, repeat('pad', i % 20) AS pad FROM generate_series(1, 20000) i;
CREATE TABLE none (LIKE t);
CREATE TABLE one AS SELECT id, 1 AS few, 2 AS mid, k, f, 'x' COLLATE "C" AS x, n, pad FROM t LIMIT 3000;
CREATE TABLE o AS SELECT i AS r FROM generate_series(0, 6) i;
ANALYZE;
SQL
my $session = session($node);
my $shared = 'SET gpusort.force = on; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET max_parallel_workers_per_gather = ';
srand($seed);

# the rows, in any order, as a number and a sum of hashes
sub digest { return "SELECT count(*), sum(hashtextextended(q::text, 0)::numeric) FROM ($_[0]) q" }

sub same_answer
{
	my ($name, $workers, $settings, $query) = @_;
	my $core = answer($session, 'RESET ALL', 'SET gpusort.enabled = off', 'SET max_parallel_workers_per_gather = 0', $query);
	answer($session, 'RESET ALL', "$shared$workers", $settings);
	return is(answer($session, $query), $core, $name);
}

# ---- random windows ----

my @partitions = ('few', 'mid', 'x', 'few, mid', 'mid, x', 'n', 'id % 3', 'id / 1000', 'few, id % 2', 'f', 'id');
my @frames = ('', 'ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING', 'ROWS UNBOUNDED PRECEDING', 'GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES',
	'RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW', 'ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING');
my @functions = ('row_number()', 'rank()', 'dense_rank()', 'percent_rank()', 'cume_dist()', 'ntile(4)', 'lag(k, 2)', 'lead(n, 1, 0)', 'first_value(k)', 'last_value(id)',
	'nth_value(x, 3)', 'sum(k)', 'count(*)', 'max(x)', 'avg(n)', 'count(*) FILTER (WHERE k > 0)', 'array_agg(few)', "string_agg(x, ',')");
my %plans;
foreach my $i (1 .. $cases)
{
	my @some = map { $functions[ rand @functions ] } 1 .. 1 + int(rand 3);
	my $partition = $partitions[ rand @partitions ];
	my $order = ('k, id', 'id DESC', 'f, id', 'x, id', 'n NULLS FIRST, id')[ rand 5 ];
	my $windows = "w AS (PARTITION BY $partition ORDER BY $order $frames[ rand @frames ])";
	my @values = map { "$_ OVER w" } @some;
	if (rand() < 0.4)
	{
		# a second window, perhaps with another sort
		my $second = rand() < 0.7 ? (split /, /, $partition)[0] : $partitions[ rand @partitions ];
		$windows .= ", v AS (PARTITION BY $second ORDER BY " . ('id', 'k, id', '-id')[ rand 3 ] . ')';
		push @values, 'sum(mid) OVER v', 'row_number() OVER v';
	}
	my $table = ('t', 't', 't', 'none', 'one', '(SELECT * FROM t WHERE few < 3) t', '(SELECT t.* FROM t JOIN o ON few = r) t', '(SELECT DISTINCT * FROM t) t')[ rand 8 ];
	my $query;
	my $select = "SELECT id, few, mid, " . join(', ', @values) . " FROM $table" . (rand() < 0.3 ? ' WHERE k % 3 <> 0' : '') . " WINDOW $windows";
	if (rand() < 0.25)
	{
		my @by = split /, /, $partition;
		my @sums = ('count(DISTINCT k)', 'array_agg(k ORDER BY f, id)', "string_agg(x, ',' ORDER BY id DESC)", 'percentile_cont(0.3) WITHIN GROUP (ORDER BY f)', 'mode() WITHIN GROUP (ORDER BY mid)',
			'sum(k)', 'max(x)', 'count(DISTINCT x)', 'rank(3) WITHIN GROUP (ORDER BY few)');
		my $groups = 'SELECT ' . join(', ', @by, map { $sums[ rand @sums ] } 1 .. 3) . " FROM $table GROUP BY " . join(', ', @by);
		$select = $groups;
		$query = (digest($groups), "SELECT count(*) FROM ($groups OFFSET 0) g", $groups . ' ORDER BY ' . join(', ', @by))[ rand 3 ];
	}
	else
	{
		$query = (
		digest($select), digest("$select OFFSET 0"), "$select ORDER BY id",
		digest("SELECT * FROM ($select) z JOIN o ON few = r"),
		"SELECT r, (SELECT count(*) FROM ($select OFFSET 0) z WHERE z.few = r) FROM o ORDER BY r",
		"SELECT r, c, s FROM o, LATERAL (SELECT count(*) AS c, sum(id) AS s FROM (" . ($select =~ s/ WINDOW/ WHERE t.id % 7 >= r WINDOW/r) . ") z) y ORDER BY r",
		)[ rand 6 ];
	}
	$query =~ s/WHERE k % 3 <> 0 WHERE/WHERE k % 3 <> 0 AND/;
	my $settings = join('; ', 'SET parallel_leader_participation = ' . (rand() < 0.3 ? 'off' : 'on'), rand() < 0.3 ? "SET gpusort.memory_limit = '64kB'" : 'SET work_mem = \'64MB\'',
		'SET gpusort.verify = ' . (rand() < 0.5 ? 'on' : 'off'),
		'SET max_parallel_workers = ' . (rand() < 0.15 ? 0 : 16));
	my $workers = int(rand 5);
	same_answer("case $i", $workers, $settings, $query) or diag("SEED=$seed\n$shared$workers; $settings\n$query");
	$plans{ answer($session, "EXPLAIN $query") =~ /Shared by/ ? 'shared' : 'other' }++;
}
cmp_ok($plans{shared} // 0, '>', $cases / 8, "$plans{shared} of $cases plans had shares");

# ---- plans of other kinds ----

answer($session, 'RESET ALL', 'CREATE TEMP TABLE mine AS SELECT i % 7 AS x FROM generate_series(1, 50) i', 'CREATE INDEX ON t (few, mid, k) INCLUDE (id, f)',
	'CREATE FUNCTION leaders(int) RETURNS int LANGUAGE sql PARALLEL RESTRICTED IMMUTABLE AS \'SELECT $1\'', 'VACUUM ANALYZE t');
foreach my $query (
	# an Append has more workers than its arms
	'SELECT count(*), sum(r) FROM (' . join(' UNION ALL ', map { "SELECT id, row_number() OVER (PARTITION BY $_ ORDER BY id) AS r FROM t" } ('few', 'mid') x 4) . ') u',
	'SELECT count(*), sum(r) FROM t JOIN (SELECT id, row_number() OVER (PARTITION BY few ORDER BY id) AS r FROM one) w USING (id)',
	# what only the leader can compute
	'SELECT sum(c), sum(r) FROM (SELECT (SELECT count(*) FROM mine WHERE x = few) AS c, row_number() OVER (PARTITION BY few ORDER BY id) AS r FROM t OFFSET 0) z',
	'SELECT sum(c), sum(r) FROM (SELECT leaders(few) AS c, row_number() OVER (PARTITION BY few ORDER BY id) AS r FROM t OFFSET 0) z',
	# a constant, and a column twice
	"SELECT sum(r) FROM (SELECT id, row_number() OVER (PARTITION BY few, kind ORDER BY id) AS r FROM (SELECT id, few, 'x'::text AS kind FROM t) s OFFSET 0) z",
	'SELECT sum(r) FROM (SELECT id, row_number() OVER (PARTITION BY few, c ORDER BY id) AS r FROM (SELECT few, few AS c, id FROM t) s OFFSET 0) z',
	"SELECT kind, few, percentile_cont(0.5) WITHIN GROUP (ORDER BY f) FROM (SELECT few, 'x'::text AS kind, f FROM t) s GROUP BY kind, few ORDER BY few",
	# an index has an order that serves both windows
	'SELECT sum(hashint8(a)), sum(hashint8(b)) FROM (SELECT sum(id) OVER (PARTITION BY few ORDER BY mid, k) AS a, count(*) OVER (PARTITION BY few ORDER BY f, mid) AS b FROM t WHERE f = 1 OFFSET 0) z',
	'SELECT sum(hashint8(a)), sum(hashint8(b)) FROM (SELECT sum(id) OVER (PARTITION BY few ORDER BY mid, k) AS a, count(*) OVER (PARTITION BY few ORDER BY mid) AS b FROM t OFFSET 0) z')
{
	same_answer($query, 3, $_, $query) foreach 'SET enable_seqscan = on', 'SET enable_seqscan = off', 'SET enable_partitionwise_aggregate = on; SET enable_hashjoin = on; SET enable_nestloop = off';
}
answer($session, 'RESET ALL', "${shared}2", "PREPARE p AS SELECT sum(r) FROM (SELECT row_number() OVER (PARTITION BY mid ORDER BY k, id) AS r FROM t OFFSET 0) q", 'SET plan_cache_mode = force_generic_plan');
my $prepared = answer($session, 'EXECUTE p');
$session->{err} = '';
is(answer($session, 'SET gpusort.enabled = off', 'EXECUTE p'), $prepared, 'a plan with shares when gpusort is off');
is($session->{err}, '', 'and no error');
answer($session, 'DEALLOCATE p', 'DROP TABLE mine');

# ---- what EXPLAIN says ----

# "id % n" has 2 n values at most, whatever the planner expects of an expression: enough for all processes, or too few
answer($session, 'RESET ALL', "SET work_mem = '256MB'", 'SET min_parallel_table_scan_size = 0', 'CREATE TABLE many AS SELECT i AS id, hashint4(i) AS k FROM generate_series(1, 300000) i', 'ANALYZE many');
foreach my $case ([ 100, 1 ], [ 1, 0 ])
{
	my ($n, $shares) = @$case;
	foreach my $query ("SELECT id % $n, string_agg(k::text, '' ORDER BY id), count(DISTINCT k) FROM many GROUP BY 1", "SELECT max(r) FROM (SELECT row_number() OVER (PARTITION BY id % $n ORDER BY k) AS r FROM many OFFSET 0) q")
	{
		is(answer($session, "EXPLAIN $query") =~ /Shared by/ ? 1 : 0, $shares, "by the number of groups: $query");
	}
}

my $window = 'SELECT id, row_number() OVER w AS r, sum(k) OVER w AS s FROM t WINDOW w AS (PARTITION BY mid ORDER BY k, id)';
answer($session, 'RESET ALL', "${shared}2");
my $plan = answer($session, "EXPLAIN (COSTS OFF) SELECT sum(r) FROM ($window OFFSET 0) q");
like($plan, qr/^Finalize Aggregate\n +->  Gather\n +Workers Planned: 2\n +->  Partial Aggregate\n(?: +->  Subquery.*\n)? +->  WindowAgg\n(?: +Window: .*\n)? +->  Parallel Custom Scan \(GpuSort\)\n +Sort Key: t\.mid, t\.k, t\.id\n +Shared by: t\.mid\n +->  Parallel Seq Scan on t$/,
	'the partial path of a subquery is handed up');
$plan = answer($session, "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT sum(r) FROM ($window OFFSET 0) q");
like($plan, qr/Engine: (?:cpu|cuda).*\n(?:.*\n)* +(?:Leader|Worker \d+): +Rows: \d+ +Memory: \d+kB\n/, 'EXPLAIN ANALYZE shows what each process has gathered');
my $gathered = 0;
$gathered += $_ foreach $plan =~ /(?:Leader|Worker \d+): +Rows: (\d+)/g;
is($gathered, 20000, 'these are all rows');

foreach my $query (
	'SELECT id, row_number() OVER (ORDER BY k, id) FROM t',
	'SELECT id, sum(k) OVER (PARTITION BY few ORDER BY id), sum(k) OVER (PARTITION BY mid ORDER BY id) FROM t',
	'SELECT id, sum(k) OVER (PARTITION BY nextval(\'s\') % 3 ORDER BY id) FROM t',
	'SELECT * FROM (SELECT id, row_number() OVER (PARTITION BY few ORDER BY id) AS r FROM t) q WHERE r <= 2')
{
	answer($session, 'CREATE SEQUENCE IF NOT EXISTS s');
	unlike(answer($session, "EXPLAIN SELECT count(*) FROM ($query OFFSET 0) z"), qr/Shared by/, "no shares: $query");
}

# ---- what ends in between ----

same_answer('a LIMIT', 3, '', "SELECT count(*) FROM ($window LIMIT 10) q");
same_answer('few rows of a cursor', 3, '', 'SELECT 1');
answer($session, 'BEGIN', "DECLARE c CURSOR FOR $window");
is(scalar(split /\n/, answer($session, 'FETCH 3 FROM c')), 3, 'a cursor fetches some rows');
answer($session, 'COMMIT');
$node->safe_psql('postgres', 'CREATE FUNCTION slow(int) RETURNS int LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$ BEGIN PERFORM pg_sleep(0.001); RETURN $1; END $$');
foreach my $where ('WHERE slow(id) > 0', '')
{
	my $slow = $where ? $window =~ s/ WINDOW/ $where WINDOW/r : "SELECT slow(r::int) AS r FROM ($window) z";
	$session->{err} = '';
	answer($session, "SET statement_timeout = '700ms'", "SELECT sum(r) FROM ($slow OFFSET 0) q");
	like($session->{err}, qr/canceling statement due to statement timeout/,
		$where ? 'cancelled while rows are gathered' : 'cancelled while rows are returned');
	answer($session, 'RESET statement_timeout');
	like(answer($session, "SELECT sum(r) FROM ($window OFFSET 0) q"), qr/^\d+$/, 'the next query is answered');
	is(answer($session, 'SELECT count(*) FROM pg_ls_tmpdir()'), '0', 'no temporary file is left');
}

# a worker is terminated while it returns rows, and one while it gathers
foreach my $slow ("SELECT slow(r::int) AS r FROM ($window) z", $window =~ s/ WINDOW/ WHERE slow(id) > 0 WINDOW/r)
{
	$session->{err} = '';
	my ($out, $err);
	my $killer = in_background($node, \$out, \$err, "DO \$\$ BEGIN FOR i IN 1 .. 1000 LOOP EXIT WHEN (SELECT bool_or(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'parallel worker' AND query_start < clock_timestamp() - interval '500 ms'); PERFORM pg_sleep(0.01); PERFORM pg_stat_clear_snapshot(); END LOOP; END \$\$");
	answer($session, "SELECT sum(r) FROM ($slow OFFSET 0) q");
	like($session->{err}, qr/terminating (?:connection|background worker|parallel worker)|lost connection/, 'a worker is terminated');
	$killer->finish;
	like(answer($session, "SELECT sum(r) FROM ($window OFFSET 0) q"), qr/^\d+$/, 'the next query is answered');
}
is(answer($session, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'"), '0', 'no worker is left');
done_testing();
