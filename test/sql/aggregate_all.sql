--
-- Aggregates that sort, over all rows of a table: a node of their own in place of Agg, with the same results
--
\pset null NULL
LOAD 'gpusort';

CREATE TABLE numbers (i int, g int, i2 int2, i4 int, i8 bigint, f4 float4, f8 float8, d date, ts timestamp, tz timestamptz);
SELECT setseed(0.5);
INSERT INTO numbers
SELECT i, i % 300, n, n * 1000, n * 1000000000::bigint, n / 7.0, n / 7.0, date '2000-01-01' + n,
       timestamp '2000-01-01' + n * interval '1 hour', timestamptz '2000-01-01 00:00+00' + n * interval '1 hour'
FROM (SELECT i, CASE WHEN i % 11 > 0 THEN (random() * 20000 - 10000)::int END n FROM generate_series(1, 5000) i) s;
UPDATE numbers SET f4 = 'NaN', f8 = CASE WHEN i % 3 = 0 THEN float8 '-Infinity' ELSE 'Infinity' END WHERE g % 50 = 1;

EXPLAIN (COSTS OFF)
SELECT count(DISTINCT i4) FILTER (WHERE g > 7) + mode() WITHIN GROUP (ORDER BY g), percentile_disc(0.2) WITHIN GROUP (ORDER BY ts DESC)
FROM numbers HAVING percentile_cont(0.5) WITHIN GROUP (ORDER BY i2) > -1e9;
CREATE FUNCTION aggregates() RETURNS text LANGUAGE sql VOLATILE AS $$
SELECT ROW(percentile_cont(0.3) WITHIN GROUP (ORDER BY i4 DESC), percentile_cont(ARRAY[[0, 0.35], [NULL, 1]]) WITHIN GROUP (ORDER BY i8 DESC),
           percentile_cont(0.77) WITHIN GROUP (ORDER BY f4), percentile_cont(0.5) WITHIN GROUP (ORDER BY i4 / 2 + i2),
           percentile_cont(ARRAY[0.5, 0.1]) WITHIN GROUP (ORDER BY f8) FILTER (WHERE g % 3 = 1), percentile_cont('[3:4]={1,0}'::float8[]) WITHIN GROUP (ORDER BY i2),
           percentile_disc(0) WITHIN GROUP (ORDER BY i2), percentile_disc(0.4) WITHIN GROUP (ORDER BY ts DESC NULLS FIRST),
           percentile_disc(ARRAY[0.1, NULL, 1]) WITHIN GROUP (ORDER BY d), percentile_disc(NULL::float8) WITHIN GROUP (ORDER BY i4),
           percentile_disc('{}'::float8[]) WITHIN GROUP (ORDER BY f4), mode() WITHIN GROUP (ORDER BY i2), mode() WITHIN GROUP (ORDER BY g DESC),
           mode() WITHIN GROUP (ORDER BY f4), count(DISTINCT i2), count(DISTINCT i2 * 3) FILTER (WHERE g < 100), count(DISTINCT f4),
           count(DISTINCT f8), count(DISTINCT tz), count(DISTINCT NULL::int), count(DISTINCT g + random() * 0))::text
FROM numbers
$$;
SET gpusort.enabled = off;
CREATE TEMP TABLE by_core AS SELECT aggregates();
SET gpusort.enabled = on;
SELECT aggregates() = (TABLE by_core);
SET gpusort.memory_limit = '64kB';
SELECT aggregates() = (TABLE by_core);
RESET gpusort.memory_limit;
SELECT count(DISTINCT x), mode() WITHIN GROUP (ORDER BY x) FROM unnest('{-0,0,NaN,-NaN,NaN,1}'::float8[]) x;

-- few rows, one row, only NULLs
SET gpusort.force = on;
SELECT bool_and(m = CASE WHEN n % 2 = 0 THEN n / 2 + 0.5 ELSE (n + 1) / 2 END AND t = ARRAY[1, n])
FROM generate_series(1, 40) n,
     LATERAL (SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY n + 1 - i) m, percentile_disc(ARRAY[0, 1]) WITHIN GROUP (ORDER BY i) t FROM generate_series(1, n) i) s;
