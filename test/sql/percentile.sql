--
-- gpu_median() and gpu_percentile() return the same as percentile_cont()
--
\pset null NULL

CREATE TABLE numbers (i int, g int, i2 int2, i4 int, i8 bigint, f4 float4, f8 float8, d date, ts timestamp, tz timestamptz);
SELECT setseed(0.5);
INSERT INTO numbers
SELECT i, i % 300, n, n * 1000, n * 1000000000::bigint, n / 7.0, n / 7.0, date '2000-01-01' + n,
       timestamp '2000-01-01' + n * interval '1 hour', timestamptz '2000-01-01 00:00+00' + n * interval '1 hour'
FROM (SELECT i, CASE WHEN i % 11 > 0 THEN (random() * 20000 - 10000)::int END n FROM generate_series(1, 5000) i) s;
UPDATE numbers SET f4 = 'NaN', f8 = CASE WHEN i % 3 = 0 THEN float8 '-Infinity' ELSE 'Infinity' END WHERE g % 50 = 1;

-- every type, with NULLs, as a whole and in groups; percentile_cont() by core
SET gpusort.enabled = off;
SELECT gpu_median(i2) = percentile_cont(0.5) WITHIN GROUP (ORDER BY i2) i2,
       gpu_median(i4) = percentile_cont(0.5) WITHIN GROUP (ORDER BY i4) i4,
       gpu_median(i8) = percentile_cont(0.5) WITHIN GROUP (ORDER BY i8) i8,
       gpu_median(f4) = percentile_cont(0.5) WITHIN GROUP (ORDER BY f4) f4,
       gpu_median(f8) = percentile_cont(0.5) WITHIN GROUP (ORDER BY f8) f8
FROM numbers;
SELECT count(*), bool_and(a = b AND c = d AND e = f AND h = k)
FROM (SELECT gpu_median(i2) a, percentile_cont(0.5) WITHIN GROUP (ORDER BY i2) b,
             gpu_percentile(i8, 0.123) c, percentile_cont(0.123) WITHIN GROUP (ORDER BY i8) d,
             gpu_percentile(f4, 1) e, percentile_cont(1) WITHIN GROUP (ORDER BY f4) f,
             gpu_percentile(f8, ARRAY[0, 0.3, 0.31, 0.9, 1]) h, percentile_cont(ARRAY[0, 0.3, 0.31, 0.9, 1]) WITHIN GROUP (ORDER BY f8) k
      FROM numbers GROUP BY g) s;

-- groups of every small size
SELECT bool_and(a = b AND c = d)
FROM (SELECT gpu_median(x) a, percentile_cont(0.5) WITHIN GROUP (ORDER BY x) b,
             gpu_percentile(x::int8, ARRAY[0.1, 0.77]) c, percentile_cont(ARRAY[0.1, 0.77]) WITHIN GROUP (ORDER BY x::int8) d
      FROM generate_series(1, 150) n, LATERAL (SELECT i * 7919 % 151 x FROM generate_series(1, n) i) s
      GROUP BY n) t;

-- large groups, which are not sorted: random, in order, few values, two extreme values, more fractions than are selected
CREATE TABLE large AS
SELECT hashint4(i) r, i, hashint8(i) * 4000000000 r8, i % 3 few, CASE WHEN i % 1000 = 0 THEN 2000000000 ELSE i % 7 END skew,
       CASE WHEN i <= 16384 THEN i % 16384 * 9 ELSE -i % 100 END periodic, (hashint4(i) / 7.0)::float8 f8, (i % 50)::int2 i2
FROM generate_series(1, 300000) i;
SELECT gpu_percentile(r, f) = percentile_cont(f) WITHIN GROUP (ORDER BY r) r,
       gpu_percentile(i, f) = percentile_cont(f) WITHIN GROUP (ORDER BY i) i,
       gpu_percentile(r8, f) = percentile_cont(f) WITHIN GROUP (ORDER BY r8) r8,
       gpu_percentile(few, f) = percentile_cont(f) WITHIN GROUP (ORDER BY few) few,
       gpu_percentile(skew, f) = percentile_cont(f) WITHIN GROUP (ORDER BY skew) skew,
       gpu_percentile(periodic, f) = percentile_cont(f) WITHIN GROUP (ORDER BY periodic) periodic,
       gpu_percentile(f8, f) = percentile_cont(f) WITHIN GROUP (ORDER BY f8) f8,
       gpu_percentile(i2, f) = percentile_cont(f) WITHIN GROUP (ORDER BY i2) i2
