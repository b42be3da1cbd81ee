# The GPU service, the chunk pool and every failure of a device, with the
# stand-in device (test/standin/device.c) that does as the environment says.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('standin');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
gpusort.min_rows = 1000
shared_buffers = 256MB
work_mem = 1GB
max_connections = 60
fsync = off
CONF

# as few values of 8 bytes as come back in three chunks of 16 MB
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
	"$big_result\ncuda|t|$rows|" . 8 * $rows, 'a result of several chunks');
pool_is_free($node, 'no failure');

# each algorithm is asked for and reported under the same name
foreach my $algorithm (qw(mppsort quicksort mergesort radixsort cub))
{
	is( $node->safe_psql('postgres',
			"SET gpusort.algorithm = '$algorithm'; SELECT gpu_sort_agg(i % 1000) IS NULL FROM generate_series(1, 5000) i; "
			  . "SELECT algorithm, engine FROM gpusort_last_sort()"),
		"f\n$algorithm|cuda", "$algorithm is what the device sorts by");
}

#
# Failures: the CPU takes over, or it is an error if the device was demanded
#
my %reason = (
	'open:no_driver' => qr/No NVIDIA driver was found/,
	'open:old_driver' => qr/driver supports CUDA 12\.2, but gpusort was built with CUDA 13\.0/,
	'open:no_device' => qr/finds no usable device/,
	'upload:no_memory' => qr/too little memory/,
	'upload:fault' => qr/CUDA call upload failed: planned by the test \(error 999\)/,
	'upload:fault:2' => qr/CUDA call upload failed/,
	'sort:no_memory' => qr/too little memory/,
	'sort:unsorted' => qr/out of order/,
	'sort:fault' => qr/CUDA call sort failed/,
	'download:no_memory' => qr/too little memory/,
	'download:fault' => qr/CUDA call download failed/,
	'download:fault:3' => qr/CUDA call download failed/);

foreach my $plan (sort keys %reason)
{
	restart_with($node, plan => $plan);
	my ($rc, $stdout, $stderr) = $node->psql('postgres',
		"$big; SELECT engine FROM gpusort_last_sort(); $big; SELECT engine, reason FROM gpusort_last_sort()");
	my @lines = split /\n/, $stdout;
	is("$rc $lines[0] $lines[1] $lines[2]", "0 $big_result cpu $big_result", "$plan: the CPU sorts");
	like($lines[3], $reason{$plan}, "$plan: gpusort_last_sort() says why");
	my $warnings = () = $stderr =~ /WARNING:/g;
	is($warnings, 1, "$plan: one warning in a session");
	like($stderr, $reason{$plan}, "$plan: with the reason");
	pool_is_free($node, $plan);

	($rc, $stdout, $stderr) = $node->psql('postgres', "\\set VERBOSITY verbose\nSET gpusort.engine = 'cuda'; $big");
	like($stderr, qr/ERROR:  55000.*HINT:  Set gpusort\.engine to "auto"/s, "$plan: an error if the device is demanded");
	pool_is_free($node, "$plan, demanded");
}

#
# A result that the check after the sort did not let pass at first
#
{
	restart_with($node, plan => 'sort:resorted');
	my ($rc, $stdout, $stderr) = $node->psql('postgres', "$big; SELECT engine FROM gpusort_last_sort()");
	is("$rc $stdout", "0 $big_result\ncuda", 'sorted again: the right result, of the GPU');
	like($stderr, qr/WARNING:  gpusort found a result of the GPU out of order and sorted it again/,
		'sorted again: a warning says so');
	pool_is_free($node, 'sorted again');
}

#
# gpusort_bench() demands the device for as long as it measures it
#
restart_with($node);
is( $node->safe_psql('postgres', <<'SQL'), "t|t|t\ncpu|quicksort|77", 'gpusort_bench: every algorithm, whatever is set, and as it was');
SET gpusort.engine = 'cpu';
SET gpusort.algorithm = 'quicksort';
SET gpusort.min_rows = 77;
SELECT array_agg(DISTINCT algorithm ORDER BY algorithm) FILTER (WHERE engine = 'cuda')
         = (SELECT array_agg(a ORDER BY a) FROM pg_settings, unnest(enumvals) a WHERE name = 'gpusort.algorithm'),
       array_agg(DISTINCT n) FILTER (WHERE engine = 'cuda') = array_agg(DISTINCT n) FILTER (WHERE engine = 'cpu'),
       bool_and(verified AND (copy_in_ms > 0 AND copy_out_ms > 0) IS NOT DISTINCT FROM nullif(engine = 'cuda', false))
FROM gpusort_bench(6000000, 'float8', 'few', 1);
SELECT current_setting('gpusort.engine'), current_setting('gpusort.algorithm'), current_setting('gpusort.min_rows');
SQL
pool_is_free($node, 'gpusort_bench');

restart_with($node, plan => 'open:no_driver');
{
	my ($rc, $stdout, $stderr) = $node->psql('postgres', 'SELECT DISTINCT engine FROM gpusort_bench(10000, repeats => 1); SELECT gpusort_bench_crossover(10000) IS NULL');
	is("$rc $stdout", "0 cpu\nt", 'gpusort_bench without a device: the CPU engine only');
	like($stderr, qr/NOTICE:  gpusort_bench measures the CPU engine only\nDETAIL:  No NVIDIA driver was found/, 'with the reason');
}

