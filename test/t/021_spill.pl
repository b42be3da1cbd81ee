# The store of a sort's rows (src/store/rowstore.c), called by test/spill/rowstore_test.c: each
# row is found by its number, after rows of other sizes and after others were removed.
# Spilled runs and their merge (src/store/spill.c), called by test/spill/spill_test.c:
# rows of any size come back in a stable order, temporary files obey the settings, and
# no file is left after a merge that ends, fails or is cancelled.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $module = built_file('spill_test.so');

my $node = new_node('spill');
$node->start;
$node->safe_psql('postgres', <<"SQL");
CREATE FUNCTION spill_check(rows bigint, words integer, kind text, tuple_bytes_max integer, runs integer, memory_kb integer, seed bigint, lossy boolean)
RETURNS text AS '$module' LANGUAGE C STRICT;
CREATE FUNCTION rowstore_random(seed integer) RETURNS bigint AS '$module' LANGUAGE C STRICT;
CREATE FUNCTION spill_cancel(step text) RETURNS void AS '$module' LANGUAGE C STRICT;
CREATE FUNCTION spill_bench(rows bigint, words integer, tuple_bytes integer, runs integer, memory_kb integer,
  OUT write_ns float8, OUT merge_ns float8, OUT write_mb_s float8) AS '$module' LANGUAGE C STRICT;
SQL

sub is_empty
{
	my ($name) = @_;
	is($node->safe_psql('postgres', 'SELECT count(*) FROM pg_ls_tmpdir()'), '0', "$name: no temporary file is left");
}

foreach my $first (1, 101, 201)
{
	my ($rc, $compared, $stderr) = $node->psql('postgres', "SELECT sum(rowstore_random(seed)) > 100000 FROM generate_series($first, $first + 29) AS seed");
	is("$compared$stderr", 't', "the store finds the rows of random sizes, seeds from $first");
}

