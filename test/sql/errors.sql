--
-- Errors: refused calls and their SQLSTATEs, and sorts after them
--
SELECT gpu_sort(ARRAY['b', 'a']);
SELECT gpu_sort(ARRAY[1.5, 2]::numeric[]);
SELECT gpu_argsort(ARRAY[true, false]);
SELECT gpu_sort_agg(x::text::json) FROM generate_series(1, 3) x;
SELECT gpu_sort(ARRAY[[2, 1], [4, 3]]);
SELECT gpu_argsort(ARRAY[[2, 1], [4, 3]]);
SELECT gpu_sort('{}'::text[]);

DO $$
DECLARE
  query text;
BEGIN
  FOREACH query IN ARRAY ARRAY[
    $q$SELECT gpu_sort(ARRAY['a'])$q$,
    $q$SELECT gpu_sort_agg(x) FROM (VALUES ('1'::json)) v(x)$q$,
    $q$SELECT gpu_sort(ARRAY[[1], [2]])$q$,
    $q$SELECT gpu_sort(1)$q$,
    $q$SELECT gpu_sort_agg(ARRAY[1])$q$,
    $q$SELECT gpu_sort()$q$
  ] LOOP
    BEGIN
      EXECUTE query;
      RAISE NOTICE '%: no error', query;
    EXCEPTION WHEN OTHERS THEN
      RAISE NOTICE '%: %', query, SQLSTATE;
    END;
  END LOOP;
END $$;

-- gpusort_last_sort() is empty in a session without a sort, and unchanged after an error
SELECT * FROM gpusort_last_sort() WHERE rows IS NOT NULL;
SET gpusort.engine = 'cpu';
SELECT gpu_sort(ARRAY[2, 1]);
SELECT gpu_sort(ARRAY['a']);
SELECT rows, key_type FROM gpusort_last_sort();
