# Processes are killed while sorts are in different states: the GPU service, a backend
# that gathers, one that waits for the device, one that has spilled, a parallel
# worker, and the postmaster.  Afterwards the server can sort, and no process, temporary
# file or request of the earlier sorts is left.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = ordering_node('crash', 'restart_after_crash = on');
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION stops_at(place bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	IF place = 10 THEN PERFORM pg_sleep(3600); END IF;
	RETURN true;
END $$;
ALTER TABLE t SET (parallel_workers = 2);
VACUUM ANALYZE t;
SQL

my $files = 'SELECT count(*) FROM pg_ls_tmpdir()';
my $parallel = join '; ', map { "SET $_" } 'max_parallel_workers_per_gather = 2', 'parallel_setup_cost = 0',
  'parallel_tuple_cost = 0', 'parallel_leader_participation = off';

# Checks that the device sorts, that sorts can spill, and that nothing is held.
sub sorts_on
{
	my ($name) = @_;
	is( $node->safe_psql('postgres', "SELECT gpu_sort_agg(k) = array_agg(k ORDER BY k) FROM t; SELECT engine, reason FROM gpusort_last_sort()"),
		"t\ncuda|", "$name: the device sorts");
	is( $node->safe_psql('postgres', "SET gpusort.memory_limit = '1MB'; " . in_order('SELECT k, word FROM t ORDER BY k')),
		'30000|t', "$name: a sort can spill");
	is($node->safe_psql('postgres', "$files; SELECT count(*) FROM gpusort_activity"), "0\n0", "$name: no file is left");
	nothing_is_held($node, $name);
	end_session($node);
	return;
}

# Starts three sorts that do not end: one gathers, one is on the device, and one has
# spilled its rows and merges them.  Returns their pids and the service's by name.
my @running;

sub run_sorts
{
	my %sorts = (
		gathers => "SELECT cardinality(gpu_sort_agg(k)) FROM (SELECT k FROM t UNION ALL SELECT 1 FROM (SELECT pg_sleep(3600) OFFSET 0) AS s) AS u",
		merges => "SET gpusort.memory_limit = '1MB'; SELECT count(stops_at(place)) FROM "
		  . "(SELECT row_number() OVER () AS place FROM (SELECT k, word FROM t ORDER BY k OFFSET 0) AS s) AS s",
		sorts => 'SELECT cardinality(gpu_sort_agg(k)) FROM t');
	my %pids;
	@running = ();
	foreach my $sort (sort keys %sorts)
	{
		# the device is held for the last of them only
		if ($sort eq 'sorts')
		{
			forget_trace($node);
			hold_device($node, 'sort');
		}
		my ($out, $err);
		push @running, in_background($node, \$out, \$err, "SET application_name = '$sort'; $sorts{$sort}");
		my $event = $sort eq 'sorts' ? 'Extension' : 'PgSleep';
		my $state = "FROM pg_stat_activity WHERE application_name = '$sort' AND wait_event = '$event'";
		ok(poll($node, "SELECT count(*) = 1 $state"), "a backend that $sort is running") or return;
		$pids{$sort} = ask($node, "SELECT pid $state");
	}
	ok(poll_trace($node, 'sort \d+'), 'a sort is on the device');
	cmp_ok(ask($node, $files), '>', 0, 'there are temporary files');
	end_session($node);
	($pids{service}) = service_pids($node);
	return %pids;
}

foreach my $preload ('', 'gpusort')
{
	$node->append_conf('postgresql.conf', "shared_preload_libraries = '$preload'\n");
	restart_with($node);
	foreach my $victim ('service', 'gathers', 'sorts', 'merges')
	{
		my $name = ($preload ? 'preloaded, ' : '') . ($victim eq 'service' ? 'the service is killed' : "the backend that $victim is killed");
		my %pids = run_sorts();
		my $log = -s $node->logfile;
		kill 'KILL', $pids{$victim};
		ok(is_back($node, $log), "$name: the server comes back while the device is held");
		release_device($node);
		$_->finish foreach @running;
		is(join(' ', running(values %pids)), '', "$name: the processes are gone");
		is($node->safe_psql('postgres', $files), '0', "$name: the temporary files are gone");
		ok(poll_services($node, 1), "$name: the service is back") if $preload;
		sorts_on($name);
	}
}

#
# After a preloaded service was terminated, the next sort starts another one
#
{
	my ($pid) = service_pids($node);
	kill 'TERM', $pid;
	ok(poll_services($node, 0), 'a preloaded service is terminated');
	sorts_on('a preloaded service was terminated');
	is(scalar(service_pids($node)), 1, 'a preloaded service was terminated: another one runs');
}

#
# After the postmaster is killed, all other processes end by themselves
#
foreach my $preload ('gpusort', '')
{
	my $name = ($preload ? 'preloaded, ' : '') . 'the postmaster is killed';
	$node->append_conf('postgresql.conf', "shared_preload_libraries = '$preload'\n");
	restart_with($node);
	my %pids = run_sorts();
	my $postmaster = $node->{_pid};
	$node->kill9;
	release_device($node);
	$_->finish foreach @running;
	ok(poll_until(sub { return !running($postmaster, values %pids); }), "$name: the other processes end");
	# the next start takes a zombie for a running postmaster
	unlink $node->data_dir . '/postmaster.pid', $node->host . '/.s.PGSQL.' . $node->port . '.lock' if kill 0, $postmaster;
	restart_with($node);
	is($node->safe_psql('postgres', $files), '0', "$name: the next start removes the temporary files");
	sorts_on($name);
}

#
# A server that is stopped while it sorts
#
foreach my $mode ('fast', 'immediate')
{
	my %pids = run_sorts();
	my $log = -s $node->logfile;
	# at a fast stop, backends end at once, and the service after the device's current call
	release_device($node) if $mode eq 'fast';
	$node->stop($mode);
	$_->finish foreach @running;
	is(join(' ', running(values %pids)), '', "stopped, $mode: the processes are gone");
	unlike(slurp_file($node->logfile, $log), qr/PANIC|TRAP|terminated by signal|leak/, "stopped, $mode: the log shows no crash and no leak") if $mode eq 'fast';
	restart_with($node);
	is($node->safe_psql('postgres', $files), '0', "stopped, $mode: no temporary file is left");
	sorts_on("stopped, $mode");
}

#
# A parallel plan whose workers are on the device; one worker may have all rows
#
like($node->safe_psql('postgres', "$parallel; EXPLAIN (COSTS OFF) SELECT k, word FROM t ORDER BY k, word LIMIT 1000000"),
	qr/Gather Merge.*Workers Planned: 2.*GpuSort/s, 'the plan has workers that sort');
foreach my $how ('killed', 'terminated', 'cancelled')
{
	my $name = "parallel workers, $how";
	my $workers = "FROM pg_stat_activity WHERE backend_type = 'parallel worker' AND wait_event = 'Extension'";
	my ($out, $err);
	hold_device($node, 'sort');
	my $psql = in_background($node, \$out, \$err, "$parallel; SELECT count(*) FROM (SELECT k, word FROM t ORDER BY k, word LIMIT 1000000) AS s", $files);
	ok(poll($node, "SELECT count(*) > 0 $workers"), "$name: workers wait for the device");
	my $pid = ask($node, "SELECT min(pid) $workers");
	my $log = -s $node->logfile;
	if ($how eq 'killed')
	{
		end_session($node);
		kill 'KILL', $pid;
		ok(is_back($node, $log), "$name: the server comes back");
	}
	ask($node, "SELECT pg_terminate_backend($pid)") if $how eq 'terminated';
	ask($node, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'background' AND backend_type = 'client backend'")
	  if $how eq 'cancelled';
	if ($how eq 'killed')
	{
		release_device($node);
		$psql->finish;
		like($err, qr/server closed the connection|connection to server was lost/, "$name: the leader's session ends as well");
	}
	else
	{
		ok(poll($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'parallel worker'"),
			"$name: all workers end while the device is held");
		$psql->finish;
		like($err, $how eq 'terminated' ? qr/terminating (?:background worker|connection)/ : qr/canceling statement/, "$name: the leader gets the error");
		is($out, "0\n", "$name: the leader's session goes on without temporary files");
		release_device($node);
		nothing_is_held($node, $name);
	}
	sorts_on($name);
}
is($node->safe_psql('postgres', "$parallel; " . in_order('SELECT k, word FROM t ORDER BY k, word')),
	'30000|t', 'parallel workers can sort after all this');

$node->stop;
done_testing();