# rows, words of a key, their kind, longest tuple, runs, memory in kB, lossy, and the result with the runs that are not empty
foreach my $case (
	[ 20000, 1, 'few', 0, 1, 64, 'f', '1 runs, no waste, not compared, none encoded', 'one run of words' ],
	[ 20000, 1, 'few', 0, 3, 64, 'f', '2 runs, no waste, not compared, none encoded', 'words' ],
	[ 20000, 1, 'wide', 0, 40, 64, 'f', '39 runs, no waste, not compared, none encoded', 'wide words, more runs than buffers' ],
	[ 20000, 1, 'few', 60, 4, 64, 'f', '3 runs, no waste, not compared, none encoded', 'tuples' ],
	[ 20000, 1, 'few', 60, 1, 64, 't', '1 runs, no waste, not compared, most encoded', 'one run of tuples with equal words' ],
	[ 20000, 1, 'few', 60, 4, 64, 't', '3 runs, no waste, compared, most encoded', 'tuples, lossy words' ],
	[ 20000, 1, 'wide', 60, 4, 64, 'f', '3 runs, no waste, not compared, none encoded', 'tuples, wide words, not adapted' ],
	[ 20000, 1, 'wide adapted', 60, 4, 64, 't', '3 runs, no waste, compared, some encoded', 'tuples, wide words, lossy, adapted' ],
	[ 20000, 16, 'few', 60, 40, 64, 't', '39 runs, no waste, not compared, most encoded', 'the most words, more runs than buffers' ],
	[ 20000, 16, 'wide adapted', 60, 40, 64, 'f', '39 runs, no waste, not compared, some encoded', 'the most words, wide, adapted' ],
	[ 20000, 2, 'late', 100, 9, 64, 'f', '8 runs, no waste, not compared, most encoded', 'the second word decides' ],
	[ 20000, 2, 'late adapted', 100, 9, 64, 'f', '8 runs, no waste, not compared, some encoded', 'the second word decides, adapted' ],
	[ 20000, 3, 'late adapted', 100, 100, 64, 't', '99 runs, no waste, compared, some encoded', 'the second word decides, adapted, lossy, more runs than buffers' ],
	[ 20000, 2, 'few adapted', 500, 26, 64, 't', '25 runs, no waste, compared, most encoded', 'a buffer for each run, little memory' ],
	[ 20000, 2, 'few', 500, 34, 64, 't', '33 runs, no waste, compared, most encoded', 'a few runs more than buffers' ],
	[ 100000, 2, 'few', 200, 250, 8192, 't', '249 runs, no waste, compared, most encoded', 'a buffer for each run' ],
	[ 20000, 2, 'few', 200, 1000, 16384, 't', 'R runs, no waste, compared, most encoded', 'more runs than are merged at once' ],
	[ 100000, 1, 'few', 100, 1000, 64, 't', '999 runs, no waste, compared, most encoded', '1000 runs in 64 kB' ],
	[ 100000, 2, 'wide adapted', 100, 1000, 64, 'f', '999 runs, no waste, not compared, some encoded', '1000 runs in 64 kB, adapted' ],
	[ 500, 1, 'few', 100, 1000, 64, 'f', 'R runs, no waste, not compared, none encoded', 'runs of one row and of none' ],
	[ 3000, 2, 'few', 50000, 10, 64, 't', '9 runs, no waste, compared, most encoded', 'tuples longer than an extent' ],
	[ 300, 1, 'few', 5000000, 10, 64, 'f', '9 runs, no waste, not compared, none encoded', 'tuples longer than all memory' ],
	[ 20000, 1, 'few bare', 60, 4, 64, 't', '3 runs, no waste, compared, most encoded', 'bare rows, lossy words' ],
	[ 20000, 2, 'late adapted bare', 100, 100, 64, 't', '99 runs, no waste, compared, some encoded', 'bare rows, more runs than buffers' ],
	[ 3000, 2, 'few bare', 50000, 10, 64, 't', '9 runs, no waste, compared, most encoded', 'bare rows longer than an extent' ],
	[ 300, 1, 'few bare', 5000000, 10, 64, 'f', '9 runs, no waste, not compared, none encoded', 'bare rows longer than all memory' ],
	[ 2000, 1, 'few', 2060, 34, 64, 't', '33 runs, no waste, compared, most encoded', 'tuples about as long as an extent' ],
	[ 20000, 1, 'few', 60, 40, 0, 't', '39 runs, no waste, compared, most encoded', 'no memory' ])
{
	my ($rows, $words, $kind, $bytes, $runs, $memory, $lossy, $expected, $name) = @$case;
	my $wrong = 0;
	foreach my $seed (1 .. 3)
	{
		my ($rc, $got, $stderr) = $node->psql('postgres', "SELECT spill_check($rows, $words, '$kind', $bytes, $runs, $memory, $seed, '$lossy')");
		$got =~ s/^\d+/R/ if $expected =~ /^R/;
		$wrong++ if "$got$stderr" ne $expected;
		diag("$name, seed $seed: $got$stderr") if "$got$stderr" ne $expected;
	}
	is($wrong, 0, "merged in order: $name");
}
is_empty('after all these merges');

# the settings for temporary files
my ($rc, $stdout, $stderr) = $node->psql('postgres', "SET temp_file_limit = '1MB'; SELECT spill_check(100000, 1, 'few', 60, 10, 64, 1, false)");
like($stderr, qr/ERROR:  temporary file size exceeds "?temp_file_limit"? \(1024kB\)/, 'temp_file_limit ends a merge');
is_empty('temp_file_limit');
is( $node->safe_psql('postgres', <<'SQL'), '0', 'temp_file_limit in a subtransaction: no temporary file is left after it');
BEGIN;
DO LANGUAGE plpgsql $$
BEGIN
  SET LOCAL temp_file_limit = '1MB';
  PERFORM spill_check(100000, 1, 'few', 60, 10, 64, 1, false);
  RAISE 'no error';
