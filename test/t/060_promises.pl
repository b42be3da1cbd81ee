# What a declaration promises, and what does not hold: gpusort gives core's answers.
#
# First values that break the promise of a column: array_agg() of rows and unnest() with a list of column definitions let
# any value of a type into a column, whatever its precision or length; constraints are not valid, or have been added to the
# catalog; labels of an enum have been deleted from it; statistics are nonsense.  Then volatile functions, which must be called
# as often as in core, and in the same order.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('promises', settings => "shared_preload_libraries = 'gpusort'\nautovacuum = off\nclient_min_messages = warning\n");
$node->start;
my $session = session($node);
my @serial = ('SET max_parallel_workers_per_gather = 0', 'SET gpusort.force = on');
my @parallel = ('SET max_parallel_workers_per_gather = 2', map { "SET $_ = 0" } 'parallel_setup_cost', 'parallel_tuple_cost', 'min_parallel_table_scan_size', 'min_parallel_index_scan_size');

# The answers to queries, and the errors
sub whole_answer
{
	my (@query) = @_;
	$session->{err} = '';
	my $answer = answer($session, @query);
	return "$answer $session->{err}";
}

sub same_answer
{
	my ($name, @query) = @_;
	my $core = whole_answer('SET gpusort.enabled = off', @query);
	isnt($core, ' ', "core answers: $name");
	return is(whole_answer('SET gpusort.enabled = on', @query), $core, $name);
}

# ---- numerics with digits that their type does not have ----

# Times 100, some values of n are no integers; of m only one; and all of whole are.  Equal values have the same digits.
answer($session, @serial, <<'SQL');
CREATE TABLE digits AS SELECT i, n, m, (CASE WHEN i <> 77777 THEN m END)::numeric(9,2) AS whole FROM unnest((SELECT array_agg(row(i, CASE i % 7 WHEN 0 THEN round(i / 7.0 + 0.001, 9) WHEN 1 THEN -1 - i % 100
	WHEN 2 THEN (1 + i % 500) * 1e30 WHEN 4 THEN '-Infinity' WHEN 5 THEN 'NaN' WHEN 6 THEN NULL ELSE round(i % 1000 / 8.0, 2) END, CASE i WHEN 77777 THEN 0.125 ELSE round(i % 3000 / 8.0, 2) END))
	FROM generate_series(1, 80000) i)) t(i int, n numeric(9,2), m numeric(9,2));
ANALYZE digits;
SQL
my $aggregates = join ', ', 'count(DISTINCT %1$s)', 'percentile_disc(0.3) WITHIN GROUP (ORDER BY %1$s)', 'percentile_disc(0.7) WITHIN GROUP (ORDER BY %1$s DESC)', 'percentile_disc(ARRAY[0.1, NULL, 1, 0]) WITHIN GROUP (ORDER BY %1$s)',
  'percentile_cont(0.123) WITHIN GROUP (ORDER BY %1$s)', 'percentile_cont(ARRAY[0.9, NULL, 0.66]) WITHIN GROUP (ORDER BY %1$s DESC)', 'mode() WITHIN GROUP (ORDER BY %1$s)', 'mode() WITHIN GROUP (ORDER BY %1$s DESC)',
  'count(DISTINCT %1$s) FILTER (WHERE i %% 7 > 1)', 'count(DISTINCT i)', 'count(*)';
