# Runs that are larger than gpusort.device_memory_limit, sorted in pieces by
# the stand-in device (test/standin/device.c): right results, copies that
# overlap sorts, fairness, and every failure half way.

use strict;
use warnings;

use IPC::Run qw(start timeout);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $node = PostgreSQL::Test::Cluster->new('pieces');
my $trace = $node->basedir . '/trace';
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
gpusort.min_rows = 1000
shared_buffers = 512MB
work_mem = 1GB
fsync = off
jit = off
CONF

# Starts the server anew, with so much device memory, and an empty trace.
sub restart_with
{
	my ($limit, $plan, $slow) = @_;
	# the service may be deep in a slow sort
	$node->stop('immediate') if -e $node->data_dir . '/postmaster.pid';
	$node->append_conf('postgresql.conf', "gpusort.device_memory_limit = $limit\n");
	unlink $trace;
	local $ENV{GPUSORT_STANDIN_TRACE} = $trace;
	local $ENV{GPUSORT_STANDIN} = $plan;
	local $ENV{GPUSORT_STANDIN_SLOW} = $slow;
	delete $ENV{GPUSORT_STANDIN} unless $plan;
	delete $ENV{GPUSORT_STANDIN_SLOW} unless $slow;
	$node->start;
}

# What the device did, in order: "upload 1: 40000", ..., "sort 1: 40000", ... by lane.
sub traced
{
	return -e $trace ? split(/\n/, slurp_file($trace)) : ();
}