EXCEPTION WHEN configuration_limit_exceeded THEN
END $$;
SELECT count(*) FROM pg_ls_tmpdir();
COMMIT;
SQL
is( $node->safe_psql('postgres', "SET temp_file_limit = '10MB'; SELECT spill_check(500000, 1, 'wide', 0, 250, 64, 1, false)"),
	'249 runs, no waste, not compared, none encoded', 'merging 250 runs of 4 MB in all, a few at a time, stays below 10 MB');

# rows of 7 to 8 bytes are written once as runs, and most runs once more in merges, which leave 20 of 244 runs
my ($written) = $node->safe_psql('postgres',
	'EXPLAIN (ANALYZE, BUFFERS, FORMAT YAML) SELECT spill_check(1000000, 1, \'wide\', 0, 244, 256, 1, false)') =~ /Temp Written Blocks: (\d+)/;
cmp_ok($written * 8192, '>', 1.7 * 7000000, 'runs are merged before the last merge');
cmp_ok($written * 8192, '<=', 2 * 8000000, 'the smallest runs are merged first');

my $tablespace = PostgreSQL::Test::Utils::tempdir();
$node->safe_psql('postgres', "CREATE TABLESPACE space LOCATION '$tablespace'");
$node->safe_psql('postgres', "SET temp_tablespaces = space; SET log_temp_files = 0; SELECT spill_check(20000, 1, 'few', 60, 10, 64, 1, false)");
like(slurp_file($node->logfile), qr{LOG:  temporary file: path "pg_tblspc/[^"]*/pgsql_tmp/[^"]*", size \d{6,}},
	'temp_tablespaces and log_temp_files apply');

# cancelled, at each step
foreach my $step ('write', 'merge', 'next')
{
	($rc, $stdout, $stderr) = $node->psql('postgres', "SELECT spill_cancel('$step')");
	like($stderr, qr/ERROR:  canceling statement due to user request/, "cancelled during $step");
	is_empty("cancelled during $step");
	is($node->safe_psql('postgres', <<"SQL"), '0', "cancelled during $step in a subtransaction: no temporary file is left");
BEGIN;
DO LANGUAGE plpgsql \$\$
BEGIN
  PERFORM spill_cancel('$step');
  RAISE 'no error';
EXCEPTION WHEN query_canceled THEN
END \$\$;
SELECT count(*) FROM pg_ls_tmpdir();
COMMIT;
SQL
}

# ORDER BY of these columns: the temporary files are no larger than those of core's sort of
# rows.  From PostgreSQL 16 on, core sorts a single column of a type that
# is passed by reference as values, and the file lacks the 6 bytes of each row's header.
my $queries = new_node('sizes', order_by => 1);
$queries->start;
my $sorts_values = $queries->safe_psql('postgres', 'SHOW server_version_num') >= 160000;
my %by_reference = map { $_ => 1 } qw(icu number word short url);
my $icu = icu_collation($queries, 'und-x-icu');
$queries->safe_psql('postgres', <<"SQL");
CREATE TABLE shapes AS SELECT i AS id, i % 2 = 0 AS flag, hashint4(i) AS k, hashint8extended(i, 1) AS wide,
  (hashint4(i) % 4)::int2 AS few, md5(i::text)::uuid AS u, md5((i + 1)::text)::uuid AS v, hashint4(i) / 1000.0 AS number,
  timestamp '2026-01-01' + hashint4(i) * interval '1 ms' AS at, CASE WHEN i % 3 = 0 THEN hashint8extended(i, 2) END AS sparse,
  md5(i::text) COLLATE "C" AS word, substr(md5(i::text), 1, 4) COLLATE "C" AS short,
  'https://www.example.com/' || md5(i::text) COLLATE "C" AS url,
  md5(i::text) COLLATE $icu AS icu FROM generate_series(1, 60000) AS i;
