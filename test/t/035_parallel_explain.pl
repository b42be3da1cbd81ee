# EXPLAIN ANALYZE shows what each process of a parallel query has gathered for a sort
# (src/node/feed.c, src/node/explain.c), in text and as JSON.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('parallel_explain', settings => <<'CONF');
session_preload_libraries = 'gpusort'
gpusort.force = on
max_worker_processes = 20
max_parallel_workers = 16
max_parallel_workers_per_gather = 2
parallel_setup_cost = 0
parallel_tuple_cost = 0
min_parallel_table_scan_size = 0
work_mem = 64MB
autovacuum = off
CONF
$node->start;

# a quarter of the column b is NULL
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION gpusort;
CREATE TABLE t AS SELECT i AS id, hashint4(i) AS k, CASE WHEN i % 4 > 0 THEN hashint8extended(i, 1) END AS b FROM generate_series(1, 60000) AS i;
ALTER TABLE t SET (parallel_workers = 2);
CREATE TABLE grouped WITH (parallel_workers = 2) AS SELECT i % 10 AS g, i AS id, md5(i::text) AS m FROM generate_series(1, 60000) i;
VACUUM ANALYZE t, grouped;
CREATE FUNCTION explained(options text, query text) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
	result json;
BEGIN
	EXECUTE format('EXPLAIN (ANALYZE, FORMAT JSON, %s) %s', options, query) INTO result;
	RETURN result;
END $$;
SQL

my $rows = 'SELECT id, k FROM t ORDER BY k';
my $values = 'SELECT b FROM t ORDER BY b';

# The lines of participants in text, and the sums of a number in them.
sub participants_of
{
	my ($settings, $options, $query) = @_;
	my $plan = $node->safe_psql('postgres', "$settings; EXPLAIN (ANALYZE, COSTS OFF, $options) $query");
	my @lines = $plan =~ /^ *((?:Leader|Worker \d+):  Rows.*)$/mg;
	return ($plan, @lines);
}

sub sum
{
	my ($pattern, @lines) = @_;
	my $sum = 0;
	foreach my $line (@lines)
	{
		$sum += $1 if $line =~ $pattern;
	}
	return $sum;
}

foreach my $case (
	[ 'rows', '', $rows, [ 'Leader', 'Worker 0', 'Worker 1' ] ],
	[ 'values with NULLs', '', $values, [ 'Leader', 'Worker 0', 'Worker 1' ] ],
	[ 'no leader participation', 'SET parallel_leader_participation = off', $rows, [ 'Worker 0', 'Worker 1' ] ],
	[ 'no worker', 'SET max_parallel_workers = 0', $rows, ['Leader'] ],
	[ 'spill', "SET gpusort.memory_limit = '64kB'; SET parallel_leader_participation = off", $rows, [ 'Worker 0', 'Worker 1' ] ],
	[ 'spill of values', "SET gpusort.memory_limit = '64kB'; SET parallel_leader_participation = off", $values, [ 'Worker 0', 'Worker 1' ] ])
{
	my ($name, $settings, $query, $names) = @$case;
	my $spill = $name =~ /spill/;
	foreach my $timing ('on', 'off')
	{
		my ($plan, @lines) = participants_of($settings, "TIMING $timing", $query);
		my $time = $timing eq 'on' ? qr/  Time: \d+\.\d{3} ms/ : qr//;
		my $right = grep { /^(?:Leader|Worker \d):  Rows: \d+  Memory: \d+kB(?:  Disk: \d+kB  Runs: \d+)?$time$/ } @lines;
		is_deeply([ map { /^(.*?):/ } @lines ], $names, "$name, timing $timing: shows the processes that take part") or diag($plan);
		is($right, scalar @lines, "$name, timing $timing: shows rows and memory, and with TIMING the time") or diag($plan);
		is(sum(qr/Rows: (\d+)/, @lines), 60000, "$name, timing $timing: the rows add up") or diag($plan);
		my $disk = sum(qr/Disk: (\d+)kB/, @lines);
		ok($spill ? $disk > 200 : $disk == 0, "$name, timing $timing: tells what went to files") or diag($plan);
	}
}

