# DISTINCT and GROUP BY return the same groups from a GroupAggregate above a GpuSort as from core's HashAggregate.
#
# The random queries are the groups of RandomQueries.pm, DISTINCT and IN (SELECT ...) that is made unique among them.
# Then the plans: which HashAggregates are replaced, and which must stay.
#
#   SEED=n, CASES=n (120 by default), SETTINGS="a=1 b=2": see RandomTest.pm

use strict;
use warnings;

use GpusortTest;
use RandomTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

begin_cases(120);

# the plans that are counted have an Agg that sorts
my $node = random_node('sorted_groups', 'GroupAggregate');
my @icu = has_icu($node) ? ('en-x-icu', 'nocase') : ();
# a setting that puts a plan into a worker
my $debug_parallel = $node->safe_psql('postgres', "SELECT name FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')");
random_queries($node, 'postgres', 'of groups', per_table => 10, least => 0.33, collations => [ 'C', 'C', 'libc', @icu ], table => { strings => 0, kinds => \@group_kinds },
	with => { 'gpusort.force' => [ ('on') x 5, 'off' ] }, forms => [ ('groups') x 10, 'in', 'in', ('nested_groups') x 4, 'error' ],
	settings => { enable_hashagg => ['on'], hash_mem_multiplier => [ 1, 2, 1000 ], $debug_parallel => [ ('off') x 9, 'on' ], map { $_ => [ 'on', 'on', 'on', 'off' ] } 'enable_indexscan', 'enable_memoize', 'enable_mergejoin' });

# ---- plans ----

$node->safe_psql('postgres', <<'SQL');
-- k and x have many values, v some, few few
CREATE TABLE big AS SELECT i AS id, hashint8(i)::int8 AS k, i % 50 AS few, i % 1000 AS v, i / 8.0::float8 AS f, (i % 60000)::numeric AS n, 'the same ' || i AS x, md5(i::text) AS pad FROM generate_series(1, 100000) i;
CREATE TABLE ids AS SELECT i AS id, hashint8(i)::int8 AS k, ROW(i)::odd AS o FROM generate_series(1, 200000) i;
CREATE INDEX ON ids (k);
CREATE INDEX ON ids (id);
CREATE INDEX ON big (v, few);
VACUUM ANALYZE;
SQL
my $session = session($node);
# core's planner takes a hash table
my @hash = ('SET max_parallel_workers_per_gather = 0', "SET work_mem = '1GB'", 'SET enable_indexscan = off', 'SET enable_indexonlyscan = off', 'SET enable_bitmapscan = off');
answer($session, @hash);

