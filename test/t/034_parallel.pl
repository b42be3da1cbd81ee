# A sort that all processes of a parallel query feed (src/node/feed.c) returns core's order.
#
# First random queries (RandomQueries.pm), in some of which the workers' memory is so small that they spill, as the
# server's log of temporary files shows.  Then the shapes of plans over columns of the types whose keys processes can
# share; the queries' orders are total, so the answers of core (gpusort.enabled = off) and of GpuSort must be the same text
# in the same order.  Then come the ways to read a sort that random queries do not choose: rescans, merge joins, plans from before
# gpusort.enabled was turned off, and workers that do not start.
#
#   SEED=n, CASES=n (120 by default), SETTINGS="a=1 b=2": see RandomTest.pm

use strict;
use warnings;

use GpusortTest;
use RandomTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($seed) = begin_cases(120);

# Columns by name, and the kinds of their values.  The neighbours of the greatest and least values
# have the same words as these if a process has seen them first.
my %columns = (
	a_int2 => 'int2', a_int4 => 'int4', an_int8 => 'int8', a_float4 => 'float4: one form', a_float8 => 'float8: one form',
	a_numeric => 'numeric', a_timestamp => 'timestamp', a_timestamptz => 'timestamptz', a_date => 'date', a_time => 'time',
	a_timetz => 'timetz', an_interval => 'interval', a_uuid => 'uuid', a_bool => 'bool', a_colour => 'colour', an_inet => 'inet',
	a_name => 'name', an_oid => 'oid');
my @names = ('a_few', sort keys %columns);

my $node = new_node('parallel', settings => <<'CONF');
shared_preload_libraries = 'gpusort'
max_worker_processes = 20
max_parallel_workers = 16
parallel_setup_cost = 0
parallel_tuple_cost = 0
min_parallel_table_scan_size = 0
min_parallel_index_scan_size = 0
max_parallel_workers_per_gather = 4
gpusort.force = on
gpusort.min_rows = 100
autovacuum = off
log_temp_files = 0
CONF
$node->start;

