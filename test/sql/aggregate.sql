--
-- gpu_sort_agg() returns the same as array_agg(value ORDER BY value)
--
\pset null NULL

CREATE TABLE numbers (g int, i2 int2, i4 int, i8 bigint, f4 float4, f8 float8, d date, ts timestamp, tz timestamptz);
SELECT setseed(0.5);
INSERT INTO numbers
SELECT i % 300, n, n * 1000, n * 1000000000::bigint, n / 7.0, n / 7.0, date '2000-01-01' + n,
       timestamp '2000-01-01' + n * interval '1 hour', timestamptz '2000-01-01 00:00+00' + n * interval '1 hour'
FROM (SELECT i, CASE WHEN i % 11 > 0 THEN (random() * 20000 - 10000)::int END n FROM generate_series(1, 5000) i) s;
UPDATE numbers SET f4 = 'NaN', f8 = 'NaN', d = 'infinity', ts = '-infinity' WHERE g % 50 = 1;

-- every type, with NULLs
SELECT gpu_sort_agg(i2) = array_agg(i2 ORDER BY i2) i2, gpu_sort_agg(i4) = array_agg(i4 ORDER BY i4) i4,
       gpu_sort_agg(i8) = array_agg(i8 ORDER BY i8) i8, gpu_sort_agg(f4) = array_agg(f4 ORDER BY f4) f4,
       gpu_sort_agg(f8) = array_agg(f8 ORDER BY f8) f8, gpu_sort_agg(d) = array_agg(d ORDER BY d) d,
       gpu_sort_agg(ts) = array_agg(ts ORDER BY ts) ts, gpu_sort_agg(tz) = array_agg(tz ORDER BY tz) tz
FROM numbers;

-- no rows, only NULLs, one row
SELECT gpu_sort_agg(i4) FROM numbers WHERE false;
SELECT gpu_sort_agg(NULL::int) FROM generate_series(1, 3);
SELECT gpu_sort_agg(i) FROM generate_series(1, 1) i;
SELECT gpu_sort_agg(i) FROM (VALUES (3), (NULL), (1)) v(i);

-- many groups, hashed and sorted
SELECT count(*), bool_and(a = b)
FROM (SELECT g, gpu_sort_agg(i4) a, array_agg(i4 ORDER BY i4) b FROM numbers GROUP BY g) s;
SELECT count(*), sum(cardinality(a))
FROM (SELECT g, gpu_sort_agg(i8) a FROM numbers GROUP BY g) s;
SET enable_hashagg = off;
SELECT count(*), bool_and(a = b)
FROM (SELECT g, gpu_sort_agg(f8) a, array_agg(f8 ORDER BY f8) b FROM numbers GROUP BY g) s;
RESET enable_hashagg;
SELECT g, a FROM (SELECT g / 100 g, gpu_sort_agg(DISTINCT i2 / 5000) a FROM numbers GROUP BY 1) s ORDER BY 1;
SELECT g IS NULL total, count(*), bool_and(a = b)
FROM (SELECT g, gpu_sort_agg(i4) a, array_agg(i4 ORDER BY i4) b FROM numbers GROUP BY ROLLUP (g)) s GROUP BY 1 ORDER BY 1;

-- groups of every small size: they fill the room in the state, then the first blocks
SELECT bool_and(a = b AND c = d)
FROM (SELECT n, gpu_sort_agg(x) a, array_agg(x ORDER BY x) b,
             gpu_sort_agg(x::int8) c, array_agg(x::int8 ORDER BY x) d
      FROM generate_series(1, 150) n, LATERAL (SELECT i * 7919 % 151 x FROM generate_series(1, n) i) s
      GROUP BY n) t;

-- FILTER, HAVING, several aggregates in one query, shared states
SELECT gpu_sort_agg(i2) FILTER (WHERE i2 > 9950) FROM numbers;
SELECT g FROM numbers GROUP BY g HAVING (gpu_sort_agg(i4))[1] < -9990000 ORDER BY g;
SELECT gpu_sort_agg(i4) = gpu_sort_agg(i4), cardinality(gpu_sort_agg(i2)), cardinality(gpu_sort_agg(f8)) FROM numbers;
CREATE AGGREGATE sorted_too(anynonarray)
  (sfunc = gpu_sort_agg_transfn, stype = internal, finalfunc = gpu_sort_agg_finalfn, finalfunc_extra);
SELECT gpu_sort_agg(i4) = sorted_too(i4) FROM numbers;
DROP AGGREGATE sorted_too(anynonarray);

-- as a window aggregate: growing, moving and whole frames
SELECT i, gpu_sort_agg(x) OVER (ORDER BY i)
FROM (VALUES (1, 5), (2, NULL), (3, 2), (4, 9)) v(i, x);
SELECT i, gpu_sort_agg(x) OVER (ORDER BY i ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)
FROM (VALUES (1, 5), (2, 7), (3, 2), (4, 9)) v(i, x);
SELECT bool_and(a = (SELECT array_agg(x ORDER BY x) FROM unnest(b) x))
FROM (SELECT gpu_sort_agg(i4) OVER w a, array_agg(i4) OVER w b
      FROM numbers WINDOW w AS (PARTITION BY g)) s;
