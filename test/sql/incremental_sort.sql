--
-- Where all rows are fetched, the planner prefers a GpuSort to an IncrementalSort
--

LOAD 'gpusort';
SET max_parallel_workers_per_gather = 0;
SET work_mem = '64MB';

CREATE TABLE events AS SELECT i / 1000 AS day, (i * 7919) % 100003 AS k, i AS id FROM generate_series(1, 100000) AS i;
CREATE INDEX ON events (day);
CREATE INDEX ON events (id);
VACUUM ANALYZE events;
CREATE TABLE few AS SELECT i / 10 AS day, (i * 7919) % 997 AS k FROM generate_series(1, 500) AS i;
CREATE INDEX ON few (day);
VACUUM ANALYZE few;

-- the sorts in a query's plan, from its top
CREATE FUNCTION sorts(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    line text;
    names text[];
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
        names := names || substring(line FROM 'GpuSort|Incremental Sort|Sort$');
    END LOOP;
    RETURN array_to_string(names, ', ');
END $$;

-- the planner knows GpuSort's cost for the final ORDER BY, and beside an index
SELECT sorts('SELECT day, k FROM events ORDER BY day, k');
SELECT sorts('SELECT day, k, rank() OVER (ORDER BY day, k) FROM events');
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET gpusort.enabled = off;
SELECT sorts('SELECT day, k, rank() OVER (ORDER BY day, k) FROM events');
RESET gpusort.enabled;

-- an IncrementalSort returns its first rows early, so it remains where not all may be fetched
SELECT sorts('SELECT day, k FROM events ORDER BY day, k LIMIT 10');
SELECT sorts('SELECT day, k, count(*) FROM events GROUP BY day, k ORDER BY day, k LIMIT 10');
SELECT sorts('DECLARE c CURSOR FOR SELECT day, k, rank() OVER (ORDER BY day, k) FROM events');
SELECT sorts('SELECT * FROM (SELECT day, k, rank() OVER (ORDER BY day, k) AS r FROM events) AS s WHERE r <= 10');
-- few rows
SELECT sorts('SELECT day, k, rank() OVER (ORDER BY day, k) FROM few');
-- a type without keys
SELECT sorts('SELECT day, rank() OVER (ORDER BY day, to_jsonb(k)) FROM events');
-- the same rows
SELECT count(*), count(DISTINCT r), bool_and(r > previous) FROM (
    SELECT r, lag(r, 1, 0::bigint) OVER (ORDER BY day, k, id) AS previous
    FROM (SELECT day, k, id, row_number() OVER (ORDER BY day, k, id) AS r FROM events) AS s) AS t;

-- an index scan of a table in another order is for its order only: a sequential scan takes its place
CREATE TABLE scattered AS SELECT (i * 7919) % 50021 AS day, (i * 7457) % 100003 AS k, repeat('x', 100) AS pad FROM generate_series(1, 100000) AS i;
CREATE INDEX scattered_day ON scattered (day);
VACUUM ANALYZE scattered;
SET enable_bitmapscan = off;
SET enable_seqscan = on;
-- a byte of pages in random order costs the same at each size of pages
SELECT 1.5 * current_setting('block_size')::int / 8192.0 AS cost \gset
SET random_page_cost = :cost;
SET work_mem = '64kB';
CREATE FUNCTION scans(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    line text;
    name text;
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
        name := coalesce(name, substring(line FROM 'Seq Scan|Index Scan'));
    END LOOP;
    RETURN sorts(query) || ', ' || name;
END $$;
SELECT scans('SELECT day, sum(k) OVER (PARTITION BY day ORDER BY k) FROM scattered WHERE k % 3 < 2');
SELECT scans('SELECT * FROM (SELECT day, row_number() OVER (PARTITION BY day ORDER BY k) AS r FROM scattered) AS s WHERE r <= 2');
SELECT scans('SELECT day, sum(k) OVER (PARTITION BY day ORDER BY k) FROM scattered WHERE k % 3 < 2 OFFSET 3');
SET gpusort.enabled = off;
SELECT scans('SELECT day, sum(k) OVER (PARTITION BY day ORDER BY k) FROM scattered WHERE k % 3 < 2');
RESET gpusort.enabled;
CREATE FUNCTION sums(enabled text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text;
BEGIN
    PERFORM set_config('gpusort.enabled', enabled, true);
    EXECUTE 'SELECT md5(string_agg(s::text, '','' ORDER BY day, sum)) FROM
        (SELECT day, sum(k) OVER (PARTITION BY day ORDER BY k) FROM scattered WHERE k % 3 < 2) AS s' INTO result;
    RETURN result;
END $$;
SELECT sums('on') = sums('off') AS same;
-- not without a sequential scan; a partial index says nothing of other rows
SET enable_seqscan = off;
SELECT scans('SELECT day, sum(k) OVER (PARTITION BY day ORDER BY k) FROM scattered');
SET enable_seqscan = on;
DROP INDEX scattered_day;
CREATE INDEX ON scattered (day) WHERE k >= 0;
SELECT scans('SELECT day, sum(k) OVER (PARTITION BY day ORDER BY k) FROM scattered WHERE k >= 0');
DROP TABLE events, few, scattered;
DROP FUNCTION sums, scans, sorts;
