# Threads copy the rows of a large result ahead of the backend (node/result.c).  Whatever
# their number, and wherever the result is read, the rows and their order are core's:
# rows of all widths, also those that are not copied; cursors in both directions, merge
# joins, LIMIT, results in several blocks; after a cancel; and without a thread.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $processors = `getconf _NPROCESSORS_ONLN`;
plan skip_all => 'one processor: every sort has one thread' if $processors < 2;

my $node = new_node('drain', order_by => 1, settings => <<'CONF');
gpusort.engine = cpu
gpusort.memory_limit = 1GB
work_mem = 1GB
min_parallel_table_scan_size = 1TB
CONF
restart_with($node, limit => '8GB');

# 700,000 rows of about 220 bytes.  One in 50 is not copied.  Every third key is that of the row before.
# OFFSET 0, so that the rows are made before they are sorted.
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION gpusort;
CREATE TABLE numbers AS SELECT i AS id, hashint4(i - (i % 3) / 2) AS k FROM generate_series(1, 700000) AS i;
CREATE VIEW t AS SELECT id, k, CASE
	WHEN id % 70000 = 7 THEN repeat('w', 100000 - id % 1000)
	WHEN id % 50 = 3 THEN repeat('x', 1000 + id % 500)
	WHEN id % 11 = 5 THEN NULL
	WHEN id % 7 = 0 THEN ''
	ELSE repeat(chr(97 + id % 26), 100 + id % 150) END AS pad FROM numbers OFFSET 0;
VACUUM ANALYZE numbers;
SQL

# A query for two numbers that depend on the sequence of rows of $query and on their contents.
sub numbers_of
{
	my ($query) = @_;
	return 'SELECT sum(hashint8extended(id, place)::numeric), sum(hashtextextended(pad, place)::numeric) '
	  . "FROM (SELECT id, pad, row_number() OVER () AS place FROM ($query) AS s) AS s";
}

my $merge_join = 'SET enable_hashjoin = off; SET enable_nestloop = off; SELECT count(*), '
  . 'sum(hashint8extended(a.id, b.id)::numeric), sum(hashtextextended(b.pad, a.id)::numeric) '
  . 'FROM (SELECT id, k FROM numbers WHERE id % 4 > 0) AS a JOIN t AS b ON a.k = b.k';

# positions within windows, at their ends and beyond; the result is read again in part
my $cursor = 'BEGIN; DECLARE c SCROLL CURSOR FOR SELECT id, k, pad FROM t ORDER BY k, id; '
  . join(' ', map { "$_ FROM c;" } 'FETCH 10', 'MOVE 4080', 'FETCH 20', 'MOVE 4070', 'FETCH BACKWARD 10', 'FETCH 30',
	'MOVE BACKWARD 6000', 'FETCH 5', 'MOVE 300000', 'FETCH 5', 'MOVE BACKWARD ALL', 'FETCH 5', 'MOVE 50000', 'FETCH 5',
	'FETCH ABSOLUTE 8193', 'FETCH RELATIVE -1', 'MOVE ABSOLUTE 0', 'FETCH 4100', 'MOVE FORWARD ALL', 'FETCH BACKWARD 5', 'FETCH 5',
	'FETCH ABSOLUTE -20000', 'FETCH 3') . ' COMMIT';

# Values that are made for the sort.  With only what is in pad, too few bytes for windows.
my $single = q(SELECT pad || repeat('y', 40) AS pad FROM t ORDER BY 1);

my @cases = (
	[ 'all rows', numbers_of('SELECT * FROM t ORDER BY k, id') ],
	[ 'descending, with ties', numbers_of('SELECT * FROM t ORDER BY k DESC, pad, id') ],
	[ 'rows of a single column', 'SELECT sum(hashtextextended(pad, place)::numeric), count(pad) FROM '
		  . "(SELECT pad, row_number() OVER () AS place FROM ($single) AS s) AS s" ],
	[ 'LIMIT', numbers_of('SELECT * FROM t ORDER BY k, id LIMIT 690000') ],
	[ 'a nested loop that rewinds the result', numbers_of('SELECT s.* FROM (VALUES (1), (2)) AS v (i), LATERAL (SELECT * FROM t ORDER BY k, id) AS s') ],
	[ 'merge join', $merge_join ],
	[ 'cursor', $cursor ]);

# A sort gets one thread more than a query may have workers.  No plan here is parallel.
sub with_workers
{
	my ($workers, $query) = @_;
	return "SET max_parallel_workers_per_gather = $workers; $query";
}

