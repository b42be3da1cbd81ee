#!/bin/bash
#
# run.sh - gpusort's functions against core and intarray, in one session.
#
# Uses the server that PGHOST, PGPORT and so on point to, which must have gpusort
# and intarray installed, and a database of its own.  Prints medians of five
# rounds.  Each contender runs once in every round, so that a drift of the
# machine's speed affects all of them alike.
#
#   bench/run.sh [ROWS]      default: ten million

set -euo pipefail

rows=${1:-10000000}
db=gpusort_bench

psql -qX -d postgres -c "DROP DATABASE IF EXISTS $db" -c "CREATE DATABASE $db" 2>/dev/null
trap 'psql -qX -d postgres -c "DROP DATABASE IF EXISTS $db"' EXIT
psql -qX -v ON_ERROR_STOP=1 -v rows="$rows" -d $db <<'SQL'
SET client_min_messages = error;
CREATE EXTENSION gpusort;
CREATE EXTENSION intarray;
CREATE TABLE t AS
SELECT (random() * 4294967295 - 2147483648)::int k, (random() * 1e6)::float4 f FROM generate_series(1, :rows);
VACUUM ANALYZE t;
CREATE TABLE results (contender text, ms float8);

-- Sorts of arrays are timed from an array in memory to an array in memory.
CREATE FUNCTION bench_arrays(rounds int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  a int[];
  f float4[];
  b int[];
  g float4[];
  e text;
  begun timestamptz;
BEGIN
  SELECT array_agg(k), array_agg(t.f) INTO a, f FROM t;
  FOR i IN 0..rounds LOOP
    begun := clock_timestamp();
    b := sort(a);
    INSERT INTO results SELECT 'array int4: intarray sort()', 1000 * extract(epoch FROM clock_timestamp() - begun) WHERE i > 0;
    FOR e IN SELECT engine FROM gpusort_status() WHERE available LOOP
      PERFORM set_config('gpusort.engine', e, true);
      begun := clock_timestamp();
      b := gpu_sort(a);
      INSERT INTO results SELECT 'array int4: gpu_sort, ' || e, 1000 * extract(epoch FROM clock_timestamp() - begun) WHERE i > 0;
      begun := clock_timestamp();
      g := gpu_sort(f);
      INSERT INTO results SELECT 'array float4: gpu_sort, ' || e, 1000 * extract(epoch FROM clock_timestamp() - begun) WHERE i > 0;
      begun := clock_timestamp();
      b := gpu_argsort(a);
      INSERT INTO results SELECT 'array int4: gpu_argsort, ' || e, 1000 * extract(epoch FROM clock_timestamp() - begun) WHERE i > 0;
    END LOOP;
  END LOOP;
END $$;

CREATE FUNCTION bench_columns(rounds int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  c record;
  begun timestamptz;
BEGIN
  FOR i IN 0..rounds LOOP
    FOR c IN
      SELECT * FROM (VALUES
        ('column int4: count(k)', 'cpu', 'SELECT count(k) FROM t'),
        ('column int4: array_agg(k)', 'cpu', 'SELECT array_agg(k) FROM t'),
        ('column int4: array_agg(k ORDER BY k)', 'cpu', 'SELECT array_agg(k ORDER BY k) FROM t'),
        ('column int4: SELECT k ORDER BY k', 'cpu', 'SELECT k FROM t ORDER BY k OFFSET 1e10')) v
      UNION ALL
      SELECT 'column int4: gpu_sort_agg, ' || engine, engine, 'SELECT gpu_sort_agg(k) FROM t' FROM gpusort_status() WHERE available
    LOOP
      PERFORM set_config('gpusort.engine', c.column2, true);
      begun := clock_timestamp();
      EXECUTE c.column3;
      INSERT INTO results SELECT c.column1, 1000 * extract(epoch FROM clock_timestamp() - begun) WHERE i > 0;
    END LOOP;
  END LOOP;
END $$;
SELECT version() \g (tuples_only=on)
SELECT * FROM gpusort_status() \g (tuples_only=on)
SET work_mem = '4GB';
-- core's queries must be sorted by core
SET gpusort.enabled = off;
\o /dev/null
SELECT bench_arrays(5);
SELECT bench_columns(5);
\o
SELECT contender, round(percentile_cont(0.5) WITHIN GROUP (ORDER BY ms)::numeric, 1) median_ms,
       round(min(ms)::numeric, 1) min_ms, round(max(ms)::numeric, 1) max_ms
FROM results GROUP BY contender ORDER BY contender;
WITH m AS (SELECT contender, percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) ms FROM results GROUP BY contender)
SELECT a.contender || ' / ' || b.contender ratio, round((a.ms / b.ms)::numeric, 2) AS times
FROM (VALUES ('array int4: intarray sort()', 'array int4: gpu_sort, cpu'),
             ('array float4: gpu_sort, cpu', 'array int4: gpu_sort, cpu'),
             ('column int4: array_agg(k ORDER BY k)', 'column int4: gpu_sort_agg, cpu'),
             ('column int4: gpu_sort_agg, cpu', 'column int4: array_agg(k)'),
             ('column int4: gpu_sort_agg, cuda', 'column int4: count(k)'),
             ('array int4: intarray sort()', 'array int4: gpu_sort, cuda')) pairs(x, y),
     m a, m b
WHERE a.contender = x AND b.contender = y;
SQL
