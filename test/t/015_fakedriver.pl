# A build with CUDA, and drivers that provide no device: test/fakedriver/, built
# into the folder that GPUSORT_FAKE_DRIVER names.  Whatever the driver says, the
# server starts, with and without preload; sorts are the CPU's, and right; one
# warning a session and gpusort_status() tell the true reason; only the service
# ever calls the driver; and the server stops as it should.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $driver = $ENV{GPUSORT_FAKE_DRIVER};
my $node = PostgreSQL::Test::Cluster->new('fakedriver');
my $library = $node->config_data('--pkglibdir') . '/gpusort.so';

plan skip_all => 'GPUSORT_FAKE_DRIVER does not name a folder with a driver' unless $driver;
plan skip_all => "$library was built without CUDA" unless slurp_file($library) =~ /libcuda\.so\.1/;

my $calls = $node->basedir . '/calls';
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
gpusort.min_rows = 1000
log_line_prefix = '%p %b '
fsync = off
CONF
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION gpusort');
$node->stop;

# Lines of the file, without their ends.
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

# node: as if the driver's kernel module were loaded, or as in a container.
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

		is("$rc $lines[0] $lines[2]", '0 t t', "$name: session $session has its order");
		like($lines[1], qr/^cpu\|$reason$/, "$name: of the CPU, with the reason");
		is($lines[3], $lines[1], "$name: and so has the next sort");
		my $warnings = () = $stderr =~ /WARNING:/g;
		is($warnings, 1, "$name: one warning");
		like($stderr, qr/WARNING:  gpusort sorts on the CPU.*\nDETAIL:  $reason\n/, "$name: with the reason");
	}
	like($node->safe_psql('postgres', "SELECT available, detail, device, service_pid FROM gpusort_status() WHERE engine = 'cuda'"),
		qr/^f\|$reason\|\|$/, "$name: gpusort_status()");
	my ($rc, $stdout, $stderr) = $node->psql('postgres', "\\set VERBOSITY verbose\nSET gpusort.engine = 'cuda'; $sort");
	like($stderr, qr/ERROR:  55000: gpusort engine "cuda" could not sort\nDETAIL:  $reason\n/, "$name: an error if the device is demanded");

	$node->stop('fast');
	my @log = split /\n/, slurp_file($node->logfile, $log_begin);
	my @services = map { /^(\d+) gpusort service LOG:  gpusort service is ending$/ ? $1 : () } @log;
	my @callers = map { /^(\d+) / } lines_of($calls);

	is(scalar(@services), 1, "$name: one service tried");
	is(numbers(@callers), $is{empty} ? '' : numbers(@services), "$name: and nobody else called the driver");
	ok(!(grep { $_ == $postmaster } @callers), "$name: the postmaster least of all");
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

	# without a device node, all that says is that there is no driver
	next if $real_node;
	check_driver('no device node', $no_driver, $preload, status => 100);
	check_driver('no device node, unknown error', $no_driver, $preload, status => 999);
}

done_testing();
