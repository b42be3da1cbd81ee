# RandomTest.pm - the comparison of random queries with core's answers.
#
# A case is a query that compare() of random.sql runs in two ways, which must give the
# same answer: without gpusort, and with gpusort wherever it can.  RandomTables.pm and RandomQueries.pm make
# tables and cases, RandomValues.pm numbers, values and strings; random_queries() runs cases of these.
# Everything follows from the seed:
#
#   SEED=n               repeats the cases of an earlier run; printed when a case fails
#   CASES=n              how many cases
#   SETTINGS="a=1 b=2"   more settings for the server, such as another engine

package RandomTest;

use strict;
use warnings;

use Digest::MD5 qw(md5);
use Exporter 'import';
use File::Basename qw(dirname);
use GpusortTest;
use PostgreSQL::Test::Utils;
use RandomQueries;
use RandomTables;
use RandomValues;
use Test::More;

our @EXPORT = ('make_table', @RandomQueries::EXPORT, @RandomValues::EXPORT, qw(begin_cases random_schema random_node compare_call run_cases check_cases random_queries random_strings));

my ($seed, $cases);

# Returns the seed and the number of cases, by default $default.  A test that calls rand() itself gives the seed to
# srand() after it has made its servers, which call rand(), too.
sub begin_cases
{
	my ($default) = @_;
	$seed = $ENV{SEED} // int(rand(1_000_000_000));
	$cases = $ENV{CASES} || $default;
	note("SEED=$seed CASES=$cases");
	return ($seed, $cases);
}

# The types of random.sql, and the procedure compare(), which counts the plan nodes of a name.  The collation libc
# is another name of C where locales cannot be made.
my $locales;

sub random_schema
{
	my ($nodes) = @_;
	my $sql = slurp_file(dirname(__FILE__) . '/random.sql');
	$sql =~ s/\(GpuSort\)/$nodes/ if $nodes;
	return "${sql}CREATE COLLATION libc (provider = libc, locale = '" . ($locales ? 'en_US.UTF-8' : 'C') . "');";
}