FROM large, (VALUES (ARRAY[0, 0.00001, 0.001, 0.5, 0.98, 0.99999, 1]), (ARRAY[1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2])) v(f)
GROUP BY f ORDER BY f;
DROP TABLE large;

-- arrays keep their dimensions, NULL fractions and order
SELECT gpu_percentile(x, ARRAY[[0.5, NULL], [0.9, 0.1]]), gpu_percentile(x, '[3:4]={1,0}'::float8[]), gpu_percentile(x, '{}'::float8[]),
       gpu_percentile(x, NULL::float8), gpu_percentile(x, NULL::float8[])
FROM generate_series(1, 10) x;

-- no rows, only NULLs, one row
SELECT gpu_median(i4), gpu_percentile(i4, 0.5), gpu_percentile(i4, ARRAY[0.5]) FROM numbers WHERE false;
SELECT gpu_median(NULL::int), gpu_percentile(NULL::int, 0.5), gpu_percentile(NULL::int, ARRAY[0.5]) FROM generate_series(1, 3);
SELECT gpu_median(i), gpu_percentile(i, 0.1), gpu_percentile(i, ARRAY[0, 1]) FROM (VALUES (3), (NULL)) v(i);

-- dates and timestamps: interpolated to the microsecond; a date's percentile is a timestamp
SELECT gpu_median(d), gpu_percentile(ts, 0.25), gpu_percentile(tz, ARRAY[0.25, NULL]) = ARRAY[gpu_percentile(tz, 0.25), NULL] FROM numbers;
SELECT gpu_percentile(x, 1 / 3.0), pg_typeof(gpu_median(x::date)), pg_typeof(gpu_percentile(x::timestamptz, ARRAY[0.5]))
FROM (VALUES (timestamp '2000-01-01 00:00:00'), (timestamp '2000-01-01 00:00:01')) v(x);
SELECT gpu_percentile(x, ARRAY[0, 0.25, 0.5, 0.75, 1]) FROM (VALUES (timestamp '-infinity'), ('2000-01-01'), ('infinity')) v(x);
SELECT gpu_percentile(x, ARRAY[0.5]) FROM (VALUES (timestamp '4713-01-01 BC'), ('294276-12-31')) v(x);
SELECT gpu_median(x) FROM (VALUES (timestamp '-infinity'), ('infinity')) v(x);

-- fractions that are wrong
SELECT gpu_percentile(i4, 1.5) FROM numbers;
SELECT gpu_percentile(i4, 'NaN') FROM numbers;
SELECT gpu_percentile(i4, ARRAY[0.5, -1]) FROM numbers;
SELECT gpu_percentile(i4, i / 5000.0) FROM numbers;
SELECT gpu_percentile(i4, CASE WHEN i < 100 THEN 0.5 END) FROM numbers;
SELECT gpu_percentile(i4, ARRAY[0.5, i / 5000.0]) FROM numbers;
SELECT gpu_median(i4::numeric) FROM numbers;

-- FILTER, DISTINCT, a fraction for each group, growing and moving windows, parallel plans
SELECT gpu_median(i4) FILTER (WHERE g = 1) = percentile_cont(0.5) WITHIN GROUP (ORDER BY i4) FILTER (WHERE g = 1),
       gpu_median(DISTINCT i2) = (SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY i2) FROM (SELECT DISTINCT i2 FROM numbers) s)
