/* sql/gpusort--0.2.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION gpusort" to load this file. \quit

--
-- Sorting arrays
--

CREATE FUNCTION gpu_sort("array" anyarray)
RETURNS anyarray
AS 'MODULE_PATHNAME', 'gpu_sort'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 1000;

CREATE FUNCTION gpu_sort("array" anyarray, descending boolean)
RETURNS anyarray
AS 'MODULE_PATHNAME', 'gpu_sort'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 1000;

CREATE FUNCTION gpu_sort("array" anyarray, descending boolean, nulls_first boolean)
RETURNS anyarray
AS 'MODULE_PATHNAME', 'gpu_sort'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 1000;

COMMENT ON FUNCTION gpu_sort(anyarray) IS
'sorts the elements of an array, ascending, NULLs last';
COMMENT ON FUNCTION gpu_sort(anyarray, boolean) IS
'sorts the elements of an array, NULLs last if ascending, first if descending';
COMMENT ON FUNCTION gpu_sort(anyarray, boolean, boolean) IS
'sorts the elements of an array, ascending or descending, NULLs first or last';

CREATE FUNCTION gpu_argsort("array" anyarray)
RETURNS integer[]
AS 'MODULE_PATHNAME', 'gpu_argsort'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 1000;

CREATE FUNCTION gpu_argsort("array" anyarray, descending boolean)
RETURNS integer[]
AS 'MODULE_PATHNAME', 'gpu_argsort'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 1000;

CREATE FUNCTION gpu_argsort("array" anyarray, descending boolean, nulls_first boolean)
RETURNS integer[]
AS 'MODULE_PATHNAME', 'gpu_argsort'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 1000;

COMMENT ON FUNCTION gpu_argsort(anyarray) IS
'positions (from 1) of the elements in ascending order, NULLs last; equal elements keep their order';
COMMENT ON FUNCTION gpu_argsort(anyarray, boolean) IS
'positions (from 1) of the elements in sorted order, NULLs last if ascending, first if descending; equal elements keep their order';
COMMENT ON FUNCTION gpu_argsort(anyarray, boolean, boolean) IS
'positions (from 1) of the elements in sorted order, ascending or descending, NULLs first or last; equal elements keep their order';

--
-- Sorting columns
--

CREATE FUNCTION gpu_sort_agg_transfn(internal, anynonarray)
RETURNS internal
AS 'MODULE_PATHNAME'
LANGUAGE C IMMUTABLE PARALLEL SAFE;

CREATE FUNCTION gpu_sort_agg_finalfn(internal, anynonarray)
RETURNS anyarray
AS 'MODULE_PATHNAME'
LANGUAGE C IMMUTABLE PARALLEL SAFE;

CREATE AGGREGATE gpu_sort_agg(anynonarray)
(
  SFUNC = gpu_sort_agg_transfn,
  STYPE = internal,
  SSPACE = 128,
  FINALFUNC = gpu_sort_agg_finalfn,
  FINALFUNC_EXTRA,
  FINALFUNC_MODIFY = READ_ONLY,
  PARALLEL = SAFE
);

COMMENT ON FUNCTION gpu_sort_agg_transfn(internal, anynonarray) IS
'transition function of gpu_sort_agg()';
COMMENT ON FUNCTION gpu_sort_agg_finalfn(internal, anynonarray) IS
'final function of gpu_sort_agg()';
COMMENT ON AGGREGATE gpu_sort_agg(anynonarray) IS
'values as an array in ascending order, NULLs last, like array_agg(value ORDER BY value)';

--
-- Inspection
--

CREATE FUNCTION gpusort_engine_list(
  OUT engine text,
  OUT available boolean,
  OUT detail text,
  OUT device text,
  OUT device_memory bigint,
  OUT driver text,
  OUT runtime text,
  OUT mapped_bytes bigint,
  OUT service_pid integer)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED ROWS 2;

COMMENT ON FUNCTION gpusort_engine_list() IS
'the rows of gpusort_status(), without the settings that load the library';

-- A setting of a database or a role hides the server's from its sessions, and the server's is
-- hidden from users who may not read it.
CREATE FUNCTION gpusort_status(
  OUT engine text,
  OUT available boolean,
  OUT detail text,
  OUT device text,
  OUT device_memory bigint,
  OUT driver text,
  OUT runtime text,
  OUT mapped_bytes bigint,
  OUT service_pid integer,
  OUT preloaded_by text)
RETURNS SETOF record
LANGUAGE SQL VOLATILE STRICT PARALLEL RESTRICTED ROWS 2
BEGIN ATOMIC
  WITH entries AS (
    SELECT s.name AS place, s.setting AS libraries
    FROM pg_catalog.pg_settings s
    WHERE s.name OPERATOR(pg_catalog.=) ANY (ARRAY['session_preload_libraries', 'shared_preload_libraries'])
      AND s.source OPERATOR(pg_catalog.<>) ALL (ARRAY['global', 'database', 'user', 'database user'])
    UNION ALL
    SELECT 'session_preload_libraries'
        OPERATOR(pg_catalog.||) coalesce(' of role ' OPERATOR(pg_catalog.||) pg_catalog.quote_ident(r.rolname), '')
        OPERATOR(pg_catalog.||) coalesce(' of database ' OPERATOR(pg_catalog.||) pg_catalog.quote_ident(d.datname), '')
        OPERATOR(pg_catalog.||) CASE WHEN r.oid IS NULL AND d.oid IS NULL THEN ' of all roles' ELSE '' END,
      pg_catalog.substr(entry, 27)
    FROM pg_catalog.pg_db_role_setting t
      CROSS JOIN LATERAL pg_catalog.unnest(t.setconfig) AS entry
      LEFT JOIN pg_catalog.pg_roles r ON r.oid OPERATOR(pg_catalog.=) t.setrole
      LEFT JOIN pg_catalog.pg_database d ON d.oid OPERATOR(pg_catalog.=) t.setdatabase
    WHERE pg_catalog.starts_with(entry, 'session_preload_libraries=')),
  preloaded AS (
    SELECT pg_catalog.string_agg(entries.place, ', ') AS places
    FROM entries
    WHERE ARRAY['gpusort', 'gpusort.so', 'gpusort.dylib'] OPERATOR(pg_catalog.&&) ARRAY(
      SELECT pg_catalog.reverse(pg_catalog.split_part(pg_catalog.reverse(name), '/', 1))
      FROM pg_catalog.string_to_table(pg_catalog.translate(entries.libraries, E' \t\n\r\f\v"', ''), ',') AS name))
  SELECT e.engine, e.available, e.detail, e.device, e.device_memory, e.driver, e.runtime, e.mapped_bytes,
    e.service_pid, preloaded.places
  FROM gpusort_engine_list() e, preloaded;
END;

COMMENT ON FUNCTION gpusort_status() IS
'engines, whether each is available or the reason why not, its last failure, its device, the bytes of shared memory that the GPU service has mapped, and the settings of the server, of databases and roles that load the library; starts the GPU service if it is not running, as a sort does';

CREATE FUNCTION gpusort_last_sort(
  OUT rows bigint,
  OUT key_type text,
  OUT engine text,
  OUT algorithm text,
  OUT gather_ms double precision,
  OUT gather_bytes bigint,
  OUT copy_in_ms double precision,
  OUT copy_in_bytes bigint,
  OUT kernels_ms double precision,
  OUT copy_out_ms double precision,
  OUT copy_out_bytes bigint,
  OUT return_ms double precision,
  OUT pinned boolean,
  OUT blocks integer,
  OUT threads integer,
  OUT bins integer,
  OUT total_ms double precision,
  OUT reason text)
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION gpusort_last_sort() IS
'last sort or index build of this session: engine, sizes, and the time of each stage; NULL before the first sort, and if the sort ran as another user, as in a SECURITY DEFINER function, unless the caller has the privileges of that user or of pg_read_all_stats';

CREATE FUNCTION gpusort_activity_list(
  OUT pid integer,
  OUT leader_pid integer,
  OUT sort_number bigint,
  OUT phase text,
  OUT rows bigint,
  OUT bytes bigint,
  OUT engine text,
  OUT started timestamp with time zone,
  OUT estimated_rows bigint,
  OUT percent double precision)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED ROWS 10;

COMMENT ON FUNCTION gpusort_activity_list() IS
'a row for each process that takes part in a sort: leader_pid is the process that began the sort, NULL for this process itself, and sort_number tells its sorts apart, and percent is its part of the estimated rows, while it gathers; the view gpusort_activity has a row for each sort';

-- While the leader of a parallel query gathers or waits, its workers gather too.  They
-- are gone when it sorts.
CREATE VIEW gpusort_activity AS
  SELECT coalesce(a.leader_pid, a.pid) AS pid,
    coalesce(pg_catalog.min(CASE WHEN a.leader_pid IS NULL THEN a.phase END), pg_catalog.min(a.phase)) AS phase,
    pg_catalog.sum(a.rows)::pg_catalog.int8 AS rows,
    pg_catalog.sum(a.bytes)::pg_catalog.int8 AS bytes,
    pg_catalog.max(a.engine) AS engine,
    pg_catalog.min(a.started) AS started,
    CASE WHEN pg_catalog.min(a.phase) IS NOT NULL THEN pg_catalog.count(a.pid)::pg_catalog.int4 END AS participants,
    pg_catalog.max(a.estimated_rows) AS estimated_rows,
    CASE WHEN pg_catalog.sum(a.percent) IS NOT NULL THEN least(pg_catalog.sum(a.percent), 100::pg_catalog.float8)::pg_catalog.int4 END AS percent
  FROM gpusort_activity_list() a
  GROUP BY coalesce(a.leader_pid, a.pid), a.sort_number;

COMMENT ON VIEW gpusort_activity IS
'sorts of all sessions that have been running for at least one second: process (of a parallel query, the leader), phase (gathering, sorting, merging or returning), rows and bytes of this phase so far (of all participants together), engine, start time, the number of processes that take part, the planner''s estimate of the rows, and the percentage of it that is gathered; for sorts of other users the processes only, unless the caller has the privileges of pg_read_all_stats';

-- gpusort_activity_list() hides the details of other users' sorts.
GRANT SELECT ON gpusort_activity TO PUBLIC;

CREATE FUNCTION gpusort_stat_list(
  OUT kind text,
  OUT engine text,
  OUT count bigint,
  OUT checked bigint,
  OUT failures bigint,
  OUT rows bigint,
  OUT bytes bigint,
  OUT disk_bytes bigint,
  OUT runs bigint,
  OUT workers bigint,
  OUT gather_ms double precision,
  OUT copy_in_ms double precision,
  OUT sort_ms double precision,
  OUT arrange_ms double precision,
  OUT copy_out_ms double precision,
  OUT wait_ms double precision,
  OUT stats_reset timestamp with time zone)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE ROWS 9;

COMMENT ON FUNCTION gpusort_stat_list() IS
'the rows of the view gpusort_stat';

CREATE VIEW gpusort_stat AS
  SELECT s.kind, s.engine, s.count, s.checked, s.failures, s.rows, s.bytes, s.disk_bytes, s.runs,
    s.workers, s.gather_ms, s.copy_in_ms, s.sort_ms, s.arrange_ms, s.copy_out_ms, s.wait_ms, s.stats_reset
  FROM gpusort_stat_list() s;

COMMENT ON VIEW gpusort_stat IS
'sums over all users since stats_reset, for each kind of work (sort: GpuSort, index: builds of btree indexes, function: gpu_sort() and others, aggregate: GpuSort Aggregate) and each engine that did it: how often, how many results gpusort.verify has checked, and how many it has found wrong, rows, bytes of memory at the peak, bytes and sorted runs in temporary files, parallel workers that gathered rows, and the milliseconds of each stage; NULL where it is not known';

CREATE FUNCTION gpusort_stat_reason_list(
  OUT kind text,
  OUT engine text,
  OUT reason text,
  OUT count bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE ROWS 10;

COMMENT ON FUNCTION gpusort_stat_reason_list() IS
'the rows of the view gpusort_stat_reasons';

CREATE VIEW gpusort_stat_reasons AS
  SELECT r.kind, r.engine, r.reason, r.count
  FROM gpusort_stat_reason_list() r;

COMMENT ON VIEW gpusort_stat_reasons IS
'why core, or the CPU in place of the GPU, did the work, and how often since stats_reset of gpusort_stat, for each kind of work (plan: sorts that were left to core when they were planned) and the engine that did it';

-- The counters are sums, and the reasons name nothing that users have made.
GRANT SELECT ON gpusort_stat, gpusort_stat_reasons TO PUBLIC;

CREATE FUNCTION gpusort_stat_reset()
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION gpusort_stat_reset() IS
'sets all counters of gpusort_stat and gpusort_stat_reasons to zero';

REVOKE EXECUTE ON FUNCTION gpusort_stat_reset() FROM PUBLIC;
