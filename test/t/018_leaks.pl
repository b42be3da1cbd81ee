# No query leaks.  Each kind of query runs RUNS times in one session, after RUNS / 4
# times to warm up, and the session is measured before, in the middle and after.
# Caches grow and shrink, but a leak grows in both halves.
#
#   contexts    bytes in use in all memory contexts, from palloc
#   anonymous   bytes of touched private memory: malloc'ed, mmap'ed, or kept by contexts
#   data        bytes of mapped private memory, from the same sources
#   files       open file descriptors
#   maps        mappings of memory
#   temporary   temporary files
#   service_*   anonymous, data, files and maps of the GPU service, if there is one
#   active      sorts in gpusort_activity
#
# A query that leaks one allocation leaks at least 16 bytes each time, so contexts may
# grow by half of that.  The memory that malloc gets from the kernel varies by some
# pages: with a limit of 64 kB per half, a leak below 128 bytes per query goes
# unnoticed if RUNS is 1,000.
#
#   RUNS=n               1000 by default
#   SETTINGS="a=1 b=2"   more settings for the server, such as another engine

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $runs = $ENV{RUNS} // 1000;

my $node = new_node('leaks', order_by => 1, settings => <<'CONF');
gpusort.min_rows = 100
gpusort.service_idle_timeout = 0
autovacuum = off
client_min_messages = error
log_statement = none
log_min_error_statement = panic
CONF
$node->start;

$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION gpusort;
CREATE TABLE t AS SELECT CASE WHEN i % 11 > 0 THEN i * 7919 % 1009 END AS k, i * 31 % 97 / 8.0::float8 AS f,
  repeat('the first bytes are all the same ', 2) || i * 7919 % 1009 AS tied, (i % 13)::numeric / 7 * 1e20 AS n, i
FROM generate_series(1, 300) i;
CREATE TABLE wide AS SELECT i * 7919 % 10007 AS k, (repeat('x', 100) || i * 7919 % 1009) COLLATE "C" AS filler FROM generate_series(1, 1500) i;
CREATE TABLE arrays AS SELECT array_agg(k) AS k, array_agg(f) AS f, array_agg(i::int2) AS i FROM t;
CREATE FUNCTION fails_at(n int, at int) RETURNS int LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
	IF n = at THEN RAISE 'fails'; END IF;
	RETURN n;
