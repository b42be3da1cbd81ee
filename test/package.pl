#!/usr/bin/perl
#
# package.pl - checks META.json, debian/control and the links of the documentation, and
# that every file names the same version.
#
# META.json must obey PGXN's specification 1.0.0, as PGXN rejects the upload
# otherwise.  The version is the one of gpusort.control.  Nothing in Debian's main may
# need the package with CUDA, which is in contrib.  Prints "N passed, M failed" at the end.
#
#   test/package.pl [TREE]
use strict;
use warnings;

use JSON::PP ();

my $tree = $ARGV[0] // '.';
chdir $tree or die "$tree: $!";

my ($passed, $failed) = (0, 0);

sub ok
{
	my ($good, $what) = @_;
	$good ? $passed++ : $failed++;
	print "not ok: $what\n" if !$good;
	return $good;
}

sub same
{
	my ($found, $expected, $what) = @_;
	return ok(defined $found && $found eq $expected, "$what: " . ($found // 'nothing') . ", not $expected");
}

sub content
{
	my ($file) = @_;
	open my $handle, '<:raw', $file or die "$file: $!";
	local $/;
	return scalar <$handle>;
}

# The string that a pattern captures in a file
sub found_in
{
	my ($file, $pattern) = @_;
	return content($file) =~ $pattern ? $1 : undef;
}

# ---- the version ----

my $version = found_in('gpusort.control', qr/^default_version = '(.+)'$/m) // die 'gpusort.control has no default_version';
my $meta = JSON::PP->new->utf8->decode(content('META.json'));
my $provided = $meta->{provides}{gpusort} // {};

same($meta->{version}, $version, 'META.json: version');
same($provided->{version}, $version, 'META.json: version of provides');
same($provided->{file}, "sql/gpusort--$version.sql", 'META.json: file of provides');
ok(-f "sql/gpusort--$version.sql", "sql/gpusort--$version.sql is missing");
same(found_in('CHANGELOG.md', qr/\A## (\S+)/), $version, 'CHANGELOG.md: first heading');
same(found_in('debian/changelog', qr/\Agpusort \((.+)-[^-]+\)/), $version, 'debian/changelog: first entry') if -f 'debian/changelog';
same(found_in('.rpm/gpusort.spec', qr/^Version: +(\S+)$/m), $version, '.rpm/gpusort.spec: version') if -d '.rpm';

# ---- META.json ----

# A semantic version has three numbers.  Requirements may be ranges: ">= 15.0.0, < 20.0.0".
my $semver = qr/(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)(?:-?[A-Za-z][-A-Za-z0-9]*)?/;
my $range = qr/(?:(?:<|<=|>|>=|==|!=) *)?(?:0|$semver)/;
my $term = qr{[^\s/\\[:cntrl:]]{2,}};
my $text = sub { !ref $_[0] && length $_[0] };
my $texts = sub { my @texts = ref $_[0] eq 'ARRAY' ? @{ $_[0] } : $_[0]; @texts && !grep { !$text->($_) } @texts };
my $map = sub { ref $_[0] eq 'HASH' && %{ $_[0] } };
my $matches = sub { my ($pattern) = @_; return sub { $text->($_[0]) && $_[0] =~ /^(?:$pattern)$/ } };

my %required = (
	'name' => $matches->($term),
	'version' => $matches->($semver),
	'abstract' => $text,
	'maintainer' => $texts,
	'license' => sub { ref $_[0] eq 'HASH' ? $map->($_[0]) : $texts->($_[0]) },
	'provides' => $map,
	'meta-spec' => sub { $map->($_[0]) && ($_[0]{version} // '') eq '1.0.0' },
);
my %optional = (
	'description' => $text,
	'generated_by' => $text,
	'tags' => sub { $texts->($_[0]) && !grep { length > 255 } @{ $_[0] } },
	'no_index' => $map,
	'prereqs' => $map,
	'release_status' => $matches->('stable|testing|unstable'),
	'resources' => $map,
);
# the licenses that may stand as a word, of which this one is true
same($meta->{license}, 'postgresql', 'META.json: license');

ok(exists $meta->{$_}, "META.json: $_ is missing") for sort keys %required;
for my $key (sort keys %$meta)
{
	my $check = $required{$key} // $optional{$key} // ($key =~ /^x_/i ? sub { 1 } : sub { 0 });
	ok($check->($meta->{$key}), "META.json: $key is unknown or has a wrong value");
}

for my $extension (sort keys %{ $meta->{provides} })
{
	my $is = $meta->{provides}{$extension};
	ok($extension =~ /^$term$/, "META.json: name $extension of provides");
	ok(($is->{version} // '') =~ /^$semver$/, "META.json: version of $extension");
	ok(defined $is->{$_} && -f $is->{$_}, "META.json: $_ of $extension is missing") for 'file', 'docfile';
	ok(!grep({ !/^(?:file|version|abstract|docfile)$/ } keys %$is), "META.json: unknown key in $extension");
}

for my $phase (sort keys %{ $meta->{prereqs} // {} })
{
	ok($phase =~ /^(?:configure|build|test|runtime|develop)$/, "META.json: phase $phase of prereqs");
	for my $relation (sort keys %{ $meta->{prereqs}{$phase} })
	{
		ok($relation =~ /^(?:requires|recommends|suggests|conflicts)$/, "META.json: relation $relation of prereqs");
		my $wanted = $meta->{prereqs}{$phase}{$relation};
		ok($wanted->{$_} =~ /^$range(?: *, *$range)*$/, "META.json: version $wanted->{$_} of $_") for sort keys %$wanted;
	}
}

# ---- debian/ ----

# The paragraphs of a control file, each as a hash of its fields
sub paragraphs
{
	my ($file) = @_;
	my @paragraphs;
	for my $paragraph (split /\n{2,}/, content($file))
	{
		my %fields = $paragraph =~ /^(\S+?):[ \t]*(.*(?:\n[ \t].*)*)/mg;
		s/\s+/ /g, s/^ | ,?$//g, s/,$// for values %fields;
		push @paragraphs, \%fields;
	}
	return @paragraphs;
}

if (-d 'debian')
{
	my ($source, $cpu, $cuda, @more) = paragraphs('debian/control.in');
	my $name = 'postgresql-PGVERSION-gpusort';

	ok(!@more, 'debian/control.in: two packages for each version of PostgreSQL');
	same($cpu->{Package}, $name, 'debian/control.in: first package');
	same($cpu->{Section} // $source->{Section}, 'database', "$name: section");
	same($cpu->{Suggests}, "$name-cuda", "$name: Suggests");
	ok(!exists $cpu->{'Build-Profiles'}, "$name is always built");
	ok(($cpu->{Depends} . ($cpu->{Recommends} // '')) !~ /cuda/, "$name needs nothing of CUDA");

	same($cuda->{Package}, "$name-cuda", 'debian/control.in: second package');
	same($cuda->{Section}, 'contrib/database', "$name-cuda: section");
	same($cuda->{'Build-Profiles'}, '<pkg.gpusort.cuda>', "$name-cuda: Build-Profiles");
	same(join(', ', grep { /gpusort/ } split / *, */, $cuda->{Depends} // ''), "$name (= \${binary:Version})", "$name-cuda: Depends");
	same($cuda->{Suggests}, 'libcuda1', "$name-cuda: Suggests");
	ok(!grep({ /cuda|nvidia/ && !/ <pkg\.gpusort\.cuda>$/ } split / *, */, $source->{'Build-Depends'}),
		"debian/control.in: only the profile builds with CUDA's toolkit");
	ok(scalar(content('debian/rules') =~ /filter pkg\.gpusort\.cuda,/), 'debian/rules does not know the profile');

	# debian/control and debian/tests/control are control.in for one version
	my ($pgversion) = content('debian/control') =~ /^Package: postgresql-(\d+)-gpusort$/m;
	ok(content($_) eq content("$_.in") =~ s/PGVERSION/$pgversion/gr, "$_ is not what pg_buildext updatecontrol makes")
	  for 'debian/control', 'debian/tests/control';
}

# ---- links ----

# A Markdown file without blocks and spans of code
sub prose
{
	my ($file) = @_;
	return content($file) =~ s/^```.*?^```$//gmsr =~ s/`[^`\n]*`/x/gr;
}

# The anchors of a file's headings, as GitHub makes them
sub anchors
{
	my ($file) = @_;
	my %anchors;
	for my $heading (content($file) =~ s/^```.*?^```$//gmsr =~ /^#+ +(.*?) *$/mg)
	{
		my $anchor = lc($heading =~ s/\[([^]]*)\]\([^)]*\)/$1/gr) =~ s/[^\w\- ]//gr =~ tr/ /-/r;
		$anchors{ $anchors{$anchor} ? "$anchor-" . $anchors{$anchor}++ : $anchor }++;
	}
	return \%anchors;
}

for my $file (glob('*.md docs/*.md bench/*.md .github/*.md'))
{
	my ($folder) = $file =~ m{^(.*/)?};
	for my $link (prose($file) =~ /\]\(([^)\s]+)\)/g)
	{
		next if $link =~ /^\w+:/;
		my ($path, $anchor) = split /#/, $link, 2;
		my $target = length $path ? ($folder // '') . $path : $file;
		1 while $target =~ s{[^/]+/\.\./}{};
		# an archive lacks some files
		next if $target =~ /^(?:\.|debian)/ && !-e $target;
		ok(-e $target, "$file: $link leads to no file") or next;
		ok(anchors($target)->{$anchor}, "$file: $link leads to no heading") if defined $anchor && $target =~ /\.md$/;
	}
}

print "$passed passed, $failed failed\n";
exit($failed > 0);
