# DISTINCT ON, and conditions such as row_number() <= 3, return the same rows with GpuSort and without.
#
# Below them GpuSort keeps only the first rows of each group while it reads its input, unless a
# window function looks at later rows.  The queries here are random: the keys of groups and of
# their order (types of all kinds, few or many distinct values, NULLs, strings that agree in their
# first bytes), the number of rows (constants, parameters, subqueries, columns of an outer row),
# operators, the functions and frames beside, several windows, cursors, parallel plans, and memory
# limits that make GpuSort remove rows early or spill.  Answers are compared with core's as in
# 020_random.pl, whose procedures the test uses.  Then EXPLAIN shows where rows are removed.
#
#   SEED=n    repeats the cases of an earlier run; printed when a case fails
#   CASES=n   300 by default
#   SETTINGS="a=1 b=2"   more settings for the server, such as another engine

use strict;
use warnings;

use GpusortTest;
use RandomTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($seed, $cases) = begin_cases(300);

my @keys = ('few', 'few', 'few', 'mid', 'mid', 'many', 'one', 'up', 'id', 'i', 'ts', 'f', 'num', 'b', 'u', 't', 't', 'v', 't COLLATE "en-x-icu"',
	'v COLLATE "en-x-icu"', 'v COLLATE nocase', 't COLLATE libc', 'v COLLATE libc', 'x', 'y', 'z');
