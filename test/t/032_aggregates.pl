# Which aggregates that sort inside themselves GpuSort Aggregate computes, and which must stay core's; where the rows are
# sorted below an Agg, and where all processes sort.  The answers are core's; random queries of such
# aggregates are in 051_aggregates_random.pl and 052_grouped_aggregates.pl.
#
# From PostgreSQL 16 on the planner itself sorts the input of aggregates with DISTINCT
# or ORDER BY (enable_presorted_aggregate).  Rows that tie in that order come in any order.

use strict;
use warnings;

use GpusortTest;
use RandomTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('aggregates', order_by => 1, settings => "work_mem = 64MB\n");
$node->start;
my $presorts = $node->safe_psql('postgres', "SELECT count(*) FROM pg_settings WHERE name = 'enable_presorted_aggregate'");
my $icu = icu_collation($node, 'en-x-icu');

# Switches the planner's sorting for aggregates, where the server has it.
sub presorting { return $presorts ? "SET enable_presorted_aggregate = $_[0];" : '' }

$node->safe_psql('postgres', random_schema());

# ----------------------------------------------------------------
# Plans
# ----------------------------------------------------------------

$node->safe_psql('postgres', <<"SQL");
CREATE SEQUENCE q;
CREATE TABLE p AS
SELECT hashint4(i) AS k, i % 50 AS g, hashint8(i) AS big, (i % 2)::numeric AS few, (hashint4(i) / 100.0)::numeric(12, 2) AS fixed, hashint4(i) / 7.0 AS n,
       (i / 7.0)::float8 AS f8, md5(i::text) COLLATE "C" AS c, md5(i::text) COLLATE $icu AS icu, i::numeric AS sorted, -i::numeric AS falling
FROM generate_series(1, 100000) i;
ALTER TABLE p ADD body text DEFAULT 'body';
VACUUM ANALYZE p;
CREATE TABLE u AS SELECT id, 'name ' || id AS name, md5(id::text) AS note FROM generate_series(0, 60) id;
ALTER TABLE u ADD PRIMARY KEY (id);
CREATE TABLE indexed AS SELECT * FROM p;
CREATE INDEX ON indexed (n);
CREATE INDEX ON indexed (g DESC);
VACUUM ANALYZE indexed;
SQL

sub plan_of
{
	my ($query, $settings) = @_;
	return $node->safe_psql('postgres',
		presorting('off') . "SET gpusort.force = off; SET enable_hashagg = off; $settings; EXPLAIN (COSTS OFF) $query");
}

# Aggregates that GpuSort Aggregate computes need no sorted input, alone and beside others, in any mix.
my $median = 'percentile_disc(0.5) WITHIN GROUP (ORDER BY n)';
foreach my $query (
	(map { "SELECT $_ FROM p" } 'percentile_cont(0.5) WITHIN GROUP (ORDER BY k DESC)',
		'percentile_cont(0.5) WITHIN GROUP (ORDER BY n) + count(DISTINCT k)',
		'count(DISTINCT k) FILTER (WHERE g = 1), mode() WITHIN GROUP (ORDER BY k)',
		'count(DISTINCT k), count(*), sum(k)',
		"percentile_disc(0.5) WITHIN GROUP (ORDER BY k), string_agg(c, ',')",
		$median, "$median FILTER (WHERE g = 1)",
		'percentile_cont(0.5) WITHIN GROUP (ORDER BY g * interval \'1 s\')',
		'mode() WITHIN GROUP (ORDER BY c NULLS FIRST)',
		"count(DISTINCT c COLLATE $icu), count(DISTINCT n), count(DISTINCT few + g)",
		"string_agg(c, ',' ORDER BY big, k DESC), array_agg(g ORDER BY k), array_agg(g)",
		'sum(DISTINCT n), avg(DISTINCT fixed), sum(f8), first_of(k ORDER BY big), first_of(k)'),
	"SELECT g, $median, count(*) FROM p GROUP BY g",
	"SELECT g, string_agg(DISTINCT c, ','), count(DISTINCT k) FROM p GROUP BY g",
	"SELECT $median FROM (SELECT * FROM p ORDER BY big LIMIT 90000) q")
{
	foreach my $presorting ($presorts ? ('off', 'on') : 'off')
	{
		my $plan = plan_of($query, presorting($presorting));

		like($plan, qr/^Custom Scan \(GpuSort Aggregate\)\n/, "computed without a sort, presorting $presorting: $query");
		unlike($plan, qr/Sort Key/, "no sort is left: $query") if $query !~ /ORDER BY big LIMIT|array_agg\(g\)|first_of\(k\)|NULLS FIRST|SELECT g, percentile/;
	}
}

