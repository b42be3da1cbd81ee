--
-- gpusort_bench()
--
-- without a GPU a notice gives the reason, which differs between machines
SET client_min_messages = warning;

-- sizes grow by a factor of four, and the last size is the requested one
SELECT array_agg(DISTINCT n ORDER BY n) FROM gpusort_bench(10000, repeats => 1);
SELECT array_agg(DISTINCT n ORDER BY n) FROM gpusort_bench(40000, repeats => 1);
SELECT array_agg(DISTINCT n ORDER BY n) FROM gpusort_bench(100000, repeats => 1);

-- there is a row of the CPU engine for each size, with which the other rows are compared
SELECT n, algorithm, total_ms >= sort_ms AND sort_ms > 0 AS timed, copy_in_ms, copy_out_ms,
       abs(mkeys_per_s - n / total_ms / 1000) < 1e-6 * mkeys_per_s AS rate, speedup, verified
FROM gpusort_bench(50000, 'float8', 'zipf', 2) WHERE engine = 'cpu' ORDER BY n;

-- there is a row of the GPU for each algorithm, if there is a GPU
SELECT array_agg(b.algorithm ORDER BY b.algorithm COLLATE "C") IS NOT DISTINCT FROM
       (SELECT array_agg(a ORDER BY a COLLATE "C") FROM pg_settings, unnest(enumvals) a
        WHERE name = 'gpusort.algorithm' AND (SELECT available FROM gpusort_status() WHERE engine = 'cuda')) AS all_algorithms,
       bool_and(total_ms > 0 AND copy_in_ms >= 0 AND copy_out_ms >= 0 AND speedup > 0 AND verified) IS NOT FALSE AS timed
FROM gpusort_bench(10000, repeats => 1) b WHERE engine = 'cuda';

-- every type, every distribution
SELECT t, d, bool_and(verified)
FROM unnest(ARRAY['int4', 'int8', 'float4', 'float8']::regtype[]) t,
     unnest(ARRAY['uniform', 'sorted', 'reverse', 'few', 'zipf']) d,
     LATERAL gpusort_bench(10000, t, d, 1)
GROUP BY t, d ORDER BY t, d COLLATE "C";

-- the settings do not change, not even within the transaction
BEGIN;
SET gpusort.engine = 'cpu';
SET gpusort.algorithm = 'quicksort';
SET gpusort.min_rows = 5;
SELECT count(*) > 0 FROM gpusort_bench(10000, repeats => 1);
SELECT current_setting('gpusort.engine'), current_setting('gpusort.algorithm'), current_setting('gpusort.min_rows');
ROLLBACK;

-- gpusort_last_sort() shows the sort that was measured last
SELECT rows, key_type FROM gpusort_last_sort();

-- the crossover is one of the sizes, or NULL
SELECT gpusort_bench_crossover(10000, 'int8', 'sorted', 1) IN (10000) IS NOT FALSE;
SELECT gpusort_bench_crossover(10000, 'int8', 'sorted', NULL);

-- from this size on the GPU is faster at all larger sizes, with the algorithm that is set
BEGIN;
CREATE OR REPLACE FUNCTION gpusort_bench(
  rows bigint DEFAULT 10000000, key_type regtype DEFAULT 'integer', distribution text DEFAULT 'uniform', repeats integer DEFAULT 5,
  OUT n bigint, OUT engine text, OUT algorithm text, OUT copy_in_ms double precision, OUT sort_ms double precision,
  OUT copy_out_ms double precision, OUT total_ms double precision, OUT mkeys_per_s double precision,
  OUT speedup double precision, OUT verified boolean)
RETURNS SETOF record LANGUAGE sql AS $$
SELECT m.n, m.engine, m.algorithm, 1::float8, 1::float8, 1::float8, 1::float8, 1::float8, m.speedup::float8, true
FROM (VALUES (10000, 'cpu', 'vqsort', 1), (10000, 'cuda', 'auto', 0.5), (10000, 'cuda', 'cub', 0.5), (10000, 'cuda', 'mppsort', 1.1),
             (40000, 'cpu', 'vqsort', 1), (40000, 'cuda', 'auto', 1.4), (40000, 'cuda', 'cub', 1.4), (40000, 'cuda', 'mppsort', 1.1),
             (160000, 'cpu', 'vqsort', 1), (160000, 'cuda', 'auto', 1.0), (160000, 'cuda', 'cub', 1.1), (160000, 'cuda', 'mppsort', 1.1),
             (640000, 'cpu', 'vqsort', 1), (640000, 'cuda', 'auto', 1.2), (640000, 'cuda', 'cub', 0.9), (640000, 'cuda', 'mppsort', 1.1),
             (1000000, 'cpu', 'vqsort', 1), (1000000, 'cuda', 'auto', 2), (1000000, 'cuda', 'cub', 0.8), (1000000, 'cuda', 'mppsort', 1.1)
     ) m (n, engine, algorithm, speedup)
WHERE m.n <= $1
$$;
SET LOCAL gpusort.algorithm = 'auto';
SELECT gpusort_bench_crossover(), gpusort_bench_crossover(160000), gpusort_bench_crossover(40000), gpusort_bench_crossover(10000);
SET LOCAL gpusort.algorithm = 'cub';
SELECT gpusort_bench_crossover(), gpusort_bench_crossover(160000);
SET LOCAL gpusort.algorithm = 'mppsort';
SELECT gpusort_bench_crossover();
SET LOCAL gpusort.algorithm = 'quicksort';
SELECT gpusort_bench_crossover();
ROLLBACK;

-- invalid arguments
SELECT * FROM gpusort_bench(9999);
SELECT * FROM gpusort_bench(1000000000000);
SELECT * FROM gpusort_bench(10000, 'date');
SELECT * FROM gpusort_bench(10000, 'int4', 'nonesuch');
SELECT * FROM gpusort_bench(10000, repeats => 0);
SELECT * FROM gpusort_bench(10000, repeats => 101);
SELECT * FROM gpusort_bench(NULL);

-- roles without the privilege
CREATE ROLE regress_gpusort;
SET ROLE regress_gpusort;
SELECT * FROM gpusort_bench(10000);
SELECT gpusort_bench_crossover(10000);
RESET ROLE;
GRANT EXECUTE ON FUNCTION gpusort_bench TO regress_gpusort;
SET ROLE regress_gpusort;
SELECT count(*) FROM gpusort_bench(10000, repeats => 1) WHERE engine = 'cpu';
RESET ROLE;
DROP OWNED BY regress_gpusort;
DROP ROLE regress_gpusort;
