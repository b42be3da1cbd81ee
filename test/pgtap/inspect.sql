-- What gpusort_status() and gpusort_last_sort() say is true.
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS gpusort;
BEGIN;
SELECT plan(19);
SET LOCAL client_min_messages = error;

SELECT is((SELECT array_agg(engine ORDER BY engine) FROM gpusort_status()), ARRAY['cpu', 'cuda'], 'a row for each engine');
SELECT ok((SELECT available FROM gpusort_status() WHERE engine = 'cpu'), 'the CPU engine is always there');
SELECT ok((SELECT bool_and(detail <> '') FROM gpusort_status()), 'each says what it is, or why it is not there');
SELECT ok((SELECT bool_and(available = (device IS NOT NULL AND service_pid IS NOT NULL)) FROM gpusort_status() WHERE engine = 'cuda'),
          'a device and a service where the CUDA engine is available');
SELECT is((SELECT l FROM gpusort_last_sort() l WHERE rows IS NOT NULL), NULL, 'no sort yet in this session');

SET LOCAL gpusort.engine = 'cpu';
SELECT is((SELECT gpu_sort_agg(-i) FROM generate_series(1, 300000) i)[1], -300000, 'a sort on the CPU');
SELECT is((SELECT (rows, key_type, engine, gather_bytes, pinned)::text FROM gpusort_last_sort()),
          '(300000,integer,cpu,1200000,f)', 'is reported');
SELECT is((SELECT (copy_in_ms, copy_in_bytes, copy_out_ms, copy_out_bytes, pieces, reason)::text FROM gpusort_last_sort()),
          '(,,,,,)', 'without copies, pieces and excuses');
SELECT ok((SELECT total_ms > 0 AND least(gather_ms, kernels_ms, return_ms) >= 0
                  AND greatest(gather_ms, kernels_ms, return_ms) <= total_ms FROM gpusort_last_sort()),
          'no stage takes longer than the whole');
SELECT is((SELECT cardinality(gpu_sort(array_agg(i::float8))) FROM generate_series(1, 1000) i), 1000, 'a sort of an array');
SELECT is((SELECT (rows, key_type, gather_bytes)::text FROM gpusort_last_sort()), '(1000,"double precision",8000)', 'is reported');
SELECT is((SELECT cardinality(gpu_argsort(array_agg(i::int8))) FROM generate_series(1, 500) i), 500, 'a sort of positions');
SELECT is((SELECT (rows, key_type)::text FROM gpusort_last_sort()), '(500,bigint)', 'is reported');

SET LOCAL gpusort.engine = 'auto';
SET LOCAL gpusort.min_rows = 300001;
SELECT is((SELECT cardinality(gpu_sort_agg(i)) FROM generate_series(1, 300000) i), 300000, 'a sort below gpusort.min_rows');
SELECT is((SELECT (engine, reason)::text FROM gpusort_last_sort()), '(cpu,)', 'is the backend''s, and that needs no reason');
SET LOCAL gpusort.min_rows = 300000;
SELECT is((SELECT cardinality(gpu_sort_agg(i)) FROM generate_series(1, 300000) i), 300000, 'a sort at gpusort.min_rows');
SELECT is((SELECT engine = 'cuda' FROM gpusort_last_sort()),
          (SELECT available FROM gpusort_status() WHERE engine = 'cuda'), 'is the device''s if there is one');
SELECT is((SELECT reason IS NULL FROM gpusort_last_sort()),
          (SELECT available FROM gpusort_status() WHERE engine = 'cuda'), 'or says why it was not');
SELECT ok((SELECT engine = 'cpu' OR (copy_in_bytes = 1200000 AND copy_out_bytes = 1200000 AND pinned AND pieces = 1
                                     AND kernels_ms <= total_ms) FROM gpusort_last_sort()),
          'with what was copied there and back');
SELECT * FROM finish();
ROLLBACK;