# The plans of a query without GpuSort, and with it, by costs or wherever it can
sub plans
{
	my ($query, $force, $options) = @_;
	# PostgreSQL 18 marks nodes that a setting discourages
	return map { s/^ *Disabled: true\n//mgr } map { answer($session, "SET gpusort.force = $force", "SET gpusort.enabled = $_", 'EXPLAIN (' . ($options // 'COSTS OFF') . ") $query") } 'off', 'on';
}

# The answers to a query with GpuSort and without, as multisets
sub same_answer
{
	my ($name, $query) = @_;
	my ($off, $on) = map { answer($session, 'SET gpusort.force = on', "SET gpusort.enabled = $_", "SELECT count(*), sum(hashtextextended(q::text, 0)::numeric) FROM ($query) q") } 'off', 'on';
	like($off, qr/^\d+\|/, 'there is an answer');
	return is($on, $off, "core's answer: $name");
}

# by their costs, a HashAggregate of many groups is replaced; with a filter, and with a condition on the groups
my $sorted = qr/GroupAggregate\n *Group Key: .*\n(?: *Filter: .*\n)?(?: *Group Key.*\n)* *->  Custom Scan \(GpuSort\)\n *Sort Key: .*\n/;
foreach my $query ('SELECT k, count(*), sum(v) FROM big GROUP BY k', 'SELECT k, v, count(*), avg(f), max(pad) FROM big WHERE v > 5 GROUP BY v, k HAVING sum(v) > 6 AND k > 0', 'SELECT id, id + few, min(x) FROM big GROUP BY id, few', 'SELECT DISTINCT k FROM big',
	'SELECT DISTINCT few FROM big', 'SELECT few, v FROM big GROUP BY few, v', 'SELECT k FROM big GROUP BY k HAVING k > 0', 'SELECT DISTINCT n, k FROM big', 'SELECT b.k, count(*) FROM big b JOIN ids USING (id) GROUP BY b.k',
	'SELECT count(*) FROM (SELECT k, count(*) FROM big GROUP BY k) q', 'SELECT few, (SELECT count(*) FROM (SELECT DISTINCT k FROM big OFFSET 0) q) FROM big', 'WITH q AS MATERIALIZED (SELECT DISTINCT k FROM big) SELECT * FROM q, q r WHERE q.k = r.k + 1')
{
	my ($off, $on) = plans($query, 'off');
	ok($off =~ /HashAggregate/ && $off !~ /GpuSort|GroupAggregate/ && $on =~ /$sorted/ && $on !~ /HashAggregate/, "GpuSort in place of a hash table: $query") or diag("$off\n$on");
	same_answer($query, $query);
}

# The cost that decides is that of the plan, whose scan returns chosen columns only.
foreach my $query ('SELECT DISTINCT n FROM big', 'SELECT id, count(pad) FROM big GROUP BY id', 'SELECT k, count(*) FROM big GROUP BY k')
{
	my ($agg, $sort) = (plans($query, 'on', 'COSTS'))[1] =~ /GroupAggregate  \(cost=([\d.]+).*GpuSort\)  \(cost=([\d.]+)/s;
	cmp_ok($agg // 0, '>=', $sort // 1, "an aggregate costs no less than its sort: $query");
}

# By their costs, hash tables of few groups stay if there are aggregates; and of expressions, whose number is not known.
foreach my $query ('SELECT few, count(*) FROM big GROUP BY few', 'SELECT few, v, count(*) FROM big GROUP BY few, v', 'SELECT few, v, sum(id) FROM big GROUP BY v, few HAVING count(*) > 1', 'SELECT k / 1000, count(*) FROM big GROUP BY 1',
	'SELECT few + v FROM big GROUP BY 1', 'SELECT DISTINCT left(x, 2) FROM big', 'SELECT k % 3, n + 1, count(*) FROM big GROUP BY 1, 2', 'SELECT few, count(*) FROM big WHERE k < 1000 GROUP BY few', 'SELECT k, count(*) FROM (SELECT * FROM big LIMIT 100) b GROUP BY k')
{
	my ($off, $on) = plans($query, 'off');
	ok($on eq $off && $on =~ /HashAggregate/, "a hash table of few groups: $query") or diag("$off\n$on");
}

# GpuSort is stable: aggregates that show the order of rows show that of the table.
foreach my $query ((map { "SELECT v AS k, count(*), $_ AS a FROM big GROUP BY v" } 'array_agg(id)', "string_agg(x, ',')", "string_agg(pad::bytea, '')", 'json_agg(id)', 'jsonb_agg(id)', 'json_object_agg(id, few)', 'own_sum(id)', 'own_max(id)', 'own_list(id)',
			'sum(few) + own_sum(id)', 'array_agg(id) FILTER (WHERE few > 3)', 'sum(id / 7.0::float8)'),
	'SELECT v AS k, own_list(id) AS a FROM big GROUP BY v HAVING own_sum(id) > 3')
{
	my ($off, $on) = plans($query, 'on');
	like($on, qr/GroupAggregate.*GpuSort/s, "sorted: $query") or diag("$off\n$on");
	same_answer("rows of a group in order: $query", "SELECT md5(string_agg(q::text, ',' ORDER BY k)) FROM ($query) q");
}

# An index has the order of groups or windows, or begins with it, but the table's rows have another one.  Reading it takes
# longer than a GpuSort, unless the first rows suffice.
answer($session, 'CREATE INDEX big_k ON big (k, v)', 'SET enable_hashagg = off', 'SET enable_indexscan = on');
foreach my $query ('SELECT k, v, max(f), array_agg(id) FROM big GROUP BY k, v', 'SELECT k, sum(f) FROM big GROUP BY k HAVING count(pad) > 1 ORDER BY k',
	'SELECT DISTINCT ON (k) v, k FROM big WHERE f > 0 ORDER BY k, v', 'SELECT id + 1 AS i, pad, v, sum(v) OVER (PARTITION BY k ORDER BY v), k FROM big WHERE f > 0',
	'SELECT v, row_number() OVER (PARTITION BY k ORDER BY v) AS r, k FROM big WHERE f > 0')
{
	my ($off, $on) = plans($query, 'off');
	ok($off =~ /Index Scan using big_k/ && $on =~ /(?:GroupAggregate|WindowAgg|Unique)(?:\n *(?:Group Key|Filter|Window): .*)*\n *->  Custom Scan \(GpuSort\).*Seq Scan/s, "GpuSort in place of an index scan: $query") or diag("$off\n$on");
	same_answer("in place of an index scan: $query", $query);
	($off, $on) = plans("$query LIMIT 3", 'off');
	ok($on eq $off && $on =~ /Index Scan using big_k/, "an index scan for a few rows: $query") or diag("$off\n$on");
}
my $first = 'SELECT * FROM (SELECT v, row_number() OVER (PARTITION BY k ORDER BY v) AS r, k FROM big WHERE f > 0) q WHERE r <= 2';
like((plans($first, 'off', 'ANALYZE, COSTS OFF'))[1], qr/Bound per Group: 2/, 'GpuSort drops rows in place of an index scan');
same_answer('the first rows of each group, in place of an index scan', $first);
my @ends = plans('SELECT * FROM (SELECT id, rank() OVER (ORDER BY k, v) AS r FROM big) q WHERE r <= 10', 'off');
ok($ends[1] eq $ends[0] && $ends[0] =~ /Index Scan using big_k/, 'an index scan for a window that ends') or diag("@ends");
# what a CTE or a subquery of an expression returns may be read in part; a function's rows have an order that costs nothing
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION rows_of_big() RETURNS TABLE (a int8, b int) LANGUAGE plpgsql COST 1000000000 ROWS 100000 AS $$ BEGIN RETURN QUERY SELECT k, v FROM big; END $$;
SQL
foreach my $query ('WITH c AS MATERIALIZED (SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v) AS r FROM big) SELECT * FROM c LIMIT 10',
	'SELECT ARRAY(SELECT row_number() OVER (PARTITION BY k ORDER BY v) FROM big WHERE f > 0)', 'SELECT EXISTS (SELECT sum(f) FROM big GROUP BY k)',
	'SELECT a, b, o, count(*) OVER (PARTITION BY o ORDER BY a) FROM rows_of_big() WITH ORDINALITY x(a, b, o) LIMIT 10')
{
	my ($off, $on) = plans($query, 'off');
	is($on =~ s/Custom Scan \(GpuSort\)/Sort/gr, $off, "core's plan: $query");
}
# a column above a sort stays there if it is an expression, and where its input is no scan of a table
foreach my $query ('SELECT rn, v, k, count(*) OVER (PARTITION BY k ORDER BY v) FROM (SELECT row_number() OVER (ORDER BY k, v, id) AS rn, v, k FROM big) s WHERE rn <= 50000',
	'SELECT count(*) FROM (SELECT DISTINCT ON (k) r AS a, r AS b, k, v FROM (SELECT random() AS r, k, v FROM big ORDER BY k OFFSET 0) s ORDER BY k, v) q WHERE a <> b',
	'SELECT v AS a, v AS b, k, v + 1 AS c, sum(v) OVER (PARTITION BY k ORDER BY v) FROM big WHERE f > 0')
{
	same_answer("columns above a sort: $query", $query);
}
answer($session, 'DROP INDEX big_k', 'RESET enable_hashagg', 'SET enable_indexscan = off');

# Groups of texts are sorted by their bytes, as nobody wants them in order; in the order of their collation where somebody does
answer($session, "CREATE TABLE texts AS SELECT (word COLLATE libc) p, word::char(30) COLLATE libc b, word COLLATE \"C\" c, CASE WHEN i % 10 = 0 THEN word END COLLATE libc few_values, ('k' || lpad(i::text, 10, '0')) COLLATE libc lies, i id
  FROM (SELECT i, 'name ' || hashint4(i % 40000) AS word FROM generate_series(1, 60000) i) s", 'VACUUM ANALYZE texts');
SKIP:
{
	skip 'there is no locale en_US.UTF-8', 31 if $node->safe_psql('postgres', "SELECT collcollate = 'C' FROM pg_collation WHERE collname = 'libc'") eq 't';
	foreach my $column ('p', 'b')
	{
		foreach my $query ("SELECT DISTINCT $column FROM texts", "SELECT $column, count(*), min(id) FROM texts GROUP BY $column", "SELECT count(DISTINCT $column) FROM texts", "SELECT id % 7, count(DISTINCT $column), count(*) FROM texts GROUP BY 1")
		{
			my ($off, $on) = plans($query, 'on');
			unlike($on, qr/COLLATE libc/, "groups are not sorted by strcoll(): $query");
			like($on, qr/$column COLLATE "C"/, "but by bytes: $query") if $query =~ /^SELECT (?:DISTINCT|\w,)/;
			same_answer($query, $query);
		}
		same_answer('both', "SELECT string_agg(DISTINCT $column, ','), count(DISTINCT $column) FROM texts");
		same_answer('DISTINCT in order', "SELECT row_number() OVER (), $column FROM (SELECT DISTINCT $column FROM texts ORDER BY $column OFFSET 0) q");
		same_answer('DISTINCT ON in order', "SELECT row_number() OVER (), q.* FROM (SELECT DISTINCT ON ($column) $column, id FROM texts ORDER BY $column, id DESC) q");
	}
	like((plans('SELECT DISTINCT p FROM texts ORDER BY p', 'on'))[1], qr/COLLATE libc/, 'DISTINCT in order');
	like((plans("SELECT string_agg(DISTINCT p, ',') FROM texts", 'on'))[1], qr/COLLATE libc/, 'a list shows the order');
	# in a table's order, core compares each row once
	like((plans('SELECT * FROM texts ORDER BY lies', 'off'))[1], qr/\A *Sort\n/, 'rows in order are left to core');
	like((plans('SELECT * FROM texts ORDER BY lies DESC', 'off'))[1], qr/GpuSort/, 'those in reverse are not');
	like((plans('SELECT * FROM texts ORDER BY p', 'off'))[1], qr/GpuSort/, 'nor those in any order');
}
# count(DISTINCT) does not sort NULLs: rows are no input of a sort below
unlike((plans('SELECT count(DISTINCT few_values) FROM texts', 'off'))[1], qr/\(GpuSort\)/, 'nine of ten are NULL');
same_answer('nine of ten are NULL', 'SELECT count(DISTINCT few_values), count(DISTINCT few_values COLLATE "C") FROM texts');
# a hash table that fits in memory, where sorted texts do not
answer($session, "CREATE TABLE urls AS SELECT ('https://www.example.com/articles/2024/' || hashint4(i) % 30000) COLLATE libc p FROM generate_series(1, 200000) i", 'VACUUM ANALYZE urls');
like((plans('SELECT DISTINCT p FROM urls', 'off'))[1], qr/$sorted/, 'the sorted texts fit in memory');
answer($session, "SET work_mem = '4MB'");
like((plans('SELECT DISTINCT p FROM urls', 'off'))[1], qr/\AHashAggregate/, 'only the hash table fits in memory');
# temporary files that exceed a limit, or might: core's choice stands
answer($session, "SET temp_file_limit = '2MB'");
foreach my $query ('SELECT k, count(*), sum(v) FROM big GROUP BY k', 'SELECT DISTINCT k FROM big')
{
	my ($off, $on) = plans($query, 'off');
	ok($on eq $off && $on =~ /HashAggregate/, "temporary files are limited: $query") or diag("$off\n$on");
}
answer($session, 'RESET temp_file_limit', "SET work_mem = '1GB'");

# By its force, GpuSort must not take hash tables of several sets of groups.
foreach my $query (
	'SELECT k, count(*) FROM big GROUP BY GROUPING SETS ((k), (few))', 'SELECT k FROM big GROUP BY GROUPING SETS ((k), (v))')
{
	my ($off, $on) = plans($query, 'on');
	ok($on eq $off && $on =~ /HashAggregate/, "the hash table stays: $query") or diag("$off\n$on");
}
foreach my $query ('SELECT k, count(*) FROM big GROUP BY ROLLUP (k, few)', 'SELECT few, count(*) FROM big GROUP BY CUBE (few, v)')
{
	my ($off, $on) = plans($query, 'on');
	is($on =~ s/Custom Scan \(GpuSort\)/Sort/r, $off, "sets of groups stay as they are: $query");
	same_answer($query, $query);
}
answer($session, 'SET enable_sort = off');
foreach my $query ('SELECT k, count(*) FROM big GROUP BY k', 'SELECT DISTINCT k FROM big')
{
	my ($off, $on) = plans($query, 'on');
	ok($on eq $off && $on =~ /HashAggregate/, "no sort without enable_sort: $query");
}
answer($session, 'RESET enable_sort');
foreach my $query ('SELECT DISTINCT id::text::xid AS k FROM ids', 'SELECT k::text::xid AS k, count(*) FROM big GROUP BY 1', 'SELECT few, ROW(v)::even, count(*) FROM big GROUP BY 1, 2')
{
	my ($off, $on) = plans($query, 'on');
	ok($off eq $on && $on =~ /HashAggregate/, "a type without an order: $query") or diag("$off\n$on");
	same_answer($query, $query);
}

# an operator of IN that calls more values equal than the type's order does
answer($session, 'SET enable_hashjoin = off', 'SET enable_mergejoin = off', 'SET enable_seqscan = off', 'SET enable_indexscan = on', 'SET enable_material = off');
my $unique = 'SELECT b.id FROM b WHERE b.o IN (SELECT ROW(v)::odd FROM big)';
my ($core_unique, $our_unique) = plans($unique, 'on');
ok($core_unique eq $our_unique && $core_unique =~ /HashAggregate/, 'an operator that is not of the order') or diag("$core_unique\n$our_unique");
same_answer('an operator that is not of the order', $unique);
$unique = 'SELECT ids.id FROM ids WHERE k IN (SELECT k FROM big)';
($core_unique, $our_unique) = plans($unique, 'on');
ok($core_unique =~ /HashAggregate/ && $our_unique =~ /$sorted/, 'the rows of IN are made unique') or diag("$core_unique\n$our_unique");
same_answer('IN', $unique);
answer($session, 'RESET ALL', @hash);

# Only the columns that are needed are sorted.  Core's scan returns all of them.
foreach my $case (
	[ 'SELECT k, count(*), sum(v) FROM big WHERE pad > \'0\' GROUP BY k', 'k, v' ],
	[ 'SELECT DISTINCT k FROM big', 'k' ],
	[ 'SELECT id + 1, max(pad) FILTER (WHERE few > 3) FROM big GROUP BY id HAVING sum(n) > 0', 'id, few, n, pad' ],
	[ 'SELECT k, count(big) FROM big GROUP BY k', undef ],
	[ 'SELECT k, max(ctid) FROM big GROUP BY k', 'k, ctid' ],
	[ 'SELECT few, v FROM big GROUP BY few, v HAVING v > 2 AND few > (SELECT 3)', 'few, v' ])
{
	my ($query, $columns) = @$case;
	my ($off, $on) = plans($query, 'on', 'COSTS OFF, VERBOSE');
	my ($scan) = $on =~ /Seq Scan on public\.big\n *Output: (.*)/;
	is(($scan // '') =~ s/big\.//gr, $columns, "columns: $query") or diag($on) if defined $columns;
	ok($on =~ /$sorted/ || $on =~ /GroupAggregate.*GpuSort/s, "and they are sorted: $query") or diag($on);
	same_answer($query, $query);
}
# an index scan and a bitmap scan return columns, too
foreach my $scan ([ 'enable_indexscan', 'Index Scan' ], [ 'enable_indexonlyscan', 'Index Only Scan' ], [ 'enable_bitmapscan', 'Bitmap Heap Scan' ])
{
	my $query = 'SELECT few, count(*)' . ($scan->[1] eq 'Index Only Scan' ? '' : ', sum(id)') . ' FROM big WHERE v < 300 GROUP BY few';
	answer($session, 'SET enable_seqscan = off', map { "SET $_ = " . ($_ eq $scan->[0] || ($scan->[1] eq 'Index Only Scan' && $_ eq 'enable_indexscan') ? 'on' : 'off') } 'enable_indexscan', 'enable_indexonlyscan', 'enable_bitmapscan');
	my ($off, $on) = plans($query, 'on', 'COSTS OFF, VERBOSE');
	like($on, qr/GroupAggregate.*GpuSort.*$scan->[1].*\n *Output: (?:few|id, few)\n/s, "columns of an $scan->[1]") or diag($on);
	same_answer($scan->[1], $query);
}
answer($session, 'RESET ALL', @hash);

# rows that repeat another one are dropped while they are gathered, but not below aggregates
foreach my $limit ('64kB', '1GB')
{
	answer($session, "SET gpusort.memory_limit = '$limit'");
	my $options = 'ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF';
	like((plans($_, 'on', $options))[1], qr/Bound per Group: 1\n *Rows Removed by Bound: [5-9]\d{4}\n/, "$_ drops rows, $limit") foreach 'SELECT DISTINCT few FROM big', 'SELECT few FROM big GROUP BY few HAVING few > 3', $limit eq '1GB' ? ('SELECT DISTINCT v, few FROM big', 'SELECT few + v FROM big GROUP BY 1') : ();
	my $aggregates = (plans('SELECT few, count(*) FROM big GROUP BY few', 'on', $options))[1];
	like($aggregates, qr/\A(?!.*Bound).*GroupAggregate.*GpuSort/s, "aggregates need all rows, $limit");
}
answer($session, 'RESET gpusort.memory_limit');

# ---- workers ----

my @parallel = ('SET max_parallel_workers_per_gather = 2', map { "SET $_ = 0" } 'parallel_setup_cost', 'parallel_tuple_cost', 'min_parallel_table_scan_size');
answer($session, @parallel, 'SET gpusort.force = on', 'SET gpusort.enabled = on');
my $partial = 'SELECT few, count(*) + sum(id) AS c FROM big GROUP BY few, v';
my $joined = "SELECT * FROM ($partial) a FULL JOIN (SELECT few, count(*) AS d FROM big GROUP BY few) b USING (few)";
my $analyzed = answer($session, "EXPLAIN (ANALYZE, VERBOSE, COSTS OFF, TIMING OFF, SUMMARY OFF) $partial");
like($analyzed, qr/Gather.*Partial GroupAggregate \(actual rows=[\d.]+ loops=3\)\n(?: *(?:Output|Group Key|Worker).*\n)* *->  Custom Scan \(GpuSort\) \(actual rows=3333[\d.]+ loops=3\)\n.*Worker 1:/s, 'workers make groups by sorting') or diag($analyzed);
$session->{err} = '';
answer($session, 'SET client_min_messages = log', 'SET debug_print_plan = on', $partial =~ s/$/ LIMIT 0/r, "SELECT count(*) FROM ($joined) q", 'RESET debug_print_plan', 'RESET client_min_messages');
my @printed = grep { /AGG/ } split /LOG:  plan:/, $session->{err};
is(scalar @printed, 2, 'two plans are printed');
foreach my $plan (@printed)
{
	# a worker finds a node by its number
	my %times;
	my $sorts = 0;
	while ($plan =~ /\{GATHER\b/g)
	{
		my ($gather) = substr($plan, $-[0]) =~ /^(\{(?:[^{}]++|(?1))*\})/;
		$times{$_}++ foreach $gather =~ /:plan_node_id (\d+)/g;
		$sorts += () = $gather =~ /\{CUSTOMSCAN\b/g;
	}
	ok($sorts > 0 && !(grep { $_ > 1 } values %times), "no two nodes below a Gather have the same number, $sorts sorts") or diag(join(' ', map { "$_: $times{$_}" } sort keys %times));
}
same_answer("workers: $_", $_) foreach $partial, $joined, 'SELECT DISTINCT few, v FROM big', 'SELECT k, count(*), max(x) FROM big GROUP BY k', 'SELECT ids.id FROM ids WHERE k IN (SELECT k FROM big WHERE v > 3)';
answer($session, "SET $debug_parallel = on", 'SET max_parallel_workers_per_gather = 0');
same_answer("in a worker: $_", $_) foreach 'SELECT DISTINCT few, v FROM big', 'SELECT k, count(*), max(x) FROM big GROUP BY k';
answer($session, 'RESET ALL', @hash);

# ---- rows that change ----

# A query locks rows, or updates them, which another session has changed.  Then it looks at the new rows.
sub answer_after_update
{
	my ($enabled, $query) = @_;
	$node->safe_psql('postgres', 'DROP TABLE IF EXISTS account; CREATE TABLE account AS SELECT i AS id, i AS v, 0 AS n FROM generate_series(1, 5) i');
	my $writer = session($node);
	answer($writer, 'BEGIN', 'UPDATE account SET v = v + 3 WHERE id IN (2, 4)');
	my ($stdout, $stderr);
	my $reader = in_background($node, \$stdout, \$stderr, "SET gpusort.enabled = $enabled", 'SET gpusort.force = on', @hash, 'SET enable_hashjoin = off', 'SET enable_mergejoin = off', $query);
	ok(poll($node, "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted"), 'a row is locked');
	answer($writer, 'COMMIT');
	$reader->finish;
	leave($writer);
	return "$stdout$stderr" . $node->safe_psql('postgres', 'SELECT * FROM account ORDER BY id');
}
my $few_groups = 'SELECT v, count(*) AS c FROM big WHERE id < 3000 GROUP BY v';
foreach my $query (
	"SELECT a.*, q.c FROM account a JOIN ($few_groups OFFSET 0) q ON q.v = a.v ORDER BY a.id FOR UPDATE OF a",
	'SELECT a.*, q.c FROM account a, LATERAL (SELECT few, count(*) AS c FROM big WHERE v = a.v GROUP BY few OFFSET 0) q WHERE q.c = 100 ORDER BY a.id FOR UPDATE OF a',
	'UPDATE account SET n = v WHERE (SELECT count(*) FROM (SELECT DISTINCT v FROM big WHERE few < account.v OFFSET 0) q) BETWEEN 30 AND 90 RETURNING *',
	"UPDATE account SET n = q.c FROM ($few_groups) q WHERE q.v = account.v RETURNING account.*, q.*",
	"UPDATE account SET n = 1 WHERE v > (SELECT min(c) FROM ($few_groups) q) RETURNING *",
	'DELETE FROM account WHERE v IN (SELECT DISTINCT v FROM big WHERE few < 5 OFFSET 0) RETURNING *')
{
	my ($core, $ours) = map { answer_after_update($_, $query) } 'off', 'on';
	is($ours, $core, "core's rows after an update: $query");
	unlike($ours, qr/ERROR/, 'without an error');
	like($node->safe_psql('postgres', join('; ', 'SET gpusort.force = on', @hash, 'SET enable_hashjoin = off', 'SET enable_mergejoin = off', "EXPLAIN $query")), qr/GroupAggregate.*GpuSort/s, 'by a sort');
}

# ---- what is left behind ----

my $files = 'SELECT count(*) FROM pg_ls_tmpdir()';
my $contexts = q{SELECT count(*) FROM pg_backend_memory_contexts WHERE name ~ '^GpuSort'};
answer($session, 'SET gpusort.force = on', "SET gpusort.memory_limit = '64kB'");
my $kept = answer($session, 'SELECT count(*) FROM (SELECT DISTINCT k FROM big) q', $contexts) =~ s/.*\n//r;
foreach my $bad ('sum(1000 / (100000 - id))', 'max(1000 / (100000 - id))', 'sum((id / 99)::small)', 'count(1000 / (100000 - id)) FILTER (WHERE v = 0)')
{
	foreach my $group ('few', 'k')
	{
		my ($off, $on) = map { answer($session, "SET gpusort.enabled = $_", "BEGIN; SELECT attempt('SELECT $group, $bad FROM big GROUP BY 1'); $files; $contexts; COMMIT") } 'off', 'on';
		is($on, $off, "core's error: $bad by $group");
		like($on, qr/(?:division by zero|check constraint).*\n0\n$kept$/, 'nothing is left when the transaction goes on');
	}
}
my $cancelled = 0;
foreach my $query ('SELECT k, count(*), sum(n) FROM big GROUP BY k', 'SELECT DISTINCT x, pad FROM big')
{
	foreach my $ms (3, 20, 60, 100, 150, 200)
	{
		$session->{err} = '';
		my $left = answer($session, "SET statement_timeout = $ms", "SELECT count(q) FROM ($query OFFSET 0) q", 'RESET statement_timeout', $files, $contexts);
		$cancelled += $session->{err} =~ /canceling statement due to statement timeout/;
		like($left, qr/^(?:\d\d+\n)?0\n$kept$/, "nothing is left after $ms ms");
	}
}
cmp_ok($cancelled, '>=', 4, "$cancelled queries were cancelled");

# rescans take no more memory
answer($session, 'BEGIN', 'DECLARE c NO SCROLL CURSOR FOR SELECT g, l.* FROM generate_series(1, 400) g, LATERAL (SELECT few, count(*), max(x), sum(n) FROM big WHERE id BETWEEN g * 50 AND g * 50 + 300 GROUP BY few LIMIT 1) l, '
	  . 'LATERAL (SELECT DISTINCT x, v FROM big WHERE id BETWEEN g * 50 AND g * 50 + 300 LIMIT 1) m', 'MOVE 20 FROM c');
my $bytes = 'SELECT sum(used_bytes), count(*) FROM pg_backend_memory_contexts';
my ($before, $few_contexts) = split /\|/, answer($session, $bytes);
my ($after, $many_contexts) = split /\|/, answer($session, 'MOVE 60 FROM c', $bytes);
cmp_ok($after, '<', $before + 20000, 'rescans leave no memory');
cmp_ok($many_contexts, '<=', $few_contexts, 'and no memory contexts');
answer($session, 'COMMIT');

leave($session);
unlike(slurp_file($node->logfile), qr/WARNING/, 'no resource is leaked');
$node->stop;
done_testing();
