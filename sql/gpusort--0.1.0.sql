/* sql/gpusort--0.1.0.sql */

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
'sorts the elements of an array, in the direction and with the NULLs where asked';

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
'positions, from 1, of the elements in ascending order, NULLs last; equal elements keep their order';
COMMENT ON FUNCTION gpu_argsort(anyarray, boolean) IS
'positions, from 1, of the elements in order, NULLs last if ascending, first if descending; equal elements keep their order';
COMMENT ON FUNCTION gpu_argsort(anyarray, boolean, boolean) IS
'positions, from 1, of the elements in the order asked for; equal elements keep their order';

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
'gpu_sort_agg(): adds a value';
COMMENT ON FUNCTION gpu_sort_agg_finalfn(internal, anynonarray) IS
'gpu_sort_agg(): sorts the values';
COMMENT ON AGGREGATE gpu_sort_agg(anynonarray) IS
'array of the values in ascending order, NULLs last: array_agg(value ORDER BY value)';

--
-- Inspection
--

CREATE FUNCTION gpusort_status(
  OUT engine text,
  OUT available boolean,
  OUT detail text,
  OUT device text,
  OUT device_memory bigint,
  OUT driver text,
  OUT runtime text,
  OUT pool_bytes bigint,
  OUT pool_used bigint,
  OUT service_pid integer)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED ROWS 2;

COMMENT ON FUNCTION gpusort_status() IS
'the engines, whether each can be used or why not, and the shared memory for the keys of all users together; starts the GPU service if need be, as a sort would';

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
  OUT pieces integer,
  OUT total_ms double precision,
  OUT reason text)
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION gpusort_last_sort() IS
'the last sort of this session: engine, sizes, and where the time went; NULLs before the first, and if it was done as another user, as in a SECURITY DEFINER function, unless the caller has the privileges of that user or of pg_read_all_stats';

CREATE FUNCTION gpusort_activity_list(
  OUT pid integer,
  OUT phase text,
  OUT rows bigint,
  OUT bytes bigint,
  OUT engine text,
  OUT started timestamp with time zone)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED ROWS 10;

COMMENT ON FUNCTION gpusort_activity_list() IS
'what gpusort_activity shows';

CREATE VIEW gpusort_activity AS
  SELECT a.pid, a.phase, a.rows, a.bytes, a.engine, a.started
  FROM gpusort_activity_list() a;

COMMENT ON VIEW gpusort_activity IS
'sorts that have been running for a second or more, in all sessions: process, phase (gathering, sorting, merging or returning), rows and bytes of this phase so far, engine, and start; of other users'' sorts the process only, unless the caller has the privileges of pg_read_all_stats';

-- Details of other users' sorts are left out by the function.
GRANT SELECT ON gpusort_activity TO PUBLIC;

CREATE FUNCTION gpusort_counters(
  OUT sorts bigint,
  OUT core_sorts bigint,
  OUT rows bigint)
RETURNS record
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION gpusort_counters() IS
'since the server started: sorts that GpuSort did in query plans, those it left to core when it ran, and the rows of the former, of all users together';

--
-- Measuring
--

CREATE FUNCTION gpusort_bench(
  rows bigint DEFAULT 10000000,
  key_type regtype DEFAULT 'integer',
  distribution text DEFAULT 'uniform',
  repeats integer DEFAULT 5,
  OUT n bigint,
  OUT engine text,
  OUT algorithm text,
  OUT copy_in_ms double precision,
  OUT sort_ms double precision,
  OUT copy_out_ms double precision,
  OUT total_ms double precision,
  OUT mkeys_per_s double precision,
  OUT speedup double precision,
  OUT verified boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE COST 10000000 ROWS 30;

COMMENT ON FUNCTION gpusort_bench(bigint, regtype, text, integer) IS
'sorts up to so many generated values by every engine and algorithm and returns the median times; speedup is against the CPU engine';

CREATE FUNCTION gpusort_bench_crossover(
  rows bigint DEFAULT 10000000,
  key_type regtype DEFAULT 'integer',
  distribution text DEFAULT 'uniform',
  repeats integer DEFAULT 5)
RETURNS bigint
LANGUAGE SQL VOLATILE STRICT PARALLEL UNSAFE COST 10000000
BEGIN ATOMIC
  -- every name is looked up now, so whoever may create objects in this schema
  -- must find no gap to put a better fitting operator or function in
  WITH gpu AS (
    SELECT b.n, b.speedup
    FROM gpusort_bench($1, $2, $3, $4) b
    WHERE b.engine OPERATOR(pg_catalog.<>) 'cpu'::pg_catalog.text
      AND b.algorithm OPERATOR(pg_catalog.=)
          coalesce(pg_catalog.current_setting('gpusort.algorithm'::pg_catalog.text, true), 'auto'::pg_catalog.text))
  SELECT pg_catalog.min(gpu.n)
  FROM gpu
  WHERE gpu.n OPERATOR(pg_catalog.>)
        coalesce((SELECT pg_catalog.max(slow.n) FROM gpu slow
                  WHERE slow.speedup OPERATOR(pg_catalog.<=) 1::pg_catalog.float8), 0::pg_catalog.int8);
END;

COMMENT ON FUNCTION gpusort_bench_crossover(bigint, regtype, text, integer) IS
'the smallest measured number of rows from which on the GPU is faster than the CPU engine, to set gpusort.min_rows to; NULL if there is none';

-- A call keeps the server's one GPU and several processors busy for seconds,
-- and takes memory for twice its rows.  It tells the administrator what to set,
-- and other users nothing that they need: as with pgstattuple(), let those who
-- may do that be named.
REVOKE EXECUTE ON FUNCTION gpusort_bench(bigint, regtype, text, integer) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION gpusort_bench_crossover(bigint, regtype, text, integer) FROM PUBLIC;
