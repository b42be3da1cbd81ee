# Sorts with a LIMIT give the same rows with GpuSort and without.
#
# GpuSort removes rows that the LIMIT does not fetch while it reads its input.  The
# queries here are random: the keys (random, ascending, descending, few distinct
# values, NULLs, long strings that agree in their first bytes, under "C" and ICU), the
# LIMIT and OFFSET (constants, parameters of prepared statements, subqueries, columns
# of an outer row), WITH TIES, cursors that read back and forth, UNION ALL, parallel
# plans, and memory limits that make GpuSort cut early or spill.  The server runs each
# query with gpusort.enabled = off, and with gpusort.force on.  Answers are compared as
# in 020_random.pl, whose procedures the test uses.
#
#   SEED=n    repeats the cases of an earlier run; printed when a case fails
#   CASES=n   240 by default
#   SETTINGS="a=1 b=2"   more settings for the server, such as another engine

use strict;
use warnings;

use GpusortTest;
use RandomTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($seed, $cases) = begin_cases(240);

my @keys = ('r', 'r', 'f', 'up', 'up', 'down', 'down', 'saw', 'nul', 'nul', 't', 't COLLATE "en-x-icu"', 'u',
	'u COLLATE "en-x-icu"', 'd', 'b');

# SQL that makes table t
sub make_table
{
	my ($rows) = @_;
	my %values = (
		r => value_of('int8', distinct => 1_000_000_000, special => 0),
		f => value_of('int4', distinct => 3, special => 0),
		up => value_of('int4', order => 'up', special => 0),
		down => value_of('int4', order => 'down', special => 0, rows => $rows),
		saw => value_of('int4', order => 'saw', special => 0),
		nul => value_of('int8', distinct => 5000, nulls => 33, special => 0),
		t => value_of('text: common', distinct => 20000, prefix => 'the same first bytes in all of them ', special => 0) . ' COLLATE "C"',
		u => value_of('text: common', distinct => 4, prefix => 'the same first bytes ' x 3, special => 0) . ' COLLATE "C"',
		d => value_of('numeric: 40 digits', distinct => 30, special => 0),
		b => value_of('bool', special => 0));
	return 'CREATE TABLE t AS SELECT i::int AS id, ' . join(', ', map { "$values{$_} AS $_" } sort keys %values)
	  . ", repeat('x', rnd(i, 9, 300)::int) AS pad FROM generate_series(1, $rows) i; CREATE INDEX ON t (id); ANALYZE t;\n";
}

