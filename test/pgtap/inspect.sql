-- gpusort_status() and gpusort_last_sort() report the truth.
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS gpusort;
BEGIN;
SELECT plan(19);
SET LOCAL client_min_messages = error;

SELECT is((SELECT array_agg(engine ORDER BY engine) FROM gpusort_status()), ARRAY['cpu', 'cuda'], 'gpusort_status() has a row for each engine');
SELECT ok((SELECT available FROM gpusort_status() WHERE engine = 'cpu'), 'the CPU engine is always available');
SELECT ok((SELECT bool_and(detail <> '') FROM gpusort_status()), 'each engine has a detail: what it is, or why it is not available');
SELECT ok((SELECT bool_and(available = (device IS NOT NULL AND service_pid IS NOT NULL)) FROM gpusort_status() WHERE engine = 'cuda'),
          'the CUDA engine has a device and a service if it is available');
SELECT is((SELECT l FROM gpusort_last_sort() l WHERE rows IS NOT NULL), NULL, 'gpusort_last_sort() is empty in a session without a sort');

SET LOCAL gpusort.engine = 'cpu';
SELECT is((SELECT gpu_sort_agg(-i) FROM generate_series(1, 300000) i)[1], -300000, 'a sort on the CPU is right');
SELECT is((SELECT (rows, key_type, engine, gather_bytes, pinned)::text FROM gpusort_last_sort()),
          '(300000,integer,cpu,1200000,f)', 'a sort on the CPU is reported');
SELECT is((SELECT (copy_in_ms, copy_in_bytes, copy_out_ms, copy_out_bytes, reason)::text FROM gpusort_last_sort()),
          '(,,,,)', 'a sort on the CPU has no copies and no reason');
SELECT ok((SELECT total_ms > 0 AND least(gather_ms, kernels_ms, return_ms) >= 0
                  AND greatest(gather_ms, kernels_ms, return_ms) <= total_ms FROM gpusort_last_sort()),
          'no stage takes longer than the whole');
SELECT is((SELECT cardinality(gpu_sort(array_agg(i::float8))) FROM generate_series(1, 1000) i), 1000, 'a sort of an array is right');
SELECT is((SELECT (rows, key_type, gather_bytes)::text FROM gpusort_last_sort()), '(1000,"double precision",8000)', 'a sort of an array is reported');
SELECT is((SELECT cardinality(gpu_argsort(array_agg(i::int8))) FROM generate_series(1, 500) i), 500, 'a sort of positions is right');
SELECT is((SELECT (rows, key_type)::text FROM gpusort_last_sort()), '(500,bigint)', 'a sort of positions is reported');

SET LOCAL gpusort.engine = 'auto';
SET LOCAL gpusort.min_rows = 300001;
SELECT is((SELECT cardinality(gpu_sort_agg(i)) FROM generate_series(1, 300000) i), 300000, 'a sort below gpusort.min_rows is right');
SELECT is((SELECT (engine, reason)::text FROM gpusort_last_sort()), '(cpu,)', 'the CPU does a sort below gpusort.min_rows, without a reason');
SET LOCAL gpusort.min_rows = 300000;
SELECT is((SELECT cardinality(gpu_sort_agg(i)) FROM generate_series(1, 300000) i), 300000, 'a sort of gpusort.min_rows rows is right');
SELECT is((SELECT engine = 'cuda' FROM gpusort_last_sort()),
          (SELECT available FROM gpusort_status() WHERE engine = 'cuda'), 'the device does a sort of gpusort.min_rows rows if there is a device');
SELECT is((SELECT reason IS NULL FROM gpusort_last_sort()),
          (SELECT available FROM gpusort_status() WHERE engine = 'cuda'), 'without a device there is a reason');
SELECT ok((SELECT engine = 'cpu' OR (copy_in_bytes = 1200000 AND copy_out_bytes = 1200000 AND pinned
                                     AND kernels_ms <= total_ms) FROM gpusort_last_sort()),
          'a sort on the device reports the bytes copied in both directions');
SELECT * FROM finish();
ROLLBACK;
