# citext, the case-insensitive text of PostgreSQL's contrib, is sorted in core's order.
#
# Random queries over random strings: letters of both cases, with accents, of alphabets
# whose small letters depend on the locale or on neighbours (I in Turkish and Lithuanian,
# the Greek sigma), with or without a common prefix, few or many, empty, NULL, and long
# ones that are compressed or stored out of line.  The columns are citext and a domain over
# it, under the default and other collations, alone and beside other types.  The queries
# have LIMIT, DISTINCT and aggregates, and sort in memory and with temporary files, in
# databases of several locales and encodings.  The server runs each query with
# gpusort.enabled = off, and with gpusort.force on, and both answers are compared as in
# 020_random.pl, whose procedures the test uses.
#
# Then the plans: what only looks like citext stays with core.
#
#   SEED=n           repeats the cases of an earlier run; printed when a case fails
#   CASES=n          queries for each database, 16 by default
#   SETTINGS="a=1"   more settings for the server

use strict;
use warnings;

use Encode qw(encode FB_CROAK);
use GpusortTest;
use RandomTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

begin_cases(16);

my @databases = (
	{ name => 'bytes', options => "ENCODING 'UTF8' LOCALE 'C.UTF-8'" },
	{ name => 'c', options => "ENCODING 'UTF8' LOCALE 'C'" },
	{ name => 'english', options => "ENCODING 'UTF8' LOCALE 'en_US.UTF-8'" },
	{ name => 'turkish', options => "ENCODING 'UTF8' LOCALE 'tr_TR.UTF-8'" },
	{ name => 'ctype', options => "ENCODING 'UTF8' LC_COLLATE 'en_US.UTF-8' LC_CTYPE 'tr_TR.UTF-8'" },
	{ name => 'icu', options => "ENCODING 'UTF8' LOCALE 'C.UTF-8' LOCALE_PROVIDER icu ICU_LOCALE 'en'" },
	{ name => 'lithuanian', options => "ENCODING 'UTF8' LOCALE 'C.UTF-8' LOCALE_PROVIDER icu ICU_LOCALE 'lt'" },
	{ name => 'latin1', options => "ENCODING 'LATIN1' LOCALE 'de_DE.ISO-8859-1'", charset => 'iso-8859-1' },
	{ name => 'latin1_icu', options => "ENCODING 'LATIN1' LOCALE 'C' LOCALE_PROVIDER icu ICU_LOCALE 'de'", charset => 'iso-8859-1' });

my $locales = locales_in_build('en_US.UTF-8', 'tr_TR.UTF-8', 'de_DE.ISO-8859-1');
my $node = new_node('citext', settings => <<'CONF');
session_preload_libraries = 'gpusort'
autovacuum = off
client_min_messages = warning
CONF
{
	local $ENV{LOCPATH} = $locales;
	$node->start;
}
if ($node->safe_psql('postgres', "SELECT count(*) FROM pg_available_extensions WHERE name = 'citext'") == 0)
{
	$node->stop;
	plan skip_all => "contrib's extension citext is not installed";
}

# ----------------------------------------------------------------
# Random queries
# ----------------------------------------------------------------

my @plain = ('a' .. 'z', 'A' .. 'Z', 'I', 'i', 'J', 0 .. 9, ' ', '-', '_', '.', "'", '@', '[', '~');
my @others = map { chr } 0xE9, 0xC9, 0xE4, 0xC4, 0xDF, 0xD1, 0xF1, 0xFF, 0xB5, 0x130, 0x131, 0x178, 0x1C4, 0x1C5, 0x3A3, 0x3C3, 0x3C2,
  0x391, 0x3B1, 0x416, 0x436, 0x1E9E, 0x2C62, 0x10400, 0x10428, 0x300, 0x307, 0x345, 0x4E00, 0x212A, 0x1F600;

# The alphabet of the database that is tested, and one without letters that need several bytes
my %letters = (plain => \@plain);
my %ascii = (plain => \@plain, encoding => 'UTF8');

