# A build with CUDA and drivers that provide no device (test/fakedriver/libcuda.c).
# With each of the driver's answers the server starts, preloaded or not; the CPU
# sorts; one warning and gpusort_status() give the reason; only the
# service calls the driver; and the server stops normally.

use strict;
use warnings;

use File::Basename qw(dirname);
use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $driver = dirname(built_file('fakedriver/libcuda.so.1'));
my $node = new_node('fakedriver', settings => "gpusort.min_rows = 1000\nlog_line_prefix = '%p %b '\n");
my $library = $node->config_data('--pkglibdir') . '/gpusort_cuda.so';

plan skip_all => "$library is missing or has no CUDA" unless -e $library && slurp_file($library) =~ /libcuda\.so\.1/;

my $calls = $node->basedir . '/calls';
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION gpusort');
$node->stop;

# The lines of a file, or none if there is no file.
sub lines_of
{
	my ($file) = @_;
	return -e $file ? split(/\n/, slurp_file($file)) : ();
}

sub numbers
{
	my %seen = map { $_ => 1 } @_;
	return join(' ', sort { $a <=> $b } keys %seen);
}

# $is{node} tells whether the driver's device node seems to exist; in a container it
# may not.
sub check_driver
{
	my ($name, $reason, $preload, %is) = @_;
	my $log_begin = -s $node->logfile;
	my $folder = $is{empty} ? "$driver/empty" : $driver;

	unlink $calls;
	$node->append_conf('postgresql.conf', "shared_preload_libraries = '" . ($preload ? 'gpusort' : '') . "'\n");
	$name .= $preload ? ', preloaded' : ', not preloaded';
	{
		local $ENV{LD_LIBRARY_PATH} = join(':', $folder, grep { $_ } $ENV{LD_LIBRARY_PATH});
		local $ENV{LD_PRELOAD} = $is{node} ? "$driver/libcuda.so.1" : '';
		local $ENV{FAKE_DRIVER_STATUS} = $is{status} // 100;
		local $ENV{FAKE_DRIVER_VERSION} = $is{version} // 99990;
		local $ENV{FAKE_DRIVER_LOG} = $calls;
		$node->start;
	}
	my ($postmaster) = lines_of($node->data_dir . '/postmaster.pid');

	my $sort = 'SELECT gpu_sort_agg(i * 7919 % 10007) = ARRAY(SELECT generate_series(0, 10006)) FROM generate_series(1, 10007) AS i';
	my $last = 'SELECT engine, reason FROM gpusort_last_sort()';
	foreach my $session (1, 2)
	{
		my ($rc, $stdout, $stderr) = $node->psql('postgres', "$sort; $last; $sort; $last");
		my @lines = split /\n/, $stdout;

		is("$rc $lines[0] $lines[2]", '0 t t', "$name: session $session gets the right order");
		like($lines[1], qr/^cpu\|$reason$/, "$name: gpusort_last_sort() shows the CPU and the reason");
		is($lines[3], $lines[1], "$name: the next sort has the same reason");
		is(warnings_in($stderr), 2 - $session, "$name: session $session has a warning if it is the first one");
		like($stderr, qr/WARNING:  gpusort sorts on the CPU.*\nDETAIL:  $reason\n/, "$name: the warning gives the reason") if $session == 1;
	}
	like($node->safe_psql('postgres', "SELECT available, detail, device, service_pid FROM gpusort_status() WHERE engine = 'cuda'"),
		qr/^f\|$reason\|\|$/, "$name: gpusort_status() gives the reason");
	my ($rc, $stdout, $stderr) = $node->psql('postgres', "\\set VERBOSITY verbose\nSET gpusort.engine = 'cuda'; $sort");
	like($stderr, qr/ERROR:  55000: gpusort engine "cuda" could not sort\nDETAIL:  $reason\n/, "$name: an error if gpusort.engine is cuda");

	$node->stop('fast');
	# the session of a psql that has ended may still be there
	my @log = grep { !/ FATAL:  terminating connection due to administrator command$/ } split /\n/, slurp_file($node->logfile, $log_begin);
	my @services = map { /^(\d+) gpusort service LOG:  gpusort service is ending$/ ? $1 : () } @log;
	my @callers = map { /^(\d+) / } lines_of($calls);

	is(scalar(@services), 1, "$name: one service was started");
	is(numbers(@callers), $is{empty} ? '' : numbers(@services), "$name: only the service called the driver");
	ok(!(grep { $_ == $postmaster } @callers), "$name: the postmaster did not call the driver");
	is(join("\n", grep { /terminated by signal|exited with exit code [2-9]|PANIC|FATAL/ } @log), '', "$name: no process crashed");
	like($log[-1], qr/database system is shut down/, "$name: the server stops");
}

my $no_driver = qr/No NVIDIA driver was found\./;
my $real_node = -e '/dev/nvidiactl' || -e '/dev/dxg';
foreach my $preload (0, 1)
{
	check_driver('no entry point', $no_driver, $preload, empty => 1);
	check_driver('too old a driver', qr/The NVIDIA driver supports CUDA 11\.4, but gpusort was built with CUDA \d+\.\d+\./, $preload, version => 11040);
	check_driver('no device', qr/The NVIDIA driver finds no usable device: no CUDA-capable device is detected\./, $preload, status => 100, node => 1);
	check_driver('device unavailable', qr/The NVIDIA driver finds no usable device: .* busy or unavailable\./, $preload, status => 46, node => 1);
	check_driver('out of memory', qr/CUDA call cudaGetDeviceCount failed: out of memory \(error 2\)\./, $preload, status => 2, node => 1);
	check_driver('not ready', qr/CUDA call cudaGetDeviceCount failed: system not yet initialized \(error 802\)\./, $preload, status => 802, node => 1);
	check_driver('unknown error', qr/CUDA call cudaGetDeviceCount failed: unknown error \(error 999\)\./, $preload, status => 999, node => 1);

	# without a device node each answer of the driver means that there is no driver
	next if $real_node;
	check_driver('no device node', $no_driver, $preload, status => 100);
	check_driver('no device node, unknown error', $no_driver, $preload, status => 999);
}

done_testing();
