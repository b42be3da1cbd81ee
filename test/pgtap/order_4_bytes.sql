-- gpusort has core's order for types with keys of 4 bytes.
\ir include/check.psql
BEGIN;
SELECT * FROM no_plan();
SELECT * FROM pg_temp.check_types('int2', 'int4', 'float4', 'date');
SELECT * FROM finish();
ROLLBACK;
