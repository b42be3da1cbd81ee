# The stand-in device (test/standin/device.c) sorts runs that exceed
# gpusort.device_memory_limit in pieces: results are right, copies overlap sorts,
# small sorts do not wait long, and every failure half way is handled.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('pieces', settings => "gpusort.min_rows = 1000\nshared_buffers = 512MB\nwork_mem = 1GB\n");

my $last = 'SELECT engine, pieces, reason FROM gpusort_last_sort()';

# with 67 MB a piece is one chunk of 16 MB, which holds 4,194,304 or 2,097,152 keys
restart_with($node, limit => '67MB');
$node->safe_psql('postgres', 'CREATE EXTENSION gpusort');
skip_without_standin($node);
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
# Results are right, without a warning
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
	"2000000\ncuda|1|", 'a run that fits is sorted whole');
is( $node->safe_psql('postgres', 'SELECT cardinality(gpu_argsort(few)) FROM arrays;'
	  . 'SELECT copy_in_bytes, copy_out_bytes FROM gpusort_last_sort()'),
	"5000000\n40000000|60000000", 'positions are copied with their keys');
pool_is_free($node, 'no failure');

# sorting a chunk of 4-byte keys with positions takes five times the chunk's size
restart_with($node, limit => '90MB');
is( $node->safe_psql('postgres', "SELECT gpu_argsort(array_agg(f4 ORDER BY i)) = array_agg(i ORDER BY f4, i) FROM t; $last"),
	"t\ncuda|2|", "positions of 4-byte keys: in pieces, and in core's order");

# with 135 MB a piece is two chunks, but the first one is three if the run's size is not known
restart_with($node, limit => '135MB');
is( $node->safe_psql('postgres', "SELECT gpu_sort(array_agg(i8)) = array_agg(i8 ORDER BY i8) FROM t, generate_series(1, 2); $last"),
	"t\ncuda|3|", 'pieces of several chunks give the right result');
is( $node->safe_psql('postgres', "SELECT gpu_sort_agg(i8) = array_agg(i8 ORDER BY i8) FROM t, generate_series(1, 2); $last"),
	"t\ncuda|2|", 'pieces of several chunks give the right result if the size is not known');

#
# While one piece is sorted, the next is copied in and the last is copied out
#
restart_with($node, limit => '67MB');
is($node->safe_psql('postgres', 'SELECT gpu_sort(i8) = sorted FROM arrays'), 't', 'an array of three pieces');
my @lines = traced($node);
foreach my $pair ([ 'upload 2', 'sort 1' ], [ 'download 1', 'sort 2' ], [ 'upload 3', 'sort 2' ], [ 'download 2', 'sort 3' ])
{
	cmp_ok(place_of($pair->[0], @lines), '<', place_of($pair->[1], @lines), "$pair->[0] is queued before $pair->[1]");
}

# the first piece is sorted long before the last key arrives
my ($out, $err);
hold($node, 1);
my $psql = in_background($node, \$out, \$err,
	'SELECT cardinality(gpu_sort_agg(i8)) FROM (SELECT i8 FROM t UNION ALL ' . late_row(1) . ') u', $last);
ok($node->poll_query_until('postgres', waits_for(1)), 'a backend gathers');
ok(poll_trace($node, 'sort 4'), 'the first piece is sorted early');
is($node->safe_psql('postgres', waits_for(1)), 't', 'the backend still gathers while its first piece is sorted');
$node->safe_psql('postgres', "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE '%sort_agg%' AND pid <> pg_backend_pid()");
$psql->finish;
like($err, qr/canceling statement/, 'cancelled while it gathers');
pool_is_free($node, 'cancelled while it gathers');
let_go($node, 1);

#
# A sort waits for one piece of another sort at most, and not for a backend that does not fetch
#
restart_with($node, limit => '67MB', slow => 1000);
$node->safe_psql('postgres', 'SELECT * FROM gpusort_status()');
$psql = in_background($node, \$out, \$err,
	'SELECT gpu_sort(i8 || i8) = (SELECT array_agg(i8 ORDER BY i8) FROM t, generate_series(1, 2)) FROM arrays', $last);
ok(poll_trace($node, 'sort 1'), 'the device sorts a run of five pieces');
is($node->safe_psql('postgres', "SELECT cardinality(gpu_sort_agg(i)) FROM generate_series(1, 10000) i; $last"),
	"10000\ncuda|1|", 'a small run is sorted meanwhile');
@lines = traced($node);
my ($small) = map { /^upload (\d+): 40000$/ } @lines;
my $others = grep { /^sort/ } @lines[ place_of("upload $small", @lines) .. place_of("sort $small", @lines) - 1 ];
cmp_ok($others, '<=', 2, 'the small run waits for one piece, or for two if the second had just begun');
$psql->finish;
is($out . $err, "t\ncuda|5|\n", 'the result of the large run is right');

