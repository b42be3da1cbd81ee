# Random queries give the same answers with GpuSort and without.
#
# The tables have random types, sizes, shares of NULLs and numbers of distinct values.
# Some values are compressed or stored out of line, and some columns have common
# prefixes.  Some tables are sorted by a column, and in some the first rows are unlike
# the rest, so that what a sort learns from them is wrong later.  In a part of the tables,
# strings of few values and of each kind of collation stand in front of other columns of
# few values.
# Indexes of integers, and keys, are in the orders of users' operator classes.
# The queries have random ORDER BY lists, planner settings and small memory limits,
# and read sorts in each way in which an executor does: to the end, up to a LIMIT,
# back and forth by cursors, repeatedly as the inner side of a join, and below
# DISTINCT, GROUP BY, windows and merge joins.  The server runs each query twice: with
# gpusort.enabled = off, and with gpusort.enabled and gpusort.force on.
#
# Two answers are equal if their key columns are the same in sequence, by the types'
# own equality (1.0 and 1.00, or -0 and 0, are equal keys, so either may come first),
# and if their rows are the same as a multiset, unless the query may choose among rows
# with equal keys.  The test first checks that this comparison finds differences.
#
#   SEED=n               repeats the cases of an earlier run; printed when a case fails
#   CASES=n              500 by default
#   SETTINGS="a=1 b=2"   more settings for the server, such as another engine
#
# The test fails if less than half of the cases used the node.

use strict;
use warnings;

use GpusortTest;
use RandomTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($seed, $cases) = begin_cases(500);

my $has_amcheck;
my @collations = ('C', 'C', 'C', 'default', 'english', 'en-x-icu', 'und-x-icu', 'cs-x-icu', 'nocase');

