#!/usr/bin/perl
#
# check_core.pl - classifies the differences in the output of PostgreSQL's test suites.
#
#   perl check_core.pl SUITE EXPECTED_DIR RESULTS_DIR TIES_FILE REPORT_DIR
#
# The suites compare text, and the output of a server with another sort may differ and
# still be right: SQL does not specify the order of rows with equal keys, and EXPLAIN shows
# another node.  So this script cuts a file into lines and result tables, aligns the
# expected and the actual sequence by diff(1), and assigns each difference to a class:
#
#   PLAN     the output of EXPLAIN.  Legal.
#   TIE      the ORDER BY columns have the same sequence and the rows are the same; or
#            the statement is in TIES_FILE, which lists statements that show the order of
#            equal rows in a way that the text does not reveal (LIMIT, window
#            functions, expressions that are not printed).  Legal.
#   NOORDER  the same rows in another order, without an ORDER BY.  Legal.
#   ORDER    the same rows in another order, and the text does not show whether the
#            order is right.  A fault until a person has checked it.
#   WRONG    all other differences: other rows, another order of keys, other messages.
#
# A fault is printed with its statement and its difference, and all differences go to
# REPORT_DIR.  The last line has the counts, also of GpuSort nodes in plans.

use strict;
use warnings;

use Digest::SHA qw(sha1_hex);

die "usage: check_core.pl SUITE EXPECTED_DIR RESULTS_DIR TIES_FILE REPORT_DIR\n" unless @ARGV == 5;
my ($suite, $expected_dir, $results_dir, $ties_file, $report_dir) = @ARGV;

# The statements in TIES_FILE: test, tab, hash of the statement.
my %listed;
foreach my $line (read_lines($ties_file))
{
	my ($test, $hash) = split /\t/, $line;
	$listed{"$test\t$hash"} = 1 if defined $hash;
}

my @CLASSES = qw(WRONG TIE ORDER NOORDER PLAN);
my %total = map { $_ => 0 } @CLASSES, 'GPUSORT', 'FAULTY';

foreach my $file (sort glob "$results_dir/*.out")
{
	my ($test) = $file =~ m{([^/]+)\.out$};
	judge_test($test, $file);
}
print join(' ', map { "$_ $total{$_}" } sort keys %total), "\n";

sub read_lines
{
	my ($path) = @_;
	open my $in, '<:raw', $path or die "could not open $path: $!\n";
	my @lines = <$in>;
	chomp @lines;
	return @lines;
}

# Cuts a file into tokens: { text => line } or
# { head => two lines, rows => [...], statement => the statement that it answers }.
#
# The lines of psql's tables begin with a blank.  Tables of isolationtester begin with any
# character and end before the first empty line.
sub parse
{
	my @lines = read_lines($_[0]);
	my $indent = $suite eq 'isolation' ? qr/^(?!step |$)/ : qr/^ /;
	my (@tokens, @since);

	for (my $i = 0; $i < @lines; $i++)
	{
		if ($i + 1 < @lines && $lines[$i] =~ $indent && $lines[ $i + 1 ] =~ /^-[-+]*$/)
		{
			my $end = $i + 2;
			$end++
			  while $end < @lines && $lines[$end] !~ /^\(\d+ rows?\)$/
			  && ($lines[$end] =~ $indent || $lines[$end] eq '' && $suite ne 'isolation');
			if ($end < @lines && $lines[$end] =~ /^\(\d+ rows?\)$/)
			{
				push @tokens, {
					head => "$lines[$i]\n$lines[$i + 1]",
					rows => [ @lines[ $i + 2 .. $end - 1 ] ],
					statement => last_statement(@since) };
				@since = ();
				$i = $end;
				next;
			}
		}
		push @tokens, { text => $lines[$i] };
		push @since, $lines[$i];
	}
	return \@tokens;
}

# The last SQL statement in some lines of a file.
sub last_statement
{
	my $text = join "\n", grep { !/^\s*(--|NOTICE:|WARNING:|INFO:|DEBUG:|LOG:)/ } @_;
	$text =~ s/^\s+|\s+$//g;
	my @statements = grep { /\S/ } split /;\s*\n/, $text;
	my $last = @statements ? $statements[-1] : $text;
	$last =~ s/^\s+|\s+$//g;
	return $last;
}

# The statement that line $at of the tokens belongs to.
sub statement_before
{
	my ($tokens, $at) = @_;
	my $first = $at;
	$first-- while $first > 0 && defined $tokens->[ $first - 1 ]{text} && $at - $first < 60;
	return last_statement(map { $_->{text} } @$tokens[ $first .. $at - 1 ]);
}