# With 300 MB the first piece is 8 chunks.  When the backend waits, it has fetched
# some of these chunks, and the device holds the others.
restart_with($node, limit => '300MB');
hold($node, 1);
hold($node, 2);
$psql = in_background($node, \$out, \$err, 'SELECT gpu_sort_agg(k) = (SELECT array_agg(i) FROM generate_series(-2, 21199999::bigint) i) FROM '
	  . '(SELECT i * 7919 % 21200000 AS k FROM generate_series(1, 19000000::bigint) i UNION ALL ' . late_row(1)
	  . ' UNION ALL SELECT i * 7919 % 21200000 AS k FROM generate_series(19000001, 21200000::bigint) i UNION ALL ' . late_row(2)
	  . ') u', $last);
ok($node->poll_query_until('postgres', waits_for(1)), 'a backend gathers');
ok(poll_trace($node, 'download 1'), 'the first of two pieces is sorted');
let_go($node, 1);
ok($node->poll_query_until('postgres', waits_for(2)), 'the backend gathers more, and fetches some of the piece');
is( $node->safe_psql('postgres', 'SELECT gpu_sort_agg(-i) = (SELECT array_agg(i) FROM generate_series(-13000000, -1::bigint) i) '
	  . "FROM generate_series(1, 13000000::bigint) i; $last"),
	"t\ncuda|1|", 'another gets its memory');
is($node->safe_psql('postgres', waits_for(2)), 't', 'another gets its memory while the backend still gathers');
let_go($node, 2);
$psql->finish;
is($out . $err, "t\ncuda|2|\n", 'the piece is sorted again, and its result continues where it stopped');

#
# A piece that does not fit is sorted again in smaller pieces
#
restart_with($node, limit => '135MB', plan => 'sort:no_memory:2-2');
is( $node->safe_psql('postgres', "SELECT gpu_sort(i8 || i8) = (SELECT array_agg(i8 ORDER BY i8) FROM t, generate_series(1, 2)) FROM arrays; $last"),
	"t\ncuda|4|", 'a piece that does not fit is made smaller');
restart_with($node, limit => '8GB', plan => 'sort:no_memory:1-1');
is($node->safe_psql('postgres', "SELECT gpu_argsort(few) = positions FROM arrays; $last"),
	"t\ncuda|2|", 'a whole run that does not fit is cut into pieces');
restart_with($node, limit => '135MB', plan => 'upload:no_memory:4-5');
is( $node->safe_psql('postgres', "SELECT gpu_sort_agg(i8) = array_agg(i8 ORDER BY i8) FROM t, generate_series(1, 2); SELECT engine FROM gpusort_last_sort()"),
	"t\ncuda", 'a sort succeeds when memory was short for a while');

restart_with($node, limit => '100MB');
$node->pgbench('--no-vacuum --client=8 --jobs=2 --transactions=2', 0, [qr{processed: 16/16}], [qr{^$}],
	'8 backends with more than the device holds', {
		'001_pieces' => q{
SET gpusort.engine = 'cuda';
SELECT 1 / (gpu_sort(i8) = sorted)::int FROM arrays;
SELECT 1 / (gpu_argsort(few) = positions)::int FROM arrays;
SELECT 1 / (cardinality(gpu_sort_agg(i8)) = 5000000)::int FROM t;
}});
pool_is_free($node, '8 backends');

#
# Failures half way: the CPU sorts the keys of the whole run
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
		restart_with($node, limit => $limit, plan => $plan);
		my ($rc, $stdout, $stderr) = $node->psql('postgres', "$query; $last");
		like("$rc $stdout", qr/^0 t\ncpu\|\|$reason/, "$limit $plan: $query");
		is(warnings_in($stderr), 1, "$limit $plan: one warning");
		pool_is_free($node, "$limit $plan");
	}
}

# the service ends, or the backend is stopped, when two pieces have been copied back
foreach my $query ('SELECT gpu_sort(i8) = sorted FROM arrays', 'SELECT gpu_argsort(few) = positions FROM arrays')
{
	restart_with($node, limit => '67MB', slow => 1000);
	$psql = in_background($node, \$out, \$err, $query, $last);
	ok(poll_trace($node, 'sort 3'), 'the device sorts the third piece');
	kill 'TERM', service_pids($node);
	$psql->finish;
	is($out, "t\ncpu||The GPU service was shut down.\n", "service terminated: $query");
	pool_is_free($node, 'service terminated');

	foreach my $how ('pg_cancel_backend', 'pg_terminate_backend')
	{
		restart_with($node, limit => '67MB', slow => 1000);
		$psql = in_background($node, \$out, \$err, $query, $last);
		ok(poll_trace($node, 'sort 3'), 'the device sorts the third piece');
		$node->safe_psql('postgres', "SELECT $how(pid) FROM pg_stat_activity WHERE query LIKE '%sort(%' AND pid <> pg_backend_pid()");
		$psql->finish;
		like($err, qr/canceling statement|terminating connection/, "$how: $query");
		pool_is_free($node, $how);
	}
}
$node->stop;

done_testing();
