--
-- gpu_sort() and gpu_argsort()
--
\pset null NULL

-- every type, both directions
SELECT gpu_sort(ARRAY[3, -1, 32767, -32768, 0]::int2[]), gpu_sort(ARRAY[3, -1, 32767, -32768, 0]::int2[], true);
SELECT gpu_sort(ARRAY[3, -1, 2147483647, -2147483648, 0]), gpu_sort(ARRAY[3, -1, 2147483647, -2147483648, 0], true);
SELECT gpu_sort(ARRAY[3, -1, 9223372036854775807, -9223372036854775808, 0]);
SELECT gpu_sort(ARRAY[3, -1, 9223372036854775807, -9223372036854775808, 0], true);
SELECT gpu_sort(ARRAY['NaN', 1.5, '-Infinity', 'Infinity', 0, -1e-40, 3.4e38]::float4[]);
SELECT gpu_sort(ARRAY['NaN', 1.5, '-Infinity', 'Infinity', 0, -1e-40, 3.4e38]::float4[], true);
SELECT gpu_sort(ARRAY['NaN', 1.5, '-Infinity', 'Infinity', 0, -5e-324, 1e308]::float8[]);
SELECT gpu_sort(ARRAY['NaN', 1.5, '-Infinity', 'Infinity', 0, -5e-324, 1e308]::float8[], true);
SET datestyle = 'ISO';
SET timezone = 'UTC';
SELECT gpu_sort(ARRAY['2024-02-29', 'infinity', '-infinity', '0001-01-01 BC', '1999-12-31']::date[]);
SELECT gpu_sort(ARRAY['2024-02-29 12:00', 'infinity', '-infinity', '1999-12-31 23:59:59.999999']::timestamp[]);
SELECT gpu_sort(ARRAY['2024-02-29 12:00+02', 'infinity', '-infinity', '2024-02-29 11:00+00']::timestamptz[], true);

-- NULLs come last if ascending, first if descending, or as requested
SELECT gpu_sort(ARRAY[2, NULL, 1, NULL, 3]);
SELECT gpu_sort(ARRAY[2, NULL, 1, NULL, 3], true);
SELECT gpu_sort(ARRAY[2, NULL, 1, NULL, 3], false, true);
SELECT gpu_sort(ARRAY[2, NULL, 1, NULL, 3], true, false);
SELECT gpu_sort(ARRAY[2, NULL, 1], descending => true, nulls_first => false);
SELECT gpu_sort("array" => ARRAY[2, NULL, 1], descending => false);
SELECT gpu_sort(ARRAY[NULL, NULL]::float8[]), gpu_argsort(ARRAY[NULL, NULL]::float8[]);
SELECT gpu_sort(NULL::int[]), gpu_sort(ARRAY[1], NULL), gpu_sort(ARRAY[1], true, NULL);
SELECT gpu_argsort(NULL::int[]), gpu_argsort(ARRAY[1], NULL), gpu_argsort(ARRAY[1], true, NULL);

-- null bitmaps of every length
SELECT bool_and(gpu_sort(a) = expected AND gpu_sort(a, false, true) = expected_first)
FROM (SELECT array_agg(x) a, array_agg(x ORDER BY x) expected, array_agg(x ORDER BY x NULLS FIRST) expected_first
      FROM generate_series(1, 40) n,
           LATERAL (SELECT n, CASE WHEN i * 7 % 3 > 0 THEN i * 7919 % 31 END x FROM generate_series(1, n) i) s
      GROUP BY s.n) t;

-- small and odd shapes
SELECT gpu_sort('{}'::int[]), gpu_argsort('{}'::int[]);
SELECT gpu_sort(ARRAY[7]), gpu_argsort(ARRAY[7]);
SELECT gpu_sort(ARRAY[2, 1, 2, 1, 2]), gpu_argsort(ARRAY[2, 1, 2, 1, 2]);
SELECT gpu_sort('[5:7]={3,1,2}'::int[]), gpu_argsort('[5:7]={3,1,2}'::int[]);
SELECT array_lower(gpu_sort('[5:7]={3,1,2}'::int[]), 1);

