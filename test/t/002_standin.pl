# The GPU service, and every failure of a device: the environment
# tells the stand-in device (test/standin/device.c) which call fails.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('standin', settings => "gpusort.min_rows = 1000\nshared_buffers = 256MB\nwork_mem = 1GB\nmax_connections = 60\n");

my $rows = 4_200_000;
my $big = "SELECT cardinality(a), a[1], a[2000000], a[$rows] FROM "
  . "(SELECT gpu_sort_agg(i * 7919 % $rows) a FROM generate_series(1::bigint, $rows) i) s";
my $big_result = "$rows|0|1999999|" . ($rows - 1);

restart_with($node);
$node->safe_psql('postgres', 'CREATE EXTENSION gpusort');
skip_without_standin($node);

#
# Without a failure
#
is( $node->safe_psql('postgres', "$big; SELECT engine, pinned, rows, copy_in_bytes FROM gpusort_last_sort()"),
	"$big_result\ncuda|t|$rows|" . 8 * $rows, 'a large result is right');
nothing_is_held($node, 'no failure');

foreach my $algorithm (qw(mppsort quicksort mergesort radixsort cub))
{
	is( $node->safe_psql('postgres',
			"SET gpusort.algorithm = '$algorithm'; SELECT gpu_sort_agg(i % 1000) IS NULL FROM generate_series(1, 5000) i; "
			  . "SELECT algorithm, engine FROM gpusort_last_sort()"),
		"f\n$algorithm|cuda", "the device sorts by $algorithm if that is set, and reports it");
}

# with gpusort.min_rows = -1 from 256 kB of keys and 32,768 rows on; if no processor is idle, only after three sorts
foreach my $case ([ 'values of 4 bytes', 'gpu_sort_agg(i % 9)', 65536 ], [ 'values of 8 bytes', 'gpu_sort_agg(i::bigint % 9)', 32768 ],
	[ 'values of 2 bytes', 'gpu_sort_agg((i % 30000)::smallint)', 65536 ], [ 'positions', 'gpu_argsort(array_agg(i::bigint % 9))', 32768 ])
{
	my ($name, $sort, $least) = @$case;
	foreach my $n ($least - 1, $least)
	{
		is($node->safe_psql('postgres', "SET gpusort.min_rows = -1; " . "SELECT gpu_sort_agg(i % 9) IS NULL FROM generate_series(1, 70000) i; " x 3
				  . "SELECT cardinality($sort) FROM generate_series(1, $n) i; SELECT engine FROM gpusort_last_sort()"),
			"f\n" x 3 . "$n\n" . ($n < $least ? 'cpu' : 'cuda'), "by default, $n $name");
	}
}
is($node->safe_psql('postgres', 'SET gpusort.min_rows = -1; SELECT cardinality(gpu_sort_agg(i)) FROM generate_series(1, 100000) i; SELECT engine, reason FROM gpusort_last_sort()'),
	"100000\ncpu|The keys are in order already.", 'by default, values in order');

#
# Failures: the CPU sorts, or, with gpusort.engine = cuda, the query fails
#
my %reason = (
	'open:no_driver' => qr/No NVIDIA driver was found/,
	'open:old_driver' => qr/driver supports CUDA 12\.2, but gpusort was built with CUDA 13\.0/,
	'open:no_device' => qr/finds no usable device/,
	'upload:no_memory' => qr/too little memory/,
	'upload:fault' => qr/CUDA call upload failed: planned by the test \(error 999\)/,
	'sort:no_memory' => qr/too little memory/,
	'sort:unsorted' => qr/out of order/,
	'sort:fault' => qr/CUDA call sort failed/,
	'download:no_memory' => qr/too little memory/,
	'download:fault' => qr/CUDA call download failed/);