# the columns' values, of which $nulls percent are NULL
sub values_of
{
	my ($nulls) = @_;
	return join ', ', 'i % 5 AS a_few',
	  map { my $type = $columns{$_} =~ s/:.*//r; value_of($columns{$_}, distinct => 2_000_000_000, special => 1, nulls => $nulls) . "::$type AS $_" } sort keys %columns;
}
srand($seed);
my $with_nulls = values_of(5);
my $no_nulls = values_of(0);
$node->safe_psql('postgres', random_schema());
$node->safe_psql('postgres', <<"SQL");
CREATE TABLE t AS SELECT i AS id, $with_nulls, repeat('pad', i % 30) AS pad FROM generate_series(1, 12000) i;
CREATE TABLE full_rows AS SELECT i AS id, $no_nulls, NULL::text AS pad FROM generate_series(1, 12000) i;
CREATE TABLE wide AS SELECT i AS id, $with_nulls, repeat(md5(i::text), 3 + i % 90) AS pad FROM generate_series(1, 3000) i;
CREATE TABLE toasted (LIKE wide);
ALTER TABLE toasted ALTER pad SET STORAGE EXTERNAL;
INSERT INTO toasted SELECT * FROM wide WHERE id <= 1000;
INSERT INTO toasted SELECT 0, @{[ join ', ', ('NULL') x @names ]}, repeat('long', 500000);
CREATE TABLE empty (LIKE t);
CREATE TABLE tiny AS SELECT * FROM t WHERE id <= 3;
CREATE TABLE parts (LIKE t) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (4000);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (4000) TO (5000);
CREATE TABLE parts_3 PARTITION OF parts DEFAULT;
INSERT INTO parts SELECT * FROM t;
CREATE TABLE other AS SELECT i AS id, hashint4(i) % 100 AS other FROM generate_series(1, 24000, 2) i;
CREATE INDEX ON t (id);
DO \$\$
DECLARE
	name text;
BEGIN
	FOREACH name IN ARRAY '{t,full_rows,wide,toasted,empty,tiny,parts_1,parts_2,parts_3,other}'::text[] LOOP
		EXECUTE format('ALTER TABLE %I SET (parallel_workers = 8)', name);
	END LOOP;
END \$\$;
VACUUM ANALYZE;
SQL

# A query for the rows of a query in their sequence, as their number and a sum.
sub sequence
{
	my ($query) = @_;
	return "SELECT count(*), sum(hash_record_extended(s, place)::numeric) FROM "
	  . "(SELECT row_number() OVER () AS place, s FROM ($query OFFSET 0) AS s) AS s";
}

# The session that runs the queries.
my $session = session($node);

# Runs a query with settings (a hash) by core and by GpuSort.  Returns '' if the answers are
# the same, and GpuSort's plan.
sub compare
{
	my ($query, $settings) = @_;
	my $sequence = sequence($query);
	my @set = map { "SET $_ = '$settings->{$_}'" } sort keys %$settings;
	my ($core) = answer($session, 'RESET ALL', @set, 'SET gpusort.enabled = off', $sequence);
	my ($ours) = answer($session, 'SET gpusort.enabled = on', $sequence);
	my ($plan) = answer($session, "EXPLAIN (COSTS OFF) $sequence");
	my $messages = $session->{err};
	$session->{err} = '';
	die "the session has ended: $messages\n$sequence" if !$session->{psql}->pumpable;
	return ($core =~ /^\d+\|-?\d*$/ && $core eq $ours && $messages eq '' ? '' : "core: $core\nGpuSort: $ours\n$messages\n", $plan);
}

sub is_core_order
{
	my ($query, $settings, $shape, $name) = @_;
	my ($difference, $plan) = compare($query, $settings);
	ok($difference eq '' && $plan =~ $shape, $name)
	  or diag($difference, join('; ', map { "SET $_ = '$settings->{$_}'" } sort keys %$settings), "\n$query\n$plan");
	return;
}

# ----------------------------------------------------------------
# Random queries
# ----------------------------------------------------------------

$node->safe_psql('postgres', 'CREATE DATABASE random');
$node->safe_psql('random', random_schema('(GpuSort Feed)'));
my $log = -s $node->logfile;
random_queries($node, 'random', 'fed by workers', least => 0.3, table => { rows => [ 10, 3000, (12000) x 6 ], strings => 0 }, with => { 'gpusort.min_rows' => [100] },
	forms => [ ('plain') x 6, ('value') x 4, 'limit', 'ties', 'distinct', 'distinct on', 'window', 'first', 'append', 'groups', 'sorted groups', 'aggregates' ], ways => [ ('plain') x 8, 'lateral', 'join', 'cte', 'prepared', 'nested' ],
	settings => { max_parallel_workers_per_gather => [ 1, 2, 2, 3, 4, 4, 8 ], parallel_leader_participation => [ 'on', 'off', 'off' ], map { $_ => [ $_ eq 'enable_hashagg' ? 'off' : 'on' ] } 'enable_hashagg', 'enable_seqscan' }, rules => { where => [ ('true') x 3, ('slowly(t.id)') x 2, 't.id % 3 > 0', 'false' ] });
like(slurp_file($node->logfile, $log), qr{temporary file: path "[^"]*\.fileset/gpusort\.}, 'some workers spilled');

# ----------------------------------------------------------------
# The shapes of plans, each with workers and without the leader's help
# ----------------------------------------------------------------

my %workers = (parallel_leader_participation => 'off');
my $feed = qr/Custom Scan \(GpuSort\)\n.*\n +->  Gather\n.*Workers Planned.*\n +->  Parallel Custom Scan \(GpuSort Feed\)\n/;

is_core_order('SELECT * FROM t WHERE slowly(id) ORDER BY a_numeric, id', { %workers, work_mem => '64kB' }, $feed, 'rows that workers spill');
is_core_order('SELECT an_int8 FROM t WHERE slowly(id) ORDER BY an_int8 DESC', { %workers, work_mem => '64kB' }, $feed, 'values with NULLs that workers spill');
is_core_order('SELECT * FROM toasted ORDER BY a_uuid, id', { %workers, work_mem => '64kB' }, $feed, 'rows as long as 2 MB that workers spill');
is_core_order('SELECT * FROM toasted ORDER BY a_uuid, id', \%workers, $feed, 'rows as long as 2 MB');
is_core_order('SELECT * FROM t JOIN other USING (id) WHERE slowly(id) ORDER BY other, id',
	{ %workers, enable_mergejoin => 'off', enable_nestloop => 'off', work_mem => '64kB' },
	qr/GpuSort Feed\)\n +->  Parallel Hash Join/, 'a parallel hash join, read to its end when workers spill');
