# RandomQueries.pm - random queries of the tables of RandomTables.pm.
#
# make_case() picks a form (%forms: what is sorted) and a way (%ways: how the query stands in another
# one or is read), and writes both by the rules of a grammar (RandomRules.pm).  A test names the forms and
# ways that it wants, and may replace rules.
#
# A query's columns are compared in sequence by their types' own equality (1.0 and 1.00, or -0 and 0,
# are equal, so either may come first), and, where the query does not choose among equal rows,
# all rows as a multiset.  Lists whose order is not fixed are compared in any order (list:), and floats
# whose sum depends on it but for rounding (near:).

package RandomQueries;

use strict;
use warnings;

use Exporter 'import';
use List::Util qw(shuffle);
use RandomRules;
use RandomTables;
use RandomValues;

our @EXPORT = qw(make_case);

# ----------------------------------------------------------------
# Forms: what is sorted
# ----------------------------------------------------------------

# Keys of an ORDER BY: expressions, the list that calls them k1, k2..., and these names.
sub make_keys
{
	my ($c, $alias, $n) = @_;
	my $table = $c->{table};
	$n //= $table->{strings} ? 2 + below(4) : pick(1, 1, 2, 2, 3, 4);
	my (@select, @order);
	foreach my $i (1 .. $n)
	{
		my ($column, $value) = sorted_column($c, $alias);
		# strings in front; what an index or the table's order begins with
		if ($table->{strings} ? $i <= $n / 2 && chance(70) : $i == 1 && chance(20))
		{
			my $name = 'c' . ($table->{strings} ? 1 + below(4) : 1);
			my ($first) = grep { $_->{name} eq $name && has_order($_) } @{ $table->{columns} };
			($column, $value) = ($first, "$alias$name") if $first;
		}
		my $own = $column->{own} && $value eq "$alias$column->{name}" && chance(40);
		($own, $value) = (0, pick("$value IS NULL", "${alias}id % 7", "length($value\::text)", "-${alias}id")) if chance(8);
		push @select, $value;
		push @order, "k$i" . ($own ? ' USING ' . pick('#<', '#>', $column->{type} eq 'int4' ? ('@<', '@>') : ()) . pick('', ' NULLS FIRST', ' NULLS LAST') : (directions(''))[0]);
	}
	return (\@select, \@order, map { "k$_" } 1 .. $n);
}

