# RandomRules.pm - the grammar of random queries.
#
# In a text, <name> is a pick from the rule of that name, and <name1> the same pick again elsewhere
# in the text.  expand() writes a text for a case, whose table and way the rules look at.

package RandomRules;

use strict;
use warnings;

use Exporter 'import';
use RandomTables;
use RandomValues;

our @EXPORT = qw(expand sorted_column has_order);

sub has_order { return $_[0]{kind} !~ /^xid$/ }

# A column by which rows are sorted, mostly one of random kind, perhaps under another collation
sub sorted_column
{
	my ($c, $alias) = @_;
	my @columns = grep { has_order($_) } @{ $c->{table}{columns} };
	my @random = grep { $_->{name} =~ /^c\d/ } @columns;
	my $column = @random && chance(60) ? pick(@random) : pick(@columns);
	return ($column, "$alias$column->{name}" . ($column->{collated} && chance(35) ? collation_for($column, $c->{collations}) : ''));
}

sub columns_where { my ($c, $is) = @_; return map { $_->{name} } grep { $is->($_) } @{ $c->{table}{columns} } }

# A rule is a list to pick from, or a function of the case.  "NAME WAY" is a second rule for that way.
my %rules = (
	dir => sub { (directions(''))[0] },
	x => sub { my ($column, $x); do { ($column, $x) = sorted_column($_[0], '') } until $column->{keyed}; $x },
	# equal values of these are the same text; numbers whose sums do not overflow; numbers between which others are
	u => [ 'few', 'mid', 'many', 'i2', 'i4', 'i8', 'd', 'ts', 'tz', 'id', 'w' ],
	n => [ 'i2', 'i4', 'i8', 's', 'id', 'few', 'm', 'w', (map { "greatest(least($_, 1e30), -1e30)" } 'f4', 'f8'), 'i4 / 7.0::float8', 'i2 / 7.0::float4' ],
	c => [ 'i2', 'i4', 'i8', 'f4', 'least(abs(f8), 1e300)', 's', 'm', 'iv', 'w', 'n' ],
	# arrays have elements of these types
	v => sub { my ($c) = @_; pick(columns_where($c, sub { $_[0]{keyed} }), 'id', 'id', $c->{table}{copied} ? () : ('(x || few)', 'ROW(few, x)::pair')) },
	# an argument of an aggregate that sorts
	argument => sub { $_[0]{table}{copied} || chance(40) ? '<x>' : '<typed>' },
	typed => [ ('i2', 'i4', 'i8', 'f4', 'f8', 'd', 'ts', 'tz', 's') x 3, 'few', 'm', 'w', 'i2 % 100', 'i4 / 3', '-f8', 'abs(f4)', 'i4::int8', 'i2::float8', "coalesce(d, '2024-01-01')", 'ts::date', "tz AT TIME ZONE 'UTC'",
		'id', '7', 'CASE WHEN id % 2 = 0 THEN i8 END', 'nullif(i4, 0)', 'NULL::float8', 's::int8', 'hashint4(id)' ],
	'typed lateral' => [ 'id % 7 * o.r', 'id + o.r', 'i4', 'i8', 'f8' ],
	'typed prepared' => [ 'i4 / 3 + $2', 'i4', 'i8', 'f8' ],
	direct => [ '0', '1', '0.5', '0.5', '1/3.0', '0.999', '1e-300', 'NULL::float8', '(SELECT 0.7)' ],
	'direct prepared' => ['$1'],
	'direct lateral' => [ 'o.f', 'o.f', 'o.f / 2' ],
	fractions => [ map { "$_\::float8[]" } "'{0.1,0.9,NULL}'", "'{{0.9,0.1},{0.5,0.33}}'", "'{}'", "'[3:4]={0.25,1}'", "'{NULL}'", 'NULL', '(SELECT array_agg(x / 40.0) FROM generate_series(0, 40) x)', ('ARRAY[<direct>, 0.25]') x 3 ],
	# numbers of rows and bounds
	number => [ 1, 1, 1, 2, 2, 3, 5, 10, 20, 0, -1, 'NULL', "'3'::int2", '7::int8', 100000, "'9223372036854775807'::int8", "'-9223372036854775808'::int8", '(SELECT 2::int8)', '(SELECT count(*) FROM pg_namespace WHERE oid = 0)' ],
	'number prepared' => ['$2'],
	'number lateral' => [ 'o.r', 'o.r', '(SELECT o.r)', '(SELECT max(i) FROM generate_series(1, o.r) i)' ],
	limit => [ 0, 1, 2, 10, 500, 1000, 2048, 2049, 4096, 5000, 12000, 30000, 'NULL', '(SELECT 20)', '10 + (random() * 0)::int', '9223372036854775807' ],
	'limit prepared' => [ '$2', 'abs($2 * 100)' ],
	'limit lateral' => [ 'abs(o.r)', 'abs(o.r) * 7', 'abs(5000 - o.r)', 'CASE WHEN o.r > 2 THEN o.r END' ],
	skip => [ 0, 0, 1, 7, 100, 900, 3000, 'NULL', '(SELECT count(*) FROM pg_namespace WHERE oid = 0)' ],
	'skip prepared' => ['abs($2)'],
	'skip lateral' => ['abs(o.r) / 2'],
	where => [ ('true') x 8, 'id % 5 <> 0', 'id % 2 = 0', 'few IS NOT NULL', 'false', 'mid < 50', 'id = 3' ],
	'where lateral' => [ 'id % 7 <> o.r', 'id <= o.r * 100', 'few = o.r', 'id % 5 <> o.r % 3', 'true' ],
	'where prepared' => [ 'id % 7 <> $2', 'true' ],
	filter => sub { chance(20) ? ' FILTER (WHERE <filtered>)' : '' },
	filtered => [ 'id % 3 = 0', 'mid > 100', 'few IS NOT NULL', 'false', 'NULL', 'few = 1 OR mid < 5' ],
	'filtered lateral' => ['id % 5 <> o.r'],
	# what a query reads in place of t
	from => [ ('t') x 12, '(SELECT * FROM t WHERE id % 3 = 0 UNION ALL SELECT * FROM t WHERE id % 3 > 0) t', '(SELECT t.* FROM t JOIN generate_series(0, 4) j ON j = id % 7) t', '(SELECT * FROM t ORDER BY mid, id) t',
		'(SELECT u.* FROM generate_series(0, 9) j LEFT JOIN t u ON u.id = j) t', '(SELECT * FROM t ORDER BY id LIMIT 500) t', 't TABLESAMPLE BERNOULLI (50) REPEATABLE (7)', '(SELECT * FROM t OFFSET 0) t', 'ONLY t',
		'unnest(ARRAY(SELECT t FROM t WHERE id <= 2000)) t' ],
	# a run condition with an outer column
	'from lateral' => [ ('t') x 2, '(SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY few ORDER BY id) AS place FROM t) w WHERE place <= o.r * 5) t', '(SELECT * FROM t OFFSET 0) t' ],
	# Aggregates that sort.  No two rows of them tie and differ, but in the form of equal values.
	sorting => [ ('count(DISTINCT <argument>)') x 5, 'count(DISTINCT <argument1> ORDER BY <argument1><dir>)', 'count(DISTINCT (few, <x>))', ('mode() WITHIN GROUP (ORDER BY <argument><dir>)') x 4,
		('percentile_disc(<direct>) WITHIN GROUP (ORDER BY <argument><dir>)') x 3, ('percentile_disc(<fractions>) WITHIN GROUP (ORDER BY <argument><dir>)') x 2,
		('percentile_cont(<direct>) WITHIN GROUP (ORDER BY <c><dir>)') x 3, ('percentile_cont(<fractions>) WITHIN GROUP (ORDER BY <c><dir>)') x 2,
		('sum(DISTINCT <n>)') x 2, 'avg(DISTINCT <n>)', 'sum(DISTINCT <n1> ORDER BY <n1> DESC)', ('gpu_sort_agg(<sums>)') x 2, 'gpu_sort_agg(<sums>) FILTER (WHERE id > 5)',
		('array_agg(<v> ORDER BY <x><dir>, id)') x 2, 'array_agg(<v> ORDER BY <x><dir>, <x><dir>, id DESC)', "string_agg(id::text, few::text ORDER BY <x><dir>, id)", "string_agg(x, ',' ORDER BY <x><dir>, id)",
		'text:json_agg(<v> ORDER BY <x><dir>, id)', 'text:json_object_agg(coalesce(id, 0), <v> ORDER BY <x><dir>, id)', 'own_list(id ORDER BY <x><dir>, id)', 'own_sum(few ORDER BY <x><dir>)', 'max(n ORDER BY id)',
		'array_agg(DISTINCT <u>)', 'array_agg(DISTINCT few ORDER BY few DESC)', 'jsonb_agg(DISTINCT mid)', "string_agg(DISTINCT x COLLATE \"C\", ',')",
		"string_agg(DISTINCT x COLLATE \"C\", few::text ORDER BY x COLLATE \"C\" DESC, few::text)", 'own_sum(DISTINCT few)', 'first_of(id ORDER BY <x><dir>, id)', '<unusual>' ],
	# those that core computes, and all beside them
	unusual => [ 'percentile_disc(0.3) WITHIN GROUP (ORDER BY i4 USING #<)', 'mode() WITHIN GROUP (ORDER BY s USING #>)', 'mode() WITHIN GROUP (ORDER BY i4 USING @<)', 'percentile_disc(0.5) WITHIN GROUP (ORDER BY (SELECT i4))',
		'rank(5) WITHIN GROUP (ORDER BY i4<dir>)', 'dense_rank((SELECT i8 FROM t WHERE id = 7)) WITHIN GROUP (ORDER BY i8<dir>)', 'cume_dist(NULL, 17) WITHIN GROUP (ORDER BY <u><dir>, id)', 'percent_rank(NULL) WITHIN GROUP (ORDER BY <u><dir>)',
		'count(DISTINCT i2 + (random() * 0)::int2)', 'sum(random() * 0)', 'count(*) FILTER (WHERE random() >= 0)', 'sum((SELECT few))' ],
	# gpu_sort_agg()'s arguments
	sums => [ 'i2', 'i4', 'i8', 'f4', 'f8', 'd', 'ts', 'tz', 'few', 'id' ],
	# Others: those that are the same whatever the order of rows; lists; rounded ones
	other => [ ('<exact>') x 14, ('<list>') x 4, ('near:<rounded>') x 3, '<unusual>' ],
	exact => [ ('count(*)') x 3, 'count(i4)', 'count(<x>)', 'sum(i2)', 'sum(i4)', 'sum(i8)', 'avg(i4)', 'sum(n)', 'avg(n)', 'max(n)', 'sum(m)', 'avg(m)', 'min(f8)', 'max(f4)', 'min(d)', 'max(tz)', 'max(id)', 'stddev(i4)',
		'var_pop(n)', 'bool_and(id > 3)', 'every(f8 > 0)', 'bit_or(i4)', 'bit_and(i2)', 'bit_xor(i8)', 'min(x)', 'max(x COLLATE "C")', 'max(late)', 'min(more)', 'max(gen)', 'min(n + i2)', 'sum(iv)', 'avg(iv)', 'max(ARRAY[i2, s])',
		'min(s)', 'regr_count(m, i2)', 'count(few = 1 OR NULL)', 'count(t.*)', 'range_agg(int4range(id, id + 2))', 'own_sum(few)', 'own_most(mid)', 'own_max(mid)', 'own_max(i4)', 'own_max(x)',
		'own_array(mid)' ],
	list => [ map({ "list:array_agg($_)" } 'i4', 'd', 'f8', 'x', 'n', 'few'), 'list:own_list(id)', "split:string_agg(id::text, ',')", 'json:json_agg(i4)', 'jsonb:jsonb_agg(mid)' ],
	rounded => [ 'stddev(m)', 'regr_slope(m, few)', 'corr(m, mid)', 'var_samp(m)', 'sum(least(greatest(f8, -1e3), 1e3))', 'avg(least(greatest(f4, -1e3), 1e3))' ],
	# states or results that are changed in place are used again
	again => [ 'ROW(array_changed(own_array(mid)), own_array(mid), array_changed(own_array(mid)))::text', 'ROW(own_more(mid), own_count(mid))::text' ],
	around => [ 'coalesce(<a>, <a>)', 'CASE WHEN count(*) > 3 THEN <a> END', 'CASE WHEN count(DISTINCT i4) > 3 THEN <a> END' ],
	having => [ 'count(*) > 3', 'count(DISTINCT mid) > 2', 'max(mid) > 7', 'false', '(SELECT max(g) FROM generate_series(1, 20) g WHERE g <= count(DISTINCT few)) > 3', 'mode() WITHIN GROUP (ORDER BY mid) IS NOT NULL' ],
	'having lateral' => [ 'count(*) > o.r', 'max(mid) IS NULL OR o.r = 3' ],
	group => sub { my ($c) = @_; chance(25) && !$c->{table}{copied} ? '<group_expression>' : pick('few', 'few', 'mid', 'id', $c->{table}{copied} ? () : ('many', 'gen', 'late', 'i2', 'lower(x)'), map({ ($_) x 2 } columns_where($c, sub { $_[0]{name} =~ /^c/ && $_[0]{kind} !~ / long|late|40 digits/ })), ('<x>') x 3) },
	group_expression => [ 'id % 10', 'i4 / 1000', "date_trunc('month', tz)", "coalesce(d, '2024-01-01')", 'mid > 100', 'f8 > 0', 'NULL::int', 'nullif(few, 1)', 'ROW(few, x)::pair', 'ARRAY[few, mid]', 'ARRAY[f8, -0.0]', '(mid % 500)::small',
		'hashint4(mid)', 'CASE WHEN id % 2 = 0 THEN hashint4(mid) ELSE hashint4(mid) + 0 END', 'CASE WHEN id % 2 = 0 THEN 0::float8 ELSE -0.0::float8 END', 'CASE WHEN id % 2 = 0 THEN 1.0 ELSE 1.00 END', 'round(n, 1)',
		'repeat(few::text, 1000)', 'extract(dow FROM tz)', 'few::numeric', 'few::text COLLATE "C"', 'x::char(9)', 'x::varchar', 'x::name COLLATE "C"', '(SELECT few)', "'a'::text" ],
	# Functions of a window.  Those of <tied> do not depend on the order of rows that tie.
	tied => [ 'sum(id)', 'count(*)', 'count(few) FILTER (WHERE id % 2 = 0)', 'percent_rank()', 'cume_dist()', 'rank()', 'dense_rank()' ],
	function => [ ('<tied>') x 3, 'sum(mid)', 'lag(id)', 'lag(id, 2, 0)', 'lag(id, 0)', 'lag(id, -1)', 'lag(id, mid % 3)', 'lag(id, NULL)', 'lead(id)', 'lead(id, 2, 0)', 'ntile(3)', 'first_value(id)', 'last_value(id)',
		'nth_value(id, 3)', 'row_number()', 'row_number()' ],
	bounded => [ ('n <= <number>') x 3, 'n < <number>', '<number> >= n', '<number> > n', 'n = <number>', '<number> = n' ]);

# Writes a text by the rules of a case.
sub expand
{
	my ($text, $c) = @_;
	my %memo;
	my $one = sub {
		my ($name, $label) = @_;
		return $memo{"$name$label"} if $label ne '' && defined $memo{"$name$label"};
		my $rule = $c->{rules}{$name} // $rules{$name} // die "no rule $name";
		$rule = $rules{"$name $c->{way}"} if $rules{"$name $c->{way}"} && !$c->{rules}{$name} && chance(50);
		my $is = ref $rule eq 'CODE' ? $rule->($c) : pick(@$rule);
		$is = expand($is, $c) if $is =~ /<[a-z]/;
		$memo{"$name$label"} = $is if $label ne '';
		return $is;
	};
	1 while $text =~ s/<([a-z_]+)(\d?)>/$one->($1, $2)/e;
	return $text;
}

1;