FROM numbers;
SELECT g, gpu_percentile(i4, g::float8) FROM numbers WHERE g < 2 GROUP BY g ORDER BY g;
SELECT i, gpu_median(x) OVER (ORDER BY i), gpu_median(x) OVER (ORDER BY i ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)
FROM (VALUES (1, 5), (2, NULL), (3, 2), (4, 9)) v(i, x);
SELECT bool_and(a = (SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x) FROM unnest(b) x))
FROM (SELECT gpu_median(i2) OVER w a, array_agg(i2) OVER w b
      FROM numbers WHERE g < 20 WINDOW w AS (ORDER BY g, i8)) s;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SELECT gpu_median(i4) = percentile_cont(0.5) WITHIN GROUP (ORDER BY i4) FROM numbers;
RESET ALL;

-- gpusort's aggregates of all rows, alone: a node of their own instead of Agg, with the same results
LOAD 'gpusort';
EXPLAIN (COSTS OFF, VERBOSE)
SELECT gpu_percentile(i4, 0.9) - gpu_median(i4), gpu_percentile(i4, ARRAY[0.1, 0.2])
FROM numbers WHERE g < 100 HAVING gpu_median(i4) > -1e9;
CREATE FUNCTION percentiles(OUT median float8, OUT high float8, OUT two float8[], OUT expression float8, OUT big float8, OUT nan float8,
                            OUT noon timestamp, OUT moment timestamptz)
LANGUAGE sql VOLATILE AS $$
SELECT gpu_median(i4), gpu_percentile(i4, 0.99), gpu_percentile(i4, ARRAY[0.1, 0.6]), gpu_median(i4 / 2 + i2), gpu_percentile(i8, 0.3),
       gpu_percentile(f8, 0.7), gpu_median(d), gpu_percentile(tz, 0.2)
FROM numbers
$$;
SELECT p.median = q[1], p.high = h, p.two = ARRAY[q[2], q[3]], p.expression = e, p.big = b, p.nan = n
FROM percentiles() p, (SELECT percentile_cont(ARRAY[0.5, 0.1, 0.6]) WITHIN GROUP (ORDER BY i4) q,
                              percentile_cont(0.99) WITHIN GROUP (ORDER BY i4) h,
                              percentile_cont(0.5) WITHIN GROUP (ORDER BY i4 / 2 + i2) e,
                              percentile_cont(0.3) WITHIN GROUP (ORDER BY i8) b,
                              percentile_cont(0.7) WITHIN GROUP (ORDER BY f8) n FROM numbers) c;
SET gpusort.enabled = off;
CREATE TEMP TABLE expected AS SELECT * FROM percentiles();
SET gpusort.enabled = on;
SELECT p = e FROM percentiles() p, expected e;

-- core's aggregates that sort, alone: the same node, with the same results, also if they exceed the memory limit
EXPLAIN (COSTS OFF)
SELECT count(DISTINCT i4) FILTER (WHERE g > 7) + mode() WITHIN GROUP (ORDER BY g), percentile_disc(0.2) WITHIN GROUP (ORDER BY ts DESC)
FROM numbers HAVING percentile_cont(0.5) WITHIN GROUP (ORDER BY i2) > -1e9;
CREATE FUNCTION of_core() RETURNS text LANGUAGE sql VOLATILE AS $$
SELECT ROW(percentile_cont(0.3) WITHIN GROUP (ORDER BY i4 DESC), percentile_cont(ARRAY[[0, 0.35], [NULL, 1]]) WITHIN GROUP (ORDER BY i8 DESC),
           percentile_cont(0.77) WITHIN GROUP (ORDER BY f4), percentile_cont(0.5) WITHIN GROUP (ORDER BY i4 / 2 + i2),
           percentile_cont(ARRAY[0.5, 0.1]) WITHIN GROUP (ORDER BY f8) FILTER (WHERE g % 3 = 1),
           percentile_disc(0) WITHIN GROUP (ORDER BY i2), percentile_disc(0.4) WITHIN GROUP (ORDER BY ts DESC NULLS FIRST),
           percentile_disc(ARRAY[0.1, NULL, 1]) WITHIN GROUP (ORDER BY d), percentile_disc(NULL::float8) WITHIN GROUP (ORDER BY i4),
           percentile_disc('{}'::float8[]) WITHIN GROUP (ORDER BY f4), mode() WITHIN GROUP (ORDER BY i2), mode() WITHIN GROUP (ORDER BY g DESC),
           mode() WITHIN GROUP (ORDER BY f4), count(DISTINCT i2), count(DISTINCT i2 * 3) FILTER (WHERE g < 100), count(DISTINCT f4),
           count(DISTINCT f8), count(DISTINCT tz), count(DISTINCT NULL::int), count(DISTINCT g + random() * 0))::text
