# Several devices on the stand-in (test/standin/device.c): gpusort_device_list() shows
# them; gpusort.device chooses one by its number, its UUID or the beginning of that; and
# if the device in use fails, hangs or disappears, the service comes back on another one.
# The sorts are right all the time.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = ordering_node('devices');
my $sort = 'SELECT gpu_sort_agg(k) = array_agg(k ORDER BY k) FROM t';
my $last = 'SELECT engine, reason FROM gpusort_last_sort()';
my $uuid = 'GPU-a%07x-0000-4000-8000-000000000000';
my $there = '0 (stand-in device, GPU-a0000000), 1 (stand-in device, GPU-a0000001)';

# Restarts the server with devices of these sizes.  gpusort.device is as in %how, or the default.
sub restart
{
	my ($devices, %how) = @_;
	end_session($node);
	$node->stop('immediate') if -e $node->data_dir . '/postmaster.pid';
	unlink $node->data_dir . '/postgresql.auto.conf';
	$node->append_conf('postgresql.auto.conf', '');
	restart_with($node, devices => $devices, %how, settings => "gpusort.service_idle_timeout = 60\n"
		  . "gpusort.device = '" . ($how{device} // 'auto') . "'\n" . ($how{settings} // ''));
	return;
}

# The number of the device in use, or nothing.
sub in_use
{
	return $node->safe_psql('postgres', 'SELECT number FROM gpusort_device_list() WHERE in_use');
}

sub reason_of
{
	my ($number) = @_;
	return $node->safe_psql('postgres', "SELECT reason FROM gpusort_device_list() WHERE number = $number");
}

# Changes the setting as an administrator does.
sub set_device
{
	my ($value) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET gpusort.device = '$value'");
	$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
	return;
}

# Sorts until this device does it.  Returns false if a result is wrong, or if that takes too long.
sub comes_to
{
	my ($number) = @_;
	my $right = 1;
	my $came = poll_until(
		sub {
			my $result = $node->safe_psql('postgres', "SET client_min_messages = error; $sort; $last");
			$right &&= $result =~ /^t\n/;
			return $result eq "t\ncuda|" && in_use() eq $number;
		});
	return $right && $came;
}

#
# The list
#
restart('8,16,24x');
is($node->safe_psql('postgres', 'SELECT count(*) FROM gpusort_device_list()'), 0, 'before a service has run, the list is empty');
is(scalar(service_pids($node)), 0, 'the list starts no service');
is($node->safe_psql('postgres', "$sort; $last"), "t\ncuda|", 'a device sorts');
is( $node->safe_psql('postgres', 'SELECT number, name, uuid, memory >> 30, in_use, reason FROM gpusort_device_list()'),
	join("\n",
		'0|stand-in device|' . sprintf($uuid, 0) . '|8|f|less memory than the one in use',
		'1|stand-in device|' . sprintf($uuid, 1) . '|16|t|',
		'2|stand-in device|' . sprintf($uuid, 2) . '|24|f|compute capability 6.1 is below 7.5'),
	'auto uses the usable device with the most memory, and the list says why the others are not in use');
is($node->safe_psql('postgres', "SELECT device_memory >> 30 FROM gpusort_status() WHERE engine = 'cuda'"), 16, 'gpusort_status() shows the device in use');
is($node->safe_psql('postgres', 'CREATE ROLE alice; SET ROLE alice; SELECT count(*) FROM gpusort_device_list()'), 3, 'every role may see the list');

#
# The choice
#
foreach my $choice ([ '0', 0 ], [ 'GPU-a0000001', 1 ], [ uc(sprintf($uuid, 0)), 0 ], [ '1', 1 ], [ 'gpu-a0000000-', 0 ], [ 'AUTO', 1 ])
{
	my ($value, $number) = @$choice;
	set_device($value);
	ok(comes_to($number), "gpusort.device = $value: device $number sorts");
	my $other = 1 - $number;
	my $reason = $value eq 'AUTO' ? 'less memory than the one in use' : "gpusort.device is \"$value\"";
	is(reason_of($other), $reason, "gpusort.device = $value: the list says why device $other is not in use");
}
unlike(slurp_file($node->logfile), qr/gpusort service is ending/, 'a change of the device is no failure');

#
# Values that are refused
#
my %refused = (
	'7' => "There is no such device. The devices are $there, 2 (stand-in device, GPU-a0000002).",
	'GPU-b' => "There is no such device. The devices are $there, 2 (stand-in device, GPU-a0000002).",
	'MIG-a0000000' => "There is no such device. The devices are $there, 2 (stand-in device, GPU-a0000002).",
	'GPU-a' => "The UUIDs of several devices begin so. The devices are $there, 2 (stand-in device, GPU-a0000002).",
	'2' => "The device cannot be used: compute capability 6.1 is below 7.5. The devices are $there, 2 (stand-in device, GPU-a0000002).",
	map { $_ => 'The value must be "auto", the number of a device, or its UUID or the beginning of it, such as "GPU-8932f937".' }
	  '', 'first', '-1', '0,1', 'GPU-', 'GPU-xyz', 'a0000000', 'MIG-GPU-a0000000/1/0', sprintf($uuid, 0) . '0');
foreach my $value (sort keys %refused)
{
	my ($rc, $stdout, $stderr) = $node->psql('postgres', "ALTER SYSTEM SET gpusort.device = '$value'");
	is($stderr, qq(psql:<stdin>:1: ERROR:  invalid value for parameter "gpusort.device": "$value"\nDETAIL:  $refused{$value}), "'$value' is refused");
}
my ($rc, $stdout, $stderr) = $node->psql('postgres', q(SET gpusort.device = '0'));
like($stderr, qr/ERROR:  parameter "gpusort.device" cannot be changed now/, 'a session cannot choose the device');

#
# A device that is not there
#
$node->safe_psql('postgres', 'ALTER SYSTEM RESET gpusort.device');
$node->append_conf('postgresql.conf', "gpusort.device = '7'");
is( $node->safe_psql('postgres', q(SELECT setting, applied, error FROM pg_file_settings WHERE name = 'gpusort.device' ORDER BY seqno DESC LIMIT 1)),
	'7|f|setting could not be applied', 'pg_file_settings shows that the device in the file is not there');
$node->reload;
my $missing = "The device 7 (gpusort.device) was not found. The devices are $there, and 1 more.";
ok(poll_until(sub { $node->safe_psql('postgres', "SET client_min_messages = error; $sort; $last") eq "t\ncpu|$missing" }),
	'a file that names no device is read, and the CPU sorts');
is($node->safe_psql('postgres', 'SHOW gpusort.device'), 7, 'a session has the value of the file');
set_device('1');
ok(comes_to(1), 'when the setting is changed, the device sorts again');

restart('8,16', settings => "log_min_messages = log\n");
$node->safe_psql('postgres', q(ALTER SYSTEM SET gpusort.device = 'GPU-b'));
$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
foreach my $preload ('', 'gpusort')
{
	$missing = "The device GPU-b (gpusort.device) was not found. The devices are $there.";
	my $when = $preload ? 'preloaded' : 'not preloaded';
	my $log = -s $node->logfile;
	restart_with($node, devices => '8,16', settings => "shared_preload_libraries = '$preload'");
	is($node->safe_psql('postgres', "SET client_min_messages = error; $sort; $last"), "t\ncpu|$missing", "missing at the start, $when: the CPU sorts");
	is($node->safe_psql('postgres', "SELECT available, detail FROM gpusort_status() WHERE engine = 'cuda'"), "f|$missing", "missing at the start, $when: gpusort_status() gives the reason");
	is(in_use(), '', "missing at the start, $when: no device is in use");
	is(reason_of(0), 'gpusort.device is "GPU-b"', "missing at the start, $when: the list gives the reason");
	($rc, $stdout, $stderr) = $node->psql('postgres', "SET gpusort.engine = 'cuda'; $sort");
	like($stderr, qr/ERROR:  gpusort engine "cuda" could not sort\nDETAIL:  \Q$missing\E/, "missing at the start, $when: an error if gpusort.engine is cuda");
	like(slurp_file($node->logfile, $log), qr/gpusort service is ending\n.*DETAIL:  \Q$missing\E\n.*HINT:  Set gpusort.device to a device of gpusort_device_list\(\)/,
		"missing at the start, $when: the log gives the reason and a hint");
	set_device('auto');
	ok(comes_to(1), "missing at the start, $when: with auto, the device sorts");
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET gpusort.device') if $preload;
	$node->append_conf('postgresql.auto.conf', "gpusort.device = 'GPU-b'") if !$preload;
}

#
# Sorts that run while the setting changes
#
restart('8,16', settings => "shared_preload_libraries = ''\n");
ok(comes_to(1), 'device 1 sorts');
{
	my ($out, $err);
	forget_trace($node);
	hold_device($node, 'sort');
	my $psql = in_background($node, \$out, \$err, $sort, $last);
	ok(poll_trace($node, 'sort \d+'), 'a sort runs');
	my @service = service_pids($node);
	set_device('0');
	ok(poll($node, q(SELECT current_setting('gpusort.device') = '0')), 'the setting is changed');
	is_deeply([ service_pids($node) ], \@service, 'the service goes on');
	release_device($node);
	$psql->finish;
	is($out . $err, "t\ncuda|\n", 'the device that has begun the sort ends it');
	ok(poll_services($node, 0), 'then the service ends');
	ok(comes_to(0), 'the other device does the next sort');
}
foreach my $case ([ 'is parked', 1, undef, 'cuda|' ], [ 'has not ended in time', 60, 1000, 'cpu|The GPU service changes to another device (gpusort.device).' ])
{
	my ($name, $idle, $patience, $engine) = @$case;
	my ($out, $err);
	restart('8,16', device => '1', patience => $patience);
	$node->append_conf('postgresql.conf', "gpusort.service_idle_timeout = $idle");
	$node->reload;
	ok(comes_to(1), "$name: device 1 sorts");
	hold($node, 1);
	my $psql = in_background($node, \$out, \$err, 'SET client_min_messages = error',
		'SELECT gpu_sort_agg(k) = (SELECT array_agg(i) FROM generate_series(-1, 2999999::bigint) AS i) FROM (SELECT i * 7919::bigint % 3000000 AS k FROM generate_series(1, 3000000) AS i UNION ALL '
		  . late_row(1) . ') AS u', $last);
	ok(poll($node, waits_for(1)), "$name: a sort waits for its last row");
	set_device('0');
	ok(poll_services($node, 0), "$name: the service ends");
	let_go($node, 1);
	$psql->finish;
	is($out . $err, "t\n$engine\n", "$name: the sort is right, by the expected engine");
	ok(comes_to(0), "$name: the other device does the next sort");
	pool_is_free($node, $name);
}

#
# The device in use fails, hangs or disappears
#
my %failures = (
	'sort@1:fault' => qr/CUDA call sort failed: planned by the test \(error 999\)\./,
	'upload@1:fault' => qr/CUDA call upload failed: planned by the test \(error 999\)\./,
	'download@1:fault' => qr/CUDA call download failed: planned by the test \(error 999\)\./,
	'open@1:fault' => qr/CUDA call open failed: planned by the test \(error 999\)\./,
	'open@1:no_memory' => qr/CUDA call open failed: planned by the test \(error 999\)\./,
	'sort@1:hang' => qr/The device did not finish its work within 1 seconds\./,
	'open@1:lost' => qr/CUDA call \w+ failed: planned by the test \(error 999\)\./);
foreach my $plan (sort keys %failures)
{
	my $lost = $plan =~ /lost/;
	restart('8,16', plan => $lost ? undef : $plan, patience => $plan =~ /hang/ ? 1000 : undef);
	if ($lost)
	{
		ok(comes_to(1), "$plan: device 1 sorts");
		hold_device($node, 'lost1');
	}
	my $result = $node->safe_psql('postgres', "SET client_min_messages = error; $sort; $last");
	like($result, qr/^t\ncpu\|$failures{$plan}$/, "$plan: the CPU sorts, and the reason is right");
	ok(comes_to(0), "$plan: the service comes back on the other device");
	is($node->safe_psql('postgres', "$sort; $last"), "t\ncuda|", "$plan: that device sorts");
	if ($lost)
	{
		is($node->safe_psql('postgres', 'SELECT count(*) FROM gpusort_device_list()'), 1, "$plan: the list has one device");
		next;
	}
	like(reason_of(1), qr/^failed \d+ s ago: $failures{$plan}$/, "$plan: the list says what happened");
	like($node->safe_psql('postgres', 'SELECT last_fault FROM gpusort_device_list() WHERE number = 1 AND last_fault_at BETWEEN pg_postmaster_start_time() AND now()'),
		qr/^$failures{$plan}$/, "$plan: the list has the fault and its time");
	is($node->safe_psql('postgres', 'SELECT last_fault, last_fault_at FROM gpusort_device_list() WHERE number = 0'), '|', "$plan: the other device has had no fault");
}

# a device that the administrator has chosen is not replaced
restart('8,16', device => '1', plan => 'sort@1:fault');
foreach my $service (1, 2)
{
	ok( poll_until(
			sub {
				$node->safe_psql('postgres', "SET client_min_messages = error; $sort") eq 't' or die 'the order is wrong';
				return times_traced($node, 'sort \d+') >= $service;
			}), "gpusort.device = 1: device 1 fails in service $service");
	is($node->safe_psql('postgres', $last), '|', 'a new session has not sorted');
}
is(reason_of(0), 'gpusort.device is "1"', 'gpusort.device = 1: the other device is not used');

#
# The counters of the device
#
restart('8,16', slow => 300);
$node->safe_psql('postgres', $sort) foreach 1 .. 3;
is($node->safe_psql('postgres', 'SELECT sorts, bytes, busy > 0 AND busy <= 1, last_fault IS NULL FROM gpusort_device_list() WHERE in_use'),
	'3|' . 3 * 4 * 30000 . '|t|t', 'the list counts sorts and bytes, and shows that the device was busy');
is($node->safe_psql('postgres', 'SELECT count(sorts) + count(bytes) + count(busy) FROM gpusort_device_list() WHERE NOT in_use'), 0, 'a device that is not in use has no such numbers');
my ($service) = service_pids($node);
kill 'TERM', $service;
ok(poll_services($node, 0), 'the service is terminated');
is($node->safe_psql('postgres', 'SELECT number, in_use, reason FROM gpusort_device_list()'), "0|f|the GPU service does not run\n1|f|the GPU service does not run", 'without a service, the last list is shown');
is($node->safe_psql('postgres', "$sort; SELECT sorts FROM gpusort_device_list() WHERE in_use"), "t\n1", 'the next service counts from the beginning');

end_session($node);
$node->stop;
done_testing();
