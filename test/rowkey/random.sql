-- Row keys of random values have the order of the types' comparators.  :module is the
-- module of test/rowkey.  The test runs for about :seconds in all.  Each round makes 100
-- rows from a seed, which is :seed in the first round and grows by one.  A failure shows
-- its seed; to repeat it, set :seed to it and :seconds to 0.
\ir include/setup.psql
\if :{?seed}
\else
SELECT extract(epoch FROM now())::bigint AS seed \gset
\endif
\if :{?seconds}
\else
\set seconds 0
\endif
CREATE FUNCTION pg_temp.rowkey_random(kind text, seed bigint, rows integer) RETURNS text
	LANGUAGE c STRICT AS :'module', 'rowkey_random';
CREATE FUNCTION pg_temp.rounds(kind text, seed bigint, seconds double precision, OUT wrong text, OUT rounds bigint)
LANGUAGE plpgsql AS $$
DECLARE
	until timestamptz := clock_timestamp() + seconds * interval '1 second';
BEGIN
	rounds := 0;
	LOOP
		wrong := format('seed %s: ', seed + rounds) || pg_temp.rowkey_random(kind, seed + rounds, 100);
		rounds := rounds + 1;
		EXIT WHEN wrong IS NOT NULL OR clock_timestamp() >= until;
	END LOOP;
END $$;

SELECT plan(12);
SELECT is(wrong, NULL, format('%s: %s rounds from seed %s on', kind, rounds, :seed))
FROM unnest(ARRAY['text', 'bpchar', 'name', 'bytea', 'numeric', 'int8', 'float8', 'interval', 'timetz', 'uuid', 'inet', 'lists']) AS kind,
	 LATERAL pg_temp.rounds(kind, :seed, :seconds * CASE kind WHEN 'lists' THEN 0.4 ELSE 0.03 END);
SELECT * FROM finish();
