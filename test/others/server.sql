-- What the server itself does with sorted rows.

\echo == CREATE TABLE AS ... ORDER BY
SELECT must(sorts('CREATE TABLE made AS SELECT * FROM items ORDER BY n, id'), 'CREATE TABLE AS sorts');
CREATE TABLE made AS SELECT * FROM items ORDER BY n, id;
SELECT physical_order('made'), contents('made');

\echo == INSERT ... SELECT ... ORDER BY numbers its rows in their order
CREATE TABLE numbered (place serial, id int);
INSERT INTO numbered (id) SELECT id FROM items ORDER BY t DESC;
SELECT md5(string_agg(id::text, ',' ORDER BY place)) FROM numbered;

\echo == indexes
SELECT done('index') AS before \gset
CREATE UNIQUE INDEX made_id ON made (id);
CREATE INDEX made_tn ON made (t, n DESC) INCLUDE (pad) WHERE k > 10;
CREATE INDEX CONCURRENTLY made_k ON made (k, id);
REINDEX INDEX CONCURRENTLY made_tn;
SELECT must(done('index') - :before > 0, 'gpusort builds them'), must(check_indexes() >= 3, 'they are right');

\echo == an error of a unique index
\set VERBOSITY terse
CREATE UNIQUE INDEX made_unique ON made (k);
\set VERBOSITY default

\echo == CLUSTER
CLUSTER made USING made_k;
SELECT physical_order('made'), contents('made');
UPDATE made SET n = n + 1 WHERE id % 3 = 0;
CLUSTER made;
VACUUM FULL made;
SELECT physical_order('made'), contents('made'), must(check_indexes() >= 3, 'indexes are right');

\echo == REFRESH MATERIALIZED VIEW
CREATE MATERIALIZED VIEW summary AS SELECT row_number() OVER (ORDER BY k, t) AS id, t FROM items WHERE id > (SELECT count(*) FROM numbered) - 29990 ORDER BY t;
SELECT physical_order('summary'), contents('summary');
CREATE UNIQUE INDEX ON summary (id);
DELETE FROM numbered WHERE place <= 100;
REFRESH MATERIALIZED VIEW summary;
SELECT physical_order('summary'), contents('summary');
DELETE FROM numbered WHERE place <= 105;
REFRESH MATERIALIZED VIEW CONCURRENTLY summary;
SELECT contents('summary'), must(check_indexes() > 0, 'indexes are right');

\echo == COPY (SELECT ... ORDER BY) TO
COPY (SELECT id, n, t FROM items WHERE k < 5 ORDER BY n DESC NULLS LAST, id) TO STDOUT;
COPY (SELECT * FROM items ORDER BY t) TO PROGRAM 'md5sum >copied';
SELECT pg_read_file('copied');

\echo == a generic plan
SET plan_cache_mode = force_generic_plan;
PREPARE few(int, int) AS SELECT id, k, n FROM items WHERE k < $1 ORDER BY n, id LIMIT $2;
PREPARE many(int) AS SELECT count(*), md5(string_agg(r::text, ',')) FROM (SELECT * FROM items WHERE k < $1 ORDER BY ts, id OFFSET 0) AS r;
SELECT must(sorts('EXECUTE few(20, 5)') AND sorts('EXECUTE many(20)'), 'prepared statements sort');
EXECUTE few(20, 5);
EXECUTE few(400, 3);
EXECUTE few(400, NULL) \g /dev/null
EXECUTE many(20);
EXECUTE many(500);

\echo == a generic plan after ANALYZE, a new index, and gpusort.enabled
ANALYZE items;
EXECUTE few(20, 5);
EXECUTE many(500);
SET gpusort.enabled = off;
EXECUTE few(20, 5);
EXECUTE many(500);
SELECT must(plan_of('EXECUTE many(20)') ~ 'Sort', 'it sorts');
RESET gpusort.enabled;
CREATE INDEX items_ts ON items (ts, id);
EXECUTE many(500);
DROP INDEX items_ts;
EXECUTE many(500);
SELECT must(sorts('EXECUTE many(20)'), 'it sorts again');
RESET plan_cache_mode;

\echo == plpgsql
CREATE FUNCTION walk(first int) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  r record;
  inner_row record;
  seen int := 0;
BEGIN
  FOR r IN SELECT id, t, n FROM items WHERE k >= first ORDER BY t LOOP
    seen := seen + 1;
    CONTINUE WHEN seen % 1000 > 0;
    FOR inner_row IN SELECT id, 100 / (id % 7) AS q FROM items WHERE k = seen / 1000 ORDER BY n, id LOOP
      EXIT WHEN inner_row.q = 20;
    END LOOP;
    RETURN NEXT format('%s %s %s', r.id, left(r.t, 4), inner_row.id);
    EXIT WHEN seen = 15000;
  END LOOP;
  RETURN QUERY SELECT p.t FROM items AS p WHERE p.k < 2 ORDER BY p.t DESC LIMIT 3;
EXCEPTION WHEN division_by_zero THEN
  RETURN NEXT 'division by zero after ' || seen;
END $$;
SELECT * FROM walk(0);
SELECT * FROM walk(490);
SELECT count(*), md5(string_agg(w, ',')) FROM generate_series(480, 490) AS g, LATERAL walk(g) AS w;

\echo == cursors WITH HOLD and SCROLL
BEGIN;
DECLARE held SCROLL CURSOR WITH HOLD FOR SELECT id, n FROM items ORDER BY n DESC, id;
DECLARE scrolled SCROLL CURSOR FOR SELECT id, t FROM items ORDER BY t;
FETCH 3 FROM held;
FETCH LAST FROM scrolled;
FETCH BACKWARD 3 FROM scrolled;
FETCH ABSOLUTE 10000 FROM scrolled;
FETCH RELATIVE -9998 FROM scrolled;
SAVEPOINT s;
UPDATE items SET n = n + 1;
FETCH 2 FROM held;
ROLLBACK TO s;
FETCH PRIOR FROM held;
COMMIT;
FETCH 2 FROM held;
FETCH LAST FROM held;
FETCH PRIOR FROM held;
FETCH ABSOLUTE 2 FROM held;
MOVE FORWARD ALL IN held;
CLOSE held;

\echo == FOR UPDATE and WHERE CURRENT OF
BEGIN;
DECLARE locked CURSOR FOR SELECT id FROM items ORDER BY t FOR UPDATE;
MOVE 100 IN locked;
FETCH 1 FROM locked;
UPDATE items SET pad = 'here' WHERE CURRENT OF locked;
FETCH 1 FROM locked;
DELETE FROM items WHERE CURRENT OF locked;
SELECT id, pad FROM items WHERE pad = 'here';
SELECT count(*) FROM items;
ROLLBACK;

\echo == parallel workers
SET min_parallel_table_scan_size = 0;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SELECT sorted('SELECT * FROM items ORDER BY n, id', 'Gather');
SELECT sorted('SELECT k, count(*), sum(n) FROM items GROUP BY k ORDER BY sum(n), k');
