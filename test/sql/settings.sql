--
-- Settings
--
LOAD 'gpusort';
-- the stand-in build also has settings for faults
SELECT name, boot_val, unit, context, min_val, max_val, enumvals
FROM pg_settings WHERE name LIKE 'gpusort.%' AND name NOT LIKE 'gpusort.fault%' ORDER BY name COLLATE "C";

-- no setting changes a result
SELECT setseed(0.75);
CREATE TABLE t AS SELECT (random() * 1000)::int k FROM generate_series(1, 20000);
CREATE TABLE expected AS SELECT array_agg(k ORDER BY k) a FROM t;
SET gpusort.engine = 'cpu';
SELECT gpu_sort_agg(k) = (SELECT a FROM expected) FROM t;
SELECT engine, algorithm, rows, key_type, gather_bytes, copy_in_bytes, pinned, reason FROM gpusort_last_sort();
SET max_parallel_workers_per_gather = 0;
SELECT gpu_sort_agg(k) = (SELECT a FROM expected) FROM t;
RESET max_parallel_workers_per_gather;
SET gpusort.algorithm = 'quicksort';
SELECT gpu_sort_agg(k) = (SELECT a FROM expected) FROM t;
SET gpusort.algorithm = 'mppsort';
SELECT gpu_sort_agg(k) = (SELECT a FROM expected) FROM t;
SET gpusort.algorithm = 'mergesort';
SELECT gpu_sort_agg(k) = (SELECT a FROM expected) FROM t;
SET gpusort.algorithm = 'radixsort';
SELECT gpu_sort_agg(k) = (SELECT a FROM expected) FROM t;
RESET gpusort.algorithm;

-- below gpusort.min_rows the backend sorts, also with gpusort.engine = cuda
SET gpusort.engine = 'cuda';
SET gpusort.min_rows = 20001;
SELECT gpu_sort_agg(k) = (SELECT a FROM expected) FROM t;
SELECT engine, rows, reason FROM gpusort_last_sort();
DROP TABLE t, expected;

-- invalid values
\set VERBOSITY terse
SET gpusort.engine = 'tpu';
SET gpusort.algorithm = 'bogosort';
SET gpusort.min_rows = -2;
SET gpusort.device = '0';
SET gpusort.nonesuch = 1;
