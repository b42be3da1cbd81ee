# gpusort builds btrees in core's place (src/index/).  The files are core's, byte for byte, and
# so are the errors.

use strict;
use warnings;

use GpusortTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('index', order_by => 1, settings => <<'CONF');
gpusort.engine = cpu
autovacuum = off
fsync = off
log_min_messages = debug1
CONF
$node->start;
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION gpusort;
CREATE FUNCTION h(i int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT hashint4(i)';

CREATE TABLE kinds AS SELECT i AS id, h(i) AS k, i::int8 % 100 AS few, (h(i) % 9)::int2 AS i2, h(i) % 2 = 0 AS b,
  (h(i) % 1000)::float4 / 7 AS f4, CASE i % 9 WHEN 0 THEN 'NaN' WHEN 1 THEN '-0' WHEN 2 THEN 0 ELSE h(i)::float8 / 3 END AS f8,
  CASE i % 50 WHEN 0 THEN 'infinity' ELSE timestamp '2020-01-01' + h(i) * interval '1 second' END AS ts,
  date '2020-01-01' + i % 1000 AS d, (h(i) % 300) * interval '1 hour' AS iv, chr(65 + i % 20)::"char" AS c, ((ARRAY['n', 'a', 'A', '_', 'é', ''])[i % 6 + 1] || i % 99)::name AS nm,
  md5((i % 15000)::text)::uuid AS u, CASE i % 3 WHEN 0 THEN (i % 70) * 1.10 ELSE (i % 70) * 1.1 END AS num,
  CASE WHEN i % 4 > 0 THEN left(md5((i % 3000)::text), i % 33) END AS txt, (i % 50)::text::char(9) AS bp,
  decode(md5((i % 1000)::text), 'hex') AS by, ARRAY[i % 10, NULL, i % 7] AS arr,
  '10.0.0.0'::inet + i % 5000 AS ip, to_jsonb(i % 200) AS js, CASE WHEN i % 3 > 0 THEN i END AS n
  FROM generate_series(1, 20000) i;
-- values that are compressed, in the table or only in the index, or out of line
CREATE TABLE wide (id int, t text, p text, m varchar);
ALTER TABLE wide ALTER p SET STORAGE PLAIN, ALTER m SET STORAGE MAIN;
INSERT INTO wide SELECT i, repeat(md5((i % 200)::text), 1 + i % 120), repeat('y', i % 700) || i % 300, repeat(md5((i % 40)::text), 1 + i % 90)
  FROM generate_series(1, 4000) i;
INSERT INTO wide SELECT id, t, left(p, 7), left(m, 2000) FROM wide WHERE id % 3 = 0;
-- equal values with headers of one and of four bytes
CREATE TABLE plain AS SELECT (i % 300)::text AS t FROM generate_series(1, 3000) i;
ALTER TABLE plain ALTER t SET STORAGE PLAIN;
INSERT INTO plain SELECT (i % 400)::text FROM generate_series(1, 3000) i;
-- strings at a known place: short, long, compressed and out of line; and uuids of which two share words
CREATE TABLE strings AS SELECT i AS id, CASE WHEN i < 400 THEN NULL ELSE CASE i % 40 WHEN 0 THEN 'ffffffff-ffff-ffff-ffff-ffffffffffff' WHEN 1 THEN 'ffffffff-ffff-ffff-ffff-fffffffffffe'
  WHEN 2 THEN '00000000-0000-0000-0000-000000000000' ELSE md5((i % 3000)::text) END END::uuid AS u,
  CASE WHEN i % 500 = 0 THEN left((SELECT string_agg(md5((i * j)::text), '') FROM generate_series(1, 90) j), 2500)
    ELSE left(md5((i % 2500)::text), i % 25) || repeat('x', CASE i % 60 WHEN 0 THEN 150 WHEN 1 THEN 3000 ELSE 0 END) END AS txt
  FROM generate_series(1, 8000) i;
SQL
$node->safe_psql('postgres', tables_behind());
$node->safe_psql('postgres', <<'SQL');
-- HOT chains, dead, updated and locked tuples, aborted changes
CREATE TABLE torn (id int8 PRIMARY KEY, k int, h int DEFAULT 0, v text) WITH (fillfactor = 60);
INSERT INTO torn SELECT i, h(i) % 1000, 0, md5(i::text) FROM generate_series(1, 20000) i;
UPDATE torn SET h = 1 WHERE id % 3 = 0 AND id < 15000;
UPDATE torn SET h = 2 WHERE id % 6 = 0 AND id < 15000;
DELETE FROM torn WHERE id % 7 = 0 AND id < 15000;
UPDATE torn SET k = k + 1 WHERE id % 5 = 0 AND id < 15000;
BEGIN; UPDATE torn SET k = -k; ROLLBACK;
BEGIN; SELECT count(*) FROM (SELECT FROM torn FOR UPDATE) s; COMMIT;
-- dropped and added columns
CREATE TABLE aged (x text, k int, gone int, y numeric);
INSERT INTO aged SELECT left(md5(i::text), i % 9), h(i) % 50, i, i FROM generate_series(1, 4000) i;
ALTER TABLE aged DROP COLUMN gone;
ALTER TABLE aged ADD COLUMN late int8 DEFAULT 77, ADD COLUMN empty int, ADD COLUMN made int GENERATED ALWAYS AS (k * 2) STORED;
INSERT INTO aged SELECT CASE WHEN i % 3 > 0 THEN md5(i::text) END, CASE WHEN i % 4 > 0 THEN h(i) % 50 END, i, i, i FROM generate_series(4001, 8000) i;
ANALYZE;
SQL

my $block_size = $node->safe_psql('postgres', 'SHOW block_size');

# The bytes of an index, without the LSN and the checksum of each page.
sub bytes_of
{
	my ($index) = @_;
	my $path = $node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('$index')");
	my $bytes = slurp_file($path);

	substr($bytes, $_ * $block_size, 10) = "\0" x 10 for 0 .. length($bytes) / $block_size - 1;
	return $bytes;
}

# Has gpusort built this index since an offset of the log?
sub by_gpusort
{
	my ($index, $from) = @_;

	return slurp_file($node->logfile, $from) =~ /gpusort has built index "$index"/;
}

# Both build the index, gpusort in these settings.  Then the bytes are the same.
sub same
{
	my ($definition, %how) = @_;
	my $log = -s $node->logfile;
	my $settings = $how{settings} // '';
	my $options = $how{unique} ? 'UNIQUE' : '';

	my ($rc, $out, $err) = $node->psql('postgres', <<"SQL");
$settings
SET gpusort.index_build = off;
CREATE $options INDEX theirs ON $definition;
SET gpusort.index_build = on;
CREATE $options INDEX ours ON $definition;
SQL
	is($rc, 0, "$definition: built") or diag($err), return;
	is(by_gpusort('ours', $log) ? 'gpusort' : 'core', $how{core} ? 'core' : 'gpusort', "$definition: the builder $settings");
	ok(bytes_of('ours') eq bytes_of('theirs'), "$definition: the bytes $settings");
	$node->safe_psql('postgres', 'DROP INDEX ours, theirs');
}

my $little = 'SET maintenance_work_mem = 1024;';

# users' operator classes
$node->safe_psql('postgres', <<'SQL');
CREATE DOMAIN whole AS int;
CREATE FUNCTION reversed(int, int) RETURNS int IMMUTABLE STRICT LANGUAGE sql AS 'SELECT btint4cmp($2, $1)';
CREATE FUNCTION reversed(date, date) RETURNS int IMMUTABLE STRICT LANGUAGE sql AS 'SELECT date_cmp($2, $1)';
CREATE OPERATOR CLASS reversed_int FOR TYPE int USING btree AS OPERATOR 1 >, OPERATOR 2 >=, OPERATOR 3 =, OPERATOR 4 <=, OPERATOR 5 <,
  FUNCTION 1 reversed(int, int);
CREATE OPERATOR CLASS reversed_date FOR TYPE date USING btree AS OPERATOR 1 >, OPERATOR 2 >=, OPERATOR 3 =, OPERATOR 4 <=, OPERATOR 5 <,
  FUNCTION 1 reversed(date, date);
SQL
same("kinds ($_)") foreach 'k reversed_int', 'k reversed_int DESC', 'd reversed_date', 'k reversed_int, id', 'k oid_ops', 'k oid_ops DESC', 'k oid_ops, id', '(k::whole)';

# ---- types, directions and options ----

foreach my $column (qw(id k few i2 b f4 f8 ts d iv c u num txt bp by ip n), 'txt COLLATE "C"', 'txt text_pattern_ops',
	'bp COLLATE "C"', 'n DESC', 'n NULLS FIRST', 'n DESC NULLS LAST', 'txt DESC', 'few, k', 'few DESC, txt, n', 'i2, b, c, num, f8',
	'lower(txt)', '(few + 1), id', 'k) INCLUDE (nm')
{
	same("kinds ($column)");
	same("kinds ($column)", settings => $little);
}
foreach my $columns ('u', 'txt', 'u DESC, txt', 'id, txt', 'txt) INCLUDE (u', 'u) INCLUDE (id, txt')
{
	same("strings ($columns)");
	same("strings ($columns)", settings => $little);
}
foreach my $columns (qw(amount at c i2 k bp b num txt u f8), 'at, amount', 'few, i2', 'i2 DESC, few', 'k, txt', 'few, u, txt', 'at) INCLUDE (amount', 'few) INCLUDE (at, id',
	'id) INCLUDE (txt', 'k) INCLUDE (few, txt, bp', 'num) INCLUDE (i2')
{
	same("behind ($columns)");
	same("behind ($columns)", settings => $little);
}
same("added ($_)") foreach qw(k late i2), 'late, id', 'k) INCLUDE (more', 'i2) INCLUDE (late, k';
same("kinds ($_)", core => 1) foreach 'nm', 'k, nm DESC';
same("broad ($_)") foreach qw(c1 c63 c64 c65 c80), 'c2, c63', 'c80, c3', 'c2) INCLUDE (c64';
same("kinds ($_)", core => 1) foreach 'js', 'arr', 'k, arr';
same("kinds ($_)", unique => 1) foreach 'id', 'k, id', 'id, num', 'n';
same("kinds (id) INCLUDE (txt)", unique => 1, settings => $little);
same("kinds $_") foreach '(few) INCLUDE (txt)', '(k) INCLUDE (id, num)', '(k) WHERE few < 50', '(k) WHERE false', '(few) WITH (fillfactor = 50)',
	'(k) WITH (fillfactor = 100)', '(few) WITH (deduplicate_items = off)', '(num) WHERE num < 20';
same('plain (t)', settings => $_) foreach '', $little;
foreach my $columns ('t', 'p', 'm', 't COLLATE "C"', 't, p', 'id) INCLUDE (t', '(t || p)', 'left(t, 100), m')
{
	same("wide ($columns)");
	same("wide ($columns)", settings => $little);
}
SKIP:
{
	skip 'no ICU', 4 unless has_icu($node);
	same('kinds (txt COLLATE "und-x-icu")', settings => $_) foreach '', $little;
}

# ---- tables with a past ----

foreach my $columns ('k', 'h', 'v', 'k, h')
{
	same("torn ($columns)");
	same("torn ($columns)", settings => $little);
}
same('torn (id)', unique => 1);
same("aged ($_)") foreach qw(x k y late empty made), 'late, k', 'made, x';

# Tuples that an old snapshot still sees are in the index; a unique one does not count them.
{
	my $old = session($node);

	answer($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT 1');
	$node->safe_psql('postgres', <<'SQL');
UPDATE torn SET k = k + 7 WHERE id % 13 = 0;
DELETE FROM torn WHERE id % 17 = 0;
INSERT INTO torn SELECT id, 0, 0, 'again' FROM generate_series(17, 15000, 17) id WHERE id % 7 > 0 ON CONFLICT DO NOTHING;
SQL
	same('torn (k)');
	same("torn ($_)", unique => 1) foreach 'id', 'id, k', '(id::int4)';
	leave($old);
}

# Tuples of this transaction, and of subtransactions.
{
	my $log = -s $node->logfile;
	$node->safe_psql('postgres', <<'SQL');
BEGIN;
CREATE TABLE fresh (k int, t text);
INSERT INTO fresh SELECT h(i) % 5000, i FROM generate_series(1, 20000) i;
SAVEPOINT s; INSERT INTO fresh SELECT 0, i FROM generate_series(1, 3000) i; ROLLBACK TO s;
UPDATE fresh SET k = k + 1 WHERE k < 100; DELETE FROM fresh WHERE k > 4900;
SET gpusort.index_build = off; CREATE INDEX theirs ON fresh (k, t);
SET gpusort.index_build = on; CREATE INDEX ours ON fresh (k, t);
COMMIT;
SQL
	ok(by_gpusort('ours', $log), 'gpusort has built an index in the transaction that filled the table');
	ok(bytes_of('ours') eq bytes_of('theirs'), 'the bytes of such an index');
}

# ---- parallel workers ----

# They read ranges of the table, and the bytes are the same.  With little memory they spill.
$node->safe_psql('postgres', 'DROP INDEX IF EXISTS ours, theirs');
$node->safe_psql('postgres', "ALTER TABLE $_ SET (parallel_workers = 3)") foreach qw(kinds strings torn aged wide);
foreach my $memory ('256MB', '1MB')
{
	my $workers = "SET max_parallel_maintenance_workers = 3; SET maintenance_work_mem = '$memory';";
	my $log = -s $node->logfile;
	my $spilled;

	same("kinds ($_)", settings => $workers) foreach 'k', 'few', 'n', 'few, k', 'u', 'f8', 'ts, id', 'b, i2, c', '(few + 1), id', 'k) WHERE (few < 50';
	same("kinds ($_)", settings => $workers, unique => 1) foreach 'id', 'k, id';
	same("strings ($_)", settings => $workers) foreach 'u', 'id) INCLUDE (txt', 'u) INCLUDE (txt, id';
	same("torn ($_)", settings => $workers) foreach 'k', 'h, k', 'k) INCLUDE (v';
	same("aged ($_)", settings => $workers) foreach 'late, k', 'made) INCLUDE (x';
	same("wide ($_)", settings => $workers) foreach 'id) INCLUDE (p', 'id) INCLUDE (m';
	is(scalar(() = slurp_file($node->logfile, $log) =~ /to load; 3 workers/g), 22, "workers have read, $memory");

	# the first process that has a sample of the rows shares it: all choose the words of strings by it
	$log = -s $node->logfile;
	same("kinds ($_)", settings => $workers) foreach 'txt', 'k, txt', 'txt COLLATE "C"', 'num, txt', 'ip', 'lower(txt)';
	same("strings ($_)", settings => $workers) foreach 'txt', 'txt, u', 'u, txt';
	same("wide ($_)", settings => $workers) foreach 't', 'm DESC, t';
	is(scalar(() = slurp_file($node->logfile, $log) =~ /to load; 3 workers/g), 11, "workers have read strings, $memory");
	$spilled = () = slurp_file($node->logfile, $log) =~ /to load; 3 workers, [1-9]\d* spilled/g;
	ok($memory eq '1MB' ? $spilled >= 8 : $spilled == 0, "they have spilled in $spilled builds, $memory");
	SKIP:
	{
		skip 'no ICU', 2 unless has_icu($node);
		same('kinds (txt COLLATE "und-x-icu")', settings => $workers);
	}

	# one of the workers is launched, and the leader reads the other ranges
	same('kinds (txt, k)', settings => "$workers SET max_parallel_workers = 1;");
}

{
	my $workers = 'SET max_parallel_maintenance_workers = 3; SET maintenance_work_mem = \'256MB\';';
	my $log;

	# the sample is of few rows, or of rows that are long
	same('kinds (txt) WHERE (id > 15000)', settings => $workers);
	$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION long(i int) RETURNS text IMMUTABLE LANGUAGE sql AS $$ SELECT string_agg(md5((i * j)::text), '') FROM generate_series(1, 32) j $$;
SQL
	same('kinds (long(id))', settings => 'SET max_parallel_maintenance_workers = 3; SET maintenance_work_mem = \'8MB\';');

	# all keep the same few long values; and there may be no worker to launch
	$log = -s $node->logfile;
	same("kinds ($_)", settings => $workers) foreach 'md5((few % 7)::text)', 'num, by';
	same('kinds (k, few)', settings => "$workers SET max_parallel_workers = 0;");
	is(scalar(() = slurp_file($node->logfile, $log) =~ /to load; 0 workers/g), 1, 'no workers have read');

	# there is less memory than rows need
	$log = -s $node->logfile;
	$node->safe_psql('postgres', <<'SQL');
CREATE TABLE large (id int, t text) WITH (parallel_workers = 3);
ALTER TABLE large ALTER t SET STORAGE PLAIN;
INSERT INTO large SELECT hashint4(i), (SELECT string_agg(sha512((i * j)::text::bytea)::text, '') FROM generate_series(1, 18) j) FROM generate_series(1, 30000) i;
ANALYZE large;
SQL
	same('large (id) INCLUDE (t)', settings => 'SET max_parallel_maintenance_workers = 3; SET maintenance_work_mem = \'64MB\';');
	like(slurp_file($node->logfile, $log), qr/to load; 3 workers, [1-9]\d* spilled/, 'a worker has had too little memory');
	$node->safe_psql('postgres', "ALTER TABLE $_ RESET (parallel_workers)") foreach qw(kinds strings torn aged wide);
	$node->safe_psql('postgres', 'DROP TABLE large');
}

# ---- many rows ----

# Threads copy rows of such a store, and fill leaves while others are written.  Some rows need core: they are compressed.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE many AS SELECT i AS id, CASE WHEN i % 97 > 0 THEN h(i) % 20000 END AS k,
  repeat(md5(i::text), CASE WHEN i % 5000 = 0 OR i BETWEEN 300000 AND 300100 THEN 50 ELSE 5 END) AS t FROM generate_series(1, 700000) i;
INSERT INTO many SELECT * FROM many WHERE id % 7 = 0 AND k IS NOT NULL;
ANALYZE many;
SQL
same("many ($_)", settings => 'SET maintenance_work_mem = \'1GB\';') foreach 'k) INCLUDE (t', 'id) INCLUDE (t';
$node->safe_psql('postgres', 'DELETE FROM many WHERE ctid IN (SELECT max(ctid) FROM many GROUP BY id HAVING count(*) > 1)');
same('many (id) INCLUDE (t)', unique => 1, settings => 'SET maintenance_work_mem = \'1GB\';');
$node->safe_psql('postgres', 'INSERT INTO many SELECT * FROM many WHERE id = 300050');
{
	my ($rc, $out, $err) = $node->psql('postgres', 'SET maintenance_work_mem = \'1GB\'; CREATE UNIQUE INDEX ours ON many (id) INCLUDE (t)');
	like($err, qr/could not create unique index "ours"\nDETAIL:  Key \(id\)=\(300050\) is duplicated/, 'a thread leaves equal keys to the backend');
}
$node->safe_psql('postgres', 'DROP TABLE many');

# ---- commands ----

$node->safe_psql('postgres', <<'SQL');
CREATE TABLE base (id int NOT NULL, k int, t text);
INSERT INTO base SELECT i, h(i) % 100, md5(i::text) FROM generate_series(1, 10000) i;
CREATE TABLE parts (k int, id int) PARTITION BY HASH (id);
CREATE TABLE part0 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE part1 (LIKE part0);
INSERT INTO part0 SELECT * FROM (SELECT h(i) AS k, i AS id FROM generate_series(1, 20000) i) s
  WHERE satisfies_hash_partition('parts'::regclass, 2, 0, id);
INSERT INTO part1 SELECT * FROM (SELECT h(i) AS k, i AS id FROM generate_series(1, 20000) i) s
  WHERE satisfies_hash_partition('parts'::regclass, 2, 1, id);
CREATE MATERIALIZED VIEW view AS SELECT id, k FROM kinds;
SQL

# The command builds the index as core does, which builds it again.
sub same_after
{
	my ($command, $index) = @_;
	my $log = -s $node->logfile;
	my $ours;

	$node->safe_psql('postgres', $command);
	ok(by_gpusort("\\w*$index\\w*", $log), "$command: the builder");
	$ours = bytes_of($index);
	$node->safe_psql('postgres', "SET gpusort.index_build = off; REINDEX INDEX $index");
	ok($ours eq bytes_of($index), "$command: the bytes");
}

same_after('ALTER TABLE base ADD PRIMARY KEY (id)', 'base_pkey');
same_after('ALTER TABLE base ADD CONSTRAINT base_u UNIQUE (t, k) DEFERRABLE', 'base_u');
same_after('ALTER TABLE base ADD CONSTRAINT base_x EXCLUDE USING btree (id WITH =)', 'base_x');
same_after('CREATE UNIQUE INDEX base_nn ON base (t) NULLS NOT DISTINCT', 'base_nn');
same_after('CREATE INDEX CONCURRENTLY base_c ON base (k)', 'base_c');
same_after('REINDEX INDEX base_pkey', 'base_pkey');
same_after('REINDEX TABLE base', 'base_u');
same_after('REINDEX INDEX CONCURRENTLY base_c', 'base_c');
same_after('ALTER TABLE base ALTER k TYPE int8', 'base_c');
same_after('CLUSTER base USING base_u', 'base_pkey');
same_after('VACUUM FULL base', 'base_pkey');
same_after('CREATE INDEX view_k ON view (k)', 'view_k');
same_after('REFRESH MATERIALIZED VIEW view', 'view_k');
same_after('CREATE INDEX parts_k ON parts (k)', 'part0_k_idx');
same_after('ALTER TABLE parts ATTACH PARTITION part1 FOR VALUES WITH (MODULUS 2, REMAINDER 1)', 'part1_k_idx');
same_after('ALTER TABLE base SET UNLOGGED', 'base_u');
same_after('ALTER TABLE base SET LOGGED', 'base_u');

is($node->safe_psql('postgres', <<'SQL'), "5000\n5000", 'the index of a temporary table, and one of an empty table that is filled');
CREATE TEMP TABLE temporary AS SELECT h(i) AS k FROM generate_series(1, 20000) i;
CREATE INDEX ON temporary (k);
CREATE TEMP TABLE filled (k int); CREATE INDEX ON filled (k); INSERT INTO filled SELECT k FROM temporary;
SET enable_seqscan = off; SET enable_bitmapscan = off;
SELECT count(*) FROM (SELECT FROM temporary WHERE k > (SELECT k FROM temporary ORDER BY k OFFSET 14999 LIMIT 1)) s;
SELECT count(*) FROM (SELECT FROM filled WHERE k > (SELECT k FROM temporary ORDER BY k OFFSET 14999 LIMIT 1)) s;
SQL

SKIP:
{
	my ($rc) = $node->psql('postgres', 'CREATE EXTENSION amcheck');
	my $indexes = q{SELECT i.indexrelid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
	  WHERE c.relkind = 'i' AND c.relpersistence = 'p' AND i.indexrelid >= 16384};

	skip 'no amcheck', 1 if $rc != 0;
	$node->safe_psql('postgres', 'CREATE INDEX ON wide (t); CREATE INDEX ON torn (k); CREATE INDEX ON kinds (txt, n)');
	is($node->safe_psql('postgres', "SELECT count(*) > 10 FROM (SELECT bt_index_parent_check(indexrelid, true, true) FROM ($indexes) s) t"),
		't', "amcheck finds no fault");
}

# ---- what users see ----

{
	my $counters = q(SELECT sum(count) FILTER (WHERE engine <> 'core'), sum(count) FILTER (WHERE engine = 'core'), sum(rows) FROM gpusort_stat WHERE kind = 'index');
	my ($builds, $by_core, $rows) = split /\|/, $node->safe_psql('postgres', $counters);

	is($node->safe_psql('postgres', 'CREATE INDEX seen ON kinds (u); SELECT rows, key_type, engine, gather_ms + return_ms <= total_ms FROM gpusort_last_sort()'),
		'20000|index|cpu|t', 'gpusort_last_sort() shows a build');
	like($node->safe_psql('postgres', 'CREATE INDEX left_to_core ON kinds (js); SELECT rows, key_type, engine, reason FROM gpusort_last_sort()'),
		qr/^0\|index\|core\|.*jsonb/, 'gpusort_last_sort() shows why core has built an index');
	is($node->safe_psql('postgres', $counters), join('|', $builds + 1, $by_core + 1, $rows + 20000), 'gpusort_stat counts builds');
}

# Pages with HOT chains and pages without take turns.  The function of the index sees how much memory the session has.
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION measured(id int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	IF id % 500 = 100 THEN
		RAISE NOTICE 'bytes: %', (SELECT sum(total_bytes) FROM pg_backend_memory_contexts);
	END IF;
	RETURN id;
END $$;
CREATE TABLE turns (id int, k int, pad text) WITH (fillfactor = 50);
INSERT INTO turns SELECT i, i, repeat('x', 1800) FROM generate_series(1, 4000) i;
UPDATE turns SET pad = pad || 'y' WHERE ((ctid::text::point)[0])::int % 2 = 0 AND (ctid::text::point)[1] = 1;
SQL
{
	my (undef, undef, $notices) = $node->psql('postgres', 'CREATE INDEX ON turns ((k + 1), (k * 2), abs(k), (k % 7), measured(k))');
	my @bytes = $notices =~ /bytes: (\d+)/g;

	cmp_ok(@bytes, '>=', 6, 'the memory of a build is measured');
	cmp_ok($bytes[-1], '<', $bytes[0] + 2_000_000, "memory does not grow with pages that have HOT chains: @bytes");
}

# ---- errors ----

# Both raise this error.
sub same_error
{
	my ($statement, $error) = @_;

	foreach my $setting ('off', 'on')
	{
		my ($rc, $out, $err) = $node->psql('postgres', "SET gpusort.index_build = $setting; $statement");

		isnt($rc, 0, "$statement: fails with gpusort.index_build = $setting");
		like($err, $error, "$statement: the error with gpusort.index_build = $setting");
	}
}

$node->safe_psql('postgres', <<'SQL');
CREATE TABLE once AS SELECT h(i)::numeric AS n, i % 10000 AS d, i AS id, CASE WHEN i > 2 THEN md5(i::text) END AS t FROM generate_series(1, 10000) i;
INSERT INTO once VALUES (5.0, 1, 0, 'x'), (5.00, 2, -1, 'y');
CREATE TABLE few AS SELECT n::numeric FROM (VALUES ('3'), ('7.0'), ('7.00'), ('9')) v (n);
CREATE TABLE huge AS SELECT i, string_agg(md5((i * j)::text), '') AS t FROM generate_series(1, 300) i, generate_series(1, 300) j GROUP BY i;
SQL
# more than a third of a page
my $wide = $block_size * 3 / 8;
foreach my $memory ('', $little)
{
	same_error("$memory CREATE UNIQUE INDEX ON once (n)", qr/could not create unique index "once_n_idx"\n.*Key \(n\)=\(5\.00?\) is duplicated/);
	same_error("$memory CREATE UNIQUE INDEX ON once (d)", qr/could not create unique index "once_d_idx"\n.*Key \(d\)=\([12]\) is duplicated/);
	same_error("$memory CREATE UNIQUE INDEX ON once (t) NULLS NOT DISTINCT", qr/Key \(t\)=\(null\) is duplicated/);
	same_error("$memory CREATE INDEX ON huge (t)", qr/index row (?:size|requires) \d+/);
	same_error("$memory CREATE INDEX ON huge (left(t, $wide))", qr/index row size \d+ exceeds btree version 4 maximum \d+ for index|index row requires \d+ bytes, maximum size is 8191/);
	same_error("$memory CREATE INDEX ON once ((1 / d))", qr/division by zero/);
}
same_error('SET gpusort.force = on; CREATE UNIQUE INDEX ON few (n)', qr/Key \(n\)=\(7\.0\) is duplicated/);
is($node->safe_psql('postgres', 'CREATE UNIQUE INDEX once_t ON once (t); SELECT count(*) FROM once WHERE t IS NULL'), 2, 'NULLs are distinct');

# ---- a crash, and a table that is not logged ----

{
	my $ours;

	$node->safe_psql('postgres', 'CREATE INDEX lasting ON kinds (few, txt)');
	$ours = bytes_of('lasting');
	$node->stop('immediate');
	$node->start;
	ok($ours eq bytes_of('lasting'), 'an index survives a crash');

	$node->append_conf('postgresql.conf', "wal_level = minimal\nmax_wal_senders = 0\nmax_parallel_maintenance_workers = 0\n");
	$node->restart;
	my $log = -s $node->logfile;
	$node->safe_psql('postgres', 'CREATE INDEX by_core ON kinds (few)');
	ok(!by_gpusort('by_core', $log), 'without parallel maintenance workers, core builds');
	$node->safe_psql('postgres', <<'SQL');
SET max_parallel_maintenance_workers = 2;
BEGIN;
CREATE TABLE minimal AS SELECT h(i) AS k FROM generate_series(1, 20000) i;
CREATE INDEX minimal_k ON minimal (k);
COMMIT;
SQL
	ok(by_gpusort('minimal_k', $log), 'gpusort has built an index without WAL');
	$ours = bytes_of('minimal_k');
	$node->stop('immediate');
	$node->start;
	ok($ours eq bytes_of('minimal_k'), 'such an index survives a crash');
}

done_testing();