restart_with($node, plan => 'sort:no_memory:3');
{
	my ($rc, $stdout, $stderr) = $node->psql('postgres',
		"SET gpusort.min_rows = 77; SELECT * FROM gpusort_bench(10000, repeats => 1);\n"
		. "SELECT current_setting('gpusort.engine'), current_setting('gpusort.algorithm'), current_setting('gpusort.min_rows')",
		on_error_stop => 0);
	is($stdout, 'auto|auto|77', 'gpusort_bench: the settings are as they were after an error');
	like($stderr, qr/ERROR:  gpusort engine "cuda" could not sort.*CONTEXT:  gpusort_bench, 10000 rows, engine "cuda", algorithm "\w+"/s, 'which says what failed');
}
pool_is_free($node, 'gpusort_bench, after an error');

restart_with($node, slow => 20000);
{
	my ($rc, $stdout, $stderr) = $node->psql('postgres', "SET statement_timeout = '3s'; SELECT * FROM gpusort_bench(10000)");
	like($stderr, qr/canceling statement due to statement timeout/, 'gpusort_bench is cancelled while the device sorts');
}

#
# The service dies while a backend waits for it
#
restart_with($node);
hold_device($node, 'sort');
my ($stdout, $stderr);
my $psql = in_background($node, \$stdout, \$stderr, $big, 'SELECT engine, reason FROM gpusort_last_sort()');
my $waiting = "SELECT count(*) = 1 FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%gpu_sort_agg%' "
  . "AND wait_event_type = 'Extension' AND pid <> pg_backend_pid()";
ok($node->poll_query_until('postgres', $waiting), 'a backend waits for the service');
kill 'TERM', service_pids($node);
release_device($node);
$psql->finish;
is($stdout, "$big_result\ncpu|The GPU service was shut down.\n", 'service terminated: the CPU sorts');

#
# Cancel, timeout and termination while waiting: answered while the device is at it
#
foreach my $how ('pg_cancel_backend', 'pg_terminate_backend')
{
	restart_with($node);
	hold_device($node, 'sort');
	$psql = in_background($node, \$stdout, \$stderr, $big);
	ok($node->poll_query_until('postgres', $waiting), "$how: a backend waits");
	$node->safe_psql('postgres', "SELECT $how(pid) FROM pg_stat_activity WHERE query LIKE '%gpu_sort_agg%' AND pid <> pg_backend_pid()");
	$psql->finish;
	like($stderr, $how eq 'pg_cancel_backend' ? qr/canceling statement/ : qr/terminating connection/, "$how: has its error");
}
restart_with($node);
hold_device($node, 'sort');
my ($rc, $out, $err) = $node->psql('postgres', "SET statement_timeout = '3s'; $big");
like($err, qr/canceling statement due to statement timeout/, 'statement_timeout while waiting');
restart_with($node, slow => 500);
$node->psql('postgres', "SET statement_timeout = '2s'; $big");
pool_is_free($node, 'statement_timeout');

#
# The pool runs out; the device's memory does, with others waiting
#
$node->append_conf('postgresql.conf', "gpusort.pool_limit = 64MB\n");
restart_with($node);
($rc, $out, $err) = $node->psql('postgres',
	"SELECT cardinality(gpu_sort_agg(i)) FROM generate_series(1, 3000000) i; SELECT engine FROM gpusort_last_sort();"
	. "SELECT cardinality(gpu_sort_agg(i)) FROM generate_series(1, 10000000::bigint) i; SELECT engine, reason FROM gpusort_last_sort()");
is($out, "3000000\ncuda\n10000000\ncpu|The chunk pool is exhausted (gpusort.pool_limit).", 'pool exhausted: the CPU sorts');
like($err, qr/WARNING:.*pool is exhausted/s, 'pool exhausted: a warning');
pool_is_free($node, 'pool exhausted');
$node->append_conf('postgresql.conf', "gpusort.pool_limit = 4GB\ngpusort.device_memory_limit = 100MB\n");

restart_with($node);
$node->pgbench('--no-vacuum --client=32 --jobs=2 --transactions=1', 0, [qr{processed: 32/32}], [qr{^$}],
	'32 backends with little device memory', {
		'001_sorts' => q{
SET gpusort.engine = 'cuda';
SELECT 1 / (cardinality(gpu_sort_agg(i)) = 2000000)::int FROM generate_series(1, 2000000::bigint) i;
}});
is(scalar(service_pids($node)), 1, 'one service serves all');
pool_is_free($node, '32 backends');

#
# An idle service ends, and is started again when it is needed
#
$node->append_conf('postgresql.conf', "gpusort.service_idle_timeout = 1\n");
restart_with($node);
is($node->safe_psql('postgres', $big), $big_result, 'a sort');
ok(poll_services($node, 0), 'the idle service ends');
is($node->safe_psql('postgres', "$big; SELECT engine FROM gpusort_last_sort()"), "$big_result\ncuda", 'and comes back');

#
# Started with the server
#
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'gpusort'\n");
restart_with($node);
ok(poll_services($node, 1), 'preloaded: the service starts with the server');
is($node->safe_psql('postgres', "$big; SELECT engine FROM gpusort_last_sort()"), "$big_result\ncuda", 'preloaded: a sort');
$node->stop;

done_testing();
