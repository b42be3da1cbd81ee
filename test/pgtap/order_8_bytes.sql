-- gpusort has core's order for types with keys of 8 bytes.
\ir include/check.psql
BEGIN;
SELECT * FROM no_plan();
SELECT * FROM pg_temp.check_types('int8', 'float8', 'timestamp', 'timestamptz');
SELECT * FROM finish();
ROLLBACK;
