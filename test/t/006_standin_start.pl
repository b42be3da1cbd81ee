# Servers start, stop and start again, with gpusort in shared_preload_libraries, in
# session_preload_libraries or in neither, with a device and without one for
# several reasons.  Sorts work at once, gpusort_last_sort() shows the engine and the
# reason, and a missing device is not looked for at each sort.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('start', settings => "gpusort.force = on\ngpusort.min_rows = 1000\nmax_parallel_workers_per_gather = 0\n");
restart_with($node);
$node->safe_psql('postgres', 'CREATE EXTENSION gpusort');
skip_without_standin($node);
$node->safe_psql('postgres', 'CREATE TABLE t AS SELECT hashint4(i) AS k FROM generate_series(1, 5000) AS i');

my $sort = 'SELECT gpu_sort_agg(k) = array_agg(k ORDER BY k) FROM t; SELECT engine, reason FROM gpusort_last_sort()';
my %device = (
	'' => '',
	'open:no_driver' => 'No NVIDIA driver was found.',
	'open:old_driver' => 'The NVIDIA driver supports CUDA 12.2, but gpusort was built with CUDA 13.0.',
	'open:no_device' => 'The NVIDIA driver finds no usable device: planned by the test.',
	'open:no_memory' => 'CUDA call open failed: planned by the test (error 999).',
	'open:fault' => 'CUDA call open failed: planned by the test (error 999).');

foreach my $preload ('none', 'session', 'shared')
{
	$node->append_conf('postgresql.conf', "session_preload_libraries = '" . ($preload eq 'session' ? 'gpusort' : '') . "'\n"
		  . "shared_preload_libraries = '" . ($preload eq 'shared' ? 'gpusort' : '') . "'\n");
	foreach my $plan (sort keys %device)
	{
		my $reason = $device{$plan};
		my $engine = $reason ? 'cpu' : 'cuda';
		my $name = "preload $preload, " . ($plan || 'a device');
		my $log = -s $node->logfile;
		restart_with($node, plan => $plan);
		if ($preload eq 'shared' && $engine eq 'cuda')
		{
			ok(poll_services($node, 1), "$name: the service starts with the server");
		}
		else
		{
			is(scalar(service_pids($node)), 0, "$name: no service runs before the first sort") if $preload ne 'shared';
		}

		# a plan comes first, because it must work from a session's first statement on
		like($node->safe_psql('postgres', 'EXPLAIN (COSTS OFF) SELECT k FROM t ORDER BY k'),
			$preload eq 'none' ? qr/^Sort\n/ : qr/^Custom Scan \(GpuSort\)\n/, "$name: ORDER BY has the expected node");
		foreach my $session (1, 2)
		{
			my ($rc, $stdout, $stderr) = $node->psql('postgres', $sort);
			is("$rc $stdout", "0 t\n$engine|$reason", "$name: session $session sorts");
			like($stderr, $reason && $session == 1 ? qr/^[^\n]*WARNING:.*DETAIL:  \Q$reason\E/s : qr/^$/, "$name: session $session is warned if it is the first one and there is no device");
		}
		is($node->safe_psql('postgres', q(SELECT * FROM gpusort_stat_reasons WHERE kind = 'function')), $reason ? "function|cpu|$reason|2" : '', "$name: the reason is counted");
		is($node->safe_psql('postgres', "SELECT available, detail, service_pid IS NULL FROM gpusort_status() WHERE engine = 'cuda'"),
			$reason ? "f|$reason|t" : 't|GPU service ready|f', "$name: gpusort_status() shows the state of the device");
		my ($rc, $stdout, $stderr) = $node->psql('postgres', "SET gpusort.engine = 'cuda'; $sort");
		is($rc, $reason ? 3 : 0, "$name: gpusort.engine = cuda fails only without a device");
		like($stderr, qr/ERROR:.*DETAIL:  \Q$reason\E/s, "$name: the error has the reason") if $reason;
		is($node->safe_psql('postgres', "SET gpusort.engine = 'cpu'; $sort"), "t\ncpu|", "$name: gpusort.engine = cpu works");
		is(scalar(grep { /^open/ } traced($node)), 1, "$name: the device was looked for once");
		is(scalar(service_pids($node)), $reason ? 0 : 1, "$name: " . ($reason ? 'no service runs' : 'one service runs'));

		# an orderly stop; restart_with() tests the immediate stop
		end_session($node);
		$node->stop($plan eq '' ? 'smart' : 'fast');
		unlike(slurp_file($node->logfile, $log), qr/PANIC|TRAP|terminated by signal|leak|exited with exit code [^01]/, "$name: the log shows no crash");
	}
}
restart_with($node, settings => "session_preload_libraries = 'gpusort'\nshared_preload_libraries = ''");
is($node->safe_psql('postgres', $sort), "t\ncuda|", 'after these starts a device is found again');

#
# gpusort.device is CUDA_VISIBLE_DEVICES of the next service
#
sub set_device
{
	my ($value) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET gpusort.device = '$value'");
	$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
	return;
}

my $status = "SELECT available, detail, device, device_memory >> 30 FROM gpusort_status() WHERE engine = 'cuda'";
my $missing = 'The NVIDIA driver finds no usable device with gpusort.device = 1: no CUDA-capable device is detected.';
# it ends for no other reason
$node->append_conf('postgresql.conf', "gpusort.service_idle_timeout = 0\n");
$node->reload;
is($node->safe_psql('postgres', $sort), "t\ncuda|", 'a service runs');
my ($pid) = service_pids($node);
$node->reload;
is($node->safe_psql('postgres', $sort), "t\ncuda|", 'a reload without a change');
is(join(' ', service_pids($node)), $pid, 'a reload without a change: the service goes on');
set_device(1);
ok(poll_services($node, 0), 'another device is chosen: the service ends');
is($node->safe_psql('postgres', "SET client_min_messages = error; $sort"), "t\ncpu|$missing", 'the next service does not find the device, and the CPU sorts');
is($node->safe_psql('postgres', $status), "f|$missing||", 'gpusort_status() gives the reason');
set_device(0);
restart_with($node);
is($node->safe_psql('postgres', $sort), "t\ncuda|", 'the device that is there sorts');
is($node->safe_psql('postgres', $status), 't|GPU service ready|stand-in device|8', 'gpusort_status() shows the device');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET gpusort.device');

#
# After a failure of the device a later service uses it again, and gpusort_status() shows the failure
#
restart_with($node, plan => 'sort:fault');
my $fault = 'CUDA call sort failed: planned by the test (error 999).';
is($node->safe_psql('postgres', "SET client_min_messages = error; $sort"), "t\ncpu|$fault", 'the device fails: the CPU sorts');
ok(poll($node, "SELECT available FROM gpusort_status() WHERE engine = 'cuda'"), 'a second later a service has the device again');
like($node->safe_psql('postgres', $status), qr/^t\|GPU service ready; the last failure was at \d{4}-.*: \Q$fault\E\|stand-in device\|8$/,
	'gpusort_status() shows when and how the device failed');
end_session($node);
$node->stop;

done_testing();
