-- pg_stat_kcache has the times and page faults of a statement that sorts.

SELECT pg_stat_kcache_reset(), pg_stat_statements_reset() \g /dev/null
SELECT id, t, pad FROM items AS three ORDER BY t \g /dev/null
\echo == pg_stat_kcache
SELECT count(*), bool_and(exec_user_time + exec_system_time > 0) AS time, bool_or(exec_minflts > 0) AS faults
  FROM pg_stat_kcache_detail WHERE query LIKE 'SELECT id, % FROM items AS three%' AND datname = current_database();
