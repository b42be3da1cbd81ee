# A sort that takes rows from the pages of a table (src/scan/page.c) returns the rows of core's
# Seq Scan, whatever transactions have done to the table or are doing.
#
# Each table has random columns, NULLs, fillfactor and persistence, columns that were dropped, added
# or generated, wide and toasted values, or partitions of other layouts.  Writers change
# it in transactions that stay open, end, fail or roll back to savepoints, and vacuum it.
# In between, a reader runs random queries twice for one snapshot, with gpusort.enabled = off
# and on, at each isolation level, and reads pairs of cursors while the table changes.  The sessions
# take turns, so that a seed repeats the cases.
#
#   SEED=n    repeats the cases of an earlier run; printed when a case fails
#   CASES=n   300 by default
#
# Then come write skews, rows that are checked again because another transaction has
# changed them (EvalPlanQual), and writers that do not wait for the reader.

use strict;
use warnings;

use GpusortTest;
use List::Util qw(shuffle);
use RandomTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($seed, $cases) = begin_cases(300);

# scans of more than a quarter of shared_buffers are synchronized
my $node = new_node('pages_random', order_by => 1, settings => <<'CONF');
gpusort.engine = cpu
gpusort.min_rows = 0
shared_buffers = 1MB
max_parallel_workers = 4
parallel_setup_cost = 0
parallel_tuple_cost = 0
min_parallel_table_scan_size = 0
enable_indexscan = off
enable_indexonlyscan = off
enable_bitmapscan = off
autovacuum = off
restart_after_crash = on
deadlock_timeout = 50ms
CONF
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION gpusort');
my @stored = ('STORED', $node->safe_psql('postgres', 'SHOW server_version_num') >= 180000 ? 'VIRTUAL' : ());

# Sessions have a number, and may be in a transaction (open) with a savepoint (saved).
my @sessions = map { session($node) } 0 .. 3;
$sessions[$_]{number} = $_ foreach 0 .. 3;
my ($reader, @writers) = @sessions;
# after an error, these go on in the transaction
$_->{in} .= "\\set ON_ERROR_ROLLBACK on\n" foreach $reader, $writers[0];
answer($_, 'SET lock_timeout = 1', 'SET statement_timeout = 20000') foreach @sessions;

# statements since a table was made, what was wrong with them, and numbers of things done
my (@history, @bad);
my ($tables, $done, $used, $parallel, $moved) = (0, 0, 0, 0, 0);

sub perform
{
	my ($session, @statements) = @_;
	push @history, map { "$session->{number}: $_;" } @statements;
	$session->{err} = '';
	my $out = answer($session, @statements);
	push @bad, "$statements[-1]: $session->{err}" if $session->{err} =~ /statement timeout|buffers|could not (open|read)/;
	die join("\n", "SEED=$seed CASES=$cases, a session has ended: $session->{err}", @history) if !$session->{psql}->pumpable;
	return $out;
}

# Kinds of columns: the type, a value in terms of R, a random int8, and a constant to compare with
my %kinds = (
	int => [ 'int', 'R % 100', sub { below(200) - 100 } ],
	int2 => [ 'int2', 'R % 10', sub { below(12) } ],
	int8 => [ 'int8', 'R', sub { pick(0, '-4611686018427387904', '4611686018427387904') } ],
	float8 => [ 'float8', "CASE WHEN R % 9 = 0 THEN 'NaN' ELSE R % 1000 / 7.0 END", sub { pick("'NaN'", "'-3.5'", "'20'") . '::float8' } ],
	bool => [ 'bool', 'R % 3 = 0', sub { pick('true', 'false') } ],
	timestamp => [ 'timestamp', "timestamp '2020-01-01' + R % 1000000 * interval '1 s'", sub { "timestamp '2020-01-0" . (1 + below(9)) . "'" } ],
	numeric => [ 'numeric', 'R % 1000 / 8.0', sub { below(100) } ],
	text => [ 'text', 'left(md5(R::text), (abs(R) % 30)::int)', sub { pick("''", "'3'", "'8'", "'c'", "'ffff'") } ],
	number => [ 'int8', 'i', sub { below(4000) } ],
	wide => [ 'text', "repeat('w', 1500) || R", sub { "'w5'" } ],
	toasted => [ 'text', "repeat(md5((R % 50)::text), 100)", sub { "'8'" } ]);
my @plain = grep { !/number|wide|toasted/ } sort keys %kinds;

