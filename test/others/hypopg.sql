-- hypopg: EXPLAIN sees indexes that do not exist, and execution does not.

SELECT hypopg_create_index('CREATE INDEX ON items (t)'), hypopg_create_index('CREATE INDEX ON items (k, id)') \g /dev/null

\echo == EXPLAIN takes an order from hypothetical indexes
SELECT query, plan_of(query) ~ 'Index (Only )?Scan( Backward)? using .*btree' AS by_index, plan_of(query) ~ 'Sort' AS sorts
  FROM unnest(ARRAY['SELECT * FROM items ORDER BY t LIMIT 10', 'SELECT * FROM items ORDER BY k DESC, id DESC LIMIT 10',
    'SELECT max(t) FROM items', 'SELECT DISTINCT ON (k) * FROM items ORDER BY k, id LIMIT 3']) AS query;

\echo == EXPLAIN sorts where they do not help
SELECT must(sorts(query), query) FROM unnest(ARRAY['SELECT * FROM items ORDER BY n, id', 'SELECT DISTINCT ON (ts) * FROM items ORDER BY ts, id',
  'SELECT *, rank() OVER (PARTITION BY pad ORDER BY n) FROM items', 'SELECT * FROM items WHERE k < 400 ORDER BY pad, id']) AS query;

\echo == EXPLAIN of an order of which an index has a part
SELECT must(plan_of(query) ~ 'Sort', query) FROM unnest(ARRAY['SELECT * FROM items ORDER BY k, t LIMIT 5',
  'SELECT rank() OVER (PARTITION BY k ORDER BY t) FROM items']) AS query;

\echo == execution sorts
SELECT must(plan_of('SELECT * FROM items ORDER BY t LIMIT 10') !~ 'Sort', 'EXPLAIN uses an index');
SELECT id FROM items ORDER BY t LIMIT 10;
SELECT id FROM items ORDER BY k, n DESC, id LIMIT 10;
SELECT count(*), md5(string_agg(id::text, ',')) FROM (SELECT id FROM items ORDER BY k, id OFFSET 0) AS s;
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF) SELECT id FROM items WHERE id = 3;
SELECT hypopg_reset();
