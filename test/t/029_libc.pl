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
use Encode qw(decode encode_utf8);
use FindBin;
use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = $ENV{SEED} // int(rand(1_000_000_000));
my $cases = $ENV{CASES} // 24;

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

# A number below n; an element of a list; true with a probability of p percent.
sub below { return int(rand($_[0])) }
sub pick { return $_[ below(scalar @_) ] }
sub chance { return rand(100) < $_[0] }

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

# ----------------------------------------------------------------
# Strings
# ----------------------------------------------------------------

# The alphabet of the locale that is tested: lists of strings.
my %of;

sub unit
{
	my $kind = below(20);
	return pick(@{ $of{letters} }) if $kind < 9 && @{ $of{letters} };
	return pick(@{ $of{plain} }) if $kind < 16;
	return pick(@{ $of{others} }) if $kind < 17 && @{ $of{others} };
	return pick(@{ $of{marks} }) if $kind < 18 && @{ $of{marks} };
	return pick(@{ $of{punctuation} });
}

sub units { return join '', map { unit() } 1 .. $_[0] }

# The same letters, but for cases, marks and punctuation.
sub varied
{
	my ($text) = @_;
	return join '', map {
		# other character sets lack the capitals of some letters
		my $has_cases = $of{encoding} eq 'UTF8' || ord() < 128;
		my $letter = $has_cases && chance(25) ? pick(grep { length == 1 } lc, uc, $_) : $_;
		chance(4) && @{ $of{marks} } ? $letter . pick(@{ $of{marks} })
		  : chance(3) ? pick(@{ $of{punctuation} }) . $letter : $letter
	} split //, $text;
}

# Returns a function that makes the strings of one column.
sub column_of
{
	my ($kind) = @_;
	if ($kind eq 'letters') { my $most = pick(4, 12, 40); return sub { units(below($most)) } }
	if ($kind eq 'words')
	{
		my $between = pick(' ', '-', ', ', '');
		return sub { join $between, map { chance(80) && @{ $of{words} } ? pick(@{ $of{words} }) : below(1000) } 0 .. below(4) }
	}
	if ($kind eq 'varied')
	{
		my @bases = map { units(1 + below(20)) } 0 .. below(20);
		return sub { varied(pick(@bases)) }
	}
	if ($kind eq 'late')
	{
		# accents and cases differ early, letters late
		my $base = units(5 + below(40));
		return sub { varied($base) . unit() . (chance(30) ? varied('tail') : '') }
	}
	if ($kind eq 'prefix')
	{
		my $prefix = units(1 + below(pick(20, 200)));
		return sub { (chance(90) ? $prefix : substr $prefix, 0, below(1 + length $prefix)) . units(below(8)) }
	}
	if ($kind eq 'signs')
	{
		# they weigh nothing before the last level, so that most words are equal
		my @signs = $of{encoding} eq 'UTF8' ? map { chr } 0x1F600, 0xFE0F, 0x2603, 0x1F44D : @punctuation;
		my @values = map { join '', map { chance(5) ? below(10) : pick(@signs) } 1 .. below(7) } 1 .. 20 + below(500);
		return sub { pick(@values) }
	}
	if ($kind eq 'few') { my @values = map { units(below(30)) } 0 .. below(8); return sub { pick(@values) } }
	if ($kind eq 'ascii')
	{
		my $form = below(4);
		return sub {
			return join '', map { sprintf '%08x', below(2**32) } 1 .. 4 if $form == 0;
			return below(100000) if $form == 1;
			return 'https://www.example.com/' . pick('a', 'B', 'item') . '/' . below(50) . '?q=' . pick(@{ $of{plain} }) if $form == 2;
			return sprintf '%04d-%02d-%02d %s', 1990 + below(40), 1 + below(12), 1 + below(28), pick('open', 'Open', 'closed');
		}
	}
	if ($kind eq 'any')
	{
		return sub { units(below(20)) } if $of{encoding} ne 'UTF8';
		return sub {
			join '', map { my $c = 1 + below(pick(0x7F, 0x7FF, 0xFFFE, 0x10FFFF)); chr($c >= 0xD800 && $c < 0xE000 ? 0x4E00 : $c) } 1 .. below(12)
		}
	}
	# long: up to 100 kB, compressed or not
	my $unit = units(1 + below(20)) || 'x';
	return sub {
		return units(below(20)) if !chance(3);
		my $characters = pick(3000, 10000, 50000);
		return substr($unit x $characters, 0, below($characters)) . units(below(3)) if chance(60);
		return units($characters / 5) . unit();
	}
}

my @kinds = ('letters', 'letters', 'words', 'varied', 'varied', 'late', 'prefix', 'signs', 'few', 'ascii', 'any', 'long');
my @types = ('text', 'text', 'text', 'varchar', 'char(40)', 'bpchar', 'name', 'word', 'citext');
my @collations = ('', '', 'loc', 'loc', 'loc', 'mixed', 'other', 'C', 'numbers');

# ----------------------------------------------------------------
# Tables and queries
# ----------------------------------------------------------------

