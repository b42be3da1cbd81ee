# gpusort.verify (src/base/check.c, src/node/check_rows.c, src/functions/array.c): results that are right pass
# the check, whatever way they take, and results that a fault has broken are an error before anything
# wrong is handed on.  gpusort.fault breaks an order, a bit of a row or a value, and a number of rows.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('verify', order_by => 1, settings => <<'CONF');
gpusort.engine = cpu
gpusort.min_rows = 100
parallel_setup_cost = 0
parallel_tuple_cost = 0
min_parallel_table_scan_size = 0
synchronize_seqscans = off
max_worker_processes = 20
autovacuum = off
work_mem = 256MB
CONF
restart_with($node, limit => '8GB');
$node->safe_psql('postgres', 'CREATE EXTENSION gpusort');
skip_without_standin($node);
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION h(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT hashint4($1) & 1073741823';
CREATE TABLE t AS SELECT i AS id, CASE WHEN i % 50 <> 0 THEN h(i) % 10000 END AS k, h(i) AS u, (i % 7)::smallint AS few, h(i)::float8 / 3 AS f,
	(h(i) % 100000)::numeric(9, 2) / 4 AS n, md5((i % 1000)::text) || left(md5(h(i)::text), i % 30) AS tied, left(md5(i::text), 3 + i % 29) AS word
FROM generate_series(1, 20000) AS i;
CREATE TABLE s AS SELECT * FROM t WHERE id <= 1500;
CREATE TABLE wide AS SELECT h(i) AS k, i AS id, repeat('x', 200) AS pad FROM generate_series(1, 700000) i;
CREATE TABLE arrays AS SELECT array_agg(u ORDER BY id) AS a FROM t;
ALTER TABLE t SET (parallel_workers = 2);
ALTER TABLE s SET (parallel_workers = 2);
VACUUM ANALYZE t, s, wide;
SQL

my $on = 'SET gpusort.verify = on';
my $workers = 'SET max_parallel_workers_per_gather = 2';
my $spills = "SET gpusort.memory_limit = '64kB'";
my $device = 'SET gpusort.engine = cuda';
my $without_hash = 'SET enable_hashagg = off';

# The counters of kind $kind: results checked, and those that were wrong.
sub counters
{
	my ($kind) = @_;
	return split /\|/, $node->safe_psql('postgres', "SELECT sum(checked), sum(failures) FROM gpusort_stat WHERE kind = '$kind'");
}

# ---- right results ----

# name, kind of work in gpusort_stat, what is in the plan, settings, query.  The result is core's.
my @right = (
	[ 'rows', 'sort', 'GpuSort', '', 'SELECT * FROM t ORDER BY few, k DESC NULLS LAST, id' ],
	[ 'values', 'sort', 'GpuSort', '', 'SELECT k FROM t ORDER BY k' ],
	[ 'values, NULLs first', 'sort', 'GpuSort', '', 'SELECT k FROM t ORDER BY k DESC' ],
	[ 'bare rows', 'sort', 'GpuSort', '', 'SELECT tied FROM t ORDER BY 1' ],
	[ 'ties', 'sort', 'GpuSort', '', 'SELECT tied, id FROM t ORDER BY 1, 2' ],
	[ 'text under ICU', 'sort', 'GpuSort', '', 'SELECT word FROM t ORDER BY word COLLATE "und-x-icu"' ],
	[ 'an expression', 'sort', 'GpuSort', '', 'SELECT k + 1, id FROM t ORDER BY 1, 2' ],
	[ 'spilled rows', 'sort', 'GpuSort', $spills, 'SELECT * FROM t ORDER BY few, k DESC NULLS LAST, id' ],
	[ 'spilled values', 'sort', 'GpuSort', $spills, 'SELECT u FROM t ORDER BY u' ],
	[ 'workers', 'sort', 'GpuSort Feed', $workers, 'SELECT * FROM t ORDER BY few, k DESC NULLS LAST, id' ],
	[ 'workers that spill', 'sort', 'GpuSort Feed', "$workers; $spills", 'SELECT * FROM t ORDER BY few, k DESC NULLS LAST, id' ],
	[ 'a device', 'sort', 'GpuSort', $device, 'SELECT * FROM t ORDER BY few, k DESC NULLS LAST, id' ],
	[ 'LIMIT', 'sort', 'GpuSort', '', 'SELECT * FROM t ORDER BY k, id LIMIT 100' ],
	[ 'LIMIT of most rows', 'sort', 'GpuSort', '', 'SELECT * FROM t ORDER BY k, id LIMIT 19000' ],
	[ 'LIMIT of values', 'sort', 'GpuSort', '', 'SELECT k FROM t ORDER BY k LIMIT 100' ],
	[ 'LIMIT of values, NULLs first', 'sort', 'GpuSort', '', 'SELECT k FROM t ORDER BY k DESC LIMIT 500' ],
	[ 'LIMIT of ties', 'sort', 'GpuSort', '', 'SELECT tied, id FROM t ORDER BY tied, id LIMIT 100' ],
	[ 'WITH TIES', 'sort', 'GpuSort', '', 'SELECT few FROM t ORDER BY few FETCH FIRST 100 ROWS WITH TIES' ],
	[ 'a LIMIT that spills', 'sort', 'GpuSort', $spills, 'SELECT * FROM t ORDER BY k, id LIMIT 5000' ],
	[ 'DISTINCT', 'sort', 'GpuSort', $without_hash, 'SELECT DISTINCT few, k FROM t ORDER BY 1, 2' ],
	[ 'DISTINCT, spilled', 'sort', 'GpuSort', "$without_hash; $spills", 'SELECT DISTINCT k, u FROM t ORDER BY 1, 2' ],
	[ 'DISTINCT ON', 'sort', 'GpuSort', '', 'SELECT DISTINCT ON (few) few, k, id FROM t ORDER BY few, k DESC NULLS LAST, id' ],
	[ 'DISTINCT ON, spilled', 'sort', 'GpuSort', $spills, 'SELECT DISTINCT ON (k) few, k, id FROM t ORDER BY k, few, id' ],
	[ 'DISTINCT ON of many rows', 'sort', 'GpuSort', '', 'SELECT DISTINCT ON (g) g, k, id FROM (SELECT k % 100 g, k, id FROM wide) s ORDER BY g, k, id' ],
	[ 'DISTINCT ON of many rows, workers', 'sort', 'GpuSort', $workers, 'SELECT DISTINCT ON (g) g, k, id FROM (SELECT k % 100 g, k, id FROM wide) s ORDER BY g, k, id' ],
	[ 'row_number()', 'sort', 'GpuSort', '', 'SELECT * FROM (SELECT g, id, row_number() OVER (PARTITION BY g ORDER BY k, id) r FROM (SELECT k % 100 g, k, id FROM wide) s) s WHERE r <= 3 ORDER BY g, r' ],
	[ 'rank()', 'sort', 'GpuSort', '', 'SELECT * FROM (SELECT g, d, rank() OVER (PARTITION BY g ORDER BY d) r FROM (SELECT k % 100 g, k % 777 d FROM wide) s) s WHERE r <= 3 ORDER BY g, r, d' ],
	[ 'dense_rank()', 'sort', 'GpuSort', '', 'SELECT g, d, r, count(*) FROM (SELECT g, d, dense_rank() OVER (PARTITION BY g ORDER BY d) r FROM (SELECT k % 100 g, k % 777 d FROM wide) s) s WHERE r <= 3 GROUP BY 1, 2, 3 ORDER BY g, r' ],
	[ 'rows in windows', 'sort', 'GpuSort', "$workers; SET parallel_setup_cost = 1e9", 'SELECT sum(hashint8extended(id, n)::numeric), sum(length(pad)) FROM (SELECT id, pad, row_number() OVER () n FROM (SELECT id, pad FROM wide ORDER BY k, id OFFSET 0) s) s' ],
	[ 'core from the begin', 'sort', 'GpuSort', '', "BEGIN; DECLARE c SCROLL CURSOR FOR SELECT id FROM t ORDER BY u, id; SET LOCAL gpusort.memory_limit = '64kB'; FETCH 3 FROM c; MOVE LAST FROM c; FETCH BACKWARD 3 FROM c; MOVE ABSOLUTE 100 FROM c; FETCH 2 FROM c; MOVE BACKWARD ALL FROM c; FETCH ALL FROM c; COMMIT" ],
	[ 'a cursor back and forth', 'sort', 'GpuSort', '', 'BEGIN; DECLARE c SCROLL CURSOR FOR SELECT id, word FROM t ORDER BY word, id; FETCH 3 FROM c; MOVE LAST FROM c; FETCH 1 FROM c; FETCH BACKWARD 3 FROM c; MOVE ABSOLUTE 100 FROM c; FETCH 2 FROM c; MOVE BACKWARD ALL FROM c; FETCH BACKWARD 1 FROM c; FETCH ALL FROM c; COMMIT' ],
	[ 'mark and restore', 'sort', 'GpuSort', 'SET enable_hashjoin = off; SET enable_nestloop = off; SET enable_material = off', 'SELECT count(*), sum(a.id * b.id::numeric) FROM t a JOIN t b USING (k, few)' ],
	[ 'rewinds', 'sort', 'GpuSort', 'SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off', 'SELECT count(*) FROM (VALUES (1), (2), (3)) v(x), LATERAL (SELECT id FROM t WHERE k < 50 ORDER BY u OFFSET 0) s WHERE s.id > x' ],
	[ 'groups', 'sort', 'GpuSort', $without_hash, 'SELECT few, k, count(*), sum(id) FROM t GROUP BY few, k ORDER BY few, k' ],
	[ 'percentiles', 'aggregate', 'GpuSort Aggregate', '', 'SELECT percentile_disc(ARRAY[0, 0.1, 0.5, 1]) WITHIN GROUP (ORDER BY k), percentile_cont(0.3) WITHIN GROUP (ORDER BY f), percentile_disc(0.2) WITHIN GROUP (ORDER BY n DESC) FROM t' ],
	[ 'mode and distinct values', 'aggregate', 'GpuSort Aggregate', '', 'SELECT mode() WITHIN GROUP (ORDER BY k), count(DISTINCT k), sum(DISTINCT u), count(DISTINCT n), count(DISTINCT f) FROM t' ],
	[ 'values that spill', 'aggregate', 'GpuSort Aggregate', $spills, 'SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY u), count(DISTINCT u), count(DISTINCT k), mode() WITHIN GROUP (ORDER BY k) FROM t' ],
	[ 'grouped values', 'aggregate', 'GpuSort Aggregate', '', 'SELECT k, percentile_disc(0.5) WITHIN GROUP (ORDER BY u), count(DISTINCT id), mode() WITHIN GROUP (ORDER BY few), count(DISTINCT n) FROM t GROUP BY k ORDER BY k' ],
	[ 'grouped values that spill', 'aggregate', 'GpuSort Aggregate', $spills, 'SELECT k, percentile_disc(0.5) WITHIN GROUP (ORDER BY u), count(DISTINCT id), mode() WITHIN GROUP (ORDER BY few) FROM t GROUP BY k ORDER BY k' ],
	[ 'few large groups', 'aggregate', 'GpuSort Aggregate', '', 'SELECT id % 2, percentile_disc(0.5) WITHIN GROUP (ORDER BY k), count(DISTINCT k) FROM wide GROUP BY 1 ORDER BY 1' ],
	[ 'few large groups that spill', 'aggregate', 'GpuSort Aggregate', "SET gpusort.memory_limit = '2MB'", 'SELECT id % 2, percentile_disc(0.5) WITHIN GROUP (ORDER BY k), count(DISTINCT k % 1000) FROM wide GROUP BY 1 ORDER BY 1' ],
	[ 'grouped values, workers', 'aggregate', 'GpuSort Aggregate', $workers, 'SELECT k, percentile_disc(0.5) WITHIN GROUP (ORDER BY u), count(DISTINCT id), mode() WITHIN GROUP (ORDER BY few) FROM t GROUP BY k ORDER BY k' ],
	[ 'values, workers', 'aggregate', 'GpuSort Aggregate', $workers, 'SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY u), count(DISTINCT id), mode() WITHIN GROUP (ORDER BY few) FROM t' ],
	[ 'rows in order', 'aggregate', 'GpuSort Aggregate', '', 'SELECT few, array_agg(word ORDER BY k, id), count(DISTINCT tied), percentile_disc(0.5) WITHIN GROUP (ORDER BY word) FROM t GROUP BY few ORDER BY few' ],
	[ 'rows in order that spill', 'aggregate', 'GpuSort Aggregate', $spills, 'SELECT k, array_agg(word ORDER BY f, id), count(DISTINCT tied) FROM t GROUP BY k ORDER BY k' ],
	[ 'arrays', 'aggregate', 'GpuSort Aggregate', '', 'SELECT few, gpu_sort_agg(k) FROM t GROUP BY few ORDER BY few', 'SELECT few, array_agg(k ORDER BY k) FROM t GROUP BY few ORDER BY few' ],
	[ 'gpu_sort()', 'function', '', '', 'SELECT gpu_sort(a || NULL::int), gpu_sort(a, true) FROM arrays', 'SELECT array_agg(x ORDER BY x), array_agg(x ORDER BY x DESC) FILTER (WHERE x IS NOT NULL) FROM (SELECT unnest(a || NULL::int) x FROM arrays) s' ],
	[ 'gpu_argsort()', 'function', '', '', 'SELECT gpu_argsort(a || NULL::int), gpu_argsort(a, true) FROM arrays', 'SELECT array_agg(o ORDER BY x, o), array_agg(o ORDER BY x DESC, o) FILTER (WHERE x IS NOT NULL) FROM (SELECT x, o FROM arrays, unnest(a || NULL::int) WITH ORDINALITY u(x, o)) s' ],
	[ 'gpu_sort_agg()', 'function', '', "SET gpusort.enabled = off", 'SELECT few, gpu_sort_agg(k) FROM t GROUP BY few ORDER BY few', 'SELECT few, array_agg(k ORDER BY k) FROM t GROUP BY few ORDER BY few' ]);

foreach my $case (@right)
{
	my ($name, $kind, $plan, $settings, $query, $cores) = @$case;
	my @before = counters($kind);
	my $right = $node->safe_psql('postgres', "$workers; SET gpusort.enabled = off; " . ($cores // $query));
	my ($rc, $result, $stderr) = $node->psql('postgres', "$on; $settings; $query");
	my @after = counters($kind);

	is("$rc $stderr", '0 ', "$name: no error");
	ok($result eq $right, "$name: the result is right");
	cmp_ok($after[0], '>', $before[0], "$name: is counted as checked");
	is($after[1], $before[1], "$name: is not counted as wrong");
	next if $plan eq '' || $query =~ /DECLARE/;
	like($node->safe_psql('postgres', "$settings; EXPLAIN $query"), qr/$plan/, "$name: by a $plan");
}
is($node->safe_psql('postgres', 'SELECT gpusort_stat_reset(); SELECT id FROM t ORDER BY k LIMIT 1; SELECT sum(checked) FROM gpusort_stat') =~ s/^.*\n//sr, '0',
	'nothing is checked if gpusort.verify is off');

# ---- wrong results ----

# The rows of a query whose result comes row by row, and the message.
sub rows_of
{
	my ($settings, $fault, $query) = @_;
	my ($rc, $stdout, $stderr) = $node->psql('postgres',
		"\\set VERBOSITY verbose\n\\set FETCH_COUNT " . ($query =~ /FROM t / ? 1000 : 1) . "\n$settings;\nSET gpusort.fault = '$fault';\n$query;\n", on_error_stop => 0);
	return ($stdout, $stderr);
}

sub lines_in
{
	my ($text) = @_;
	return scalar(my @lines = split /\n/, $text);
}

my $sorted = 'SELECT k, id, word FROM s ORDER BY k, id';
my $order = qr/DETAIL:  Row \d+ of the result sorts before row \d+, by column \d+ of the order\./;
my $rows = qr/DETAIL:  \d+ rows with checksum [0-9A-F]{16} came in, and \d+ rows with checksum [0-9A-F]{16} would be returned\./;
my $values = qr/DETAIL:  Value \d+ of the sorted values is before value \d+ by the order of its type\./;
my $position = qr/DETAIL:  Element \d+ of the result is position \d+, which is no position of a value that is left\./;
my $any = qr/DETAIL:  ./;

# name, kind, settings, query, then pairs of a fault and the detail
my @wrong = (
	[ 'rows', 'sort', '', $sorted, 'sorted:1:order' => $order, 'sorted:1:twice' => $rows, 'sorted:1:dropped' => $rows, 'sorted:1:bit' => $any,
		'result:1:order' => $order, 'result:1:dropped' => $rows, 'result:1:twice' => $rows, 'row:1:bit' => $rows ],
	[ 'values', 'sort', '', 'SELECT u FROM s ORDER BY u', 'sorted:1:order' => $order, 'sorted:1:twice' => $rows, 'sorted:1:bit' => $any, 'result:1:dropped' => $rows,
		'result:1:bit' => $any ],
	[ 'bare rows', 'sort', '', 'SELECT word FROM s ORDER BY 1', 'result:1:order' => $order, 'result:1:twice' => $rows, 'result:1:dropped' => $rows, 'row:1:bit' => $any ],
	[ 'text under ICU', 'sort', '', 'SELECT word, id FROM s ORDER BY word COLLATE "und-x-icu"', 'result:1:order' => $order, 'result:1:dropped' => $rows, 'row:1:bit' => $rows ],
	[ 'ties', 'sort', '', 'SELECT tied, id FROM s ORDER BY 1, 2', 'result:1:order' => $order, 'result:1:twice' => $rows, 'row:1:bit' => $any ],
	[ 'a device', 'sort', $device, $sorted, 'sorted:1:order' => $order, 'sorted:1:twice' => $rows, 'row:1:bit' => $any ],
	[ 'workers', 'sort', $workers, $sorted, 'sorted:1:order' => $order, 'result:1:dropped' => $rows, 'row:1:bit' => $any ],
	[ 'spilled rows', 'sort', $spills, $sorted, 'sorted:1:order' => $order, 'sorted:3:twice' => $rows, 'row:2:bit' => $any, 'merged:1:bit' => $any, 'merged:777:dropped' => $rows ],
	[ 'spilled values', 'sort', $spills, 'SELECT u FROM t ORDER BY u', 'sorted:1:order' => $order, 'sorted:2:twice' => $rows, 'merged:5:bit' => $any, 'merged:10:dropped' => $rows ],
	[ 'workers that spill', 'sort', "$workers; $spills", $sorted, 'sorted:2:order' => $order, 'sorted:2:twice' => $rows, 'merged:100:dropped' => $rows ],
	[ 'LIMIT', 'sort', '', 'SELECT k, id, word FROM s ORDER BY k, id LIMIT 100', 'sorted:1:order' => $any, 'sorted:1:twice' => $any, 'row:1:bit' => $any, 'result:1:order' => $any ],
	[ 'LIMIT of most rows', 'sort', '', 'SELECT k, id, word FROM s ORDER BY k, id LIMIT 1400', 'sorted:1:order' => $any, 'sorted:1:twice' => $any ],
	[ 'LIMIT of values', 'sort', '', 'SELECT u FROM s ORDER BY u LIMIT 100', 'sorted:1:order' => $any, 'sorted:1:twice' => $any, 'result:1:dropped' => $any ],
	[ 'DISTINCT ON', 'sort', '', 'SELECT DISTINCT ON (k) k, id, word FROM s ORDER BY k, id', 'sorted:1:order' => $any, 'sorted:1:twice' => $any, 'row:1:bit' => $rows, 'result:1:dropped' => $rows ],
	[ 'DISTINCT that spills', 'sort', "$spills; $without_hash", 'SELECT DISTINCT k, u FROM t ORDER BY 1, 2', 'sorted:1:order' => $any, 'merged:10:dropped' => $any ],
	[ 'a cursor', 'sort', '', "BEGIN; DECLARE c SCROLL CURSOR FOR $sorted; FETCH 10 FROM c; FETCH BACKWARD 9 FROM c; FETCH ALL FROM c; COMMIT", 'result:1:order' => $any, 'row:1:bit' => $any ],
	[ 'percentiles', 'aggregate', '', 'SELECT percentile_disc(ARRAY[0.1, 0.9]) WITHIN GROUP (ORDER BY u) FROM t', 'sorted:1:order' => $any, 'sorted:1:twice' => $any ],
	[ 'distinct values', 'aggregate', '', 'SELECT count(DISTINCT u) FROM t', 'sorted:1:order' => $any, 'sorted:1:twice' => $rows, 'sorted:1:bit' => $any ],
	[ 'distinct values that spill', 'aggregate', $spills, 'SELECT count(DISTINCT u) FROM t', 'sorted:1:order' => $any, 'sorted:1:twice' => $any, 'sorted:1:bit' => $any ],
	[ 'grouped values', 'aggregate', '', 'SELECT few, percentile_disc(0.5) WITHIN GROUP (ORDER BY u) FROM t GROUP BY 1', 'sorted:1:order' => $order, 'sorted:1:bit' => $any, 'result:1:dropped' => $rows, 'sorted:1:twice' => $rows ],
	[ 'grouped values, workers', 'aggregate', $workers, 'SELECT few, percentile_disc(0.5) WITHIN GROUP (ORDER BY u) FROM t GROUP BY 1', 'sorted:1:order' => $order, 'result:1:dropped' => $rows ],
	[ 'rows in order', 'aggregate', '', 'SELECT few, array_agg(word ORDER BY k, id), count(DISTINCT tied) FROM t GROUP BY few', 'sorted:1:order' => $any, 'result:1:twice' => $rows, 'row:1:bit' => $any ],
	[ 'gpu_sort()', 'function', '', 'SELECT gpu_sort(a) FROM arrays', 'sorted:1:order' => $values, 'sorted:1:bit' => $any, 'sorted:1:twice' => $rows ],
	[ 'gpu_argsort()', 'function', '', 'SELECT gpu_argsort(a) FROM arrays', 'sorted:1:order' => $values, 'sorted:1:twice' => $position ],
	[ 'gpu_sort_agg()', 'function', 'SET gpusort.enabled = off', 'SELECT gpu_sort_agg(u) FROM t', 'sorted:1:order' => $values, 'sorted:1:bit' => $any, 'sorted:1:dropped' => $rows ]);

foreach my $case (@wrong)
{
	my ($name, $kind, $settings, $query, %faults) = @$case;
	my ($right) = rows_of($settings, '', $query);

	foreach my $fault (sort keys %faults)
	{
		my @before = counters($kind);
		# what is removed by a wrong order may not be there at all; the last byte of a row may not be shown
		my $broken = $name =~ /LIMIT|DISTINCT/ || $fault =~ /^row/ ? undef : (rows_of($settings, $fault, $query))[0];
		my ($result, $stderr) = rows_of("$on; $settings", $fault, $query);
		my @after = counters($kind);

		ok($broken ne $right, "$name, $fault: without gpusort.verify a wrong result is returned") if defined $broken && $kind ne 'aggregate';
		# the merge of spilled runs sees that it is out of order, with and without gpusort.verify
		if ($name =~ /spill/ && $fault =~ /order$/ && $stderr =~ /ERROR:  XX001: a sorted run in a temporary file is damaged\nDETAIL:  A (?:row|word) in it is out of order/)
		{
			pass("$name, $fault: is seen by the merge");
			next;
		}
		like($stderr, qr/ERROR:  XX001: (?:GpuSort|gpu_).* has made a wrong result/, "$name, $fault: is seen");
		like($stderr, $faults{$fault}, "$name, $fault: says what is wrong");
		cmp_ok(lines_in($result), '<', lines_in($right), "$name, $fault: the result is not complete");
		is(lines_in($result), $1, "$name, $fault: a row out of order is not returned") if $kind ne 'aggregate' && $query !~ /FROM t |CURSOR/ && $stderr =~ /sorts before row (\d+), by/;
		is($after[1], $before[1] + 1, "$name, $fault: is counted");
	}
}

# rows that threads copy ahead, and rows that come from the device
my $many = 'SELECT count(pad), sum(id) FROM (SELECT k, id, pad FROM wide ORDER BY k, id OFFSET 0) s';
foreach my $fault ('window:3:order', 'window:3:twice')
{
	my ($result, $stderr) = rows_of("$on; $workers; SET parallel_setup_cost = 1e9", $fault, $many);
	like($stderr, qr/ERROR:  XX001/, "rows in windows, $fault: is seen");
	($result, $stderr) = rows_of("$on; $device", $fault, $many);
	like($stderr, qr/ERROR:  XX001/, "rows that travel, $fault: is seen");
}

my $log = slurp_file($node->logfile);
like($log, qr/LOG:  plan of the query whose result gpusort.verify has found wrong:\n\s+(?:GpuSort|Limit|Aggregate)[^\n]*\n/, 'the plan is in the log');
like($log, qr/HINT:  Do not use rows that a cursor has returned before\. Have core sort, with gpusort.enabled = off/, 'and what to do');
nothing_is_held($node, 'after wrong results');
$node->stop;

done_testing();