is_core_order('SELECT * FROM parts WHERE slowly(id) ORDER BY a_float8, id', \%workers, qr/GpuSort Feed\)\n +->  Parallel Append/, 'a Parallel Append');
is_core_order('SELECT a_few, sum(id) FROM t GROUP BY a_few ORDER BY 2 DESC', { %workers, enable_hashagg => 'off' },
	qr/Partial (?:Hash|Group)Aggregate/, 'below a partial aggregate');
is_core_order('SELECT a_date, id FROM t WHERE id < 9000 ORDER BY a_date, id', { %workers, enable_seqscan => 'off', enable_bitmapscan => 'off' },
	qr/GpuSort Feed\)\n +->  Parallel Index Scan/, 'a parallel index scan');
foreach my $from ('t WHERE a_few < 0', 'tiny')
{
	is_core_order("SELECT * FROM $from ORDER BY a_int4, id", \%workers, $feed, "no rows or few: $from");
	is_core_order("SELECT a_int4 FROM $from ORDER BY a_int4", \%workers, $feed, "no values or few: $from");
}

# rescans: with a parameter above the sort the sort is repeated, without one it is rewound
my $inner = '(SELECT a_int4, id FROM t WHERE slowly(id) ORDER BY a_int4, id OFFSET 0) s';
foreach my $memory ('64kB', '64MB')
{
	my %set = (%workers, enable_material => 'off', enable_hashjoin => 'off', enable_mergejoin => 'off', work_mem => $memory);
	is_core_order("SELECT o.i, l.* FROM generate_series(1, 4) o(i), LATERAL (SELECT * FROM $inner WHERE s.id % 7 > o.i OFFSET 0) l",
		\%set, $feed, "sorted in each round of a nested loop, $memory");
	is_core_order("SELECT o.i, l.* FROM generate_series(1, 4) o(i), LATERAL (SELECT * FROM $inner WHERE s.id % 7 > o.i OFFSET 0) l",
		{ %set, max_parallel_workers => 0, parallel_leader_participation => 'on' }, $feed, "sorted in each round, by the leader alone, $memory");
	is_core_order("SELECT o.i, s.id FROM generate_series(1, 4) o(i) LEFT JOIN $inner ON s.id % 7 > o.i", \%set, $feed, "rewound in a nested loop, $memory");
	is_core_order("SELECT o.i, s.id FROM generate_series(1, 4) o(i) LEFT JOIN $inner ON s.id % 7 > o.i",
		{ %set, max_parallel_workers => 0, parallel_leader_participation => 'on' }, $feed, "rewound, gathered by the leader alone, $memory");
	is_core_order("SELECT o.i, s.id FROM generate_series(1, 4) o(i) LEFT JOIN $inner ON s.id % 7 > o.i", { %set, enable_material => 'on' },
		qr/Materialize.*$feed/s, "below a Materialize, $memory");
	is_core_order("SELECT o.i, (SELECT sum(id * p) FROM (SELECT id, row_number() OVER () AS p FROM $inner) x WHERE id % 7 > o.i) FROM generate_series(1, 3) o(i)",
		\%set, $feed, "in a subplan, $memory");
	%set = (%workers, enable_material => 'off', enable_hashjoin => 'off', enable_nestloop => 'off', work_mem => $memory);
	is_core_order('SELECT a.id, b.id AS other FROM (SELECT * FROM t WHERE id < 400) a JOIN '
		. '(SELECT a_int2, id FROM full_rows WHERE slowly(id) OFFSET 0) b ON a.a_int2 / 100 = b.a_int2 / 100 ORDER BY 1, 2',
		\%set, qr/Merge Join/, "marked and restored in a merge join, $memory");
}

