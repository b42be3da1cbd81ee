# DISTINCT ON, and conditions such as row_number() <= 3, return the same rows with GpuSort and without.
#
# Below them GpuSort keeps only the first rows of each group while it reads its input, unless a
# window function looks at later rows.  The random queries are those of RandomQueries.pm.  Then EXPLAIN
# shows where rows are removed.
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

my $node = random_node('groups');
my @icu = has_icu($node) ? ('en-x-icu', 'nocase') : ();
random_queries($node, 'postgres', 'with groups', least => 0.5, collations => [ 'C', 'C', 'libc', @icu ], table => { rows => [ 0, 100, 3000, (10000) x 2, 20000 ], strings => 0 },
	forms => [ ('distinct on') x 2, 'distinct', ('value') x 2, ('first') x 4, ('first ties') x 3 ], with => { 'gpusort.min_rows' => [ 0, 100000 ] }, settings => { enable_hashagg => ['off'] });

# ---- what is kept ----

my $icu = icu_collation($node, 'en-x-icu');
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE g AS SELECT i AS id, nullif(abs(hashint4(i)) % 50, 7) AS few, abs(hashint4(i + 7)) % 1000 AS mid, hashint8(i) AS r,
	'the same first bytes in all of them ' || hashint4(-i) % 20 AS word FROM generate_series(1, 100000) i;
ALTER TABLE g SET (parallel_workers = 2);
CREATE TABLE parts (LIKE g) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (20000);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (20000) TO (40000);
INSERT INTO parts SELECT * FROM g WHERE id < 40000;
CREATE INDEX ON parts_1 (few, r, id);
VACUUM ANALYZE;
SQL
my $explain = 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF)';
my $parallel = 'SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0';
my $serial = 'SET max_parallel_workers_per_gather = 0';

# EXPLAIN ANALYZE's lines about a query, whose rows must be core's
sub explained
{
	my ($query, $settings) = @_;
	my $rows = "SELECT count(*), sum(hashtextextended(q::text, 0)::numeric) FROM ($query) q";
	my ($core, $ours, $lines) = split /\n/, $node->safe_psql('postgres', join '; ', 'SET enable_hashagg = off', $settings // $serial,
		'SET gpusort.enabled = off', $rows, 'SET gpusort.enabled = on; SET gpusort.force = on', $rows, "$explain $query"), 3;
	is($ours, $core, "core's rows: $query");
	return $lines;
}

# A query for the first rows of groups, by a function that is called n, with another function beside
sub first_rows
{
	my ($columns, $function, $window, $condition, $beside) = @_;
	return "SELECT * FROM (SELECT $columns, $function OVER w AS n" . ($beside ? ", $beside OVER w AS v" : '') . " FROM g WINDOW w AS ($window)) s WHERE $condition";
}

