-- package.sql - checks, in an empty database, that an installed package works:
--   psql -X -v ON_ERROR_STOP=1 -f test/package.sql
-- GpuSort must be in the plan, and its rows and gpu_sort()'s must have core's order.
CREATE EXTENSION gpusort;
LOAD 'gpusort';

CREATE TABLE package_rows AS
  SELECT id, (id * 7919 % 1009)::int AS k, md5(id::text) AS name FROM generate_series(1, 200000) AS id;
ANALYZE package_rows;
SET work_mem = '256MB';
SET max_parallel_workers_per_gather = 0;

-- GpuSort's order
DO $$
DECLARE
  line text;
  plan text := '';
BEGIN
  FOR line IN EXPLAIN SELECT * FROM package_rows ORDER BY k DESC, name COLLATE "C" LOOP
    plan := plan || line || E'\n';
  END LOOP;
  IF plan !~ 'GpuSort' THEN
    RAISE EXCEPTION 'the plan has no GpuSort: %', plan;
  END IF;
END $$;
CREATE TABLE package_order AS
  SELECT array_agg(id) AS ids FROM (SELECT * FROM package_rows ORDER BY k DESC, name COLLATE "C") AS sorted;

-- core's order
SET gpusort.enabled = off;
DO $$
BEGIN
  IF (SELECT array_agg(id) FROM (SELECT * FROM package_rows ORDER BY k DESC, name COLLATE "C") AS sorted)
    IS DISTINCT FROM (SELECT ids FROM package_order) THEN
    RAISE EXCEPTION 'GpuSort has another order than Sort';
  END IF;
  IF (SELECT gpu_sort(array_agg(k)) FROM package_rows)
    IS DISTINCT FROM (SELECT array_agg(k ORDER BY k) FROM package_rows) THEN
    RAISE EXCEPTION 'gpu_sort() has another order than core';
  END IF;
END $$;

DROP TABLE package_rows, package_order;
SELECT engine, available FROM gpusort_status();