my @kinds = grep { !/long|late|bit|jsonb|\[/ } @plain_kinds;

# The functions beside.  Those of @tied do not depend on the order of rows that tie.
my @tied = ('sum(id)', 'count(*)', 'count(few) FILTER (WHERE id % 2 = 0)', 'percent_rank()', 'cume_dist()', 'rank()', 'dense_rank()');
my @functions = (@tied, 'sum(mid)', 'lag(id)', 'lag(id, 2, 0)', 'lag(id, 0)', 'lag(id, -1)', 'lag(id, mid % 3)', 'lag(id, NULL)', 'lead(id)',
	'lead(id, 2, 0)', 'ntile(3)', 'first_value(id)', 'last_value(id)', 'nth_value(id, 3)', 'row_number()', 'row_number()');

# SQL that makes table t.  Some equal values have different texts.
sub make_table
{
	my ($rows) = @_;
	my %values = (
		few => value_of('int4', distinct => 3, special => 0, nulls => pick(0, 20)),
		mid => value_of('int4', distinct => 300, special => 0),
		many => value_of('int8', distinct => 1_000_000_000, nulls => pick(0, 20)),
		one => value_of('int4', distinct => 1, special => 0),
		up => value_of('int4', order => pick('up', 'down', 'saw'), rows => $rows, special => 0),
		i => value_of(pick('int2', 'int4', 'int8'), special => 1),
		ts => value_of(pick('timestamp', 'timestamptz', 'date'), special => 1, nulls => pick(0, 20)),
		f => value_of(pick('float4', 'float8'), special => 1, nulls => pick(0, 20)),
		num => value_of('numeric', special => 1),
		b => value_of('bool', special => 0, nulls => pick(0, 20)),
		u => value_of('uuid', special => 0),
		t => value_of('text: common', distinct => pick(4, 2000), prefix => 'the same first bytes in all of them ', special => 0),
		v => value_of('text: cases', distinct => pick(9, 2000), nulls => pick(0, 20)),
		map { $_ => value_of(pick(@kinds), nulls => pick(0, 20)) } 'x', 'y', 'z');
	return 'CREATE TABLE t AS SELECT i::int AS id, ' . join(', ', map { "$values{$_} AS $_" } sort keys %values)
	  . ", repeat('x', rnd(i, 9, 100)::int) AS pad FROM generate_series(1, $rows) i; CREATE INDEX ON t (few, many); ANALYZE t;\n";
}

# A frame, with offsets or without
sub frame
{
	my ($mode, $offsets) = @_;
	my @ends = grep { $offsets || !/\d/ } 'UNBOUNDED PRECEDING', '3 PRECEDING', '1 PRECEDING', '0 PRECEDING', 'CURRENT ROW',
	  '0 FOLLOWING', '2 FOLLOWING', 'UNBOUNDED FOLLOWING';
	my $from = chance(50) ? 0 : below($#ends);
	my $to = $from + below(@ends - $from) || 1;
	return "$mode BETWEEN $ends[$from] AND $ends[$to]" . pick('', '', '', ' EXCLUDE CURRENT ROW', ' EXCLUDE GROUP', ' EXCLUDE TIES');
}

sub condition
{
	my ($n, $bound) = @_;
	return pick("$n <= $bound", "$n <= $bound", "$n <= $bound", "$n < $bound", "$bound >= $n", "$bound > $n", "$n = $bound", "$bound = $n");
}

# A query for the first rows of groups of table t, or of its rows that $where chooses; $bound is their number.
# Returns it, its columns whose sequence is compared, and whether its rows are.
sub make_query
{
	my ($form, $bound, $where) = @_;
	my @order = directions(map { pick(@keys) } 1 .. pick(1, 2, 2, 3, 4));
	my @by = map { s/ (ASC|DESC|NULLS).*//r } @order;
	my $n = below(@by + 1);
	my @group = @by[ 0 .. $n - 1 ];
	my @last = @order[ $n .. $#order ];
	my $partition = @group ? 'PARTITION BY ' . join(', ', @group) : '';
	my $select = join ', ', map { "$by[$_] AS k$_" } 0 .. $#by;
	my @names = map { "k$_" } 0 .. $#by;

	if ($form eq 'distinct on')
	{
		# in another sequence than those of the sort
		my $on = join ', ', reverse @group ? @group : @by;
		return ("SELECT DISTINCT ON ($on) $select, id, pad FROM t $where ORDER BY " . join(', ', @order, pick('id', 'id DESC')), [ @names, 'id' ], 1);
	}
	return ("SELECT DISTINCT $select FROM t $where ORDER BY " . join(', ', @order), \@names, 0) if $form eq 'distinct';
	if ($form eq 'value')
	{
		# a single column is sorted as values
		my $over = pick("PARTITION BY $by[0]", "PARTITION BY $by[0] ORDER BY $order[0]", "ORDER BY $order[0]", "ORDER BY $order[0]");
		my $function = $over =~ /ORDER/ ? pick('row_number()', 'rank()', 'dense_rank()') : 'row_number()';
		return ("SELECT DISTINCT $by[0] AS k0 FROM t $where ORDER BY $order[0]", ['k0'], 0) if chance(50);
		return ("SELECT * FROM (SELECT $by[0] AS k0, $function OVER ($over) AS n FROM t $where) s WHERE " . condition('n', $bound), [ 'k0', 'n' ], 0);
	}

	my $ties = $form eq 'ties';
	push @last, pick('id', 'id', 'id DESC') if !$ties;
	my $window = $partition . (@last ? ' ORDER BY ' . join(', ', @last) : '');
	my $frame = @last ? pick('', '', $ties ? 'RANGE' : 'ROWS', 'RANGE', 'GROUPS') : '';
	$frame = frame($frame, $frame ne 'RANGE' || (@last == 1 && $last[0] =~ /^(?:few|mid|one|up|id)\b/)) if $frame ne '';
	# the executor reads such a frame anew for each row
	$where = ($where eq '' ? 'WHERE' : "$where AND") . ' id <= 1000' if $frame =~ /EXCLUDE/;

	my $function = $ties ? pick('rank()', 'dense_rank()') : pick('row_number()', 'row_number()', 'row_number()', 'rank()', 'dense_rank()');
	my @values = map { pick($ties ? @tied : @functions) . ' OVER w' } 1 .. pick(0, 0, 1, 1, 2, 3);
	my $condition = condition('n', $bound);
	$condition .= pick(' AND n > 1', ' AND ' . condition('n', 2), ' AND k0 IS NOT NULL', @values ? ' AND v0 <= 3' : '') if chance(25);
	if (chance(30))
	{
		# another window, which the same sort may serve; the sequence of rows is that of the last sort
		push @values, pick('sum(id)', 'count(*)', 'row_number()') . ' OVER (' . pick("$partition ORDER BY " . join(', ', @last, 'id'), 'ORDER BY id',
			"PARTITION BY few ORDER BY id", "PARTITION BY one, $by[0] ORDER BY id") . ')';
		$condition .= ' ORDER BY id';
	}
	my $from = pick(('t') x 6, '(SELECT * FROM t WHERE id % 3 = 0 UNION ALL SELECT * FROM t WHERE id % 3 > 0) t',
		'(SELECT * FROM t ORDER BY ' . join(', ', @group, @last, 'many', 'id') . ' OFFSET 0) t');
	my $query = "SELECT $select, id" . pick('', ', pad') . ", $function OVER w AS n" . join('', map { ", $values[$_] AS v$_" } 0 .. $#values)
	  . " FROM $from $where WINDOW w AS ($window $frame)";
	return ("SELECT * FROM ($query) s WHERE $condition", $ties ? [ @names, 'n' ] : [ @names, 'id', 'n', map { "v$_" } 0 .. $#values ], 1);
}

sub make_case
{
	my %case = (how => 'table', steps => [], both => [ 'enable_hashagg', 'off' ], with => [ 'gpusort.min_rows', pick(0, 100000) ]);
	my $form = pick(('distinct on') x 2, 'distinct', ('value') x 2, ('rows') x 4, ('ties') x 3);
	my $way = pick(('plain') x 4, ('prepared') x 2, ('lateral') x 3, 'cursor', 'nested');
	my $n = pick(1, 1, 1, 2, 2, 3, 5, 10, 20, 0, -1, 'NULL');
	my $bound = pick($n, $n, $n, "'$n'::int2", "$n\::int8", 100000, "'9223372036854775807'::int8", "'-9223372036854775808'::int8", "(SELECT $n\::int8)",
		'(SELECT count(*) FROM pg_namespace WHERE oid = 0)') =~ s/'NULL'/NULL/r;
	$bound = '$1' if $way eq 'prepared';
	$bound = pick('o.r', 'o.r', '(SELECT o.r)', '(SELECT max(i) FROM generate_series(1, o.r) i)', 2) if $way eq 'lateral';
	my ($sql, $names, $rows) = make_query($form, $bound, pick('', '', $way eq 'lateral' ? 'WHERE id % 3 <> o.r % 3' : 'WHERE id % 2 = 0'));

	if ($way eq 'prepared')
	{
		$sql .= ' OFFSET $1' if $sql !~ /\$1/;
		@{ $case{steps} } = ('(' . pick('smallint', 'int', 'int', 'bigint') . ')', '(' . pick(1, 1, 2, 3, 20, 0, $sql =~ /OFFSET \$1/ ? () : (-1, 'NULL')) . ')');
		$case{how} = 'prepared';
		push @{ $case{both} }, 'plan_cache_mode', pick('force_generic_plan', 'force_generic_plan', 'force_custom_plan');
	}
	elsif ($way eq 'lateral')
	{
		$sql .= ' OFFSET abs(o.r) % 2';
		# the sort is rewound for the second row of v, and then gets another bound
		$sql = "SELECT v.x, i.* FROM (VALUES (1), (2)) v(x) LEFT JOIN ($sql) i ON true" if chance(40);
		$sql = "SELECT o.r, l.* FROM (VALUES (3), (3), (1), (20), (NULL), (2), (-1), (100000)) o(r), LATERAL ($sql) l";
		($names, $rows) = ([ 'r', @$names ], $rows && $form ne 'ties');
		push @{ $case{both} }, map { $_ => 'off' } 'enable_material', 'enable_hashjoin', 'enable_mergejoin';
	}
	elsif ($way eq 'cursor')
	{
		$case{how} = pick('SCROLL CURSOR', 'SCROLL CURSOR WITH HOLD', 'NO SCROLL CURSOR');
		my @back = $case{how} =~ /NO/ ? () : ('FETCH BACKWARD 5', 'FETCH LAST', 'FETCH FIRST', 'MOVE BACKWARD ALL');
		@{ $case{steps} } = ((map { pick('FETCH FORWARD 5', 'MOVE FORWARD 30', @back) } 1 .. 6), 'FETCH FORWARD 3000');
		$rows = 0 if $form eq 'ties';
	}
	elsif ($way eq 'nested')
	{
		($sql, $names, $rows) = ("SELECT k0, count(*) AS c FROM ($sql) q GROUP BY k0 ORDER BY 1", [ 'k0', 'c' ], 0) if $form !~ /on|rows/;
		$sql = pick("SELECT * FROM ($sql) q LIMIT 7", "SELECT DISTINCT ON (k0) * FROM ($sql) q ORDER BY k0, id") if $form =~ /on|rows/;
	}

	push @{ $case{both} }, 'work_mem', pick('64kB', '64kB', '256kB', '4MB', '64MB'), 'max_parallel_workers_per_gather', pick(0, 0, 1, 2),
	  'parallel_leader_participation', pick('on', 'off'), map { $_ => 0 } 'parallel_setup_cost', 'parallel_tuple_cost', 'min_parallel_table_scan_size';
	push @{ $case{with} }, 'gpusort.memory_limit', pick('64kB', '64kB', '200kB', '1MB', '4MB') if chance(70);
	return { %case, sql => $sql, names => $names, rows => $rows, kind => "$form, $way" };
}

my $locales = make_locales('en_US.UTF-8');
my $node = new_node('groups', init => [ extra => [ '-E', 'UTF8', '--locale=C' ] ], settings => <<'CONF');
shared_preload_libraries = 'gpusort'
autovacuum = off
client_min_messages = warning
CONF
{
	local $ENV{LOCPATH} = $locales // '';
	$node->start;
}
$node->safe_psql('postgres', random_schema());
$node->safe_psql('postgres', "CREATE COLLATION libc (provider = libc, locale = '" . ($locales ? 'en_US.UTF-8' : 'C') . "')");
@keys = map { s/"en-x-icu"|nocase/"C"/r } @keys if !has_icu($node);

# ---- random queries ----

srand($seed);
my ($script, @texts) = ('');
foreach my $i (1 .. $cases)
{
	$script .= 'DROP TABLE IF EXISTS t; ' . make_table(pick(0, 100, 3000, 10000, 10000, 20000)) if $i % 20 == 1;
	my $case = make_case();
	push @texts, "-- $case->{kind}: $case->{how} @{ $case->{steps} }\n-- @{ $case->{both} } @{ $case->{with} }\n$case->{sql}";
	$script .= compare_call($i, $case);
}
my ($done, $used) = check_cases($node, 'postgres', $script, \@texts, 'with groups');
cmp_ok($used, '>=', $cases / 2, "$used of $cases plans had a GpuSort");

$node->stop;
done_testing();