my %lists = map { my $column = $_; $column => sprintf($aggregates, $column) } 'n', 'm', 'whole';
foreach my $way ('serial', 'parallel')
{
	answer($session, @parallel) if $way eq 'parallel';
	foreach my $limit ('64kB', '1MB', '1GB')
	{
		answer($session, "SET gpusort.memory_limit = '$limit'", "SET work_mem = '$limit'");
		foreach my $query ((map { ("SELECT $lists{$_} FROM digits", "SELECT i % 10, $lists{$_} FROM digits GROUP BY 1 ORDER BY 1") } sort keys %lists), "SELECT $lists{n} FROM digits WHERE i % 7 = 6",
			"SELECT i % 20000 = 0, $lists{n} FROM digits GROUP BY 1 ORDER BY 1", "SELECT md5(string_agg(q::text, ',')) FROM (SELECT i / 9, $lists{n} FROM digits GROUP BY 1 ORDER BY 1) q",
			"SELECT i % 2, count(DISTINCT n) FROM digits WHERE i < 30000 GROUP BY 1 HAVING mode() WITHIN GROUP (ORDER BY n) IS NOT NULL ORDER BY 1")
		{
			like(answer($session, 'SET gpusort.enabled = on', "EXPLAIN $query"), $way eq 'serial' ? qr/GpuSort Aggregate/ : qr/GpuSort/, 'gpusort takes part');
			same_answer("$way, $limit: " . substr($query, 0, 60), $query);
		}
	}
}
answer($session, @serial, "SET gpusort.memory_limit = '64kB'");
same_answer('such values are met in some scans only',
	'SELECT g, l.* FROM generate_series(1, 6) g, LATERAL (SELECT i % 3, count(DISTINCT m), percentile_disc(g / 7.0) WITHIN GROUP (ORDER BY m) FROM digits WHERE i BETWEEN g * 12000 AND g * 13000 GROUP BY 1) l ORDER BY 1, 2');
same_answer('a cast to double precision is an error where it is one in core: ' . substr($_, 0, 40), "SELECT $_ FROM unnest(ARRAY[row(1.5), row(1e400)]) t(n numeric(9,2))")
  foreach 'percentile_cont(0) WITHIN GROUP (ORDER BY n)', 'percentile_cont(NULL) WITHIN GROUP (ORDER BY n)', 'percentile_disc(1) WITHIN GROUP (ORDER BY n), count(DISTINCT n)';
is(answer($session, q{SELECT count(*) FROM pg_ls_tmpdir(); SELECT count(*) FROM pg_backend_memory_contexts WHERE name ~ '^(GpuSort (Aggregate|group)|TupleSort)'}), "0\n0", 'nothing is left');

# ---- columns of all kinds ----

my %columns = (n => 'numeric(9,2)', nn => 'numeric(5,1)', c => 'char(3)', vc => 'varchar(3)', iv => 'interval(0)', iy => 'interval year to month', ts => 'timestamp(0)', tz => 'timestamptz(0)',
	tm => 'time(0)', tmz => 'timetz(0)', p => 'int', e => 'int');
my @names = sort keys %columns;
my %values = (n => 'CASE i % 5 WHEN 0 THEN i / 7.0 WHEN 1 THEN i % 50 WHEN 2 THEN NULL ELSE i % 300 / 8.0 END', nn => 'i % 7000 * 1.5', c => "substr(md5((i % 3000)::text), 1, 1 + i % 9)::bpchar", vc => "substr(md5((i % 3000)::text), 1, 1 + i % 9)::varchar",
	iv => 'make_interval(secs => i % 5000 / 7.0)', iy => 'make_interval(months => i % 30, secs => i % 77 / 7.0)',
	ts => "timestamp '2024-01-01' + make_interval(secs => i % 4000 / 7.0)", tz => "timestamptz '2024-01-01' + make_interval(secs => i % 4000 / 7.0)", tm => "time '01:00' + make_interval(secs => i % 4000 / 7.0)",
	tmz => "timetz '01:00+01' + make_interval(secs => i % 4000 / 7.0)",
	p => 'i % 400 - 200', e => 'nullif(i % 400, 3)');
