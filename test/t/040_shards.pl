# Foreign scans below a MergeAppend start together (src/node/start.c), and everything else is as
# with core's MergeAppend.
#
# A coordinator has partitioned tables of foreign tables.  Three foreign servers are databases
# of two clusters, so that each has a connection of its own.  The shards sort with gpusort.  The test
# compares rows and their order with those of core's plan (gpusort.enabled = off), also of
# equal rows.  That scans start together is shown by two shards of which each returns
# no row before it has seen the other's query.  Then come failing, slow and cancelled shards,
# rescans, cursors, prepared statements, savepoints, two partitions on one
# server, the plans that stay core's, a shard whose collation has another version, and shards
# that return rows in another order, about which the coordinator warns.

use strict;
use warnings;

use GpusortTest;
use RandomTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $settings = "max_parallel_workers_per_gather = 0\nautovacuum = off\n";
my $coordinator = new_node('coordinator', settings => $settings
	  . "session_preload_libraries = 'gpusort'\nenable_sort = off\nenable_hashjoin = off\nenable_material = off\n");
my $near = new_node('near', settings => $settings);
my $far = new_node('far', settings => $settings);
$coordinator->start;
if ($coordinator->safe_psql('postgres', "SELECT count(*) FROM pg_available_extensions WHERE name = 'postgres_fdw'") == 0)
{
	plan skip_all => "contrib's extension postgres_fdw is not installed";
}
$_->start foreach $near, $far;

my %shard = (a => [ $near, 'a' ], b => [ $near, 'b' ], c => [ $far, 'c' ]);
my $columns = 'id int, k int, few int, f float8, n numeric, at timestamptz, word text, bytes text COLLATE "C"';
$near->safe_psql('postgres', 'CREATE DATABASE a');
$near->safe_psql('postgres', 'CREATE DATABASE b');
$far->safe_psql('postgres', 'CREATE DATABASE c');
$coordinator->safe_psql('postgres', "CREATE EXTENSION postgres_fdw; CREATE TABLE t ($columns) PARTITION BY LIST (id)");

# Lets a partition of $table be table $remote of a shard.
sub attach
{
	my ($table, $server, $remote, $bounds) = @_;
	return "CREATE FOREIGN TABLE ${table}_${server}_$remote PARTITION OF $table $bounds SERVER $server OPTIONS (table_name '$remote');";
}

my $remainder = 0;
my $attach = "CREATE TABLE events ($columns) PARTITION BY HASH (id); CREATE TABLE twice ($columns) PARTITION BY HASH (id);"
  . "CREATE TABLE waiting (id int) PARTITION BY HASH (id); CREATE TABLE failing (id int) PARTITION BY HASH (id);"
  . "CREATE TABLE sleeping (id int) PARTITION BY HASH (id); CREATE TABLE nothing ($columns) PARTITION BY HASH (id);"
  . "CREATE TABLE local ($columns) PARTITION BY HASH (id);";
