# DISTINCT ON and conditions such as row_number() <= 3 return the same rows with GpuSort and without.
#
# Below them GpuSort keeps only the first rows of each group while it reads its input, unless a
# window function of the same node looks at later rows.  The queries here are random: the keys of
# the groups and of the order (types of all kinds, few or many distinct values, NULLs, strings that
# agree in their first bytes, under "C" and ICU), DISTINCT ON, DISTINCT, the function, its bound
# (constants, parameters, subqueries, columns of an outer row) and operator, the functions and
# frames beside it, several windows, cursors, parallel plans, and memory limits that make GpuSort
# cut early or spill.  Answers are compared with core's as in 020_random.pl, whose procedures the
# test uses.  Then EXPLAIN shows where rows are removed, and where none may be.
#
#   SEED=n    repeats the cases of an earlier run; printed when a case fails
#   CASES=n   400 by default
#   SETTINGS="a=1 b=2"   more settings for the server, such as another engine

use strict;
use warnings;

use GpusortTest;
use RandomTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($seed, $cases) = begin_cases(400);

my @keys = ('few', 'few', 'few', 'mid', 'mid', 'many', 'one', 'up', 'id', 'i', 'ts', 'f', 'num', 'b', 'u', 't', 't', 'v',
	't COLLATE "en-x-icu"', 'v COLLATE "en-x-icu"', 'v COLLATE nocase', 'x', 'y', 'z');
