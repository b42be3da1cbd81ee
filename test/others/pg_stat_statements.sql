-- pg_stat_statements counts a statement that sorts as it counts it without gpusort.

SELECT pg_stat_statements_reset() \g /dev/null
SET max_parallel_workers_per_gather = 0;
\echo == pg_stat_statements
SELECT id, pad FROM items AS one ORDER BY t \g /dev/null
SELECT id FROM items AS one WHERE k < 100 ORDER BY n, id LIMIT 10 \g /dev/null
SELECT id FROM items AS one WHERE k < 200 ORDER BY n, id LIMIT 20 \g /dev/null
CREATE TABLE counted AS SELECT k, count(*) FROM items AS one GROUP BY k ORDER BY 2, 1;
SELECT query, calls, rows, shared_blks_hit + shared_blks_read >= pg_relation_size('items') / 8192 * calls AS all_blocks
  FROM pg_stat_statements WHERE query LIKE '%AS one%' AND query NOT LIKE '%stat%' ORDER BY query COLLATE "C";

\echo == temporary blocks of a sort that spills
SET work_mem = '64kB';
SELECT must(sorts('SELECT id, t, pad FROM items AS two ORDER BY t'), 'it sorts');
SELECT id, t, pad FROM items AS two ORDER BY t \g /dev/null
RESET work_mem;
SELECT calls, rows, temp_blks_written > 100 AS written, temp_blks_read > 100 AS read
  FROM pg_stat_statements WHERE query LIKE 'SELECT id, t, pad FROM items AS two%';