END $$;
CREATE PROCEDURE catches(query text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE query;
	RAISE SQLSTATE 'XX000' USING MESSAGE = 'should have failed';
EXCEPTION WHEN raise_exception THEN
	NULL;
END $$;

CREATE TABLE measured (kind text, turn int, contexts bigint, anonymous bigint, data bigint, files bigint, maps bigint, temporary bigint,
  service_anonymous bigint, service_data bigint, service_files bigint, service_maps bigint, active bigint);
CREATE FUNCTION bytes_of(process text, file text, line text) RETURNS bigint LANGUAGE sql AS $$
SELECT substring(pg_read_file('/proc/' || process || '/' || file) FROM line || ':\s*(\d+) kB')::bigint * 1024 $$;
CREATE FUNCTION files_of(process text) RETURNS bigint LANGUAGE sql AS $$
SELECT count(*) FROM pg_ls_dir('/proc/' || process || '/fd') WHERE process IS NOT NULL $$;
CREATE FUNCTION maps_of(process text) RETURNS bigint LANGUAGE sql AS $$
SELECT count(*) FROM regexp_split_to_table(pg_read_file('/proc/' || process || '/maps'), '\n') $$;
-- the GPU service lets go of files that a session has dropped within a second, so this waits for that
CREATE PROCEDURE measure(kind text, turn int) LANGUAGE plpgsql AS $$
DECLARE
	service text;
BEGIN
	SELECT max(nullif(service_pid, 0)) INTO service FROM gpusort_status();
	FOR i IN 1 .. 150 LOOP
		EXIT WHEN coalesce(maps_of(service) <= (SELECT coalesce(min(service_maps), 0) + 8 FROM measured), true);
		PERFORM pg_sleep(0.01);
	END LOOP;
	INSERT INTO measured SELECT kind, turn, (SELECT sum(used_bytes) FROM pg_backend_memory_contexts),
	  bytes_of('self', 'smaps_rollup', 'Anonymous'), bytes_of('self', 'status', 'VmData'),
	  files_of('self'), maps_of('self'), (SELECT count(*) FROM pg_ls_tmpdir()),
	  bytes_of(service, 'smaps_rollup', 'Anonymous'), bytes_of(service, 'status', 'VmData'),
	  files_of(service), maps_of(service), (SELECT count(*) FROM gpusort_activity);
END $$;
VACUUM ANALYZE;
SQL

# \; sends several statements as one message, which is one transaction outside of a block
my @kinds = (
	[ 'rows', 'SELECT * FROM t ORDER BY k, f;' ],
	[ 'values', 'SELECT i FROM t ORDER BY i DESC;' ],
	[ 'ties', 'SELECT * FROM t ORDER BY tied COLLATE "C", n;' ],
	[ 'core sorts', 'SELECT * FROM t ORDER BY ARRAY[k];' ],
	[ 'bounded', 'SELECT * FROM t ORDER BY k, i LIMIT 10;' ],
	[ 'sorted again', 'SELECT o.x, s.* FROM generate_series(1, 4) o(x), LATERAL (SELECT * FROM t WHERE i % 5 <> x ORDER BY f OFFSET 1) s;' ],
	[ 'merge joins', 'SELECT a.i FROM t a JOIN t b USING (k);', 'SET enable_hashjoin = off; SET enable_nestloop = off;' ],
	[ 'windows', 'SELECT DISTINCT rank() OVER (PARTITION BY f ORDER BY k), n FROM t ORDER BY n;' ],
	[ 'spilled', 'SELECT * FROM wide ORDER BY k, filler;', "SET gpusort.memory_limit = '64kB';" ],
	[ 'spilled, bounded', 'SELECT * FROM wide ORDER BY k, filler LIMIT 1400;', "SET gpusort.memory_limit = '64kB';" ],
	[ 'spilled, closed early', 'BEGIN\; DECLARE c NO SCROLL CURSOR FOR SELECT * FROM wide ORDER BY k\; FETCH 7 FROM c\; CLOSE c\; COMMIT;',
		"SET gpusort.memory_limit = '64kB';" ],
	[ 'handed to core', 'BEGIN\; DECLARE c SCROLL CURSOR FOR SELECT * FROM wide ORDER BY k\; FETCH 7 FROM c\; CLOSE c\; COMMIT;',
		"SET gpusort.memory_limit = '64kB';" ],
	[ 'closed early', 'BEGIN\; DECLARE c CURSOR FOR SELECT * FROM t ORDER BY k\; FETCH 7 FROM c\; CLOSE c\; COMMIT;' ],
	[ 'left open', 'BEGIN\; DECLARE c CURSOR FOR SELECT * FROM t ORDER BY k\; FETCH 7 FROM c\; COMMIT;' ],
	[ 'rolled back', 'BEGIN\; SAVEPOINT s\; DECLARE c NO SCROLL CURSOR FOR SELECT * FROM wide ORDER BY k\; FETCH 7 FROM c\; ROLLBACK TO s\; COMMIT;',
		"SET gpusort.memory_limit = '64kB';" ],
	[ 'back and forth', 'BEGIN\; DECLARE c SCROLL CURSOR FOR SELECT * FROM t ORDER BY k\; FETCH 9 FROM c\; FETCH -5 FROM c\; '
		  . 'FETCH LAST FROM c\; FETCH ABSOLUTE 3 FROM c\; COMMIT;' ],
	[ 'held', 'BEGIN\; DECLARE c CURSOR WITH HOLD FOR SELECT * FROM t ORDER BY k\; COMMIT\; FETCH 7 FROM c\; CLOSE c;' ],
	[ 'prepared', 'EXECUTE p(5);', 'PREPARE p(int) AS SELECT * FROM t WHERE i <> $1 ORDER BY k DESC;' ],
	[ 'the child fails', "CALL catches('SELECT fails_at(i, 200), f FROM t ORDER BY 1, 2');" ],
	[ 'the child of values fails', "CALL catches('SELECT fails_at(i, 200) FROM t ORDER BY 1');" ],
	[ 'fails when spilled', q{CALL catches('SELECT fails_at(k, 3463), filler FROM wide ORDER BY 1, 2');},
		"SET gpusort.memory_limit = '64kB';" ],
	[ 'fails while returning', q{CALL catches('SELECT fails_at(i, 200) FROM (SELECT * FROM t ORDER BY k OFFSET 0) s');} ],
	[ 'uncaught', 'SELECT fails_at(i, 200), f FROM t ORDER BY 1, 2;' ],
	[ 'arrays', 'SELECT gpu_sort(k), gpu_sort(f, true), gpu_argsort(i), gpu_argsort(k, false, true) FROM arrays;' ],
	[ 'aggregates', 'SELECT gpu_sort_agg(k), gpu_sort_agg(f), gpu_sort_agg(i::int2) FROM t;' ],
	[ 'percentiles', 'SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY k), percentile_cont(ARRAY[0.1, NULL]) WITHIN GROUP (ORDER BY f) FROM t;' ],
	[ 'percentiles of many rows', 'SELECT percentile_cont(ARRAY[0.1, 0.9]) WITHIN GROUP (ORDER BY i) FROM generate_series(1, 150000) i;' ],
	[ 'aggregates that sort', 'SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY i), count(DISTINCT k), array_agg(f ORDER BY k) FROM t;' ],
	[ 'aggregates of groups', 'SELECT f, gpu_sort_agg(k) FROM t GROUP BY f;' ],
	[ 'aggregates that fail', q{CALL catches('SELECT gpu_sort_agg(fails_at(i, 200)) FROM t');} ],
	[ 'fed by workers', 'SELECT * FROM t ORDER BY k, f;', 'SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; '
		  . 'SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET gpusort.force = on;' ],
	[ 'workers that fail', q{CALL catches('SELECT fails_at(i, 200), k FROM t ORDER BY k');}, 'SET max_parallel_workers_per_gather = 2; '
		  . 'SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET gpusort.force = on;' ],
	[ 'explained', 'EXPLAIN (ANALYZE) SELECT * FROM t ORDER BY k;' ],
	[ 'inspected', 'SELECT * FROM gpusort_last_sort(), gpusort_stat, gpusort_stat_reasons, gpusort_status() LEFT JOIN gpusort_activity ON true;' ]);

my $half = int($runs / 2);
my $warm_up = int($runs / 4) + 1;
my $script = PostgreSQL::Test::Utils::tempdir() . '/script.sql';
my $measure = "CALL measure('%s', %d);\n";
my $sql = "\\o /dev/null\n" . sprintf($measure, 'begin', 0) x 20;
foreach my $kind (@kinds)
{
	my ($name, $query, $settings) = (@$kind, '');

	$sql .= "$settings\n" . "$query\n" x $warm_up . sprintf($measure, $name, 0) . sprintf($measure, $name, 1)
	  . ("$query\n" x $half . sprintf($measure, $name, 2)) . ("$query\n" x $half . sprintf($measure, $name, 3)) . "RESET ALL;\n";
}
append_to_file($script, $sql);
my ($rc, $stdout, $stderr) = $node->psql('postgres', "\\i $script", on_error_stop => 0);
my @errors = grep { /ERROR/ } split /\n/, $stderr;
is(scalar(grep { !/ERROR:  fails$/ } @errors), 0, 'there are only the expected errors') or diag(@errors > 5 ? @errors[ 0 .. 4 ] : @errors);
is(scalar(@errors), $warm_up + 2 * $half, 'each expected error came');

# GpuSort must have done the sorts, or nothing was tested
my $sorts = $node->safe_psql('postgres', q(SELECT sum(CASE engine WHEN 'core' THEN -count ELSE count END) FROM gpusort_stat WHERE kind = 'sort'));
cmp_ok($sorts, '>', 15 * $runs, 'GpuSort did the sorts');
like($node->safe_psql('postgres', 'SELECT bool_and(contexts > 0 AND anonymous > 0 AND data > 0 AND files > 0), count(service_data) > 0 FROM measured'),
	($ENV{SETTINGS} // '') =~ /engine=cuda/ ? qr/^t\|t$/ : qr/^t\|/, 'everything was measured');
cmp_ok($node->safe_psql('postgres', "SELECT temp_files FROM pg_stat_database WHERE datname = 'postgres'"), '>=', 5 * $runs, 'sorts spilled');

my %allowed = (contexts => 4 * $runs, anonymous => 65536, data => 65536, files => 4, maps => 8, temporary => 0, service_anonymous => 65536,
	service_data => 65536, service_files => 4, service_maps => 8, active => 0);
my @columns = sort keys %allowed;
foreach my $kind (@kinds)
{
	my ($name) = @$kind;
	my @grown = split /\|/, $node->safe_psql('postgres', 'SELECT ' . join(', ', map { "coalesce(least(b.$_ - a.$_, c.$_ - b.$_), 0)" } @columns)
		  . " FROM measured a JOIN measured b USING (kind) JOIN measured c USING (kind) "
		  . "WHERE kind = '$name' AND a.turn = 1 AND b.turn = 2 AND c.turn = 3");
	my @too_much = map { "$columns[$_] by $grown[$_]" } grep { $grown[$_] > $allowed{ $columns[$_] } } 0 .. $#columns;

	note("$name: ", join ', ', map { "$columns[$_] $grown[$_]" } 0 .. $#columns);
	ok(@grown == @columns && !@too_much, "$name: nothing leaks") or diag("$name, $runs times: ", join ', ', @too_much);
}
is($node->safe_psql('postgres', 'SELECT max(active), max(temporary) FROM measured'), '0|0', 'no activity and no temporary file is left');
nothing_is_held($node, 'at the end');
nothing_is_mapped($node, 'at the end');
end_session($node);
unlike(slurp_file($node->logfile), qr/WARNING:  (?!gpusort sorts on the CPU)|leaked|PANIC|TRAP/, 'the log has no warning, except that there may be no device');

$node->stop;
done_testing();
