# The library gpusort_cuda, which only the GPU service loads: it is missing, is of
# another version, or is a file that cannot be loaded.  With gpusort preloaded or not,
# the CPU sorts, gpusort_status() and the log give the reason, and the service is not
# started again and again.  The test suits every build: its servers load gpusort from a
# folder where it puts such files.

use strict;
use warnings;

use File::Copy qw(copy);
use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('library', settings => "gpusort.min_rows = 1000\nmax_parallel_workers_per_gather = 0\n");
my $installed = $node->config_data('--pkglibdir');
my $folder = $node->basedir . '/lib';
my $library = "$folder/gpusort_cuda.so";
mkdir $folder or die "could not make $folder: $!";
symlink("$installed/gpusort.so", "$folder/gpusort.so") or die "could not link gpusort.so: $!";

my $text = $node->basedir . '/text';
append_to_file($text, "This is not a library.\n");

my $sort = 'SELECT gpu_sort_agg(i * 7919 % 10007) = ARRAY(SELECT generate_series(0, 10006)) FROM generate_series(1, 10007) AS i';
my $last = 'SELECT engine, reason FROM gpusort_last_sort()';
my $status = "SELECT available, detail, device, service_pid FROM gpusort_status() WHERE engine = 'cuda'";
my $missing = 'The library gpusort_cuda.so is not installed.';

# Restarts the server, which loads gpusort from the folder at its start or in each
# session, with a file in the place of gpusort_cuda.  Returns where its log begins.
sub start_with
{
	my ($file, $preload) = @_;
	$node->stop if -e $node->data_dir . '/postmaster.pid';
	unlink $library;
	copy($file, $library) or die "could not copy $file: $!" if $file;
	my ($first, $second) = $preload ? ('shared', 'session') : ('session', 'shared');
	$node->append_conf('postgresql.conf',
		"dynamic_library_path = '$folder:\$libdir'\n${first}_preload_libraries = '$folder/gpusort'\n${second}_preload_libraries = ''\n");
	my $log_begin = -s $node->logfile // 0;
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION IF NOT EXISTS gpusort');
	return $log_begin;
}

sub lines_with
{
	my ($pattern, $text) = @_;
	my $lines = () = $text =~ /$pattern/g;
	return $lines;
}

# The CPU sorts, for this reason, in two sessions, and with $warnings warnings in the first one.
sub check_sorts
{
	my ($name, $reason, $warnings, $sqlstate) = @_;
	foreach my $session (1, 2)
	{
		my ($rc, $stdout, $stderr) = $node->psql('postgres', "$sort; $last; $sort; $last");
		is("$rc $stdout", "0 t\ncpu|$reason\nt\ncpu|$reason", "$name: session $session gets the right order and the reason");
		is(warnings_in($stderr), $session == 1 ? $warnings : 0, "$name: session $session has the warnings of a first session, or none");
	}
	is($node->safe_psql('postgres', $status), "f|$reason||", "$name: gpusort_status() gives the reason");
	my ($rc, $stdout, $stderr) = $node->psql('postgres', "\\set VERBOSITY verbose\nSET gpusort.engine = 'cuda'; $sort");
	like($stderr, qr/ERROR:  $sqlstate: .*\nDETAIL:  \Q$reason\E\nHINT:  /, "$name: an error if gpusort.engine is cuda");
	return;
}

start_with('', 0);
my $mismatch = 'The library gpusort_cuda.so has version 0.0.9, but this server runs gpusort '
  . $node->safe_psql('postgres', "SELECT default_version FROM pg_available_extensions WHERE name = 'gpusort'") . '.';

foreach my $preload (0, 1)
{
	my $when = $preload ? ', preloaded' : ', not preloaded';

	# without the library there is no service, and nothing is kept ready for one
	my $log_begin = start_with('', $preload);
	check_sorts("no library$when", $missing, 0, '0A000');
	is($node->safe_psql('postgres', "SELECT count(*) FROM pg_shmem_allocations WHERE name = 'gpusort'"), 0, "no library$when: no shared memory is taken");
	is(scalar(service_pids($node)), 0, "no library$when: no service runs");
	unlike(slurp_file($node->logfile, $log_begin), qr/gpusort service/, "no library$when: no service was started");

	my @unusable = (
		[ 'another version', built_file('other_version.so'), $mismatch ],
		[ 'a text', $text, 'The library gpusort_cuda.so cannot be loaded: file too short.' ],
		[ 'a library of something else', built_file('fakeclock.so'), 'The library gpusort_cuda.so cannot be loaded: undefined symbol: gpusort_cuda_functions.' ]);
	foreach my $case (@unusable)
	{
		my ($name, $file, $reason) = ($case->[0] . $when, $case->[1], $case->[2]);

		$log_begin = start_with($file, $preload);
		check_sorts($name, $reason, 1, '55000');
		$node->stop;
		my $log = slurp_file($node->logfile, $log_begin);
		like($log, qr/LOG:  gpusort service is ending\n.*DETAIL:  \Q$reason\E\n.*HINT:  Install gpusort and gpusort_cuda in the same version, and restart the server\.\n/,
			"$name: the log gives the reason and a hint");
		is(lines_with(qr/gpusort service is ending/, $log), 1, "$name: one service was started");
		unlike($log, qr/"gpusort service" .*exited with exit code|terminated by signal|PANIC/, "$name: no process failed");
	}
}

# a library that is installed later is used at once
start_with('', 0);
my $other = built_file('other_version.so');
is( $node->safe_psql('postgres', "$sort; $last;\n\\! cp '$other' '$library'\n$sort; $last"),
	"t\ncpu|$missing\nt\ncpu|$mismatch",
	'a session notices that the library has been installed');

# where there is a device, only the service has the library in its memory
SKIP:
{
	skip 'gpusort_cuda is not installed', 3 unless -e "$installed/gpusort_cuda.so";
	start_with("$installed/gpusort_cuda.so", 1);
	my ($available, $pid) = split /\|/, $node->safe_psql('postgres', "SELECT available, service_pid FROM gpusort_status() WHERE engine = 'cuda'");
	skip 'there is no device', 3 unless $available eq 't';

	like(slurp_file("/proc/$pid/maps"), qr/\Q$library\E/, 'the service has loaded the library');
	is( $node->safe_psql('postgres', "$sort; SELECT engine FROM gpusort_last_sort(); SELECT pg_read_file('/proc/self/maps') ~ 'gpusort_cuda'"),
		"t\ncuda\nf", 'a session that sorts on the device has not');
	my ($postmaster) = split /\n/, slurp_file($node->data_dir . '/postmaster.pid');
	unlike(slurp_file("/proc/$postmaster/maps"), qr/gpusort_cuda/, 'nor has the postmaster');
}
$node->stop;

done_testing();