# Makes a random table t: its SQL, its columns and its number of rows.
sub make_table
{
	my %table = (rows => pick(0, 1, 2, 10, 10, (1000) x 8, (20000) x 3), strings => chance(35));
	my $first = $table{rows} > 2000 ? 2000 : 100;
	my (@columns, @values, @storage);
	my $n = $table{strings} ? 8 : 3 + below(5);
	my $own = !$table{strings} && chance(40); # the last column is one that users' operator classes sort
	foreach my $i (1 .. $n)
	{
		my $type = $own && $i == $n ? 'int4' : pick(
			$table{strings} ? ($i <= 4 ? @string_kinds : @keyed_kinds)
			: chance(10) ? @plain_kinds
			: chance(15) ? ('text: prefix', 'bytea: prefix')
			: @keyed_kinds);
		my $sql_type = $type =~ s/:.*//r;
		my $value = value_of($type, $table{strings} ? (distinct => pick(1, 2, 3, 10)) : ());
		my $nulls = pick(0, 0, 0, 2, 50, 100);
		if (!$table{strings} && chance(20))
		{
			my @kinds = grep { s/:.*//r eq $sql_type } @plain_kinds;
			$value = "CASE WHEN i <= $first THEN " . value_of(pick(@kinds)) . " ELSE $value END";
		}
		$value = "CASE WHEN rnd(i, " . below(1_000_000_000) . ", 100) >= $nulls THEN $value END" if $nulls;
		my $collated = $kinds{$type}[2];
		push @{ $table{columns} }, { name => "c$i", collated => $collated, integer => $sql_type eq 'int4' };
		push @columns, "c$i $sql_type" . ($collated && chance(50) ? ' COLLATE "' . pick(@collations) . '"' : '');
		push @values, $value;
		push @storage, "ALTER TABLE t ALTER c$i SET STORAGE EXTERNAL; " if $type =~ /long|late/ && chance(50);
	}
	$table{sql} = 'DROP TABLE IF EXISTS t; CREATE TABLE t (id int, ' . join(', ', @columns) . ", pad text); @storage"
	  . "INSERT INTO t SELECT i, " . join(', ', @values) . ", repeat('pad', (rnd(i, 7, 30))::int) "
	  . "FROM generate_series(1, $table{rows}) i;";
	if (chance(25))
	{
		$table{sorted} = $table{columns}[0];
		$table{sql} .= ' CREATE TABLE u (LIKE t INCLUDING STORAGE); INSERT INTO u SELECT * FROM t ORDER BY c1'
		  . pick('', ' DESC') . '; DROP TABLE t; ALTER TABLE u RENAME TO t;';
	}
	$table{sql} .= ' CREATE INDEX ON t (id);';
	if (chance(30))
	{
		# an index for incremental sorts; some values are too long for it
		$table{sorted} = $table{columns}[0];
		$table{sql} .= ' DO $$ BEGIN CREATE INDEX ON t (c1); EXCEPTION WHEN program_limit_exceeded THEN NULL; END $$;';
	}
	if (my ($integer) = grep { $_->{integer} } @{ $table{columns} })
	{
		$table{sql} .= " SET gpusort.force = on; CREATE INDEX own ON t ($integer->{name} " . pick('turned', 'turned', 'unsigned') . pick('', '', ' DESC', ' NULLS FIRST') . '); RESET gpusort.force;';
		$table{sql} .= " SELECT bt_index_check('own');" if $has_amcheck;
	}
	$table{sql} .= ' ANALYZE t;' if chance(70);
	return \%table;
}

# Keys: their expressions, the ORDER BY list that calls them k1, k2..., and these names.
sub make_keys
{
	my ($table, $alias) = @_;
	my $n = pick(1, 1, 2, 2, 3, 4);
	my (@select, @order, @names);
	$n = 2 + below(4) if $table->{strings};
	foreach my $i (1 .. $n)
	{
		my $column = $table->{sorted} && $i == 1 && chance(70) ? $table->{sorted} : pick(@{ $table->{columns} });
		# strings in front
		$column = pick(@{ $table->{columns} }[ 0 .. 3 ]) if $table->{strings} && $i <= $n / 2 && chance(70);
		my $value = "$alias.$column->{name}";
		if (chance(8))
		{
			$value = pick("$value IS NULL", "$alias.id % 7", "length($value\::text)", "- $alias.id");
		}
		elsif ($column->{collated} && chance(40))
		{
			$value .= ' COLLATE "' . pick(@collations) . '"';
		}
		push @select, $value;
		push @names, "k$i";
		my $own = $column->{integer} && $value eq "$alias.$column->{name}" && chance(40);
		push @order, "k$i" . ($own ? pick(map { " USING $_" } '#<', '#>', '@<', '@>') : pick('', '', ' ASC', ' DESC', ' DESC')) . pick('', '', '', ' NULLS FIRST', ' NULLS LAST');
	}
	return (\@select, join(', ', @order), @names);
}

sub name_keys
{
	return join ', ', map { "$_[$_] AS k" . ($_ + 1) } 0 .. $#_;
}

# Makes a random query on t: its text, how it is read, the steps of its cursor, the
# columns that are compared in sequence, and whether all rows are compared as a multiset.
sub make_query
{
	my ($table) = @_;
	my ($expressions, $order, @names) = make_keys($table, 't');
	my $keys = name_keys(@$expressions);
	my $list = join ', ', @names;
	my @columns = map { "t.$_->{name}" } @{ $table->{columns} };
	my $rest = pick('', ', t.id', ', t.id', ', t.*', ', t.id, t.pad', ', t.id, ' . pick(@columns) . ' AS p');
	my $plain = "SELECT $keys$rest FROM t" . pick('', '', '', ' WHERE t.id % 3 <> 0') . " ORDER BY $order";
	my %case = (how => 'table', steps => [], names => \@names, rows => 1, sql => $plain);
	my $kind = pick('plain', 'plain', 'plain', 'limit', 'limit', 'ties', 'distinct', 'distinct on', 'group', 'window',
		'join', 'cte', 'cursor', 'cursor', 'hold', 'loop', 'prepared', 'update', 'hidden', 'lateral', 'lateral', 'lateral limit', 'presorted');
	$case{kind} = $kind;

	if ($kind eq 'limit')
	{
		$case{sql} .= ' LIMIT ' . pick(0, 1, 10, 500, 30000, 'NULL', '(SELECT 20)');
		$case{sql} .= ' OFFSET ' . pick(0, 1, 7, 900) if chance(40);
		$case{rows} = 0;
	}
	elsif ($kind eq 'ties')
	{
		$case{sql} .= ' FETCH FIRST ' . pick(1, 10, 500) . ' ROWS WITH TIES';
	}
	elsif ($kind eq 'distinct')
	{
		@case{ 'sql', 'rows' } = ("SELECT DISTINCT $keys FROM t ORDER BY $order", 0);
	}
	elsif ($kind eq 'distinct on')
	{
		$case{sql} = "SELECT DISTINCT ON (k1) $keys, t.id FROM t ORDER BY $order, t.id";
	}
	elsif ($kind eq 'group')
	{
		$case{sql} = "SELECT $list, count(*) AS n, sum(id) AS s FROM (SELECT $keys, t.id FROM t) g "
		  . "GROUP BY $list ORDER BY $order";
		@case{ 'names', 'rows' } = ([ @names, 'n', 's' ], 0);
	}
	elsif ($kind eq 'window')
	{
		my $by = pick("ORDER BY $order", "PARTITION BY $names[0] ORDER BY $order", "PARTITION BY $names[-1]");
		$case{sql} = "SELECT *, rank() OVER w AS r, count(*) OVER w AS n FROM (SELECT $keys, t.id FROM t) g WINDOW w AS ($by)";
		$case{sql} .= " ORDER BY $order";
	}
	elsif ($kind eq 'join')
	{
		my @on = map { my $c = pick(@{ $table->{columns} })->{name}; "a.$c = b.$c" } 0 .. below(2);
		my ($k, $o, @n) = make_keys($table, 'a');
		@case{ 'sql', 'names' } = ('SELECT ' . name_keys(@$k) . ", a.id, b.id AS other FROM (SELECT * FROM t WHERE id <= 300) a "
			  . pick('JOIN', 'JOIN', 'LEFT JOIN', 'FULL JOIN')
			  . " (SELECT * FROM t WHERE id BETWEEN 100 AND 400) b ON " . join(' AND ', @on) . " ORDER BY $o", \@n);
		$case{settings} = { enable_hashjoin => 'off', enable_nestloop => 'off' };
	}
	elsif ($kind eq 'cte')
	{
		my $outer = pick($order, join ', ', reverse @names);
		my $limit = pick('', ' LIMIT 200');
		$case{sql} = "WITH x AS MATERIALIZED ($plain) SELECT * FROM x ORDER BY $outer$limit";
		$case{rows} = 0 if $limit;
	}
	elsif ($kind eq 'cursor' || $kind eq 'hold')
	{
		my $n = $table->{rows};
		@case{ 'how', 'rows' } = ($kind eq 'hold' ? 'SCROLL CURSOR WITH HOLD' : 'SCROLL CURSOR', 0);
		@{ $case{steps} } = map {
			pick('FETCH FORWARD ' . pick(1, 5, 100), 'FETCH BACKWARD ' . pick(1, 5, 100), 'FETCH FIRST', 'FETCH LAST',
				'FETCH ABSOLUTE ' . (below($n + 3) - 1), 'FETCH RELATIVE ' . (below(21) - 10), 'MOVE FORWARD ' . below($n + 2),
				'MOVE BACKWARD ALL', 'MOVE BACKWARD ' . below($n + 2), 'MOVE LAST', 'FETCH NEXT', 'FETCH PRIOR')
		} 1 .. 3 + below(12);
		push @{ $case{steps} }, 'MOVE ABSOLUTE 0', 'FETCH ALL' if $n <= 1000;
		$case{how} =~ s/SCROLL/NO SCROLL/, $case{steps} = [ 'FETCH 3', 'MOVE 50', 'FETCH 1000' ] if chance(15);
	}
	elsif ($kind eq 'loop' || $kind eq 'prepared')
	{
		$case{how} = $kind;
	}
	elsif ($kind eq 'update')
	{
		$case{sql} .= ' FOR UPDATE';
	}
	elsif ($kind eq 'hidden')
	{
		# keys that are not in the sort's output; the query looks them up by id
		my $by = $order =~ s/k(\d)/($expressions->[$1 - 1])/gr;
		$by = '(' . join(', ', @$expressions) . ')' . pick('', ' DESC') if @$expressions > 1 && chance(40);
		my @looked_up = map { "(SELECT " . s/\bt\./u./gr . " FROM t u WHERE u.id = s.id)" } @$expressions;
		$case{sql} = 'SELECT ' . name_keys(@looked_up) . ", s.id FROM (SELECT t.id FROM t ORDER BY $by OFFSET 0) s";
	}
	elsif ($kind eq 'presorted')
	{
		# an incremental sort, if there is an index
		my $by = $order =~ s/k(\d)/($expressions->[$1 - 1])/gr;
		$case{sql} = "SELECT t.c1 AS k0, $keys, t.id FROM t ORDER BY t.c1" . pick('', ' DESC') . ", $by";
		@case{ 'sql', 'rows' } = ("$case{sql} LIMIT 300", 0) if chance(30);
		$case{names} = [ 'k0', @names ];
		$case{settings} = { map { $_ => 'off' } 'enable_seqscan', 'enable_bitmapscan', 'enable_sort' };
	}
	elsif ($kind =~ /lateral/)
	{
		# The parameter changes the sorted rows, or only the limit.  When core's parallel
		# workers start again, they keep the first limit and lose rows.
		my $inner = $kind eq 'lateral' ? "WHERE t.id % 5 <> o.i % 3 ORDER BY $order" : "ORDER BY $order LIMIT "
		  . pick('o.i * 7', '20 - o.i', 'CASE WHEN o.i > 2 THEN NULL ELSE 9 END');
		$case{sql} = "SELECT o.i, s.* FROM generate_series(1, 4) o(i), LATERAL (SELECT $keys$rest FROM t $inner) s";
		@case{ 'names', 'rows' } = ([ 'i', @names ], $kind eq 'lateral');
		$case{settings} = { max_parallel_workers_per_gather => 0 } if $kind eq 'lateral limit';
	}
	return \%case;
}

# Planner settings for both runs.
sub make_settings
{
	my ($case) = @_;
	my %set = %{ $case->{settings} // {} };
	$set{work_mem} = pick('64kB', '64kB', '256kB', '4MB', '64MB');
	$set{$_} //= 'off' foreach grep { chance(50) } 'enable_hashagg', 'enable_incremental_sort', 'enable_material';
	$set{enable_hashagg} = 'off' if chance(60);
	$set{enable_seqscan} = 'off' if chance(25);
	if (!exists $set{max_parallel_workers_per_gather} && chance(30))
	{
		@set{ 'max_parallel_workers_per_gather', 'parallel_setup_cost', 'parallel_tuple_cost', 'min_parallel_table_scan_size' } =
		  (pick(1, 2), 0, 0, 0);
	}
	return \%set;
}

my $schema = random_schema() . <<'SQL';
DO $$ BEGIN
	CREATE COLLATION english (provider = libc, locale = 'en_US.UTF-8');
EXCEPTION WHEN OTHERS THEN
	CREATE COLLATION english FROM "C";
END $$;
SQL
my $node = new_node('random', settings => <<'CONF');
shared_preload_libraries = 'gpusort'
autovacuum = off
restart_after_crash = on
client_min_messages = warning
CONF
{
	# without it, the collation english is another name of C
	my $locales = make_locales('en_US.UTF-8');
	local $ENV{LOCPATH} = $locales if defined $locales;
	$node->start;
}
$has_amcheck = $node->safe_psql('postgres', "SELECT count(*) > 0 FROM pg_available_extensions WHERE name = 'amcheck'") eq 't';
$schema .= 'CREATE EXTENSION amcheck;' if $has_amcheck;
my $has_citext = $node->safe_psql('postgres', "SELECT count(*) > 0 FROM pg_available_extensions WHERE name = 'citext'") eq 't';
$schema .= 'CREATE EXTENSION citext;' if $has_citext;
@string_kinds = grep { $_ ne 'citext' } @string_kinds if !$has_citext;

my $limit = $node->safe_psql('postgres', "SELECT min_val FROM pg_settings WHERE name = 'gpusort.memory_limit'");

# databases by their default collation
my %databases = (
	c => "LOCALE 'C'",
	libc => "LOCALE 'C.UTF-8'",
	icu => "LOCALE_PROVIDER icu ICU_LOCALE 'en' LOCALE 'C.UTF-8'");
if (!has_icu($node))
{
	delete $databases{icu};
	@collations = grep { !/icu|nocase/ } @collations;
}

# the comparison finds differences
$node->safe_psql('postgres', $schema);
{
	my $q = 'SELECT i / 2 AS k1, i FROM generate_series(1, 20) i ORDER BY';
	my @pairs = (
		[ "$q k1", "$q k1 DESC" ],
		[ "$q k1, i", "$q k1, i DESC" ],
		[ "$q k1", "$q k1 LIMIT 19" ],
		[ "$q k1", "SELECT k1, i + (i = 7)::int AS i FROM ($q k1) s" ],
		[ "$q k1", "$q k1 DESC", how => 'loop' ],
		[ "$q k1", "$q k1 DESC", how => 'SCROLL CURSOR WITH HOLD', steps => [ 'MOVE 3', 'FETCH BACKWARD 1' ] ]);
	my $script = join '', map {
		my ($sql, $other, %how) = @{ $pairs[$_] };
		compare_call($_, { sql => $sql, other => $other, names => ['k1'], rows => 1, off => [], %how })
	} 0 .. $#pairs;
	my ($stderr, %verdicts) = run_cases($node, 'postgres', $script);
	is(join(', ', $stderr, map { $verdicts{$_} ? $verdicts{$_}[1] : 'none' } 0 .. $#pairs),
		', other keys in row 1, same, 19 rows, not 20, other rows, other keys in row 1, other keys in row 1',
		'the comparison finds different answers');
}

my ($used, $done, $number) = (0, 0, 0);
foreach my $database (sort keys %databases)
{
	$node->safe_psql('postgres', "CREATE DATABASE $database TEMPLATE template0 ENCODING 'UTF8' $databases{$database}");
	$node->safe_psql($database, $schema);
	my (@texts, $table);
	# code of other modules may have called rand() in between
	srand(3 * $seed + $number++);
	my $share = int($cases / 3) + ($database eq 'c' ? $cases % 3 : 0);
	my $script = '';
	foreach my $i (1 .. $share)
	{
		if ($i % 8 == 1)
		{
			$table = make_table();
			$script .= "$table->{sql}\n";
		}
		my $case = make_query($table);
		my $settings = make_settings($case);
		$case->{both} = [ map { $_ => $settings->{$_} } sort keys %$settings ];
		$case->{with} = [ 'gpusort.memory_limit', $limit ] if chance(50);
		push @texts, join "\n", $table->{sql}, "-- $case->{kind}: $case->{how} @{ $case->{steps} }", "-- @{ $case->{both} } @{ $case->{with} // [] }", $case->{sql};
		$script .= compare_call($i, $case);
	}
	my ($ended, $with_node) = check_cases($node, $database, $script, \@texts, "database $databases{$database}");
	$done += $ended;
	$used += $with_node;
	last if $ended < $share;
}
cmp_ok($used, '>=', $done / 2, "$used of $done plans had a GpuSort");
$node->stop;

done_testing();