FROM numbers
$$;
SET gpusort.enabled = off;
CREATE TEMP TABLE by_core AS SELECT of_core();
SET gpusort.enabled = on;
SELECT of_core() = (TABLE by_core);
SET gpusort.memory_limit = '64kB';
SELECT of_core() = (TABLE by_core);
RESET gpusort.memory_limit;
SELECT count(DISTINCT x), mode() WITHIN GROUP (ORDER BY x) FROM unnest('{-0,0,NaN,-NaN,NaN,1}'::float8[]) x;
SELECT count(DISTINCT i), mode() WITHIN GROUP (ORDER BY i), percentile_disc(0.5) WITHIN GROUP (ORDER BY i),
       percentile_cont(0.5) WITHIN GROUP (ORDER BY i), percentile_cont(ARRAY[2]) WITHIN GROUP (ORDER BY i) FROM numbers WHERE i < 0;
SELECT percentile_cont(1.1) WITHIN GROUP (ORDER BY i) FROM numbers WHERE i < 0;
SELECT percentile_disc(ARRAY[0.1, -1]) WITHIN GROUP (ORDER BY i) FROM numbers;

-- anything else that is computed with them brings Agg back
CREATE FUNCTION node_of(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    line text;
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
        RETURN line;
    END LOOP;
END
$$;
SELECT query, node_of(query)
FROM unnest(ARRAY['SELECT gpu_median(i) FROM numbers',
                  'SELECT gpu_median(i), now() FROM numbers',
                  'SELECT gpu_percentile(i, (SELECT random())) FROM numbers',
                  'SELECT gpu_median(i), count(*) FROM numbers',
                  'SELECT gpu_median(i) FROM numbers HAVING sum(i) > 0',
                  'SELECT gpu_median(i) FILTER (WHERE g > 0) FROM numbers',
                  'SELECT gpu_median(DISTINCT i) FROM numbers',
                  'SELECT gpu_percentile(i, g / 300.0) FROM numbers',
                  'SELECT gpu_percentile(i, random()) FROM numbers',
                  'SELECT gpu_median(i) FROM numbers GROUP BY g',
                  'SELECT gpu_median(i) FROM numbers GROUP BY GROUPING SETS (())',
                  'SELECT gpu_sort_agg(i), gpu_median(i) FROM numbers',
                  'SELECT gpu_sort_agg(DISTINCT i) FROM numbers',
                  'SELECT gpu_sort_agg(i), array_agg(i) FROM numbers',
                  'SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY i) FROM numbers',
                  'SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY i * interval ''1 s'') FROM numbers',
                  'SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY i::text) FROM numbers',
                  'SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY i::numeric) FROM numbers',
                  'SELECT count(DISTINCT i), count(i) FROM numbers',
                  'SELECT rank(5) WITHIN GROUP (ORDER BY i) FROM numbers',
                  'SELECT count(DISTINCT i) FROM numbers GROUP BY g']) query;

-- arrays by the node: types, an expression, NULLs, a domain, no rows, few rows, the same values twice, no type of ours
CREATE DOMAIN small AS int2;
SELECT (SELECT gpu_sort_agg(i2) FROM numbers) = (SELECT array_agg(i2 ORDER BY i2) FROM numbers) i2,
       (SELECT gpu_sort_agg(f8) FROM numbers) = (SELECT array_agg(f8 ORDER BY f8) FROM numbers) f8,
       (SELECT gpu_sort_agg(i4 - i2) FROM numbers) = (SELECT array_agg(i4 - i2 ORDER BY i4 - i2) FROM numbers) expression,
       (SELECT gpu_sort_agg(nullif(g, 3)) FROM numbers) = (SELECT array_agg(nullif(g, 3) ORDER BY nullif(g, 3)) FROM numbers) nulls,
       (SELECT gpu_sort_agg(tz) FROM numbers WHERE i < 4) = (SELECT array_agg(tz ORDER BY tz) FROM numbers WHERE i < 4) few;
SELECT pg_typeof(gpu_sort_agg(g::small)), gpu_sort_agg(g::small) FROM numbers WHERE i < 6;
SELECT gpu_sort_agg(i4) FROM numbers WHERE i < 0;
SELECT gpu_sort_agg(NULL::int) FROM numbers WHERE i < 3;
SELECT gpu_sort_agg(g), gpu_median(g), gpu_sort_agg(g), gpu_sort_agg(-g) FROM numbers WHERE i < 5;
SELECT gpu_sort_agg(i4::numeric) FROM numbers;

-- no rows: no fraction is evaluated; HAVING; a volatile value; the same value twice
SELECT gpu_percentile(i4, 7) FROM numbers WHERE i < 0;
SELECT gpu_percentile(i4, 7) FROM numbers;
SELECT gpu_median(i4) FROM numbers HAVING gpu_median(i8) IS NULL;
SELECT gpu_median(random()) = gpu_median(random()), gpu_median(i2) = gpu_percentile(i2, 0.5) FROM numbers;
SELECT gpu_median(i4::numeric) FROM numbers WHERE i < 0;
SELECT gpu_median(i4::numeric) FROM numbers;

-- parameters, rescans with and without a change, a subquery that is correlated, a domain, a cursor that is rewound
PREPARE percentile(float8) AS SELECT gpu_percentile(i, $1) FROM numbers;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE percentile(0.5);
EXECUTE percentile(0.25);
EXECUTE percentile(1);
EXECUTE percentile(NULL);
EXECUTE percentile(2);
RESET plan_cache_mode;
SELECT n, (SELECT round(gpu_percentile(i, n / 10.0)::numeric, 6) FROM numbers WHERE i % 10 <= n),
       (SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY i) FROM numbers WHERE i % 10 <= n),
       (SELECT gpu_median(i) FROM numbers WHERE i % 10 <= n)