sub make_case
{
	my @n = (1, 2, 10, 1000, 1000, 2048, 2049, 4096, 5000, 12000);
	my @order = directions(map { pick(@keys) } 1 .. pick(1, 1, 2, 3));
	my @select = map { ($order[ $_ - 1 ] =~ s/ (ASC|DESC|NULLS).*//r) . " AS k$_" } 1 .. @order;
	my @names = map { "k$_" } 1 .. @order;
	my %case = (how => 'table', steps => [], names => \@names, rows => 0, settings => {});
	# a single column of a fixed width is sorted as values
	my $rest = @order == 1 && chance(40) ? '' : pick(', id', ', id, pad', ', *');
	my $query = 'SELECT ' . join(', ', @select) . "$rest FROM t ORDER BY " . join(', ', @order);
	my ($n, $offset) = (pick(@n), chance(30) ? pick(0, 1, 100, 3000) : 0);
	my $limit = "LIMIT $n OFFSET $offset";
	my $kind = pick('plain', 'plain', 'ties', 'ties', 'special', 'prepared', 'prepared', 'subquery', 'cursor', 'cursor',
		'lateral', 'lateral', 'union', 'ordered union', 'nested');
	$case{kind} = $kind;

	if ($kind eq 'ties' || chance(10))
	{
		$limit = "OFFSET $offset FETCH FIRST $n ROWS WITH TIES";
		$case{rows} = $offset == 0;
	}
	$case{sql} = "$query $limit";
	if ($kind eq 'special')
	{
		$case{sql} = "$query LIMIT " . pick('0', 'NULL', '9223372036854775807', '100000', '10 + (random() * 0)::int') . ' OFFSET '
		  . pick('0', 'NULL', '9223372036854775807', '30000');
		$case{rows} = 0;
	}
	elsif ($kind eq 'prepared')
	{
		my $type = pick('int', 'bigint');
		@case{ 'sql', 'how', 'rows' } = ("$query " . pick('LIMIT $1 OFFSET $2', 'OFFSET $2 FETCH FIRST ($1) ROWS WITH TIES'), 'prepared', 0);
		@{ $case{steps} } = ("($type, $type)", '(' . pick($n, $n, $n, 'NULL') . ', ' . pick(0, $offset, 'NULL') . ')');
		$case{steps}[1] =~ s/NULL/7/g if $case{sql} =~ /TIES/;
		$case{settings}{plan_cache_mode} = pick('force_generic_plan', 'force_generic_plan', 'force_custom_plan');
	}
	elsif ($kind eq 'subquery')
	{
		@case{ 'sql', 'rows' } = ("$query LIMIT (SELECT $n) OFFSET (SELECT count(*) FROM pg_namespace WHERE oid = 0)", 0);
	}
	elsif ($kind eq 'cursor')
	{
		$case{how} = pick('SCROLL CURSOR', 'SCROLL CURSOR', 'SCROLL CURSOR WITH HOLD');
		$case{rows} = 0;
		@{ $case{steps} } = map {
			pick('FETCH FORWARD 5', 'FETCH BACKWARD 5', 'FETCH FIRST', 'FETCH LAST', 'FETCH ABSOLUTE ' . (int(rand($n + 3)) - 1),
				'FETCH RELATIVE ' . (int(rand(21)) - 10), 'MOVE FORWARD ' . int(rand($n + 2)), 'MOVE BACKWARD ALL', 'MOVE LAST',
				'FETCH NEXT', 'FETCH PRIOR')
		} 1 .. 3 + int(rand(12));
		push @{ $case{steps} }, 'MOVE ABSOLUTE 0', 'FETCH ALL' if $n <= 1000;
	}
	elsif ($kind eq 'lateral')
	{
		# The input stays as it is or depends on the outer row, too.  Core's parallel workers
		# would keep the first limit.
		my $where = pick('', '', 'WHERE id % 3 <> o.n % 3');
		my $inner = $query =~ s/ORDER BY/$where ORDER BY/r;
		my $part = pick('LIMIT o.n', 'LIMIT o.n OFFSET o.n / 2', 'OFFSET o.n FETCH FIRST (o.n * 2) ROWS WITH TIES',
			'LIMIT CASE WHEN o.n <> 2 THEN o.n END', 'LIMIT 5000 - o.n');
		$case{sql} = "SELECT o.n, s.* FROM (VALUES (3000), (2), (100), (4000), (4000), (1)) o(n), LATERAL ($inner $part) s";
		@case{ 'names', 'rows' } = ([ 'n', @names ], 0);
		$case{settings}{max_parallel_workers_per_gather} = 0;
		if (chance(50))
		{
			# the sort is rewound for the second row of v, and then gets another limit
			$case{sql} =~ s/LATERAL \((.*)\) s$/LATERAL (SELECT v.x, i.* FROM (VALUES (1), (2)) v(x) LEFT JOIN ($1) i ON true) s/;
			$case{names} = [ 'n', 'x', @names ];
			$case{settings}{enable_material} = 'off';
		}
	}
	elsif ($kind eq 'union')
	{
		my $other = $query =~ s/FROM t/FROM t WHERE id % 2 = 0/r;
		@case{ 'sql', 'rows' } = ("($query $limit) UNION ALL ($other LIMIT " . pick(@n) . ')', 0);
	}
	elsif ($kind eq 'ordered union')
	{
		my ($one, $two) = map { $query =~ s/FROM t.*/FROM t WHERE id % 3 = $_/r } 0, 1;
		my $by = join ', ', map { my $e = $order[ $_ - 1 ]; my ($how) = $e =~ /((?: ASC| DESC| NULLS FIRST| NULLS LAST)*)$/; "k$_$how" } 1 .. @order;
		@case{ 'sql', 'rows' } = ("SELECT * FROM ($one UNION ALL $two) s ORDER BY $by $limit", 0);
	}
	elsif ($kind eq 'nested')
	{
		@case{ 'sql', 'rows' } = ("SELECT * FROM ($query $limit) s LIMIT $n", 0);
	}

	$case{settings}{work_mem} = pick('64kB', '256kB', '4MB', '64MB');
	if (!exists $case{settings}{max_parallel_workers_per_gather} && chance(30))
	{
		@{ $case{settings} }{ 'max_parallel_workers_per_gather', 'parallel_setup_cost', 'parallel_tuple_cost', 'min_parallel_table_scan_size' } =
		  (pick(1, 2), 0, 0, 0);
	}
	return \%case;
}

my $node = new_node('limit', init => [ extra => [ '--locale=C' ] ], settings => <<'CONF');
shared_preload_libraries = 'gpusort'
autovacuum = off
client_min_messages = warning
CONF
$node->start;
$node->safe_psql('postgres', random_schema());
@keys = map { s/"en-x-icu"/"C"/r } @keys if !has_icu($node);

# ---- random queries ----

srand($seed);
my ($script, @texts) = ('');
foreach my $i (1 .. $cases)
{
	$script .= 'DROP TABLE IF EXISTS t; ' . make_table(pick(0, 100, 5000, 20000, 20000, 20000)) if $i % 20 == 1;
	my $case = make_case();
	$case->{with} = [ 'gpusort.min_rows', pick(0, 100000) ];
	push @{ $case->{with} }, 'gpusort.memory_limit', pick('64kB', '200kB', '1MB', '4MB') if chance(60);
	$case->{both} = [ map { $_ => $case->{settings}{$_} } sort keys %{ $case->{settings} } ];
	push @texts, "-- $case->{kind}: $case->{how} @{ $case->{steps} }\n-- @{ $case->{both} } @{ $case->{with} }\n$case->{sql}";
	$script .= compare_call($i, $case);
}
my ($done, $used) = check_cases($node, 'postgres', $script, \@texts, 'with a LIMIT');
cmp_ok($used, '>=', $cases / 2, "$used of $cases plans had a GpuSort");

# ---- what is kept ----

$node->safe_psql('postgres', 'DROP TABLE t; ' . make_table(60000));

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
