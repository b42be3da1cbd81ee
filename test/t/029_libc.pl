# Text under the C library's locales is sorted in core's order.
#
# The test makes locales of its own (test/locales.sh), and for each a database whose
# default collation it is.  The strings of its tables are made of the letters that the
# locale's source gives rules for, contractions among them, of its names of days and
# months, and of letters, combining marks, punctuation and blanks that all locales have.
# Some differ in case or accents only, some have a common prefix, some are very long,
# compressed or stored out of line.  The server sorts them as text and other types, under
# the default and other collations, in memory and with temporary files, with gpusort.enabled
# off and with gpusort.force on.  Both answers must have the same keys in sequence and
# the same rows (random.sql).
#
#   SEED=n           repeats the cases of an earlier run; printed at the start and
#                    when a case fails
#   LOCALES="a b"    these locales, named as in test/locales.sh; with all, every
#                    locale whose character set a server can have.  Of locales
#                    with the same rules for sorting only one is tested
#   CASES=n          queries for each locale, 24 by default
#   SETTINGS="a=1"   more settings for the server

use strict;
use warnings;

use Digest::MD5;
use Encode qw(decode);
use FindBin;
use GpusortTest;
use RandomTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($seed) = begin_cases(24);

# The servers' names of the character sets that locales have.
my %encodings = (
	'UTF-8' => 'UTF8', 'ISO-8859-1' => 'LATIN1', 'ISO-8859-2' => 'LATIN2', 'ISO-8859-3' => 'LATIN3',
	'ISO-8859-5' => 'ISO_8859_5', 'ISO-8859-6' => 'ISO_8859_6', 'ISO-8859-7' => 'ISO_8859_7', 'ISO-8859-8' => 'ISO_8859_8',
	'ISO-8859-9' => 'LATIN5', 'ISO-8859-10' => 'LATIN6', 'ISO-8859-13' => 'LATIN7', 'ISO-8859-14' => 'LATIN8',
	'ISO-8859-15' => 'LATIN9', CP1251 => 'WIN1251', CP1255 => 'WIN1255', 'EUC-JP' => 'EUC_JP', 'EUC-KR' => 'EUC_KR',
	'EUC-TW' => 'EUC_TW', GB2312 => 'EUC_CN', 'KOI8-R' => 'KOI8R', 'KOI8-U' => 'KOI8U');

# Locales with contractions (ch, aa, dz, cs, Thai vowels), with accents that count from
# the end (fr_CA), capitals first (da_DK), dotless i, digits behind letters (cs_CZ) and
# kanji, one of another character set, and one that sorts by code point.
my $locales = $ENV{LOCALES} // 'cs_CZ.UTF-8 da_DK.UTF-8 en_US.UTF-8 es_ES.UTF-8 fr_CA.UTF-8 hr_HR.UTF-8 hu_HU.UTF-8 '
  . 'ja_JP.UTF-8 th_TH.UTF-8 tr_TR.UTF-8 de_DE.ISO-8859-1 C.UTF-8';
$locales = `bash "$FindBin::Bin/../locales.sh" --list` if $locales eq 'all';

