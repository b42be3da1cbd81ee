# Aggregates that sort inside themselves give the same results with GpuSort and without.
#
# Random queries over random tables: aggregates with DISTINCT, with ORDER BY and with
# WITHIN GROUP, several in a query, beside aggregates that show the order of their
# input, with FILTER, NULLs, and groups of no, one and many rows.  Each query runs twice: with
# gpusort.enabled = off, and with gpusort.enabled and gpusort.force on.  The answers are
# compared as text, which shows every bit.  Where rows may tie in an ORDER BY, the
# row's number decides, because core may return ties in any order.
#
# Then the plans: which aggregates GpuSort Aggregate computes, and which must stay.
#
# From PostgreSQL 16 on the planner itself sorts the input of aggregates with DISTINCT
# or ORDER BY (enable_presorted_aggregate).  Rows that tie in that order come in any order.
# So this is off where an aggregate shows the order of its input, and in a part of the
# other queries.
#
#   SEED=n               repeats the cases of an earlier run; printed when a case fails
#   CASES=n              queries, 400 by default

use strict;
use warnings;

use GpusortTest;
use RandomTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($seed, $cases) = begin_cases(400);
my $cases_per_table = 40;

my $node = new_node('aggregates', order_by => 1, settings => "work_mem = 64MB\n");
$node->start;
my $presorts = $node->safe_psql('postgres', "SELECT count(*) FROM pg_settings WHERE name = 'enable_presorted_aggregate'");
my $xml = $node->psql('postgres', 'SELECT xmlelement(name e)') == 0;
my $icu = icu_collation($node, 'en-x-icu');

# ----------------------------------------------------------------
# Random queries
# ----------------------------------------------------------------

# Columns, and the kinds of their values.  Values that are equal have the same bits.
my %columns = (
	i2 => [ 'int2', 'int2' ],
	i4 => [ 'int4', 'int4' ],
	i8 => [ 'int8', 'int8' ],
	f4 => [ 'float4', 'float4: one form' ],
	f8 => [ 'float8', 'float8: one form' ],
	n => [ 'numeric', 'numeric: one form' ],
	fixed => [ 'numeric(12, 2)', 'numeric(12, 2)' ],
	c => [ 'text COLLATE "C"', 'text' ],
	icu => [ "text COLLATE $icu", 'varchar' ],
	v => [ 'varchar COLLATE "C"', 'text: common' ],
	d => [ 'date', 'date' ],
	ts => [ 'timestamp', 'timestamp' ],
	tz => [ 'timestamptz', 'timestamptz' ],
	iv => [ 'interval', 'interval: one form' ],
	u => [ 'uuid', 'uuid' ],
	b => [ 'bool', 'bool' ]);
my @names = sort keys %columns;
my %continuous = map { $_ => 1 } qw(i2 i4 i8 f4 f8 n fixed iv);
my %numbers = map { $_ => 1 } qw(i2 i4 i8 f4 f8 n fixed);
my %textual = map { $_ => 1 } qw(c icu v);