# The place of the first line of the trace that begins so, or one behind its end.
sub place_of
{
	my ($what, @lines) = @_;
	foreach my $i (0 .. $#lines)
	{
		return $i if $lines[$i] =~ /^$what:/;
	}
	return scalar @lines;
}

sub poll_trace
{
	my ($what) = @_;
	foreach (1 .. 20 * $PostgreSQL::Test::Utils::timeout_default)
	{
		my @lines = traced();
		return 1 if place_of($what, @lines) < @lines;
		usleep(50_000);
	}
	return 0;
}

sub service_pids
{
	my $postmaster = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
	return map { /^\s*(\d+)/ } grep { /gpusort service/ } `ps -o pid=,args= --ppid $postmaster`;
}

sub pool_is_free
{
	my ($name) = @_;
	ok($node->poll_query_until('postgres', "SELECT max(pool_used) = 0 FROM gpusort_status()"),
		"$name: nothing of the pool is held");
}

my $last = 'SELECT engine, pieces, reason FROM gpusort_last_sort()';

# A background psql that gives its output to ${$_[1]} and ${$_[2]}.
sub in_background
{
	my ($query, $stdout, $stderr) = @_;
	return start [ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', $query, '-c', $last ],
	  '>', $stdout, '2>', $stderr, timeout(2 * $PostgreSQL::Test::Utils::timeout_default);
}

# 67 MB: a piece is one chunk of 16 MB, which is 4,194,304 or 2,097,152 keys
restart_with('67MB', '', '');
$node->safe_psql('postgres', 'CREATE EXTENSION gpusort');
if ($node->safe_psql('postgres', "SELECT count(*) FROM gpusort_status() WHERE device = 'stand-in device'") != 1)
{
	plan skip_all => 'this build has no stand-in device';
}
$node->safe_psql('postgres', <<'SQL');
SELECT setseed(0.25);
CREATE TABLE t AS SELECT i,
	CASE WHEN i % 100 <> 0 THEN (random() * 4e9 - 2e9)::int END i4,
	CASE WHEN i % 100 <> 1 THEN (random() * 1.8e19 - 9e18)::bigint END i8,
	CASE i % 100 WHEN 2 THEN 'NaN' WHEN 3 THEN '-0' WHEN 4 THEN '-Infinity' ELSE random() - 0.5 END::real f4,
	CASE i % 100 WHEN 2 THEN 'NaN' WHEN 3 THEN '-0' WHEN 4 THEN 0 ELSE random() - 0.5 END::float8 f8,
	(i * 7919::bigint % 10)::smallint few
FROM generate_series(1, 5000000) i;
CREATE TABLE arrays (i8 bigint[], few bigint[], sorted bigint[], positions int[]);
ALTER TABLE arrays ALTER i8 SET STORAGE EXTERNAL, ALTER few SET STORAGE EXTERNAL,
	ALTER sorted SET STORAGE EXTERNAL, ALTER positions SET STORAGE EXTERNAL;
INSERT INTO arrays SELECT array_agg(i8 ORDER BY i), array_agg(few::bigint ORDER BY i),
	array_agg(i8 ORDER BY i8), array_agg(i ORDER BY few, i) FROM t;
SQL

#
# Results, without a word about it
#
foreach my $case (
	[ 'integer', 'gpu_sort_agg(i4) = array_agg(i4 ORDER BY i4) FROM t', 2 ],
	[ 'bigint', 'gpu_sort_agg(i8) = array_agg(i8 ORDER BY i8) FROM t', 3 ],
	[ 'real', 'gpu_sort_agg(f4) = array_agg(f4 ORDER BY f4) FROM t', 2 ],
	[ 'double precision', 'gpu_sort_agg(f8) = array_agg(f8 ORDER BY f8) FROM t', 3 ],
	[ 'smallint', 'gpu_sort_agg(few) = array_agg(few ORDER BY few) FROM t', 2 ],
	[ 'an array', 'gpu_sort(i8) = sorted FROM arrays', 3 ],
	[ 'an array of smallint', 'gpu_sort(array_agg(few)) = array_agg(few ORDER BY few) FROM t', 2 ],
	[ 'descending', 'gpu_sort(array_agg(f8), true) = array_agg(f8 ORDER BY f8 DESC) FROM t', 3 ],
	[ 'positions of 8-byte keys', 'gpu_argsort(array_agg(i8 ORDER BY i)) = array_agg(i ORDER BY i8, i) FROM t', 3 ],
	[ 'positions of ties', 'gpu_argsort(few) = positions FROM arrays', 3 ],
	[ 'positions, descending', 'gpu_argsort(few, true) = (SELECT array_agg(i ORDER BY few DESC, i) FROM t) FROM arrays', 3 ])
{
	my ($name, $query, $pieces) = @$case;
	my ($rc, $stdout, $stderr) = $node->psql('postgres', "SELECT $query; $last");
	is("$rc $stdout$stderr", "0 t\ncuda|$pieces|", "$name: in pieces, and in core's order");
}
is( $node->safe_psql('postgres', "SELECT cardinality(gpu_sort(i8[1:2000000])) FROM arrays; $last"),
	"2000000\ncuda|1|", 'what fits is sorted whole');
is( $node->safe_psql('postgres', 'SELECT cardinality(gpu_argsort(few)) FROM arrays;'
	  . 'SELECT copy_in_bytes, copy_out_bytes FROM gpusort_last_sort()'),
	"5000000\n40000000|60000000", 'positions travel with their keys');
pool_is_free('no failure');

# a chunk of 4-byte keys takes five times its size, with positions
restart_with('90MB', '', '');
is( $node->safe_psql('postgres', "SELECT gpu_argsort(array_agg(f4 ORDER BY i)) = array_agg(i ORDER BY f4, i) FROM t; $last"),
	"t\ncuda|2|", "positions of 4-byte keys: in pieces, and in core's order");

# 135 MB: a piece is two chunks, but the first is three where the size is not known
restart_with('135MB', '', '');
is( $node->safe_psql('postgres', "SELECT gpu_sort(array_agg(i8)) = array_agg(i8 ORDER BY i8) FROM t, generate_series(1, 2); $last"),
	"t\ncuda|3|", 'pieces of several chunks');
is( $node->safe_psql('postgres', "SELECT gpu_sort_agg(i8) = array_agg(i8 ORDER BY i8) FROM t, generate_series(1, 2); $last"),
	"t\ncuda|2|", 'pieces of several chunks, size not known');

#
# One piece comes and one goes while another is sorted
#
restart_with('67MB', '', '');
is($node->safe_psql('postgres', 'SELECT gpu_sort(i8) = sorted FROM arrays'), 't', 'an array');
my @lines = traced();
foreach my $pair ([ 'upload 2', 'sort 1' ], [ 'download 1', 'sort 2' ], [ 'upload 3', 'sort 2' ], [ 'download 2', 'sort 3' ])
{
	cmp_ok(place_of($pair->[0], @lines), '<', place_of($pair->[1], @lines), "$pair->[0] is queued before $pair->[1]");
}

# A row that comes when the holder of a lock has gone; a holder; and its end.
sub late_row
{
	my ($lock) = @_;
	return "SELECT -$lock FROM (SELECT pg_advisory_lock_shared($lock) OFFSET 0) l";
}

sub hold
{
	my ($lock) = @_;
	my $holder = start [ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', "SELECT pg_advisory_lock($lock)",
		'-c', "SELECT pg_sleep(3600 + $lock)" ], '>', \my $stdout, '2>', \my $stderr,
	  timeout(4 * $PostgreSQL::Test::Utils::timeout_default);
	$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND query LIKE '%3600 + $lock)'");
	return $holder;
}

sub let_go
{
	my ($lock, $holder) = @_;
	$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%3600 + $lock)'");
	$holder->finish;
}

# True while a backend waits for its late row.
sub waits_for
{
	my ($lock) = @_;
	return "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = $lock AND NOT granted";
}

# the first piece is sorted long before the last key is there
my ($out, $err) = ('', '');
my $holder = hold(1);
my $psql = in_background('SELECT cardinality(gpu_sort_agg(i8)) FROM (SELECT i8 FROM t UNION ALL ' . late_row(1) . ') u', \$out, \$err);
ok($node->poll_query_until('postgres', waits_for(1)), 'a backend gathers');
ok(poll_trace('sort 4'), 'and its first piece is sorted');
is($node->safe_psql('postgres', waits_for(1)), 't', 'while it still gathers');
$node->safe_psql('postgres', "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE '%sort_agg%' AND pid <> pg_backend_pid()");
$psql->finish;
like($err, qr/canceling statement/, 'cancelled while it gathers');
pool_is_free('cancelled while it gathers');
let_go(1, $holder);

#
# Nobody waits for more than a piece, or for one who does not fetch
#
restart_with('67MB', '', 1000);
$node->safe_psql('postgres', 'SELECT * FROM gpusort_status()');
$psql = in_background('SELECT gpu_sort(i8 || i8) = (SELECT array_agg(i8 ORDER BY i8) FROM t, generate_series(1, 2)) FROM arrays',
	\$out, \$err);
ok(poll_trace('sort 1'), 'a run of five pieces is being sorted');
is($node->safe_psql('postgres', "SELECT cardinality(gpu_sort_agg(i)) FROM generate_series(1, 10000) i; $last"),
	"10000\ncuda|1|", 'a small run');
@lines = traced();
my ($small) = map { /^upload (\d+): 40000$/ } @lines;
my $others = grep { /^sort/ } @lines[ place_of("upload $small", @lines) .. place_of("sort $small", @lines) - 1 ];
cmp_ok($others, '<=', 2, 'waits for a piece, or two if the second had just begun');
$psql->finish;
is($out . $err, "t\ncuda|5|\n", 'and both results are right');

# 300 MB: the first piece is 8 chunks.  Some of them are back, and the rest on the device, when its backend waits.
restart_with('300MB', '', '');
$holder = hold(1);
my $second_holder = hold(2);
($out, $err) = ('', '');
$psql = in_background('SELECT gpu_sort_agg(k) = (SELECT array_agg(i) FROM generate_series(-2, 21199999::bigint) i) FROM '
	  . '(SELECT i * 7919 % 21200000 AS k FROM generate_series(1, 19000000::bigint) i UNION ALL ' . late_row(1)
	  . ' UNION ALL SELECT i * 7919 % 21200000 AS k FROM generate_series(19000001, 21200000::bigint) i UNION ALL ' . late_row(2)
	  . ') u', \$out, \$err);
ok($node->poll_query_until('postgres', waits_for(1)), 'a backend gathers');
ok(poll_trace('download 1'), 'and its first piece is sorted');
let_go(1, $holder);
ok($node->poll_query_until('postgres', waits_for(2)), 'gathers more, and fetches some of the piece');
is( $node->safe_psql('postgres', 'SELECT gpu_sort_agg(-i) = (SELECT array_agg(i) FROM generate_series(-13000000, -1::bigint) i) '
	  . "FROM generate_series(1, 13000000::bigint) i; $last"),
	"t\ncuda|1|", 'another gets its memory');
is($node->safe_psql('postgres', waits_for(2)), 't', 'while it still gathers');
let_go(2, $second_holder);
$psql->finish;
is($out . $err, "t\ncuda|2|\n", 'and the piece is sorted again, and continued where it broke off');

#
# What was taken from the device, or did not fit, is sorted again
#
restart_with('135MB', 'sort:no_memory:2-2', '');
is( $node->safe_psql('postgres', "SELECT gpu_sort(i8 || i8) = (SELECT array_agg(i8 ORDER BY i8) FROM t, generate_series(1, 2)) FROM arrays; $last"),
	"t\ncuda|4|", 'a piece that does not fit is made smaller');
restart_with('8GB', 'sort:no_memory:1-1', '');
is($node->safe_psql('postgres', "SELECT gpu_argsort(few) = positions FROM arrays; $last"),
	"t\ncuda|2|", 'and so is a whole run');
restart_with('135MB', 'upload:no_memory:4-5', '');
is( $node->safe_psql('postgres', "SELECT gpu_sort_agg(i8) = array_agg(i8 ORDER BY i8) FROM t, generate_series(1, 2); SELECT engine FROM gpusort_last_sort()"),
	"t\ncuda", 'memory that is short for a while');

restart_with('100MB', '', '');
$node->pgbench('--no-vacuum --client=8 --jobs=2 --transactions=2', 0, [qr{processed: 16/16}], [qr{^$}],
	'8 backends with more than the device holds', {
		'001_pieces' => q{
SET gpusort.engine = 'cuda';
SELECT 1 / (gpu_sort(i8) = sorted)::int FROM arrays;
SELECT 1 / (gpu_argsort(few) = positions)::int FROM arrays;
SELECT 1 / (cardinality(gpu_sort_agg(i8)) = 5000000)::int FROM t;
}});
pool_is_free('8 backends');

#
# Failures half way: the CPU sorts what the device was given
#
foreach my $case (
	[ '67MB', 'sort:fault:3', qr/CUDA call sort failed/ ],
	[ '67MB', 'sort:unsorted:3', qr/.*out of order/ ],
	[ '67MB', 'sort:no_memory:3', qr/.*too little memory/ ],
	[ '67MB', 'upload:fault:3', qr/CUDA call upload failed/ ],
	[ '67MB', 'download:fault:2', qr/CUDA call download failed/ ],
	[ '67MB', 'download:fault:3', qr/CUDA call download failed/ ],
	[ '20MB', '', qr/.*too little memory/ ])
{
	my ($limit, $plan, $reason) = @$case;
	foreach my $query ('SELECT gpu_sort_agg(i8) = array_agg(i8 ORDER BY i8) FROM t',
		'SELECT gpu_sort(i8) = sorted FROM arrays', 'SELECT gpu_argsort(few) = positions FROM arrays')
	{
		restart_with($limit, $plan, '');
		my ($rc, $stdout, $stderr) = $node->psql('postgres', "$query; $last");
		like("$rc $stdout", qr/^0 t\ncpu\|\|$reason/, "$limit $plan: $query");
		my $warnings = () = $stderr =~ /WARNING:/g;
		is($warnings, 1, "$limit $plan: a warning");
		pool_is_free("$limit $plan");
	}
}

# the service ends, or the backend is stopped, when two pieces are back
foreach my $query ('SELECT gpu_sort(i8) = sorted FROM arrays', 'SELECT gpu_argsort(few) = positions FROM arrays')
{
	restart_with('67MB', '', 1000);
	($out, $err) = ('', '');
	$psql = in_background($query, \$out, \$err);
	ok(poll_trace('sort 3'), 'the third piece is being sorted');
	kill 'TERM', service_pids();
	$psql->finish;
	is($out, "t\ncpu||The GPU service was shut down.\n", "service terminated: $query");
	pool_is_free('service terminated');

	foreach my $how ('pg_cancel_backend', 'pg_terminate_backend')
	{
		restart_with('67MB', '', 1000);
		($out, $err) = ('', '');
		$psql = in_background($query, \$out, \$err);
		ok(poll_trace('sort 3'), 'the third piece is being sorted');
		$node->safe_psql('postgres', "SELECT $how(pid) FROM pg_stat_activity WHERE query LIKE '%sort(%' AND pid <> pg_backend_pid()");
		$psql->finish;
		like($err, qr/canceling statement|terminating connection/, "$how: $query");
		pool_is_free($how);
	}
}
$node->stop;

done_testing();