foreach my $name (sort keys %shard)
{
	my ($node, $database) = @{ $shard{$name} };
	my $bounds = 'FOR VALUES WITH (MODULUS 3, REMAINDER ' . $remainder++ . ')';
	$node->safe_psql($database, <<"SQL");
CREATE TABLE events ($columns);
INSERT INTO events SELECT i, CASE WHEN i % 11 <> 0 THEN hashint4(i) % 5000 END, i % 4,
  CASE WHEN i % 7 = 0 THEN 'NaN' WHEN i % 13 <> 0 THEN hashint4(i) / 7.0 END, hashint4(i) % 100 / 8.0,
  timestamptz '2026-01-01 UTC' + hashint4(i) % 1000 * interval '1 hour', md5((i % 900)::text), chr(65 + i % 50) || i % 3
  FROM generate_series(1, 9000) i WHERE abs(hashint4(i)::bigint) % 3 = $remainder - 1;
CREATE TABLE empty ($columns);
CREATE VIEW again AS SELECT * FROM events;
CREATE FUNCTION divide(i int) RETURNS int LANGUAGE plpgsql STABLE AS 'BEGIN RETURN i / (i - i); END';
CREATE VIEW broken AS SELECT divide(id) AS id FROM events;
CREATE FUNCTION sleep(i int) RETURNS int LANGUAGE plpgsql STABLE AS 'BEGIN PERFORM pg_sleep(600); RETURN i; END';
CREATE VIEW sleeper AS SELECT sleep(id) AS id FROM events;
-- waits until the other database of this cluster is or was asked for rows of this transaction
CREATE FUNCTION wait_for_other(i int) RETURNS int LANGUAGE plpgsql STABLE AS \$\$
BEGIN
  FOR n IN 1..100 * CASE WHEN current_setting('application_name') = 'patient' THEN 120 ELSE 1 END LOOP
    PERFORM pg_stat_clear_snapshot();
    IF EXISTS (SELECT FROM pg_stat_activity WHERE datname IN ('a', 'b') AND datname <> current_database() AND query LIKE 'FETCH%') THEN
      RETURN i;
    END IF;
    PERFORM pg_sleep(0.01);
  END LOOP;
  RAISE 'the other shard was not asked';
END \$\$;
CREATE VIEW waiter AS SELECT wait_for_other(oid::int) AS id FROM pg_class WHERE relname = 'events';
SQL
	my $host = $node->host;
	my $port = $node->port;
	$coordinator->safe_psql('postgres', <<"SQL");
CREATE SERVER $name FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname '$database',
  fetch_size '100', async_capable 'true', options '-c session_preload_libraries=gpusort -c gpusort.force=on');
CREATE USER MAPPING FOR CURRENT_USER SERVER $name;
SQL
	$attach .= attach('events', $name, 'events', $bounds) . attach('nothing', $name, 'empty', $bounds);
	$attach .= attach('failing', $name, $name eq 'b' ? 'broken' : 'events', $bounds);
	$attach .= attach('sleeping', $name, $name eq 'a' ? 'events' : 'sleeper', $bounds);
	$attach .= attach('waiting', $name, $name eq 'c' ? 'events' : 'waiter', $bounds);
	$attach .= $name eq 'a' ? "CREATE TABLE here PARTITION OF local $bounds;" : attach('local', $name, 'events', $bounds);
	# two partitions are on server b, and share a connection
	$attach .= attach('twice', $name eq 'c' ? 'c' : 'b', $name eq 'a' ? 'again' : 'events', $bounds);
}
$coordinator->safe_psql('postgres', $attach);
# waiters find the connections' name here
$coordinator->safe_psql('postgres', "ALTER SERVER $_ OPTIONS (ADD application_name 'patient')") foreach 'a', 'b';

