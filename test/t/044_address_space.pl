# The server may not have more than a certain size of memory (ulimit -v), and sorts may have more
# than that (gpusort.memory_limit).  A sort that can spill does so when it is refused memory, and
# gives the right result.  What cannot spill does that, too, or the query ends with "out of memory",
# and the session goes on.  The test suits every build; it is skipped where the server does
# not start under such a limit, as in a build with AddressSanitizer.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# A sort of the table takes 260 MB, core's expansion of it for the test not counted.
my @limits_mb = (180, 280);

my $node = new_node('address_space', order_by => 1,
	settings => "gpusort.memory_limit = 1GB\nwork_mem = 4MB\nmaintenance_work_mem = 1GB\nshared_buffers = 16MB\nmax_wal_size = 1GB\n");
$node->start;
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION gpusort;
CREATE TABLE t AS SELECT i AS id, hashint8extended(i, 1) AS k, repeat(md5(i::text), 2) COLLATE "C" AS word
	FROM generate_series(1, 1500000::bigint) AS i;
VACUUM ANALYZE t;
SQL

my %queries = (
	'rows' => 'SELECT md5(string_agg(k::text || word, NULL)) FROM (SELECT k, word FROM (SELECT k, word FROM t ORDER BY k OFFSET 0) s WHERE k % 50 = 0) s',
	'strings' => 'SELECT md5(string_agg(word, NULL)) FROM (SELECT word FROM (SELECT word FROM t ORDER BY word OFFSET 0) s WHERE word < \'1\') s',
	'values' => 'SELECT md5(string_agg(k::text, NULL)) FROM (SELECT k FROM (SELECT k FROM t ORDER BY k OFFSET 0) s WHERE k % 50 = 0) s',
	'aggregates' => 'SELECT percentile_disc(0.3) WITHIN GROUP (ORDER BY k), count(DISTINCT k), count(DISTINCT word) FROM t');
my %expected = map { $_ => $node->safe_psql('postgres', "SET gpusort.enabled = off; $queries{$_}") } keys %queries;
my $function = 'SELECT (gpu_sort_agg(k))[1000000] FROM t';
my $expected_of_function = $node->safe_psql('postgres', 'SELECT k FROM t ORDER BY k OFFSET 999999 LIMIT 1');
$node->stop;

foreach my $mb (@limits_mb)
{
	my $kind = "ulimit -v of $mb MB";
	my $kb = $mb * 1024;

	plan skip_all => "the server does not start under ulimit -v"
	  if !start_by($node, 'sh', '-c', "ulimit -v $kb; exec pg_ctl -w -D \"\$0\" -l \"\$1\" start >/dev/null", $node->data_dir, $node->logfile);

	my $log = -s $node->logfile;
	foreach my $name (sort keys %queries)
	{
		is($node->safe_psql('postgres', $queries{$name}), $expected{$name}, "$kind: $name are right");
	}
	like($node->safe_psql('postgres', 'EXPLAIN (ANALYZE, COSTS OFF) SELECT k, word FROM t ORDER BY k OFFSET 0'), qr/Memory: \d+ kB\s+Disk: \d+ kB/,
		"$kind: rows for which there is no memory are spilled");

	$node->safe_psql('postgres', 'CREATE INDEX by_key ON t (k, word)');
	is($node->safe_psql('postgres', "SET enable_seqscan = off; SET enable_sort = off; SET gpusort.enabled = off; SELECT md5(string_agg(k::text || word, NULL)) "
		  . 'FROM (SELECT k, word FROM (SELECT k, word FROM t ORDER BY k, word OFFSET 0) s WHERE k % 50 = 0) s'),
		$expected{rows}, "$kind: an index is built");
	$node->safe_psql('postgres', 'DROP INDEX by_key');

	my ($rc, $stdout, $stderr) = $node->psql('postgres', "$function; $queries{values}", on_error_stop => 0);
	like($stdout . $stderr, qr/^\Q$expected_of_function\E$|ERROR:  out of memory/m, "$kind: a function sorts or says that there is no memory");
	like($stdout, qr/^\Q$expected{values}\E$/m, "$kind: the session goes on");
	is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM pg_ls_tmpdir()), (SELECT count(*) FROM gpusort_activity)'), '0|0', "$kind: nothing is left");
	unlike(slurp_file($node->logfile, $log), qr/PANIC|TRAP|signal|leak/, "$kind: no process ends");
	$node->stop;
}

done_testing();