CREATE TABLE toasted (k integer, body bytea);
ALTER TABLE toasted ALTER body SET STORAGE EXTERNAL;
INSERT INTO toasted SELECT hashint4(i), decode(repeat(md5(i::text), 100), 'hex') FROM generate_series(1, 20000) AS i;
CREATE TABLE broad (k integer, tall text, huge text);
ALTER TABLE broad ALTER tall SET STORAGE PLAIN, ALTER huge SET STORAGE PLAIN;
INSERT INTO broad SELECT hashint4(i), repeat(md5(i::text), 31), repeat(md5(i::text), 200) FROM generate_series(1, 5000) AS i;
VACUUM ANALYZE;
SQL
foreach my $memory ('64kB', '128kB', '256kB', '512kB')
{
	foreach my $columns ('u, v', 'k, wide, word, at, few, flag', 'flag, few', 'k, few', 'id, k', 'wide', 'k', 'few, at', 'few, icu', 'icu',
		'number', 'word', 'short', 'short, flag', 'url', 'sparse, k', 'flag, sparse', 'k, body', 'body, k', 'k, tall', 'k, huge', 'huge, k', 'k, tall, huge')
	{
		my $from = $columns =~ /body/ ? 'toasted' : $columns =~ /tall|huge/ ? 'broad' : 'shapes';
		my $explain = "SET work_mem = '$memory'; EXPLAIN (ANALYZE, TIMING off, FORMAT JSON) SELECT $columns FROM $from ORDER BY $columns";
		my ($core) = $queries->safe_psql('postgres', "SET gpusort.enabled = off; $explain") =~ /"Sort Space Used": (\d+),\s+"Sort Space Type": "Disk"/;
		my ($ours) = $queries->safe_psql('postgres', $explain) =~ /"Disk": (\d+)/;
		# more rows fit in GpuSort's memory, if it has more than a little
		next if !defined $ours && $memory =~ /256|512/;
		if (!defined $core || !defined $ours)
		{
			fail("$columns, $memory: both sorts spill");
			next;
		}
		$core += 60000 * 6 / 1024 if $sorts_values && $by_reference{$columns};
		cmp_ok($ours, '<=', $core, "$columns, $memory: temporary files");
	}
}

# The same of parallel plans, and of CREATE INDEX, for which core keeps 8 bytes of each row and its columns, with padding.
sub files_of
{
	my ($settings, $statement) = @_;
	my $log = -s $queries->logfile;
	$queries->safe_psql('postgres', "SET log_temp_files = 0; $settings; $statement");
	# the leader repeats what a worker says
	my %files = slurp_file($queries->logfile, $log) =~ /temporary file: path "([^"]*)", size (\d+)/g;
	my $bytes = 0;
	$bytes += $_ foreach values %files;
	return $bytes;
}
sub compare_files
{
	my ($name, @statement) = @_;
	my $core = files_of("SET gpusort.enabled = off; $statement[0]", $statement[1]);
	my $ours = files_of(@statement);
	ok($ours > 0 && $ours <= $core, "$name: temporary files") or diag("$ours bytes, by core $core");
}
foreach my $workers (0, 2)
{
	$queries->safe_psql('postgres', "ALTER TABLE shapes SET (parallel_workers = $workers); ALTER TABLE broad SET (parallel_workers = $workers)");
	my $costs = "SET max_parallel_workers_per_gather = $workers; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0";
	foreach my $query ('SELECT k, id, url FROM shapes ORDER BY k', 'SELECT * FROM shapes ORDER BY word', 'SELECT * FROM broad ORDER BY k', 'SELECT k, tall FROM broad ORDER BY tall')
	{
		compare_files("$query, $workers workers", "SET work_mem = '64kB'; $costs", "SELECT count(*) FROM ($query OFFSET 0) s");
	}
	foreach my $memory ('1MB', '2MB')
	{
		compare_files("an index on $_, $memory, $workers workers", "SET maintenance_work_mem = '$memory'", "BEGIN; CREATE INDEX ON $_; ROLLBACK") foreach
		  map({ "shapes ($_)" } 'k, id', 'short', 'word', 'word, id', 'few, word', 'sparse, k', 'u, v', 'k) INCLUDE (word', '(url || url || url || url || url)'), 'broad (tall)', 'broad (tall, k)';
	}
}

