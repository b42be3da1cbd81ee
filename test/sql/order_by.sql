--
-- ORDER BY: GpuSort replaces Sort
--

LOAD 'gpusort';
SET max_parallel_workers_per_gather = 0;
SET jit = off;

CREATE TABLE o AS
SELECT i AS id, i % 7 AS a, CASE WHEN i % 11 > 0 THEN (i * 7919) % 1000 END AS k,
       (i * 7919 % 1000)::text AS t, ((i * 31) % 97)::float8 / 8 AS f, (i % 13)::numeric / 4 AS n
FROM generate_series(1, 1000) AS i;
ANALYZE o;

-- small inputs are left to core; for large inputs GpuSort is expected to be cheaper
EXPLAIN (COSTS OFF) SELECT * FROM o TABLESAMPLE SYSTEM (20) ORDER BY k;
EXPLAIN (COSTS OFF) SELECT * FROM o, generate_series(1, 1000) ORDER BY k;
EXPLAIN (COSTS OFF) SELECT * FROM o, generate_series(1, 1000) ORDER BY k LIMIT 10;
EXPLAIN (COSTS OFF) SELECT * FROM o, generate_series(1, 1000) ORDER BY k LIMIT 900000;
EXPLAIN (COSTS OFF) SELECT * FROM o, generate_series(1, 1000) ORDER BY k LIMIT 60000 OFFSET 40000;
EXPLAIN (COSTS OFF) SELECT * FROM o, generate_series(1, 1000) ORDER BY k FETCH FIRST 10 ROWS WITH TIES;
-- it computes LIMIT and OFFSET itself, unless they could have another value then
SET plan_cache_mode = force_generic_plan;
PREPARE part (int) AS SELECT * FROM o, generate_series(1, 1000) ORDER BY k LIMIT $1 OFFSET $1 / 2;
EXPLAIN (COSTS OFF) EXECUTE part (100000);
DEALLOCATE part;
RESET plan_cache_mode;
EXPLAIN (COSTS OFF) SELECT * FROM o, generate_series(1, 1000) ORDER BY k LIMIT 10 + (random() * 10)::int;
SET gpusort.enabled = off;
EXPLAIN (COSTS OFF) SELECT * FROM o, generate_series(1, 1000) ORDER BY k;
RESET gpusort.enabled;

-- the cost of GpuSort affects the choice of plans
CREATE TABLE wide AS SELECT (i * 7919) % 100003 AS k, repeat('x', 100) AS filler FROM generate_series(1, 40000) AS i;
CREATE INDEX ON wide (k);
VACUUM ANALYZE wide;
SET work_mem = '64MB';
-- a byte of pages in random order costs the same at each size of pages
SELECT 3 * current_setting('block_size')::int / 8192.0 AS cost \gset
SET random_page_cost = :cost;
SET gpusort.enabled = off;
EXPLAIN (COSTS OFF) SELECT * FROM wide ORDER BY k;
RESET gpusort.enabled;
EXPLAIN (COSTS OFF) SELECT * FROM wide ORDER BY k;
RESET work_mem;
RESET random_page_cost;
DROP TABLE wide;

-- from here on, GpuSort does every sort
SET gpusort.force = on;
SET gpusort.min_rows = 0;

EXPLAIN (COSTS OFF) SELECT * FROM o ORDER BY a DESC, k NULLS FIRST, t COLLATE "C" USING ~>~;
EXPLAIN (COSTS OFF) SELECT DISTINCT ON (a) a, k FROM o ORDER BY a, k DESC NULLS LAST;
SET enable_hashagg = off;
EXPLAIN (COSTS OFF) SELECT t COLLATE "C", count(*) FROM o GROUP BY 1;
RESET enable_hashagg;
SET enable_hashjoin = off;
SET enable_nestloop = off;
EXPLAIN (COSTS OFF) SELECT * FROM o x JOIN o y USING (id);
SELECT count(*), sum(x.id * y.a) FROM o x JOIN o y USING (k);
RESET enable_hashjoin;
RESET enable_nestloop;
EXPLAIN (COSTS OFF) SELECT a, k, count(*) FROM o GROUP BY GROUPING SETS ((a, k), (k));
EXPLAIN (COSTS OFF, VERBOSE) WITH c AS MATERIALIZED (SELECT a, id FROM o ORDER BY id) SELECT * FROM c ORDER BY a;

