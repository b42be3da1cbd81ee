-- setup.sql - what others.sh puts into each database: tables, and functions for its files.

CREATE TABLE items (id int PRIMARY KEY, k int, t text COLLATE "C", ts timestamptz, n numeric, pad text);
INSERT INTO items SELECT i, abs(hashint4(i) % 500), md5(i::text), '2026-01-01'::timestamptz + abs(hashint4(-i) % 1000000) * interval '1 s',
    CASE WHEN i % 50 > 0 THEN hashint4(i * 7) % 10000 / 100.0 END, repeat(chr(97 + i % 26), 50)
  FROM generate_series(1, 30000) AS i;
CREATE TABLE prices AS SELECT k, (k * 37 % 100)::numeric / 7 AS price FROM generate_series(0, 499, 2) AS k;
CREATE TABLE packed AS SELECT * FROM items;
ALTER TABLE packed ADD PRIMARY KEY (id);
CREATE INDEX packed_k ON packed (k, id);
ALTER TABLE packed CLUSTER ON packed_k;
ANALYZE;

-- Raises an error unless the condition is true.
CREATE FUNCTION must(condition boolean, what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF condition IS NOT TRUE THEN
    RAISE EXCEPTION 'not so: %', what;
  END IF;
END $$;

-- The plan of a query.  Hints at its beginning stay at the beginning.
CREATE FUNCTION plan_of(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  line text;
  lines text[];
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (COSTS OFF, VERBOSE) ' || query LOOP
    lines := lines || line;
  END LOOP;
  RETURN array_to_string(lines, E'\n');
END $$;

-- Does a query sort, by GpuSort where gpusort is on, and by core where it is off?
CREATE FUNCTION sorts(query text) RETURNS boolean LANGUAGE sql AS $$
  SELECT CASE WHEN current_setting('gpusort.enabled')::boolean THEN plan ~ 'Custom Scan \(GpuSort\)'
    ELSE plan ~ '(^|\n *->  )(Incremental )?Sort\n' AND plan !~ 'GpuSort' END
  FROM plan_of(query) AS plan $$;

-- A digest of a query's rows in their order.  Raises an error unless the query sorts as
-- above, and its plan matches a pattern.
CREATE FUNCTION sorted(query text, pattern text DEFAULT '') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  whole text := format('%s SELECT count(*) || %L || md5(string_agg(r::text, %L)) FROM (%s) AS r',
    substring(query FROM '^/\*.*\*/'), ' rows ', ',', query);
  digest text;
BEGIN
  PERFORM must(sorts(whole) AND plan_of(whole) ~ pattern, format(E'sort and %L in the plan of %s\n%s', pattern, query, plan_of(whole)));
  EXECUTE whole INTO digest;
  RETURN digest;
END $$;

-- How much gpusort has done in the cluster: of a kind, or if it is off, something that always grows.
CREATE FUNCTION done(kind text) RETURNS numeric LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('gpusort.enabled')::boolean THEN
    RETURN (SELECT sum(count) FROM gpusort_stat AS s WHERE s.kind = done.kind);
  END IF;
  RETURN extract(epoch FROM clock_timestamp());
END $$;

-- The rows of a table as they lie there, and independent of that.
CREATE FUNCTION physical_order(name regclass) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  digest text;
BEGIN
  EXECUTE format('SELECT md5(string_agg(id::text, %L ORDER BY ctid)) FROM %s', ',', name) INTO digest;
  RETURN digest;
END $$;

CREATE FUNCTION contents(name regclass) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  digest text;
BEGIN
  EXECUTE format('SELECT count(*) || %L || md5(string_agg(r::text, %L ORDER BY id)) FROM %s AS r', ' rows ', ',', name) INTO digest;
  RETURN digest;
END $$;

-- Checks all btree indexes by amcheck, that they have every row, too.  Returns their number.
CREATE FUNCTION check_indexes() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  index regclass;
  checked bigint := 0;
BEGIN
  FOR index IN SELECT c.oid FROM pg_class AS c JOIN pg_am AS a ON a.oid = c.relam
      WHERE c.relkind = 'i' AND a.amname = 'btree' AND c.relnamespace = 'public'::regnamespace LOOP
    IF pg_is_in_recovery() THEN
      PERFORM bt_index_check(index, true);
    ELSE
      PERFORM bt_index_parent_check(index, true);
    END IF;
    checked := checked + 1;
  END LOOP;
  RETURN checked;
END $$;
