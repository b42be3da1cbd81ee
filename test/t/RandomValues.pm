# RandomValues.pm - random numbers, values and strings, for tables and queries (RandomQueries.pm)
# and for tests that make their own.
#
# A value is an SQL expression in terms of a row's number, i: value_of() makes it from
# a kind of %kinds, a number of distinct values, an order, and shares of special values
# and NULLs.  The server needs random.sql.  Strings for COPY are made here, of an
# alphabet: strings_of().

package RandomValues;

use strict;
use warnings;

use Exporter 'import';

our @EXPORT = qw(
  below pick chance directions
  %kinds @plain_kinds @keyed_kinds @string_kinds @group_kinds value_of
  strings_of copied
);

# A number below n; an element of a list; true with a probability of p percent.
sub below { return int(rand($_[0])) }
sub pick { return $_[ below(scalar @_) ] }
sub chance { return rand(100) < $_[0] }

# Adds random directions to the keys of an ORDER BY.
sub directions
{
	return map { $_ . pick('', '', ' ASC', ' DESC', ' DESC') . pick('', '', '', ' NULLS FIRST', ' NULLS LAST') } @_;
}

# ----------------------------------------------------------------
# Values
# ----------------------------------------------------------------

# For each kind of values: an expression for a value, an array of special values, and true
# if the type has collations.  In the expression, R stands for an integer in [0, D),
# D for its bound, and P for a prefix that all values of the column have in common.  The
# name of a kind is that of its type, and a word after a colon tells several kinds of one
# type apart.
our %kinds = (
	int2 => [ '((R) % 65536 - 32768)::int2', '{32767,-32768,0,-1}' ],
	int4 => [ '((R) - D / 2)::int4', '{2147483647,-2147483648,0,-1}' ],
	int8 => [ '((R) - D / 2) * 4294967291', '{9223372036854775807,9223372036854775806,-9223372036854775808,-9223372036854775807,0,-1}' ],
	oid => [ '(R)::oid', '{0,2147483648,4294967295}' ],
	bool => [ '(R) % 2 = 0', '{t,f}' ],
	float4 => [ '(((R) - D / 2) / 7.0)::float4', '{NaN,Infinity,-Infinity,0,-0,1e-45,-1e-45,3.4e38,-3.4e38}' ],
	float8 => [ '(((R) - D / 2) / 7.0)::float8', '{NaN,Infinity,-Infinity,0,-0,5e-324,-5e-324,1.7e308,-1.7e308}' ],
	numeric => [ '((R) - D / 2)::numeric / (10::numeric ^ ((R) % 9)) * (1 + 1e25 * ((R) % 3))',
		'{NaN,Infinity,-Infinity,0,0.00,1,1.0,1.000,-1,1e100,1e-100,-1e-100,12345678901234567890.123456789,'
		  . '12345678901234567890.12345679,9999,10000,10001,0.0001,99999999}' ],
	text => [ "CASE (R) % 4 WHEN 0 THEN md5((R)::text) WHEN 1 THEN 'more than sixteen bytes that are the same ' || (R) "
		  . "WHEN 2 THEN translate((R)::text, '0123456789', 'aAáÁbBzZ- ') ELSE (R)::text END",
		"{\"\",\" \",a,A,aa,\"a \",\x01,ä,ß,ss,\xF0\x9F\x98\x80,z}", 1 ],
	# values that are longer than what a page stores in line, some of them compressed
	'text: long' => [ "CASE (R) % 8 WHEN 0 THEN repeat(md5((R)::text), 90) ELSE (R)::text END", '{"",1,a}', 1 ],
	'text: differs late' => [ "CASE (R) % 8 WHEN 0 THEN repeat('a', 2500) || (R) ELSE repeat('a', ((R) % 40)::int) END", '{"",a,aaa}', 1 ],
	'bytea: long' => [ "CASE (R) % 8 WHEN 0 THEN convert_to(repeat(md5((R)::text), 90), 'UTF8') ELSE '\\x00ff' END",
		'{"","\\\\x00"}' ],
	'numeric: long' => [ "CASE (R) % 8 WHEN 0 THEN (repeat('1234567890', 500) || (R))::numeric ELSE R END", '{NaN,0,1.0,1.00,-1e100}' ],
	'numeric: 40 digits' => [ "(repeat('12345', 8) || (R))::numeric / 10::numeric ^ ((R) % 3)", '{1234512345123451234512345123451234512345,0}' ],
	# values that equal the prefix, are shorter, or lack it; under ICU what follows may
	# change the weight of its last letter
	'text: prefix' => [ "CASE (R) % 30 WHEN 0 THEN P WHEN 1 THEN left(P, ((R) % 300)::int) WHEN 2 THEN md5((R)::text) "
		  . "WHEN 3 THEN upper(P) || (R) WHEN 4 THEN P || P || (R) ELSE P || ('{\"\",h,\xCC\x81,\xCC\xA7\xCC\x81,\xE0\xB8\x81,\xE0\xB9\x8C,\x01}'::text[])[1 + (R) % 7] "
		  . "|| CASE (R) % 2 WHEN 0 THEN md5((R)::text) ELSE (R)::text END END",
		'{"",p,a,z}', 1 ],
	'bytea: alike' => [ "convert_to(repeat('alike ', 5) || (R), 'UTF8')", '{"","\\\\x00"}' ],
	'bytea: prefix' => [ "convert_to(CASE (R) % 30 WHEN 0 THEN P WHEN 1 THEN left(P, ((R) % 300)::int) WHEN 2 THEN (R)::text "
		  . "ELSE P || (R) END, 'UTF8') || CASE (R) % 5 WHEN 0 THEN '\\x00'::bytea ELSE '' END", '{"","\\\\x00"}' ],
	'text: cases' => [ "CASE (R) % 2 WHEN 0 THEN upper(md5(((R) / 2)::text)) ELSE md5(((R) / 2)::text) END", '{a,A,"",ä}', 1 ],
	varchar => [ "translate((R)::text, '0123456789', 'abcABC_é ')::varchar", '{"",a,A,"a "}', 1 ],
	'char(12)' => [ "translate((R)::text, '0123456789', 'abcABC_é ')::char(12)", '{"",a,A,"a  ",b}', 1 ],
	name => [ "md5((R)::text)::name", '{"",a,A}', 1 ],
	'"char"' => [ 'chr(33 + ((R) % 90)::int)::"char"', '{a,z}' ],
	bytea => [ "decode(repeat('00', ((R) % 3)::int) || md5((R)::text), 'hex')",
		'{"","\\\\x00","\\\\x0000","\\\\xff","\\\\x00ff"}' ],
	date => [ "date '2000-01-01' + ((R) % 200000 - 100000)::int", '{infinity,-infinity,4713-01-01 BC,5874897-12-31}' ],
	time => [ "time '00:00' + ((R) % 86400000) * interval '1 ms'", '{00:00,24:00,23:59:59.999999}' ],
	timetz => [ "((time '00:00' + ((R) % 86400) * interval '1 s')::text "
		  . "|| ('{+00,-05,+13:30,+01}'::text[])[1 + (R) % 4])::timetz",
		'{00:00+00,01:00+01,24:00-15}' ],
	timestamp => [ "timestamp '2000-01-01' + ((R) - D / 2) * interval '1 s'", '{infinity,-infinity,4714-11-24 00:00:00 BC,294276-12-31 23:59:59.999999}' ],
	timestamptz => [ "timestamptz '2000-01-01 UTC' + ((R) - D / 2) * interval '1 s'", '{infinity,-infinity}' ],
	interval => [ "CASE (R) % 3 WHEN 0 THEN ((R) % 100 - 50) * interval '1 mon' "
		  . "WHEN 1 THEN ((R) % 3000 - 1500) * interval '1 day' ELSE ((R) % 100000 - 50000) * interval '1 hour 7 s' END",
		'{1 mon,30 days,720:00:00,-1 mon,-30 days,178000000 years,-178000000 years,0}' ],
	uuid => [ 'md5((R)::text)::uuid', '{00000000-0000-0000-0000-000000000000,ffffffff-ffff-ffff-ffff-ffffffffffff}' ],
	macaddr => [ 'substr(md5((R)::text), 1, 12)::macaddr', '{00:00:00:00:00:00,ff:ff:ff:ff:ff:ff}' ],
	macaddr8 => [ 'substr(md5((R)::text), 1, 16)::macaddr8', '{00:00:00:00:00:00:00:00}' ],
	inet => [ "CASE (R) % 3 WHEN 0 THEN inet '2001:db8::/40' + (R) "
		  . "ELSE set_masklen(inet '0.0.0.0' + (R), ((R) % 33)::int) END",
		'{0.0.0.0/0,10.0.0.0/8,10.0.0.0/9,10.0.0.0,"::/0","::1"}' ],
	'inet: IPv6' => [ "set_masklen(('2001:db8:' || to_hex((R) % 3) || '::' || to_hex((R) % 65536))::inet, ((R) / 3 % 129)::int)",
		'{2001:db8::1/64,2001:db8::/64,2001:db8::1,2001:db8::,"::/0","::/128","::ffff:10.0.0.1",10.0.0.1/24,10.0.0.1}' ],
	'cidr: IPv6' => [ "network(set_masklen(('2001:db8:' || to_hex((R) % 65536) || '::' || to_hex((R) % 7))::inet, ((R) / 3 % 129)::int))",
		'{2001:db8::/32,2001:db8::/64,2001:db8::/128,"::/0",10.0.0.0/8}' ],
	cidr => [ "network(set_masklen(inet '0.0.0.0' + (R), ((R) % 33)::int))", '{0.0.0.0/0,10.0.0.0/8,"::/0"}' ],
	colour => [ "('{z,k,m,a}'::colour[])[1 + (R) % 4]", '{z,k,m,a}' ],
	small => [ '((R) % 1000)::int', '{0,999}' ],
	label => [ "translate((R)::text, '0123456789', 'aAbBcCdDé-')", '{"",a,A}', 1 ],
	# types without keys
	'int[]' => [ 'ARRAY[(R) % 10, (R) % 3, R]::int[]', undef ],
	int4range => [ 'int4range(((R) % 50)::int, ((R) % 50 + (R) % 7)::int)', undef ],
	pair => [ "ROW((R) % 50, CASE (R) % 3 WHEN 0 THEN NULL ELSE md5((R)::text) END)::pair", undef ],
	varbit => [ '((R) % 4096)::int::bit(12)::varbit << ((R) % 5)::int', undef ],
	jsonb => [ 'to_jsonb((R) % 1000)', undef ],
	# equal values of these kinds are the same text
	'float4: one form' => [ "CASE (R) % 50 WHEN 0 THEN 'NaN' WHEN 1 THEN 'Infinity' WHEN 2 THEN '-Infinity' ELSE ((R) - D / 2) / 7.0 END::float4", '{NaN}' ],
	'float8: one form' => [ "CASE (R) % 50 WHEN 0 THEN 'NaN' WHEN 1 THEN 'Infinity' WHEN 2 THEN '-Infinity' ELSE ((R) - D / 2) / 7.0 END::float8", '{NaN}' ],
	'numeric: one form' => [ '(R) * 1.001', '{NaN}' ],
	'numeric(12, 2)' => [ '(R) / 3.0', '{NaN}' ],
	'float8: exact' => [ '((R) % 20000 - 10000) / 8.0', '{NaN,Infinity,-Infinity,-0}' ],
	'interval: one form' => [ "((R) - D / 2) * interval '1 ms'", '{0}' ],
	'text: common' => [ 'P || (R)', '{""}', 1 ]);