sub explained
{
	my ($query, $before) = @_;
	return $coordinator->safe_psql('postgres', ($before // '') . "EXPLAIN (COSTS OFF) $query");
}

# Does a query return the same rows in the same order with GpuSort Start as with core, and
# does it raise no warning?
sub same
{
	my ($query, $name) = @_;
	my (undef, $got, $messages) = $coordinator->psql('postgres', $query, on_error_die => 1);
	my $core = $coordinator->safe_psql('postgres', "SET gpusort.enabled = off; $query");

	like(explained($query), qr/GpuSort Start/, "$name: scans start together");
	ok($got eq $core, "$name: rows and order are core's") or note(substr($got, 0, 500) . "\n----\n" . substr($core, 0, 500));
	is($messages, '', "$name: no warning");
	return $got;
}

# ----------------------------------------------------------------
# Plans
# ----------------------------------------------------------------

my $ordered = 'SELECT id, k FROM events ORDER BY k, id';
my @lines = split /\n/, explained($ordered);
like($lines[0], qr/^Custom Scan \(GpuSort Start\)/, 'the node is above the MergeAppend');
is(scalar(grep { /Async Foreign Scan/ } @lines), 3, 'each scan is asynchronous');
unlike(explained($ordered, 'SET gpusort.enabled = off;'), qr/GpuSort|Async/, 'gpusort.enabled = off leaves the plan to core');
unlike(explained($ordered, 'SET enable_async_append = off;'), qr/GpuSort|Async/, 'so does enable_async_append = off');
my %cores = (
	'parameters' => 'SELECT id FROM events WHERE k > (SELECT count(*) FROM pg_am) ORDER BY k',
	'row locks' => "$ordered FOR UPDATE",
	'scans that execute subplans' => 'SELECT id FROM events WHERE (k IN (SELECT oid::int FROM pg_am)) IS NOT NULL ORDER BY k',
	'a LIMIT above a local partition' => 'SELECT id, k FROM local ORDER BY k, id LIMIT 10');
foreach my $name (sort keys %cores)
{
	my $plan = explained($cores{$name});
	ok($plan =~ /Merge Append/ && $plan !~ /GpuSort Start|Async/, "left to core: $name") or note($plan);
}
like(explained('SELECT id, k FROM local ORDER BY k, id'), qr/GpuSort Start/, 'a partition may be local');

# ----------------------------------------------------------------
# Rows and their order
# ----------------------------------------------------------------

is($coordinator->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM events'), '9000|9000', 'the shards have all rows');
same($ordered, 'two columns');
same("SELECT id FROM events ORDER BY $_ LIMIT 4000 OFFSET 100", $_)
  foreach 'word', 'word DESC, id', 'few, word NULLS FIRST', 'k', 'few', 'few DESC, k NULLS FIRST', 'k DESC NULLS LAST, few', 'f DESC, k', 'n, f NULLS FIRST', 'at DESC, id', 'bytes, n', 'bytes DESC NULLS LAST, few';
my ($seed, $cases) = begin_cases(12);
srand($seed);
foreach my $i (1 .. $cases)
{
	my @names = sort { rand() <=> 0.5 } qw(k few f n at bytes);
	my $by = join ', ', directions(@names[ 0 .. 1 + below(3) ]);
	my $where = pick('', 'WHERE few = 2', 'WHERE k < 0', 'WHERE id % 1000 = 7');
	same("SELECT * FROM events $where ORDER BY $by" . pick('', ' LIMIT 17', ' OFFSET 333'), "SEED=$seed, $where $by");
}
is(same('SELECT * FROM nothing ORDER BY k', 'no rows'), '', 'no shard has a row');
same('SELECT * FROM twice ORDER BY k, n', 'two partitions on one server');
same('SELECT * FROM local ORDER BY k, id', 'a local partition');
same('SELECT DISTINCT ON (few, n) few, n, id FROM events ORDER BY few, n, id', 'DISTINCT ON');
same('SELECT k, count(*), max(id) OVER (ORDER BY k) FROM events GROUP BY k, id ORDER BY k, id', 'aggregates and windows');
same('SELECT e.id, w.id FROM (SELECT * FROM events ORDER BY k, id LIMIT 300 OFFSET 2) e JOIN (SELECT * FROM twice ORDER BY n, id LIMIT 200) w ON e.few = w.few ORDER BY 1, 2',
	'two in a join');
same('SELECT g, ARRAY(SELECT id FROM (SELECT id FROM events ORDER BY k, id LIMIT 350) s WHERE id > 10 * g) FROM generate_series(1, 3) g', 'rescans that read several batches');
same('SELECT g, ARRAY(SELECT id FROM (SELECT id FROM events ORDER BY k, id LIMIT 5) s WHERE id > 10 * g) FROM generate_series(1, 3) g', 'rescans within a batch');
same('SELECT g, ARRAY(SELECT id FROM (SELECT id FROM nothing ORDER BY k, id LIMIT 5) s WHERE id > 10 * g) FROM generate_series(1, 3) g', 'rescans of empty shards');
same('SELECT g, ARRAY(SELECT id FROM (SELECT id FROM twice ORDER BY k, id LIMIT 350) s WHERE id > 10 * g) FROM generate_series(1, 3) g', 'rescans on a shared connection');
like($coordinator->safe_psql('postgres', "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) $ordered"), qr/Scans Started: 3/, 'EXPLAIN ANALYZE counts the scans');

# ----------------------------------------------------------------
# Started together
# ----------------------------------------------------------------

is($coordinator->safe_psql('postgres', 'SELECT count(*) > 3 FROM (SELECT id FROM waiting ORDER BY id OFFSET 0) s'), 't', 'two shards sort at the same time');
$coordinator->safe_psql('postgres', "ALTER SERVER $_ OPTIONS (DROP application_name)") foreach 'a', 'b';
my (undef, undef, $error) = $coordinator->psql('postgres', 'SET gpusort.enabled = off; SELECT id FROM waiting ORDER BY id');
like($error, qr/the other shard was not asked/, "below core's MergeAppend, one after the other");

# ----------------------------------------------------------------
# Collations, as docs/sharding.md compares them
# ----------------------------------------------------------------

my $versions = <<'SQL';
  SELECT 'default' AS name, concat_ws(' ', datlocprovider, datcollate, d ->> 'datlocale', d ->> 'daticulocale', d ->> 'daticurules') AS locale,
         pg_database_collation_actual_version(oid) AS version
  FROM pg_database db, to_jsonb(db) d WHERE datname = current_database()
  UNION ALL
  SELECT collname, concat_ws(' ', collprovider, collcollate, c ->> 'colllocale', c ->> 'colliculocale', c ->> 'collicurules'),
         pg_collation_actual_version(oid)
  FROM pg_collation co, to_jsonb(co) c WHERE collprovider IN ('c', 'i')
SQL
my $compare = <<'SQL';
SELECT name, here.locale, here.version, there.locale, there.version
FROM collation_versions here FULL JOIN shard1_versions there USING (name)
WHERE (here.locale, here.version) IS DISTINCT FROM (there.locale, there.version);
SQL
$near->safe_psql('a', "CREATE VIEW collation_versions AS $versions");
$coordinator->safe_psql('postgres', "CREATE VIEW collation_versions AS $versions;"
	  . "CREATE FOREIGN TABLE shard1_versions (name name, locale text, version text) SERVER a OPTIONS (table_name 'collation_versions')");
is($coordinator->safe_psql('postgres', $compare), '', 'the shard has the same versions of collations');
$near->safe_psql('a', "CREATE OR REPLACE VIEW collation_versions AS SELECT name, locale, CASE name WHEN 'default' THEN '1.0' ELSE version END AS version FROM ($versions) v");
like($coordinator->safe_psql('postgres', $compare), qr/\Adefault\|.*\|1\.0\z/, 'another version is found');

# ----------------------------------------------------------------
# Shards that order otherwise
# ----------------------------------------------------------------

# Shard c has the numbers in a column of type text.  With ICU, shard a has another collation x,
# and shard b another collation of the column that is "C" here.
my $icu = has_icu($coordinator);
my %odd = (a => { locale => 'und-u-kf-upper' }, b => { plain => 'x' }, c => { n => 'text' });

sub collation_x
{
	my ($locale) = @_;
	return 'CREATE COLLATION x (' . ($icu ? "provider = icu, locale = '$locale'" : "locale = 'C'") . ');';
}
$coordinator->safe_psql('postgres', collation_x('und')
	. 'CREATE TABLE odd (id int, few int, n int, word text COLLATE x, plain text COLLATE "C") PARTITION BY HASH (id)');
$remainder = 0;
foreach my $name (sort keys %shard)
{
	my ($node, $database) = @{ $shard{$name} };
	my %is = (locale => 'und', plain => '"C"', n => 'int', %{ $odd{$name} });
	$node->safe_psql($database, collation_x($is{locale}) . <<"SQL");
CREATE TABLE odd (id int, few int, n $is{n}, word text COLLATE x, plain text COLLATE $is{plain});
INSERT INTO odd SELECT 3 * i + $remainder, i % 4, i % 50, w, w
  FROM generate_series(1, 600) i, LATERAL (SELECT chr((ARRAY[65, 97])[1 + i / 7 % 2] + i % 20) || i % 6 AS w) s;
SQL
	$coordinator->safe_psql('postgres', attach('odd', $name, 'odd', 'FOR VALUES WITH (MODULUS 3, REMAINDER ' . $remainder++ . ')'));
}

# Executes a query and returns what it warned of.
sub warned
{
	my ($query) = @_;
	my (undef, undef, $messages) = $coordinator->psql('postgres', $query, on_error_die => 1);
	return $messages;
}

# Does an order raise one warning, which names this server, and the sort column with its type?
sub warns
{
	my ($by, $server, $column, $type) = @_;
	my $query = "SELECT * FROM odd ORDER BY $by";
	my $messages = warned($query);
	is(warnings_in($messages), 1, "$by: one warning");
	like($messages, qr/foreign server "$server" are out of order, .*column $column of the sort, which is \Q$type\E here/s, "$by: the server and the column");
	is(warned("SET gpusort.enabled = off; $query"), '', "$by: core does not warn");
	is(warned("SELECT * FROM (SELECT * FROM odd OFFSET 0) s ORDER BY $by"), '', "$by: nor does gpusort if the coordinator sorts");
}

same('SELECT * FROM odd ORDER BY id', 'a column that all shards order alike');
warns('n', 'c', 1, 'integer');
warns('few DESC, n DESC NULLS FIRST, id', 'c', 2, 'integer');
SKIP:
{
	skip 'this server has no ICU', 12 if !$icu;
	warns('word', 'a', 1, 'text COLLATE x');
	warns('few, word DESC', 'a', 2, 'text COLLATE x');
	warns('plain, word', 'b', 1, 'text COLLATE "C"');
}
my $again = 'SELECT g, ARRAY(SELECT id FROM (SELECT id FROM odd ORDER BY n LIMIT 1000) s WHERE id > g) FROM generate_series(1, 3) g';
like(explained($again), qr/GpuSort Start/, 'a rescan');
is(warnings_in(warned($again)), 1, 'one warning if the merge is executed three times');
is(warnings_in(warned('PREPARE q AS SELECT id FROM odd ORDER BY n; EXECUTE q; EXECUTE q')), 2, 'two warnings of two executions');
is(warned('SELECT id FROM odd ORDER BY n LIMIT 50'), '', 'rows that are not fetched raise no warning');

# ----------------------------------------------------------------
# Cursors, prepared statements, transactions
# ----------------------------------------------------------------

my $reads = "FETCH 150 FROM c; MOVE 1000 IN c; FETCH 10 FROM c; FETCH ALL FROM c; CLOSE c;";
foreach my $kind ('NO SCROLL CURSOR FOR', 'CURSOR FOR', 'SCROLL CURSOR FOR')
{
	my $read = $kind =~ /^SCROLL/ ? "FETCH 20 FROM c; FETCH BACKWARD 10 FROM c; FETCH FIRST FROM c; FETCH LAST FROM c; FETCH ABSOLUTE 77 FROM c; CLOSE c;" : $reads;
	my @both = map { $coordinator->safe_psql('postgres', "$_ BEGIN; DECLARE c $kind $ordered; $read COMMIT") } '', 'SET gpusort.enabled = off;';
	is($both[0], $both[1], "a cursor: $kind");
}
my @held = map { $coordinator->safe_psql('postgres', "$_ BEGIN; DECLARE c CURSOR WITH HOLD FOR $ordered; FETCH 150 FROM c; COMMIT; FETCH 10 FROM c; FETCH ALL FROM c; CLOSE c") }
  '', 'SET gpusort.enabled = off;';
is($held[0], $held[1], 'a cursor WITH HOLD');

my $session = session($coordinator);
my $expected = $coordinator->safe_psql('postgres', 'SET gpusort.enabled = off; SELECT id FROM events WHERE few = 1 ORDER BY k, id');
answer($session, 'SET plan_cache_mode = force_generic_plan', 'PREPARE p(int) AS SELECT id FROM events WHERE few = $1 ORDER BY k, id');
is(answer($session, 'EXECUTE p(1)'), $expected, 'a prepared statement with a generic plan') foreach 1 .. 2;
like(answer($session, 'EXPLAIN (COSTS OFF) EXECUTE p(1)'), qr/GpuSort Start/, 'its plan');
is(answer($session, 'SET gpusort.enabled = off', 'EXECUTE p(1)', 'RESET gpusort.enabled'), $expected, 'gpusort.enabled = off after the plan was made');
answer($session, "ALTER SERVER $_ OPTIONS (SET async_capable 'false')") foreach 'a', 'b', 'c';
unlike(answer($session, 'EXPLAIN (COSTS OFF) EXECUTE p(1)'), qr/GpuSort Start/, 'a changed option makes a new plan');
answer($session, "ALTER FOREIGN TABLE events_a_events OPTIONS (ADD async_capable 'true')");
my $one = answer($session, 'EXPLAIN (COSTS OFF) EXECUTE p(1)');
is(scalar(() = $one =~ /Async/g), 1, 'the option of a table is stronger than that of its server');
is(answer($session, 'EXECUTE p(1)'), $expected, 'one asynchronous scan of three');
answer($session, "ALTER SERVER $_ OPTIONS (SET async_capable 'true')") foreach 'a', 'b', 'c';

is(answer($session, 'BEGIN', "DECLARE c CURSOR FOR SELECT id FROM events WHERE few = 1 ORDER BY k, id", 'SAVEPOINT s'), '', 'a cursor before a savepoint');
my @got = answer($session, 'FETCH 110 FROM c');
answer($session, 'SELECT id FROM failing ORDER BY id');
like($session->{err}, qr/division by zero/, 'a failure after the savepoint');
answer($session, 'ROLLBACK TO s');
push @got, answer($session, 'FETCH 10 FROM c');
answer($session, 'UPDATE events SET f = 0 WHERE few = 1');
push @got, answer($session, 'SELECT count(*) FROM events WHERE f = 0 AND few = 1');
my $updated = pop @got;
push @got, answer($session, 'FETCH ALL FROM c'), answer($session, 'ROLLBACK');
is(join("\n", grep { $_ ne '' } @got), $expected, 'the cursor goes on after the failure, and during an UPDATE through the same connections');
is($updated, () = $expected =~ /^\d+$/mg, 'the UPDATE');

# ----------------------------------------------------------------
# Shards that fail, or are slow
# ----------------------------------------------------------------

sub busy
{
	return $near->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE datname IN ('a', 'b') AND state <> 'idle'")
	  + $far->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE datname = 'c' AND state <> 'idle'");
}

answer($session, 'SELECT id FROM failing ORDER BY id');
like($session->{err}, qr/division by zero/, 'the error of a shard is that of the query');
is(busy(), 0, 'no connection is left busy');
is(answer($session, 'EXECUTE p(1)'), $expected, 'the next query works');

my $pid = answer($session, 'SELECT pg_backend_pid()');
$session->{in} .= "SELECT id FROM sleeping ORDER BY id;\n";
$session->{psql}->pump_nb;
ok(poll_until(sub { $session->{psql}->pump_nb; busy() >= 2 }), 'two shards are slow');
$coordinator->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
is(answer($session, 'EXECUTE p(1)'), $expected, 'the next query after a cancelled one works');
like($session->{err}, qr/canceling statement due to user request/, 'the slow query was cancelled');
is(busy(), 0, 'the shards are idle again');

$session->{in} .= "SELECT id FROM sleeping ORDER BY id;\n";
$session->{psql}->pump_nb;
ok(poll_until(sub { $session->{psql}->pump_nb; busy() >= 2 }), 'two shards are slow again');
$far->stop('immediate');
$near->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'b'");
answer($session, 'SELECT 1');
like($session->{err}, qr/ERROR: .*(terminat|closed the connection|shut|server)/s, 'shards die while they sort');
is(answer($session, 'SELECT 1'), '1', 'the session goes on');
answer($session, $ordered);
like($session->{err}, qr/could not connect|connection/, 'a shard that is down');
$far->start;
is(answer($session, 'EXECUTE p(1)'), $expected, 'the shard is back');
leave($session);

done_testing();