# A server for random queries, with the schema in its database postgres.
sub random_node
{
	my ($name, $nodes, $settings) = @_;
	$locales = make_locales('en_US.UTF-8');
	my $node = new_node($name, init => [ extra => ['--locale=C'] ],
		settings => "shared_preload_libraries = 'gpusort'\nautovacuum = off\nrestart_after_crash = on\nclient_min_messages = warning\n" . ($settings // ''));
	local $ENV{LOCPATH} = $locales // '';
	$node->start;
	$node->safe_psql('postgres', random_schema($nodes));
	return $node;
}

sub quote_list { return 'ARRAY[' . join(', ', map { "\$q\$$_\$q\$" } @_) . ']::text[]' }

# A call of compare() for a case:
#
#   sql      the query
#   other    the query of the second run, if it is another one
#   how      the way to read it; 'table' by default
#   steps    of a cursor or a prepared statement
#   names    the columns that are compared in sequence
#   rows     whether the rows are compared as a multiset
#   both, off, with   lists of settings, for both runs, the first and the second; by default
#                     the first is without GpuSort, and in the second GpuSort is forced
sub compare_call
{
	my ($i, $case) = @_;
	my @off = @{ $case->{off} // [ 'gpusort.enabled', 'off' ] };
	my @with = @{ $case->{with} // [] };
	unshift @with, 'gpusort.enabled', 'on', 'gpusort.force', 'on', 'gpusort.min_rows', 0 if !$case->{off};
	return "CALL compare($i, \$q\$$case->{sql}\$q\$, \$q\$" . ($case->{other} // $case->{sql}) . "\$q\$, '" . ($case->{how} // 'table') . "', "
	  . join(', ', quote_list(@{ $case->{steps} // [] }), quote_list(@{ $case->{names} }), $case->{rows} ? 'true' : 'false',
		map { quote_list(@$_) } $case->{both} // [], \@off, \@with) . ");\n";
}

# Runs a script with calls in a database.  Returns the messages and the verdicts; after a
# crash, those so far.
sub run_cases
{
	my ($node, $database, $script) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/script.sql';
	append_to_file($file, $script);
	my ($rc, $ignored, $stderr) = $node->psql($database, "\\i $file", on_error_stop => 0);
	$node->poll_query_until($database, undef, '');
	my %verdicts = map { my ($i, @v) = split /\|/; $i => \@v } split /\n/,
	  $node->safe_psql($database, 'SELECT case_no, nodes, verdict FROM verdict');
	return ($stderr, %verdicts);
}

# check_cases(NODE, DATABASE, SCRIPT, TEXTS, NAME[, DETAIL]): runs a script with the calls of
# cases 1, 2 and so on, whose texts, for messages, are in a list.  All must have the same answers;
# DETAIL returns more about a case that has not.  Returns how many cases ended, how many of
# them had a GpuSort, and how many are wrong.
sub check_cases
{
	my ($node, $database, $script, $texts, $name, $detail) = @_;
	my ($stderr, %verdicts) = run_cases($node, $database, $script);
	my @bad = grep { !$verdicts{$_} || $verdicts{$_}[1] ne 'same' } 1 .. @$texts;
	ok(!@bad && $stderr !~ /ERROR|connection/, scalar(@$texts) . " queries give the same answers, $name");
	foreach my $i (grep { defined } @bad[ 0 .. 2 ])
	{
		diag("SEED=$seed CASES=$cases, $name, case $i: " . ($verdicts{$i} ? $verdicts{$i}[1] : 'an error') . "\n$texts->[$i - 1]\n"
			  . ($detail ? $detail->($i) : ''));
	}
	diag(substr($stderr, 0, 3000)) if $stderr =~ /ERROR|WARNING|connection/;
	return (scalar(keys %verdicts), scalar(grep { $_->[0] > 0 } values %verdicts), scalar @bad);
}

# random_queries(NODE, DATABASE, NAME, HOW => ...): compares random queries.
#
#   cases       how many; by default CASES
#   per_table   of one table; by default 12
#   table       what make_table() gets; the rest of HOW is make_case()'s
#   least       of 100 cases or more, the share of plans that have a GpuSort, or a node that random_schema() was told
#   script      SQL in front of the cases
#   after_case  a function that returns SQL behind a case
#   detail      a function that check_cases() gets
#
# Returns how many cases ended, how many of them had the node, and how many are wrong.
sub random_queries
{
	my ($node, $database, $name, %how) = @_;
	my $n = $how{cases} // $cases;
	# whatever has called rand() in between
	srand(unpack 'L', md5("$seed $name"));
	my ($script, $table, @texts) = ($how{script} // '');
	my $presorts = $node->safe_psql('postgres', "SELECT count(*) FROM pg_settings WHERE name = 'enable_presorted_aggregate'");
	$how{settings} = { enable_presorted_aggregate => [ 'on', 'on', 'off' ], %{ $how{settings} // {} } } if $presorts;
	foreach my $i (1 .. $n)
	{
		if (($i - 1) % ($how{per_table} // 12) == 0)
		{
			$table = make_table(%{ $how{table} // {} }, collations => $how{collations});
			$script .= $table->{sql};
		}
		my $case = make_case($table, %how);
		push @texts, ($table->{about} ? "-- $table->{about}" : $table->{sql}) . "\n-- $case->{kind}: $case->{how} @{ $case->{steps} }\n-- @{ $case->{both} } @{ $case->{with} }\n$case->{sql}";
		$script .= compare_call($i, $case) . ($how{after_case} ? $how{after_case}->($i) : '');
	}
	my @counts = check_cases($node, $database, $script, \@texts, $name, $how{detail});
	cmp_ok($counts[1], '>=', $n * $how{least}, "$counts[1] of $n plans had a GpuSort, $name") if defined $how{least} && $n >= 100;
	return @counts;
}

# The same with tables of strings of one of some alphabets, whose columns are of {types}.
sub random_strings
{
	my ($node, $database, $name, $alphabets, %how) = @_;
	my $kinds = $how{kinds} // [ 'letters', 'letters', 'words', 'varied', 'varied', 'late', 'prefix', 'signs', 'few', 'ascii', 'any', 'long' ];
	return random_queries($node, $database, $name, table => { rows => [ 0, 1, 2, 10, 300, (1000) x 6, 5000 ], copy => { alphabets => $alphabets, kinds => $kinds, types => $how{types} } },
		forms => [ ('plain') x 4, 'limit', 'ties', 'distinct', 'distinct on', 'first', 'sorted groups' ], ways => [ ('plain') x 4, 'cursor', 'prepared', 'lateral' ],
		rules => { sorting => [ ('count(DISTINCT <x>)') x 2, 'percentile_disc(<direct>) WITHIN GROUP (ORDER BY <x><dir>)', 'mode() WITHIN GROUP (ORDER BY <x><dir>)', 'array_agg(<v> ORDER BY <x><dir>, id)' ], other => [ 'count(*)', 'max(<x>)' ] },
		%how);
}

1;