my $small = "$serial; SET gpusort.memory_limit = '300kB'";
my $order = 'PARTITION BY few ORDER BY r, id';
my $first = first_rows('few, id', 'row_number()', $order, 'n <= 3');
foreach my $case (
	[ 1, 'SELECT DISTINCT ON (few) few, r, id FROM g ORDER BY few DESC, r, id' ],
	[ 1, 'SELECT DISTINCT ON (few, word) few, word, id FROM g WHERE few < 5 ORDER BY word, few, id', 8000 ],
	[ 1, "SELECT DISTINCT ON (word COLLATE $icu) word, id FROM g ORDER BY word COLLATE $icu, r, id" ],
	[ 1, 'SELECT DISTINCT word FROM g' ],
	[ 1, 'SELECT DISTINCT few FROM g', 50000 ],
	[ 1, 'SELECT DISTINCT ON (few) few, r, id FROM parts ORDER BY few, r, id', 15000, qr/Merge Append/ ],
	(map { [ 3, first_rows('few, id', 'row_number()', $order, $_) ] } 'n < 4::int2 AND n > 1', '3::int8 >= n', '(SELECT 4) > n', 'n = 3'),
	(map { [ 1, first_rows('few, id', 'row_number()', $order, $_) ] } 'n <= 0', 'n < -1::int8', '(SELECT 0) = n'),
	[ 3, first_rows('few, id', 'rank()', 'PARTITION BY few ORDER BY mid', 'n <= 3') ],
	[ 3, first_rows('few, id', 'dense_rank()', 'PARTITION BY few ORDER BY mid DESC', 'n <= 3') ],
	[ 3, first_rows('word, few, id', 'rank()', 'PARTITION BY few ORDER BY word, mid', 'n <= 3') ],
	[ 3, first_rows('few', 'row_number()', 'PARTITION BY few', 'n <= 3'), 50000 ],
	[ 3, first_rows('few', 'dense_rank()', 'ORDER BY few', 'n <= 3'), 50000 ],
	[ 3, first_rows('few, id', 'rank()', 'ORDER BY few', 'n <= 3') =~ s/FROM g/FROM (SELECT few, id FROM g ORDER BY few, id OFFSET 0) g/r ])
{
	my ($n, $query, $least, $shape) = @$case;
	my $lines = explained($query, $small);
	my ($removed) = $lines =~ /Bound per Group: $n\n *Rows Removed by Bound: (\d+)\n/;
	ok(($removed // 0) >= ($least // 90000) && $lines !~ /Runs:/ && $lines =~ ($shape // qr//), "most rows are removed, bound $n") or diag($lines);
}

# Functions that look at later rows, and others.  DuckDB's rewrite of such queries once returned wrong values of the former.
foreach my $case (
	(map { [ 0, 'row_number()', $_ ] } 'lead(id)', 'lag(id, -1)', 'lag(id, few)', 'ntile(4)', 'percent_rank()', 'cume_dist()', 'last_value(id)',
		'count(*) OVER (PARTITION BY few), row_number()'),
	(map { [ 0, 'row_number()', 'sum(mid)', $_ ] } 'ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING', 'ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING',
		'ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW'),
	(map { [ 0, 'row_number()', 'sum(mid)', $_, 'mid' ] } '', 'GROUPS 1 PRECEDING', 'RANGE BETWEEN UNBOUNDED PRECEDING AND 0 PRECEDING', 'RANGE 7 PRECEDING EXCLUDE TIES'),
	[ 0, 'rank()', 'lead(id)' ],
	[ 0, 'rank()', 'sum(mid)', 'GROUPS BETWEEN CURRENT ROW AND 1 FOLLOWING' ],
	(map { [ 3, 'row_number()', $_ ] } 'lag(id, 2, 0)', 'rank()', 'dense_rank()'),
	(map { [ 3, 'row_number()', $_, 'ROWS UNBOUNDED PRECEDING' ] } 'sum(mid)', 'first_value(id)', 'last_value(id)', 'nth_value(id, 2)'),
	(map { [ 3, 'row_number()', 'count(*)', $_ ] } 'ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING', 'ROWS UNBOUNDED PRECEDING EXCLUDE GROUP'),
	(map { [ 3, 'rank()', 'sum(mid)', $_ ] } '', 'GROUPS 1 PRECEDING', 'RANGE UNBOUNDED PRECEDING EXCLUDE TIES', 'ROWS CURRENT ROW'))
{
	my ($n, $function, $beside, $frame, $by) = @$case;
	my $window = ($by ? "PARTITION BY few ORDER BY $by " : "$order ") . ($frame // '');
	my $lines = explained(first_rows($by ? 'few' : 'few, id', $function, $window, 'n <= 3', $beside), $small);
	like($lines, $n ? qr/Bound per Group: $n\n/ : qr/^(?!.*Bound).*GpuSort/s, "$function beside $beside");
}

# more rows than come before a trim; as many groups as rows; workers
like(explained($_, "$serial; SET gpusort.memory_limit = '1GB'"), qr/Rows Removed by Bound: [6-9]\d{4}\n/, 'in a large memory, too')
  foreach 'SELECT DISTINCT few FROM g', $first;
like(explained('SELECT DISTINCT ON (id) id, r FROM g ORDER BY id, r', "$serial; SET gpusort.memory_limit = '$_'"), qr/Bound per Group: 1\n *Memory/,
	"groups of one row each, $_")
  foreach '64kB', '1GB';
like(explained($first, "$parallel; SET gpusort.memory_limit = '64kB'"), qr/^(?!.*Runs).*Bound per Group: 3\n *Rows Removed by Bound: 9\d{4}\n.*GpuSort Feed/s,
	'workers that feed a sort remove rows');
like(explained('SELECT DISTINCT ON (word) word, id FROM g ORDER BY word, r, id', "$parallel; SET gpusort.memory_limit = '64kB'"),
	qr/Bound per Group: 1\n *Rows Removed by Bound: 9\d{4}\n.*GpuSort Feed/s, 'by strings, too');

# All processes sort, though core would not gather rows that are so narrow.  Expressions are computed for the first rows only, but
# those of groups in one process, and volatile ones and subqueries for all rows.
$node->safe_psql('postgres', <<'SQL');
CREATE SEQUENCE calls;
CREATE TABLE indexed AS SELECT few, id, word::varchar AS name FROM g;
CREATE INDEX ON indexed (few);
ANALYZE indexed;
SQL
foreach my $query ('SELECT DISTINCT ON (few) few, id FROM g ORDER BY few, id', 'SELECT DISTINCT ON (few) few * 2 AS two, word || id AS name, 1 AS one FROM g ORDER BY few, id',
	'SELECT DISTINCT ON (few) few, few AS again, id + 1 AS next FROM g ORDER BY few, id', 'SELECT DISTINCT ON (name) name, id FROM indexed ORDER BY name, id',
	first_rows('few', 'row_number()', 'PARTITION BY few ORDER BY id', 'n <= 3'))
{
	like(explained($query, "$parallel; SET parallel_tuple_cost = 0.1"), qr/Bound per Group.*GpuSort Feed/s, 'narrow rows in all processes');
}
like(explained('SELECT DISTINCT ON (few % 5) few, id FROM g ORDER BY few % 5, id', "$parallel; SET parallel_tuple_cost = 0.1"),
	qr/Sort Key: \(\(few % 5\)\), id\n.*Bound per Group: 1\n/s, 'groups by an expression');
foreach my $call ("nextval('calls')", "(SELECT nextval('calls') WHERE id > 0)")
{
	is($node->safe_psql('postgres', "$parallel; SET gpusort.force = on; ALTER SEQUENCE calls RESTART; SELECT count(*) FROM (SELECT DISTINCT ON (few) few, $call FROM indexed OFFSET 0) q; SELECT last_value FROM calls"),
		"50\n100000", "$call is called for all rows");
}
explained("SELECT DISTINCT ON (few) few, mid, string_agg(word, ',' ORDER BY id), count(DISTINCT r) FROM g GROUP BY few, mid ORDER BY few, mid", $parallel);

# Trims have made a table of groups, which removes later rows, when values come whose words are those of shorter values.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE late AS SELECT id, few, id % 10 + CASE WHEN id > 80000 THEN (id % 3)::numeric / 1e40 ELSE 0 END AS n FROM g ORDER BY id;
VACUUM ANALYZE late;
SQL
foreach my $settings (map { "$_; SET gpusort.memory_limit = '1MB'" } $serial, $parallel)
{
	explained('SELECT DISTINCT ON (n) n, id FROM late ORDER BY n, few, id', $settings);
	explained(first_rows('few, n, id', 'row_number()', 'PARTITION BY few ORDER BY n DESC, id', 'n <= 3') =~ s/few, n, id,/few, n AS v, id,/r =~ s/FROM g/FROM late/r, $settings);
}

# A trim leaves too little room beside its table of groups, which gives way.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE many AS SELECT (hashint8(i)::int8 & 2147483647) % 50000 AS k, hashint8(i * 3)::int AS v, repeat('x', 10) AS p FROM generate_series(1, 600000) i;
VACUUM ANALYZE many;
SQL
unlike(explained('SELECT DISTINCT ON (k) k, v, p FROM many ORDER BY k, v', "$serial; SET gpusort.memory_limit = '${_}kB'"), qr/Runs:/, "no run is spilled in $_ kB")
  foreach 8300, 8400, 8500;

# the prepared statement's plan is made before the number is known, which workers get; core's sort may be asked for more rows
my $generic = 'SET gpusort.force = on; SET plan_cache_mode = force_generic_plan; PREPARE p (int) AS';
foreach my $settings ($serial, $parallel)
{
	my $query = first_rows('few, id', 'row_number()', 'PARTITION BY few ORDER BY word, id', 'n <= $1');
	like($node->safe_psql('postgres', "$settings; $generic $query; $explain EXECUTE p ($_)"), qr/Bound per Group: $_\n/, "a bound of \$1, $_") foreach 2, 7;
}
is($node->safe_psql('postgres', "$generic " . first_rows('id', 'row_number()', 'ORDER BY id', 'n <= $1') . '; EXECUTE p (2); SET gpusort.enabled = off; EXECUTE p (2)'),
	"1|1\n2|2\n1|1\n2|2", "core's sort below a condition");

# a sort with another bound in each round of a nested loop
like(explained('SELECT o.r, l.* FROM (VALUES (2), (5), (1), (NULL), (4)) o(r), LATERAL (' . first_rows('few, id', 'row_number()', $order, 'n <= o.r') . ' OFFSET 0) l',
		"$parallel; SET gpusort.memory_limit = '64kB'; SET parallel_leader_participation = off"), qr/GpuSort Feed/, 'workers that sort again');

# equal values whose keys differ
foreach my $type ('float4', 'float8')
{
	my $from = "FROM (SELECT CASE WHEN id % 2 = 0 THEN '-0'::$type ELSE 0::$type END AS x FROM g) y) s WHERE n <= 1";
	explained("SELECT count(*) FROM (SELECT x, $_ OVER (ORDER BY x) AS n $from", $small) foreach 'rank()', 'dense_rank()';
	explained("SELECT count(*) FROM (SELECT x, row_number() OVER (PARTITION BY x) AS n $from", $small);
}

# An UPDATE that finds its row changed by another session evaluates its subqueries again, for the new row.
$node->safe_psql('postgres', 'CREATE TABLE account AS SELECT 1 AS id, 11 AS kind, NULL::text AS first, NULL::text AS latest, NULL::bigint AS n');
my $values = "(SELECT string_agg(q::text, ' ' ORDER BY few) FROM (SELECT DISTINCT ON (few) few, id FROM g WHERE few <> kind ORDER BY few, r, id) q), "
  . "(SELECT string_agg(q::text, ' ' ORDER BY few, n) FROM (SELECT few, id, row_number() OVER (PARTITION BY few ORDER BY r, id) AS n FROM g WHERE few <> kind) q "
  . 'WHERE n <= 2), (SELECT count(DISTINCT mid) FROM g WHERE few < kind % 10)';
my $update = "UPDATE account SET (first, latest, n) = (SELECT $values) WHERE id = 1";
my ($writer, $waiter) = map { session($node) } 1 .. 2;
answer($waiter, 'SET gpusort.force = on');
my $plan = answer($waiter, "EXPLAIN (COSTS OFF) $update");
like($plan, qr/Unique\n *->  Custom Scan \(GpuSort\).*Run Condition.*Custom Scan \(GpuSort\).*GpuSort Aggregate\)\n *Aggregates: count/s, 'of an UPDATE') or diag($plan);
answer($writer, 'BEGIN', 'UPDATE account SET kind = 32');
$waiter->{in} .= "$update;\n";
$waiter->{psql}->pump_nb;
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"), 'the UPDATE waits');
answer($writer, 'COMMIT');
is(answer($waiter, 'SELECT kind FROM account') . $waiter->{err}, '32', 'it goes on');
is(answer($waiter, 'SELECT first, latest, n FROM account'), answer($writer, 'SET gpusort.enabled = off', "SELECT $values FROM account"), 'with the values of the new row');
leave($_) foreach $writer, $waiter;

# a column that is sorted twice, with different collations; a string behind numbers whose keys hold a part of them;
# an offset that leads to later rows
explained(q{SELECT DISTINCT w COLLATE nocase AS a, w COLLATE "C" AS b FROM (SELECT chr(65 + few % 2 * 32) AS w FROM g) x}) if has_icu($node);
explained(first_rows('id', 'row_number()', 'ORDER BY few * 0 + 123456789012345678901234567890.1, id, md5(word) COLLATE libc', 'n <= 3')
	=~ s/FROM g/FROM (SELECT * FROM g WHERE id <= 200) g/r);
explained(first_rows('few, id', 'rank()', "PARTITION BY few ORDER BY timestamp '2021-03-01' + mid * interval '1 hour' RANGE BETWEEN UNBOUNDED PRECEDING "
	  . "AND interval '1 mon -29 days' PRECEDING", 'n <= 3', 'count(*)'));

$node->stop;
done_testing();