foreach my $plan (sort keys %reason)
{
	restart_with($node, plan => $plan);
	my ($rc, $stdout, $stderr) = $node->psql('postgres',
		"$big; SELECT engine FROM gpusort_last_sort(); $big; SELECT engine, reason FROM gpusort_last_sort()");
	my @lines = split /\n/, $stdout;
	is("$rc $lines[0] $lines[1] $lines[2]", "0 $big_result cpu $big_result", "$plan: the CPU sorts");
	like($lines[3], $reason{$plan}, "$plan: gpusort_last_sort() says why");
	is(warnings_in($stderr), 1, "$plan: the session has one warning");
	like($stderr, $reason{$plan}, "$plan: the warning gives the reason");
	nothing_is_held($node, $plan);

	($rc, $stdout, $stderr) = $node->psql('postgres', "\\set VERBOSITY verbose\nSET gpusort.engine = 'cuda'; $big");
	like($stderr, qr/ERROR:  55000.*HINT:  Set gpusort\.engine to "auto"/s, "$plan: an error if gpusort.engine is cuda");
	nothing_is_held($node, "$plan, gpusort.engine is cuda");
}

like(slurp_file($node->logfile), qr/gpusort found the device's result out of order/, 'a wrong order is logged');

#
# The service dies while a backend waits for it
#
restart_with($node);
hold_device($node, 'download');
my ($stdout, $stderr);
my $psql = in_background($node, \$stdout, \$stderr, $big, 'SELECT engine, reason FROM gpusort_last_sort()');
my $waiting = "SELECT count(*) = 1 FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%gpu_sort_agg%' "
  . "AND wait_event_type = 'Extension' AND wait_event = '" . ($node->pg_version >= 17 ? 'GpusortDevice' : 'Extension') . "' AND pid <> pg_backend_pid()";
ok($node->poll_query_until('postgres', $waiting), 'a backend waits for the service');
ok(poll_trace($node, 'download 1'), 'the device returns the result');
kill 'TERM', service_pids($node);
$psql->finish;
is($stdout, "$big_result\ncpu|The GPU service was shut down.\n", 'service terminated: the CPU sorts');

#
# Cancel, timeout and termination take effect while the device is still busy
#
foreach my $how ('pg_cancel_backend', 'pg_terminate_backend')
{
	restart_with($node);
	hold_device($node, 'sort');
	$psql = in_background($node, \$stdout, \$stderr, $big);
	ok($node->poll_query_until('postgres', $waiting), "$how: a backend waits");
	$node->safe_psql('postgres', "SELECT $how(pid) FROM pg_stat_activity WHERE query LIKE '%gpu_sort_agg%' AND pid <> pg_backend_pid()");
	$psql->finish;
	like($stderr, $how eq 'pg_cancel_backend' ? qr/canceling statement/ : qr/terminating connection/, "$how: the session gets the error");
}
restart_with($node);
hold_device($node, 'sort');
my ($rc, $out, $err) = $node->psql('postgres', "SET statement_timeout = '3s'; $big");
like($err, qr/canceling statement due to statement timeout/, 'statement_timeout ends a sort that waits for the device');
restart_with($node, slow => 500);
$node->psql('postgres', "SET statement_timeout = '2s'; $big");
nothing_is_held($node, 'statement_timeout');

#
# Device memory is short, and the backends wait for it
#
$node->append_conf('postgresql.conf', "gpusort.device_memory_limit = 100MB\n");
restart_with($node);
$node->pgbench('--no-vacuum --client=32 --jobs=2 --transactions=1', 0, [qr{processed: 32/32}], [qr{^$}],
	'32 backends with little device memory', {
		'001_sorts' => q{
SET gpusort.engine = 'cuda';
SELECT 1 / (cardinality(gpu_sort_agg(i)) = 2000000)::int FROM generate_series(1, 2000000::bigint) i;
}});
is(scalar(service_pids($node)), 1, '32 backends: one service serves all');
nothing_is_held($node, '32 backends');

#
# An idle service ends, and the next sort starts another one
#
$node->append_conf('postgresql.conf', "gpusort.service_idle_timeout = 1\n");
restart_with($node);
is($node->safe_psql('postgres', $big), $big_result, 'idle service: a sort');
ok(poll_services($node, 0), 'an idle service ends');
is($node->safe_psql('postgres', "$big; SELECT engine FROM gpusort_last_sort()"), "$big_result\ncuda", 'the next sort starts another service');

#
# A preloaded service starts with the server
#
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'gpusort'\n");
restart_with($node);
ok(poll_services($node, 1), 'preloaded: the service starts with the server');
is($node->safe_psql('postgres', "$big; SELECT engine FROM gpusort_last_sort()"), "$big_result\ncuda", 'preloaded: the device sorts');
$node->stop;

done_testing();
