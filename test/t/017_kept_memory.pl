# A session keeps the memory of a sort for ten seconds, for its next sort.  After that
# it gives the memory back, even if the session is idle or had errors.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# Each sort here takes at least 40 MB, and afterwards a session may have 8 MB more than before.
my $sort_kb = 40 * 1024;
my $slack_kb = 8 * 1024;

my $node = new_node('kept', order_by => 1, settings => "gpusort.min_rows = 0\ngpusort.memory_limit = '1GB'\ngpusort.engine = cpu\n");
$node->start;
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION gpusort;
CREATE TABLE t AS SELECT hashint4(i) AS k, repeat('x', 80) AS filler FROM generate_series(1, 400000) i;
CREATE TABLE few AS SELECT * FROM t LIMIT 1000;
CREATE TABLE arrays AS SELECT array_agg(hashint8extended(i, 0)) AS a FROM generate_series(1, 6000000) i;
VACUUM ANALYZE;
-- the private memory of this session in kB
CREATE FUNCTION own_kb() RETURNS int LANGUAGE sql AS $$
SELECT substring(pg_read_file('/proc/self/status') FROM 'RssAnon:\s*(\d+) kB')::int $$;
CREATE FUNCTION sorts(source regclass, OUT rows bigint, OUT kb_afterwards int) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('SELECT count(filler) FROM (SELECT * FROM %s ORDER BY k OFFSET 0) s', source) INTO rows;
	kb_afterwards := own_kb();
END $$;
SQL

my $session = $node->background_psql('postgres', on_error_stop => 0);
$session->set_query_timer_restart;
my $pid = $session->query_safe('SELECT pg_backend_pid()');

sub own_kb
{
	return slurp_file("/proc/$pid/status") =~ /^RssAnon:\s*(\d+) kB/m ? $1 : die 'no RssAnon';
}

# fill the caches
$session->query_safe('SELECT sorts(\'few\')');
$session->query_safe('SELECT cardinality(gpu_argsort(array_agg(k))) FROM few');
my $before = own_kb();

# Runs statements after which the session keeps memory, and waits until it is given back.
sub gives_back
{
	my ($name, @statements) = @_;
	my $sorted = shift @statements;
	$session->query($_) foreach @$sorted;
	my $kept = own_kb();
	$session->query($_) foreach @statements;
	cmp_ok($kept, '>=', $before + $sort_kb, "$name: memory is kept");
	ok(poll_until(sub { return own_kb() <= $before + $slack_kb; }), "$name: the idle session gives it back")
	  or diag("$before kB before, " . own_kb() . ' now');
	return;
}

# sorts and measures in one statement, because the session gives memory back as time passes
my ($rows, $kb) = split /\|/, $session->query_safe('SELECT * FROM sorts(\'t\')');
is($rows, 400000, 'a sort of 400,000 rows');
cmp_ok($kb, '>=', $before + $sort_kb, 'the memory of a sort is kept');

gives_back('errors outside of transactions', ["SELECT sorts('t')"], 'SELECT 1 / 0', 'syntax error');
gives_back('an error, then another in a failed transaction', ['BEGIN', "SELECT sorts('t')"], 'SELECT 1 / 0', 'SELECT 1', 'ROLLBACK');
gives_back('a savepoint', ['BEGIN', 'SAVEPOINT s', "SELECT sorts('t')"], 'SELECT 1 / 0', 'ROLLBACK TO s', 'COMMIT');
gives_back('an error while rows are returned',
	['SELECT count(filler), count(CASE WHEN row_number = 300000 THEN 1 / (k - k) END) FROM (SELECT k, filler, row_number() OVER () FROM (SELECT * FROM t ORDER BY k OFFSET 0) s) s']);
is(scalar(() = $session->{stderr} =~ /division by zero/g), 4, 'four of the statements failed as expected');
$session->{stderr} = '';
gives_back('an array', ['SELECT cardinality(gpu_argsort(a)) FROM arrays']);

is($session->query_safe('SELECT rows FROM sorts(\'t\')'), 400000, 'the session can sort again');

# what parallel workers have filled is kept in the leader's files, and filled again
sub shared_files
{
	return sort map { (stat $_)[1] } grep { (readlink($_) // '') =~ /memfd:gpusort/ } glob "/proc/$pid/fd/*";
}
$session->query_safe("SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET parallel_leader_participation = off");
my $parallel = 'SELECT count(filler) FROM (SELECT * FROM t ORDER BY k OFFSET 0) s';
like($session->query_safe("EXPLAIN (COSTS OFF) $parallel"), qr/GpuSort Feed/, 'workers feed a sort');
is($session->query_safe($parallel), 400000, 'a parallel sort');
my @first = shared_files();
is($session->query_safe($parallel), 400000, 'another one');
my @second = shared_files();
cmp_ok(scalar(@first), '>', 0, 'the session keeps what workers have filled');
is("@second", "@first", 'the next workers fill it again');
like(slurp_file("/proc/$pid/smaps"), qr/memfd:gpusort[^\/]*?VmFlags:[^\n]* dd /s, 'a core file would not have it');
$session->query('SELECT 1 / 0');
ok(poll_until(sub { return !shared_files(); }), 'the idle session gives it back');
$session->{stderr} = '';
$session->quit;

# in new sessions, because malloc keeps the server's second result of 24 MB
my %kept;
foreach my $limit ('1MB', '1GB')
{
	$kept{$limit} = $node->safe_psql('postgres', <<"SQL");
SET gpusort.memory_limit = '$limit';
SELECT NULL FROM arrays WHERE gpu_argsort(a) IS NULL;
SELECT own_kb();
SQL
}
cmp_ok($kept{'1GB'} - $kept{'1MB'}, '>=', $sort_kb, 'a session keeps no more than gpusort.memory_limit');

# kept memory is in no memory context, but the memory of an aggregate must be
my $plan = $node->safe_psql('postgres', <<'SQL');
SET work_mem = '8MB';
SET hash_mem_multiplier = 1;
SET enable_sort = off;
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF)
SELECT g, cardinality(gpu_sort_agg(v)) FROM (SELECT i / 600000 AS g, hashint8extended(i, 0) AS v FROM generate_series(0, 2399999) i) s GROUP BY g;
SQL
like($plan, qr/HashAggregate.*Batches: [2-9]/s, 'core sees how much memory aggregates take');

$node->stop;
done_testing();