# Each half of the table has one of two values that share their words, and each half
# goes to a process of its own, which sees no other value first.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE crowd (id int, at timestamp, n int8, f float8) PARTITION BY RANGE (id);
CREATE TABLE crowd_1 PARTITION OF crowd FOR VALUES FROM (0) TO (1000) WITH (parallel_workers = 0);
CREATE TABLE crowd_2 PARTITION OF crowd FOR VALUES FROM (1000) TO (2000) WITH (parallel_workers = 0);
INSERT INTO crowd SELECT i, CASE i % 3 WHEN 0 THEN 'infinity' WHEN 1 THEN '-infinity' END::timestamp,
	CASE i % 3 WHEN 0 THEN 9223372036854775807 WHEN 1 THEN -9223372036854775808 END,
	CASE i % 3 WHEN 0 THEN 'NaN' WHEN 1 THEN '-Infinity' END::float8 FROM generate_series(0, 999) i;
INSERT INTO crowd SELECT i, CASE i % 3 WHEN 0 THEN timestamp '294276-12-31 23:59:59.999999' WHEN 1 THEN timestamp '4714-11-24 00:00:00 BC' END,
	CASE i % 3 WHEN 0 THEN 9223372036854775806 WHEN 1 THEN -9223372036854775807 END,
	CASE i % 3 WHEN 0 THEN 'Infinity' WHEN 1 THEN -1.7976931348623157e308 END FROM generate_series(1000, 1999) i;
VACUUM ANALYZE crowd;
SQL
foreach my $order ('at, id', 'at DESC, id', 'n, id', 'n DESC NULLS LAST, id', 'f, id', 'a_bool, at, n, id', 'at NULLS FIRST, n DESC NULLS FIRST, id')
{
	is_core_order("SELECT *, id % 2 = 0 AS a_bool FROM crowd WHERE slowly(id) ORDER BY " . $order =~ s/a_bool/id % 2 = 0/r,
		{ %workers, max_parallel_workers_per_gather => 2, enable_parallel_append => 'on' },
		qr/GpuSort Feed\)\n +->  Parallel Append/, "neighbours in different processes: $order");
}

# One process has the sample by which all make the keys of strings.  The other parts have strings that it does not show: few long
# ones with the same words, short and empty ones, long ones of which no 256 fit in the sample, hardly any, and none.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE words (id int, t text, v varchar, b bytea, n numeric) PARTITION BY RANGE (id);
ALTER TABLE words ALTER t SET STORAGE PLAIN, ALTER b SET STORAGE PLAIN;
DO $$
BEGIN
	FOR i IN 0 .. 5 LOOP
		EXECUTE format('CREATE TABLE words_%s PARTITION OF words FOR VALUES FROM (%s) TO (%s) WITH (parallel_workers = 0)', i, i * 1000, i * 1000 + 1000);
	END LOOP;
END $$;
INSERT INTO words (id, t) SELECT i, CASE i / 1000 WHEN 0 THEN 'https://example.org/a/path/that/all/share/' || i % 5
	WHEN 1 THEN 'https://example.org/a/path/that/all/share/' || i % 5 || CASE WHEN i > 1900 THEN md5(i::text) ELSE '' END
	WHEN 2 THEN CASE i % 4 WHEN 0 THEN '' WHEN 1 THEN left(md5(i::text), i % 20) WHEN 2 THEN 'https://example.org/' || i END
	WHEN 3 THEN repeat(md5((i % 50)::text), 60 + i % 3) END
	FROM generate_series(0, 4003) i;
UPDATE words SET v = t, b = t::bytea, n = CASE WHEN id % 3 > 0 THEN length(t) END;
VACUUM ANALYZE words;
SQL
foreach my $parts ('words', 'words WHERE id >= 2000', 'words WHERE id < 2000', 'words WHERE id >= 3900')
{
	foreach my $order ('t, id', 't COLLATE "C" DESC NULLS LAST, id', 'n, v', 'b DESC, id', 'id % 7, lower(v), id', 'v')
	{
		my $columns = $order =~ /id/ ? '*' : $order;
		my $query = "SELECT $columns FROM $parts" . ($parts =~ /WHERE/ ? ' AND' : ' WHERE') . " slowly(id) ORDER BY $order";
		is_core_order($query, { %workers, max_parallel_workers_per_gather => 4, enable_parallel_append => 'on', work_mem => $_ },
			qr/GpuSort Feed\)\n +->  Parallel (?:Append|Seq Scan)/, "strings in different processes: $parts, $order, $_") foreach '64kB', '64MB';
	}
}