FROM generate_series(0, 3) n;
SELECT a, m = percentile_cont(0.5) WITHIN GROUP (ORDER BY i4)
FROM generate_series(1, 2) a LEFT JOIN LATERAL (SELECT gpu_median(i4) m FROM numbers OFFSET 0) s ON a > 0, numbers
GROUP BY a, m ORDER BY a;
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
SELECT gpu_median(i::positive) FROM numbers;
DROP DOMAIN positive;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT gpu_median(i) FROM numbers;
FETCH 2 FROM c;
FETCH BACKWARD 2 FROM c;
FETCH 2 FROM c;
COMMIT;

-- what a rescan allocates, the next one frees
SELECT max(used) - min(used) < 200000
FROM (SELECT g, (SELECT gpu_percentile(i + g, '{0.1,0.5}'::float8[]) FROM generate_series(1, 3) i) p,
             CASE g WHEN 100 THEN (SELECT sum(used_bytes) FROM pg_backend_memory_contexts WHERE g > 0)
                    WHEN 20000 THEN (SELECT sum(used_bytes) FROM pg_backend_memory_contexts WHERE g > 0) END used
      FROM generate_series(1, 20000) g OFFSET 0) s
WHERE p IS NOT NULL;

-- permissions are those of the aggregate, when the plan is executed
CREATE ROLE regress_gpusort_analyst;
GRANT SELECT ON numbers TO regress_gpusort_analyst;
SET ROLE regress_gpusort_analyst;
PREPARE median AS SELECT gpu_median(i) FROM numbers;
EXECUTE median;
RESET ROLE;
REVOKE EXECUTE ON FUNCTION gpu_median(anynonarray) FROM PUBLIC;
SET ROLE regress_gpusort_analyst;
EXECUTE median;
RESET ROLE;
GRANT EXECUTE ON FUNCTION gpu_median(anynonarray) TO PUBLIC;
REVOKE SELECT ON numbers FROM regress_gpusort_analyst;
DROP ROLE regress_gpusort_analyst;

DROP FUNCTION percentiles;
DROP FUNCTION node_of;
DROP TABLE numbers;
