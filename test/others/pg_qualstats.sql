-- pg_qualstats finds the conditions below a sort, and counts their rows.

\echo == pg_qualstats
SELECT pg_qualstats_reset();
SELECT id FROM items WHERE k < 100 ORDER BY n, id \g /dev/null
SELECT id FROM items WHERE k < 100 AND n > 5 ORDER BY t \g /dev/null
SELECT i.id FROM items AS i JOIN prices AS p ON p.k = i.k WHERE p.price > 3 ORDER BY p.price, i.id \g /dev/null
SELECT k FROM items WHERE t LIKE 'a%' GROUP BY k ORDER BY k LIMIT 5 \g /dev/null
SELECT lrelid::regclass, l.attname, opno::regoperator, r.attname, occurences, execution_count, nbfiltered
  FROM pg_qualstats AS q LEFT JOIN pg_attribute AS l ON l.attrelid = lrelid AND l.attnum = lattnum
  LEFT JOIN pg_attribute AS r ON r.attrelid = rrelid AND r.attnum = rattnum
  WHERE lrelid IN ('items'::regclass, 'prices'::regclass) ORDER BY 1, 2, 3, 5, 6, 7;

\echo == with parallel workers, and below an aggregate
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SELECT pg_qualstats_reset();
SELECT id FROM items WHERE k < 200 ORDER BY n, id \g /dev/null
SELECT k, count(DISTINCT t) FROM items WHERE n > 50 GROUP BY k \g /dev/null
SELECT attname, occurences, execution_count, nbfiltered FROM pg_qualstats JOIN pg_attribute ON attrelid = lrelid AND attnum = lattnum
  WHERE lrelid = 'items'::regclass ORDER BY 1;
