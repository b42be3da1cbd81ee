# Sorts on the device at the limits of the server and under stress: every request
# slot taken, no files to share memory, no free background worker, less device memory
# under load, and many signals.

use strict;
use warnings;

use GpusortTest;
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $node = ordering_node('limits');
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE travels AS SELECT i AS id, hashint8extended(i, 1) AS k FROM generate_series(1, 270000::bigint) AS i;
CREATE TABLE large AS SELECT hashint8(i)::bigint AS k FROM generate_series(1, 2200000::bigint) AS i;
VACUUM ANALYZE;
SQL

my $last = 'SELECT engine, reason FROM gpusort_last_sort()';
my $sort = "SELECT gpu_sort_agg(k) = array_agg(k ORDER BY k) FROM t; $last";

#
# Every request slot is taken by cursors of two sessions, whose rows the device has.  There
# are two slots for each connection and one for each worker, 24 here.  A session may take half of them.
#
$node->append_conf('postgresql.conf', "max_connections = 8\n");
restart_with($node);
{
	my ($session, $other) = (session($node), session($node));
	my @cursors = map { ("DECLARE c$_ NO SCROLL CURSOR FOR SELECT k, id FROM travels ORDER BY k", "MOVE 1 FROM c$_") } 1 .. 13;
	answer($session, 'BEGIN', @cursors);
	is($session->{err}, '', 'a session opens 13 cursors');
	is(answer($session, $sort), "t\ncpu|This session has half of the GPU service's request slots.", 'half of the slots taken by a session: the CPU does its sorts');
	is($node->safe_psql('postgres', $sort), "t\ncuda|", 'half of the slots taken by a session: the device does those of others');
	answer($other, 'BEGIN', @cursors);
	is($other->{err}, '', 'another session opens 13 cursors');
	my ($rc, $stdout, $stderr) = $node->psql('postgres', $sort);
	is("$rc $stdout", "0 t\ncpu|All request slots of the GPU service are in use.", 'every slot taken: the CPU sorts');
	like($stderr, qr/WARNING:/, 'every slot taken: a warning says so');
	($rc, $stdout, $stderr) = $node->psql('postgres', "SET gpusort.engine = 'cuda'; $sort");
	like($stderr, qr/ERROR:.*All request slots/s, 'every slot taken: an error if gpusort.engine is cuda');
	is(answer($session, 'MOVE 269998 FROM c1; FETCH 2 FROM c1; MOVE 269998 FROM c13; FETCH 2 FROM c13'),
		join("\n", ($node->safe_psql('postgres', 'SET gpusort.enabled = off; SELECT k, id FROM travels ORDER BY k DESC LIMIT 1')) x 2),
		'every slot taken: the first and the last cursor read all rows');
	is(answer($session, 'ROLLBACK', $sort), "t\ncuda|", 'every slot taken: the session can sort on the device after closing its cursors');
	leave($_) foreach $session, $other;
	nothing_is_held($node, 'every slot taken');
	is($node->safe_psql('postgres', $sort), "t\ncuda|", 'every slot taken: the device sorts for other sessions afterwards');
}
$node->append_conf('postgresql.conf', "max_connections = 30\n");

