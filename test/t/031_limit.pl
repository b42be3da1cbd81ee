# Sorts with a LIMIT give the same rows with GpuSort and without.
#
# GpuSort removes rows that the LIMIT does not fetch while it reads its input.  The random queries of
# RandomQueries.pm have constants, parameters, subqueries and columns of an outer row as LIMIT and OFFSET,
# WITH TIES, cursors, UNION ALL, parallel plans, and memory limits that make GpuSort cut early or spill.
#
#   SEED=n, CASES=n (240 by default), SETTINGS="a=1 b=2": see RandomTest.pm

use strict;
use warnings;

use GpusortTest;
use RandomTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

begin_cases(240);

my $node = random_node('limit');
random_queries($node, 'postgres', 'with a LIMIT', least => 0.5, collations => [ 'C', 'C', 'libc', icu_collation($node, 'en-x-icu') =~ s/"//gr ],
	table => { rows => [ 0, 100, (5000) x 3, (20000) x 2 ], strings => 0 }, with => { 'gpusort.min_rows' => [ 0, 100000 ] },
	forms => [ ('limit') x 5, ('ties') x 4, ('value') x 3, 'union', 'append' ]);

# ---- what is kept ----

$node->safe_psql('postgres', <<'SQL');
DROP TABLE t CASCADE;
CREATE TABLE t AS SELECT i AS id, rnd(i, 1, 1000000000) AS r, rnd(i, 2, 3)::int AS f, -i AS down, 'the same first bytes in all of them ' || rnd(i, 3, 20000) AS t,
	repeat('the same first bytes ', 3) || rnd(i, 4, 4) AS u, repeat('x', rnd(i, 9, 300)::int) AS pad FROM generate_series(1, 60000) i;
ANALYZE t;
SQL

# EXPLAIN ANALYZE's lines about the sort
sub explained
{
	my ($query, $settings) = @_;
	return $node->safe_psql('postgres', 'SET gpusort.force = on; SET gpusort.engine = cpu; SET max_parallel_workers_per_gather = 0; '
		  . ($settings // '') . "; EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) $query");
}

foreach my $case (
	[ 'random keys', 'r', 'id, r', 600 ],
	[ 'one column', 'r', 'r', 200 ],
	[ 'descending input', 'down', 'id, down', 600 ],
	[ 'strings of which only the first bytes are in the key', 't', 'id, t', 1200 ],
	[ 'few distinct strings', 'u COLLATE ' . icu_collation($node, 'en-x-icu') . ', id', 'id, u', 1500 ])
{
	my ($name, $by, $columns, $most) = @$case;
	my $lines = explained("SELECT $columns FROM t ORDER BY $by LIMIT 10");
	like($lines, qr/Bound: 10\n *Rows Removed by Bound: 5[5-9]\d\d\d\n/, "$name: EXPLAIN shows the bound");
	my ($memory) = $lines =~ /Memory: (\d+) kB/;
	cmp_ok($memory // 1e9, '<', $most, "$name: the sort keeps few rows");
}
unlike(explained('SELECT id, pad FROM t ORDER BY r LIMIT 6000', "SET gpusort.memory_limit = '4MB'"), qr/Runs:/,
	'rows that are not fetched are not spilled');
like(explained('SELECT id, pad FROM t ORDER BY r LIMIT 20000', "SET gpusort.memory_limit = '1MB'"), qr/Runs: \d+/,
	'rows that are fetched are spilled if they exceed the memory limit');
like(explained("SELECT $_ FROM t ORDER BY f FETCH FIRST 10 ROWS WITH TIES"),
	qr/rows=(\d\d\d\d\d)\b.*Bound: 10\n/s, "WITH TIES keeps all rows equal to the last, $_")
  foreach 'id, f', 'f';

# the prepared statement's plan is made before the LIMIT is known
foreach my $n (5, 5000)
{
	like($node->safe_psql('postgres', "SET gpusort.force = on; SET max_parallel_workers_per_gather = 0; SET plan_cache_mode = force_generic_plan; PREPARE p (int) AS SELECT id, r FROM t ORDER BY r LIMIT \$1; "
			  . "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) EXECUTE p ($n)"),
		qr/Bound: $n\n/, "LIMIT \$1 of $n: the bound is the parameter's value");
}

# equal values whose keys differ
is($node->safe_psql('postgres', "SET gpusort.force = on; SELECT count(*) FROM (SELECT CASE WHEN i % 2 = 0 THEN '-0'::$_ ELSE 0::$_ END AS x "
		  . "FROM generate_series(1, 20000) i ORDER BY x FETCH FIRST 10 ROWS WITH TIES) s"),
	'20000', "WITH TIES: -0 and 0 of type $_ are equal")
  foreach 'float4', 'float8';

$node->stop;
done_testing();