SELECT bool_and(a = (SELECT array_agg(x ORDER BY x) FROM unnest(b) x))
FROM (SELECT gpu_sort_agg(i2) OVER w a, array_agg(i2) OVER w b
      FROM numbers WHERE g < 20 WINDOW w AS (ORDER BY g, i8)) s;

-- values of types without keys: sorted by their comparator and the collation, also by groups and beside other aggregates
SELECT gpu_sort_agg(i4 / 7.0::numeric) = array_agg(i4 / 7.0::numeric ORDER BY i4 / 7.0::numeric) n,
       gpu_sort_agg(i4::text) = array_agg(i4::text ORDER BY i4::text) t,
       gpu_sort_agg(i4::text COLLATE "C") = array_agg(i4::text COLLATE "C" ORDER BY i4::text COLLATE "C") c,
       gpu_sort_agg(ROW(i2, i4)) = array_agg(ROW(i2, i4) ORDER BY ROW(i2, i4)) r, count(*)
FROM numbers;
SELECT count(*), bool_and(a = b)
FROM (SELECT g, gpu_sort_agg(i4::numeric) FILTER (WHERE i2 > 0) a, array_agg(i4::numeric ORDER BY i4::numeric) FILTER (WHERE i2 > 0) b
      FROM numbers GROUP BY g) s;
SELECT g, gpu_sort_agg(x), gpu_sort_agg(x), min(x), count(DISTINCT i)
FROM (VALUES (1, 2.50, 1), (1, NULL, 2), (1, 1.5, 3), (2, NULL, 4)) v(g, x, i) GROUP BY g ORDER BY g;
SELECT gpu_sort_agg(x) FROM (VALUES (1.5)) v(x) WHERE false;
SELECT i, gpu_sort_agg(x) OVER (ORDER BY i ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)
FROM (VALUES (1, 5.5), (2, NULL), (3, 2.5), (4, 9.5)) v(i, x);

-- with an ORDER BY of its own
SELECT gpu_sort_agg(x ORDER BY x DESC) a, gpu_sort_agg(x ORDER BY x NULLS FIRST) b, gpu_sort_agg(x ORDER BY -x, x) c,
       gpu_sort_agg(x ORDER BY i) d, gpu_sort_agg(DISTINCT x ORDER BY x DESC) e, gpu_sort_agg(DISTINCT x) f, gpu_sort_agg(x) g,
       gpu_sort_agg(x::numeric ORDER BY x DESC NULLS LAST) h
FROM (VALUES (1, 5), (2, NULL), (3, 2), (4, 9), (5, 5)) v(i, x);
SELECT count(*), bool_and(a = b AND c = d)
FROM (SELECT g, gpu_sort_agg(i4 ORDER BY i4 DESC, i8) a, array_agg(i4 ORDER BY i4 DESC, i8) b,
             gpu_sort_agg(i8 ORDER BY f8, i8) c, array_agg(i8 ORDER BY f8, i8) d
      FROM numbers GROUP BY g) s;
SELECT gpu_sort_agg(i8 ORDER BY i8 DESC) = array_agg(i8 ORDER BY i8 DESC), count(DISTINCT i8) > 0 FROM numbers;

-- in subqueries that are executed repeatedly
SELECT g, (SELECT gpu_sort_agg(n.i2 / 2500) FROM numbers n WHERE n.g = o.g AND n.i2 IS NOT NULL)
FROM generate_series(1, 3) o(g);

-- in a cursor, in a prepared statement, in parallel plans
BEGIN;
DECLARE c CURSOR FOR SELECT g, gpu_sort_agg(i2 / 5000) FROM numbers WHERE g < 3 GROUP BY g ORDER BY g;
FETCH 2 FROM c;
FETCH 2 FROM c;
COMMIT;
PREPARE p(int) AS SELECT cardinality(gpu_sort_agg(i4)) FROM numbers WHERE g < $1;
EXECUTE p(10);
EXECUTE p(0);
DEALLOCATE p;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SELECT gpu_sort_agg(i4) = array_agg(i4 ORDER BY i4) FROM numbers;
SELECT count(*), bool_and(gpu_sort(ARRAY[i4, 0]) = ARRAY[least(i4, 0), greatest(i4, 0)]) FROM numbers WHERE i4 IS NOT NULL;
RESET ALL;

-- an error half way, in a subtransaction, and a sort after it
DO $$
DECLARE
  result int[];
BEGIN
  FOR i IN 1..3 LOOP
    BEGIN
      SELECT gpu_sort_agg(10 / (2500 - x)) INTO result FROM generate_series(1, 5000) x;
    EXCEPTION WHEN division_by_zero THEN
      RAISE NOTICE 'division by zero';
    END;
  END LOOP;
  SELECT gpu_sort_agg(-x) INTO result FROM generate_series(1, 5000) x;
  RAISE NOTICE '% %', result[1], cardinality(result);
END $$;
DROP TABLE numbers;
