# Aggregates that GpuSort Aggregate computes give the same results with GpuSort and without.
#
# The queries are random: percentile_cont(), percentile_disc(), mode(), count(DISTINCT) and gpusort's own
# aggregates, one to twelve in a query, over columns and expressions of all types that gpusort sorts (NULLs, no row,
# one row, few or all distinct values, infinities, NaN, -0), with FILTER, HAVING and expressions over the results.
# Fractions are constants, parameters, subqueries, columns of an outer row, and arrays.  The aggregates stand in
# subqueries, CTEs, cursors, prepared statements and where they are rescanned, over tables, partitions, joins, functions
# and other aggregates, in parallel plans, and with memory limits that make values spill.  Beside some stands an aggregate
# that core computes.  Some arguments are volatile, or have more digits than the type of their column.  Answers are
# compared as in 020_random.pl, by the types' own operators, because core may return either of -0 and 0.  Then plans, temporary files, errors and permissions.
#
#   SEED=n    repeats the cases of an earlier run; printed when a case fails
#   CASES=n   500 by default
#   SETTINGS="a=1 b=2"   more settings for the server

use strict;
use warnings;

use GpusortTest;
use RandomTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($seed, $cases) = begin_cases(500);

# Columns, and their types.  The domain is over int.
my %types = (i2 => 'int2', i4 => 'int4', i8 => 'int8', f4 => 'float4', f8 => 'float8', d => 'date', ts => 'timestamp', tz => 'timestamptz', s => 'small');
my @names = sort keys %types;
my @numbers = grep { !/^[dt]/ } @names;

# Of these, sums do not overflow, nor do squares
my @sums = ('i2', 'i4', 'i8', 's', 'id', map { "greatest(least($_, 1e30), -1e30)" } 'f4', 'f8');

# Expressions of these types that raise no error
my @expressions = ('i2 % 100', 'i4 / 3', '-f8', 'abs(f4)', 'i4::int8', 'i2::float8', "coalesce(d, date '2024-01-01')", 'ts::date', "tz AT TIME ZONE 'UTC'", 'id', '7',
	'CASE WHEN id % 2 = 0 THEN i8 END', 'NULLIF(i4, 0)', 'i2 + (random() * 0)::int2', '(random() * 0)::float8', 'NULL::float8', 's::int8');

# Others, alone or beside these: most are computed by rows in order, some by core only
my @others = ('sum(i2)', 'count(*)', 'max(f8)', 'count(i4)', 'count(DISTINCT x)', 'count(DISTINCT n)', 'count(DISTINCT (i4, i8))', 'mode() WITHIN GROUP (ORDER BY n)',
	'percentile_cont(0.3) WITHIN GROUP (ORDER BY iv)', 'percentile_disc(0.3) WITHIN GROUP (ORDER BY x COLLATE "C" DESC)', 'percentile_disc(0.3) WITHIN GROUP (ORDER BY i4 USING #<)',
	'mode() WITHIN GROUP (ORDER BY s USING #>)', 'percentile_disc(0.5) WITHIN GROUP (ORDER BY (SELECT i4))', 'rank(5) WITHIN GROUP (ORDER BY i4)', 'gpu_sort_agg(f8) FILTER (WHERE id > 5)',
	'own_most(s)', 'own_max(i4)', 'own_max(x)', 'sum(DISTINCT i2 / 7.0::float4 ORDER BY i2 / 7.0::float4 DESC)', 'mode() WITHIN GROUP (ORDER BY i4 USING @<)');