-- the lines that EXPLAIN ANALYZE adds; numbers, engine and algorithm depend on the machine
CREATE FUNCTION explain_analyze(query text, options text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    line text;
BEGIN
    FOR line IN EXECUTE format('EXPLAIN (ANALYZE, COSTS OFF, SUMMARY OFF, BUFFERS OFF, %s) %s', options, query) LOOP
        -- lines about the device's copies, and lines that version 18 adds to core's nodes
        CONTINUE WHEN line ~ '^ *(Copy In Time|Copy Out Time|Storage|Window): ';
        RETURN NEXT regexp_replace(regexp_replace(line, '\d+(\.\d+)?', 'N', 'g'), '(Engine|Algorithm): .*', '\1: E');
    END LOOP;
END
$$;
SELECT explain_analyze('SELECT id FROM o ORDER BY id DESC', 'TIMING OFF');
SELECT explain_analyze('SELECT a, row_number() OVER (ORDER BY f, id) FROM o', 'TIMING OFF');
SELECT explain_analyze('SELECT * FROM o ORDER BY a, k', 'TIMING ON');
SELECT explain_analyze('SELECT id, a FROM o, generate_series(1, 10) ORDER BY id LIMIT 90 OFFSET 10', 'TIMING OFF');
SET gpusort.memory_limit = '64kB';
SELECT explain_analyze('SELECT * FROM o, generate_series(1, 4) ORDER BY a, k', 'TIMING OFF');
RESET gpusort.memory_limit;
CREATE FUNCTION explain_keys(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    EXECUTE 'EXPLAIN (ANALYZE, BUFFERS OFF, FORMAT JSON) ' || query INTO plan;
    RETURN QUERY SELECT k FROM json_object_keys(plan -> 0 -> 'Plan') AS k WHERE k !~ 'Copy|Cost|Plan|Actual|Disabled';
END
$$;
SELECT explain_keys('SELECT * FROM o ORDER BY a, k');

-- results are stable for each kind of key
SELECT id, a, k FROM o WHERE id <= 30 ORDER BY a DESC, k NULLS FIRST;
SELECT string_agg(id::text, ' ') FROM (SELECT id FROM o WHERE id <= 40 ORDER BY a) AS s;
SELECT string_agg(id::text, ' ') FROM (SELECT id FROM o WHERE id <= 40 ORDER BY a DESC) AS s;
SELECT k FROM o WHERE id <= 24 ORDER BY k DESC;
SELECT k FROM o WHERE id <= 24 ORDER BY k NULLS FIRST LIMIT 5 OFFSET 1;
SELECT f, n, t FROM o WHERE id <= 12 ORDER BY n DESC, f, t COLLATE "C";
SELECT v FROM (VALUES (1e0), ('NaN'), (-0.0::float8), (0), ('-Infinity'), (NULL), ('Infinity'), ('-NaN')) AS s (v) ORDER BY v DESC;
SELECT DISTINCT ON (a) a, k, id FROM o ORDER BY a, k DESC NULLS LAST, id;
SELECT * FROM o WHERE false ORDER BY k;
SELECT k FROM o WHERE false ORDER BY k;

-- rows that the words of their keys do not decide: tie groups of strings, which are
-- sorted by bytes, and of values, which are compared
CREATE TABLE ties AS SELECT g AS id, g % 3 AS b, 'https://www.example.org/page/' || md5((g % 9000)::text) AS u FROM generate_series(1, 20000) AS g;
INSERT INTO ties SELECT id, b, left(u, 20 + id % 40) FROM ties WHERE id % 10 = 0;
INSERT INTO ties SELECT id, b, repeat(u, 200) FROM ties WHERE id % 1000 = 0;
CREATE FUNCTION as_core(query text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    rows text := format('SELECT md5(string_agg(s::text, '';'')) FROM (%s) AS s', query);
    mine text;
    cores text;
BEGIN
    SET LOCAL gpusort.enabled = on;
    EXECUTE rows INTO mine;
    SET LOCAL gpusort.enabled = off;
    EXECUTE rows INTO cores;
    SET LOCAL gpusort.enabled = on;
    RETURN mine = cores;
END
$$;
SELECT as_core('SELECT u FROM ties ORDER BY u COLLATE "C"');
SELECT as_core('SELECT * FROM ties ORDER BY u COLLATE "C" DESC, id');
SELECT as_core('SELECT * FROM ties ORDER BY b, u COLLATE "C", id DESC');
SELECT as_core('SELECT * FROM ties ORDER BY u::bpchar COLLATE "C", id DESC');
-- a collation of libc's that every system has
CREATE COLLATION code_points (provider = libc, locale = 'C.UTF-8');
EXPLAIN (COSTS OFF) SELECT * FROM ties ORDER BY u COLLATE code_points DESC, id;
SELECT as_core('SELECT * FROM ties ORDER BY u COLLATE code_points DESC, id');
SELECT as_core('SELECT * FROM ties ORDER BY b, u::bpchar COLLATE code_points, id DESC');
SELECT as_core('SELECT id FROM ties ORDER BY left(u, 60)::name COLLATE code_points, id');
DROP COLLATION code_points;
SELECT as_core($$SELECT id, convert_to(u, 'UTF8') || decode(repeat('00', id % 5), 'hex') AS v FROM ties ORDER BY v DESC, id$$);
SELECT as_core('SELECT id, (repeat($$9$$, 40) || id)::numeric AS n FROM ties ORDER BY n DESC, id');
-- strings that the words cut off, after a string that they do not cut off or a NULL
SELECT as_core('SELECT * FROM ties ORDER BY left(md5(b::text), 9) COLLATE "C", u COLLATE "C", id DESC');
SELECT as_core('SELECT * FROM ties ORDER BY nullif(b, 1)::text COLLATE "C", u COLLATE "C" DESC, id');
SET gpusort.memory_limit = '200kB';
SELECT as_core('SELECT * FROM ties ORDER BY u COLLATE "C" DESC, id');
RESET gpusort.memory_limit;
-- the memory for breaking ties is counted: 29 bytes per row
CREATE FUNCTION memory_of(sort_key text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    EXECUTE format('EXPLAIN (ANALYZE, FORMAT JSON) SELECT u COLLATE "C" AS tied, left(u, 15) COLLATE "C" AS whole FROM ties
                    WHERE length(u) < 100 ORDER BY %I', sort_key) INTO plan;
    RETURN plan -> 0 -> 'Plan' ->> 'Memory';
END
$$;
SELECT memory_of('tied') - memory_of('whole') - count(*) * 25 / 1024 BETWEEN -1 AND 257 AS counted FROM ties WHERE length(u) < 100;
DROP TABLE ties;

-- a later column that is TOASTed or compressed is read only where the columns before it tie
CREATE TABLE toasted (id int, half int, body text COLLATE "C", packed text COLLATE "C");
ALTER TABLE toasted ALTER body SET STORAGE EXTERNAL;
INSERT INTO toasted SELECT g * 7919 % 1009, g * 7919 % 505, repeat(chr(65 + g % 2) || g, 1000), repeat(chr(65 + g % 2) || g, 20000) FROM generate_series(1, 1000) AS g;
CREATE FUNCTION explained(query text, engine boolean) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    PERFORM set_config('gpusort.enabled', engine::text, true);
    EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ' || query INTO plan;
    SET LOCAL gpusort.enabled = on;
    RETURN plan -> 0 -> 'Plan';
END
$$;
CREATE FUNCTION blocks(plan json) RETURNS int LANGUAGE sql AS $$SELECT (plan ->> 'Shared Hit Blocks')::int + (plan ->> 'Shared Read Blocks')::int$$;
SELECT column_name, explained(query, true) ->> 'Key Bits' AS key_bits,
       blocks(explained(query, true)) <= blocks(explained(query, false)) AS few_blocks, as_core(query)
FROM (VALUES ('body'), ('packed')) AS columns (column_name), format('SELECT * FROM toasted ORDER BY id, %I', column_name) AS query;
SELECT as_core('SELECT * FROM toasted ORDER BY half, body DESC'), as_core('SELECT * FROM toasted ORDER BY half, packed, id'),
       as_core('SELECT * FROM toasted ORDER BY id % 3, body, packed');
DROP TABLE toasted;

-- rows get longer and shorter again from one spilled run to the next
SET gpusort.memory_limit = '300kB';
SELECT as_core('SELECT g, repeat(chr(65 + g % 20), 10 + 1500 * (g / 2000 % 2)) AS w FROM generate_series(1, 10000) AS g ORDER BY g % 100, g');
RESET gpusort.memory_limit;

-- wide rows fill the memory, and then many narrow rows come that the LIMIT does not fetch
SET work_mem = '4MB';
SELECT k, length(w) FROM (
    SELECT g AS k, CASE WHEN g <= 200 THEN repeat(chr(65 + g % 20), 200000) ELSE 'n' END AS w
    FROM generate_series(1, 40000) AS g ORDER BY g LIMIT 3 OFFSET 27) AS s;
RESET work_mem;

-- a column without keys leaves all of a node to core: a sort, a window's and an aggregate's
CREATE TABLE pairs AS SELECT g % 3 AS k, ARRAY[g * 7 % 10, g] AS a FROM generate_series(1, 5000) AS g;
ANALYZE pairs;
EXPLAIN (COSTS OFF) SELECT * FROM pairs ORDER BY k, a;
EXPLAIN (COSTS OFF) SELECT * FROM pairs ORDER BY (k, 1);
SELECT explained('SELECT k, rank() OVER (PARTITION BY k ORDER BY a) FROM pairs', true)::text LIKE '%GpuSort%' AS gpusort;
SELECT explained('SELECT count(DISTINCT a), array_agg(k ORDER BY k) FROM pairs', true)::text LIKE '%GpuSort%' AS gpusort;
EXPLAIN (COSTS OFF) SELECT DISTINCT k, a FROM pairs;
SELECT * FROM pairs ORDER BY k DESC, a LIMIT 4;
SELECT count(*) FROM (SELECT a, lag(a) OVER (PARTITION BY k ORDER BY a) AS before FROM pairs) AS s WHERE before > a;
SELECT k, count(DISTINCT a), (array_agg(a ORDER BY a DESC))[1:2] FROM pairs GROUP BY k ORDER BY k;
-- and a message says why (the caches are warm, so that they add no messages)
SET client_min_messages = debug1;
EXPLAIN (COSTS OFF) SELECT * FROM pairs ORDER BY k, a;
EXPLAIN (COSTS OFF) SELECT * FROM pairs ORDER BY (k, 1);
RESET client_min_messages;
DROP TABLE pairs;

-- and why an aggregation stays core's in which an aggregate sorts
CREATE FUNCTION why(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
  PERFORM gpusort_stat_reset();
  EXECUTE 'EXPLAIN ' || query;
  RETURN QUERY SELECT reason FROM gpusort_stat_reasons WHERE kind = 'plan' AND reason !~ '^core''s sort' ORDER BY reason;
END $$;
SELECT why($$SELECT rank(3) WITHIN GROUP (ORDER BY k) FROM o$$);
SELECT why($$SELECT count(DISTINCT k), sum(random()) FROM o$$);
SELECT why($$SELECT count(DISTINCT ARRAY[k::text]) FROM o$$);
SELECT why($$SELECT id % 5, count(DISTINCT k) FROM o GROUP BY ROLLUP (1)$$);
SELECT why($$SELECT percentile_cont(0.1 * (id % 5)) WITHIN GROUP (ORDER BY k) FROM o GROUP BY id % 5$$);
SELECT why($$SELECT sum(k), count(*) FROM o$$);
DROP FUNCTION why(text);

-- cursors that move back and forth
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id, k FROM o WHERE id <= 20 ORDER BY k, id;
FETCH 3 FROM c;
FETCH BACKWARD 2 FROM c;
FETCH LAST FROM c;
FETCH FORWARD 1 FROM c;
FETCH BACKWARD 2 FROM c;
FETCH ABSOLUTE 4 FROM c;
FETCH RELATIVE -2 FROM c;
MOVE FIRST FROM c;
FETCH PRIOR FROM c;
FETCH NEXT FROM c;
CLOSE c;
DECLARE c SCROLL CURSOR FOR SELECT k FROM o WHERE id <= 20 ORDER BY k DESC;
FETCH 3 FROM c;
FETCH BACKWARD 5 FROM c;
MOVE ALL FROM c;
FETCH BACKWARD 3 FROM c;
FETCH FORWARD 9 FROM c;
COMMIT;

-- the same if memory does not suffice for the result: core's tuplesort does the sort
SET gpusort.memory_limit = '64kB';
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id, k FROM o, generate_series(1, 4) ORDER BY k, id;
FETCH 2 FROM c;
FETCH LAST FROM c;
FETCH BACKWARD 2 FROM c;
COMMIT;
SELECT count(*), count(DISTINCT id), bool_and(ok) FROM (
    SELECT id, row(k IS NULL, k, id) >= lag(row(k IS NULL, k, id)) OVER () IS NOT false AS ok
    FROM (SELECT id, k FROM o, generate_series(1, 4) ORDER BY k, id) AS s) AS s;
SELECT count(*), bool_and(ok) FROM (
    SELECT k >= lag(k) OVER () IS NOT false AS ok
    FROM (SELECT g AS k FROM o, generate_series(1, 20) AS g ORDER BY g) AS s) AS s;
RESET gpusort.memory_limit;

-- repeated execution with other parameters and with the same ones
SELECT x.a, s.k FROM generate_series(1, 3) AS x (a),
    LATERAL (SELECT k FROM o WHERE o.a = x.a ORDER BY k DESC NULLS LAST LIMIT 2) AS s;
SELECT x, (SELECT string_agg(k::text, ' ') FROM (SELECT k FROM o WHERE id < x ORDER BY k) AS s) FROM generate_series(5, 7) AS x;
DO $$
DECLARE
    r record;
    last int := 0;
BEGIN
    FOR r IN SELECT id, k FROM o ORDER BY k NULLS FIRST, id LOOP
        ASSERT coalesce(r.k, 0) >= last;
        last := coalesce(r.k, 0);
    END LOOP;
END
$$;

-- a plan made before gpusort.enabled was turned off
PREPARE p AS SELECT k FROM o WHERE id <= 5 ORDER BY k;
SET plan_cache_mode = force_generic_plan;
EXECUTE p;
SET gpusort.enabled = off;
EXECUTE p;
SELECT explain_analyze('EXECUTE p', 'TIMING OFF');
RESET gpusort.enabled;
DEALLOCATE p;

-- core rechecks rows that change while they are sorted
BEGIN;
SELECT id FROM o WHERE id <= 3 ORDER BY k FOR UPDATE;
ROLLBACK;

DROP TABLE o CASCADE;
DROP FUNCTION explain_analyze, explain_keys, as_core;