foreach my $case (
	# the row of a hypothetical-set aggregate is not in the table
	[ 'SELECT rank(5) WITHIN GROUP (ORDER BY k) FROM p' ],
	[ "SELECT $median, rank(5) WITHIN GROUP (ORDER BY k) FROM p" ],
	# no type of gpusort's, volatile functions, subqueries, grouping sets
	[ 'SELECT count(DISTINCT to_jsonb(k)) FROM p' ],
	[ "SELECT $median, count(nextval('q') > 3) FROM p" ],
	[ "SELECT $median, count(*) FILTER (WHERE random() < 0.5) FROM p" ],
	[ "SELECT $median, sum((SELECT k)) FROM p" ],
	[ "SELECT g, $median FROM p GROUP BY ROLLUP (g)" ],
	# the groups come in order, by an index
	[ "SELECT g, $median FROM indexed GROUP BY g ORDER BY g DESC", 'SET enable_seqscan = off; SET enable_sort = off' ],
	[ "SELECT $median FROM p", 'SET gpusort.enabled = off' ])
{
	my ($query, $settings) = @$case;

	unlike(plan_of($query, $settings // ''), qr/GpuSort Aggregate/, "core's: $query");
}

# One order of all aggregates that sort: their rows are sorted below the Agg.  Index scans in the order of the groups give way.
my $ordered = "string_agg(c, ',' ORDER BY big, k DESC)";
foreach my $case (
	[ "SELECT $ordered FROM p", 'big, k DESC' ],
	[ "SELECT count(*), $ordered || 'x', array_agg(k ORDER BY big, k DESC) FROM p HAVING sum(g ORDER BY big, k DESC) > 0", 'big, k DESC' ],
	[ "SELECT g, $ordered || 'x', array_agg(k ORDER BY big, k DESC) FILTER (WHERE k > 0) FROM p GROUP BY g HAVING sum(g ORDER BY big, k DESC) > 0", 'g, big, k DESC' ],
	[ "SELECT g, array_agg(k ORDER BY n NULLS FIRST) FROM p GROUP BY g", 'g, n NULLS FIRST' ],
	[ "SELECT g, $ordered, max(k) FROM p GROUP BY g ORDER BY g DESC", 'g DESC, big, k DESC' ],
	[ "SELECT g, array_agg(c ORDER BY k) FROM indexed GROUP BY g ORDER BY g DESC", 'g DESC, k', 'SET max_parallel_workers_per_gather = 0' ],
	[ "SELECT g, array_agg(c ORDER BY k) FROM p GROUP BY g ORDER BY 2", 'g, k' ],
	[ "SELECT count(DISTINCT n), sum(DISTINCT n) FROM p", 'n' ],
	[ "SELECT g, count(DISTINCT c) FROM p GROUP BY g", 'g, c COLLATE "C"' ],
	[ "SELECT g, count(DISTINCT c), count(*), string_agg(c, ',' ORDER BY c) || array_agg(DISTINCT c)::text, sum(k) FILTER (WHERE k > 0) FROM p GROUP BY g", 'g, c COLLATE "C"' ],
	[ "SELECT few, string_agg(DISTINCT c, ',' ORDER BY c DESC) FILTER (WHERE k > 0), count(DISTINCT c) FILTER (WHERE k < 0) FROM p GROUP BY few", '' ],
	[ "SELECT few, string_agg(DISTINCT c, '-' ORDER BY c DESC) FILTER (WHERE k > 0), max(DISTINCT c ORDER BY c DESC) FILTER (WHERE k > 0) FROM p GROUP BY few", 'few, c COLLATE "C" DESC' ],
	# a column of the group that is not grouped by, and one that is sorted by twice
	[ "SELECT u.id, u.name || count(DISTINCT c), u.note FROM p JOIN u ON id = g GROUP BY u.id HAVING u.note <> ''", 'u.id, p.c COLLATE "C"' ],
	[ "SELECT c, array_agg(k ORDER BY c DESC, big) FROM p GROUP BY c", 'c COLLATE "C", big' ])
{
	my ($query, $order, $settings) = @$case;
	my $plan = plan_of($query, presorting('on') . ($settings // ''));

	like($plan, qr/^ *(?:->  )?(?:(?:Group)?Aggregate|Custom Scan \(GpuSort Aggregate\))\n(?: +(?:Group Key|Filter|Aggregates): .*\n)* +->  Custom Scan \(GpuSort\)\n +Sort Key: (?:\w+\.)?\Q$order\E\n/m,
		"sorted below the aggregates: $query") if $order ne '';
	my @answers = map { $node->safe_psql('postgres', presorting('on') . "SET gpusort.enabled = $_; SELECT count(*), md5(string_agg(s::text, ';')) FROM ($query OFFSET 0) s") } 'on', 'off';
	is($answers[0], $answers[1], "the aggregates are core's: $query");
}
foreach my $more ('array_agg(g)', 'first_of(g)', 'array_agg(k ORDER BY big, k)', 'array_agg(k ORDER BY big + 1)', 'array_agg(DISTINCT k)', $median, "string_agg(c, ',' ORDER BY big DESC, k DESC)")
{
	unlike(plan_of("SELECT g, $ordered, $more FROM p GROUP BY g", ''), qr/Sort Key:.*\bbig\b/, "not sorted below the aggregates: $more");
}

# the order of a group's rows shows in a sum of floats by its rounding only
like(plan_of("SELECT g, $ordered, avg(f8) FROM p GROUP BY g", ''), qr/Sort Key: g, big, k DESC/, 'sorted below the aggregates: avg(f8)');
unlike(plan_of("SELECT $ordered, avg(f8) FROM p", ''), qr/Sort Key: big, k DESC/, 'without groups, the sum is that of the rows as they are');

# Few distinct values are found before the sort, but beside another aggregate a sort below would have all rows.
unlike(plan_of('SELECT count(*), count(DISTINCT few) FROM p', presorting('on')), qr/Sort Key/, 'distinct values beside another aggregate');

# All processes feed the sort below, or compute shares of the groups.  Where there is no such sort, no row goes through a Gather.
my $feeds = 'SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET min_parallel_table_scan_size = 0;' . presorting('on');
foreach my $query (
	'SELECT count(DISTINCT n), array_agg(DISTINCT n) FROM p',
	'SELECT g, count(DISTINCT c), count(*) FROM p GROUP BY g',
	# expressions, which the processes compute
	'SELECT count(DISTINCT upper(c)) FROM p',
	"SELECT g % 7, string_agg(DISTINCT left(c, 2) || g, ','), count(DISTINCT left(c, 2) || g), sum(k) FROM p GROUP BY 1 HAVING max(k) > 0",
	"SELECT g, string_agg(c, ',' ORDER BY k + 1, c) FROM p GROUP BY g",
	"SELECT id, note, array_agg(c ORDER BY -k, c) FROM p JOIN u ON id = g GROUP BY id")
{
	like(plan_of($query, $feeds), qr/GpuSort Feed|Shared by/, "all processes sort for: $query");
	my @answers = map { $node->safe_psql('postgres', "$feeds SET gpusort.enabled = $_; SELECT count(*), md5(string_agg(s::text, ';' ORDER BY s::text COLLATE \"C\")) FROM ($query OFFSET 0) s") } 'on', 'off';
	is($answers[0], $answers[1], "and the answer is core's: $query");
}
unlike(plan_of($_, $feeds), qr/Gather/, "one process reads for: $_")
  foreach "SELECT count(DISTINCT k), string_agg(c, ',' ORDER BY n) FROM p",
	'SELECT count(DISTINCT n) FILTER (WHERE k > 0) FROM p', 'SELECT count(*), count(DISTINCT few) FROM p';

# The planner may aggregate partitions one by one.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE parts (c text, g int, k int) PARTITION BY LIST (g);
CREATE TABLE even_ones PARTITION OF parts FOR VALUES IN (0, 2, 4, 6);
CREATE TABLE odd_ones PARTITION OF parts FOR VALUES IN (1, 3, 5, 7);
INSERT INTO parts SELECT c, g % 8, k FROM p;
ANALYZE parts;
SQL
foreach my $distinct ('c', 'left(c, 2)')
{
	my $query = "SELECT g, sum(k), count(DISTINCT $distinct) FROM parts GROUP BY g HAVING avg(k) <> 3 ORDER BY g";
	my @answers = map { $node->safe_psql('postgres', "$feeds SET enable_partitionwise_aggregate = on; SET enable_hashagg = off; SET gpusort.enabled = $_; $query") } 'on', 'off';
	is($answers[0], $answers[1], "partitions are aggregated: count(DISTINCT $distinct)");
}

# Of rows that are spilled, a merge drops those that repeat another one, also a merge on disk and one that begins again.
foreach my $distinct ('g', 'big % 5000, g', 'n, few, fixed', 'g, k % 100, big % 3, f8 > 5000', 'c', 'few, icu', 'nullif(big % 20000, 7), -g',
	# many words, of which the codes of the merge hold the first one
	'md5(g::text)::uuid, md5((k % 100)::text)::uuid')
{
	my $query = "SELECT count(*), sum(hashtextextended(s::text, 0)::numeric) FROM generate_series(1, 2) again, LATERAL (SELECT DISTINCT $distinct, again FROM p OFFSET 0) s";
	my @answers = map { $node->safe_psql('postgres', "SET enable_hashagg = off; SET gpusort.force = on; SET work_mem = '64kB'; SET gpusort.enabled = $_; $query; SELECT count(*) FROM (SELECT DISTINCT $distinct FROM p OFFSET 0) s") } 'on', 'off';
	is($answers[0], $answers[1], "distinct rows of a spill: $distinct");
}

# From 16 on, an index may give an aggregate its rows in order.
if ($presorts)
{
	my $plan = plan_of('SELECT count(DISTINCT n) FROM indexed', presorting('on') . 'SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off');

	like($plan, qr/^Aggregate\n +->  Index (?:Only )?Scan/, 'an index gives the order of an aggregate');
}

# Only the columns that are needed reach the node.
my $verbose = $node->safe_psql('postgres', "EXPLAIN (COSTS OFF, VERBOSE) SELECT $median FROM p");
like($verbose, qr/Aggregates: percentile_disc\(.*\) WITHIN GROUP \(ORDER BY p\.n\)\n/, 'EXPLAIN shows the aggregate');

# a parallel scan below the node
like($node->safe_psql('postgres', <<"SQL"), qr/GpuSort Aggregate\)\n.*\n +->  Gather/, 'the node is above Gather');
SET max_parallel_workers_per_gather = 2;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
EXPLAIN (COSTS OFF) SELECT $median FROM p;
SQL

# A plan is executed by core's sorts if gpusort.enabled has been turned off since.
my @executed = map { $node->safe_psql('postgres', "SET gpusort.enabled = on; PREPARE q AS SELECT $median, count(DISTINCT c), string_agg(c, ',' ORDER BY big, k) = '' FROM p; SET gpusort.enabled = $_; EXECUTE q; EXECUTE q") } 'on', 'off';
is($executed[1], $executed[0], 'a prepared statement, before and after gpusort.enabled is turned off');

# Core's answers, where the plan below the aggregate must not be changed.
$node->safe_psql('postgres', <<'SQL');
CREATE SEQUENCE calls;
CREATE DOMAIN whole AS int;
CREATE TABLE twice AS SELECT i % 50 AS a, i % 7 AS b, (i * 7919::bigint) % 100003 AS x FROM generate_series(1, 20000) i;
CREATE INDEX ON twice (a, a, b, x);
SQL
foreach my $case (
	[ 'a volatile function of a subquery is called', "SELECT count(DISTINCT big) FROM (SELECT nextval('calls') n, big FROM p) q; SELECT last_value > 0 FROM calls; ALTER SEQUENCE calls RESTART" ],
	[ 'a window function is a condition', 'SELECT count(DISTINCT big) FROM (SELECT row_number() OVER (ORDER BY k) n, big FROM p) q WHERE n <= 50000' ],
	[ 'a window function of other columns is a condition', 'SELECT count(DISTINCT g) FROM (SELECT row_number() OVER (ORDER BY k) n, g, big FROM p) q WHERE n <= 50000' ],
	[ 'an aggregate of a subquery is not used', "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY c) FROM (SELECT max(nextval('calls')) m, count(*) c FROM p GROUP BY big) q" ],
	[ 'a subquery has an order', "SELECT (array_agg(sorted))[1:5], count(DISTINCT k) FROM (SELECT sorted, k FROM p ORDER BY big) q; SELECT md5(string_agg(c, ',')), mode() WITHIN GROUP (ORDER BY k) FROM (SELECT c, k FROM p ORDER BY big) q" ],
	[ 'the groups are constant below a sort by other columns', 'SELECT g, md5(array_agg(k ORDER BY c)::text) FROM (SELECT * FROM p ORDER BY big) q WHERE g = 1 GROUP BY g' ],
	[ 'groups of equal columns', 'SELECT md5(string_agg(r::text, NULL)) FROM (SELECT a, b, array_agg(x ORDER BY x) FROM (SELECT * FROM twice ORDER BY a, x DESC) q WHERE a = b GROUP BY a, b) r' ],
	[ 'a subquery in an aggregate is called', "ALTER SEQUENCE calls RESTART; SELECT (array_agg((SELECT nextval('calls') + 0 * p.k) ORDER BY big))[1:10] FROM p" ],
	[ 'values are of a domain', "SELECT percentile_disc(ARRAY[0.1, 0.5]) WITHIN GROUP (ORDER BY whole(g)) || ARRAY[whole(1)], mode() WITHIN GROUP (ORDER BY whole(g)) FROM p" ],
	[ 'peers are sorted further', 'SELECT count(*), sum(b) FROM (SELECT a, b, rank() OVER (ORDER BY a) r FROM (SELECT * FROM (SELECT g a, k b FROM p ORDER BY g, k) x UNION ALL SELECT * FROM (SELECT g, k FROM p ORDER BY g, k) y) s) z WHERE r <= 3' ],
	[ 'an index has a column twice', 'SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; SET enable_hashagg = off; SET enable_incremental_sort = off; SET enable_indexonlyscan = off; SELECT count(*) FROM (SELECT a, b, count(DISTINCT x) FROM twice GROUP BY a, b) q' ])
{
	my ($name, $sql) = @$case;

	foreach my $presorting ($presorts ? ('off', 'on') : 'off')
	{
		my $settings = presorting($presorting) . 'SET gpusort.force = on; SET gpusort.enabled';
		my @answers = map { $node->safe_psql('postgres', "$settings = $_; $sql") } 'on', 'off';

		is($answers[0], $answers[1], $presorting eq 'on' ? "$name, and the planner sorts for aggregates" : $name);
	}
}

$node->stop;
done_testing();
