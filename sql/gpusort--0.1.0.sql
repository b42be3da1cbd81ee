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
'engines, whether each is available or the reason why not, and the shared memory that holds the keys of all users; starts the GPU service if it is not running, as a sort does';

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
'last sort of this session: engine, sizes, and the time of each stage; NULL before the first sort, and if the sort ran as another user, as in a SECURITY DEFINER function, unless the caller has the privileges of that user or of pg_read_all_stats';

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
'rows of the view gpusort_activity';

CREATE VIEW gpusort_activity AS
  SELECT a.pid, a.phase, a.rows, a.bytes, a.engine, a.started
  FROM gpusort_activity_list() a;

COMMENT ON VIEW gpusort_activity IS
'sorts of all sessions that have been running for at least one second: process, phase (gathering, sorting, merging or returning), rows and bytes of this phase so far, engine, and start time; for sorts of other users the process only, unless the caller has the privileges of pg_read_all_stats';

-- gpusort_activity_list() hides the details of other users' sorts.
GRANT SELECT ON gpusort_activity TO PUBLIC;

CREATE FUNCTION gpusort_counters(
  OUT sorts bigint,
  OUT core_sorts bigint,
  OUT rows bigint)
RETURNS record
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION gpusort_counters() IS
'counts since the server started, of all users together: sorts that GpuSort nodes did, sorts that they left to core when they ran, and rows that GpuSort nodes sorted';