sub make_table
{
	my $rows = pick(0, 1, 50, 1000, 5000, 20000);
	my (@definitions, @values);
	foreach my $name (@names)
	{
		my ($type, $kind) = @{ $columns{$name} };
		push @definitions, "$name $type";
		# sums of large numbers would be out of range
		push @values, value_of($kind, distinct => pick(2, 20, 1000, 30000), nulls => pick(0, 0, 10, 99, 100), special => $kind =~ /int8|time|date/ ? 0 : chance(50));
	}
	my $groups = pick(1, 7, 100, 4000);
	my $order = chance(20) ? ' ORDER BY ' . pick(@names) . ' DESC' : '';
	return "DROP TABLE IF EXISTS t; CREATE TABLE t (id int, g int, h text, " . join(', ', @definitions) . ');'
	  . "INSERT INTO t SELECT i, hashint4(i) % $groups, chr(97 + i % 3), "
	  . join(', ', map { "$values[$_] AS $names[$_]" } 0 .. $#values)
	  . " FROM generate_series(1, $rows) i$order; CREATE INDEX ON t (g);" . (chance(70) ? ' ANALYZE t;' : '');
}

# An aggregate that sorts inside itself.  No two rows of it tie and differ.
sub make_sorting
{
	my $x = pick(@names);
	my $y = pick(@names);
	my ($by) = directions($x);
	my $fractions = pick("'{0,0.25,0.5,NULL,1}'", "'{{0.1,0.9},{0.5,0.33}}'");
	my @kinds = ("count(DISTINCT $x)", 'count(DISTINCT icu COLLATE "C")', "string_agg(v, ',' ORDER BY icu COLLATE \"C\", id)", "array_agg(DISTINCT $x)", "array_agg($x ORDER BY $by)",
		"array_agg($y ORDER BY $by, id)", "string_agg($y\::text, ',' ORDER BY $by, id DESC)",
		"string_agg(DISTINCT $x\::text COLLATE \"C\", ',')", "json_agg($x ORDER BY $by, $y, id)", "jsonb_agg(DISTINCT $x)",
		"array_agg(DISTINCT $x ORDER BY $by)", "count(DISTINCT ($x, $y))", "json_object_agg(id, $y ORDER BY $by, id)",
		"sum(id ORDER BY $by)",
		"percentile_disc(0.3) WITHIN GROUP (ORDER BY $by)", "percentile_disc($fractions\::float8[]) WITHIN GROUP (ORDER BY $by)",
		"mode() WITHIN GROUP (ORDER BY $by)", "rank((SELECT $x FROM t WHERE id = 7)) WITHIN GROUP (ORDER BY $by)",
		"dense_rank(NULL) WITHIN GROUP (ORDER BY $by)", "cume_dist(NULL, 17) WITHIN GROUP (ORDER BY $by, id)",
		"percent_rank(NULL) WITHIN GROUP (ORDER BY $by)");
	push @kinds, ("percentile_cont(" . pick(0, 0.5, 0.77, 1) . ") WITHIN GROUP (ORDER BY $by)",
		"percentile_cont($fractions\::float8[]) WITHIN GROUP (ORDER BY $by)") x 3 if $continuous{$x};
	push @kinds, "xmlagg(xmlelement(name e, $x) ORDER BY $by)" if $xml;
	push @kinds, "sum(DISTINCT $x)", "avg(DISTINCT $x)" if $numbers{$x};
	push @kinds, ("string_agg(DISTINCT $x, ',')", "string_agg($x, ',' ORDER BY $by)") x 2 if $textual{$x};
	return pick(@kinds);
}

# Queries in which the planner must not sort the input of aggregates
my %unsorted;

# An aggregate that does not sort.  With $showing, it shows the order of its input.
# Below GROUP BY, rows of a group come in any order, as the sort by groups leaves them.
sub make_other
{
	my ($showing) = @_;
	my $x = pick(@names);
	my $number = pick(grep { $numbers{$_} } @names);
	return pick("array_agg(id)", "string_agg($x\::text, ',')", 'sum(f8)', 'avg(f4)', "json_agg($number)", 'corr(f4, i4)', 'min(f8)', 'first_of(id)')
	  if $showing;
	return pick('count(*)', "count($x)", 'sum(i4)', 'avg(n)', 'stddev(i8)', 'variance(fixed)', 'max(fixed)', 'min(n)', 'max(n)', 'bool_and(b)',
		'bit_xor(i8)', 'min(c)', 'max(icu)', 'min(ts)', 'max(id)');
}

sub make_query
{
	my $kind = pick('plain', 'plain', 'group', 'group', 'groups', 'having', 'sets', 'correlated', 'index', 'window', 'prepared');
	my @aggregates = map { make_sorting() } 0 .. below(3);
	my $shows = $kind =~ /plain|correlated|prepared/ && chance(15);
	push @aggregates, map { make_other($shows && chance(50)) } 1 .. below(3);
	@aggregates = map { $_ . (chance(15) ? ' FILTER (WHERE ' . pick('id % 3 = 0', 'b', 'i4 IS NOT NULL', 'false') . ')' : '') } @aggregates;
	@aggregates = sort { rand() <=> 0.5 } @aggregates;
	my $list = join ', ', @aggregates;
	my $from = pick('t', 't', 't', 't WHERE id % 5 <> 0', 't WHERE false', '(SELECT * FROM t ORDER BY i4, id OFFSET 1) t',
		'(SELECT * FROM t ORDER BY id LIMIT 500) t');
	my $by = pick('g', 'h', 'b', 'g, h', 'c');
	my $query = query_of($kind, $list, $from, $by, $aggregates[0]);

	$unsorted{$query} = $shows || chance(30);
	return $query;
}

sub query_of
{
	my ($kind, $list, $from, $by, $first) = @_;

	return "SELECT $list FROM $from" if $kind eq 'plain';
	return "SELECT $by, $list FROM $from GROUP BY $by ORDER BY $by" if $kind eq 'group';
	return "SELECT g % 3, $list FROM $from GROUP BY 1 ORDER BY 1 DESC" if $kind eq 'groups';
	return "SELECT g, $list FROM $from GROUP BY g HAVING $first IS NOT NULL ORDER BY g" if $kind eq 'having';
	return "SELECT g, h, $list FROM $from GROUP BY ROLLUP (g, h) ORDER BY g, h" if $kind eq 'sets';
	return "SELECT o, (SELECT ROW($list)::text FROM t WHERE t.g = o) FROM generate_series(-2, 4) o" if $kind eq 'correlated';
	return "SET enable_seqscan = off; SET enable_sort = off; SELECT g, $list FROM t GROUP BY g ORDER BY g" . pick('', ' DESC')
	  . '; RESET enable_seqscan; RESET enable_sort' if $kind eq 'index';
	return "SELECT id, sum(s) OVER w, count(*) OVER w FROM (SELECT g AS id, count(DISTINCT i4) AS s, $list FROM t GROUP BY g) q "
	  . 'WINDOW w AS (ORDER BY id ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) ORDER BY id' if $kind eq 'window';
	return "PREPARE q AS SELECT $list FROM $from; SET gpusort.enabled = off; EXECUTE q; SET gpusort.enabled = :enabled; DEALLOCATE q";
}

# Switches the planner's sorting for aggregates, where the server has it.
sub presorting { return $presorts ? "SET enable_presorted_aggregate = $_[0];" : '' }

# Runs queries and returns their answers.
sub answers
{
	my ($enabled, $prefix, @queries) = @_;
	my $script = "\\set enabled $enabled\nSET gpusort.enabled = $enabled;\n"
	  . join('', map { "\\echo next\n" . presorting($unsorted{$_} ? 'off' : 'on') . "$prefix$_;\n" } @queries);
	my ($out, $err);
	$node->psql('postgres', $script, stdout => \$out, stderr => \$err, on_error_stop => 0);
	is($err, '', "no error, SEED=$seed") if $err;
	my (undef, @answers) = split /^next\n?/m, $out, -1;
	return @answers;
}

$node->safe_psql('postgres', random_schema() . <<'SQL');
CREATE FUNCTION first_value_of(int, int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT coalesce($1, $2)';
CREATE AGGREGATE first_of(int) (sfunc = first_value_of, stype = int);
SQL

# the comparison finds a difference
$node->safe_psql('postgres', 'CREATE TABLE t AS SELECT i % 10 AS i FROM generate_series(1, 100) i');
isnt((answers('off', '', 'SELECT array_agg(i) FROM t'))[0], (answers('off', '', 'SELECT array_agg(i ORDER BY i) FROM t'))[0],
	'two orders of an array differ');

my ($done, $computed) = (0, 0);
srand($seed);
while ($done < $cases)
{
	$node->safe_psql('postgres', make_table());
	my @queries = map { make_query() } 1 .. $cases_per_table;
	my @expected = answers('off', '', @queries);
	my @found = answers('on', '', @queries);
	my $different = 0;

	is(scalar(@found), scalar(@queries), 'every query has an answer') if @found != @queries;
	foreach my $i (0 .. $#queries)
	{
		next if ($expected[$i] // '') eq ($found[$i] // '');
		$different++;
		diag("SEED=$seed\n$queries[$i]\n" . substr($expected[$i] // '', 0, 2000) . "\n" . substr($found[$i] // '', 0, 2000)) if $different == 1;
	}
	is($different, 0, "table " . (1 + $done / $cases_per_table) . ": all answers are the same");
	my @plain = grep { !/^(PREPARE|SET)/ } @queries;
	$computed += grep { /GpuSort Aggregate/ } answers('on', 'EXPLAIN (COSTS OFF) ', @plain);
	$done += $cases_per_table;
}
cmp_ok($computed, '>', $done / 4, 'GpuSort Aggregate computes a quarter of the queries');

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
		unlike($plan, qr/Sort Key/, "no sort is left: $query") if $query !~ /ORDER BY big LIMIT|array_agg\(g\)|first_of\(k\)/;
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
	# many groups: keys of each would take more time than one sort
	[ "SELECT k, count(DISTINCT g), count(*) FROM p GROUP BY k HAVING count(DISTINCT g) > 0", 'k, g' ],
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

# Few distinct values are found before the sort, but beside another aggregate the sort below has all rows.
unlike(plan_of('SELECT count(*), count(DISTINCT few) FROM p', presorting('on')), qr/Sort Key/, 'few distinct values beside another aggregate');
like(plan_of('SELECT count(*), count(DISTINCT n) FROM p', presorting('on')), qr/Sort Key/, 'many distinct values beside another aggregate');

# All processes feed the sort below.  Where the node takes keys, or there is no such sort, no row goes through a Gather.
my $feeds = 'SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET min_parallel_table_scan_size = 0;' . presorting('on');
foreach my $query (
	'SELECT count(DISTINCT n), array_agg(DISTINCT n) FROM p',
	'SELECT g, count(DISTINCT c), count(*) FROM p GROUP BY g',
	'SELECT k, count(DISTINCT g) FROM p GROUP BY k',
	# expressions, which the processes compute
	'SELECT count(DISTINCT upper(c)) FROM p',
	"SELECT g % 7, string_agg(DISTINCT left(c, 2) || g, ','), count(DISTINCT left(c, 2) || g), sum(k) FROM p GROUP BY 1 HAVING max(k) > 0",
	"SELECT g, string_agg(c, ',' ORDER BY k + 1, c) FROM p GROUP BY g",
	"SELECT id, note, array_agg(k ORDER BY -k) FROM p JOIN u ON id = g GROUP BY id")
{
	like(plan_of($query, $feeds), qr/GpuSort Feed/, "all processes sort for: $query");
	my @answers = map { $node->safe_psql('postgres', "$feeds SET gpusort.enabled = $_; SELECT count(*), md5(string_agg(s::text, ';' ORDER BY s::text COLLATE \"C\")) FROM ($query OFFSET 0) s") } 'on', 'off';
	is($answers[0], $answers[1], "and the answer is core's: $query");
}
unlike(plan_of($_, $feeds), qr/Gather/, "one process reads for: $_")
  foreach "SELECT count(DISTINCT k), string_agg(c, ',' ORDER BY k) FROM p", "SELECT g, count(DISTINCT k), string_agg(c, ',' ORDER BY k) FROM p GROUP BY g",
	'SELECT count(DISTINCT n) FILTER (WHERE k > 0) FROM p', 'SELECT count(*), count(DISTINCT few) FROM p';

# A sort of the rows by their groups in all processes is cheaper to the planner than core's in one, but not than numbers of groups.
like(plan_of("SELECT g, array_agg(k ORDER BY n), count(DISTINCT k) FROM p GROUP BY g", "$feeds SET parallel_tuple_cost = 0.001; SET enable_hashagg = off;"),
	qr/GpuSort Aggregate/, 'groups are numbered where all processes could sort by them');

# The planner may aggregate partitions one by one.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE parts (c text, g int, k int) PARTITION BY LIST (g);
CREATE TABLE even PARTITION OF parts FOR VALUES IN (0, 2, 4, 6);
CREATE TABLE odd PARTITION OF parts FOR VALUES IN (1, 3, 5, 7);
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
