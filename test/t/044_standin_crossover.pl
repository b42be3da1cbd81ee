# With gpusort.min_rows = -1, the GPU service measures from how many rows on the device
# is faster.  It keeps the result in a file and reads it when it starts again; any other
# file is replaced.  A place that cannot be read or written, and a device that fails,
# do not disturb the sorts.  Sorts go by the numbers, which differ for keys and
# positions, and by the setting if that is a number.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('crossover', settings => "gpusort.min_rows = -1\nlog_min_messages = debug1\nmax_parallel_workers_per_gather = 0\n");
restart_with($node);
my $file = $node->data_dir . '/gpusort.crossover';
$node->safe_psql('postgres', 'CREATE EXTENSION gpusort');
skip_without_standin($node);

# The two numbers; asking for them starts the service.
sub numbers
{
	return $node->safe_psql('postgres', "SELECT crossover_values, crossover_rows FROM gpusort_status() WHERE engine = 'cuda'");
}

# Starts the server and a service, and returns the part of the log that is about it.
sub log_of_start
{
	my (%how) = @_;
	my $log = -s $node->logfile;
	restart_with($node, %how);
	numbers();
	return slurp_file($node->logfile, $log);
}

my $measured = qr/LOG:  gpusort service has measured from how many rows on the GPU is faster than the CPU: values (\d+|never), rows (\d+|never)\n/;
my $read = qr/gpusort service has read the crossovers/;
my $not_measured = qr/LOG:  gpusort service could not measure/;

#
# Measured once
#
my $log = slurp_file($node->logfile);
like($log, $measured, 'the first service measures');
like($log, qr/gpusort service: 4096 $_ take \d+ us on the device, \d+ us on the CPU/, "it sorts $_") foreach 'values', 'rows';
$log =~ $measured;
my $expected = join('|', map { $_ eq 'never' ? 2147483647 : $_ } $1, $2);
is(numbers(), $expected, 'gpusort_status() shows what the log says');
is($node->safe_psql('postgres', "SELECT crossover_values IS NULL AND crossover_rows IS NULL FROM gpusort_status() WHERE engine = 'cpu'"),
	't', 'the CPU engine has no such numbers');
my $kept = slurp_file($file);
like($kept, qr/\A# .*\ngpusort \d\S+\ndevice stand-in device.*, GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\nCUDA 13000, driver 12020\nCPU .*, \d+ processors, 1 threads for a sort\nvalues \d+\nrows \d+\n\z/,
	'the file says to what its numbers belong');
ok(!-e "$file.tmp", 'no other file is left');

$log = log_of_start();
like($log, $read, 'the next service reads the file');
unlike($log, $measured, 'it does not measure');
is(numbers(), $expected, 'the numbers are the same');
is(slurp_file($file), $kept, 'the file is the same');

#
# Sorts go by the numbers
#
sub write_file
{
	my ($text) = @_;
	unlink $file;
	append_to_file($file, $text);
	return;
}

my $numbers = $kept =~ s/^values \d+\nrows \d+$/values 6000\nrows 8000/mr;
write_file($numbers);
log_of_start();
is(numbers(), '6000|8000', 'the numbers are those of the file');