SELECT percentile_cont(0.1) WITHIN GROUP (ORDER BY i), percentile_cont(ARRAY[0, 1]) WITHIN GROUP (ORDER BY i) FROM (VALUES (3), (NULL)) v(i);
SELECT percentile_cont(0.1) WITHIN GROUP (ORDER BY NULL::int), percentile_cont(ARRAY[0, 1]) WITHIN GROUP (ORDER BY NULL::int) FROM numbers;
RESET gpusort.force;

-- many rows, of which percentiles are selected: random, in order, few values, two extreme values, more fractions than are selected
CREATE TABLE large AS
SELECT hashint4(i) r, i, hashint8(i) * 4000000000 r8, i % 3 few, CASE WHEN i % 1000 = 0 THEN 2000000000 ELSE i % 7 END skew,
       CASE WHEN i <= 16384 THEN i % 16384 * 9 ELSE -i % 100 END periodic, (hashint4(i) / 7.0)::float8 f8, (i % 50)::int2 i2
FROM generate_series(1, 300000) i;
CREATE FUNCTION percentiles(fractions float8[]) RETURNS text LANGUAGE sql VOLATILE AS $$
SELECT ROW(percentile_cont($1) WITHIN GROUP (ORDER BY r), percentile_cont($1) WITHIN GROUP (ORDER BY i), percentile_cont($1) WITHIN GROUP (ORDER BY r8),
           percentile_cont($1) WITHIN GROUP (ORDER BY few), percentile_cont($1) WITHIN GROUP (ORDER BY skew), percentile_cont($1) WITHIN GROUP (ORDER BY periodic),
           percentile_cont($1) WITHIN GROUP (ORDER BY f8), percentile_cont($1) WITHIN GROUP (ORDER BY i2))::text
FROM large
$$;
CREATE TEMP TABLE fractions AS VALUES ('{0, 0.00001, 0.001, 0.5, 0.98, 0.99999, 1}'::float8[]), ('{1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2}');
SET gpusort.enabled = off;
CREATE TEMP TABLE expected AS SELECT column1, percentiles(column1) FROM fractions;
SET gpusort.enabled = on;
SELECT percentiles(column1) = percentiles FROM expected;
DROP FUNCTION percentiles;
DROP TABLE large;

-- fractions that are wrong; without rows only a single one is looked at
SELECT percentile_cont(1.5) WITHIN GROUP (ORDER BY i) FROM numbers;
SELECT percentile_cont('NaN') WITHIN GROUP (ORDER BY i) FROM numbers;
SELECT percentile_disc(ARRAY[0.1, -1]) WITHIN GROUP (ORDER BY i) FROM numbers;
SELECT percentile_cont(1.1) WITHIN GROUP (ORDER BY i) FROM numbers WHERE i < 0;
SELECT count(DISTINCT i), mode() WITHIN GROUP (ORDER BY i), percentile_disc(0.5) WITHIN GROUP (ORDER BY i),
       percentile_cont(0.5) WITHIN GROUP (ORDER BY i), percentile_cont(ARRAY[2]) WITHIN GROUP (ORDER BY i) FROM numbers WHERE i < 0;