answer($session, <<"SQL");
CREATE DOMAIN positive AS int;
CREATE DOMAIN exists AS int;
CREATE TABLE promised AS SELECT * FROM unnest((SELECT array_agg(row(i, @{[ join ', ', map { $values{$_} } @names ]})) FROM generate_series(1, 10000) i)) t(i int, @{[ join ', ', map { "$_ $columns{$_}" } @names ]});
ALTER TABLE promised ALTER p TYPE positive, ALTER e TYPE exists;
ALTER DOMAIN positive ADD CHECK (VALUE > 0) NOT VALID;
UPDATE pg_type SET typnotnull = true WHERE typname = 'exists';
UPDATE pg_attribute SET attnotnull = true WHERE attrelid = 'promised'::regclass AND attname IN ('n', 'e');
ANALYZE promised;
SQL
# all queries of a column are one, since there are many
sub queries_of
{
	my ($column) = @_;
	return join "\nUNION ALL ", map { "SELECT md5(string_agg(q::text, ',')) FROM ($_) q" } "SELECT $column FROM promised ORDER BY $column, i", "SELECT $column FROM promised ORDER BY $column DESC NULLS LAST, i",
	  "SELECT count(*), sum(members) FROM (SELECT $column, count(*) AS members FROM promised GROUP BY $column) g", "SELECT count(DISTINCT $column), count(*) FROM promised",
	  "SELECT i % 3, count(DISTINCT $column), mode() WITHIN GROUP (ORDER BY $column) IS NULL FROM promised GROUP BY 1 ORDER BY 1", "SELECT DISTINCT ON ($column) $column IS NULL, i FROM promised ORDER BY $column, i",
	  "SELECT i % 4, array_agg(i ORDER BY $column, i) FROM promised GROUP BY 1 ORDER BY 1", "SELECT * FROM (SELECT $column, i, rank() OVER (PARTITION BY i % 3 ORDER BY $column) FROM promised) r WHERE rank <= 5 ORDER BY i",
	  "SELECT percentile_disc(0.4) WITHIN GROUP (ORDER BY $column) = (SELECT $column FROM promised WHERE $column IS NOT NULL ORDER BY $column OFFSET (SELECT ceil(0.4 * count($column))::int - 1 FROM promised) LIMIT 1) FROM promised",
	  "SELECT p.$column, count(*) OVER (ORDER BY p.$column, promised.i) FROM promised LEFT JOIN promised p ON p.i = promised.i + 9000";
}
foreach my $way ([], [ "SET gpusort.memory_limit = '64kB'" ], [ @parallel, 'RESET gpusort.memory_limit' ])
{
	answer($session, @serial, 'RESET gpusort.memory_limit', 'RESET work_mem', @$way);
	same_answer("$columns{$_} $_ @$way", queries_of($_)) foreach @names;
}
answer($session, @serial, 'RESET gpusort.memory_limit');
same_answer("an index of $_", "CREATE INDEX promised_index ON promised ($_)", 'SET enable_seqscan = off', 'SET enable_sort = off', "SELECT md5(string_agg(ctid::text, ',')) FROM (SELECT ctid FROM promised ORDER BY $_) q",
	'RESET enable_seqscan', 'RESET enable_sort', 'DROP INDEX promised_index') foreach @names;

# ---- labels of an enum that are gone ----

answer($session, <<'SQL');
CREATE TYPE letter AS ENUM ('a', 'b', 'c', 'd', 'e', 'f', 'g', 'h');
CREATE TABLE letters AS SELECT (enum_range(NULL::letter))[1 + (hashint4(i) & 7)] AS l, i FROM generate_series(1, 3000) i;
CREATE DOMAIN letter_domain AS letter;
SQL
foreach my $gone ("'c'", "'d', 'e'", "'a', 'b'", "'h'", "'f', 'g'")
{
	same_answer("$gone: $_", 'BEGIN', "DELETE FROM pg_enum WHERE enumtypid = 'letter'::regtype AND enumlabel IN ($gone)", "SELECT md5(string_agg(i::text, ',')) FROM (SELECT i FROM letters ORDER BY $_, i) q",
		"SELECT count(DISTINCT $_) FROM letters", "SELECT md5(string_agg(q::text, ',')) FROM (SELECT count(*) FROM letters GROUP BY $_ ORDER BY $_) q", 'ROLLBACK')
	  foreach 'l', 'l::letter_domain';
}
same_answer('all are gone', 'BEGIN', "DELETE FROM pg_enum WHERE enumtypid = 'letter'::regtype", "SELECT md5(string_agg(i::text, ',')) FROM (SELECT i FROM letters ORDER BY l DESC, i) q", 'ROLLBACK');

