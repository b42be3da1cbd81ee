--
-- Privileges: a sort shows no role anything that it may not read
--
LOAD 'gpusort';
SET gpusort.force = on;
SET work_mem = '64MB';
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_gpusort_owner, regress_gpusort_alice, regress_gpusort_bob, regress_gpusort_stats;
RESET client_min_messages;
CREATE ROLE regress_gpusort_owner;
CREATE ROLE regress_gpusort_alice;
CREATE ROLE regress_gpusort_bob;
CREATE ROLE regress_gpusort_stats IN ROLE pg_read_all_stats;
CREATE SCHEMA payroll AUTHORIZATION regress_gpusort_owner;
GRANT USAGE ON SCHEMA payroll TO PUBLIC;

SET ROLE regress_gpusort_owner;
CREATE TABLE payroll.pay (id int, boss name, name text COLLATE "C", pay int);
INSERT INTO payroll.pay
SELECT i, CASE WHEN i % 3 = 0 THEN 'regress_gpusort_alice' ELSE 'regress_gpusort_owner' END,
       CASE WHEN i % 3 = 0 THEN 'hers' ELSE 'SECRET' END || i, i * 7919 % 1000
FROM generate_series(1, 12) AS i;
ALTER TABLE payroll.pay ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON payroll.pay USING (boss = current_user);
GRANT SELECT ON payroll.pay TO regress_gpusort_alice;
GRANT SELECT (id, name) ON payroll.pay TO regress_gpusort_bob;