# The processes share the limit that a user sets, up to the administrator's bound.  By default each has work_mem.
foreach my $case (
	[ 'a limit of 3 MB', "SET gpusort.memory_limit = '3MB'", 3072 ],
	[ 'a bound of 3 MB', "SET gpusort.memory_limit = '1GB'; SET gpusort.max_memory_limit = '3MB'", 3072 ],
	[ 'a bound of 3 MB, by default', "SET gpusort.max_memory_limit = '3MB'", 3072 ],
	[ 'a bound above the limit', "SET gpusort.memory_limit = '3MB'; SET gpusort.max_memory_limit = '1GB'", 3072 ],
	[ 'by default', "SET work_mem = '1MB'; SET hash_mem_multiplier = 1", 3072 ])
{
	my ($name, $settings, $limit) = @$case;
	my ($plan, @lines) = participants_of($settings, 'TIMING OFF', 'SELECT id, k, b FROM t ORDER BY k');
	cmp_ok(sum(qr/Memory: (\d+)kB/, @lines), '<=', 1.03 * $limit, "$name: the processes keep to it together") or diag($plan);
	cmp_ok(sum(qr/Disk: (\d+)kB/, @lines), '>', 0, "$name: they spill") or diag($plan);
}
# workers that sort by themselves
my $merged = $node->safe_psql('postgres', "SET gpusort.memory_limit = '1500kB'; SET enable_hashagg = off; EXPLAIN (ANALYZE, VERBOSE, COSTS OFF, TIMING OFF) SELECT g, max(id), max(m) FROM grouped GROUP BY g");
cmp_ok(sum(qr/Memory: (\d+)/, $merged =~ /(Memory: \d+) kB/g), '<=', 1.03 * 500, 'below a Gather Merge the leader keeps to its third') or diag($merged);
like($merged, qr/Gather Merge.*Disk: [1-9]/s, 'below a Gather Merge they spill') or diag($merged);
like($node->safe_psql('postgres', "SET gpusort.max_memory_limit = '64kB'; SET max_parallel_workers_per_gather = 0; EXPLAIN (ANALYZE, COSTS OFF) $rows"),
	qr/Runs: \d\d/, 'the bound holds for a serial sort');

# Only workers gather.  The leader sorts rows that take as much memory as if it had gathered all.
my ($parallel) = participants_of('SET parallel_leader_participation = off', 'TIMING OFF', $values);
my ($serial) = participants_of('SET max_parallel_workers_per_gather = 0', 'TIMING OFF', $values);
my ($memory) = $parallel =~ /^ *Memory: (\d+) kB$/m;
my ($memory_serial) = $serial =~ /^ *Memory: (\d+) kB$/m;
cmp_ok($memory, '>', 0.8 * $memory_serial, "the sort's memory is that of all processes") or diag($parallel, $serial);
unlike($serial, qr/Leader|Worker/, 'a serial sort has no participants');

# a sort for each row of another table
my ($plan, @lines) = participants_of(
	'SET enable_material = off; SET enable_hashjoin = off; SET enable_mergejoin = off', 'TIMING ON',
	"SELECT o.i, l.* FROM generate_series(1, 4) AS o(i), LATERAL (SELECT * FROM ($rows OFFSET 0) AS s WHERE s.id % 7 > o.i OFFSET 0) AS l");
like($plan, qr/GpuSort\).* loops=4\)/, 'the sort is repeated');
is(sum(qr/Rows: (\d+)/, @lines), 240000, 'the rows of repeated sorts are summed up') or diag($plan);

# core sorts, by a plan that is older than the setting
($plan, @lines) = participants_of("SET plan_cache_mode = force_generic_plan; PREPARE p AS $rows; EXPLAIN EXECUTE p; SET gpusort.enabled = off",
	'TIMING ON', 'EXECUTE p');
like($plan, qr/Engine: core.*GpuSort Feed/s, 'core sorts what a parallel query hands on');
is("@lines", '', 'then there are no participants') or diag($plan);

# without ANALYZE
unlike($node->safe_psql('postgres', "EXPLAIN $rows"), qr/Leader|Worker \d/, 'a plan that has not run has no participants');

# as JSON
foreach my $timing ('on', 'off')
{
	my $keys = $timing eq 'on' ? ' Time' : '';
	is( $node->safe_psql('postgres', <<"SQL"), "Leader|0|Memory Process Rows$keys\nWorker|1|Memory Process Rows$keys Worker Number\n60000|3|0 1", "JSON, timing $timing");
CREATE TEMP TABLE participants AS
	SELECT p, p ->> 'Process' AS process, (p ->> 'Worker Number')::int AS number, (p ->> 'Rows')::int AS rows
	FROM jsonb_path_query(explained('TIMING $timing', '$rows')::jsonb, 'strict \$.**.Participants[*]') AS p;
SELECT DISTINCT process, coalesce(number, 0), (SELECT string_agg(key, ' ' ORDER BY key COLLATE "C") FROM jsonb_object_keys(p) AS key)
FROM participants WHERE number = 1 OR number IS NULL ORDER BY 1;
SELECT sum(rows), count(*), string_agg(number::text, ' ' ORDER BY number) FROM participants;
SQL
}

$node->stop;
done_testing();
