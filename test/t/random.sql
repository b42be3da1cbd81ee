-- random.sql - the SQL part of RandomTest.pm: types, operator classes and aggregates, and procedures that
-- run a query in two ways and compare the answers.

CREATE EXTENSION gpusort;
SELECT count(*) > 0 AS icu FROM pg_collation WHERE collname = 'en-x-icu' \gset
\if :icu
CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE DOMAIN label AS text COLLATE "en-x-icu";
\else
CREATE DOMAIN label AS text COLLATE "C";
\endif
CREATE TYPE colour AS ENUM ('z', 'm', 'a');
ALTER TYPE colour ADD VALUE 'k' BEFORE 'm';
CREATE DOMAIN small AS int CHECK (VALUE < 1000);
CREATE TYPE pair AS (n bigint, s text COLLATE "C");
CREATE TABLE verdict (case_no int, nodes int, verdict text);

CREATE FUNCTION rnd(i bigint, salt bigint, d bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
AS 'SELECT (hashint8extended(i, salt) & 9223372036854775807) % d';

-- What users define: operator classes that order integers in reverse, and as if they had no sign;
CREATE FUNCTION turned_cmp(int, int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT btint4cmp($2, $1)';
CREATE OPERATOR #< (FUNCTION = int4gt, LEFTARG = int, RIGHTARG = int);
CREATE OPERATOR #> (FUNCTION = int4lt, LEFTARG = int, RIGHTARG = int);
CREATE OPERATOR CLASS turned FOR TYPE int USING btree AS OPERATOR 1 #<, OPERATOR 3 =, OPERATOR 5 #>, FUNCTION 1 turned_cmp(int, int);
CREATE FUNCTION unsigned_cmp(int, int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT btoidcmp($1::oid, $2::oid)';
CREATE FUNCTION unsigned_lt(int, int) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT $1::oid < $2::oid';
CREATE FUNCTION unsigned_gt(int, int) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT $1::oid > $2::oid';
CREATE OPERATOR @< (FUNCTION = unsigned_lt, LEFTARG = int, RIGHTARG = int);
CREATE OPERATOR @> (FUNCTION = unsigned_gt, LEFTARG = int, RIGHTARG = int);
CREATE OPERATOR CLASS unsigned FOR TYPE int USING btree AS OPERATOR 1 @<, OPERATOR 3 =, OPERATOR 5 @>, FUNCTION 1 unsigned_cmp(int, int);

-- and some that order types of PostgreSQL as it does, and that have abbreviated keys, but are not its own, as PostGIS's;
SELECT format('CREATE OPERATOR #< (FUNCTION = %2$slt, LEFTARG = %1$s, RIGHTARG = %1$s); CREATE OPERATOR #> (FUNCTION = %2$sgt, LEFTARG = %1$s, RIGHTARG = %1$s);
	CREATE OPERATOR CLASS own_%1$s FOR TYPE %1$s USING btree AS OPERATOR 1 #<, OPERATOR 3 =, OPERATOR 5 #>, FUNCTION 1 %2$scmp(%1$s, %1$s), FUNCTION 2 %3$s_sortsupport(internal)',
	type, prefix, support) FROM (VALUES ('uuid', 'uuid_', 'uuid'), ('bytea', 'bytea', 'bytea'), ('macaddr', 'macaddr_', 'macaddr'), ('inet', 'network_', 'network')) v(type, prefix, support) \gexec

-- composite types, by functions that the planner does not inline, whose hash operator calls more values equal than the order
-- of records does: those with the same remainder; the second one has an order of the same kind, too;
CREATE TYPE odd AS (x int);
CREATE FUNCTION odd_eq(odd, odd) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT AS 'BEGIN RETURN ($1).x % 10 = ($2).x % 10; END';
CREATE FUNCTION odd_hash(odd) RETURNS int LANGUAGE plpgsql IMMUTABLE STRICT AS 'BEGIN RETURN hashint4(($1).x % 10); END';
CREATE OPERATOR = (FUNCTION = odd_eq, LEFTARG = odd, RIGHTARG = odd, COMMUTATOR = =, HASHES);
CREATE OPERATOR CLASS odd_ops DEFAULT FOR TYPE odd USING hash AS OPERATOR 1 =, FUNCTION 1 odd_hash(odd);
CREATE TYPE even AS (x int);
CREATE FUNCTION even_eq(even, even) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT AS 'BEGIN RETURN ($1).x % 10 = ($2).x % 10; END';
CREATE FUNCTION even_lt(even, even) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT AS 'BEGIN RETURN ($1).x % 10 < ($2).x % 10; END';
CREATE FUNCTION even_gt(even, even) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT AS 'BEGIN RETURN ($1).x % 10 > ($2).x % 10; END';
CREATE FUNCTION even_cmp(even, even) RETURNS int LANGUAGE plpgsql IMMUTABLE STRICT AS 'BEGIN RETURN btint4cmp(($1).x % 10, ($2).x % 10); END';
CREATE FUNCTION even_hash(even) RETURNS int LANGUAGE plpgsql IMMUTABLE STRICT AS 'BEGIN RETURN hashint4(($1).x % 10); END';
CREATE OPERATOR = (FUNCTION = even_eq, LEFTARG = even, RIGHTARG = even, COMMUTATOR = =, HASHES, MERGES);
CREATE OPERATOR < (FUNCTION = even_lt, LEFTARG = even, RIGHTARG = even);
CREATE OPERATOR > (FUNCTION = even_gt, LEFTARG = even, RIGHTARG = even);
CREATE OPERATOR CLASS even_order DEFAULT FOR TYPE even USING btree AS OPERATOR 1 <, OPERATOR 3 =, OPERATOR 5 >, FUNCTION 1 even_cmp(even, even);
CREATE OPERATOR CLASS even_hashes DEFAULT FOR TYPE even USING hash AS OPERATOR 1 =, FUNCTION 1 even_hash(even);

-- numbers that are equal but for rounding;
CREATE TYPE near AS (x float8);
CREATE FUNCTION is_near(near, near) RETURNS bool LANGUAGE sql IMMUTABLE
AS 'SELECT ($1).x IS NOT DISTINCT FROM ($2).x OR coalesce(abs(($1).x - ($2).x) <= 1e-7 * (1 + abs(($1).x)), false)';
CREATE OPERATOR = (FUNCTION = is_near, LEFTARG = near, RIGHTARG = near);

-- aggregates whose functions are strict, or have arrays that are changed in place;
CREATE FUNCTION most_or_null(int, int) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS 'SELECT CASE WHEN $2 % 97 <> 3 THEN greatest($1, $2) END';
CREATE AGGREGATE own_most(int) (SFUNC = most_or_null, STYPE = int, INITCOND = 0);
CREATE AGGREGATE own_max(int) (SFUNC = int4larger, STYPE = int);
CREATE AGGREGATE own_max(text) (SFUNC = text_larger, STYPE = text);
CREATE FUNCTION array_step(a int[], n int) RETURNS int[] LANGUAGE plpgsql IMMUTABLE
AS 'BEGIN a[1] := coalesce(a[1], 0) + 1; a[2] := coalesce(a[2], 0) # coalesce(n, 1); RETURN a; END';
CREATE FUNCTION array_end(a int[]) RETURNS int[] LANGUAGE plpgsql IMMUTABLE AS 'BEGIN a[3] := 7; RETURN a; END';
CREATE FUNCTION array_changed(a int[]) RETURNS int[] LANGUAGE plpgsql IMMUTABLE AS 'BEGIN a[1] := coalesce(a[1], 0) + 100; RETURN a; END';
CREATE AGGREGATE own_array(int) (SFUNC = array_step, STYPE = int[], INITCOND = '{}', FINALFUNC = array_end);
-- two that share their states, which the first one's final function changes unless it gets a copy;
CREATE FUNCTION array_more(a int[]) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN a[cardinality(a) + 1] := 1; RETURN cardinality(a); END';
CREATE AGGREGATE own_more(int) (SFUNC = array_append, STYPE = int[], INITCOND = '{}', FINALFUNC = array_more);
CREATE AGGREGATE own_count(int) (SFUNC = array_append, STYPE = int[], INITCOND = '{}', FINALFUNC = cardinality);

-- those that show the order of rows, or sum;
CREATE FUNCTION first_value_of(int, int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT coalesce($1, $2)';
CREATE AGGREGATE first_of(int) (SFUNC = first_value_of, STYPE = int);
CREATE AGGREGATE own_sum(int) (SFUNC = int4pl, STYPE = int, INITCOND = 0);
CREATE AGGREGATE own_list(anycompatible) (SFUNC = array_append, STYPE = anycompatiblearray);

-- a condition that lets other processes have a part of the rows;
CREATE FUNCTION slowly(i int) RETURNS bool LANGUAGE plpgsql STABLE PARALLEL SAFE
AS 'BEGIN IF i % 500 = 0 THEN PERFORM pg_sleep(0.002); END IF; RETURN true; END';

-- the error of a query;
CREATE FUNCTION attempt(query text) RETURNS text LANGUAGE plpgsql AS 'BEGIN EXECUTE query; RETURN ''no error''; EXCEPTION WHEN others THEN RETURN SQLERRM; END';

-- a table that subqueries of IN are joined with;
CREATE TABLE b AS SELECT i AS id, i % 7 AS small, i::int8 AS big, i::numeric AS n, ROW(i)::odd AS o, ROW(i)::even AS e, i::text AS x, repeat('wide', 50) AS pad FROM generate_series(1, 1000) i;
ALTER TABLE b ADD PRIMARY KEY (id);
CREATE INDEX ON b (big);
CREATE INDEX ON b (n);
CREATE INDEX ON b (x);
CREATE INDEX ON b (e);
CREATE INDEX ON b USING hash (o);
VACUUM ANALYZE b;

-- and a function whose result is the number of its calls, of which the setting test.ticks tells.
CREATE FUNCTION tick() RETURNS int LANGUAGE plpgsql VOLATILE
AS $$ BEGIN RETURN set_config('test.ticks', (current_setting('test.ticks')::int + 1)::text, false); END $$;

-- Reads query q in the way "how" into a new table "name", whose physical order is the
-- order in which the rows came.  "steps" are FETCH and MOVE commands of a cursor, and
-- "trace" returns their row counts; or the types of the parameters of a prepared
-- statement, and their values.
CREATE PROCEDURE read_query(q text, how text, steps text[], name text, INOUT trace text) LANGUAGE plpgsql AS $$
DECLARE
	step text;
	r record;
	n int;
	got text[] := '{}';
BEGIN
	IF how = 'table' THEN
		EXECUTE format('CREATE TEMP TABLE %I AS %s', name, q);
		RETURN;
	ELSIF how = 'prepared' THEN
		EXECUTE format('PREPARE p %s AS %s', steps[1], q);
		EXECUTE concat('CREATE TEMP TABLE shape AS EXECUTE p ', steps[2]);
		EXECUTE format('CREATE TEMP TABLE %I AS EXECUTE p %s', name, steps[2]);
		EXECUTE 'DEALLOCATE p';
		DROP TABLE shape;
		RETURN;
	END IF;
	EXECUTE format('CREATE TEMP TABLE shape AS %s WITH NO DATA', q);
	IF how = 'loop' THEN
		FOR r IN EXECUTE q LOOP
			got := got || r::text;
		END LOOP;
	ELSE
		EXECUTE format('DECLARE h %s FOR %s', how, q);
		IF how LIKE '%HOLD' THEN
			COMMIT;
		END IF;
		FOREACH step IN ARRAY steps LOOP
			n := 0;
			IF step LIKE 'MOVE%' THEN
				EXECUTE step || ' IN h';
				GET DIAGNOSTICS n = ROW_COUNT;
			ELSE
				FOR r IN EXECUTE step || ' FROM h' LOOP
					got := got || r::text;
					n := n + 1;
				END LOOP;
			END IF;
			trace := concat(trace, ' ', n);
		END LOOP;
		EXECUTE 'CLOSE h';
	END IF;
	-- OFFSET keeps the planner from repeating the cast for each column.  INSERT could fill
	-- gaps of the table and lose the order; CREATE TABLE AS does not.
	EXECUTE format('CREATE TEMP TABLE %I AS SELECT (y.c).* FROM (SELECT x::shape AS c FROM unnest($1) x OFFSET 0) y', name)
		USING got;
	DROP TABLE shape;
END $$;

-- Runs q_off and q_on, each under its settings (name, value, name, ...), compares the
-- columns "names" in sequence and, if all_rows, the rows as a multiset, and adds a row
-- to table verdict with the number of GpuSort nodes in the plan of q_on.
CREATE PROCEDURE compare(case_no int, q_off text, q_on text, how text, steps text[], names text[], all_rows boolean,
	set_both text[], set_off text[], set_on text[]) LANGUAGE plpgsql AS $$
DECLARE
	line text;
	nodes int := 0;
	trace text;
	traces text[] := '{}';
	counts bigint[] := '{}';
	sums numeric[] := '{}';
	n bigint;
	s numeric;
	settings text[];
BEGIN
	DROP TABLE IF EXISTS r_1, r_2, shape;
	FOR i IN 1..2 LOOP
		settings := set_both || CASE i WHEN 1 THEN set_off ELSE set_on END;
		FOR j IN 1..coalesce(cardinality(settings), 0) BY 2 LOOP
			PERFORM set_config(settings[j], settings[j + 1], false);
		END LOOP;
		CALL read_query(CASE i WHEN 1 THEN q_off ELSE q_on END, how, steps, 'r_' || i, trace);
		traces[i] := trace;
		trace := NULL;
	END LOOP;
	FOR line IN EXECUTE concat('EXPLAIN (COSTS off) ', CASE WHEN how LIKE '%CURSOR%' THEN format('DECLARE h %s FOR ', how) END,
		regexp_replace(q_on, '\$\d', '1', 'g')) LOOP
		nodes := nodes + (line LIKE '%(GpuSort)%')::int;
	END LOOP;
	FOR j IN 1..cardinality(settings) BY 2 LOOP
		EXECUTE format('SET %s TO DEFAULT', settings[j]);
	END LOOP;
	FOR j IN 1..coalesce(cardinality(set_off), 0) BY 2 LOOP
		PERFORM set_config(set_off[j], set_off[j + 1], false);
	END LOOP;

	FOR i IN 1..2 LOOP
		EXECUTE format('SELECT count(*), sum(hashtextextended(x::text, 0)::numeric) FROM r_%s x', i) INTO n, s;
		counts[i] := n;
		sums[i] := s;
	END LOOP;
	EXECUTE format('SELECT min(row_no) FROM (SELECT row_number() OVER () AS row_no, * FROM r_1) a
		JOIN (SELECT row_number() OVER () AS row_no, * FROM r_2) b USING (row_no) WHERE NOT (%s)',
		(SELECT string_agg(format('a.%I IS NOT DISTINCT FROM b.%I', x, x), ' AND ') FROM unnest(names) x)) INTO n;
	INSERT INTO verdict VALUES (case_no, nodes,
		CASE WHEN counts[1] <> counts[2] THEN format('%s rows, not %s', counts[2], counts[1])
			WHEN traces[1] <> traces[2] THEN format('the cursor moved by%s, not%s', traces[2], traces[1])
			WHEN n IS NOT NULL THEN format('other keys in row %s', n)
			WHEN all_rows AND sums[1] IS DISTINCT FROM sums[2] THEN 'other rows'
			ELSE 'same' END);
END $$;