# The engine that sorts this many values, or positions, as the first sort of a session
sub engine_of
{
	my ($function, $rows, $settings) = @_;
	return $node->safe_psql('postgres', ($settings // '')
		  . "DO \$\$ BEGIN PERFORM $function((SELECT array_agg(hashint4(i)) FROM generate_series(1, $rows) AS i)); END \$\$;"
		  . 'SELECT engine FROM gpusort_last_sort()');
}

is(engine_of('gpu_sort', 5999), 'cpu', 'fewer values are sorted on the CPU');
is(engine_of('gpu_sort', 6000), 'cuda', 'as many values are sorted on the device');
is(engine_of('gpu_argsort', 7999), 'cpu', 'fewer rows are sorted on the CPU');
is(engine_of('gpu_argsort', 8000), 'cuda', 'as many rows are sorted on the device');
is(engine_of('gpu_sort', 5999, 'SET gpusort.min_rows = 5999;'), 'cuda', 'a number overrides what was measured');
is(engine_of('gpu_sort', 6000, 'SET gpusort.min_rows = 6001;'), 'cpu', 'also a larger one');
is(engine_of('gpu_sort', 0, 'SET gpusort.min_rows = 0;'), '', 'no value needs no sort');

write_file($kept =~ s/^values \d+\nrows \d+$/values 2147483647\nrows 4096/mr);
log_of_start();
is(engine_of('gpu_sort', 300000), 'cpu', 'a device that is never faster sorts no values');
is(engine_of('gpu_sort', 300000, "SET gpusort.engine = 'cuda';"), 'cpu', 'also not if it must be used where it can');
is(engine_of('gpu_argsort', 4095), 'cpu', 'the CPU sorts fewer rows than are ever measured');
is(engine_of('gpu_argsort', 4096), 'cuda', 'the device sorts the fewest that are');

# a number in the configuration file
write_file($numbers);
$log = log_of_start(settings => 'gpusort.min_rows = 1000');
like($log, $read, 'with a number in the configuration, the service reads the file');
is(numbers(), '6000|8000', 'the numbers are shown');
is(engine_of('gpu_sort', 1000), 'cuda', 'the number in the configuration is used');
unlink $file;
$log = log_of_start();
unlike($log, $measured, 'with a number in the configuration, the service does not measure');
is(numbers(), '|', 'nothing is shown');
ok(!-e $file, 'there is no file');
is(engine_of('gpu_sort', 199999, 'SET gpusort.min_rows = -1;'), 'cpu', 'where nothing was measured, fewer rows than the default are sorted on the CPU');
is(engine_of('gpu_sort', 200000, 'SET gpusort.min_rows = -1;'), 'cuda', 'where nothing was measured, as many rows as the default are sorted on the device');
$node->append_conf('postgresql.conf', 'gpusort.min_rows = -1');

#
# Files that are not taken
#
my %files = (
	'of another version' => $numbers =~ s/^gpusort \K\S+/9.9.9/mr,
	'of another device of the same kind' => $numbers =~ s/GPU-\K.*/ffffffff-ffff-ffff-ffff-ffffffffffff/r,
	'of a device of another name' => $numbers =~ s/^device \Kstand-in/other/mr,
	'of another driver' => $numbers =~ s/driver 12020/driver 12030/r,
	'of another processor' => $numbers =~ s/^CPU \K/other /mr,
	'of other settings' => $numbers =~ s/1 threads/2 threads/r,
	'that is empty' => '',
	'that ends early' => substr($numbers, 0, -2),
	'that ends before its numbers' => $numbers =~ s/^values.*//msr,
	'without a last newline' => substr($numbers, 0, -1),
	'with more behind' => "$numbers\n",
	'with a 0 byte' => $numbers =~ s/6000/6000\0/r,
	'with leading zeros' => $numbers =~ s/6000/06000/r,
	'with a number that is too small' => $numbers =~ s/6000/4095/r,
	'with a number that is too large' => $numbers =~ s/6000/2147483648/r,
	'with a negative number' => $numbers =~ s/6000/-6000/r,
	'with a number that wraps around' => $numbers =~ s/6000/4294973296/r,
	'that is long' => $numbers . 'x' x 1_000_000);
foreach my $name (sort keys %files)
{
	write_file($files{$name});
	$log = log_of_start();
	like($log, $measured, "a file $name: the service measures");
	like(slurp_file($file), qr/\A\Q@{[ $kept =~ s{^values.*}{}msr ]}\Evalues \d+\nrows \d+\n\z/, "a file $name is replaced");
}

#
# Places that cannot be read or written
#
sub is_undisturbed
{
	my ($name, $message) = @_;
	foreach my $start ('first', 'second')
	{
		$log = log_of_start();
		like($log, qr/LOG:  $message/, "$name, $start start: the log says it");
		like($log, $measured, "$name, $start start: the service measures");
		like(numbers(), qr/^\d+\|\d+$/, "$name, $start start: the numbers are shown");
		is(engine_of('gpu_sort', 5000, 'SET gpusort.min_rows = 1000;'), 'cuda', "$name, $start start: the device sorts");
	}
	return;
}

unlink $file;
mkdir "$file.tmp" or die "could not make $file.tmp: $!";
is_undisturbed('no file can be made', qr/gpusort service could not create file "gpusort\.crossover\.tmp": Is a directory/);
ok(!-e $file, 'no file was made');
rmdir "$file.tmp";

mkdir $file or die "could not make $file: $!";
is_undisturbed('a folder has the name', qr/gpusort service could not read file "gpusort\.crossover": Is a directory/);
ok(!-e "$file.tmp", 'a folder has the name: no other file is left');
rmdir $file;

SKIP:
{
	skip 'there is no /dev/full', 2 if !-c '/dev/full';
	symlink('/dev/full', "$file.tmp") or die "could not make $file.tmp: $!";
	$log = log_of_start();
	like($log, qr/LOG:  gpusort service could not write file "gpusort\.crossover\.tmp": No space left on device\n.*$measured/s, 'a full disk: the log says it, and the service measures');
	ok(!-l "$file.tmp", 'a full disk: the new file is removed');
}

SKIP:
{
	skip 'root may read every file', 8 if $> == 0;
	write_file($numbers);
	chmod(0, $file);
	is_undisturbed('a file may not be read', qr/gpusort service could not open file "gpusort\.crossover": Permission denied/);
}

#
# The device fails while it is measured
#
unlink $file;
$log = log_of_start(plan => 'allocate:no_memory:3');
like($log, $not_measured, 'no device memory: nothing is measured');
is(numbers(), '|', 'no device memory: nothing is shown');
ok(!-e $file, 'no device memory: no file was made');

foreach my $plan ('lane:no_memory:1-1', 'register:no_memory:1-1', 'sort:unsorted:2-2')
{
	$log = log_of_start(plan => $plan);
	like($log, $plan =~ /register/ ? $measured : $not_measured, "$plan: " . ($plan =~ /register/ ? 'it is measured nevertheless' : 'nothing is measured'));
	is(engine_of('gpu_sort', 5000, 'SET gpusort.min_rows = 1000;'), 'cuda', "$plan: the device sorts");
	unlink $file;
}

foreach my $plan ('lane:fault', 'upload:fault:3', 'sort:fault:2', 'download:fault', 'downloaded:fault', 'sort:hang')
{
	my $ends = $plan eq 'sort:hang' ? 'The device did not finish its work within \d+ seconds\.' : 'CUDA call \w+ failed: planned by the test \(error 999\)\.';
	restart_with($node, plan => $plan, patience => 1000);
	like($node->safe_psql('postgres', "SELECT available, detail FROM gpusort_status() WHERE engine = 'cuda'"),
		qr/^f\|$ends$/, "$plan: the service ends, and gpusort_status() says why");
	is(engine_of('gpu_sort', 5000, 'SET gpusort.min_rows = 1000;'), 'cpu', "$plan: the CPU sorts");
	ok(!-e $file, "$plan: no file was made");
}

$node->stop('immediate');
done_testing();