#
# No background worker slot for the service, until another worker ends
#
# the launcher of logical replication has one slot, a parallel worker the other
$node->append_conf('postgresql.conf', "max_worker_processes = 2\n");
restart_with($node);
{
	my ($out, $err);
	my $reason = 'No background worker slot is free for the GPU service (max_worker_processes).';
	my $psql = in_background($node, \$out, \$err, 'SET max_parallel_workers_per_gather = 1; SET parallel_setup_cost = 0; '
		  . 'SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SELECT count(*) FROM t WHERE pg_sleep(0.1) IS NOT NULL');
	ok(poll($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'parallel worker'"), 'a parallel worker has the last slot');
	my ($rc, $stdout, $stderr) = $node->psql('postgres', $sort);
	is("$rc $stdout", "0 t\ncpu|$reason", 'no worker slot: the CPU sorts');
	like($stderr, qr/WARNING:.*DETAIL:  \Q$reason\E/s, 'no worker slot: a warning says so');
	ask($node, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'background' AND backend_type = 'client backend'");
	$psql->finish;
	ok(poll_until(sub { return ($node->psql('postgres', $sort))[1] eq "t\ncuda|"; }), 'a worker slot is free again: the device sorts');
}
$node->append_conf('postgresql.conf', "max_worker_processes = 8\n");

#
# No room in /dev/shm, which sorts do not need
#
my $parallel = "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET gpusort.engine = 'cpu'; SET gpusort.force = off; "
  . "SET gpusort.memory_limit = '200MB'; SET max_parallel_workers_per_gather = 2; SET parallel_leader_participation = off";
my $wide = "SELECT k, repeat('x', 50) AS x FROM large WHERE k IS NOT NULL ORDER BY k";
if (start_with_little_room($node, '/dev/shm', 4, 1777, 48) eq 'mounted')
{
	my $kind = 'a /dev/shm of 4 MB';
	is($node->safe_psql('postgres', "SELECT gpu_sort_agg(k) = array_agg(k ORDER BY k) FROM large; SELECT engine FROM gpusort_last_sort()"),
		"t\ncuda", "$kind: the device sorts");
	my $plan = $node->safe_psql('postgres', "$parallel; EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) $wide");
	like($plan, qr/GpuSort Feed.*Worker 1:  Rows: [1-9]/s, "$kind: parallel workers feed a sort");
	unlike($plan, qr/Disk/, "$kind: they write no rows to files");
	like($node->safe_psql('postgres', "$parallel; " . in_order($wide)), qr/^\d+\|t$/, "$kind: their rows are sorted");
}
$node->stop if -e $node->data_dir . '/postmaster.pid';

#
# No files in memory
#
{
	my $kind = 'files of at most 48 MB';
	my $reason = "Processes of this server cannot open each other's files in memory.";
	ok(start_by($node, 'sh', '-c', 'ulimit -f 98304; exec pg_ctl -w -D "$0" -l "$1" start >/dev/null', $node->data_dir, $node->logfile), "$kind: the server starts");
	my ($rc, $stdout, $stderr) = $node->psql('postgres', $sort);
	is("$rc $stdout", "0 t\ncpu|$reason", "$kind: the CPU sorts");
	is($node->safe_psql('postgres', "SELECT available, detail FROM gpusort_status() WHERE engine = 'cuda'"), "f|$reason", "$kind: gpusort_status() says why");
	($rc, $stdout, $stderr) = $node->psql('postgres', "BEGIN; $sort; SELECT count(*) FROM t; COMMIT; SET gpusort.engine = 'cuda'; $sort");
	like($stdout, qr/\n30000$/, "$kind: the transaction goes on");
	like($stderr, qr/ERROR:.*DETAIL:  \Q$reason\E/s, "$kind: an error if gpusort.engine is cuda");
	unlike($node->safe_psql('postgres', "$parallel; EXPLAIN $wide"), qr/Feed/, "$kind: no worker feeds a sort");
}

#
# gpusort.device_memory_limit is lowered and raised under load
#
restart_with($node, limit => '8GB');
is($node->safe_psql('postgres', 'SELECT cardinality(gpu_sort_agg(k)) FROM large; SELECT engine FROM gpusort_last_sort()'), "2200000\ncuda",
	'with enough device memory the device sorts');
{
	my $script = $node->basedir . '/load.sql';
	append_to_file($script, "SET gpusort.engine = 'cuda';\nSELECT 1 / (count = 2200000 AND bool_and)::int FROM ("
		  . in_order('SELECT k FROM large ORDER BY k') . ") AS s;\n");
	my ($out, $err) = ('', '');
	my $pgbench = IPC::Run::start([ 'pgbench', '-n', '-c', '3', '-j', '1', '-t', '1', '-f', $script, $node->connstr('postgres') ],
		'>', \$out, '2>', \$err, IPC::Run::timeout(2 * $PostgreSQL::Test::Utils::timeout_default));
	my $reloads = 0;
	while ($pgbench->pumpable)
	{
		$node->append_conf('postgresql.conf', 'gpusort.device_memory_limit = ' . (qw(67MB 300MB 100MB 8GB))[ $reloads++ % 4 ] . "\n");
		ask($node, 'SELECT pg_reload_conf()');
		usleep(30_000);
		$pgbench->pump_nb;
	}
	$pgbench->finish;
	like($out, qr{processed: 3/3}, "device memory changed $reloads times under load: results are right");
	unlike($err, qr/ERROR|aborted|WARNING/, 'device memory changed under load: there is no error');
	cmp_ok(times_traced($node, 'sort \d+'), '>=', 3, 'device memory changed under load: the device sorts');
	nothing_is_held($node, 'device memory changed under load');
	$node->append_conf('postgresql.conf', "gpusort.device_memory_limit = 30MB\n");
	ask($node, 'SELECT pg_reload_conf()');
	ok(poll_until(sub { return $node->safe_psql('postgres', 'SELECT cardinality(gpu_sort_agg(k)) FROM large; SELECT engine FROM gpusort_last_sort()') eq "2200000\ncpu"; }),
		'a lower limit takes effect');
	is(scalar(service_pids($node)), 1, 'there is still one service');
}

#
# More sorts than the device has time for: with gpusort.min_rows = -1, the CPU does the others
#
{
	restart_with($node, limit => '8GB', slow => 20);
	$node->safe_psql('postgres', 'CREATE TABLE busy AS SELECT hashint8(i)::bigint k FROM generate_series(1, 40000::bigint) i; '
		  . 'SELECT gpusort_stat_reset()');
	my $script = $node->basedir . '/busy.sql';
	append_to_file($script, "SET gpusort.min_rows = -1;\nSELECT 1 / (gpu_sort_agg(k) = array_agg(k ORDER BY k))::int FROM busy;\n");
	my ($out, $err) = run_command([ 'pgbench', '-n', '-c', '8', '-j', '2', '-t', '12', '-f', $script, $node->connstr('postgres') ]);
	like($out, qr{processed: 96/96}, 'a busy device: results are right');
	unlike($err, qr/ERROR|aborted|WARNING/, 'a busy device: there is no error');
	is($node->safe_psql('postgres', "SELECT sum(count) > 0 FROM gpusort_stat WHERE engine = 'cuda'; "
			. "SELECT sum(count) > 0 FROM gpusort_stat_reasons WHERE reason = 'Other sorts keep the device busy.'"),
		"t\nt", 'a busy device: it does some sorts, and the CPU does others');
	nothing_is_held($node, 'a busy device');
}

#
# Signals that wake the backend and the service without a reason
#
foreach my $signal ('ALRM', 'URG', 'USR1')
{
	restart_with($node, limit => '8GB', slow => 30);
	my $pid = "SELECT pid FROM pg_stat_activity WHERE application_name = 'background'";
	my ($out, $err);
	hold_device($node, 'sort');
	my $psql = in_background($node, \$out, \$err, 'SELECT gpu_sort_agg(k) = array_agg(k ORDER BY k) FROM large; SELECT engine FROM gpusort_last_sort()',
		"SET gpusort.memory_limit = '1MB'; " . in_order('SELECT k, word FROM t ORDER BY k'),
		"SET statement_timeout = '200ms'; SELECT count(s) FROM generate_series(1, 1000) AS i, LATERAL (SELECT gpu_sort_agg(k) AS s FROM t WHERE id > i OFFSET 0) AS s");
	ok(poll($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'background' AND wait_event_type = 'Extension'"),
		"$signal: a backend waits for the device");
	my @pids = (ask($node, $pid), service_pids($node));
	my $sent = 0;
	while ($psql->pumpable)
	{
		$sent++ if kill($signal, @pids) == 2;
		release_device($node) if $sent == 100;
		usleep(300);
		$psql->pump_nb;
	}
	$psql->finish;
	cmp_ok($sent, '>=', 100, "$signal: a storm of signals is sent");
	is($out, "t\ncuda\n30000|t\n", "$signal: sorts go on");
	is($err, "ERROR:  canceling statement due to statement timeout\n", "$signal: a timeout still works");
	is(join(' ', service_pids($node)), $pids[1], "$signal: the service goes on");
	nothing_is_held($node, $signal);
}

$node->stop;
done_testing();