sub named { my ($names, @values) = @_; return join ', ', map { "$values[$_] AS $names->[$_]" } 0 .. $#values }

# Begins a query that sorts rows of t.
sub sorted_rows
{
	my ($c, $where) = @_;
	my ($select, $order, @names) = make_keys($c, 't.');
	my $keys = named(\@names, @$select);
	my $rest = pick('', ', t.id', ', t.id', ', t.*', $c->{table}{copied} ? () : ', t.id, t.pad', ', t.id, t.c2 AS p');
	my $head = "SELECT $keys$rest FROM t WHERE " . ($where // expand('<where>', $c));
	my $by = join ', ', @$order;
	# the same order by expressions
	my $written = join ', ', map { my $i = $_; $order->[$i] =~ s/^k\d+/($select->[$i])/r } 0 .. $#names;
	return { select => $select, order => $order, names => \@names, keys => $keys, rest => $rest, head => $head, by => $by, written => $written, sql => "$head ORDER BY $by" };
}

# A frame of a window, with offsets or without
sub frame
{
	my ($mode, $offsets) = @_;
	my @ends = grep { $offsets || !/\d/ } 'UNBOUNDED PRECEDING', '3 PRECEDING', '1 PRECEDING', '0 PRECEDING', 'CURRENT ROW', '0 FOLLOWING', '2 FOLLOWING', 'UNBOUNDED FOLLOWING';
	my $from = chance(50) ? 0 : below($#ends);
	my $to = $from + below(@ends - $from) || 1;
	return "$mode BETWEEN $ends[$from] AND $ends[$to]" . pick('', '', '', ' EXCLUDE CURRENT ROW', ' EXCLUDE GROUP', ' EXCLUDE TIES');
}

# The first rows of groups by a window.  With $ties, rows tie, and only what does not depend on their order is selected.
sub first_rows
{
	my ($c, $ties) = @_;
	my ($select, $order, @names) = make_keys($c, 't.', pick(1, 2, 2, 3, 4, 9));
	my $n = below(@names + 1);
	my @last = map { my $i = $_; $order->[$i] =~ s/^k\d+/$select->[$i]/r } $n .. $#names;
	push @last, pick('t.id', 't.id', 't.id DESC') if !$ties;
	my $partition = $n ? 'PARTITION BY ' . join(', ', @$select[ 0 .. $n - 1 ]) : '';
	my $frame = @last ? pick('', '', $ties ? 'RANGE' : 'ROWS', 'RANGE', 'GROUPS') : '';
	$frame = frame($frame, $frame ne 'RANGE' || (@last == 1 && $last[0] =~ /^t\.(?:few|mid|up|id)(?! *(?:%|USING|IS))\b/)) if $frame;
	my $where = expand('<where>', $c);
	# the executor reads such a frame anew for each row
	$where .= ' AND t.id <= 1000' if $frame =~ /EXCLUDE/;
	my $function = pick('row_number()', $ties ? () : ('row_number()') x 2, 'rank()', 'dense_rank()');
	# of rows that tie, any may be first
	my $any = $ties && $function eq 'row_number()';
	my @values = map { expand($ties ? '<tied> OVER w' : '<function> OVER w', $c) } 1 .. pick(0, 0, 1, 1, 2, 3);
	my $condition = expand('<bounded>', $c);
	$condition .= expand(pick(' AND n > 1', ' AND <bounded>', ' AND k1 IS NOT NULL', @values ? ' AND v0 <= 3' : ''), $c) if chance(25);
	my $windows = '';
	if (!$any && chance(30))
	{
		# another window, which the same sort may serve; the last sort decides the sequence of rows
		$windows = ', v AS (' . pick("$partition ORDER BY " . join(', ', @last, 't.id'), 'ORDER BY t.id', 'PARTITION BY few ORDER BY t.id') . ')';
		push @values, pick('sum(id)', 'count(*)', 'row_number()') . ' OVER v';
		$condition .= ' ORDER BY id';
	}
	# core computes it for rows that the condition does not remove, in their order
	my $ticks = !$ties && $c->{way} eq 'plain' && chance(15) ? ', tick() AS ticks' : '';
	my $sql = 'SELECT ' . named(\@names, @$select) . ", t.id$ticks, $function OVER w AS n" . join('', map { ", $values[$_] AS v$_" } 0 .. $#values)
	  . ' FROM ' . ($ticks ? 't' : expand('<from>', $c)) . " WHERE $where WINDOW w AS ($partition" . (@last ? ' ORDER BY ' . join(', ', @last) : '') . " $frame)$windows";
	return { sql => "SELECT * FROM ($sql) s WHERE $condition", rows => !$any,
		names => [ @names, $ticks ? 'ticks' : (), 'n', $ties ? () : 'id', $ties && ($frame =~ /EXCLUDE/ || !$any) ? () : map { "v$_" } 0 .. $#values ] };
}

# Aggregates: their texts, and the forms in which their results a0, a1... are compared.
sub make_aggregates
{
	my ($c, $sorting, $others) = @_;
	my @list = shuffle((map { '<sorting>' } 1 .. $sorting), map { '<other>' } 1 .. $others);
	push @list, '<again>' if !$c->{table}{copied} && chance(8);
	my @forms;
	foreach my $i (0 .. $#list)
	{
		my $a = expand($list[$i], $c);
		my $hash = "count(*) + sum(hashtextextended(coalesce(e::text, 'NULL'), 0)::numeric)";
		my $as = $a =~ s{^(list|near|split|text|jsonb?):}{} ? $1 : q();
		my %form = (list => "(SELECT $hash FROM unnest(a$i) e)", split => "(SELECT $hash FROM string_to_table(a$i, ',') e)", near => "ROW(a$i)::near", text => "a$i\::text",
			map { $_ => "(SELECT $hash FROM ${_}_array_elements(a$i) e)" } 'json', 'jsonb');
		push @forms, $form{$as} // "a$i";
		$a .= expand('<filter>', $c) if $a !~ /FILTER|^ROW\(|^coalesce/;
		$a = expand('<around>', { %$c, rules => { %{ $c->{rules} // {} }, a => [$a] } }) if chance(8) && !$c->{table}{copied};
		$list[$i] = $a;
	}
	return (\@list, \@forms, map { "a$_" } 0 .. $#list);
}

# A query of groups.  Its own order, or that of a query around it, puts the groups in sequence.
sub grouped
{
	my ($c, $sorting, $others) = @_;
	my @keys = map { expand('<group>', $c) } 1 .. pick(1, 1, 1, 2, 2, 3);
	my %kind = map { $_->{name} => $_->{kind} } @{ $c->{table}{columns} };
	my ($list, $forms, @names) = make_aggregates($c, $sorting, $others);
	my $having = chance(25) ? expand(' HAVING <having>', $c) : '';
	# types without an order cannot stand beside one without a hash function, nor beside aggregates that sort
	my ($only_hash) = grep { ($kind{$_} // '') =~ /^(?:xid|odd)$/ } @keys;
	@keys = "@$list$having" =~ /DISTINCT|ORDER BY/ ? ('few') : ($only_hash) if $only_hash;
	my @k = map { "k$_" } 0 .. $#keys;
	my @by = map { my $kind = $kind{ $keys[$_] } // ''; $kind =~ /^(?:xid|odd|even)$/ ? "k$_\::text COLLATE \"C\"" : "k$_" } 0 .. $#keys;
	my $select = join ', ', named(\@k, @keys), @$list ? named(\@names, @$list) : ();
	my $query = expand("SELECT $select FROM <from> WHERE <where>", $c) . ' GROUP BY ' . join(', ', reverse @k) . $having;
	if (!@$list && chance(60))
	{
		$query = expand("SELECT DISTINCT $select FROM <from> WHERE <where>", $c);
		$query .= expand(" UNION SELECT $select FROM t WHERE id % 2 = 0", $c) if chance(30);
	}
	my $columns = join ', ', @k, map { "$forms->[$_] AS a$_" } 0 .. $#names;
	my @order = chance(50) ? directions(@by) : @by;
	@order = reverse @order if chance(30);
	unshift @order, "a$#names" if @names && $forms->[-1] eq "a$#names" && $list->[-1] =~ /^count/ && chance(20);
	my $order = join ', ', @order;
	$query = chance(60) ? "SELECT $columns FROM ($query OFFSET 0) q ORDER BY $order" : "SELECT $columns FROM ($query) q ORDER BY $order" . pick(('') x 3, ' LIMIT 10', ' LIMIT 20 OFFSET 3');
	return { sql => $query, names => [ @k, @names ] };
}

my %forms = (
	plain => sub { my $q = sorted_rows($_[0]); return { %$q, rows => 1 } },
	limit => sub { my ($c) = @_; my $q = sorted_rows($c); return { %$q, sql => "$q->{sql} LIMIT " . expand('<limit>', $c) . (chance(40) ? expand(' OFFSET <skip>', $c) : '') } },
	ties => sub {
		my ($c) = @_;
		my $q = sorted_rows($c);
		my $skip = chance(20) ? expand(' OFFSET <skip>', $c) : '';
		return { %$q, sql => "$q->{sql}$skip FETCH FIRST (" . expand('coalesce(<limit>, 7)', $c) . ') ROWS WITH TIES', rows => $skip eq '' };
	},
	# a single column of a fixed width is sorted as values
	value => sub {
		my ($c) = @_;
		my $key = expand(pick('few', 'mid', 'many', 'up', '<typed>', '<x>'), { %$c, way => '' });
		my ($by) = directions('k1');
		return { sql => expand("SELECT DISTINCT $key AS k1 FROM t WHERE <where> ORDER BY $by", $c), names => ['k1'] } if chance(30);
		if (chance(40))
		{
			my $over = pick("PARTITION BY $key", "PARTITION BY $key ORDER BY $key", "ORDER BY $key", "ORDER BY $key DESC");
			return { sql => expand("SELECT * FROM (SELECT $key AS k1, " . pick('row_number()', 'rank()', 'dense_rank()') . " OVER ($over) AS n FROM t WHERE <where>) s WHERE <bounded>", $c), names => [ 'k1', 'n' ] };
		}
		return { sql => expand("SELECT $key AS k1 FROM t WHERE <where> ORDER BY $by" . pick('', '', ' LIMIT <limit>', ' FETCH FIRST (coalesce(<limit>, 7)) ROWS WITH TIES'), $c), names => ['k1'] };
	},
	distinct => sub { my ($c) = @_; my $q = sorted_rows($c); return { %$q, sql => expand("SELECT DISTINCT $q->{keys} FROM <from> WHERE <where> ORDER BY $q->{by}", $c) } },
	# the columns of a group need not be in the sequence of the sort
	'distinct on' => sub {
		my ($c) = @_;
		my $q = sorted_rows($c);
		my $on = join ', ', reverse @{ $q->{names} }[ 0 .. below(scalar @{ $q->{names} }) ];
		return { %$q, sql => expand("SELECT DISTINCT ON ($on) $q->{keys}, t.id FROM <from> WHERE <where> ORDER BY $q->{by}, " . pick('t.id', 't.id DESC'), $c), names => [ @{ $q->{names} }, 'id' ], rows => 1 };
	},
	window => sub {
		my $q = sorted_rows($_[0]);
		my @names = @{ $q->{names} };
		my $by = pick("ORDER BY $q->{by}", "PARTITION BY $names[0] ORDER BY $q->{by}", "PARTITION BY $names[-1]");
		return { %$q, sql => "SELECT *, rank() OVER w AS place, count(*) OVER w AS peers FROM (SELECT $q->{keys}, t.id FROM t) g WINDOW w AS ($by) ORDER BY $q->{by}", rows => 1 };
	},
	first => sub { return first_rows($_[0], 0) },
	'first ties' => sub { return first_rows($_[0], 1) },
	# keys of merge joins
	join => sub {
		my ($c) = @_;
		my @on = map { my $column = pick(grep { $_->{kind} !~ /^(?:xid|odd|even)$/ } @{ $c->{table}{columns} })->{name}; "a.$column = b.$column" } 0 .. below(2);
		my ($select, $order, @names) = make_keys($c, 'a.');
		return { sql => 'SELECT ' . named(\@names, @$select) . ', a.id, b.id AS other FROM (SELECT * FROM t WHERE id <= 300) a ' . pick('JOIN', 'JOIN', 'LEFT JOIN', 'FULL JOIN')
			  . ' (SELECT * FROM t WHERE id BETWEEN 100 AND 400) b ON ' . join(' AND ', @on) . ' ORDER BY ' . join(', ', @$order), names => \@names, rows => 1,
			settings => { enable_hashjoin => 'off', enable_nestloop => 'off' } };
	},
	# keys that are not in the sort's output; the query looks them up by id
	hidden => sub {
		my $q = sorted_rows($_[0]);
		my $by = @{ $q->{select} } > 1 && chance(40) ? '(' . join(', ', @{ $q->{select} }) . ')' . pick('', ' DESC') : $q->{written};
		my @looked_up = map { '(SELECT ' . s/\bt\./u./gr . ' FROM t u WHERE u.id = s.id)' } @{ $q->{select} };
		return { %$q, sql => 'SELECT ' . named($q->{names}, @looked_up) . ", s.id FROM (SELECT t.id FROM t ORDER BY $by OFFSET 0) s", rows => 1 };
	},
	# an incremental sort, if there is an index
	presorted => sub {
		my ($c) = @_;
		my $q = sorted_rows($c);
		my ($first) = map { $_->{name} } grep { $_->{name} eq ($c->{table}{presorted} ? 'c1' : 'mid') && has_order($_) } @{ $c->{table}{columns} }, { name => 'mid', kind => '' };
		my $limit = chance(30) ? ' LIMIT 300' : '';
		$first //= 'id';
		return { %$q, sql => "SELECT t.$first AS k0, $q->{keys}, t.id FROM t ORDER BY t.$first" . pick('', ' DESC') . ", $q->{written}$limit", names => [ 'k0', @{ $q->{names} } ], rows => !$limit,
			settings => { map { $_ => 'off' } 'enable_seqscan', 'enable_bitmapscan', 'enable_sort' } };
	},
	update => sub { my $q = sorted_rows($_[0]); return { %$q, sql => "$q->{sql} FOR UPDATE", rows => 1 } },
	union => sub { my ($c) = @_; my $q = sorted_rows($c); return { %$q, sql => expand("($q->{sql} LIMIT <limit>) UNION ALL ($q->{head} AND id % 2 = 0 ORDER BY $q->{by} LIMIT <limit>)", $c) } },
	append => sub { my ($c) = @_; my $q = sorted_rows($c); return { %$q, sql => expand("SELECT * FROM ($q->{head} AND id % 3 = 0 UNION ALL $q->{head} AND id % 3 = 1) s ORDER BY $q->{by} LIMIT <limit>", $c) } },
	groups => sub { return grouped($_[0], 0, chance(25) ? 0 : pick(1, 1, 2, 3, 6)) },
	'sorted groups' => sub { return grouped($_[0], pick(1, 1, 2, 3, 6), pick(0, 0, 1, 1, 2, 4)) },
	# groups of several sets, an index that has the order, and groups below a window
	sets => sub {
		my ($c) = @_;
		my ($list, $forms, @names) = make_aggregates($c, pick(1, 2, 3), pick(0, 1));
		my $select = named(\@names, @$list);
		my $columns = join ', ', map { "$forms->[$_] AS a$_" } 0 .. $#names;
		return { sql => "SELECT few, mid, g, $columns FROM (SELECT few, mid, GROUPING(few, mid) AS g, $select FROM t GROUP BY ROLLUP (few, mid)) q ORDER BY g, few, mid", names => [ 'few', 'mid', 'g', @names ] } if chance(40);
		return { sql => "SELECT sum(s) OVER w AS o, mid, $columns FROM (SELECT mid, count(DISTINCT few) AS s, $select FROM t GROUP BY mid) q WINDOW w AS (ORDER BY mid ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) ORDER BY mid",
			names => [ 'o', 'mid', @names ] } if chance(50);
		return { sql => "SELECT mid, $columns FROM (SELECT mid, $select FROM t GROUP BY mid) q ORDER BY mid" . pick('', ' DESC'), names => [ 'mid', @names ], settings => { enable_seqscan => 'off', enable_sort => 'off' } };
	},
	# aggregates without groups; values of one column have more digits than its type says, because an array of rows does not keep to it
	aggregates => sub {
		my ($c) = @_;
		my $beyond = $c->{way} ne 'union' && !$c->{table}{copied} && chance(8);
		my ($list, $forms, @names) = make_aggregates($beyond ? { %$c, rules => { %{ $c->{rules} // {} }, argument => ['beyond'], c => ['beyond'], n => ['beyond'] } } : $c, pick(1, 1, 2, 3, 4, 5, chance(20) ? 12 : 2), chance(30) ? pick(1, 2, 7) : 0);
		my $from = $beyond ? '(SELECT t.*, beyond FROM t, LATERAL unnest(ARRAY[ROW(w / 7)]) u(beyond numeric(12, 2)) OFFSET 0) t' : expand('<from>', $c);
		my $having = chance(15) ? expand(' HAVING <having>', $c) : '';
		my $query = 'SELECT ' . named(\@names, @$list) . " FROM $from WHERE " . expand('<where>', $c) . (chance(10) ? ' GROUP BY ()' : '') . $having;
		return { sql => 'SELECT ' . join(', ', map { "$forms->[$_] AS a$_" } 0 .. $#names) . " FROM ($query) q", names => \@names };
	},
	# arguments that must be evaluated as often as in core, and in the same order
	volatile => sub {
		my @list = map { pick(map({ "$_(DISTINCT tick() % 50)" } 'count', 'sum'), 'percentile_cont(0.5) WITHIN GROUP (ORDER BY tick())', 'percentile_disc(0.3) WITHIN GROUP (ORDER BY tick() DESC)', 'mode() WITHIN GROUP (ORDER BY tick() % 4)',
				'count(DISTINCT i4) FILTER (WHERE tick() % 3 > 0)', 'count(DISTINCT i4 # tick() % 7)', 'count(DISTINCT i4)', 'sum(tick())', 'count(tick() > 5)') } 0 .. 1 + below(3);
		my @names = map { "a$_" } 0 .. $#list;
		return { sql => 'SELECT q.*, current_setting(\'test.ticks\') AS ticks FROM (SELECT ' . named(\@names, @list) . ' FROM t WHERE id <= 2000 OFFSET 0) q', names => [ 'ticks', @names ], };
	},
	# a fraction or an argument is wrong, unless there is no row
	error => sub {
		my $wrong = pick('2', '-1e-9', "'NaN'", '1.000001', "'-Infinity'") . '::float8';
		my $bad = pick('count(DISTINCT 1 / (id - id))', 'sum(1 / (id - id))', 'mode() WITHIN GROUP (ORDER BY (2000 + id)::small)', 'json_object_agg(NULL::text, id)', 'max(id) FILTER (WHERE 1 / (id - id) > 0)',
			"percentile_cont($wrong) WITHIN GROUP (ORDER BY i4)", "percentile_disc(ARRAY[0.5, NULL, $wrong]) WITHIN GROUP (ORDER BY d)", 'string_agg((id / (id - id))::text, x)', 'own_sum((2147483640 + mid)::int)');
		my $mode = pick('', ', mode() WITHIN GROUP (ORDER BY i4)');
		my $from = pick('t', 't WHERE false', 't WHERE i4 IS NULL');
		return { sql => "SELECT attempt(\$e\$SELECT count(*) FROM (SELECT $bad$mode FROM $from" . pick('', ' GROUP BY few', ' GROUP BY mid', ' GROUP BY mid') . ' OFFSET 0) q$e$) AS e', names => ['e'], };
	},
	# the planner makes the subquery's rows unique, by the operator of IN
	in => sub {
		my ($c) = @_;
		my ($outer, $inner) = @{ pick([ 'b.id', 'mid' ], [ 'b.id', 'many' ], [ 'b.big', 'mid' ], [ 'b.n', 'n' ], [ 'b.o', 'ROW(coalesce(mid, 0))::odd' ], [ 'b.e', 'ROW(coalesce(mid, 0))::even' ], [ '(b.id, b.small)', 'mid, few' ],
				[ 'b.x', 'x' ], [ 'b.id', 'f8' ], [ 'b.x', 'x COLLATE "' . pick(@{ $c->{collations} // ['C'] }) . '"' ]) };
		return { sql => expand("SELECT b.id, b.small FROM b WHERE " . ($outer =~ /[oe]$/ ? 'b.id < 30 AND ' : '') . "$outer IN (SELECT $inner FROM t WHERE <where>) ORDER BY 1, 2", $c), names => [ 'id', 'small' ],
			settings => { map { $_ => 'off' } 'enable_hashjoin', 'enable_seqscan', 'enable_mergejoin' } };
	},
	# columns that depend on the primary key, groups of groups, subplans, recursion, whole rows
	nested_groups => sub {
		my ($sql, $names) = @{ pick([ 'SELECT * FROM (SELECT ' . pick('b.*, count(*) AS c', 'b.x, b.id, b.small + 1 AS s', 'b.id, b AS w, sum(t.i4) AS c', 'b.small, b.id, max(t.id) - b.id AS c') . ' FROM b '
					. pick('LEFT JOIN', 'JOIN', 'RIGHT JOIN') . ' t ON b.id = t.mid GROUP BY b.id OFFSET 0) q ORDER BY id', ['id'] ],
				[ 'SELECT * FROM (SELECT few, mid, count(*) AS c FROM t GROUP BY few, mid) a ' . pick('JOIN', 'LEFT JOIN', 'FULL JOIN') . ' (SELECT mid, few, max(id) AS m FROM t GROUP BY mid, few) z USING (mid, few) ORDER BY mid, few, c, m',
					[ 'mid', 'few', 'c', 'm' ] ],
				[ 'SELECT count(*) AS c FROM (SELECT DISTINCT <group> FROM t LIMIT ' . pick(1, 7, 300) . ') q', ['c'] ],
				[ 'SELECT a, count(*) AS c FROM (SELECT mid, few, count(*) AS a FROM t GROUP BY mid, few) q GROUP BY a ORDER BY a', [ 'a', 'c' ] ],
				[ 'WITH RECURSIVE r AS (SELECT DISTINCT few AS k, 0 AS depth FROM t UNION ALL SELECT * FROM (SELECT DISTINCT (r.k + b.small) % 50, r.depth + 1 FROM r JOIN b ON b.id % 10 = r.k WHERE r.depth < 3) q) '
					. 'SELECT k, depth, count(*) AS c FROM r GROUP BY k, depth ORDER BY 1, 2', [ 'k', 'depth', 'c' ] ],
				[ 'SELECT o.r, (' . pick('SELECT count(*) FROM (SELECT DISTINCT c1 FROM t WHERE id % 5 <> o.r) q', 'SELECT max(c) FROM (SELECT count(*) AS c FROM t WHERE few = o.r GROUP BY mid) q',
					'SELECT sum(c) FROM (SELECT mid, count(*) AS c FROM t GROUP BY mid) q') . ') AS c, o.r IN (SELECT few FROM t GROUP BY few, mid) AS i FROM generate_series(0, 4) o(r) ORDER BY 1', [ 'r', 'c', 'i' ] ],
				(map { [ $_, [ 'few', 'mid', 'c' ] ] } 'SELECT few, mid, count(w) AS c FROM (SELECT few, mid, (t.*)::text AS w FROM t) q GROUP BY few, mid ORDER BY few, mid',
					'SELECT few, mid, sum(hashtext(t::text)) AS c FROM t GROUP BY few, mid ORDER BY few, mid', 'SELECT few, mid, count(t) AS c FROM t GROUP BY tableoid, few, mid ORDER BY few, mid, tableoid',
					'SELECT few, mid, count(*) AS c FROM (SELECT few, mid, t.*::text AS w FROM t GROUP BY few, mid, t.*::text OFFSET 0) q GROUP BY few, mid ORDER BY few, mid',
					'SELECT few, mid, max(ctid) AS c FROM t GROUP BY few, mid ORDER BY few, mid', 'SELECT few, mid, count(*) AS c FROM (SELECT DISTINCT few, mid, ctid, tableoid::regclass FROM t OFFSET 0) q GROUP BY few, mid ORDER BY few, mid')) };
		return { sql => expand($sql, $_[0]), names => $names, };
	});

# ----------------------------------------------------------------
# Ways: how the query stands in another one, or is read
# ----------------------------------------------------------------

my $off = sub { return { map { $_ => 'off' } @_ } };

my %ways = (
	plain => sub { return $_[0] },
	loop => sub { return { %{ $_[0] }, how => 'loop' } },
	prepared => sub {
		my ($q) = @_;
		# these may not be negative, or NULL
		my @values = $q->{sql} =~ /(?:LIMIT|OFFSET|FIRST)[^)]*\$2/ ? (1, 2, 3, 20, 0, 300) : (1, 1, 2, 3, 20, 0, -1, 'NULL');
		return { %$q, how => 'prepared', steps => [ '(float8, ' . pick('smallint', 'int', 'int', 'bigint') . ')', '(' . pick('0.3', '1', 'NULL', '0') . ', ' . pick(@values) . ')' ] };
	},
	lateral => sub {
		my ($q) = @_;
		# without it, the query would not depend on the outer row
		my $skips = $q->{sql} !~ /\bo\.[rf]\b/;
		my $sql = $skips ? "SELECT * FROM ($q->{sql}) z OFFSET abs(coalesce(o.r, 0)) % 2" : "$q->{sql}";
		my @names = ('r', @{ $q->{names} });
		# the sort is rewound for the second row of v, and then gets another bound
		($sql, @names) = ("SELECT v.y, i.* FROM (VALUES (1), (2)) v(y) LEFT JOIN ($sql) i ON true", 'r', 'y', @{ $q->{names} }) if chance(40) && $sql !~ /place <= o\.r/;
		# When core's parallel workers start again, they keep the first limit and lose rows.  Core keeps a hash table, and the rows of
		# a sort that it may rewind, if only a run condition below has another value.
		my %more = ($sql =~ /LIMIT|FETCH/ ? (max_parallel_workers_per_gather => 0) : (), $sql =~ /place <= o\.r/ ? (enable_hashagg => 'off') : ());
		return { %$q, sql => "SELECT o.r, l.* FROM (VALUES (3, 0.5), (3, 0.1), (NULL, NULL), (-1, 0.7), (4000, 1::float8)) o(r, f), LATERAL ($sql) l", names => \@names, rows => $q->{rows} && !$skips,
			settings => { %{ $q->{settings} // {} }, %{ $off->('enable_material', 'enable_hashjoin', 'enable_mergejoin') }, %more } };
	},
	cursor => sub {
		my ($q, $c) = @_;
		my $n = $c->{table}{rows};
		my $how = pick('SCROLL CURSOR', 'SCROLL CURSOR', 'SCROLL CURSOR WITH HOLD', 'NO SCROLL CURSOR');
		my @steps = map { pick('FETCH FORWARD ' . pick(1, 5, 100), 'MOVE FORWARD ' . below($n + 2), 'FETCH NEXT', $how =~ /NO/ ? () : ('FETCH BACKWARD ' . pick(1, 5, 100), 'FETCH FIRST', 'FETCH LAST', 'FETCH ABSOLUTE ' . (below($n + 3) - 1),
				'FETCH RELATIVE ' . (below(21) - 10), 'MOVE BACKWARD ALL', 'MOVE BACKWARD ' . below($n + 2), 'MOVE LAST', 'FETCH PRIOR')) } 1 .. 3 + below(10);
		push @steps, $how =~ /NO/ ? () : 'MOVE ABSOLUTE 0', 'FETCH FORWARD 3000';
		return { %$q, how => $how, steps => \@steps, rows => 0 };
	},
	cte => sub { my ($q) = @_; return { %$q, sql => "WITH q AS MATERIALIZED ($q->{sql}) SELECT * FROM q UNION ALL SELECT * FROM q" } },
	nested => sub {
		my ($q) = @_;
		my $first = $q->{names}[0];
		return { %$q, sql => "SELECT $first, count(*) AS c FROM ($q->{sql}) q GROUP BY $first ORDER BY 1", names => [ $first, 'c' ], rows => 0 } if $q->{rows} && chance(50);
		return { %$q, sql => "SELECT * FROM ($q->{sql}) q LIMIT " . pick(7, 300), rows => 0 };
	},
	join => sub { my ($q) = @_; return { %$q, sql => "SELECT q.* FROM generate_series(1, 3) j LEFT JOIN (SELECT * FROM ($q->{sql}) z OFFSET 0) q ON " . pick('true', 'j <> 2', 'j = 7'), settings => { %{ $q->{settings} // {} }, %{ $off->('enable_hashjoin', 'enable_mergejoin', 'enable_material') } } } },
	subselect => sub { my ($q) = @_; return { %$q, sql => "SELECT r, (SELECT $q->{names}[-1] FROM ($q->{sql}) q LIMIT 1 OFFSET r * 3) AS c FROM generate_series(0, 4) r", names => [ 'r', 'c' ], rows => 0 } });

# make_case(TABLE, HOW => ...): a case for compare_call(), and its {kind}.
#
#   forms, ways => [...]        names to pick from
#   rules => {...}              in place of those of %rules
#   collations => [...]         of keys
#   settings => {NAME => [...]} for both runs, beside those below: values to pick from
#   with => {NAME => [...]}     for the run with GpuSort
sub make_case
{
	my ($table, %want) = @_;
	my ($form, $way) = (pick(@{ $want{forms} }), pick(@{ $want{ways} // [ ('plain') x 6, 'prepared', 'prepared', ('lateral') x 3, 'cursor', 'cursor', 'loop', 'cte', 'nested', 'join' ] }));
	$way = 'plain' if $form =~ /^(?:update|nested_groups|volatile|error)$/;
	my %c = (%want, table => $table, way => $way);
	my $q = $forms{$form}->(\%c);
	my %case = (how => 'table', steps => [], rows => 0, settings => {}, %{ $ways{$way}->($q, \%c) }, kind => "$form, $way");
	my %set = (work_mem => [ '64kB', '64kB', '256kB', '4MB', '64MB' ], max_parallel_workers_per_gather => [ 0, 0, 1, 2 ], parallel_leader_participation => [ 'on', 'on', 'off' ], plan_cache_mode => [ 'force_generic_plan', 'force_generic_plan', 'force_custom_plan' ],
		enable_hashagg => [ 'on', 'off', 'off' ], 'test.ticks' => [0], (map { $_ => [ 'on', 'on', 'off' ] } 'enable_material', 'enable_seqscan', 'enable_incremental_sort', 'enable_hashjoin', 'enable_partitionwise_aggregate'),
		(map { $_ => [0] } 'parallel_setup_cost', 'parallel_tuple_cost', 'min_parallel_table_scan_size'), %{ $want{settings} // {} }, map { $_ => [ $case{settings}{$_} ] } keys %{ $case{settings} });
	# which of several equal values a group shows depends on the process that has read it
	$set{max_parallel_workers_per_gather} = [0] if $case{sql} =~ /\bk\d+::text COLLATE/;
	my %with = ('gpusort.memory_limit' => [ '64kB', '64kB', '200kB', '1MB', '4MB', '1GB' ], 'gpusort.force' => ['on'], %{ $want{with} // {} });
	$case{both} = [ map { $_ => pick(@{ $set{$_} }) } sort keys %set ];
	$case{with} = [ map { $_ => pick(@{ $with{$_} }) } sort keys %with ];
	return \%case;
}

1;