-- the node takes the place of these, and not of those that it cannot compute
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
FROM unnest(ARRAY['SELECT gpu_sort_agg(i) FROM numbers',
                  'SELECT gpu_sort_agg(i), now() FROM numbers',
                  'SELECT gpu_sort_agg(i), count(*) FROM numbers',
                  'SELECT gpu_sort_agg(i) FROM numbers HAVING sum(i) > 0',
                  'SELECT gpu_sort_agg(i) FILTER (WHERE g > 0) FROM numbers',
                  'SELECT gpu_sort_agg(i) FROM numbers GROUP BY g',
                  'SELECT gpu_sort_agg(DISTINCT i) FROM numbers',
                  'SELECT gpu_sort_agg(i), array_agg(i) FROM numbers',
                  'SELECT gpu_sort_agg(i), percentile_cont((SELECT random())) WITHIN GROUP (ORDER BY i) FROM numbers',
                  'SELECT percentile_cont(random()) WITHIN GROUP (ORDER BY i) FROM numbers',
                  'SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY i) FROM numbers GROUP BY GROUPING SETS (())',
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
SELECT gpu_sort_agg(g), count(DISTINCT g), gpu_sort_agg(g), gpu_sort_agg(-g) FROM numbers WHERE i < 5;
SELECT gpu_sort_agg(g) FILTER (WHERE i < 4), gpu_sort_agg(NULL::int) FILTER (WHERE i < 3), gpu_sort_agg(g) FILTER (WHERE i < 0) FROM numbers;
SELECT gpu_sort_agg(i4::numeric) FILTER (WHERE i < 0) FROM numbers;
SELECT gpu_sort_agg(i4::numeric) FROM numbers WHERE i < 0;
SELECT gpu_sort_agg(i4::numeric) = array_agg(i4::numeric ORDER BY i4::numeric), count(DISTINCT i4) > 0 FROM numbers;
DROP DOMAIN small;

-- HAVING; volatile values
SELECT count(DISTINCT i4) FROM numbers HAVING mode() WITHIN GROUP (ORDER BY i8) IS NULL;
SELECT gpu_sort_agg(random()) = gpu_sort_agg(random()) FROM numbers;

-- parameters, rescans with and without a change, a subquery that is correlated, a domain, a cursor that is rewound
PREPARE percentile(float8) AS SELECT percentile_cont($1) WITHIN GROUP (ORDER BY i) FROM numbers;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE percentile(0.5);
EXECUTE percentile(0.25);
EXECUTE percentile(1);
EXECUTE percentile(NULL);
EXECUTE percentile(2);
RESET plan_cache_mode;
SELECT n, (SELECT round((percentile_cont(n / 10.0) WITHIN GROUP (ORDER BY i))::numeric, 6) FROM numbers WHERE i % 10 <= n),
       (SELECT count(DISTINCT i) FROM numbers WHERE i % 10 <= n), (SELECT gpu_sort_agg(i) FROM numbers WHERE i % 10 <= n AND i < 30)
FROM generate_series(0, 3) n;
SELECT a, m = percentile_cont(0.5) WITHIN GROUP (ORDER BY i4 DESC)
FROM generate_series(1, 2) a LEFT JOIN LATERAL (SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY i4) m FROM numbers OFFSET 0) s ON a > 0, numbers
GROUP BY a, m ORDER BY a;
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY i::positive) FROM numbers;
DROP DOMAIN positive;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY i) FROM numbers;
FETCH 2 FROM c;
FETCH BACKWARD 2 FROM c;
FETCH 2 FROM c;
COMMIT;

-- what a rescan allocates, the next one frees
SELECT max(used) - min(used) < 200000
FROM (SELECT g, (SELECT percentile_cont('{0.1,0.5}'::float8[]) WITHIN GROUP (ORDER BY i + g) FROM generate_series(1, 3) i) p,
             CASE g WHEN 100 THEN (SELECT sum(used_bytes) FROM pg_backend_memory_contexts WHERE g > 0)
                    WHEN 20000 THEN (SELECT sum(used_bytes) FROM pg_backend_memory_contexts WHERE g > 0) END used
      FROM generate_series(1, 20000) g OFFSET 0) s
WHERE p IS NOT NULL;

-- permissions are those of the aggregate, when the plan is executed
CREATE ROLE regress_gpusort_analyst;
GRANT SELECT ON numbers TO regress_gpusort_analyst;
SET ROLE regress_gpusort_analyst;
PREPARE sorted AS SELECT gpu_sort_agg(i) FROM numbers WHERE i < 4;
EXECUTE sorted;
RESET ROLE;
REVOKE EXECUTE ON FUNCTION gpu_sort_agg(anynonarray) FROM PUBLIC;
SET ROLE regress_gpusort_analyst;
EXECUTE sorted;
RESET ROLE;
GRANT EXECUTE ON FUNCTION gpu_sort_agg(anynonarray) TO PUBLIC;
REVOKE SELECT ON numbers FROM regress_gpusort_analyst;
DROP ROLE regress_gpusort_analyst;

DROP FUNCTION aggregates;
DROP FUNCTION node_of;
DROP TABLE numbers;