-- positions: the sort is stable, and NULLs keep the input's order
SELECT gpu_argsort(ARRAY[30, 10, NULL, 20, 10, NULL]);
SELECT gpu_argsort(ARRAY[30, 10, NULL, 20, 10, NULL], true);
SELECT gpu_argsort(ARRAY[30, 10, NULL, 20, 10, NULL], false, true);
SELECT gpu_argsort(ARRAY[30, 10, NULL, 20, 10, NULL], true, false);
SELECT gpu_argsort(ARRAY['-0', 0, '-0', 0, 'NaN', '-1', 'NaN']::float8[]);
SELECT gpu_argsort(ARRAY['-0', 0, '-0', 0, 'NaN', '-1', 'NaN']::float4[], true);
SELECT gpu_argsort(ARRAY[5, 3, 5]::int2[]), gpu_argsort(ARRAY[5, 3, 5]::int8[]), gpu_argsort(ARRAY['2024-01-02', '2024-01-01']::date[]);

-- values come back with the same bits
SELECT array_agg(float8send(x) ORDER BY float8send(x))
FROM unnest(gpu_sort(ARRAY['NaN', -'NaN'::float8, 1, '-0', 0, 'Infinity', -'NaN'::float8])) x;
SELECT array_agg(float4send(x) ORDER BY float4send(x))
FROM unnest(gpu_sort(ARRAY['NaN', -'NaN'::float4, 1, '-0', 0, 'Infinity', -'NaN'::float4]::float4[], true)) x;
SELECT gpu_sort(ARRAY['NaN', -'NaN'::float8, 1, 'Infinity', '-Infinity']);
SELECT gpu_argsort(ARRAY[-'NaN'::float8, 'NaN', 1, -'NaN'::float8]);

-- domains
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
SELECT gpu_sort(ARRAY[3, 1, 2]::positive[]), pg_typeof(gpu_sort(ARRAY[3, 1, 2]::positive[]));
DROP DOMAIN positive;

-- expanded arrays, and arrays that are stored out of line
DO $$
DECLARE
  a int[] := ARRAY[3, 1, 2];
BEGIN
  a[5] := 0;
  RAISE NOTICE '%', gpu_sort(a);
  a[1] := -1;
  RAISE NOTICE '% %', gpu_sort(a, true), gpu_argsort(a);
  FOR i IN 1..3 LOOP
    a := gpu_sort(a || i, true);
  END LOOP;
  RAISE NOTICE '%', a;
END $$;
CREATE TABLE toasted (plain int[], compressed int[]);
ALTER TABLE toasted ALTER plain SET STORAGE EXTERNAL;
INSERT INTO toasted
SELECT array_agg(i * 7919 % 10007), array_agg(i % 10) FROM generate_series(1, 10000) i;
SELECT gpu_sort(plain) = ARRAY(SELECT unnest(plain) ORDER BY 1),
       gpu_sort(compressed, true) = ARRAY(SELECT unnest(compressed) ORDER BY 1 DESC),
       gpu_argsort(compressed) = ARRAY(SELECT o::int FROM unnest(compressed) WITH ORDINALITY u(x, o) ORDER BY x, o)
FROM toasted;
DROP TABLE toasted;

-- in an index expression, in a view, in a prepared statement: the function is immutable
PREPARE sorted(int[]) AS SELECT gpu_sort($1, true);
EXECUTE sorted('{1,3,2}');
EXECUTE sorted('{}');
DEALLOCATE sorted;
CREATE TABLE indexed (a int[]);
CREATE INDEX ON indexed (gpu_sort(a));
INSERT INTO indexed VALUES ('{2,1}'), ('{1,2}'), ('{3}');
SELECT a FROM indexed WHERE gpu_sort(a) = '{1,2}' ORDER BY a;
DROP TABLE indexed;

-- larger arrays, compared with core
SELECT setseed(0.25);
-- without a device the first sort that wants one warns
SET client_min_messages = error;
SELECT gpu_sort(a) = b AND gpu_sort(a, true) = c AND gpu_argsort(a) = d
FROM (SELECT array_agg(x ORDER BY o) a, array_agg(x ORDER BY x) b, array_agg(x ORDER BY x DESC) c,
             array_agg(o ORDER BY x, o) d
      FROM (SELECT (random() * 1000000)::int x, i o FROM generate_series(1, 150000) i) s) t;
RESET client_min_messages;

-- every object of the extension has a comment, except a view's row type, which is a member of the extension from version 17 on
SELECT pg_describe_object(classid, objid, 0)
FROM pg_depend d
WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
  AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'gpusort')
  AND classid <> 'pg_type'::regclass
  AND NOT EXISTS (SELECT FROM pg_description c WHERE c.classoid = d.classid AND c.objoid = d.objid);