sub parts_of
{
	my ($language, $charmap, $modifier) = $_[0] =~ /^([^.]+)\.([^@]+)(@.*)?$/ or die "$_[0] is not the name of a locale";
	return ("$language" . ($modifier // ''), $charmap);
}

# The folder that test/locales.sh makes of a locale.
sub folder_of
{
	my ($language, $charmap, $modifier) = $_[0] =~ /^([^.]+)\.([^@]+)(@.*)?$/;
	return "$language." . lc($charmap =~ s/\W//gr) . ($modifier // '');
}

my @locales = grep { $encodings{ (parts_of($_))[1] } } split ' ', $locales;

# ----------------------------------------------------------------
# A locale's letters and words, from its source
# ----------------------------------------------------------------

sub decoded
{
	my ($text) = @_;
	$text =~ s/<U([0-9A-F]+)>/chr hex $1/ge;
	$text =~ s/<[^>]*>|\/$//g;
	return $text;
}

# The lines of a section of a locale's source, and of the locales that it copies.
sub section_of
{
	my ($name, $section) = @_;
	my $file = "/usr/share/i18n/locales/$name";
	return if $name =~ /^iso14651/ || !-f $file;
	my $source = decode('UTF-8', slurp_file($file));
	my ($lines) = $source =~ /^$section\n(.*?)^END $section/ms or return;
	return map { /^copy\s+"(.*)"/ ? section_of($1, $section) : $_ } grep { !/^%/ } split /\n/, $lines;
}

# Returns two lists: letters and contractions that have rules, and words.
sub alphabet_of
{
	my ($locale) = @_;
	my ($name) = parts_of($locale);
	my (%letters, %words);
	foreach (section_of($name, 'LC_COLLATE'))
	{
		$letters{ decoded($1) } = 1 if /^collating-element\s+\S+\s+from\s+"(.*)"/ || /^(<U[0-9A-F]+>)/;
	}
	foreach (section_of($name, 'LC_TIME'))
	{
		$words{ decoded($1) } = 1 while /"([^"%]+)"/g;
	}
	return ([ sort grep { $_ ne "\0" } keys %letters ], [ sort keys %words ]);
}

# The strings that every locale gets.  Some are ignored when strings are compared.
my @plain = ('a' .. 'z', 'A' .. 'Z', 'a', 'e', 'o', 'c', 'h', 's', 'z', 'l', 'd', 'n', 'g', 'y', 0 .. 9);
my @punctuation = (' ', ' ', '  ', '-', '_', '.', ',', ';', ':', '/', "'", '"', '(', ')', '&', '%', '\\', "\t", "\n", "\x01", "\x7f", '$', '~', '^');
my @marks = map { chr } 0x300, 0x301, 0x308, 0x30C, 0x327, 0x323, 0x345, 0x200D, 0x200B, 0xAD, 0xFEFF;
my @others = map { chr } 0xE9, 0xC9, 0xE8, 0xE4, 0xC4, 0xDF, 0xE6, 0xC6, 0xF8, 0xE5, 0xE7, 0xF1, 0x153, 0x131, 0x130, 0x17F,
  0x1C4, 0x1C6, 0xFB01, 0xA0, 0x2019, 0x2013, 0x3B1, 0x3C3, 0x3A9, 0x431, 0x451, 0x411, 0x5D0, 0x627, 0x905, 0x915, 0x94D,
  0xE40, 0xE01, 0x30A2, 0x3042, 0x30FC, 0x6F22, 0x4E00, 0xD55C, 0x1100, 0x378, 0xE000, 0xFFFD, 0x1F600, 0x1D49C, 0x20000, 0x10FFFD;

# The alphabet of the locale that is tested
my %of;
my @types = ('text', 'text', 'text', 'varchar', 'char(40)', 'bpchar', 'name', 'word', 'citext');
my @collations = ('loc', 'loc', 'loc', 'mixed', 'other', 'C', 'numbers');

# ----------------------------------------------------------------
# The server
# ----------------------------------------------------------------

# the system has C.UTF-8
my @second = ('en_US.UTF-8', 'cs_CZ.UTF-8');
$ENV{LOCPATH} = locales_in_build(@second, grep { !/^C\./ } @locales);
my $node = new_node('libc', settings => <<'CONF');
shared_preload_libraries = 'gpusort'
autovacuum = off
client_min_messages = warning
CONF
$node->start;
my $has_citext = $node->safe_psql('postgres', "SELECT count(*) FROM pg_available_extensions WHERE name = 'citext'");
@types = grep { $_ ne 'citext' } @types if !$has_citext;
my $icu_collation = has_icu($node) ? "CREATE COLLATION numbers (provider = icu, locale = 'en-u-kn-true');" : '';
@collations = grep { $_ ne 'numbers' } @collations if !$icu_collation;
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION encodable(letter text, encoding name) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	RETURN convert_to(letter, encoding) IS NOT NULL;
EXCEPTION WHEN OTHERS THEN
	RETURN false;
END $$;
SQL

# Those strings of a list that an encoding has, by the server's own conversion.
sub encodable
{
	my ($encoding, @strings) = @_;
	return @strings if $encoding eq 'UTF8' || !@strings;
	my $list = join ', ', map { "'" . join('', map { sprintf '%08x', ord } split //, $_) . "'" } @strings;
	my $positions = $node->safe_psql('postgres', <<"SQL");
SELECT string_agg((place - 1)::text, ' ') FROM unnest(ARRAY[$list]) WITH ORDINALITY AS s(codes, place)
WHERE encodable((SELECT string_agg(chr(('x' || substr(codes, i, 8))::bit(32)::int), '' ORDER BY i)
	FROM generate_series(1, length(codes), 8) i), '$encoding')
SQL
	return @strings[ split ' ', $positions ];
}

# Keys of both answers in the first row that differs, for the message.
my $schema = random_schema() . <<'SQL';
CREATE DOMAIN word AS text;
CREATE TABLE shown (no int, core text, gpusort text);
CREATE PROCEDURE show(no int) LANGUAGE plpgsql AS $$
DECLARE
	place int := (SELECT substring(verdict FROM 'other keys in row (\d+)')::int - 1 FROM verdict WHERE case_no = no);
BEGIN
	IF place IS NOT NULL THEN
		INSERT INTO shown SELECT no, (SELECT left(x::text, 500) FROM r_1 x OFFSET place LIMIT 1),
			(SELECT left(x::text, 500) FROM r_2 x OFFSET place LIMIT 1);
	END IF;
END $$;
SQL

my %seen;
my ($used, $done, $number) = (0, 0, 0);
foreach my $locale (@locales)
{
	my ($name, $charmap) = parts_of($locale);
	my $encoding = $encodings{$charmap};
	if ($locale !~ /^C\./)
	{
		my $rules = Digest::MD5::md5_hex(slurp_file("$ENV{LOCPATH}/" . folder_of($locale) . "/LC_COLLATE"));
		next if $seen{"$rules $charmap"}++;
	}
	srand(unpack 'L', Digest::MD5::md5("$seed $locale"));
	my ($letters, $words) = alphabet_of($locale);
	%of = (encoding => $encoding, letters => [ encodable($encoding, @$letters) ], words => [ encodable($encoding, @$words) ],
		plain => \@plain, punctuation => \@punctuation, marks => [ encodable($encoding, @marks) ], others => [ encodable($encoding, @others) ]);

	my $database = 'db' . $number++;
	my $other = $encoding eq 'UTF8' ? pick(@second) : $locale;
	$node->safe_psql('postgres', "CREATE DATABASE $database TEMPLATE template0 ENCODING '$encoding' LOCALE '$locale'");
	my $script = "SET client_encoding = 'UTF8';\n$schema" . ($has_citext ? 'CREATE EXTENSION citext;' : '') . <<"SQL";
CREATE COLLATION loc (provider = libc, locale = '$locale');
CREATE COLLATION mixed (provider = libc, lc_collate = '$locale', lc_ctype = 'C');
CREATE COLLATION other (provider = libc, locale = '$other');
$icu_collation
SQL
	my $detail = sub {
		my ($i) = @_;
		return $node->safe_psql($database, "SET client_encoding = 'UTF8'; SELECT 'core: ' || core || E'\\ngpusort: ' || gpusort FROM shown WHERE no = $i");
	};
	my ($ended, $with_node, $bad) = random_strings($node, $database, "LOCALES=\"$locale\", the other collation is $other", [ \%of ], script => $script, per_table => 6, detail => $detail, after_case => sub { "CALL show($_[0]);\n" },
		# where the character set lacks a small letter, core's lower() returns garbage
		types => [ grep { $_ ne 'citext' || $encoding eq 'UTF8' } @types ], collations => \@collations);
	$done += $ended;
	$used += $with_node;
	$node->safe_psql('postgres', "DROP DATABASE $database") if !$bad;
}
cmp_ok($used, '>=', 0.5 * $done, "$used of $done plans had a GpuSort");
$node->stop;

done_testing();