my @kinds = grep { !/long|late|bit|jsonb|\[/ } @plain_kinds;

# SQL that makes table t.  Equal values may be different texts.
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

# Functions and frames beside those in the condition.  Some look at later rows.  The first ones do not depend on the
# order of rows that tie.
my @tied = ('sum(id)', 'count(*)', 'count(few) FILTER (WHERE id % 2 = 0)', 'percent_rank()', 'cume_dist()', 'rank()', 'dense_rank()');
my @others = (@tied, 'lag(id)', 'lag(id, 2, 0)', 'lag(id, 0)', 'lag(id, -1)', 'lag(id, mid % 3)', 'lag(id, NULL)', 'lead(id)', 'lead(id, 2, 0)', 'ntile(3)',
	'first_value(id)', 'last_value(id)', 'last_value(id)', 'nth_value(id, 3)', 'row_number()', 'row_number()', 'sum(id)', 'sum(mid)');
my @tied_frames = ('', '', 'RANGE UNBOUNDED PRECEDING', 'GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW', 'GROUPS BETWEEN 3 PRECEDING AND 1 PRECEDING',
	'GROUPS BETWEEN 1 PRECEDING AND 0 PRECEDING', 'GROUPS BETWEEN CURRENT ROW AND 1 FOLLOWING', 'RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING',
	'RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING', 'GROUPS CURRENT ROW');
my @frames = (@tied_frames, 'ROWS UNBOUNDED PRECEDING', 'ROWS BETWEEN 2 PRECEDING AND CURRENT ROW', 'ROWS BETWEEN 4 PRECEDING AND 2 PRECEDING',
	'ROWS BETWEEN 1 PRECEDING AND 0 PRECEDING', 'ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING', 'ROWS BETWEEN 1 FOLLOWING AND 3 FOLLOWING',
	'ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING');

# A query for the first rows of groups, with a bound for those that have one, and its names that are
# compared in sequence.  $where limits its input.
sub make_query
{
	my ($case, $bound, $where) = @_;
	my $form = pick('distinct on', 'distinct on', 'distinct', 'value', 'value', 'rows', 'rows', 'rows', 'rows', 'ties', 'ties', 'ties');
	my @order = directions(map { pick(@keys) } 1 .. pick(1, 2, 2, 3, 4));
	my @by = map { s/ (ASC|DESC|NULLS).*//r } @order;
	my $n = pick(0, 1 .. @order, 1 .. @order);
	my $select = join ', ', map { "$by[$_] AS k$_" } 0 .. $#by;
	my @names = map { "k$_" } 0 .. $#by;
	$case->{form} = $form;

	if ($form eq 'distinct on')
	{
		# the columns need not be in the order of the sort
		my @on = @by[ 0 .. ($n || 1) - 1 ];
		@on = reverse @on if chance(50);
		return ("SELECT DISTINCT ON (" . join(', ', @on) . ") $select, id" . pick('', ', pad') . " FROM t $where ORDER BY "
			  . join(', ', @order, pick('id', 'id DESC')), [ @names, 'id' ], 1);
	}
	return ("SELECT DISTINCT $select FROM t $where ORDER BY " . join(', ', @order), \@names, 0) if $form eq 'distinct';
	return ("SELECT DISTINCT $by[0] AS k0 FROM t $where ORDER BY $order[0]", ['k0'], 0) if $form eq 'value' && chance(50);

	my $partition = $n > 0 ? 'PARTITION BY ' . join(', ', @by[ 0 .. $n - 1 ]) : '';
	my @last = @order[ $n .. $#order ];
	if ($form eq 'value')
	{
		# a single column is sorted as values
		my $window = pick("PARTITION BY $by[0]", "PARTITION BY $by[0] ORDER BY $order[0]", "ORDER BY $order[0]", "ORDER BY $order[0]");
		my $function = $window =~ /ORDER/ ? pick('rank()', 'dense_rank()', 'row_number()') : 'row_number()';
		return ("SELECT * FROM (SELECT $by[0] AS k0, $function OVER ($window) AS n FROM t $where) s WHERE " . condition('n', $bound), [ 'k0', 'n' ], 0);
	}
	push @last, pick('id', 'id', 'id DESC') if $form eq 'rows';
	my $ordered = join ' ', $partition, @last ? 'ORDER BY ' . join(', ', @last) : '';
	my $frame = pick($form eq 'rows' ? @frames : @tied_frames);
	$frame = '' if !@last;
	$frame = 'RANGE ' . pick('BETWEEN 9 PRECEDING AND CURRENT ROW', 'BETWEEN 9 PRECEDING AND 1 PRECEDING', 'BETWEEN 2 PRECEDING AND 3 FOLLOWING')
	  if @last == 1 && $last[0] =~ /^(?:few|mid|one|up|id)\b/ && chance(70);
	if ($frame ne '' && chance(25))
	{
		# the executor reads a frame anew for each row
		$frame .= ' EXCLUDE ' . pick('CURRENT ROW', 'GROUP', 'TIES');
		$where = ($where eq '' ? 'WHERE' : "$where AND") . ' id <= 1000';
	}
	my @windows = ($ordered . ($frame eq '' ? '' : " $frame"));
	# one window's sort may serve another, too
	push @windows, pick($partition, "$partition ORDER BY " . join(', ', @last, 'id'), 'PARTITION BY few', "PARTITION BY one, $by[0] ORDER BY id", '', $ordered,
		"PARTITION BY $by[-1] ORDER BY $order[0], id")
	  if chance(35);
	my $function = $form eq 'rows' ? pick('row_number()', 'row_number()', 'row_number()', 'rank()', 'dense_rank()') : pick('rank()', 'dense_rank()');
	my @values = map { pick($form eq 'rows' ? @others : @tied) . ' OVER w' } 1 .. pick(0, 0, 1, 1, 2, 3);
	push @values, pick('sum(id)', 'count(*)', 'sum(mid)') . " OVER ($windows[1])" if @windows > 1;
	# a sort by more columns
	my $from = chance(15) ? '(SELECT * FROM t ORDER BY ' . join(', ', @by[ 0 .. $n - 1 ], @last, 'many', 'id') . ' OFFSET 0) t' : 't';
	my $query = "SELECT $select, id" . pick('', '', ', pad') . ", $function OVER w AS n"
	  . join('', map { ", $values[$_] AS v$_" } 0 .. $#values) . " FROM $from $where WINDOW w AS ($windows[0])";
	my $condition = condition('n', $bound);
	$condition .= pick(' AND n > 1', ' AND ' . condition('n', 2), ' AND k0 IS NOT NULL', @values ? ' AND v0 <= 3' : '') if chance(25);
	# several sorts leave the order to chance
	$condition .= ' ORDER BY id' if @windows > 1;
	return ("SELECT * FROM ($query) s WHERE $condition", $form eq 'rows' ? [ @names, 'id', 'n', map { "v$_" } 0 .. $#values ] : [ @names, 'n' ], 1);
}

sub condition
{
	my ($n, $bound) = @_;
	return pick("$n <= $bound", "$n <= $bound", "$n <= $bound", "$n < $bound", "$bound >= $n", "$bound > $n", "$n = $bound", "$bound = $n");
}

# The number of rows.
sub number
{
	my $n = pick(1, 1, 1, 2, 2, 3, 5, 10, 20, 0, -1, 100000, 'NULL');
	return pick(pick("'9223372036854775807'", "'-9223372036854775808'") . '::int8', "(SELECT $n)", '(SELECT count(*) FROM pg_namespace WHERE oid = 0)') if chance(10);
	return $n eq 'NULL' || abs($n) > 30000 ? "$n" . pick('', '::int8') : pick($n, $n, "'$n'::int2", "'$n'::int8");
}

sub make_case
{
	my %case = (how => 'table', steps => [], settings => { enable_hashagg => 'off' });
	my $way = pick('plain', 'plain', 'plain', 'plain', 'prepared', 'prepared', 'lateral', 'lateral', 'lateral', 'cursor', 'nested');
	my $bound = $way eq 'prepared' ? '$1' : $way eq 'lateral' ? pick('o.r', 'o.r', 'o.r', '(SELECT o.r)', '(SELECT max(i) FROM generate_series(1, o.r) i)', 2) : number();
	my ($sql, $names, $rows) = make_query(\%case, $bound, $way eq 'lateral' ? 'WHERE id % 3 <> o.r % 3' : pick('', '', '', 'WHERE id % 2 = 0'));
	@case{ 'sql', 'names', 'rows', 'kind' } = ($sql, $names, $rows, "$case{form}, $way");

	if ($way eq 'prepared')
	{
		@case{ 'sql', 'how' } = ("$sql" . ($sql =~ /\$1/ ? '' : ' OFFSET $1'), 'prepared');
		my $type = pick('smallint', 'int', 'int', 'bigint');
		@{ $case{steps} } = ("($type)", '(' . pick(1, 1, 2, 3, 20, 0, $sql =~ /\$1/ ? (-1, 'NULL') : ()) . ')');
		$case{settings}{plan_cache_mode} = pick('force_generic_plan', 'force_generic_plan', 'force_custom_plan');
	}
	elsif ($way eq 'lateral')
	{
		my $outer = '(VALUES (3), (3), (1), (20), (NULL), (2), (-1), (100000)) o(r)';
		$case{sql} = "SELECT o.r, l.* FROM $outer, LATERAL ($sql OFFSET 0) l";
		# the sort is rewound for the second row of v, and then gets another bound
		$case{sql} = "SELECT o.r, l.* FROM $outer, LATERAL (SELECT v.x AS vx, i.* FROM (VALUES (1), (2)) v(x) LEFT JOIN ($sql OFFSET 0) i ON true) l" if chance(40);
		$case{names} = [ 'r', @$names ];
		@{ $case{settings} }{ 'enable_material', 'enable_hashjoin', 'enable_mergejoin' } = ('off', 'off', 'off');
	}
	elsif ($way eq 'cursor')
	{
		$case{how} = pick('SCROLL CURSOR', 'SCROLL CURSOR', 'SCROLL CURSOR WITH HOLD', 'NO SCROLL CURSOR');
		@{ $case{steps} } = map { pick('FETCH FORWARD 5', 'MOVE FORWARD 30', 'FETCH NEXT', $case{how} =~ /NO/ ? () : ('FETCH BACKWARD 5', 'FETCH LAST', 'FETCH FIRST', 'MOVE BACKWARD ALL')) } 1 .. 6;
		push @{ $case{steps} }, 'FETCH FORWARD 3000';
		$case{rows} = 0 if $case{form} eq 'ties';
	}
	elsif ($way eq 'nested')
	{
		@case{ 'sql', 'names', 'rows' } = $case{form} !~ /rows|on/ ? ("SELECT k0, count(*) FROM ($sql) q GROUP BY k0 ORDER BY 1", [ 'k0', 'count' ], 0)
		  : pick([ "SELECT * FROM ($sql) q LIMIT 7", $names, 1 ], [ "SELECT DISTINCT ON (k0) * FROM ($sql) q ORDER BY k0, id", $names, 1 ],
			[ "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY k0 ORDER BY id) AS m FROM ($sql) q) p WHERE m <= 2", [ @$names, 'm' ], 1 ])->@*;
	}

	$case{settings}{work_mem} = pick('64kB', '64kB', '256kB', '4MB', '64MB');
	@{ $case{settings} }{ 'max_parallel_workers_per_gather', 'parallel_setup_cost', 'parallel_tuple_cost', 'min_parallel_table_scan_size' } = (pick(0, 0, 1, 2), 0, 0, 0);
	$case{settings}{parallel_leader_participation} = pick('on', 'off');
	return \%case;
}

my $node = new_node('groups', init => [ extra => [ '-E', 'UTF8', '--locale=C' ] ], settings => <<'CONF');
shared_preload_libraries = 'gpusort'
autovacuum = off
client_min_messages = warning
CONF
$node->start;
$node->safe_psql('postgres', random_schema());
@keys = map { s/"en-x-icu"|nocase/"C"/r } @keys if !has_icu($node);

# ---- random queries ----

srand($seed);
my ($script, @texts) = ('');
foreach my $i (1 .. $cases)
{
	$script .= 'DROP TABLE IF EXISTS t; ' . make_table(pick(0, 100, 3000, 10000, 10000, 20000)) if $i % 20 == 1;
	my $case = make_case();
	$case->{with} = [ 'gpusort.min_rows', pick(0, 100000) ];
	push @{ $case->{with} }, 'gpusort.memory_limit', pick('64kB', '64kB', '200kB', '1MB', '4MB') if chance(70);
	$case->{both} = [ map { $_ => $case->{settings}{$_} } sort keys %{ $case->{settings} } ];
	push @texts, "-- $case->{kind}: $case->{how} @{ $case->{steps} }\n-- @{ $case->{both} } @{ $case->{with} }\n$case->{sql}";
	$script .= compare_call($i, $case);
}
my ($done, $used) = check_cases($node, 'postgres', $script, \@texts, 'with groups');
cmp_ok($used, '>=', $cases / 2, "$used of $cases plans had a GpuSort");

$node->stop;
done_testing();