our @plain_kinds = sort keys %kinds;
our @keyed_kinds = grep { defined $kinds{$_}[1] } @plain_kinds;

# Kinds for groups: without an order, without a hash function, or without keys of GpuSort, too
my %more_kinds = (xid => '(R)::text::xid', tid => "('(' || (R) % 4000 || ',' || (R) % 7 || ')')::tid", money => '((R) % 100000)::int::money',
	pg_lsn => "('0/' || to_hex(R % 65536))::pg_lsn", tsvector => "to_tsvector('simple', (R)::text)", odd => 'ROW((R) % 2000)::odd',
	even => 'ROW((R) % 2000)::even', int4multirange => 'int4multirange(int4range((R % 50)::int, (R % 50 + 3)::int))');
$kinds{$_} = [ $more_kinds{$_}, undef ] foreach keys %more_kinds;
our @group_kinds = ((sort keys %more_kinds) x 2, grep { !/ long|late|40 digits/ } @plain_kinds);

# Kinds of strings
$kinds{citext} = [ "translate((R)::text, '0123456789', 'aAbBcCdDé-')::citext", '{"",a,A,"a "}', 1 ];
our @string_kinds = ('text', 'text: prefix', 'text: differs late', 'text: cases', 'label', 'citext', 'name', 'char(12)');

