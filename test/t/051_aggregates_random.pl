# Aggregates that GpuSort Aggregate computes give the same results with GpuSort and without.
#
# The random queries are the aggregates without groups of RandomQueries.pm.  Then plans, temporary files, errors and
# permissions.
#
#   SEED=n, CASES=n (300 by default), SETTINGS="a=1 b=2": see RandomTest.pm

use strict;
use warnings;

use GpusortTest;
use RandomTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

begin_cases(300);

my $node = random_node('aggregates_random', '(GpuSort Aggregate)');
random_queries($node, 'postgres', 'with aggregates', least => 0.33, table => { rows => [ 0, 1, 2, 100, (5000) x 3, 20000 ], strings => 0 }, with => { 'gpusort.force' => [ 'on', 'off' ] },
	forms => [ ('aggregates') x 10, 'volatile', 'error' ], ways => [ ('plain') x 5, ('prepared') x 3, ('lateral') x 3, 'cte', 'cursor', 'subselect', 'join' ]);

# ---- plans ----

$node->safe_psql('postgres', <<'SQL');
CREATE ROLE alice LOGIN;
CREATE SEQUENCE q;
CREATE TABLE big AS SELECT i AS id, hashint8(i)::int8 AS k, i % 50 AS few, i::text AS x FROM generate_series(1, 200000) i;
GRANT SELECT ON big TO alice;
ANALYZE big;
SQL
my $session = session($node);
my $median = 'percentile_cont(0.5) WITHIN GROUP (ORDER BY k DESC)';
my $mode = 'mode() WITHIN GROUP (ORDER BY few)';

# The answers to a query with GpuSort and without
sub both_answers
{
	my ($query) = @_;
	return map { answer($session, "SET gpusort.enabled = $_", $query) } 'off', 'on';
}

my $plan = answer($session, 'SET max_parallel_workers_per_gather = 0', "EXPLAIN (COSTS OFF) SELECT $median, count(DISTINCT k) + 1 FROM big HAVING $mode > 0");
like($plan, qr/^Custom Scan \(GpuSort Aggregate\)\n +Filter: .*mode.*\n +Aggregates: percentile_cont.* DESC\), count\(DISTINCT k\), mode\(\) .*\n +->  Seq Scan on big$/, 'EXPLAIN shows the node and its aggregates');
unlike(answer($session, "EXPLAIN $_"), qr/GpuSort Aggregate/, "core's plan: $_")
  foreach "SELECT few, $median, rank(3) WITHIN GROUP (ORDER BY k) FROM big GROUP BY few", "SELECT $median FROM big GROUP BY GROUPING SETS ((few), ())", 'SELECT gpu_sort_agg(k) OVER (PARTITION BY few) FROM big', 'SELECT count(DISTINCT to_jsonb(x)) FROM big',
  'SELECT mode() WITHIN GROUP (ORDER BY few USING #<) FROM big', 'SELECT count(k) FROM big';
is(answer($session, "SELECT count(DISTINCT nextval('q')), count(DISTINCT nextval('q')) FROM generate_series(1, 1000)", 'SELECT last_value FROM q'), "1000|1000\n2000",
	'volatile arguments are evaluated for each aggregate');

# ---- temporary files ----

my $files = 'SELECT count(*) FROM pg_ls_tmpdir()';
foreach my $limit ('64kB', '100MB')
{
	answer($session, "SET gpusort.memory_limit = '$limit'");
	foreach my $list ('count(DISTINCT k)', 'mode() WITHIN GROUP (ORDER BY k)', $median, 'percentile_disc(ARRAY[0.1, 0.9]) WITHIN GROUP (ORDER BY k)', 'count(DISTINCT few), count(DISTINCT few + 1)')
	{
		my $lines = answer($session, "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT $list FROM big");
		# equal values are removed
		my $written = $limit eq '64kB' && $list !~ /few/;
		like($lines, $written ? qr/temp read=\d+ written=\d+/ : qr/\A(?!.*temp )/s, ($written ? 'values beyond' : 'no values within') . " $limit are written: $list");
	}
}
answer($session, "SET gpusort.memory_limit = '64kB'");

# each list of values has less than 2 kB
my ($off, $on) = both_answers('SELECT ' . join(', ', map { "count(DISTINCT k % ($_ * 1000)), mode() WITHIN GROUP (ORDER BY id / $_ DESC)" } 1 .. 20) . ' FROM big WHERE id < 20000');
is($on, $off, '40 lists of values share the limit');
is(answer($session, $files), '0', 'no temporary file is left');
foreach my $query ('count(DISTINCT 1000 / (200000 - id))', 'percentile_disc(3) WITHIN GROUP (ORDER BY k)', "$median, mode() WITHIN GROUP (ORDER BY (id / 199)::small)")
{
	($off, $on) = both_answers("BEGIN; SELECT attempt('SELECT $query FROM big'); $files; COMMIT");
	is($on, $off, "core's error: $query");
	like($on, qr/[^0]\n0$/, 'no temporary file is left when the transaction goes on');
}

answer($session, "SET statement_timeout = '700ms'", "SELECT count(DISTINCT a.k # b.k) FROM big a, big b", 'RESET statement_timeout');
like($session->{err}, qr/canceling statement due to statement timeout/, 'statement_timeout ends a query');
is(answer($session, $files), '0', 'no temporary file is left');

# the last row comes late
hold($node, 7);
my $psql = in_background($node, \my $stdout, \my $stderr, 'SET max_parallel_workers_per_gather = 0', "SET gpusort.memory_limit = '64kB'",
	'SELECT count(DISTINCT k) FROM (SELECT k FROM big UNION ALL ' . late_row(7) . ') q', $files);
ok(poll($node, waits_for(7)), 'a query waits for its last row');
cmp_ok(ask($node, $files), '>', 0, 'it has temporary files');
ask($node, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'background'");
$psql->finish;
like($stderr, qr/canceling statement due to user request/, 'it is cancelled');
is($stdout, "0\n", 'its session has no temporary file');
let_go($node, 7);

# ---- permissions ----

foreach my $case (
	[ $median, 'percentile_cont(float8, float8)', 'aggregate percentile_cont' ],
	[ 'percentile_disc(ARRAY[0.5]) WITHIN GROUP (ORDER BY k)', 'percentile_disc(float8[], anyelement)', 'aggregate percentile_disc' ],
	[ 'count(DISTINCT k)', 'count("any")', 'aggregate count' ],
	# its owner calls the functions of an aggregate
	[ $mode, 'mode_final(internal, anyelement)', 'function mode_final', 'ALTER AGGREGATE mode(ORDER BY anyelement) OWNER TO' ])
{
	my ($aggregate, $function, $denied, $alter) = @$case;
	answer($session, "REVOKE EXECUTE ON FUNCTION $function FROM PUBLIC", $alter ? "$alter alice" : (), 'SET ROLE alice');
	$session->{err} = '';
	both_answers("SELECT $aggregate FROM big");
	is($session->{err}, "ERROR:  permission denied for $denied\n" x 2, "$denied: the same error with GpuSort and without");
	answer($session, 'RESET ROLE', $alter ? "$alter CURRENT_USER" : (), "GRANT EXECUTE ON FUNCTION $function TO PUBLIC");
}

leave($session);
end_session($node);
$node->stop;
done_testing();