sub is_listed
{
	my ($test, $statement) = @_;
	$statement =~ s/\s+/ /g;
	return $listed{ "$test\t" . substr(sha1_hex($statement), 0, 16) };
}

sub is_plan
{
	my ($token) = @_;
	return 0 unless $token->{head};
	return 1 if $token->{head} =~ /^\s*QUERY PLAN\s*\n|^.*explain/i || $token->{statement} =~ /\bexplain/i;
	return scalar grep { /^\s*(->  |Sort Key: |Presorted Key: |Sort Method: |Custom Scan )/ } @{ $token->{rows} };
}

# A token as one line.  For aligning, all plans are the same.
sub flat
{
	my ($token, $aligning) = @_;
	if (defined $token->{text})
	{
		my $text = $token->{text};
		$text =~ s/Custom Scan \(GpuSort\)/Sort/ if $aligning;
		return "T$text";
	}
	return 'PLAN' if $aligning && is_plan($token);
	my $all = join "\n", "B$token->{head}", @{ $token->{rows} };
	$all =~ s/\n/\x01/g;
	return $all;
}

sub cells
{
	return map { s/^\s+|\s+$//gr } split /\|/, $_[0], -1;
}

# Splits at commas outside of parentheses and quotes.
sub split_list
{
	my ($list) = @_;
	my ($depth, $quote, @parts) = (0, '', '');
	foreach my $c (split //, $list)
	{
		if ($quote) { $quote = '' if $c eq $quote }
		elsif ($c =~ /['"]/) { $quote = $c }
		elsif ($c =~ /[(\[]/) { $depth++ }
		elsif ($c =~ /[)\]]/) { $depth-- }
		elsif ($c eq ',' && $depth == 0) { push @parts, ''; next }
		$parts[-1] .= $c;
	}
	return @parts;
}

# The output columns by which a statement's last outer ORDER BY sorts.  Returns a reference
# to their numbers, or undef if there is no ORDER BY, and whether they are all its keys.
sub order_columns
{
	my ($statement, $header) = @_;
	$statement =~ s/--[^\n]*/ /g;
	my ($depth, $tail) = (0, undef);
	while ($statement =~ /([(\[])|([)\]])|(?<!\w)order\s+by\b/gi)
	{
		if (defined $1) { $depth++ }
		elsif (defined $2) { $depth-- }
		elsif ($depth == 0) { $tail = substr $statement, pos $statement }
	}
	return (undef, 0) unless defined $tail;
	$tail =~ s/\b(limit|offset|fetch|for\s+(update|share|no|key)|union|intersect|except|into)\b.*//is;
	$tail =~ s/\\gset//;
	$tail =~ s/[\s;]+$//;

	my @names = map { lc s/^"|"$//gr } cells($header);
	my @columns;
	foreach my $key (split_list($tail))
	{
		$key =~ s/^\s+|\s+$//g;
		$key =~ s/\s+nulls\s+(first|last)$//i;
		$key =~ s/\s+(asc|desc|using\s+\S+)$//i;
		$key =~ s/\s+collate\s+\S+$//i;
		my $column = -1;
		if ($key =~ /^\d+$/) { $column = $key - 1 }
		else
		{
			my $name = lc(($key =~ /([^.]*)$/)[0]);
			$name =~ s/^"|"$//g;
			my @same = grep { $names[$_] eq $name } 0 .. $#names;
			$column = $same[0] if @same == 1;
		}
		return (\@columns, 0) if $column < 0 || $column > $#names;
		push @columns, $column;
	}
	return (\@columns, 1);
}

# The class of one difference and the reason.
sub judge
{
	my ($test, $want, $got, $statement) = @_;
	if ($want->{head} && $got->{head})
	{
		my @heads = map { join ' ', split ' ', (split /\n/, $_->{head})[0] } $want, $got;
		return ('WRONG', 'other columns') if $heads[0] ne $heads[1];
		my ($columns, $all) = order_columns($statement, (split /\n/, $got->{head})[0]);
		my @whole = map { join "\n", sort map { join '|', cells($_) } @{ $_->{rows} } } $want, $got;
		my $same = $whole[0] eq $whole[1];

		if ($columns)
		{
			my @keys = map {
				join "\n", map { my @c = cells($_); join '|', map { $_ // '' } @c[@$columns] } @{ $_->{rows} }
			} $want, $got;
			return ('WRONG', 'the keys are in another order') if $keys[0] ne $keys[1];
			return ('TIE', 'rows with equal keys') if $all && $same;
		}
		return ('TIE', 'a statement that is listed') if is_listed($test, $statement);
		return ('WRONG', 'other rows') unless $same;
		return ('NOORDER', 'the same rows, unordered')
		  if !$columns && $statement !~ /order\s+by|^\s*(fetch|execute|move|close|declare)\b/i;
		return ('ORDER', 'the same rows, and the keys are not shown');
	}
	return ('TIE', 'a statement that is listed') if is_listed($test, $statement);
	return ('WRONG', '');
}

# Aligns two sequences of tokens by diff.  Returns the number of different tokens and the
# pairs of them, each with its statement.
sub differences
{
	my ($want, $got) = @_;
	foreach my $side ([ 'want', $want ], [ 'got', $got ])
	{
		open my $out, '>:raw', "$report_dir/$side->[0].tokens" or die "could not write in $report_dir: $!\n";
		print $out map { flat($_, 1) . "\n" } @{ $side->[1] };
		close $out;
	}
	my ($distance, @pairs) = (0);
	foreach (split /\n/, `LC_ALL=C diff -a '$report_dir/want.tokens' '$report_dir/got.tokens'`)
	{
		my ($w1, $w2, $kind, $g1, $g2) = /^(\d+)(?:,(\d+))?([acd])(\d+)(?:,(\d+))?$/ or next;
		my @w = $kind eq 'a' ? () : @$want[ $w1 - 1 .. ($w2 // $w1) - 1 ];
		my @g = $kind eq 'd' ? () : @$got[ $g1 - 1 .. ($g2 // $g1) - 1 ];
		$distance += @w + @g;
		if (@w == @g)
		{
			push @pairs, map { [ $w[$_], $g[$_], $g[$_]{statement} // statement_before($got, $g1 - 1 + $_) ] } 0 .. $#w;
		}
		else
		{
			my @texts = map { { text => join "\n", map { substr(flat($_), 1) =~ tr/\x01/\n/r } @$_ } } \@w, \@g;
			push @pairs, [ @texts, statement_before($got, $g1 - 1) ];
		}
	}
	unlink map { "$report_dir/$_.tokens" } 'want', 'got';
	return ($distance, @pairs);
}

sub show
{
	my ($class, $test, $why, $statement, $want, $got) = @_;
	my @sides = map { [ split /\n/, substr(flat($_), 1) =~ tr/\x01/\n/r ] } $want, $got;
	my $text = "## $class $test $why\n" . substr($statement, -1500) . "\n";
	foreach my $i (0, 1)
	{
		my @lines = @{ $sides[$i] };
		$text .= sprintf "%s, %d lines:\n", ('expected', 'got')[$i], scalar @lines;
		$text .= join '', map { ('-', '+')[$i] . " $_\n" } @lines[ 0 .. min(40, $#lines) ];
	}
	return "$text\n";
}

sub min
{
	return $_[0] < $_[1] ? $_[0] : $_[1];
}

# Classifies a test's differences from the nearest of its expected files.
sub judge_test
{
	my ($test, $file) = @_;
	my $got = parse($file);
	$total{GPUSORT} += grep { /Custom Scan \(GpuSort\)/ } map { $_->{rows} ? @{ $_->{rows} } : $_->{text} } @$got;

	my $exact = join "\n", map { flat($_) } @$got;
	my ($want, $nearest, @pairs);
	foreach my $candidate (glob "$expected_dir/$test.out $expected_dir/${test}_[0-9].out")
	{
		next unless -f $candidate;
		my $tokens = parse($candidate);
		return if $exact eq join "\n", map { flat($_) } @$tokens;
		my ($distance, @found) = differences($tokens, $got);
		($want, $nearest, @pairs) = ($tokens, $distance, @found) if !$want || $distance < $nearest;
	}

	my (%count, @reports);
	if (!$want)
	{
		$count{WRONG} = 1;
		@reports = "## WRONG $test: no expected file\n";
	}
	else
	{
		my %seen = map { $_ => 1 } map { flat($_) } grep { is_plan($_) } @$want;
		my $plans = grep { !$seen{$_} } map { flat($_) } grep { is_plan($_) } @$got;
		$count{PLAN} = $plans if $plans;
	}
	foreach my $pair (@pairs)
	{
		my ($w, $g, $statement) = @$pair;
		my ($class, $why) = judge($test, $w, $g, $statement);
		$count{$class}++;
		push @reports, show($class, $test, $why, $statement, $w, $g);
	}
	$total{$_} += $count{$_} foreach keys %count;
	$total{FAULTY}++ if $count{WRONG} || $count{ORDER};
	printf "  %-24s %s\n", $test, join ' ', map { "$_=$count{$_}" } sort keys %count;
	my @faults = grep { /^## (WRONG|ORDER)/ } @reports;
	print @faults[ 0 .. min(2, $#faults) ];
	if (@reports)
	{
		open my $out, '>:raw', "$report_dir/$suite.$test.txt" or die "could not write in $report_dir: $!\n";
		print $out @reports;
		close $out;
	}
}