# A column; its value depends on the row's number, i.
sub column
{
	my ($name, $kind, $value) = @_;
	my ($salt, $nulls) = (below(1_000_000), pick(0, 0, 0, 5, 50, 100));
	my $random = $kinds{$kind}[1] =~ s/\bR\b/hashint8extended(i, $salt)/gr;
	$random = "CASE WHEN abs(hashint8extended(i, $salt + 1) % 100) >= $nulls THEN $random END" if $nulls;
	return { name => $name, kind => $kind, type => $kinds{$kind}[0], value => $value // $random };
}

# A statement that adds n rows, with new numbers.
sub insertion
{
	my ($table, $n) = @_;
	my @columns = grep { $_->{value} } @{ $table->{columns} };
	my $first = $table->{next};
	$table->{next} += int($n);
	return "INSERT INTO $table->{name} (" . join(', ', map { $_->{name} } @columns) . ') SELECT ' . join(', ', map { $_->{value} } @columns)
	  . " FROM generate_series($first\::int8, " . ($table->{next} - 1) . ') AS i';
}

sub make_table
{
	my $name = 't' . ++$tables;
	my $parts = chance(25) ? pick('HASH (id)', 'LIST (p)') : '';
	my $persistence = $parts ? '' : pick('', '', '', 'UNLOGGED', 'TEMP');
	my $big = chance(25) ? pick('wide', 'toasted') : '';
	my @of = chance(40) ? grep { !/text|numeric/ } @plain : @plain;
	my @gone = chance(40) ? column('gone', pick(@of)) : ();
	my @columns = ((map { column("c$_", pick(@of)) } 1 .. 1 + below(5)), column('id', 'number', 'i'), $big ? column('big', $big) : ());
	push @columns, column('p', 'int2', '(i % 4)::int') if $parts =~ /p/;
	push @columns, { name => 'made', kind => 'number', type => 'int8 GENERATED ALWAYS AS (id * 2) ' . pick(@stored) } if chance(25);
	my @first = shuffle(@columns, @gone);
	@columns = grep { $_->{name} ne 'gone' } @first;
	my $drop = @gone ? "ALTER TABLE $name DROP COLUMN gone" : 'SELECT';
	my $definitions = sub { join ', ', map { "$_->{name} $_->{type}" } @_ };
	my $fill = sub { chance(50) ? ' WITH (fillfactor = ' . (10 + below(91)) . ')' : '' };
	my %table = (name => $name, columns => $parts ? \@columns : \@first, parts => $parts, owner => $persistence eq 'TEMP' ? $reader : $writers[0],
		next => 1, rows => $big ? pick(1, 30, 400) : pick(0, 1, 40, 1000, 3000, 5000));

	my @ddl = "CREATE $persistence TABLE $name (" . $definitions->(@first) . ')' . ($parts ? " PARTITION BY $parts" : $fill->());
	push @ddl, "ALTER TABLE $name ALTER big SET STORAGE " . ($big eq 'wide' ? 'PLAIN' : 'EXTERNAL') if $big;
	my @bounds = $parts =~ /p/ ? ('FOR VALUES IN (0)', 'FOR VALUES IN (1)', 'DEFAULT') : map { "FOR VALUES WITH (MODULUS 3, REMAINDER $_)" } 0 .. 2;
	push @ddl, (map { "CREATE TABLE ${name}_$_ PARTITION OF $name $bounds[$_]" . $fill->() } 0, 1), $drop,
	  "CREATE TABLE ${name}_2 (other int, " . $definitions->(shuffle(@columns)) . ')' . $fill->(),
	  "ALTER TABLE ${name}_2 DROP COLUMN other", "ALTER TABLE $name ATTACH PARTITION ${name}_2 $bounds[2]" if $parts;
	push @ddl, insertion(\%table, $table{rows}), $parts ? () : $drop;
	$table{columns} = \@columns;
	if (chance(40))
	{
		push @columns, column('late', pick(@of));
		push @ddl, "ALTER TABLE $name ADD COLUMN late $columns[-1]{type}" . (chance(80) ? ' DEFAULT ' . $kinds{ $columns[-1]{kind} }[2]->() : ''),
		  chance(70) ? insertion(\%table, $table{rows} / 2) : ();
	}
	push @ddl, (map { "CREATE INDEX ON $name ($_)" } grep { !/big|made/ && chance(40) } 'id', $columns[0]{name}), chance(70) ? "ANALYZE $name" : ();
	foreach (@ddl)
	{
		perform($table{owner}, $_);
		push @bad, "$_: $table{owner}{err}" if $table{owner}{err} =~ /ERROR/;
	}
	return \%table;
}

# A statement that changes or locks rows, mostly the session's own.
sub change_of
{
	my ($table, $who) = @_;
	my ($kind, $m, $name) = (below(10), pick(2, 3, 7, 20, 100), $table->{name});
	my $where = "WHERE id % $m = " . below($m) . (chance(70) ? " AND id / 100 % 4 = $who->{number}" : '');
	my $column = pick(grep { $_->{value} && $_->{name} ne 'id' } @{ $table->{columns} });
	return insertion($table, 1 + below($table->{rows} < 500 ? 10 : pick(10, 300))) if $kind < 2;
	return "DELETE FROM $name $where AND id % 5 = " . below(5) if $kind < 4;
	return "SELECT count(*) FROM (SELECT FROM $name $where FOR " . pick('UPDATE', 'NO KEY UPDATE', 'SHARE', 'KEY SHARE') . ') AS s' if $kind < 6;
	return "UPDATE $name SET $column->{name} = " . ($column->{value} =~ s/\bi\b/"(id + " . below(1000) . ')'/ger) . " $where";
}

# To truncate the table, VACUUM would wait for a lock for 5 seconds.
sub vacuum_of { return pick('VACUUM (TRUNCATE off)', 'VACUUM (FREEZE, TRUNCATE off)', 'ANALYZE') . " $_[0]->{name}" }

sub begin
{
	my ($who, @levels) = @_;
	perform($who, 'BEGIN ISOLATION LEVEL ' . pick(@levels));
	return @$who{ 'open', 'saved' } = (1, 0);
}

sub end
{
	my ($who) = @_;
	perform($who, pick('COMMIT', 'COMMIT', 'ROLLBACK')) if $who->{open};
	return $who->{open} = 0;
}

# Writers, and the reader in its transaction, do up to $most things.
sub change
{
	my ($table, $most) = @_;
	foreach (1 .. below($most + 1))
	{
		my $who = pick($table->{owner} == $reader ? $reader : (@writers, $reader->{open} ? $reader : ()));
		my ($open, $what) = ($who->{open}, below(100));
		if ($what < 20 && $open && $who != $reader) { end($who) }
		elsif ($what < 20 && !$open) { perform($who, vacuum_of($table)) }
		elsif ($what < 50 && !$open && $who != $reader) { begin($who, 'READ COMMITTED', 'REPEATABLE READ') }
		elsif ($what < 35 && $open) { perform($who, $who->{saved}++ && chance(70) ? 'ROLLBACK TO s' : 'SAVEPOINT s') }
		else { perform($who, change_of($table, $who)) }
	}
	return;
}

sub comparison
{
	my ($column) = @_;
	my ($constant, $operator) = ($kinds{ $column->{kind} }[2]->(), pick('<', '<=', '>', '>=', '<>', '='));
	return chance(70) ? "$column->{name} $operator $constant" : "$constant $operator $column->{name}";
}

sub make_query
{
	my ($table, $kind) = @_;
	my ($from, @columns) = ("$table->{name} AS x", shuffle(@{ $table->{columns} }));
	my @names = map { $_->{name} } @columns;
	my $some = join ', ', (shuffle(@names))[ 0 .. below(scalar @names) ];
	my $targets = pick('*', '*', $some, $some, $some, $names[0], "ctid, $some", "tableoid, xmin, ctid, $names[0]", 'x', "x, $some", "$some, $names[0]::text || 'e' AS e");
	# the last key is unique
	my @keys = ((grep { $_ ne 'id' } @names[ 0 .. below(@names > 1 ? 3 : 2) - 1 ]), chance(8) ? "length($names[0]::text)" : (),
		pick('id', 'id', $table->{parts} ? 'tableoid, ctid' : 'ctid'));
	my @quals = map { comparison(pick(@columns)) } 1 .. pick(0, 0, 1, 1, 2, 3);
	push @quals, pick("$names[0] IS NOT NULL", 'id % 3 > 0', comparison(pick(@columns)) . ' OR ' . comparison(pick(@columns)), 'random() >= 0',
		"length($names[0]\::text) > 2", "ctid::text LIKE '%1)'", 'id = ANY (ARRAY[1, 3, 5, 70, 71, 2000])', 'id > (SELECT 20)',
		"id IN (SELECT id % 1000 FROM $table->{name})") if chance(25);
	my $where = @quals ? 'WHERE ' . join(' AND ', map { "($_)" } shuffle(@quals)) : '';
	my $order = 'ORDER BY ' . join(', ', directions(@keys));
	my $of = pick(grep { $_->{kind} =~ /^(int|int8|number|float8|timestamp)$/ } @columns)->{name};
	my $query = "SELECT $targets FROM $from $where $order";
	my %queries = (
		plain => $query,
		limit => "$query LIMIT " . pick(1, 10, 300, 2000),
		early => "SELECT * FROM ($query OFFSET 0) AS s WHERE random() >= 0 LIMIT " . pick(1, 20, 500),
		lock => "$query FOR " . pick('UPDATE', 'SHARE', 'NO KEY UPDATE', 'KEY SHARE') . pick('', ' SKIP LOCKED', ' SKIP LOCKED'),
		sample => "SELECT $targets FROM $from TABLESAMPLE " . pick('SYSTEM', 'BERNOULLI') . '(' . below(101) . ") REPEATABLE (1) $where $order",
		lateral => "SELECT o, s.* FROM generate_series(1, 3) AS o, LATERAL (SELECT $targets FROM $from WHERE id % 4 <> o $order OFFSET 0) AS s",
		join => "SELECT x.*, y.id AS other FROM $from JOIN (SELECT * FROM $table->{name} $where) AS y ON x.id = y.id * 2 ORDER BY x.id",
		aggregate => 'SELECT ' . pick("gpu_sort_agg($of)", "percentile_disc(0.5) WITHIN GROUP (ORDER BY $of)", "count(DISTINCT $of), gpu_sort_agg(id)") . " FROM $from $where");
	return $queries{$kind};
}

my @kinds = (('plain') x 8, ('aggregate') x 3, qw(limit limit early lock lock sample lateral join));

# Notes what was wrong with a query, and how it was planned.
sub judge
{
	my ($query, $core, $ours) = @_;
	my $plan = perform($reader, "EXPLAIN (COSTS OFF) $query");
	$done++;
	$used++ if $plan =~ /GpuSort/;
	$parallel++ if $plan =~ /GpuSort/ && $plan =~ /Workers Planned/;
	push @bad, "core:    $core\ngpusort: $ours\n$query\n$plan" if $core ne $ours || ($core =~ /ERROR/ && $query !~ /FOR (UPDATE|SHARE|NO|KEY)/);
	return;
}

# The reader runs a query in both ways.
sub compare
{
	my ($table, $kind) = @_;
	my $query = make_query($table, $kind);
	my $all = "SELECT md5(string_agg(x::text, ',' ORDER BY r)), count(*) FROM (SELECT s AS x, row_number() OVER () AS r FROM ($query OFFSET 0) AS s) AS y";
	my ($joins, $workers) = ($kind eq 'join' ? 'off' : 'on', pick(0, 0, 1, 2, 4));
	# other plans may read other rows
	my $counted = $workers == 0 && $kind =~ /plain|limit|aggregate/ && $query !~ /\(SELECT/;
	my $count = sub { $counted ? perform($reader, 'SELECT sum(seq_tup_read) FROM pg_stat_xact_user_tables') : 0 };
	perform($reader, map { "SET LOCAL $_" } "enable_hashjoin = $joins", "enable_nestloop = $joins", "max_parallel_workers_per_gather = $workers",
		'gpusort.memory_limit = ' . (chance(15) ? "'1MB'" : 'DEFAULT'));
	my @answers = map {
		# where the first of these scans stops, the next synchronized ones start
		my ($place) = perform($reader, "SET LOCAL gpusort.enabled = $_", "SELECT max(id) FROM (SELECT id FROM $table->{name} LIMIT " . below(4000) . ') AS s',
			"SELECT ctid FROM $table->{name} LIMIT 1") =~ /\((\d+),\d+\)$/;
		$moved++ if $place && $place > 15;
		my $before = $count->();
		my $rows = perform($reader, $kind eq 'lock' ? ('SAVEPOINT q', $all, 'ROLLBACK TO q') : $all);
		"$rows $reader->{err} reads " . ($count->() - $before)
	} 'off', 'on';
	judge($all, @answers);
	return if !$counted;
	my ($core, $ours) = map {
		join ' ', perform($reader, "SET LOCAL gpusort.enabled = $_", "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF) $query") =~ /(Seq Scan.*|Rows Removed by Filter.*)/g
	} 'off', 'on';
	push @bad, "$query: core counts $core, gpusort $ours" if $core ne $ours;
	return;
}

# The reader declares two cursors, which return the rows of that moment whatever happens then.
sub compare_cursors
{
	my ($table) = @_;
	my ($scroll, $hold) = (chance(60), chance(40));
	my $declare = ($scroll ? 'SCROLL' : 'NO SCROLL') . ' CURSOR ' . ($hold ? 'WITH HOLD ' : '') . 'FOR ' . make_query($table, pick('plain', 'limit'));
	my @pair = ([ 'off', 'core' ], [ 'on', 'ours' ]);
	judge("DECLARE other $declare", map { perform($reader, "SET LOCAL gpusort.enabled = $$_[0]", "DECLARE $$_[1] $declare"); $reader->{err} } @pair);
	# to go back to it would end the cursors
	$reader->{saved} = 0;
	foreach (1 .. 2 + below(5))
	{
		my $step = pick('FETCH ' . pick(1, 10, 100), 'MOVE ' . pick(1, 100, 3000), $scroll ? ('FETCH BACKWARD ' . pick(1, 10, 100), 'FETCH LAST', 'FETCH ABSOLUTE ' . below(1000)) : 'FETCH 20');
		my @undone = $reader->{open} && chance(20) ? ('SAVEPOINT f', 'ROLLBACK TO f') : ();
		my ($core, $ours) = map { perform($reader, $undone[0] // (), "$step FROM $$_[1]", $undone[1] // ()) . $reader->{err} } @pair;
		push @bad, "$step of $declare\ncore:    $core\ngpusort: $ours" if $core ne $ours || $core =~ /ERROR/;
		change($table, 4);
		next if !$hold || !$reader->{open} || chance(70);
		perform($reader, 'COMMIT');
		$reader->{open} = 0;
		change($table, 4);
	}
	perform($reader, 'CLOSE core', 'CLOSE ours');
	return;
}

sub report
{
	my ($name) = @_;
	note(join("\n", @history)) if @bad;
	ok(!@bad, $name) or diag(substr(join("\n", "SEED=$seed CASES=$cases, after the statements in the log:", @bad), 0, 3000));
	return @bad = @history = ();
}

srand($seed);
while ($done < $cases)
{
	my ($first, $table) = ($done, make_table());
	change($table, 10);
	foreach (1 .. 8)
	{
		begin($reader, 'READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE');
		if (chance(50))
		{
			# then the snapshot is old
			perform($reader, "SELECT count(*) FROM $table->{name}");
			change($table, 10);
		}
		if (chance(25)) { compare_cursors($table) }
		else { compare($table, pick(@kinds)), change($table, 3) foreach 1 .. 1 + below(2) }
		end($reader);
		change($table, 5);
	}
	end($_) foreach @writers;
	perform($table->{owner}, "DROP TABLE $table->{name}");
	report("table $tables, " . ($done - $first) . ' cases');
}
note("$parallel sorts with parallel workers, $moved scans started inside the table");
cmp_ok($used, '>=', $done * 0.8, "$used of $done plans had a GpuSort");

# $core and $ours are the answers; each of the statements must have a GpuSort
sub same { return ok($_[1] eq $_[0], $_[2]) || diag("core:    $_[0]\ngpusort: $_[1]") }
sub has_node { return ok(ask($node, "EXPLAIN $_[0]") =~ /GpuSort/, "GpuSort: $_[0]") }
sub both_ways { my ($run) = @_; return map { $run->($_) } 'off', 'on' }

# Each of two transactions writes what the other one has read, and one must fail.
my ($one, $two) = @writers;
perform($one, 'CREATE TABLE skew AS SELECT i AS id, i % 50 AS k FROM generate_series(1, 1000) AS i');
foreach my $query ('SELECT * FROM skew ORDER BY k, id', 'SELECT id FROM skew WHERE k > 0 ORDER BY id', 'SELECT gpu_sort_agg(k) FROM skew')
{
	has_node($query);
	foreach my $order ('read 1, read 2, write 1, write 2, end 1, end 2', 'read 1, write 1, read 2, write 2, end 2, end 1')
	{
		my ($core, $ours) = both_ways(sub {
			my ($enabled, $log) = ($_[0], '');
			perform($one, 'UPDATE skew SET k = id % 50 WHERE k < 0');
			perform($_, 'BEGIN ISOLATION LEVEL SERIALIZABLE', "SET LOCAL gpusort.enabled = $enabled") foreach $one, $two;
			foreach (split /, /, $order)
			{
				my ($step, $number) = split;
				my %does = (read => $query, write => "UPDATE skew SET k = -1 WHERE id = $number", end => 'COMMIT');
				$log .= "$_: " . perform($sessions[$number], $does{$step}) . " $sessions[$number]{err}\n";
			}
			return $log;
		});
		ok($core =~ /could not serialize access/, "a write skew fails: $order");
		same($core, $ours, 'so it does with GpuSort');
	}
}

# An expression is evaluated once for a row.
same(both_ways(sub {
	return perform($one, "SET gpusort.enabled = $_[0]", 'CREATE SEQUENCE calls', "SELECT id FROM skew WHERE k > 3 ORDER BY nextval('calls') % 7, id", 'TABLE calls', 'DROP SEQUENCE calls');
}), 'volatile keys');

# A statement waits for rows that another transaction changes, and checks them again.
my $merge = 'SET enable_hashjoin = off; SET enable_nestloop = off';
ask($node, "$merge; CREATE TABLE r AS SELECT i AS k, i * 7 % 20 AS w FROM generate_series(0, 19) AS i; CREATE TABLE q (id int, k int, done int)");
foreach my $statement (
	'UPDATE q SET done = 1 FROM (SELECT id FROM q WHERE k < 100 ORDER BY k, id LIMIT 5 FOR UPDATE) AS s WHERE q.id = s.id RETURNING q.*',
	'UPDATE q SET done = w FROM r WHERE q.k = r.k AND w < 15 RETURNING q.*, w', 'SELECT * FROM q JOIN r USING (k) WHERE w < 15 FOR UPDATE OF q',
	'SELECT * FROM q WHERE k < 100 ORDER BY k, id FOR UPDATE', 'DELETE FROM q USING r WHERE q.k = r.k AND w < 15 RETURNING q.*, w',
	'UPDATE q SET done = (SELECT sum(w * n) FROM (SELECT w, row_number() OVER (ORDER BY w DESC) AS n FROM r WHERE r.k > q.k) AS s) WHERE id < 20 RETURNING *')
{
	has_node($statement);
	foreach my $change ('UPDATE q SET k = k + 1 WHERE id IN (10, 20)', 'UPDATE q SET k = 1000 WHERE id IN (10, 11)', 'UPDATE q SET done = 7 WHERE id = 10', 'DELETE FROM q WHERE id = 10')
	{
		my ($core, $ours) = both_ways(sub {
			my ($out, $err);
			ask($node, 'TRUNCATE q; INSERT INTO q SELECT i, i % 10, 0 FROM generate_series(1, 200) AS i');
			perform($one, 'BEGIN', $change);
			my $waiter = in_background($node, \$out, \$err, "$merge; SET gpusort.enabled = $_[0]", $statement);
			push @bad, 'nothing waits' if !poll($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'background' AND wait_event_type = 'Lock'");
			perform($one, 'COMMIT');
			$waiter->finish;
			# merge joins leave equal keys in any order
			return join("\n", $statement =~ /\br\b/ ? sort(split /\n/, $out) : $out, $err, ask($node, 'SELECT * FROM q ORDER BY id'));
		});
		same($core, $ours, "checked again after $change");
	}
}
report('all these statements had to wait');

# Writers do not wait for the reader.
foreach (1 .. 4)
{
	my ($table, @psqls, @out, @err) = (make_table());
	$table = make_table() while $table->{owner} == $reader || $table->{rows} < 300;
	foreach my $i (0, 1)
	{
		my @statements = map {
			chance(10) ? vacuum_of($table) : join('; ', 'BEGIN', (map { change_of($table, $writers[$i]) } 0 .. below(4)), pick('COMMIT', 'COMMIT', 'ROLLBACK'))
		} 1 .. 150;
		push @psqls, in_background($node, \$out[$i], \$err[$i], @statements);
	}
	my $first = $done;
	while (grep { $_->pumpable } @psqls)
	{
		begin($reader, 'REPEATABLE READ', 'SERIALIZABLE');
		compare($table, pick(grep { !/lock/ } @kinds));
		end($reader);
		$_->pump_nb foreach grep { $_->pumpable } @psqls;
	}
	$_->finish foreach @psqls;
	push @bad, grep { /terminat|corrupt|unexpected|could not open/ } @err;
	report('while others write, ' . ($done - $first) . ' cases');
}

leave($_) foreach @sessions;
end_session($node);
$node->stop;
done_testing();
