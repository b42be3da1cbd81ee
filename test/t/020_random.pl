# Random queries that sort rows give the same answers with GpuSort and without.
#
# The tables and queries are those of RandomQueries.pm, in databases of three default
# collations, with random planner settings and small memory limits.  They read sorts in each way in which
# an executor does: to the end, up to a LIMIT, back and forth by cursors, repeatedly as the inner side of a
# join, and below DISTINCT, windows and merge joins.  The test first checks that the comparison finds
# differences.
#
#   SEED=n, CASES=n (300 by default), SETTINGS="a=1 b=2": see RandomTest.pm
#
# The test fails if less than half of the cases used the node.

use strict;
use warnings;

use GpusortTest;
use RandomTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my (undef, $cases) = begin_cases(300);
my @collations = ('C', 'C', 'C', 'default', 'libc', 'en-x-icu', 'und-x-icu', 'cs-x-icu', 'nocase');
my $node = random_node('random');
my %has = map { $_ => $node->safe_psql('postgres', "SELECT count(*) > 0 FROM pg_available_extensions WHERE name = '$_'") eq 't' } 'amcheck', 'citext';
@string_kinds = grep { $_ ne 'citext' } @string_kinds if !$has{citext};

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

my ($used, $done) = (0, 0);
foreach my $database (sort keys %databases)
{
	$node->safe_psql('postgres', "CREATE DATABASE $database TEMPLATE template0 ENCODING 'UTF8' $databases{$database}");
	$node->safe_psql($database, join ';', random_schema(), map { "CREATE EXTENSION $_" } grep { $has{$_} } sort keys %has);
	my $share = int($cases / 3) + ($database eq 'c' ? $cases % 3 : 0);
	my ($ended, $with_node) = random_queries($node, $database, "database $databases{$database}", cases => $share, per_table => 8, collations => \@collations,
		table => { amcheck => $has{amcheck}, strings => 35 },
		forms => [ ('plain') x 5, ('limit') x 3, ('ties') x 2, 'value', 'value', 'distinct', 'distinct on', 'window', 'first', 'first ties', 'join', 'join', 'hidden', 'presorted', 'presorted', 'update', 'union', 'append', 'groups', 'sorted groups' ]);
	$done += $ended;
	$used += $with_node;
	last if $ended < $share;
}
cmp_ok($used, '>=', $done / 2, "$used of $done plans had a GpuSort");
$node->stop;

done_testing();