# ---- statistics that are nonsense ----

answer($session, 'CREATE TABLE counted AS SELECT i, i % 10 AS few, hashint4(i) AS k, md5(i::text) AS x, i / 7 AS g FROM generate_series(1, 20000) i', 'CREATE INDEX ON counted (g)', 'ANALYZE counted', 'SET gpusort.force = off', @parallel);
foreach my $rows ('reltuples = 0', "reltuples = 'NaN'", "reltuples = 'Infinity'", 'reltuples = 3e38', 'relpages = 2147483647', 'relpages = 0', 'relpages = 1, reltuples = 1e20')
{
	foreach my $distinct (0, -1e30, "'Infinity'", "'NaN'")
	{
		same_answer("$rows, stadistinct = $distinct", 'BEGIN', "UPDATE pg_class SET $rows WHERE relname = 'counted'", "UPDATE pg_statistic SET stadistinct = $distinct, stanullfrac = 3, stawidth = 2147483647 WHERE starelid = 'counted'::regclass",
			"SELECT md5(string_agg(r::text, '|')) FROM ((SELECT k, i FROM counted ORDER BY k, i) UNION ALL (SELECT g, count(*) FROM counted GROUP BY g ORDER BY g) "
			. 'UNION ALL (SELECT few, count(DISTINCT k) + count(DISTINCT x) + percentile_disc(0.5) WITHIN GROUP (ORDER BY i) FROM counted GROUP BY few ORDER BY few) UNION ALL (SELECT DISTINCT ON (few) few, i FROM counted ORDER BY few, i DESC) '
			. 'UNION ALL (SELECT i, n FROM (SELECT i, row_number() OVER (PARTITION BY g ORDER BY k) n FROM counted) w WHERE n <= 2 ORDER BY 1) UNION ALL (SELECT i, 0 FROM counted ORDER BY x LIMIT 10)) r', 'ROLLBACK');
	}
}

# ---- volatile functions ----

