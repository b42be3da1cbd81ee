# A GpuSort ends early: it is cancelled in one of its phases, its child fails, a
# subtransaction is rolled back, or a cursor is closed.  Afterwards no temporary file and no row in gpusort_activity is left,
# the log has no warning, and the session can sort.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('order_by', order_by => 1, settings => "gpusort.min_rows = 0\ngpusort.memory_limit = '1GB'\n");
$node->start;
$node->safe_psql('postgres', q(
CREATE EXTENSION gpusort;
CREATE TABLE t AS SELECT (g * 7919::bigint % 1000003)::int AS k, md5(g::text) AS filler FROM generate_series(1, 300000) AS g;
-- the words do not decide this key, so its rows are compared
CREATE TABLE tied AS SELECT repeat('x', 40) || (g * 7919::bigint % 1000003)::text COLLATE "C" AS k FROM generate_series(1, 300000) AS g;
CREATE FUNCTION fails_at(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF n = 250000 THEN RAISE 'the child fails'; END IF;
	RETURN n;
END $$;
CREATE FUNCTION dawdles(n int) RETURNS int LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	IF n % 100 = 0 THEN PERFORM pg_sleep(0.002); END IF;
	RETURN n;
END $$;
VACUUM ANALYZE;
));

# Runs statements in one session, some of which fail.  Afterwards the session must
# sort correctly, and nothing may be left.
sub survives
{
	my ($name, $error, @statements) = @_;
	my $check = q(SELECT count(*), bool_and(ok), (SELECT count(*) FROM pg_ls_tmpdir()), (SELECT count(*) FROM gpusort_activity)
FROM (SELECT k >= lag(k) OVER () IS NOT false AS ok FROM (SELECT * FROM t ORDER BY k) AS s) AS s);
	my ($out, $err);
	my $log = -s $node->logfile;

	# each statement is a transaction by itself, and psql goes on after errors
	my $rc = $node->psql('postgres', join("\n", @statements, "RESET ALL;", $check . ";"),
		stdout => \$out, stderr => \$err, on_error_stop => 0);
	like($err, $error, "$name: the error is the expected one");
	is((split /\n/, $out)[-1], '300000|t|0|0', "$name: the session can sort, and nothing is left");
	unlike(slurp_file($node->logfile, $log), qr/WARNING|leak|PANIC|TRAP/, "$name: the log has no warning");
	return;
}

my $timeout = qr/canceling statement due to statement timeout/;
my $fresh = "SET statement_timeout = '300ms';";

survives('cancelled while gathering', $timeout, $fresh,
	'SELECT count(*) FROM (SELECT dawdles(k), filler FROM t ORDER BY 1 OFFSET 0) AS s;');
survives('cancelled while gathering values', $timeout, $fresh,
	'SELECT count(*) FROM (SELECT dawdles(k) FROM t ORDER BY 1 OFFSET 0) AS s;');
survives('cancelled while ties are broken', $timeout, $fresh,
	'SELECT count(*) FROM (SELECT x.k, y.g FROM tied AS x, generate_series(1, 20) AS y (g) ORDER BY x.k OFFSET 0) AS s;');
survives('cancelled while spilling', $timeout, "SET gpusort.memory_limit = '4MB';", $fresh,
	'SELECT count(*) FROM (SELECT * FROM t, generate_series(1, 100) ORDER BY k OFFSET 0) AS s;');
survives('cancelled while returning', $timeout, $fresh,
	'SELECT count(dawdles(k)) FROM (SELECT k, filler FROM t ORDER BY k OFFSET 0) AS s;');
survives('cancelled while merging', $timeout, "SET gpusort.memory_limit = '2MB';", "SET statement_timeout = '1500ms';",
	'SELECT count(dawdles(k)) FROM (SELECT k, filler FROM t ORDER BY k OFFSET 0) AS s;');

survives('the child fails', qr/the child fails/,
	'SELECT count(*) FROM (SELECT fails_at(k), filler FROM t ORDER BY 1 OFFSET 0) AS s;');
survives('the child fails after spilling', qr/the child fails/, "SET gpusort.memory_limit = '2MB';",
	'SELECT count(*) FROM (SELECT fails_at(k), filler FROM t ORDER BY 1 OFFSET 0) AS s;');

# a plpgsql block with a handler is a subtransaction
survives('a subtransaction is rolled back', qr/^$/, "SET gpusort.memory_limit = '2MB';", q(
DO $$
BEGIN
	FOR i IN 1 .. 3 LOOP
		BEGIN
			PERFORM fails_at(k) FROM t ORDER BY 1;
			RAISE 'not reached';
		EXCEPTION WHEN raise_exception THEN
			IF sqlerrm <> 'the child fails' THEN RAISE; END IF;
		END;
	END LOOP;
END $$;));
survives('a cursor opened in a subtransaction that is rolled back', qr/^$/, "SET gpusort.memory_limit = '2MB';",
	'BEGIN;', 'SAVEPOINT s;', 'DECLARE c CURSOR FOR SELECT * FROM t ORDER BY k;', 'FETCH 3 FROM c;',
	'ROLLBACK TO s;', 'COMMIT;');
survives('a portal is closed early', qr/^$/, "SET gpusort.memory_limit = '2MB';",
	'BEGIN;', 'DECLARE c CURSOR FOR SELECT * FROM t ORDER BY k;', 'FETCH 3 FROM c;', 'CLOSE c;', 'COMMIT;');
survives('a portal is left open', qr/^$/, "SET gpusort.memory_limit = '2MB';",
	'BEGIN;', 'DECLARE c CURSOR FOR SELECT * FROM t ORDER BY k;', 'FETCH 3 FROM c;', 'COMMIT;');

# rows that need several segments and blocks of the row store, in memory that other
# rows used before: also short rows in the blocks of very long ones
sub check_order
{
	my ($name, $memory, $rows, $length, $runs) = @_;
	my $query = "SELECT g, $length AS length, repeat('x', $length) AS x FROM generate_series(1, $rows) AS g ORDER BY -g";

	like($node->safe_psql('postgres', "SET gpusort.memory_limit = '$memory'; EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) $query OFFSET $rows"),
		$runs, "$name: the number of runs is as expected");
	is($node->safe_psql('postgres', qq(
SET gpusort.memory_limit = '$memory';
SELECT count(*), bool_and(g = $rows + 1 - n AND length(x) = length)
FROM (SELECT row_number() OVER () AS n, * FROM ($query) AS s) AS s;)), "$rows|t", "$name: the order is right");
	return;
}

check_order('a million rows', '1GB', 1100000, '8 + g % 13', qr/^(?!.*Runs)/s);
check_order('a million rows after a million', '100MB', 2200000, '8 + g % 13', qr/Runs: [2-9]\b/);
check_order('short rows after long ones', '90MB', 350000, 'CASE WHEN g <= 3 THEN 40000000 ELSE 180 + g % 7 END', qr/Runs: [2-9]\b/);

# With a LIMIT, GpuSort keeps only the rows that are fetched, whatever number of rows
# the planner expected, here 300.  It spills only if these exceed the memory limit.
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION numbers(n int) RETURNS SETOF int LANGUAGE plpgsql ROWS 300 AS $$
BEGIN
	RETURN QUERY SELECT * FROM generate_series(1, n);
END $$;
SQL
foreach my $case (
	[ 30000, 100, '1GB', 'Engine: c(pu|uda)\n.*Bound: 100\n *Rows Removed by Bound: \d+\n(?!.*Runs)' ],
	[ 5000, 100, '64kB', 'Engine: c(pu|uda)\n.*Bound: 100\n *Rows Removed by Bound: \d+\n(?!.*Runs)' ],
	[ 5000, 4000, '64kB', 'Engine: c(pu|uda)\n.*Runs: ' ])
{
	my ($n, $limit, $memory, $expected) = @$case;
	my $query = "SELECT k, repeat('x', k % 7) FROM numbers($n) AS k ORDER BY -k LIMIT $limit";

	like($node->safe_psql('postgres', "SET gpusort.memory_limit = '$memory'; EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) $query"),
		qr/$expected/s, "LIMIT $limit of $n rows in $memory: only these are kept");
	is($node->safe_psql('postgres', "SET gpusort.memory_limit = '$memory'; SELECT count(*), bool_and(k = $n + 1 - place) FROM (SELECT k, row_number() OVER () AS place FROM ($query) AS s) AS s"),
		"$limit|t", "LIMIT $limit of $n rows in $memory: the order is right");
}

# A key that is an expression is not computed below a join, for rows that the join removes, nor in a worker, if it is not safe there.
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION costly(int, int) RETURNS bool LANGUAGE plpgsql STABLE PARALLEL SAFE COST 10000 AS 'BEGIN RETURN true; END';
CREATE TABLE outer_rows AS SELECT i / 4 AS k, i AS v FROM generate_series(1, 100000) i;
CREATE INDEX ON outer_rows (k);
ALTER TABLE outer_rows SET (parallel_workers = 4);
CREATE TABLE inner_rows AS SELECT hashint4(i) % 25000 AS k, i % 100 AS x, repeat('x', 20) AS pad FROM generate_series(1, 50000) i;
CREATE INDEX ON inner_rows (k);
ALTER TABLE inner_rows SET (parallel_workers = 0);
CREATE TABLE padded AS SELECT i AS k, repeat('x', 100) AS pad FROM generate_series(-25000, 25000) i;
CREATE UNIQUE INDEX ON padded (k);
VACUUM ANALYZE outer_rows, inner_rows, padded;
SQL
{
	my $settings = "SET work_mem = '64kB'; SET effective_cache_size = '640kB'; CREATE TEMP TABLE places AS SELECT i AS x, -i AS y FROM generate_series(0, 99) i; ANALYZE places;";

	foreach my $query (
		'SET max_parallel_workers_per_gather = 4; SELECT count(*) FROM (SELECT i.k, i.x FROM outer_rows o JOIN inner_rows i ON o.k = i.k AND costly(o.v, i.x) ORDER BY i.k, (SELECT y FROM places p WHERE p.x = i.x) OFFSET 0) s',
		'SET max_parallel_workers_per_gather = 0; SELECT count(*) FROM (SELECT i.k, p.pad, 100 / i.x FROM inner_rows i JOIN padded p ON i.k = p.k AND i.x <> length(p.pad) - 100 ORDER BY i.k, 100 / i.x OFFSET 0) s')
	{
		my ($core, $ours) = map { $node->safe_psql('postgres', "SET gpusort.enabled = $_; $settings $query") } 'off', 'on';

		is($ours, $core, $query =~ s/.*ORDER BY (.*) OFFSET.*/$1/r . ': an expression is computed where core computes it');
	}
}

# a cursor that outlives the subtransaction in which it began to spill
is($node->safe_psql('postgres', q(
SET gpusort.memory_limit = '2MB';
BEGIN;
DECLARE c NO SCROLL CURSOR FOR SELECT k FROM t ORDER BY k, filler;
SAVEPOINT s;
MOVE 10 FROM c;
RELEASE s;
MOVE 299980 FROM c;
FETCH 1 FROM c;
COMMIT;)), $node->safe_psql('postgres', 'SET gpusort.enabled = off; SELECT k FROM t ORDER BY k OFFSET 299990 LIMIT 1;'),
	'a cursor outlives the subtransaction in which it was first read');
is($node->safe_psql('postgres', q(
SET gpusort.memory_limit = '2MB';
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT k FROM t ORDER BY k, filler;
COMMIT;
MOVE 299990 FROM c;
FETCH 1 FROM c;)), $node->safe_psql('postgres', 'SET gpusort.enabled = off; SELECT k FROM t ORDER BY k OFFSET 299990 LIMIT 1;'),
	'a cursor WITH HOLD outlives its transaction');

is($node->safe_psql('postgres', q(SELECT sum(count) > 10 AND sum(rows) > 300000 FROM gpusort_stat WHERE kind = 'sort' AND engine <> 'core')), 't',
	'sorts are counted');

$node->stop;
done_testing();
