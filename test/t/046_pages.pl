# A sort takes the rows of a table's pages behind the back of the scan (src/scan/page.c).
# The rows are those that core's scan returns, whatever has happened to the table, and so are
# the counts of EXPLAIN and of the statistics.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('pages', order_by => 1, settings => <<'CONF');
gpusort.engine = cpu
max_parallel_workers = 4
work_mem = 256MB
autovacuum = off
CONF
$node->start;
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION gpusort;
CREATE FUNCTION h(i int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT hashint4(i)';

-- narrow rows, many on a page
CREATE TABLE narrow AS SELECT h(i) AS k, h(i) % 100 AS a, i::int8 AS id FROM generate_series(1, 20000) i;
-- dead, updated, locked and invisible rows
CREATE TABLE torn (id int8 PRIMARY KEY, k int, v text) WITH (fillfactor = 60);
INSERT INTO torn SELECT i, h(i) % 1000, md5(i::text) FROM generate_series(1, 20000) i;
DELETE FROM torn WHERE id % 7 = 0;
UPDATE torn SET k = k + 1 WHERE id % 5 = 0;
UPDATE torn SET v = repeat(v, 5) WHERE id % 11 = 0;
BEGIN; UPDATE torn SET k = -k; ROLLBACK;
BEGIN; SAVEPOINT s; DELETE FROM torn WHERE id % 3 = 0; ROLLBACK TO s; INSERT INTO torn VALUES (0, 0, 'new'); COMMIT;
-- dropped, added and generated columns, NULLs, rows of several ages
CREATE TABLE aged (x text, k int, gone int, y numeric);
INSERT INTO aged SELECT left(md5(i::text), i % 9), h(i) % 50, i, i FROM generate_series(1, 4000) i;
ALTER TABLE aged DROP COLUMN gone;
ALTER TABLE aged ADD COLUMN late int8 DEFAULT 77, ADD COLUMN empty int, ADD COLUMN made int GENERATED ALWAYS AS (k * 2) STORED;
INSERT INTO aged SELECT CASE WHEN i % 3 > 0 THEN md5(i::text) END, CASE WHEN i % 4 > 0 THEN h(i) % 50 END, i, i, i FROM generate_series(4001, 8000) i;
-- NULLs in the bitmap that fits the header, and rows without the last column
CREATE TABLE holes AS SELECT CASE WHEN i % 3 > 0 THEN h(i) END AS k, CASE WHEN i % 5 > 0 THEN i END AS a, i::int8 AS id FROM generate_series(1, 9000) i;
CREATE TABLE grown AS SELECT h(i) AS k, i::int8 AS id FROM generate_series(1, 5000) i;
ALTER TABLE grown ADD COLUMN more int DEFAULT 5;
INSERT INTO grown SELECT h(i), i, i % 10 FROM generate_series(5001, 10000) i;
-- keys of all places and kinds
CREATE TABLE kinds AS SELECT i AS id, (h(i) % 3 = 0) AS b, (h(i) % 999)::int2 AS i2, h(i) AS i4, h(i)::int8 << 20 AS i8,
  (h(i) % 1000)::float4 / 7 AS f4, CASE i % 9 WHEN 0 THEN 'NaN' WHEN 1 THEN '-0' ELSE h(i)::float8 / 3 END AS f8,
  CASE i % 50 WHEN 0 THEN 'infinity' ELSE timestamp '2020-01-01' + h(i) * interval '1 second' END AS ts,
  (h(i) % 9)::"char" AS c, md5(i::text)::uuid AS u, (h(i) % 1000)::numeric / 8 AS num, left(md5(i::text), i % 30) AS txt
  FROM generate_series(1, 10000) i;
INSERT INTO kinds SELECT i, NULL, NULL, NULL, 9223372036854775807, NULL, NULL, '-infinity', NULL, NULL, 'NaN', NULL FROM generate_series(10001, 10030) i;
-- strings at a known place: short, long, compressed and out of line; and uuids of which two share words
CREATE TABLE strings AS SELECT i AS id, CASE WHEN i < 400 THEN NULL ELSE CASE i % 40 WHEN 0 THEN 'ffffffff-ffff-ffff-ffff-ffffffffffff' WHEN 1 THEN 'ffffffff-ffff-ffff-ffff-fffffffffffe'
  WHEN 2 THEN '00000000-0000-0000-0000-000000000000' ELSE md5((i % 3000)::text) END END::uuid AS u,
  CASE WHEN i % 500 = 0 THEN (SELECT string_agg(md5((i * j)::text), '') FROM generate_series(1, 90) j)
    ELSE left(md5((i % 2500)::text), i % 25) || repeat('x', CASE i % 60 WHEN 0 THEN 150 WHEN 1 THEN 3000 ELSE 0 END) END AS txt
  FROM generate_series(1, 8000) i;
SQL
$node->safe_psql('postgres', tables_behind());
$node->safe_psql('postgres', <<'SQL');
-- values that are C strings, without a length
CREATE TYPE cs;
CREATE FUNCTION cs_in(cstring) RETURNS cs IMMUTABLE STRICT LANGUAGE internal AS 'unknownin';
CREATE FUNCTION cs_out(cs) RETURNS cstring IMMUTABLE STRICT LANGUAGE internal AS 'unknownout';
CREATE TYPE cs (INPUT = cs_in, OUTPUT = cs_out, INTERNALLENGTH = -2, ALIGNMENT = char);
CREATE TABLE strange AS SELECT i AS id, repeat('t', i % 5) AS t, h(i) AS k, md5(i::text) AS v, left(md5(i::text), i % 20)::cs AS c, -i AS late FROM generate_series(1, 5000) i;
-- three wide rows a page, and values out of line
CREATE TABLE wide (k int, v text, t text);
ALTER TABLE wide ALTER v SET STORAGE PLAIN, ALTER t SET STORAGE EXTERNAL;
INSERT INTO wide SELECT h(i), repeat('w', 2300), repeat(md5((i % 50)::text), 100) FROM generate_series(1, 600) i;
-- partitions of several layouts, one of them empty, one temporary in another tree
CREATE TABLE parts (k int, a int, id int8) PARTITION BY LIST (a);
CREATE TABLE part0 PARTITION OF parts FOR VALUES IN (0);
CREATE TABLE part1 (extra text, id int8, a int, k int);
ALTER TABLE part1 DROP COLUMN extra;
ALTER TABLE parts ATTACH PARTITION part1 FOR VALUES IN (1);
CREATE TABLE part2 PARTITION OF parts FOR VALUES IN (2);
CREATE TABLE part3 PARTITION OF parts FOR VALUES IN (3);
INSERT INTO parts SELECT h(i), (i % 3), i FROM generate_series(1, 30000) i;
CREATE TABLE parent (k int, v text);
CREATE TABLE child (more int) INHERITS (parent);
INSERT INTO parent SELECT h(i), i FROM generate_series(1, 5000) i;
INSERT INTO child SELECT h(i), i, i FROM generate_series(5001, 10000) i;
CREATE TABLE nothing ();
INSERT INTO nothing SELECT FROM generate_series(1, 1000);
CREATE UNLOGGED TABLE crash AS TABLE narrow;
CREATE TABLE many AS SELECT h(i)::int8 AS id FROM generate_series(1, 300000) i;
CREATE TABLE most AS SELECT NULL::int AS none, h(i)::int8 AS id FROM generate_series(1, 300000) i;
ANALYZE;
SQL

# Core's answer is GpuSort's, in these settings.
sub same
{
	my ($query, @settings) = @_;
	my $all = "SELECT md5(string_agg(x::text, ',' ORDER BY r)), count(*) FROM (SELECT s AS x, row_number() OVER () AS r FROM ($query OFFSET 0) AS s) AS y";
	my @answers;
	ask($node, "SET $_") foreach @settings;
	ok(ask($node, "EXPLAIN $query") =~ /GpuSort/, "GpuSort: $query");
	foreach my $enabled ('off', 'on')
	{
		ask($node, "SET gpusort.enabled = $enabled");
		push @answers, ask($node, $all);
	}
	ask($node, 'RESET ALL');
	is($answers[1], $answers[0], "@settings $query");
	return;
}

my @queries = (
	'SELECT * FROM narrow ORDER BY k, id', 'SELECT k FROM narrow ORDER BY k', 'SELECT id, k FROM narrow ORDER BY k DESC, id',
	'SELECT a, a + 1 AS b, id FROM narrow ORDER BY a, id', 'SELECT * FROM narrow WHERE a < 30 ORDER BY k, id',
	'SELECT id FROM narrow WHERE a < 0 AND id % 3 > 0 ORDER BY id', 'SELECT * FROM narrow WHERE a = 1000 ORDER BY k',
	'SELECT ctid, tableoid, k FROM narrow ORDER BY k, ctid', 'SELECT n, k FROM narrow n ORDER BY k, id',
	'SELECT * FROM torn WHERE ctid::text LIKE \'%1)\' ORDER BY k, id', 'SELECT * FROM narrow ORDER BY k LIMIT 100',
	'SELECT * FROM narrow ORDER BY a, id LIMIT 3000',
	'SELECT * FROM torn ORDER BY k, id', 'SELECT v FROM torn ORDER BY v', 'SELECT id, v FROM torn WHERE k > 500 ORDER BY v, id',
	'SELECT v, id FROM torn ORDER BY v COLLATE "C" LIMIT 50',
	'SELECT txt, id FROM strings ORDER BY txt COLLATE "C", id', 'SELECT txt FROM strings ORDER BY txt COLLATE "C"',
	(has_icu($node) ? 'SELECT txt FROM strings ORDER BY txt COLLATE "en-x-icu"' : ()), 'SELECT u, txt FROM strings ORDER BY u, txt', 'SELECT u, txt FROM strings ORDER BY u DESC, txt',
	'SELECT id / 100 AS i, u, txt FROM strings ORDER BY id / 100, u, txt', 'SELECT * FROM strings ORDER BY u NULLS FIRST, id',
	'SELECT * FROM aged ORDER BY k, y', 'SELECT late FROM aged ORDER BY late', 'SELECT made, x FROM aged ORDER BY made, x COLLATE "C", y',
	'SELECT empty, y FROM aged ORDER BY empty NULLS FIRST, y', 'SELECT x FROM aged ORDER BY x', 'SELECT late, k FROM aged ORDER BY k, late, y',
	(map { ("SELECT * FROM kinds ORDER BY $_, id", "SELECT * FROM kinds ORDER BY $_ DESC, id DESC", "SELECT $_ FROM kinds ORDER BY $_") }
	   qw(b i2 i4 i8 f4 f8 ts c u num), 'txt COLLATE "C"'),
	'SELECT id, txt, i4 FROM kinds ORDER BY i8, i4, f8, id', 'SELECT * FROM kinds ORDER BY c, i2, id LIMIT 200',
	'SELECT * FROM holes ORDER BY k, id', 'SELECT * FROM holes ORDER BY id', 'SELECT id, a FROM holes ORDER BY id', 'SELECT a FROM holes ORDER BY a',
	'SELECT * FROM grown ORDER BY more, id', 'SELECT * FROM grown ORDER BY id', 'SELECT more FROM grown ORDER BY more', 'SELECT id, more FROM grown ORDER BY k, id',
	'SELECT * FROM holes WHERE k > 0 AND 8000 > id ORDER BY id', 'SELECT * FROM holes WHERE a IS NULL OR a < 50 ORDER BY id', 'SELECT * FROM holes WHERE id > 10 AND id % 2 = 0 ORDER BY k, id',
	'SELECT * FROM grown WHERE more = 5 ORDER BY id', 'SELECT id FROM kinds WHERE ts > now() AND f8 <> \'NaN\' AND i8 >= 0 ORDER BY id', 'SELECT * FROM kinds WHERE num > 3.5 AND b = true AND c < \'c\' ORDER BY id',
	(map { ("SELECT * FROM behind ORDER BY $_, id", "SELECT $_ FROM behind ORDER BY $_ DESC") } qw(amount at c i2 k bp b nm num u f8), 'txt COLLATE "C"'),
	(map { "SELECT * FROM behind ORDER BY $_" } 'at, amount', 'few, i2, id', 'i2, few, id', 'k, name COLLATE "C"', 'name COLLATE "C", at', 'at DESC LIMIT 500', 'i2, k, at LIMIT 9'),
	'SELECT few, u, txt FROM behind ORDER BY few, u, txt COLLATE "C"',
	'SELECT k, at, few, i2, id FROM behind ORDER BY id DESC', 'SELECT f8, b, amount FROM behind ORDER BY at', 'SELECT i2, name, few FROM behind ORDER BY k', 'SELECT nm, i2, txt, c FROM behind ORDER BY amount',
	'SELECT id FROM behind WHERE amount > 0 AND 50 > i2 AND b = true ORDER BY id', 'SELECT * FROM behind WHERE c > \'x\' AND f8 < 1e8 ORDER BY at, id', 'SELECT txt FROM behind WHERE k < 0 AND few = 7 ORDER BY txt, id',
	(map { ("SELECT * FROM added ORDER BY $_, id", "SELECT $_ FROM added ORDER BY $_", "SELECT $_, id, more FROM added WHERE late >= 77 AND i2 = 5 ORDER BY k") } qw(k late name i2)),
	(map { ("SELECT * FROM broad ORDER BY $_, c2", "SELECT $_, c3 FROM broad WHERE $_ > 9 ORDER BY $_, c3") } qw(c1 c63 c64 c65 c80)),
	'SELECT * FROM wide ORDER BY k', 'SELECT k, t FROM wide ORDER BY t, k', 'SELECT t FROM wide ORDER BY t',
	'SELECT * FROM parts ORDER BY k, id', 'SELECT id FROM parts ORDER BY id', 'SELECT id, a FROM parts WHERE k > 0 ORDER BY id',
	'SELECT * FROM parent ORDER BY k', 'SELECT v FROM parent WHERE k < 0 ORDER BY v',
	'SELECT * FROM (SELECT k FROM narrow UNION ALL SELECT k FROM part1) AS u ORDER BY k',
	'SELECT k, 7 AS seven, NULL::int AS none, \'tag\'::text AS tag, id, true AS yes, \'1 day\'::interval AS day, 2.5 AS num FROM narrow ORDER BY k, id',
	'SELECT * FROM (SELECT \'torn\' AS tag, id, v, 1 AS one FROM torn UNION ALL SELECT \'narrow\', id, NULL, NULL FROM narrow) AS u ORDER BY tag COLLATE "C", one, id',
	'SELECT * FROM (SELECT id, \'t\' || repeat(\'o\', 200) AS tag, 1.5 AS n FROM torn UNION ALL SELECT id, NULL, 1.25 FROM narrow UNION ALL SELECT y::int8, x, k FROM aged) AS u ORDER BY n DESC, tag COLLATE "C" NULLS FIRST, id',
	# 19rc1 itself crashes when it reads such values
	($node->safe_psql('postgres', 'SHOW server_version_num') < 190000
		? ('SELECT c, v, k FROM strange ORDER BY k, id', 'SELECT * FROM strange WHERE k > 0 ORDER BY v COLLATE "C"', 'SELECT id FROM strange ORDER BY id',
			'SELECT count(DISTINCT k), percentile_disc(0.5) WITHIN GROUP (ORDER BY late), max(k), max(t), min(v) FROM strange') : ()),
	'SELECT n.id, md5(s::text) FROM (SELECT id FROM narrow LIMIT 4) n, LATERAL (SELECT k, \'x\'::text AS c1, \'x\'::text AS c2, \'x\'::text AS c3, \'x\'::text AS c4, \'x\'::text AS c5, \'x\'::text AS c6, \'x\'::text AS c7, \'x\'::text AS c8, \'x\'::text AS c9, \'x\'::text AS c10, \'x\'::text AS c11, \'x\'::text AS c12, \'x\'::text AS c13, \'x\'::text AS c14, \'x\'::text AS c15, \'x\'::text AS c16, \'x\'::text AS c17, \'x\'::text AS c18, \'x\'::text AS c19, \'x\'::text AS c20, \'x\'::text AS c21, \'x\'::text AS c22, \'x\'::text AS c23, \'x\'::text AS c24, \'x\'::text AS c25, \'x\'::text AS c26, \'x\'::text AS c27, \'x\'::text AS c28, \'x\'::text AS c29, \'x\'::text AS c30 FROM torn WHERE torn.k > n.id % 3 UNION ALL SELECT k + 0, \'y\', \'y\', \'y\', \'y\', \'y\', \'y\', \'y\', \'y\', \'y\', \'y\', \'y\', \'y\', \'y\', \'y\', \'y\', \'y\', \'y\', \'y\', \'y\', \'y\', \'y\', \'y\', \'y\', \'y\', \'y\', \'y\', \'y\', \'y\', \'y\', \'y\' FROM narrow WHERE narrow.k > n.id % 3 ORDER BY k OFFSET 0) s',
	'SELECT * FROM (SELECT \'a\'::text AS tag FROM torn UNION ALL SELECT v FROM torn UNION ALL SELECT NULL FROM narrow) AS u ORDER BY tag COLLATE "C"',
	'SELECT * FROM (SELECT \'a\'::text AS tag, id FROM torn UNION ALL SELECT v, id FROM torn) AS u ORDER BY tag COLLATE "C", id LIMIT 300',
	'SELECT id, i8, b, c, i2, f4 FROM kinds ORDER BY i4, id', 'SELECT u, id FROM kinds ORDER BY i4, id', 'SELECT late, k, made, y FROM aged ORDER BY k, y',
	'SELECT made, k FROM aged ORDER BY k, made', 'SELECT 1 AS one FROM nothing ORDER BY random()',
	'SELECT * FROM narrow TABLESAMPLE SYSTEM (50) REPEATABLE (1) ORDER BY k, id', 'SELECT * FROM crash ORDER BY k, id',
	'SELECT n.id, s.k FROM (SELECT id FROM narrow LIMIT 5) n, LATERAL (SELECT k FROM torn WHERE torn.k > n.id % 3 ORDER BY k, torn.id OFFSET 0) s');
my @forced = ('gpusort.force = on', 'gpusort.min_rows = 0');
foreach my $query (@queries)
{
	same($query, @forced, 'max_parallel_workers_per_gather = 0');
}

# with workers, spilled, and handed over to core in the middle of a page
foreach my $query (grep { /narrow|torn|parts|kinds ORDER BY (i8|txt)/ && !/LATERAL|one|TABLESAMPLE|LIMIT/ } @queries)
{
	same($query, @forced, 'parallel_setup_cost = 0', 'parallel_tuple_cost = 0', 'min_parallel_table_scan_size = 0', 'max_parallel_workers_per_gather = 4');
	same($query, @forced, 'max_parallel_workers_per_gather = 0', 'gpusort.memory_limit = \'1MB\'');
}
my ($core, $ours);
foreach my $query ('SELECT * FROM torn ORDER BY k, id', 'SELECT id FROM many ORDER BY id', 'SELECT id FROM most ORDER BY id', 'SELECT v FROM torn ORDER BY v')
{
	my $scroll = "BEGIN; SET LOCAL gpusort.memory_limit = '1MB'; DECLARE c SCROLL CURSOR FOR $query; MOVE FORWARD ALL IN c; FETCH BACKWARD ALL IN c; COMMIT";
	($core, $ours) = map { ask($node, "SET gpusort.enabled = $_"); ask($node, $scroll) } 'off', 'on';
	ok($ours eq $core, "a cursor that core takes over: $query");
}

# what the transaction sees: its own changes, not those of others and not later ones
foreach my $level ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
{
	my ($old, $new) = map {
		ask($node, "SET gpusort.enabled = $_; BEGIN ISOLATION LEVEL $level; DELETE FROM narrow WHERE id % 10 = 0; UPDATE narrow SET k = 0 WHERE id % 10 = 1; DECLARE c CURSOR FOR SELECT k, id FROM narrow ORDER BY k, id; DELETE FROM narrow WHERE id % 10 = 2; FETCH 4000 FROM c; ROLLBACK")
	} 'off', 'on';
	is($new, $old, "a cursor sees the rows of when it was declared: $level");
}
my $lock = 'BEGIN; SELECT id FROM torn WHERE k < 20 ORDER BY k, id FOR UPDATE; ROLLBACK';
($core, $ours) = map { ask($node, "SET gpusort.enabled = $_"); ask($node, $lock) } 'off', 'on';
is($ours, $core, 'FOR UPDATE');
ask($node, 'CREATE TEMP TABLE mine AS TABLE narrow; ANALYZE mine');
same('SELECT * FROM mine ORDER BY k, id', @forced);

# aggregates read by pages, too
foreach my $values ('i4', 'f8', 'i4, i8', 'i2 + 1')
{
	my $percentiles = join(', ', map { "percentile_cont(ARRAY[0.5, 0.3]) WITHIN GROUP (ORDER BY $_), count(DISTINCT $_), gpu_sort_agg($_)" } split(/, /, $values));
	my $table = 'kinds WHERE id % 3 > 0 OR b';
	like(ask($node, "EXPLAIN SELECT $percentiles FROM $table"), qr/GpuSort Aggregate/, "GpuSort Aggregate: $values");
	is(ask($node, "SELECT $percentiles FROM $table"), ask($node, "SELECT $percentiles FROM (SELECT * FROM $table OFFSET 0) s"), "aggregates of $values");
}

# the counts are core's
sub counts
{
	my ($query) = @_;
	my $before = ask($node, "SELECT pg_stat_force_next_flush(); SELECT sum(seq_tup_read) FROM pg_stat_user_tables");
	my $plan = ask($node, "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF) $query");
	my $after = ask($node, "SELECT pg_stat_force_next_flush(); SELECT sum(seq_tup_read) FROM pg_stat_user_tables");
	return join("\n", ($plan =~ /(Append.*|Seq Scan.*|Rows Removed.*)/g), $after - $before);
}
foreach my $query ('SELECT * FROM narrow ORDER BY k', 'SELECT id FROM narrow WHERE a < 30 ORDER BY k', 'SELECT * FROM parts WHERE id % 2 = 0 ORDER BY k',
	'SELECT v FROM torn ORDER BY k')
{
	ask($node, "SET $_") foreach @forced, 'max_parallel_workers_per_gather = 0';
	my ($expected, $got) = map { ask($node, "SET gpusort.enabled = $_"); counts($query) } 'off', 'on';
	is($got, $expected, "counts: $query");
}

end_session($node);
done_testing();