# A value in COPY's format.
sub copied
{
	my ($value, $type) = @_;
	return '\N' if !defined $value;
	# the server's limit for values of char(40) is an error, that of name is not
	$value = substr $value, 0, 40 if $type eq 'char(40)';
	return $value =~ s/([\\\t\n\r])/'\\' . { "\\" => '\\', "\t" => 't', "\n" => 'n', "\r" => 'r' }->{$1}/ger;
}

# Makes a random table: the script that fills it, its columns, and what it is, in words.
sub make_table
{
	my $rows = pick(0, 1, 2, 10, 300, (1000) x 6, 5000, 5000);
	my $times = $rows >= 300 && chance(10) ? 20 : 1;
	my (@columns, @types_of, @makers, @nulls, $storage);
	$storage = '';
	foreach my $i (1 .. 2 + below(3))
	{
		# where the character set lacks a small letter, core's lower() returns garbage
		my ($kind, $type) = (pick(@kinds), pick(grep { $_ ne 'citext' || $of{encoding} eq 'UTF8' } @types));
		push @columns, "c$i";
		push @types_of, $type;
		push @makers, column_of($kind);
		push @nulls, pick(0, 0, 3, 50);
		$storage .= " ALTER TABLE t ALTER c$i SET STORAGE EXTERNAL;" if $kind eq 'long' && $type ne 'name' && chance(40);
		$of{about} .= " c$i $type: $kind;";
	}
	my $definition = join ', ', map { "$columns[$_] $types_of[$_]" } 0 .. $#columns;
	my $script = "DROP TABLE IF EXISTS t; CREATE TABLE t (id int, n int, $definition);$storage\nCOPY t FROM stdin;\n";
	foreach my $id (1 .. $rows)
	{
		$script .= join("\t", $id, below(4), map { copied(chance($nulls[$_]) ? undef : $makers[$_]->(), $types_of[$_]) } 0 .. $#columns) . "\n";
	}
	$script .= "\\.\n";
	if ($times > 1)
	{
		# the beginnings and the ends of rows in new pairs
		my $pairs = join ', ', map { $types_of[$_] eq 'text' ? "left(a.$columns[$_], i) || b.$columns[$_]" : "a.$columns[$_]" } 0 .. $#columns;
		$script .= "INSERT INTO t SELECT a.id + $rows * i, a.n, $pairs FROM t a, generate_series(1, $times) i, t b "
		  . "WHERE b.id = (a.id::bigint * i * 7919) % $rows + 1 AND octet_length(concat(a.*)) < 2000;\n";
	}
	if (chance(20))
	{
		$script .= "CREATE TABLE u (LIKE t INCLUDING STORAGE); INSERT INTO u SELECT * FROM t ORDER BY c1"
		  . pick('', ' DESC') . ', id; DROP TABLE t; ALTER TABLE u RENAME TO t;';
	}
	$script .= "ANALYZE t;\n";
	return ($script, { rows => $rows * $times, columns => \@columns });
}

# A random query on t for compare() of random.sql.
sub make_query
{
	my ($table) = @_;
	my (@select, @order, @names);
	my $strings = 1 + below(2);
	my @keys = ((map { 'string' } 1 .. $strings), (chance(30) ? 'number' : ()));
	@keys = reverse @keys if chance(40);
	foreach my $i (1 .. @keys)
	{
		my $value = 't.n';
		if ($keys[ $i - 1 ] eq 'string')
		{
			my $collation = pick(@collations);
			$value = 't.' . pick(@{ $table->{columns} }) . ($collation ? " COLLATE \"$collation\"" : '');
		}
		push @select, "$value AS k$i";
		push @names, "k$i";
		push @order, "k$i" . pick('', '', ' ASC', ' DESC', ' DESC') . pick('', '', ' NULLS FIRST', ' NULLS LAST');
	}
	my %case = (how => 'table', rows => 1, names => \@names, steps => [],
		sql => 'SELECT ' . join(', ', @select) . pick('', ', t.id', ', t.*') . ' FROM t ORDER BY ' . join(', ', @order));
	my $kind = pick('plain', 'plain', 'plain', 'limit', 'ties', 'cursor', 'prepared', 'lateral');
	if ($kind eq 'limit')
	{
		$case{sql} .= ' LIMIT ' . pick(10, 150, 500, 3000) . pick('', ' OFFSET 7');
		$case{rows} = 0;
	}
	$case{sql} .= ' FETCH FIRST ' . pick(1, 10, 150, 500) . ' ROWS WITH TIES' if $kind eq 'ties';
	@case{ 'how', 'rows', 'steps' } = ('SCROLL CURSOR', 0, [ 'FETCH 20', 'MOVE BACKWARD 7', 'FETCH 200', 'FETCH LAST', 'FETCH BACKWARD 50' ])
	  if $kind eq 'cursor';
	$case{how} = 'prepared' if $kind eq 'prepared';
	if ($kind eq 'lateral')
	{
		# the rows change, so that they are sorted again
		$case{sql} =~ s/ FROM t / FROM t WHERE t.id % 5 <> o.i /;
		$case{sql} = "SELECT o.i, s.* FROM generate_series(1, 3) o(i), LATERAL ($case{sql} OFFSET 0) s";
		unshift @{ $case{names} }, 'i';
	}
	return \%case;
}

sub quote_list { return 'ARRAY[' . join(', ', map { "\$q\$$_\$q\$" } @_) . ']::text[]' }

# ----------------------------------------------------------------
# The server
# ----------------------------------------------------------------

note("SEED=$seed CASES=$cases");
# the system has C.UTF-8
my @second = ('en_US.UTF-8', 'cs_CZ.UTF-8');
$ENV{LOCPATH} = locales_in_build(@second, grep { !/^C\./ } @locales);
my $node = new_node('libc', init => [ extra => [ '-E', 'UTF8', '--locale=C.UTF-8' ] ], settings => <<'CONF');
shared_preload_libraries = 'gpusort'
autovacuum = off
client_min_messages = warning
CONF
$node->start;
my $limit = $node->safe_psql('postgres', "SELECT min_val FROM pg_settings WHERE name = 'gpusort.memory_limit'");
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
my $schema = slurp_file("$FindBin::Bin/random.sql") . <<'SQL';
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
	%of = (encoding => $encoding, about => '', letters => [ encodable($encoding, @$letters) ], words => [ encodable($encoding, @$words) ],
		plain => \@plain, punctuation => \@punctuation, marks => [ encodable($encoding, @marks) ], others => [ encodable($encoding, @others) ]);

	my $database = 'db' . $number++;
	my $other = $encoding eq 'UTF8' ? pick(@second) : $locale;
	my $script = PostgreSQL::Test::Utils::tempdir() . "/$database.sql";
	$node->safe_psql('postgres', "CREATE DATABASE $database TEMPLATE template0 ENCODING '$encoding' LOCALE '$locale'");
	append_to_file($script, encode_utf8("SET client_encoding = 'UTF8';\n$schema" . ($has_citext ? 'CREATE EXTENSION citext;' : '') . <<"SQL"));
CREATE COLLATION loc (provider = libc, locale = '$locale');
CREATE COLLATION mixed (provider = libc, lc_collate = '$locale', lc_ctype = 'C');
CREATE COLLATION other (provider = libc, locale = '$other');
$icu_collation
SQL
	my (%sql, $table);
	foreach my $i (1 .. $cases)
	{
		if ($i % 6 == 1)
		{
			my $fill;
			$of{about} = '';
			($fill, $table) = make_table();
			append_to_file($script, encode_utf8($fill));
		}
		my $case = make_query($table);
		my @both = ('max_parallel_workers_per_gather', pick(0, 2), 'work_mem', pick('64kB', '4MB', '64MB'));
		my @on = ('gpusort.enabled', 'on', 'gpusort.force', 'on', 'gpusort.min_rows', 0);
		push @on, 'gpusort.memory_limit', $limit if chance(40);
		$sql{$i} = "$table->{rows} rows;$of{about}\n-- @both @on\n-- $case->{how} @{ $case->{steps} }\n$case->{sql}";
		append_to_file($script, "CALL compare($i, \$q\$$case->{sql}\$q\$, \$q\$$case->{sql}\$q\$, '$case->{how}', "
			. quote_list(@{ $case->{steps} }) . ', ' . quote_list(@{ $case->{names} }) . ', ' . ($case->{rows} ? 'true' : 'false') . ', '
			. join(', ', map { quote_list(@$_) } \@both, [ 'gpusort.enabled', 'off' ], \@on) . ");\nCALL show($i);\n");
	}
	my ($rc, $ignored, $stderr) = $node->psql($database, "\\i $script", on_error_stop => 0);
	unlink $script;
	$node->poll_query_until($database, undef, '');
	my %verdicts = map { my ($i, @v) = split /\|/; $i => \@v } split /\n/,
	  $node->safe_psql($database, 'SELECT case_no, nodes, verdict FROM verdict');
	my @bad = grep { !$verdicts{$_} || $verdicts{$_}[1] ne 'same' } 1 .. $cases;
	ok(!@bad && $stderr !~ /ERROR|WARNING|connection/, "$locale: $cases queries give the same answers");
	foreach my $i (grep { defined } @bad[ 0 .. 2 ])
	{
		diag("SEED=$seed CASES=$cases LOCALES=\"$locale\", the other collation is $other, case $i: "
			  . ($verdicts{$i} ? $verdicts{$i}[1] : 'an error') . "\n$sql{$i}\n"
			  . $node->safe_psql($database, "SET client_encoding = 'UTF8'; SELECT 'core: ' || core || E'\\ngpusort: ' || gpusort FROM shown WHERE no = $i"));
	}
	diag(substr($stderr, 0, 3000)) if $stderr =~ /ERROR|WARNING|connection/;
	$done += keys %verdicts;
	$used += grep { $_->[0] > 0 } values %verdicts;
	$node->safe_psql('postgres', "DROP DATABASE $database") if !@bad;
}
cmp_ok($used, '>=', 0.5 * $done, "$used of $done plans had a GpuSort");
$node->stop;

done_testing();