my $all_rows;
foreach my $case (@cases)
{
	my ($name, $query) = @$case;
	my $right = $node->safe_psql('postgres', "SET gpusort.enabled = off; $query");
	$all_rows = $right if $name eq 'all rows';
	foreach my $threads ($name eq 'all rows' ? (1, 2, 4) : 4)
	{
		ok($node->safe_psql('postgres', with_workers($threads - 1, $query)) eq $right,
			"$name, up to $threads threads: core's rows in core's order");
	}
}

# EXPLAIN shows the threads
my $explain = "EXPLAIN (ANALYZE, COSTS OFF) SELECT * FROM t ORDER BY k, id";
like($node->safe_psql('postgres', with_workers(1, $explain)), qr/Return Time: .*\n *Return Threads: 2\n/, 'EXPLAIN ANALYZE shows the threads');
like($node->safe_psql('postgres', with_workers(1, "EXPLAIN (ANALYZE, COSTS OFF) $single")), qr/Return Threads: 2\n/, 'and of rows of a single column');
unlike($node->safe_psql('postgres', with_workers(0, $explain)), qr/Return Threads/, 'none with one thread');
unlike($node->safe_psql('postgres', with_workers(1, "$explain LIMIT 100")), qr/Return Threads/, 'none for a few rows');
unlike($node->safe_psql('postgres', with_workers(1, $explain =~ s/ANALYZE/ANALYZE, TIMING OFF/r)), qr/Return Threads/, 'and not without TIMING');

# a cancel in the middle of the result gives the threads back
my ($stdout, $stderr);
my $psql = in_background($node, \$stdout, \$stderr, 'SET max_parallel_workers_per_gather = 1',
	'SELECT count(pg_sleep(CASE WHEN place = 300000 THEN 1000 ELSE 0 END)) FROM '
	  . '(SELECT row_number() OVER () AS place FROM (SELECT * FROM t ORDER BY k, id) AS s OFFSET 0) AS s WHERE place = 300000',
	numbers_of('SELECT * FROM t ORDER BY k, id'));
ok(poll($node, "SELECT count(pg_cancel_backend(pid)) = 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"), 'a query is cancelled');
$psql->finish;
like($stderr, qr/canceling statement/, 'the cancel arrives');
chomp $stdout;
is($stdout, $all_rows, 'the next query returns all rows');
my $used = q{SELECT substring(detail FROM '(\d+) of \d+ extra threads') FROM gpusort_status() WHERE engine = 'cpu'};
is(ask($node, $used), 0, 'no thread is in use');

# another session, stopped in the middle of a sort, has the one thread that this one may have
$psql = in_background($node, \$stdout, \$stderr, 'SET max_parallel_workers_per_gather = 1',
	'DO $$ DECLARE a int[] := ARRAY(SELECT k FROM numbers); BEGIN LOOP PERFORM gpu_sort(a); END LOOP; END $$');
my $sorting = "application_name = 'background' AND query LIKE 'DO %'";
ok(poll($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE $sorting"), 'another session sorts');
my $pid = ask($node, "SELECT pid FROM pg_stat_activity WHERE $sorting");
ok( poll_until(
		sub {
			kill 'STOP', $pid;
			return 1 if ask($node, $used) == 1;
			kill 'CONT', $pid;
			usleep(1000 * rand(10));
			return 0;
		}),
	'it is stopped while it uses a thread');
is($node->safe_psql('postgres', 'SET max_parallel_workers = 1; ' . with_workers(1, $cases[0][1])), $all_rows,
	'without a thread: all rows');
unlike($node->safe_psql('postgres', 'SET max_parallel_workers = 1; ' . with_workers(1, $explain)), qr/Return Threads/,
	'EXPLAIN ANALYZE shows that no threads copied them');
kill 'CONT', $pid;
ask($node, "SELECT pg_cancel_backend($pid)");
$psql->finish;

# the device has sorted, and has no memory to put the rows in order
SKIP:
{
	skip 'this build has no stand-in device', 1
	  if ask($node, "SELECT count(*) FROM gpusort_status() WHERE device = 'stand-in device'") != 1;

	ask($node, 'CREATE TABLE many AS SELECT i AS id, hashint8(i) AS k FROM generate_series(1, 4500000::bigint) AS i');
	my $query = order_number('SELECT id, k FROM many ORDER BY k, id');
	my $settings = "SET gpusort.engine = cuda; SET gpusort.fault = 'arrange:1+:no_memory'";
	is( $node->safe_psql('postgres', with_workers(1, "$settings; $query")),
		$node->safe_psql('postgres', "SET gpusort.enabled = off; $query"),
		'sorted by the device: core\'s order');
}

end_session($node);
$node->stop;
done_testing();