# SQL that makes table t: of three partitions, or one in which rows may be deleted
sub make_table
{
	my $rows = pick(0, 1, 2, 100, 5000, 20000, 20000, 20000, 50000);
	my @columns = map { value_of($types{$_}, distinct => pick(1, 3, 1000, 2_000_000_000, 2_000_000_000), nulls => pick(0, 0, 20, 100)) . "::$types{$_}" } @names;
	return 'DROP TABLE IF EXISTS t; CREATE TABLE t (id int, x text, ' . join(', ', map { "$_ $types{$_}" } @names) . ', n numeric, iv interval, m numeric(9,2))'
	  . (chance(25) ? ' PARTITION BY HASH (id); ' . join('', map { "CREATE TABLE t_$_ PARTITION OF t FOR VALUES WITH (MODULUS 3, REMAINDER $_); " } 0 .. 2) : '; ')
	  . 'INSERT INTO t SELECT i, left(md5(i::text), i % 25), ' . join(', ', @columns) . ", i % 777, i % 99 * interval '1 h', CASE i % 50 WHEN 1 THEN 'NaN' WHEN 2 THEN NULL ELSE (sin(i) * 10.0 ^ (i % 8))::numeric END FROM generate_series(1, $rows) i; "
	  . (chance(30) ? 'DELETE FROM t WHERE id % 3 = 1; ' : '') . "CREATE INDEX ON t (i4); ANALYZE t;\n";
}

# A fraction and an array of them.  $1 is a parameter, and o an outer row.
sub fractions
{
	my ($way) = @_;
	return ('$1', 'ARRAY[$1::float8, 0.9, $1 / 3]') if $way eq 'prepared' && chance(60);
	return (pick('o.f', 'o.f / 2'), 'ARRAY[o.f, 0.25]') if $way eq 'lateral' && chance(40);
	return (pick('0', '1', '0.5', '0.5', '1/3.0', '0.999', '1e-300', 'NULL::float8', '(SELECT 0.7)', rand()),
		pick("'{0.1,0.9,NULL}'", "'{{0.9,0.1},{0.5,0.33}}'", "'{}'", "'[3:4]={0.25,1}'", "'{NULL}'", 'NULL', '(SELECT array_agg(x / 40.0) FROM generate_series(0, 40) x)',
			'ARRAY[0.5, (SELECT 0.2), ' . rand() . ']') . '::float8[]');
}

# An aggregate that the node computes, most often.  @$again: the arguments of the others
sub make_aggregate
{
	my ($way, $again, $one, $several) = @_;
	my $x = @$again && chance(30) ? pick(@$again) : chance(70) ? pick(@names) : pick(@expressions);
	my $filter = pick('id % 3 = 0', 'i4 > 0', 'f8 IS NOT NULL', 'false', 'NULL', 'random() >= 0', "d < '2024-01-01' OR i2 < 5", $way eq 'lateral' ? 'id <> o.x' : ());
	push @$again, $x;
	$x .= ' + $2' if $way eq 'prepared' && $x eq 'i4 / 3';
	my ($by) = directions($x);
	# there is no percentile_cont() of dates
	my $cont = $types{$x} && $x !~ /^[dt]/ ? 'percentile_cont' : 'percentile_disc';
	($one, $several) = fractions($way) if !defined $one;
	return "gpu_sort_agg($x)" if chance(5);
	# numeric with a precision
	return pick('count(DISTINCT m)', 'mode() WITHIN GROUP (ORDER BY m)', map { ("percentile_cont($_) WITHIN GROUP (ORDER BY m)", "percentile_disc($_) WITHIN GROUP (ORDER BY m DESC)") } $one, $several)
	  if chance(10);
	return pick(("count(DISTINCT $x)") x 2, "count(DISTINCT $x ORDER BY $by)", (map { "$_(DISTINCT " . pick(@sums) . ')' } 'sum', 'avg'), ("mode() WITHIN GROUP (ORDER BY $by)") x 2,
		map { ("$_($one) WITHIN GROUP (ORDER BY $by)", "$_($several) WITHIN GROUP (ORDER BY $by)") } 'percentile_disc', $cont, $cont) . (chance(20) ? " FILTER (WHERE $filter)" : '');
}

