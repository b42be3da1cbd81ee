-- pg_hint_plan: hints say how to read and to join, and GpuSort sorts.

\echo == scans
CREATE INDEX items_k ON items (k, id);
SELECT sorted('/*+ SeqScan(items) */ SELECT * FROM items ORDER BY k, id', 'Seq Scan on public.items');
SELECT sorted('/*+ BitmapScan(items) */ SELECT * FROM items WHERE k < 400 ORDER BY n, id', 'Bitmap Heap Scan');
SELECT must(plan_of('/*+ IndexScan(items items_k) */ SELECT * FROM items ORDER BY k, id') ~ '^Index Scan using items_k', 'an index gives the order');
DROP INDEX items_k;

\echo == joins
SELECT sorted('/*+ MergeJoin(i p) Leading((i p)) */ SELECT * FROM items AS i JOIN prices AS p ON p.k = i.k ORDER BY i.k, i.id', 'Merge Join');
SELECT sorted('/*+ HashJoin(i p) */ SELECT * FROM items AS i JOIN prices AS p ON p.k = i.k ORDER BY price, i.id', 'Hash Join');
SELECT sorted('/*+ NestLoop(i p) */ SELECT * FROM items AS i JOIN prices AS p ON p.k = i.k WHERE i.id < 50 ORDER BY price, i.id', 'Nested Loop');

\echo == Parallel, Rows and Set
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SELECT sorted('/*+ Parallel(items 2 hard) */ SELECT * FROM items ORDER BY n, id', 'Gather');
SELECT sorted('/*+ Rows(i p #10) */ SELECT * FROM items AS i JOIN prices AS p ON p.k = i.k ORDER BY price, i.id');
SELECT sorted('/*+ Set(work_mem "64kB") */ SELECT * FROM items ORDER BY t');

\echo == a hint turns gpusort off if pg_hint_plan is loaded after it
SELECT must(plan_of('/*+ Set(gpusort.enabled off) */ SELECT * FROM items ORDER BY t') ~ 'GpuSort' =
    (current_setting('gpusort.enabled')::boolean AND current_setting('shared_preload_libraries') !~ 'gpusort.*pg_hint_plan'), 'that is so'),
  must(sorts('SELECT * FROM items ORDER BY t'), 'the next query is planned as ever');