-- functions that print their arguments, and are cheap enough to be evaluated first
CREATE FUNCTION payroll.leak(v text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS $$
BEGIN
    RAISE NOTICE 'leak: %', v;
    RETURN true;
END
$$;
CREATE FUNCTION payroll.leak_key(v int) RETURNS int LANGUAGE plpgsql COST 0.0000001 AS $$
BEGIN
    RAISE NOTICE 'leak_key: %', v;
    RETURN v;
END
$$;
-- the number of nodes of a kind in a query's plan
CREATE FUNCTION payroll.nodes(query text, node text DEFAULT 'GpuSort') RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    line text;
    n integer := 0;
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
        n := n + (position(node IN line) > 0)::int;
    END LOOP;
    RETURN n;
END
$$;
RESET ROLE;

--
-- Row-level security: alice may see a third of the rows
--
SET ROLE regress_gpusort_alice;
SELECT payroll.nodes('SELECT id, name, pay FROM payroll.pay ORDER BY pay');
SELECT id, name, pay FROM payroll.pay ORDER BY pay;
SELECT pay FROM payroll.pay ORDER BY pay DESC;
SELECT payroll.nodes('SELECT name FROM payroll.pay WHERE payroll.leak(name) ORDER BY pay');
SELECT name FROM payroll.pay WHERE payroll.leak(name) ORDER BY pay;
SELECT payroll.nodes('SELECT name FROM payroll.pay ORDER BY payroll.leak_key(pay)');
SELECT name FROM payroll.pay ORDER BY payroll.leak_key(pay);
SELECT DISTINCT ON (left(name, 4)) name FROM payroll.pay WHERE payroll.leak(name) ORDER BY left(name, 4), pay;
SELECT name, row_number() OVER (ORDER BY pay DESC) FROM payroll.pay WHERE payroll.leak(name);

-- a merge join sorts both sides
SET enable_hashjoin = off;
SET enable_nestloop = off;
SELECT payroll.nodes('SELECT a.name, b.id FROM payroll.pay a JOIN payroll.pay b USING (pay)');
SELECT a.name, b.id FROM payroll.pay a JOIN payroll.pay b USING (pay) WHERE payroll.leak(b.name);
RESET enable_hashjoin;
RESET enable_nestloop;

-- in parallel workers, with a scroll cursor, and with temporary files
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SELECT payroll.nodes('SELECT id, name, pay FROM payroll.pay ORDER BY pay') AS gpusorts,
       payroll.nodes('SELECT id, name, pay FROM payroll.pay ORDER BY pay', 'Gather') AS gathers;
SELECT id, name, pay FROM payroll.pay ORDER BY pay;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT name FROM payroll.pay WHERE payroll.leak(name) ORDER BY pay;
FETCH ALL FROM c;
FETCH BACKWARD ALL FROM c;
COMMIT;
SET gpusort.memory_limit = '64kB';
SELECT count(*), count(DISTINCT name), bool_and(name ~ '^hers') FROM (
    SELECT name, pay FROM payroll.pay, generate_series(1, 4000) ORDER BY pay, name OFFSET 0) AS s;
RESET gpusort.memory_limit;

-- arrays and columns
SELECT gpu_sort_agg(pay), gpu_sort(array_agg(pay ORDER BY id)), gpu_argsort(array_agg(pay ORDER BY id)) FROM payroll.pay;
SELECT gpu_sort_agg(pay), gpu_argsort(array_agg(pay), true) FROM payroll.pay WHERE payroll.leak(name);

-- as in core, row_security = off is an error
SET row_security = off;
SELECT id FROM payroll.pay ORDER BY pay;
SELECT gpu_sort_agg(pay) FROM payroll.pay;
RESET row_security;
RESET ROLE;

-- a cached plan is not used for another role
SET plan_cache_mode = force_generic_plan;
PREPARE by_pay AS SELECT name FROM payroll.pay ORDER BY pay;
PREPARE sorted AS SELECT gpu_sort_agg(pay) FROM payroll.pay;
EXECUTE by_pay;
EXECUTE sorted;
SET ROLE regress_gpusort_alice;
EXECUTE by_pay;
EXECUTE sorted;
SET ROLE regress_gpusort_owner;
EXECUTE sorted;
RESET ROLE;
DEALLOCATE ALL;
RESET plan_cache_mode;

--
-- Columns: bob may read id and name, but may not order by pay
--
ALTER TABLE payroll.pay DISABLE ROW LEVEL SECURITY;
SET ROLE regress_gpusort_bob;
\set VERBOSITY terse
SELECT payroll.nodes('SELECT id FROM payroll.pay ORDER BY name DESC');
SELECT string_agg(id::text, ' ') FROM (SELECT id FROM payroll.pay ORDER BY name DESC) AS s;
SELECT gpu_sort_agg(id), gpu_argsort(array_agg(id)) FROM payroll.pay;
SELECT id FROM payroll.pay ORDER BY pay;
SELECT id FROM payroll.pay ORDER BY name, pay;
SELECT id FROM payroll.pay p ORDER BY p;
SELECT id FROM payroll.pay ORDER BY payroll.leak_key(pay);
SELECT row_number() OVER (ORDER BY pay) FROM payroll.pay;
SELECT DISTINCT pay FROM payroll.pay;
SELECT gpu_sort_agg(pay) FROM payroll.pay;
SELECT gpu_argsort(array_agg(pay)) FROM payroll.pay;
SELECT gpu_sort(ARRAY(SELECT pay FROM payroll.pay));
EXPLAIN SELECT id FROM payroll.pay ORDER BY pay;
RESET ROLE;
REVOKE ALL ON payroll.pay FROM regress_gpusort_bob;

--
-- Views: bob's functions do not see rows that a security barrier hides
--
SET ROLE regress_gpusort_owner;
CREATE VIEW payroll.barrier WITH (security_barrier) AS
    SELECT id, name, pay FROM payroll.pay WHERE boss = 'regress_gpusort_alice';
CREATE VIEW payroll.best WITH (security_barrier) AS
    SELECT DISTINCT ON (boss) boss, name, pay FROM payroll.pay ORDER BY boss, pay DESC;
CREATE VIEW payroll.plain AS
    SELECT id, name, pay FROM payroll.pay WHERE boss = 'regress_gpusort_alice' AND length(name) > 0;
CREATE VIEW payroll.invoker WITH (security_invoker) AS SELECT id, name, pay FROM payroll.pay;
GRANT SELECT ON payroll.barrier, payroll.best, payroll.plain, payroll.invoker TO regress_gpusort_bob;
SET ROLE regress_gpusort_bob;
SELECT payroll.nodes('SELECT name FROM payroll.barrier WHERE payroll.leak(name) ORDER BY pay');
SELECT name FROM payroll.barrier WHERE payroll.leak(name) ORDER BY pay;
SELECT name FROM payroll.barrier ORDER BY payroll.leak_key(pay) DESC;
SELECT gpu_sort_agg(pay), gpu_argsort(array_agg(pay)) FROM payroll.barrier WHERE payroll.leak(name);
-- the sort belongs to the view, and the filter stays above it
SELECT payroll.nodes('SELECT name FROM payroll.best WHERE payroll.leak(name)');
SELECT name FROM payroll.best WHERE payroll.leak(name);
-- this view has no barrier, so the function prints the rows
SELECT count(*) FROM (SELECT name FROM payroll.plain WHERE payroll.leak(name) ORDER BY pay OFFSET 0) AS s;
SELECT id FROM payroll.invoker ORDER BY pay;
SELECT id FROM payroll.pay ORDER BY id;
RESET ROLE;

--
-- SECURITY DEFINER: the sort runs as the owner, and only the owner may see its report
--
SET ROLE regress_gpusort_owner;
CREATE FUNCTION payroll.ranking() RETURNS SETOF int LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS 'SELECT id FROM payroll.pay ORDER BY pay DESC';
CREATE FUNCTION payroll.last_sort() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS 'BEGIN RETURN rows FROM gpusort_last_sort(); END';
SET ROLE regress_gpusort_bob;
SELECT string_agg(id::text, ' ') FROM payroll.ranking() AS r (id);
SELECT rows, engine IS NULL AS no_engine, total_ms IS NULL AS no_time FROM gpusort_last_sort();
SELECT payroll.last_sort();
SET ROLE regress_gpusort_alice;
SELECT rows FROM gpusort_last_sort();
SET ROLE regress_gpusort_stats;
SELECT rows FROM gpusort_last_sort();
RESET ROLE;
SELECT rows FROM gpusort_last_sort();
SET ROLE regress_gpusort_bob;
SELECT gpu_sort(ARRAY[3, 1, 2]);
SELECT rows, engine IS NULL AS no_engine, total_ms IS NULL AS no_time FROM gpusort_last_sort();
SET ROLE regress_gpusort_alice;
SELECT rows FROM gpusort_last_sort();
RESET ROLE;
GRANT regress_gpusort_bob TO regress_gpusort_alice;
SET ROLE regress_gpusort_alice;
SELECT rows FROM gpusort_last_sort();
RESET ROLE;

--
-- The extension's own objects
--
-- PUBLIC may execute every function except the reset; no function is leakproof, and none is SECURITY DEFINER
CREATE TEMP VIEW own AS
SELECT p.oid::regprocedure AS function, has_function_privilege('regress_gpusort_bob', p.oid, 'EXECUTE') AS public, proleakproof, prosecdef
FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass
  AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'gpusort');