# The rows are in the order of g and i, in which core's sort, which is not stable, leaves them.  An incremental sort would call
# the functions above it between those below.
answer($session, @serial, 'SET enable_incremental_sort = off', <<'SQL');
CREATE SEQUENCE s;
CREATE TABLE log (n int, x int);
CREATE TABLE v AS SELECT i AS id, i / 600 AS g, hashint4(i) % 100 AS k, i / 600 * 1000 + hashint4(i) % 1000 AS u FROM generate_series(0, 4199) i;
CREATE INDEX ON v (k, id);
ANALYZE v;
CREATE FUNCTION logs(x int) RETURNS int LANGUAGE plpgsql AS 'BEGIN INSERT INTO log SELECT count(*), x FROM log; RETURN x; END';
SQL
my $few = 'v WHERE id % 97 < 2';
foreach my $query (
	"SELECT count(DISTINCT nextval('s') % 50), sum(DISTINCT nextval('s') % 50) FROM v",
	"SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY nextval('s')), mode() WITHIN GROUP (ORDER BY nextval('s') % 4) FROM v",
	"SELECT g, percentile_cont(0.5) WITHIN GROUP (ORDER BY nextval('s')), mode() WITHIN GROUP (ORDER BY nextval('s') % 4) FROM v GROUP BY g ORDER BY g",
	"SELECT count(DISTINCT logs(g)), count(DISTINCT logs(g)) FROM $few",
	"SELECT count(DISTINCT logs(g)) FILTER (WHERE logs(id) > 3), count(DISTINCT g) FROM $few",
	"SELECT g, count(DISTINCT k) FILTER (WHERE nextval('s') % 3 = 1), count(DISTINCT k) FROM v GROUP BY g ORDER BY g",
	"SELECT percentile_disc(ARRAY[logs(1), 0.5]) WITHIN GROUP (ORDER BY k), percentile_disc(logs(1)) WITHIN GROUP (ORDER BY k) FROM v",
	"SELECT count(DISTINCT k + (SELECT nextval('s') WHERE v.id > 0)) FROM v",
	"SELECT string_agg(logs(id)::text, ',' ORDER BY logs(k)), array_agg(DISTINCT logs(g)) FROM $few",
	"SELECT g, string_agg(logs(id)::text, ',' ORDER BY logs(k)), array_agg(DISTINCT logs(g)) FROM $few GROUP BY g ORDER BY g",
	"SELECT g, count(DISTINCT k), nextval('s') FROM v GROUP BY g HAVING nextval('s') % 3 > 0",
	"SELECT logs(g), count(DISTINCT k) FROM $few GROUP BY 1 ORDER BY 1",
	# a HashAggregate's
	"SELECT u / 7 % 3, sum(nextval('s')), array_agg(logs(id)) FROM $few GROUP BY 1 ORDER BY 1",
	"SELECT u / 7 % 3, sum(k + (SELECT nextval('s') WHERE v.id > 0)) FROM v GROUP BY 1 ORDER BY 1",
	"SELECT k, count(*), nextval('s') FROM v GROUP BY k",
	"SELECT u / 7 % 3, count(*) FROM v GROUP BY 1 HAVING nextval('s') % 3 > 0",
	# rows of each group
	"SELECT id, k FROM (SELECT id, nextval('s') AS k, row_number() OVER (PARTITION BY g ORDER BY id) AS n FROM v) w WHERE n <= 2",
	"SELECT id, k FROM (SELECT id, nextval('s') AS k, rank() OVER (ORDER BY id) AS n FROM v) w WHERE n <= 2",
	"SELECT id, k FROM (SELECT id, nextval('s') AS k, rank() OVER (PARTITION BY g ORDER BY id) AS n, sum(logs(id)) OVER (PARTITION BY g ORDER BY id) FROM $few) w WHERE n <= 2",
	"SELECT id, c FROM (SELECT id, (SELECT nextval('s') WHERE v.id >= 0) AS c, row_number() OVER (PARTITION BY g ORDER BY u, id) AS n FROM v) w WHERE n <= 2",
	"SELECT id, k FROM (SELECT id, k, row_number() OVER (PARTITION BY g ORDER BY u, id) AS n FROM (SELECT id, g, u, nextval('s') AS k FROM v ORDER BY g, u, id) q) w WHERE n <= 2",
	"SELECT id, k FROM (SELECT id, k, row_number() OVER (ORDER BY u, id) AS n FROM (SELECT id, u, nextval('s') AS k FROM v ORDER BY u, id) q) w WHERE n <= 2",
	"SELECT DISTINCT ON (g) g, u, nextval('s') FROM v ORDER BY g, u, id",
	"SELECT DISTINCT ON (k) k, id, nextval('s') FROM v ORDER BY k, id",
	# sorts
	"SELECT nextval('s'), b FROM (SELECT g, u, id, nextval('s') AS b FROM v ORDER BY g OFFSET 0) q ORDER BY g, u, id",
	"SELECT id FROM v WHERE logs(id) % 97 = 0 AND id < 500 ORDER BY k, id",
	"SELECT id FROM $few ORDER BY logs(k), id",
	"SELECT id, logs(id) FROM $few ORDER BY k, id LIMIT logs(3) OFFSET logs(2)",
	"SELECT k, generate_series(1, logs(2)), nextval('s') FROM $few ORDER BY k, id LIMIT 5",
	"SELECT k, generate_series(1, logs(2)), nextval('s') FROM $few ORDER BY k, id",
	"SELECT DISTINCT logs(g) FROM $few ORDER BY 1")
{
	foreach my $way (undef, 'enable_hashagg', 'enable_seqscan')
	{
		my @way = defined $way ? ("SET $way = off") : ();
		same_answer("$query @way", @way, 'BEGIN', "ALTER SEQUENCE s RESTART", "SELECT md5(string_agg(q::text, '|')) FROM ($query) q", 'SELECT last_value, (SELECT string_agg(x::text, \',\' ORDER BY n) FROM log) FROM s', 'ROLLBACK', map { "RESET $_" } grep { defined } $way);
	}
}

leave($session);
$node->stop;
done_testing();
