-- The tables that the clients of test/load.sh sort, and the functions that sort them,
-- check the result and raise an error if it is wrong.  load.sorts gets a row per sort.

CREATE EXTENSION gpusort;
CREATE SCHEMA load;

CREATE TABLE load.t AS
SELECT g AS id, (g * 7919::bigint % 97)::smallint AS few, hashint8extended(g, 0) AS k, repeat(md5(g::text), 2) AS pad
FROM generate_series(1, 300000) AS g;
VACUUM ANALYZE load.t;

-- an array of keys of 17 MB, and the same array sorted by core
CREATE TABLE load.large (a bigint[], sorted bigint[]);
ALTER TABLE load.large ALTER a SET STORAGE EXTERNAL, ALTER sorted SET STORAGE EXTERNAL;
SET gpusort.enabled = off;
INSERT INTO load.large
SELECT array_agg(v), array_agg(v ORDER BY v) FROM (SELECT hashint8extended(g, 1) AS v FROM generate_series(1, 2200000) AS g) AS s;

-- ms is the time from the call or the start of the query to its result
CREATE UNLOGGED TABLE load.sorts (client integer, kind text, rows bigint, engine text, reason text, ms double precision);

CREATE FUNCTION load.note(client integer, kind text, began timestamptz, ended timestamptz) RETURNS void LANGUAGE sql AS $$
	INSERT INTO load.sorts
	SELECT client, kind, l.rows, l.engine, l.reason, extract(epoch FROM ended - began) * 1000 FROM gpusort_last_sort() AS l
$$;

-- sorts n numbers, and compares the result with core's
CREATE FUNCTION load.sort_array(client integer, n integer, seed bigint) RETURNS void LANGUAGE plpgsql SET gpusort.enabled = off AS $$
DECLARE
	a bigint[] := ARRAY(SELECT hashint8extended(g, seed) FROM generate_series(1, n) AS g);
	sorted bigint[];
	began timestamptz := clock_timestamp();
BEGIN
	sorted := gpu_sort(a);
	PERFORM load.note(client, 'array', began, clock_timestamp());
	IF sorted IS DISTINCT FROM (SELECT array_agg(v ORDER BY v) FROM unnest(a) AS v) THEN
		RAISE 'wrong order of an array of % numbers of seed %', n, seed;
	END IF;
END
$$;

-- sorts the positions of n numbers, most of which are equal to others
CREATE FUNCTION load.argsort(client integer, n integer, seed bigint) RETURNS void LANGUAGE plpgsql SET gpusort.enabled = off AS $$
DECLARE
	a bigint[] := ARRAY(SELECT hashint8extended(g, seed) % 1000 FROM generate_series(1, n) AS g);
	positions integer[];
	began timestamptz := clock_timestamp();
BEGIN
	positions := gpu_argsort(a);
	PERFORM load.note(client, 'argsort', began, clock_timestamp());
	IF positions IS DISTINCT FROM (SELECT array_agg(i::integer ORDER BY v, i) FROM unnest(a) WITH ORDINALITY AS u (v, i)) THEN
		RAISE 'wrong positions of % numbers of seed %', n, seed;
	END IF;
END
$$;

CREATE FUNCTION load.sort_large(client integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	l load.large;
	result bigint[];
	began timestamptz;
BEGIN
	SELECT * INTO l FROM load.large;
	began := clock_timestamp();
	result := gpu_sort(l.a);
	PERFORM load.note(client, 'large', began, clock_timestamp());
	IF result IS DISTINCT FROM l.sorted THEN
		RAISE 'wrong order of an array of % numbers', cardinality(l.a);
	END IF;
END
$$;

-- sorts rows by two columns; the sort spills if gpusort.memory_limit is small, and the
-- device returns many rows in order
CREATE FUNCTION load.order_by(client integer, kind text, n integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	began timestamptz := clock_timestamp();
	r record;
BEGIN
	SELECT count(*) AS rows, sum(length(pad)) AS bytes, sum(id::bigint) AS ids,
	       count(*) FILTER (WHERE few < few_before OR (few = few_before AND k < k_before)) AS descents
	INTO r
	FROM (SELECT id, few, k, pad, lag(few) OVER () AS few_before, lag(k) OVER () AS k_before
	      FROM (SELECT id, few, k, pad FROM load.t WHERE id <= n ORDER BY few, k OFFSET 0) AS s) AS s;
	PERFORM load.note(client, kind, began, clock_timestamp());
	IF r IS DISTINCT FROM ROW(n::bigint, 64 * n::bigint, n * (n + 1::numeric) / 2, 0::bigint) THEN
		RAISE 'wrong result of ORDER BY over % rows: %', n, r;
	END IF;
END
$$;

-- fetches only the first rows of a result
CREATE FUNCTION load.glance(client integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	began timestamptz := clock_timestamp();
	c CURSOR FOR SELECT id, k FROM load.t WHERE id <= 100000 ORDER BY k, id;
	last bigint;
	r record;
BEGIN
	OPEN c;
	FOR i IN 1 .. 10 LOOP
		FETCH c INTO r;
		IF NOT FOUND OR r.k < last THEN
			RAISE 'wrong order of the first % rows', i;
		END IF;
		last := r.k;
	END LOOP;
	CLOSE c;
	PERFORM load.note(client, 'cursor', began, clock_timestamp());
	IF (SELECT count(*) FROM load.t AS t WHERE t.id <= 100000 AND t.k <= last) <> 10 THEN
		RAISE 'not the first 10 rows';
	END IF;
END
$$;

-- does each kind of sort once
CREATE FUNCTION load.round(client integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM load.sort_array(client, 2000, 1), load.argsort(client, 20000, 1), load.sort_large(client),
		load.order_by(client, 'order by', 50000), load.order_by(client, 'travel', 300000), load.glance(client);
	PERFORM set_config('gpusort.memory_limit', '1MB', true);
	PERFORM load.order_by(client, 'spill', 50000);
END
$$;