my $schema = random_schema() . <<'SQL';
CREATE EXTENSION citext;
CREATE DOMAIN word AS citext CHECK (value IS NOT NULL OR value IS NULL);
CREATE COLLATION en (provider = icu, locale = 'en');
CREATE COLLATION numbers (provider = icu, locale = 'en-u-kn-true');
SQL
my %other = (latin1 => 'de_DE.ISO-8859-1', latin1_icu => 'C');
foreach my $database (@databases)
{
	my $name = $database->{name};
	@letters{ 'letters', 'encoding' } = ([ grep { my $letter = $_; !$database->{charset} || eval { encode($database->{charset}, $letter, FB_CROAK); 1 } } @others ],
		$database->{charset} // 'UTF8');
	$node->safe_psql('postgres', "CREATE DATABASE $name TEMPLATE template0 $database->{options}");
	my $script = "SET client_encoding = 'UTF8';\n$schema"
	  . "CREATE COLLATION other (provider = libc, locale = '" . ($other{$name} // 'en_US.UTF-8') . "');\n";
	random_strings($node, $name, $name, [ \%letters, \%letters, \%ascii ], script => $script, per_table => 8, least => 0.5, kinds => [ 'letters', 'few', 'varied', 'prefix', 'long', 'ascii' ], types => [ 'citext', 'citext', 'citext', 'word', 'text' ], collations => [ 'C', 'other', 'en', 'numbers' ],
		settings => { enable_hashagg => ['off'] });
}

# ----------------------------------------------------------------
# Plans
# ----------------------------------------------------------------

# one column sorted as citext and as text, which core's plans take from the same place
foreach my $query ('DISTINCT v, v::text FROM twice', 'v, v::text FROM twice GROUP BY 1, 2', 'v, v::text, count(DISTINCT n) FROM twice GROUP BY 1, 2',
	'v, v::text, percentile_disc(0.5) WITHIN GROUP (ORDER BY n), count(*) FROM twice GROUP BY 1, 2',
	'* FROM (SELECT v, v::text w, n, row_number() OVER (PARTITION BY v, v::text ORDER BY n) r FROM twice) s WHERE r <= 2',
	'* FROM (SELECT v, v::text w, n, rank() OVER (ORDER BY v, v::text) r FROM twice) s WHERE r <= 4')
{
	my @answers = map {
		$node->safe_psql('english', "CREATE TEMP TABLE twice AS SELECT (ARRAY['a', 'A', 'b', 'B'])[1 + i % 4]::citext AS v, i % 7 AS n FROM generate_series(1, 60) i; "
			. "SET enable_hashagg = off; SET gpusort.enabled = $_; SET gpusort.force = $_; SELECT md5(string_agg(s::text, ';' ORDER BY s::text)) FROM (SELECT $query) s") } 'off', 'on';
	is($answers[1], $answers[0], $query);
}

my $copy = PostgreSQL::Test::Utils::tempdir() . '/citext.so';
append_to_file($copy, slurp_file($node->safe_psql('postgres', "SELECT setting FROM pg_config() WHERE name = 'PKGLIBDIR'") . '/citext.so'));
$node->safe_psql('bytes', <<"SQL");
CREATE TABLE s AS SELECT (CASE i % 2 WHEN 0 THEN 'x' ELSE 'X' END || i)::citext AS v FROM generate_series(1, 100) i;
-- operator classes of the same names, whose functions have the same names or come from a copy of the library
CREATE FUNCTION make_class(schema text, compare text) RETURNS void LANGUAGE plpgsql AS \$\$
BEGIN
	EXECUTE format('CREATE SCHEMA %I', schema);
	EXECUTE format('CREATE FUNCTION %I.citext_cmp(citext, citext) RETURNS int IMMUTABLE STRICT %s', schema, compare);
	EXECUTE format('CREATE FUNCTION %I.citext_lt(citext, citext) RETURNS bool LANGUAGE sql IMMUTABLE AS ''SELECT %I.citext_cmp(\$1, \$2) < 0''', schema, schema);
	EXECUTE format('CREATE OPERATOR %I.< (FUNCTION = %I.citext_lt, LEFTARG = citext, RIGHTARG = citext)', schema, schema);
	EXECUTE format('CREATE OPERATOR CLASS %I.citext_ops FOR TYPE citext USING btree AS OPERATOR 1 %I.<, OPERATOR 3 public.=, FUNCTION 1 %I.citext_cmp(citext, citext)', schema, schema, schema);
END \$\$;
SELECT make_class('sql', 'LANGUAGE sql AS ''SELECT -public.citext_cmp(\$1, \$2)''');
SELECT make_class('copy', 'LANGUAGE c AS ''$copy'', ''citext_cmp''');
SELECT make_class('pattern', 'LANGUAGE c AS ''\$libdir/citext'', ''citext_pattern_cmp''');
SELECT make_class('same', 'LANGUAGE c AS ''\$libdir/citext'', ''citext_cmp''');
SQL

my %plans = (
	'v' => 1, 'v DESC' => 1, 'v COLLATE "C"' => 1, 'v::text' => 1,
	'v USING OPERATOR(same.<)' => 1,
	'v USING OPERATOR(sql.<)' => 0,
	'v USING OPERATOR(copy.<)' => 0,
	'v USING OPERATOR(pattern.<)' => 0,
	'v USING ~<~' => 0);
foreach my $order (sort keys %plans)
{
	my $query = "SELECT v FROM s ORDER BY $order";
	my $set = 'SET gpusort.force = on; SET gpusort.enabled =';
	my $plan = $node->safe_psql('bytes', "$set on; EXPLAIN (COSTS OFF) $query");
	is($plan =~ /GpuSort/ ? 1 : 0, $plans{$order}, "$order: sorted by " . ($plans{$order} ? 'GpuSort' : 'core')) or diag($plan);
	my $list = "SELECT string_agg(v::text, ' ') FROM ($query) x";
	is(lc $node->safe_psql('bytes', "$set on; $list"), lc $node->safe_psql('bytes', "$set off; $list"), "$order: core's order");
}

# The slower core's comparisons are, the fewer rows suffice for a GpuSort: the break-even is
# at 1,100 integers, 3,200 strings by their bytes, 330 by strcoll() and 45 of citext.
foreach my $case (
	[ 'i', 300, 700, 1600 ],
	[ q{('x' || i) COLLATE "C"}, 300, 2200, 4500 ],
	[ q{('x' || i)}, 120, 220, 500 ],
	[ q{('x' || i)}, 300, 2200, 4500, 'c' ],
	[ q{('x' || i) COLLATE other}, 120, 220, 500 ],
	[ q{('x' || i)::citext}, 20, 30, 70 ],
	[ q{('x' || i)::citext COLLATE "C"}, 20, 30, 70 ])
{
	# the columns of the smallest sort are not looked at
	my ($order, $fewest, $few, $many, $database) = @$case;
	foreach my $rows ($fewest, $few, $many)
	{
		my $plan = $node->safe_psql($database // 'bytes', "LOAD 'gpusort'; EXPLAIN (COSTS OFF) SELECT $order AS v FROM generate_series(1, $rows) i ORDER BY v");
		my $by = $plan =~ /GpuSort/ ? 'GpuSort' : 'core';
		is($by, $rows == $many ? 'GpuSort' : 'core', "$rows rows by $order" . ($database ? ' in another database' : ''));
	}
}
$node->stop;

done_testing();
