# ORDER BY on the stand-in device (test/standin/device.c): keys of several words,
# spilled runs, each of which the device sorts, sorts
# that do not fit the device, and every failure.  In each case the rows have core's order.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# without synchronize_seqscans rows arrive in the order of id, on which the order of ties depends
my $node = new_node('standin_order_by', order_by => 1,
	settings => "gpusort.min_rows = 1000\nshared_buffers = 512MB\nwork_mem = 1GB\nsynchronize_seqscans = off\n");

my $last = 'SELECT engine, reason FROM gpusort_last_sort()';

# A query for the sequence of rows as one number.
sub ordered
{
	my ($order, $from) = @_;
	return order_number("SELECT id, k, few, f, word FROM $from ORDER BY $order");
}

# That number as core's sort gives it.
my %core;

sub right
{
	my ($order, $from) = @_;
	my $query = ordered($order, $from);
	$core{$query} //= $node->safe_psql('postgres', "SET gpusort.enabled = off; $query");
	return $core{$query};
}

# The output of EXPLAIN ANALYZE under these settings.
sub explained
{
	my ($order, $from, $settings) = @_;
	return $node->safe_psql('postgres', ($settings // '')
		  . "EXPLAIN (ANALYZE, VERBOSE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT id, k, few, f, word FROM $from ORDER BY $order");
}

restart_with($node, limit => '8GB');
$node->safe_psql('postgres', 'CREATE EXTENSION gpusort');
skip_without_standin($node);

$node->safe_psql('postgres', <<'SQL');
CREATE TABLE t AS SELECT i AS id,
	CASE WHEN i % 100 <> 0 THEN hashint8extended(i, 1) END AS k,
	(i * 7919::bigint % 10)::smallint AS few,
	CASE i % 100 WHEN 2 THEN 'NaN' WHEN 3 THEN '-0' WHEN 4 THEN '0' ELSE (hashint8extended(i, 2) % 1000) / 7.0 END::float8 AS f,
	CASE WHEN i % 100 <> 5 THEN repeat('the same ', (i % 3)::int) || hashint8extended(i, 3) % 1000 END COLLATE "C" AS word
FROM generate_series(1, 2200000::bigint) AS i;
CREATE VIEW large AS SELECT * FROM t WHERE id <= 750000;
CREATE VIEW small AS SELECT * FROM t WHERE id <= 100000;
VACUUM ANALYZE t;
SQL

#
# Without a failure
#
my $several = 'few, k DESC NULLS LAST, id';
foreach my $case (
	[ $several, 'large' ],
	[ 'f DESC, word NULLS FIRST, id', 'small' ],
	[ 'few NULLS FIRST, f, k, id', 'small' ],
	# columns that the words do not decide are compared in the rows
	[ 'word DESC, id', 'small' ],
	[ 'few, word COLLATE "en-x-icu", k, id', 'small' ],
	# the sort is stable, and ORDER BY does not contain id
	[ 'few, f', 'small' ],
	[ 'few', 'small' ])
{
	my ($order, $from) = @$case;
	# core's sort is not stable, so it needs id
	my $whole = $order =~ /\bid$/ ? $order : "$order, id";
	is($node->safe_psql('postgres', "SET gpusort.engine = 'cuda'; " . ordered($order, $from) . "; $last"),
		right($whole, $from) . "\ncuda|", "ORDER BY $order");
	like(explained($order, $from), qr/\(GpuSort\).*^ *Engine: cuda\n/ms, "ORDER BY $order: EXPLAIN shows the engine");
}
nothing_is_held($node, 'no failure');

# spilled runs
like(explained($several, 'large', "SET gpusort.memory_limit = '32MB'; "), qr/^ *Engine: cuda\n.*^ *Runs: [3-9]/ms, 'the device sorts each spilled run');
is($node->safe_psql('postgres', "SET gpusort.memory_limit = '32MB'; SET gpusort.engine = 'cuda'; " . ordered($several, 'large')),
	right($several, 'large'), 'merging spilled runs gives the right order');
# a low limit does not make runs of a few rows
like(explained($several, 'small', "SET gpusort.memory_limit = '1MB'; SET gpusort.min_rows = 0; "), qr/^ *Engine: cuda\n.*^ *Runs: \d\d?$/ms, 'spilled runs are about as large as the limit');
nothing_is_held($node, 'spilled runs');

# a result that is read back and forth, and results that are not read to their end
is( $node->safe_psql('postgres', <<'SQL'), "100000|100000|1|100000|cuda", 'a scroll cursor reads back and forth');
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id FROM small ORDER BY id IS NULL, id;
CREATE TEMP TABLE seen (place int, id bigint);
DO $$
DECLARE
	c refcursor := 'c';
	r record;
BEGIN
	FETCH LAST FROM c INTO r;
	INSERT INTO seen VALUES (1, r.id);
	FETCH FIRST FROM c INTO r;
	INSERT INTO seen VALUES (3, r.id);
	FETCH ABSOLUTE 100000 FROM c INTO r;
	INSERT INTO seen VALUES (2, r.id), (4, r.id);
END $$;
CLOSE c;
SELECT string_agg(id::text, '|' ORDER BY place) || '|' || (SELECT engine FROM gpusort_last_sort()) FROM seen;
COMMIT;
SQL
foreach my $end ('CLOSE c', 'COMMIT', 'ROLLBACK', 'SELECT 1 / 0')
{
	my ($rc, $stdout, $stderr) = $node->psql('postgres',
		"BEGIN; DECLARE c CURSOR FOR SELECT id FROM large ORDER BY $several; FETCH 1 FROM c; $end", on_error_stop => 0);
	nothing_is_held($node, "not read to its end, $end");
}

#
# Too little device memory for keys of 52.8 MB
#
restart_with($node, limit => '67MB');
{
	my $reason = 'The device has too little memory for this sort (gpusort.device_memory_limit).';
	my ($rc, $stdout, $stderr) = $node->psql('postgres', ordered($several, 't') . "; $last");
	is("$rc $stdout", "0 @{[right($several, 't')]}\ncpu|$reason", 'too large: the CPU sorts');
	unlike($stderr, qr/WARNING/, 'too large: ORDER BY does not warn');
	like(explained($several, 't'), qr/^ *Engine: cpu\n.*^ *Reason: \Q$reason\E/ms, 'too large: EXPLAIN shows the reason');
	nothing_is_held($node, 'too large');
	like(explained($several, 't', "SET gpusort.memory_limit = '32MB'; "), qr/^ *Engine: cuda\n.*^ *Runs: [3-9]/ms,
		'too large: the device sorts each spilled run');
	is($node->safe_psql('postgres', "SET gpusort.memory_limit = '32MB'; SET gpusort.engine = 'cuda'; " . ordered($several, 't')),
		right($several, 't'), 'too large: the spilled runs give the right order');
	nothing_is_held($node, 'too large, spilled');
}

restart_with($node, limit => '100MB');
$node->pgbench('--no-vacuum --client=6 --jobs=2 --transactions=2', 0, [qr{processed: 12/12}], [qr{^$}],
	'6 backends with more than the device holds', {
		'004_words' => "SET gpusort.engine = 'cuda'; SELECT 1 / ((" . ordered($several, 'large') . ") = @{[right($several, 'large')]})::int;"
});
nothing_is_held($node, '6 backends');

#
# Failures (005_standin_faults.pl has all): the CPU sorts, and EXPLAIN says why
#
foreach my $case (
	[ 'open:no_driver', qr/No NVIDIA driver was found/ ],
	[ 'sort:unsorted', qr/.*out of order/ ])
{
	my ($plan, $reason) = @$case;
	restart_with($node, limit => '8GB', plan => $plan);
	my ($rc, $stdout, $stderr) = $node->psql('postgres', ordered($several, 'large') . "; $last");
	like("$rc $stdout", qr/^0 \Q@{[right($several, 'large')]}\E\ncpu\|$reason/, "$plan: the CPU sorts");
	unlike($stderr, qr/WARNING/, "$plan: ORDER BY does not warn");
	like(explained($several, 'large'), qr/^ *Engine: cpu\n.*^ *Reason: $reason/ms, "$plan: EXPLAIN shows the reason");
	nothing_is_held($node, $plan);

	($rc, $stdout, $stderr) = $node->psql('postgres', "SET gpusort.engine = 'cuda'; " . ordered($several, 'large'));
	like($stderr, qr/ERROR:  .*gpusort engine "cuda"/s, "$plan: an error if gpusort.engine is cuda");
	nothing_is_held($node, "$plan, gpusort.engine is cuda");
}

#
# The service ends, or the backend is stopped, while the device sorts or the backend gathers
#
my ($out, $err, $psql);
foreach my $order ($several, 'few, word COLLATE "en-x-icu", id')
{
	my $from = $order eq $several ? 'large' : 'small';
	my $expected = right($order, $from);
	restart_with($node, limit => '8GB');
	hold_device($node, 'download');
	$psql = in_background($node, \$out, \$err, ordered($order, $from), $last);
	ok(poll_trace($node, 'sort 1'), 'the device sorts');
	kill 'TERM', service_pids($node);
	$psql->finish;
	is($out, "$expected\ncpu|The GPU service was shut down.\n", "service terminated: ORDER BY $order");
	nothing_is_held($node, 'service terminated');
}

# one row arrives late, when the backend has gathered all others
{
	restart_with($node, limit => '8GB');
	$node->safe_psql('postgres', 'SELECT * FROM gpusort_status()');
	hold($node, 1);
	my $from = "(SELECT * FROM large UNION ALL SELECT id, 0, 0::smallint, 0, NULL FROM (@{[late_row(1)]}) AS l (id)) AS u";
	$psql = in_background($node, \$out, \$err, ordered($several, $from), $last);
	ok($node->poll_query_until('postgres', waits_for(1)), 'a backend gathers');
	kill 'TERM', service_pids($node);
	ok(poll_services($node, 0), 'the service ends meanwhile');
	let_go($node, 1);
	$psql->finish;
	is($out, right($several, $from) . "\ncuda|\n", 'service terminated while a backend gathers: the next one sorts');
	nothing_is_held($node, 'service terminated while a backend gathers');
}
foreach my $how ('pg_cancel_backend', 'pg_terminate_backend')
{
	restart_with($node, limit => '8GB', slow => 2000);
	$psql = in_background($node, \$out, \$err, ordered($several, 'large'), $last);
	ok(poll_trace($node, 'sort 1'), 'the device sorts');
	$node->safe_psql('postgres', "SELECT $how(pid) FROM pg_stat_activity WHERE query LIKE '%ORDER BY few%' AND pid <> pg_backend_pid()");
	$psql->finish;
	like($err, qr/canceling statement|terminating connection/, "$how ends a sort on the device");
	nothing_is_held($node, $how);
}
$node->stop;

done_testing();