# Aggregates that sort the rows of groups in several orders
compare_files("$_, two orders", "SET gpusort.force = off; SET work_mem = '128kB'; SET max_parallel_workers_per_gather = 0", "SELECT $_, array_agg(id ORDER BY k) FROM shapes GROUP BY id % 300")
  foreach 'array_agg(id ORDER BY id DESC)', 'count(DISTINCT k)';

# One integer is the key: codes are the whole order.
my $one_key = 'SELECT k, id, repeat(chr(97 + id % 26), 30) AS pad FROM numbers ORDER BY k';
$queries->safe_psql('postgres', <<'SQL');
CREATE TABLE numbers AS SELECT i AS id, hashint4(i) % 100000 AS k FROM generate_series(1, 300000) AS i;
VACUUM ANALYZE numbers;
SQL
my ($read, $wrote) = $queries->safe_psql('postgres', "SET work_mem = '512kB'; EXPLAIN (ANALYZE, BUFFERS, COSTS OFF) $one_key") =~ /temp read=(\d+) written=(\d+)/;
cmp_ok($read, '>=', $wrote, 'EXPLAIN counts what is read');

# a session that ends its sorts in all ways
my $session = session($queries);
my $pid = answer($session, 'SELECT pg_backend_pid()');
my $open_files = sub { return scalar grep { (readlink($_) // '') =~ /pgsql_tmp/ } glob("/proc/$pid/fd/*") };
answer($session, "SET work_mem = '512kB'; SELECT 1");
foreach my $end ('MOVE ALL FROM c', 'CLOSE c', 'ROLLBACK', 'SELECT 1 / 0')
{
	answer($session, "BEGIN; DECLARE c NO SCROLL CURSOR FOR $one_key");
	answer($session, 'MOVE 5000 FROM c; SAVEPOINT s; MOVE 1000 FROM c; ROLLBACK TO s');
	cmp_ok($open_files->(), '>', 0, "before $end: a file is open");
	answer($session, $end);
	answer($session, 'ROLLBACK') if $end ne 'ROLLBACK';
	is($open_files->(), 0, "after $end: no file is left");
}
end_session($queries);
is(ask($queries, 'SELECT count(*) FROM pg_ls_tmpdir()'), 0, 'and none after the session');

# a limit that lets core's sort pass
my $limited = "SET work_mem = '256kB'; SET temp_file_limit = '2600kB'; " . in_order('SELECT u AS k, v FROM shapes ORDER BY u, v');
is($queries->safe_psql('postgres', "SET gpusort.enabled = off; $limited"), '60000|t', 'core sorts within temp_file_limit');
is($queries->safe_psql('postgres', $limited), '60000|t', 'so does GpuSort');

# and one that lets a scan of an index pass, which needs no sort; also if nine times as many rows come as expected
$queries->safe_psql('postgres', 'CREATE TABLE indexed AS SELECT hashint4(i) AS t, i AS k FROM generate_series(1, 300000) i; CREATE INDEX ON indexed (t, k); VACUUM ANALYZE indexed');
foreach my $query ('SELECT count(*) FROM (SELECT * FROM indexed ORDER BY t OFFSET 0) x', 'SELECT count(*) FROM (SELECT t, k, row_number() OVER (PARTITION BY t) FROM indexed OFFSET 0) x',
	'SELECT count(*) FROM (SELECT DISTINCT ON (t) * FROM indexed ORDER BY t, k OFFSET 0) x', 'SELECT count(*) FROM (SELECT * FROM indexed ORDER BY t, k DESC OFFSET 0) x', 'SELECT count(*) FROM (SELECT * FROM indexed WHERE k % 2 >= 0 AND k % 3 >= 0 ORDER BY t OFFSET 0) x')
{
	my @answers = map { $queries->safe_psql('postgres', "SET gpusort.force = off; SET work_mem = '64kB'; SET temp_file_limit = '2MB'; SET gpusort.enabled = $_; $query") } 'off', 'on';
	is($answers[1], $answers[0], "core's choice of a plan stands: $query");
}

# Damaged files: all rows after the first few are lost, or have any length.
my $file = $queries->data_dir . '/base/pgsql_tmp/pgsql_tmp*.0';
# An extent ends with the place of the next one.
my $zeros = 'for (20 .. 400) { seek($f, 2048 * $_ + 16, 0); print $f chr(0) x 2020 }';
my $longer = 'for (100 .. 2000) { seek($f, 8192 * $_ + 16, 0); print $f chr(254) x 8160 }';
my $ones = 'for (0 .. 400) { seek($f, 2048 * $_ + 16, 0); print $f chr(254) x 2020 }';
foreach my $case (
	[ 'a truncated file', 'k, id', 'truncate($f, 2048 * 60)', qr/ERROR:  a sorted run in a temporary file is damaged\nDETAIL:  An extent of it has 0 bytes/ ],
	[ 'wrong lengths', 'k, id', $ones, qr/ERROR:  a sorted run in a temporary file is damaged\nDETAIL:  A row in it has \d+ bytes\. \d+ bytes of it were not read\./ ],
	[ 'a truncated file, one key', 'k, id, pad', 'truncate($f, 8192 * 60)', qr/ERROR:  a sorted run in a temporary file is damaged\nDETAIL:  An extent of it has 0 bytes/ ],
	[ 'wrong lengths, one key', 'k, id, pad', $longer, qr/ERROR:  a sorted run in a temporary file is damaged\nDETAIL:  A row in it has \d+ bytes\. \d+ bytes of it were not read\./ ],
	[ 'zeros', 'k, id', $zeros, qr/ERROR:  a sorted run in a temporary file is damaged\nDETAIL:  A row in it has 10 bytes\./ ],
	[ 'zeros, all of an extent', 'k, id', $zeros =~ s/2020/2032/r, qr/ERROR:  a sorted run in a temporary file is damaged\nDETAIL:  It continues beyond the end of the file\. \d+ bytes of it were not read\./ ],
	[ 'zeros, one key', 'k, id, pad', $zeros =~ s/2048/8192/gr =~ s/2020/8160/r, qr/ERROR:  a sorted run in a temporary file is damaged\nDETAIL:  A row in it has 10 bytes\./ ],
	[ 'wrong words', 'id', $ones =~ s/254/255/r, qr/ERROR:  a sorted run in a temporary file is damaged\nDETAIL:  A word in it is out of order\. \d+ bytes of it were not read\./ ])
{
	my ($name, $columns, $damage, $error) = @$case;
	my $script = PostgreSQL::Test::Utils::tempdir() . '/damage.pl';
	append_to_file($script, "open(my \$f, '+<', glob('$file')) or die; $damage");
	my $query = $name =~ /one key/ ? $one_key : "SELECT $columns FROM shapes ORDER BY $columns";
	my $memory = $name =~ /one key/ ? '512kB' : '128kB';
	($rc, $stdout, $stderr) = $queries->psql('postgres',
		"SET work_mem = '$memory'; BEGIN; DECLARE c NO SCROLL CURSOR FOR $query;\n"
		. "MOVE 10 FROM c;\n\\! perl $script\nMOVE ALL FROM c;");
	like($stderr, $error, "$name: an error");
}
$queries->stop;

# the benchmark is for maintainers; it must work
is($node->safe_psql('postgres', 'SELECT write_ns > 0, merge_ns > 0, write_mb_s > 0 FROM spill_bench(10000, 1, 40, 10, 1024)'),
	't|t|t', 'the benchmark works');

$node->stop;
done_testing();
