#!/usr/bin/perl
#
# layers.pl - checks that no include and no call points upward.
#
# src/ is a house of floors (docs/design.md has the picture).  A file may use
# files of its own folder and of folders on lower floors.  A folder that stands
# beside another one on the same floor may not use it, unless %beside says so.
# Within a folder, files must not call each other in a circle.
#
# Includes are read from the sources; calls are read from the objects with nm,
# so build first.  Prints "N passed, M failed" at the end.
#
#   test/layers.pl [TREE]
use strict;
use warnings;

my %floor = (
	'face' => 8,        # src/gpusort.c
	'plan' => 7, 'service' => 7,
	'node' => 6, 'aggregate' => 6, 'index' => 6,
	'sort' => 5, 'functions' => 5,
	'store' => 4, 'run' => 4, 'scan' => 4,
	'cpu' => 3, 'gpu' => 3,
	'key' => 2, 'base' => 2,
	'kernels' => 1,
	'common' => 0,      # src/guc.*, src/compat.h: for everybody
);

# guc.h takes the table of algorithms from kernels/, which has no PostgreSQL in it; a GpuSort Aggregate reads the words of a GpuSort below
my %beside = ('common' => { 'kernels' => 1 }, 'aggregate' => { 'node' => 1 });

my $tree = $ARGV[0] // '.';
chdir $tree or die "$tree: $!";

sub folder
{
	my ($file) = @_;
	return $1 if $file =~ m{^src/(\w+)/};
	return 'kernels' if $file =~ m{^kernels/};
	return $file =~ m{^src/(guc|compat)\.} ? 'common' : 'face';
}

my @sources = grep { -f } glob('src/*.[ch] src/*/*.[ch] src/*/*.cc kernels/*.c kernels/*.cu kernels/*.cuh kernels/*.h');
my %is_source = map { $_ => 1 } @sources;
my ($passed, $failed) = (0, 0);

# Is the use of a file of another folder allowed?
sub check_use
{
	my ($from, $to, $how) = @_;
	my ($above, $below) = (folder($from), folder($to));

	return if $above eq $below;
	if ($floor{$above} > $floor{$below} || $beside{$above}{$below})
	{
		$passed++;
		return;
	}
	print "not ok: $from $how $to, which is not on a lower floor\n";
	$failed++;
}

# ---- includes ----

for my $file (@sources)
{
	open my $in, '<', $file or die "$file: $!";
	while (<$in>)
	{
		next unless /^#include "([^"]+)"/;
		my $name = $1;
		my $dir = $file =~ s{/[^/]*$}{}r;
		my ($to) = grep { $is_source{$_} } ("$dir/$name", "src/$name", "kernels/$name");
		check_use($file, $to, 'includes') if defined $to;
	}
	close $in;
}

# ---- calls ----

my (%defined_in, %wanted);
for my $file (grep { /\.(c|cc|cu)$/ } @sources)
{
	my $object = $file =~ s/\.\w+$/.o/r;
	next unless -f $object;
	for (`nm -P $object`)
	{
		my ($name, $type) = split;
		next unless $name =~ /gpusort/;
		$defined_in{$name} = $file if $type =~ /^[TDBRC]$/;
		$wanted{$file}{$name} = 1 if $type eq 'U';
	}
}
my %calls;              # file => { file of the same folder => 1 }
for my $file (sort keys %wanted)
{
	for my $name (sort keys %{ $wanted{$file} })
	{
		my $to = $defined_in{$name} // next;
		check_use($file, $to, "calls $name of");
		$calls{$file}{$to} = 1 if folder($file) eq folder($to);
	}
}

# ---- circles within a folder ----

my %done;
sub visit
{
	my ($file, @path) = @_;

	return if $done{$file};
	if (grep { $_ eq $file } @path)
	{
		print "not ok: a circle: ", join(' -> ', @path, $file), "\n";
		$failed++;
		return;
	}
	visit($_, @path, $file) for sort keys %{ $calls{$file} // {} };
	$done{$file} = 1;
	$passed++;
}
visit($_) for sort keys %calls;

print "$passed passed, $failed failed\n";
exit($failed > 0);