# The sample shows few values, and each of two other processes gets another one with the same words.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE unseen (id int, t text) PARTITION BY RANGE (id);
CREATE TABLE unseen_1 PARTITION OF unseen FOR VALUES FROM (0) TO (1000) WITH (parallel_workers = 0);
CREATE TABLE unseen_2 PARTITION OF unseen FOR VALUES FROM (1000) TO (2000) WITH (parallel_workers = 0);
CREATE TABLE unseen_3 PARTITION OF unseen FOR VALUES FROM (2000) TO (3000) WITH (parallel_workers = 0);
INSERT INTO unseen SELECT i, CASE i / 1000 WHEN 0 THEN 'some country with a long name' WHEN 1 THEN 'the Republic of Somewhere, west' ELSE 'the Republic of Somewhere, east' END
	FROM generate_series(1, 2999) i WHERE i NOT BETWEEN 400 AND 999;
VACUUM ANALYZE unseen;
SQL
is_core_order("SELECT t FROM unseen WHERE slowly(id) ORDER BY t", { %workers, max_parallel_workers_per_gather => 3, enable_parallel_append => 'on', work_mem => $_ },
	qr/GpuSort Feed\)\n +->  Parallel Append/, "values that the sample does not show, $_") foreach ('64kB', '64MB') x 10;

# The sample shows a value, and a process that spills gets another one with the same words.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE unkept (id int, t text COLLATE "C") PARTITION BY RANGE (id);
CREATE TABLE unkept_1 PARTITION OF unkept FOR VALUES FROM (0) TO (10000) WITH (parallel_workers = 0);
CREATE TABLE unkept_2 PARTITION OF unkept FOR VALUES FROM (10000) TO (20000) WITH (parallel_workers = 0);
INSERT INTO unkept SELECT i, CASE WHEN i % 2 = 0 AND i < 10000 THEN 'some country with a long name' WHEN i < 10000 THEN 'the Republic of Somewhere, west' ELSE 'the Republic of Somewhere, east' END
	FROM generate_series(1, 19999) i;
VACUUM ANALYZE unkept;
SQL
is_core_order("SELECT t FROM unkept WHERE slowly(id) ORDER BY t $_", { %workers, max_parallel_workers_per_gather => 3, enable_parallel_append => 'on', work_mem => '64kB' },
	qr/GpuSort Feed\)\n +->  Parallel Append/, "spilled values that the sample does not show, $_") foreach ('ASC', 'DESC') x 5;

# ----------------------------------------------------------------
# Plans that are executed in another way than planned
# ----------------------------------------------------------------

my $rows = sequence('SELECT a_timestamp, an_int8, id FROM t WHERE slowly(id) ORDER BY a_timestamp, id');
my $values = sequence('SELECT an_int8 FROM t WHERE slowly(id) ORDER BY an_int8');
my $right = $node->safe_psql('postgres', "SET gpusort.enabled = off; $rows; $values");
foreach my $leader ('on', 'off')
{
	is( $node->safe_psql('postgres', <<"SQL"), "$right\n" x 3 . $right, "prepared statements, before and after gpusort.enabled is turned off, parallel_leader_participation = $leader");
SET parallel_leader_participation = $leader;
PREPARE a AS $rows;
PREPARE b AS $values;
EXECUTE a;
EXECUTE b;
SET gpusort.enabled = off;
EXECUTE a;
EXECUTE b;
SET max_parallel_workers = 0;
EXECUTE a;
EXECUTE b;
SET gpusort.enabled = on;
EXECUTE a;
EXECUTE b;
SQL
}