# Returns a query whose arguments have to be evaluated as often as in core, and in the same order, and its columns.
sub make_volatile
{
	my @list = map { pick(map({ "$_(DISTINCT tick() % 50)" } 'count', 'sum'), 'percentile_cont(0.5) WITHIN GROUP (ORDER BY tick())', 'percentile_disc(0.3) WITHIN GROUP (ORDER BY tick() DESC)',
			'mode() WITHIN GROUP (ORDER BY tick() % 4)', 'count(DISTINCT i4) FILTER (WHERE tick() % 3 > 0)', 'count(DISTINCT i4 # tick() % 7)', 'count(DISTINCT i4)', 'sum(tick())', 'count(tick() > 5)') } 0 .. 1 + below(3);
	return ('SELECT q.*, current_setting(\'test.ticks\') AS ticks FROM (SELECT ' . join(', ', map { "$list[$_] AS a$_" } 0 .. $#list) . ' FROM t WHERE id <= 2000 OFFSET 0) q', 'ticks', map { "a$_" } 0 .. $#list);
}

# Returns a query and its columns
sub make_query
{
	my ($way) = @_;
	return make_volatile() if $way eq 'volatile';
	my @again;
	my @list = map { make_aggregate($way, \@again) } 1 .. pick(1, 1, 2, 3, 4, 5, chance(20) ? 12 : 2);
	@list = map { !chance(15) ? $_ : pick("($_) IS NULL", "CASE WHEN count(DISTINCT i4) > 10 THEN $_ END", "ARRAY[$_]", "coalesce($_, $_)", 'sum(count(DISTINCT i8)) OVER (ORDER BY count(DISTINCT i2))',
			'count(DISTINCT i8) * 2 + coalesce(mode() WITHIN GROUP (ORDER BY i2), -1)', '(SELECT max(g) FROM generate_series(1, 20) g WHERE g <= count(DISTINCT i2))') } @list;
	splice @list, below(@list + 1), 0, pick(@others) if chance(15);
	# states or results that are changed in place are used again
	push @list, pick('ROW(array_changed(own_array(i4)), own_array(i4), array_changed(own_array(i4)))::text', 'ROW(own_more(i4), own_count(i4))::text') if chance(8);
	my $beyond = $way ne 'union' && chance(8);
	@list = (map({ s/\bm\b/w/gr } @list), pick('count(DISTINCT w)', 'mode() WITHIN GROUP (ORDER BY w DESC)', 'percentile_disc(0.4) WITHIN GROUP (ORDER BY w)', 'sum(DISTINCT w)')) if $beyond;
	my @columns = map { "a$_" } 0 .. $#list;
	my $list = join ', ', map { "$list[$_] AS a$_" } 0 .. $#list;
	my $from = 'FROM ' . pick(('t') x 8, '(SELECT * FROM t WHERE id % 3 = 0 UNION ALL SELECT * FROM t WHERE id % 3 > 0) t', '(SELECT * FROM t ORDER BY i4, id) t',
		'(SELECT * FROM t ORDER BY id LIMIT 500) t', '(SELECT t.* FROM t JOIN generate_series(0, 4) j ON j = id % 7) t', '(SELECT t.* FROM t LEFT JOIN (SELECT id FROM t WHERE id <= 20) u ON t.id = u.id + 1) t',
		'unnest(ARRAY(SELECT t FROM t WHERE id <= 3000)) t', 't TABLESAMPLE BERNOULLI (30) REPEATABLE (7)',
		'(SELECT id % 50 AS id, max(x) AS x, max(n) AS n, max(iv) AS iv, max(m) AS m, ' . join(', ', map { pick("max($_)", "mode() WITHIN GROUP (ORDER BY $_)") . " AS $_" } @names) . ' FROM t GROUP BY id % 50) t');
	# an array of rows does not keep to the typmod of its columns
	$from = 'FROM (SELECT t.*, w FROM t, LATERAL unnest(ARRAY[ROW(m / 7)]) u(w numeric(9,2)) OFFSET 0) t' if $beyond;
	$from .= ' WHERE ' . pick(('true') x 4, 'id % 5 <> 0', 'id = 3', 'false', 'i4 IS NULL');
	$from .= pick('', ' AND id % 7 <> o.x', ' AND (id < o.x * 1000 OR id % 2 = 0)') if $way eq 'lateral';
	$from .= ' AND id % 7 <> $2' if $way eq 'prepared';
	my $having = !chance(15) ? '' : ' HAVING ' . pick('count(DISTINCT i4) > 5', 'mode() WITHIN GROUP (ORDER BY i8) IS NOT NULL', 'false', 'max(i4) > 7', $list[0] =~ /OVER/ ? 'true' : "$list[0] IS NULL");
	my $query = "SELECT $list $from" . (chance(10) ? ' GROUP BY ()' : '') . $having;

	return ("SELECT id % 3 AS k, $list $from GROUP BY id % 3$having ORDER BY 1", 'k', @columns) if $way eq 'group';
	return ("SELECT 1 AS o, $list $from$having UNION ALL SELECT 2, $list FROM t WHERE id > 50 UNION ALL SELECT 3, $list FROM t WHERE false ORDER BY o", 'o', @columns) if $way eq 'union';
	return ("WITH q AS MATERIALIZED ($query) SELECT a.* FROM q a, q b", @columns) if $way eq 'cte';
	return ('SELECT ' . join(', ', map { "(SELECT a$_ FROM (SELECT $list[$_] AS a$_ $from) q) AS a$_" } 0 .. $#list), @columns) if $way eq 'subselect';
	return ($query, @columns) if $way ne 'lateral';
	my $outer = '(VALUES (3, 0.5), (3, 0.1), (0, 0), (NULL, NULL), (5, 1::float8)) o(x, f)';
	return ('SELECT o.x, ' . join(', ', map { "(SELECT $list[$_] $from) AS a$_" } 0 .. $#list) . " FROM $outer", 'x', @columns) if chance(30);
	$query = "SELECT v.y, i.* FROM (VALUES (1), (2)) v(y) LEFT JOIN ($query) i ON true" if chance(40);
	return ("SELECT o.x, l.* FROM $outer, LATERAL ($query) l", 'x', @columns);
}

sub make_case
{
	my $way = pick(('plain') x 5, ('prepared') x 3, ('lateral') x 3, 'group', 'union', 'union', 'cte', 'subselect', 'cursor', 'error', 'volatile');
	my ($sql, @columns) = make_query($way);
	my %case = (how => 'table', steps => [], kind => $way);
	if ($way eq 'prepared')
	{
		@case{ 'how', 'steps' } = ('prepared', [ '(float8, int)', '(' . pick('0.3', '1', 'NULL', '0') . ', ' . pick(0, 3, 'NULL') . ')' ]);
	}
	elsif ($way eq 'cursor')
	{
		$case{how} = pick('SCROLL CURSOR', 'SCROLL CURSOR WITH HOLD', 'NO SCROLL CURSOR');
		$case{steps} = [ 'FETCH NEXT', $case{how} =~ /NO/ ? () : ('FETCH PRIOR', 'FETCH FIRST', 'FETCH LAST'), 'FETCH ALL' ];
	}
	elsif ($way eq 'error')
	{
		# a fraction or an argument is wrong, unless there is no row
		my $wrong = pick('2', '-1e-9', "'NaN'", '1.000001', "'-Infinity'") . '::float8';
		my $bad = pick('count(DISTINCT 1 / (i2 - i2))', 'mode() WITHIN GROUP (ORDER BY (i4 % 1500)::small)', map { make_aggregate('plain', [], $wrong, "ARRAY[0.5, NULL, $wrong]") } 1 .. 6);
		($sql, @columns) = ("SELECT attempt(\$e\$SELECT $bad, mode() WITHIN GROUP (ORDER BY i4) FROM " . pick('t', 't WHERE false', 't WHERE f8 IS NULL') . '$e$) AS e', 'e');
	}
	my @both = ('test.ticks', 0, (map { $_ => pick('off', 'on', 'on') } 'enable_material', 'enable_hashjoin', 'enable_seqscan', 'parallel_leader_participation'), 'work_mem', pick('64kB', '256kB', '4MB', '64MB'),
		'plan_cache_mode', pick('force_generic_plan', 'force_custom_plan'), 'max_parallel_workers_per_gather', pick(0, 0, 1, 2),
		map { $_ => 0 } 'parallel_setup_cost', 'parallel_tuple_cost', 'min_parallel_table_scan_size');
	return { %case, sql => $sql, names => \@columns, both => \@both, with => [ 'gpusort.memory_limit', pick('64kB', '64kB', '200kB', '1MB', '-1'), 'gpusort.force', pick('on', 'off') ] };
}

my $node = new_node('aggregates_random', settings => "shared_preload_libraries = 'gpusort'\nautovacuum = off\nrestart_after_crash = on\nclient_min_messages = warning\n");
$node->start;
# the plans that are counted are those with the node
$node->safe_psql('postgres', random_schema() =~ s/\(GpuSort\)/(GpuSort Aggregate)/r =~ s/\(COSTS off\)/(VERBOSE, COSTS off)/r);
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION gpusort;
CREATE FUNCTION attempt(query text) RETURNS text LANGUAGE plpgsql AS 'BEGIN EXECUTE query; RETURN ''no error''; EXCEPTION WHEN others THEN RETURN SQLERRM; END';
SQL

srand($seed);
my ($script, @texts) = ('');
foreach my $i (1 .. $cases)
{
	$script .= make_table() if $i % 15 == 1;
	my $case = make_case();
	push @texts, "-- $case->{kind}: $case->{how} @{ $case->{steps} }\n-- @{ $case->{both} } @{ $case->{with} }\n$case->{sql}";
	$script .= compare_call($i, $case);
}
my ($done, $used) = check_cases($node, 'postgres', $script, \@texts, 'with aggregates');
cmp_ok($used, '>=', $cases / 2, "$used of $cases plans had a GpuSort Aggregate");

# ---- plans ----

$node->safe_psql('postgres', <<'SQL');
CREATE ROLE alice LOGIN;
CREATE SEQUENCE q;
CREATE TABLE big AS SELECT i AS id, hashint8(i)::int8 AS k, i % 50 AS few, i::text AS x FROM generate_series(1, 200000) i;
GRANT SELECT ON big TO alice;
ANALYZE big;
SQL
my $session = session($node);
my $median = 'percentile_cont(0.5) WITHIN GROUP (ORDER BY k DESC)';
my $mode = 'mode() WITHIN GROUP (ORDER BY few)';

# The answers to a query with GpuSort and without
sub both_answers
{
	my ($query) = @_;
	return map { answer($session, "SET gpusort.enabled = $_", $query) } 'off', 'on';
}

my $plan = answer($session, 'SET max_parallel_workers_per_gather = 0', "EXPLAIN (COSTS OFF) SELECT $median, count(DISTINCT k) + 1 FROM big HAVING $mode > 0");
like($plan, qr/^Custom Scan \(GpuSort Aggregate\)\n +Filter: .*mode.*\n +Aggregates: percentile_cont.* DESC\), count\(DISTINCT k\), mode\(\) .*\n +->  Seq Scan on big$/, 'EXPLAIN shows the node and its aggregates');
unlike(answer($session, "EXPLAIN $_"), qr/GpuSort Aggregate/, "core's plan: $_")
  foreach "SELECT few, $median, rank(3) WITHIN GROUP (ORDER BY k) FROM big GROUP BY few", "SELECT $median FROM big GROUP BY GROUPING SETS ((few), ())", 'SELECT gpu_sort_agg(k) OVER (PARTITION BY few) FROM big', 'SELECT count(DISTINCT to_jsonb(x)) FROM big',
  'SELECT mode() WITHIN GROUP (ORDER BY few USING #<) FROM big', 'SELECT count(k) FROM big';
is(answer($session, "SELECT count(DISTINCT nextval('q')), count(DISTINCT nextval('q')) FROM generate_series(1, 1000)", 'SELECT last_value FROM q'), "1000|1000\n2000",
	'volatile arguments are evaluated for each aggregate');

# ---- temporary files ----

my $files = 'SELECT count(*) FROM pg_ls_tmpdir()';
foreach my $limit ('64kB', '100MB')
{
	answer($session, "SET gpusort.memory_limit = '$limit'");
	foreach my $list ('count(DISTINCT k)', 'mode() WITHIN GROUP (ORDER BY k)', $median, 'percentile_disc(ARRAY[0.1, 0.9]) WITHIN GROUP (ORDER BY k)', 'count(DISTINCT few), count(DISTINCT few + 1)')
	{
		my $lines = answer($session, "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT $list FROM big");
		# equal values are removed
		my $written = $limit eq '64kB' && $list !~ /few/;
		like($lines, $written ? qr/temp read=\d+ written=\d+/ : qr/\A(?!.*temp )/s, ($written ? 'values beyond' : 'no values within') . " $limit are written: $list");
	}
}
answer($session, "SET gpusort.memory_limit = '64kB'");

# each list of values has less than 2 kB
my ($off, $on) = both_answers('SELECT ' . join(', ', map { "count(DISTINCT k % ($_ * 1000)), mode() WITHIN GROUP (ORDER BY id / $_ DESC)" } 1 .. 20) . ' FROM big WHERE id < 20000');
is($on, $off, '40 lists of values share the limit');
is(answer($session, $files), '0', 'no temporary file is left');
foreach my $query ('count(DISTINCT 1000 / (200000 - id))', 'percentile_disc(3) WITHIN GROUP (ORDER BY k)', "$median, mode() WITHIN GROUP (ORDER BY (id / 199)::small)")
{
	($off, $on) = both_answers("BEGIN; SELECT attempt('SELECT $query FROM big'); $files; COMMIT");
	is($on, $off, "core's error: $query");
	like($on, qr/[^0]\n0$/, 'no temporary file is left when the transaction goes on');
}

answer($session, "SET statement_timeout = '700ms'", "SELECT count(DISTINCT a.k # b.k) FROM big a, big b", 'RESET statement_timeout');
like($session->{err}, qr/canceling statement due to statement timeout/, 'statement_timeout ends a query');
is(answer($session, $files), '0', 'no temporary file is left');

# the last row comes late
hold($node, 7);
my $psql = in_background($node, \my $stdout, \my $stderr, 'SET max_parallel_workers_per_gather = 0', "SET gpusort.memory_limit = '64kB'",
	'SELECT count(DISTINCT k) FROM (SELECT k FROM big UNION ALL ' . late_row(7) . ') q', $files);
ok(poll($node, waits_for(7)), 'a query waits for its last row');
cmp_ok(ask($node, $files), '>', 0, 'it has temporary files');
ask($node, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'background'");
$psql->finish;
like($stderr, qr/canceling statement due to user request/, 'it is cancelled');
is($stdout, "0\n", 'its session has no temporary file');
let_go($node, 7);

# ---- permissions ----

foreach my $case (
	[ $median, 'percentile_cont(float8, float8)', 'aggregate percentile_cont' ],
	[ 'percentile_disc(ARRAY[0.5]) WITHIN GROUP (ORDER BY k)', 'percentile_disc(float8[], anyelement)', 'aggregate percentile_disc' ],
	[ 'count(DISTINCT k)', 'count("any")', 'aggregate count' ],
	# its owner calls the functions of an aggregate
	[ $mode, 'mode_final(internal, anyelement)', 'function mode_final', 'ALTER AGGREGATE mode(ORDER BY anyelement) OWNER TO' ])
{
	my ($aggregate, $function, $denied, $alter) = @$case;
	answer($session, "REVOKE EXECUTE ON FUNCTION $function FROM PUBLIC", $alter ? "$alter alice" : (), 'SET ROLE alice');
	$session->{err} = '';
	both_answers("SELECT $aggregate FROM big");
	is($session->{err}, "ERROR:  permission denied for $denied\n" x 2, "$denied: the same error with GpuSort and without");
	answer($session, 'RESET ROLE', $alter ? "$alter CURRENT_USER" : (), "GRANT EXECUTE ON FUNCTION $function TO PUBLIC");
}

leave($session);
end_session($node);
$node->stop;
done_testing();