# A string literal of up to 303 bytes, which may end in a character that has another
# weight in front of what may follow: c before h, a Thai vowel before a consonant.
sub random_prefix
{
	my $unit = pick('p', 'https://www.example.com/café/', ' ', 'Äß-', '9');
	my $last = pick('', '', 'c', "\xE0\xB9\x80", "e\xCC\x81");
	my $length = below(pick(20, 60, 301));
	my $text = $unit x ($length / length $unit);
	return "'$text" . 'q' x ($length - length $text) . "$last'";
}

# value_of(KIND, ...): an expression for a value of a kind.
#
#   distinct => n      how many values; by default a random number, often 1, 3, 10 or 1000
#   order => 'up'      the value grows with i; 'down': it falls, from row n of rows => n on;
#                      'saw': it grows in each 1000 rows; otherwise it is random
#   prefix => 'text'   the prefix of kinds that have one; by default a random one
#   special => 0       no special values; by default most columns have some
#   nulls => p         percent of NULLs
sub value_of
{
	my ($kind, %how) = @_;
	my ($value, $special) = @{ $kinds{$kind} };
	my $distinct = $how{distinct} // pick(1, 3, 10, 1000, 2_000_000_000, 2_000_000_000);
	my $salt = below(1_000_000_000);
	my $prefix = defined $how{prefix} ? "'$how{prefix}'" : random_prefix();
	my %orders = (up => 'i::bigint', down => '(' . ($how{rows} // 0) . ' - i)::bigint', saw => '(i % 1000)::bigint');
	my $number = $orders{ $how{order} // '' } // "rnd(i, $salt, $distinct)";
	my $type = $kind =~ s/:.*//r;
	$value =~ s/\bR\b/$number/g;
	$value =~ s/\bD\b/$distinct/g;
	$value =~ s/\bP\b/$prefix/g;
	$value = "($value)";
	$value = "CASE WHEN rnd(i, $salt + 1, 12) = 0 THEN "
	  . "('$special'::text[])[1 + rnd(i, $salt + 2, cardinality('$special'::text[]))]::$type ELSE $value END"
	  if defined $special && ($how{special} // chance(80));
	$value = "CASE WHEN rnd(i, $salt + 3, 100) >= $how{nulls} THEN $value END" if $how{nulls};
	return $value;
}

# ----------------------------------------------------------------
# Strings
# ----------------------------------------------------------------

# An alphabet is a hash of lists of strings: plain, which must not be empty, letters, others,
# marks, punctuation and words; and the name of its encoding.

sub unit
{
	my ($of) = @_;
	my $kind = below(20);
	return pick(@{ $of->{letters} }) if $kind < 9 && @{ $of->{letters} // [] };
	return pick(@{ $of->{plain} }) if $kind < 16;
	return pick(@{ $of->{others} }) if $kind < 17 && @{ $of->{others} // [] };
	return pick(@{ $of->{marks} }) if $kind < 18 && @{ $of->{marks} // [] };
	return pick(@{ $of->{punctuation} // $of->{plain} });
}

sub units
{
	my ($of, $count) = @_;
	return join '', map { unit($of) } 1 .. $count;
}

# The same letters, but for cases, marks and punctuation.
sub varied
{
	my ($of, $text) = @_;
	return join '', map {
		# other character sets lack the capitals of some letters
		my $has_cases = $of->{encoding} eq 'UTF8' || ord() < 128;
		my $letter = $has_cases && chance(25) ? pick(grep { length == 1 } lc, uc, $_) : $_;
		chance(4) && @{ $of->{marks} // [] } ? $letter . pick(@{ $of->{marks} })
		  : chance(3) && @{ $of->{punctuation} // [] } ? pick(@{ $of->{punctuation} }) . $letter : $letter
	} split //, $text;
}

# Returns a function that makes the strings of one column, which are of a kind.
sub strings_of
{
	my ($kind, $of) = @_;
	if ($kind eq 'letters') { my $most = pick(4, 12, 40); return sub { units($of, below($most)) } }
	if ($kind eq 'words')
	{
		my $between = pick(' ', '-', ', ', '');
		return sub { join $between, map { chance(80) && @{ $of->{words} // [] } ? pick(@{ $of->{words} }) : below(1000) } 0 .. below(4) }
	}
	if ($kind eq 'varied')
	{
		my @bases = map { units($of, 1 + below(20)) } 0 .. below(20);
		return sub { varied($of, pick(@bases)) }
	}
	if ($kind eq 'late')
	{
		# accents and cases differ early, letters late
		my $base = units($of, 5 + below(40));
		return sub { varied($of, $base) . unit($of) . (chance(30) ? varied($of, 'tail') : '') }
	}
	if ($kind eq 'prefix')
	{
		my $prefix = units($of, 1 + below(pick(20, 200)));
		my $varies = chance(30);
		return sub { (chance(90) ? ($varies ? varied($of, $prefix) : $prefix) : substr $prefix, 0, below(1 + length $prefix)) . units($of, below(8)) }
	}
	if ($kind eq 'signs')
	{
		# they weigh nothing before the last level, so that most words are equal
		my @signs = $of->{encoding} eq 'UTF8' ? map { chr } 0x1F600, 0xFE0F, 0x2603, 0x1F44D : @{ $of->{punctuation} // $of->{plain} };
		my @values = map { join '', map { chance(5) ? below(10) : pick(@signs) } 1 .. below(7) } 1 .. 20 + below(500);
		return sub { pick(@values) }
	}
	if ($kind eq 'few') { my @values = map { units($of, below(30)) } 0 .. below(8); return sub { pick(@values) } }
	if ($kind eq 'ascii')
	{
		my $form = below(5);
		return sub {
			return join '', map { sprintf '%08x', below(2**32) } 1 .. 4 if $form == 0;
			return join '', map { sprintf pick('%08x', '%08X'), below(2**32) } 1 .. 3 if $form == 1;
			return below(100000) if $form == 2;
			return 'https://www.example.com/' . pick('a', 'B', 'item') . '/' . below(50) . '?q=' . pick(@{ $of->{plain} }) if $form == 3;
			return sprintf '%04d-%02d-%02d %s', 1990 + below(40), 1 + below(12), 1 + below(28), pick('open', 'Open', 'closed');
		}
	}
	if ($kind eq 'any')
	{
		return sub { units($of, below(20)) } if $of->{encoding} ne 'UTF8';
		return sub {
			join '', map { my $c = 1 + below(pick(0x7F, 0x7FF, 0xFFFE, 0x10FFFF)); chr($c >= 0xD800 && $c < 0xE000 ? 0x4E00 : $c) } 1 .. below(12)
		}
	}
	# long: up to 100 kB, compressed or not.  A letter ends each run of signs without weight: glibc takes minutes to
	# compare 50,000 of them.
	my $unit = units($of, 1 + below(20)) . 'x';
	return sub {
		return units($of, below(20)) if !chance(3);
		my $characters = pick(3000, 10000, 50000);
		return substr($unit x $characters, 0, below($characters)) . units($of, below(3)) if chance(60);
		return units($of, $characters / 5) . unit($of);
	}
}

# A value in COPY's format.
sub copied
{
	my ($value) = @_;
	return defined $value ? $value =~ s/([\\\t\n\r])/'\\' . { "\\" => '\\', "\t" => 't', "\n" => 'n', "\r" => 'r' }->{$1}/ger : '\N';
}

1;