# Workers cannot start, because those of another query take their places: with 3 parallel
# workers in the cluster some of them, with 3 background workers none.
foreach my $case ([ 'max_parallel_workers = 3', 2, 1 ], [ "max_parallel_workers = 16\nmax_worker_processes = 3", 4, 0 ])
{
	my ($setting, $workers, $left) = @$case;
	my ($out, $err);
	leave($session);
	end_session($node);
	$node->append_conf('postgresql.conf', $setting);
	$node->restart;
	$session = session($node);
	my $sleeper = in_background($node, \$out, \$err, 'SET parallel_leader_participation = off', "SET max_parallel_workers_per_gather = $workers",
		'SELECT count(*) FROM t WHERE pg_sleep(CASE WHEN id % 100 = 0 THEN 3600 ELSE 0 END) IS NOT NULL');
	ok(poll($node, "SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'parallel worker'"), 'another query has workers');
	is($node->safe_psql('postgres', "$rows; $values"), $right, "$setting: not all workers start");
	like($node->safe_psql('postgres', "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) $rows"),
		qr/Workers Planned: 4\s+Workers Launched: $left\b/, 'EXPLAIN shows that');
	ask($node, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'background' AND backend_type = 'client backend'");
	$sleeper->finish;
}

# cursors have no workers; a sort in a function has
is($node->safe_psql('postgres', <<'SQL'), "9\n7\n8", 'a cursor');
BEGIN;
DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT id FROM t WHERE id < 10 ORDER BY id;
FETCH LAST FROM c;
COMMIT;
FETCH ABSOLUTE 7 FROM c;
FETCH NEXT FROM c;
SQL

# The cheapest path below this ORDER BY is sorted already, and the planner frees it in favour of another.
my ($rc, $stdout, $stderr) = $node->psql('template1', <<'SQL');
SET max_parallel_workers_per_gather = 2;
EXPLAIN SELECT n.nspname, p.proname, pg_get_function_result(p.oid), pg_get_function_arguments(p.oid),
CASE p.prokind WHEN 'a' THEN 'agg' WHEN 'w' THEN 'window' WHEN 'p' THEN 'proc' ELSE 'func' END
FROM pg_proc p LEFT JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE p.proname OPERATOR(pg_catalog.~) '^(.*sqrt)$' COLLATE pg_catalog.default AND pg_function_is_visible(p.oid)
ORDER BY 1, 2, 4;
SQL
is($stderr, '', 'an input path that the planner has freed is not used');

# ----------------------------------------------------------------
# All plans with a worker
# ----------------------------------------------------------------

{
	my $name = $node->safe_psql('postgres', "SELECT name FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')");
	my %all = ($name => 'regress');
	is_core_order('SELECT * FROM t ORDER BY an_interval, id', { %all, max_parallel_workers_per_gather => $_ }, qr/GpuSort/,
		"$name = regress, $_ workers") foreach 0, 2;
}

# A process with few open files has no shared memory for all workers.  Those without keep what they read to themselves.
# At times none is left for the GPU service either, which is an error only where the engine must be the GPU.
leave($session);
end_session($node);
$node->append_conf('postgresql.conf', "max_files_per_process = 64\nmax_worker_processes = 40\nmax_parallel_workers = 40");
$node->restart;
$session = session($node);
$node->safe_psql('postgres', 'CREATE TABLE long_text WITH (parallel_workers = 30) AS SELECT i AS id, md5(i::text) AS t FROM generate_series(1, 100000) i; VACUUM ANALYZE long_text');
is_core_order("SELECT $_->[0] FROM long_text ORDER BY $_->[1]", { max_parallel_workers_per_gather => 30, 'gpusort.engine' => 'auto' }, $feed, "most workers have no shared memory: $_->[1]")
  foreach [ '*', 't, id' ], [ 't', 't' ], [ '*', 'id % 1000, t' ];
$node->safe_psql('postgres', "SET gpusort.engine = auto; SET gpusort.force = on; SET max_parallel_maintenance_workers = 30; SET maintenance_work_mem = '1GB'; CREATE INDEX by_gpusort ON long_text (t, id)");
is($node->safe_psql('postgres', "SET enable_seqscan = off; SET enable_sort = off; SELECT count(*), sum(hashtext(t)::int8 * place) FROM (SELECT t, row_number() OVER (ORDER BY t, id) AS place FROM long_text) s"),
	$node->safe_psql('postgres', 'SET gpusort.enabled = off; SET enable_indexscan = off; SET enable_indexonlyscan = off; SELECT count(*), sum(hashtext(t)::int8 * place) FROM (SELECT t, row_number() OVER (ORDER BY t, id) AS place FROM long_text) s'),
	'an index built by such workers');

leave($session);
end_session($node);
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal|leak/, 'the log shows no crash and no leak');
$node->stop;
done_testing();