SELECT function FROM own WHERE NOT public;
SELECT count(*) > 10 AS some, count(*) FILTER (WHERE proleakproof) AS leakproof, count(*) FILTER (WHERE prosecdef) AS definer FROM own;
SET ROLE regress_gpusort_bob;
SELECT engine FROM gpusort_status() WHERE engine = 'cpu';
SELECT count(*) FROM gpusort_activity;
SELECT sum(count) > 0 AS counted FROM gpusort_stat WHERE kind = 'sort';
SELECT gpusort_stat_reset();
-- the aggregate's functions cannot be used with another state
CREATE AGGREGATE pg_temp.forged (anynonarray) (SFUNC = gpu_sort_agg_transfn, STYPE = internal, FINALFUNC = gpu_sort_agg_finalfn, FINALFUNC_EXTRA);

--
-- Settings: users may not change settings that all users share
--
SET gpusort.device_memory_limit = '64MB';
SET gpusort.service_idle_timeout = 0;
ALTER ROLE regress_gpusort_bob SET gpusort.device_memory_limit = '64MB';
SELECT set_config('gpusort.device_memory_limit', '16GB', true);
-- the CPU engine gets no threads if a query may have no parallel workers
SET max_parallel_workers_per_gather = 8;
SET max_parallel_workers = 0;
SET gpusort.engine = 'cpu';
SELECT cardinality(gpu_sort_agg(i)) FROM generate_series(1, 300000) AS i;
SELECT threads FROM gpusort_last_sort();
RESET gpusort.engine;
RESET max_parallel_workers;
RESET max_parallel_workers_per_gather;
RESET ROLE;
\set VERBOSITY default

SET client_min_messages = warning;
DROP SCHEMA payroll CASCADE;
DROP ROLE regress_gpusort_owner, regress_gpusort_alice, regress_gpusort_bob, regress_gpusort_stats;
