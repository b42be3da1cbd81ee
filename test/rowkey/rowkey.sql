-- Row keys have the order of core's ORDER BY: every type, alone and with others, with
-- NULLs at both ends, ascending and descending, for values that differ little.  The
-- test needs a database of its own, and :module set to the module of rowkey_test.c.
\ir include/setup.psql
SET max_parallel_workers_per_gather = 0;
CREATE EXTENSION citext;

CREATE FUNCTION rowkey_check(query text, order_by text) RETURNS text
	LANGUAGE c STRICT AS :'module', 'rowkey_check';
CREATE FUNCTION rowkey_refusal(query text, order_by text) RETURNS text
	LANGUAGE c STRICT AS :'module', 'rowkey_refusal';
CREATE FUNCTION rowkey_sampled(query text, order_by text) RETURNS text
	LANGUAGE c STRICT AS :'module', 'rowkey_sampled';
CREATE FUNCTION rowkey_distinct(query text, order_by text) RETURNS int
	LANGUAGE c STRICT AS :'module', 'rowkey_distinct';
CREATE FUNCTION rowkey_by_weights() RETURNS bool
	LANGUAGE c STRICT AS :'module', 'rowkey_by_weights';

-- Makes a table for one kind of values: column v has each value twice and two NULLs.
CREATE FUNCTION make_values(name text, type text, VARIADIC literals text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE TABLE %I (v %s)', name, type);
	EXECUTE format('INSERT INTO %I SELECT unnest($1 || $1)::%s', name, type) USING literals;
	EXECUTE format('INSERT INTO %I VALUES (NULL), (NULL)', name);
END $$;

-- Checks one kind alone, in both directions with NULLs at both ends, and without NULLs.
CREATE FUNCTION check_alone(name text, expected text, ascending text = 'ASC', descending text = 'DESC')
RETURNS SETOF text LANGUAGE sql AS $$
	SELECT is(rowkey_check(format('SELECT v FROM %I', name), format('v %s NULLS %s', direction, nulls)),
			  expected, format('%s %s NULLS %s', name, direction, nulls))
	FROM unnest(ARRAY[ascending, descending]) direction, unnest(ARRAY['FIRST', 'LAST']) nulls
	UNION ALL
	SELECT is(rowkey_check(format('SELECT v FROM %I WHERE v IS NOT NULL', name), format('v %s', direction)),
			  expected, format('%s %s, not null', name, direction))
	FROM unnest(ARRAY[ascending, descending]) direction
$$;

-- Makes count random strings of up to longest characters of an alphabet; many have equal beginnings.
CREATE FUNCTION random_strings(alphabet text, longest int, count int) RETURNS text[]
LANGUAGE sql AS $$
	SELECT array_agg((SELECT coalesce(string_agg(substr(alphabet, 1 + floor(random() * length(alphabet))::int, 1), ''), '')
					  FROM generate_series(1, floor(random() * (longest + 1))::int + 0 * i)))
	FROM generate_series(1, count) i
$$;
\o /dev/null
SELECT setseed(0.5);

CREATE TYPE mood AS ENUM ('m2', 'm4');
ALTER TYPE mood ADD VALUE 'm1' BEFORE 'm2';
ALTER TYPE mood ADD VALUE 'm3' AFTER 'm2';
ALTER TYPE mood ADD VALUE 'm5';
ALTER TYPE mood ADD VALUE 'm2a' BEFORE 'm3';
ALTER TYPE mood ADD VALUE 'm0' BEFORE 'm1';
-- the operator ~~~< orders integers by their last digit
CREATE FUNCTION last_digit_cmp(int4, int4) RETURNS int4 LANGUAGE sql IMMUTABLE AS 'SELECT abs($1 % 10) - abs($2 % 10)';
CREATE FUNCTION last_digit_lt(int4, int4) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT abs($1 % 10) < abs($2 % 10)';
CREATE FUNCTION last_digit_eq(int4, int4) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT abs($1 % 10) = abs($2 % 10)';
CREATE OPERATOR ~~~< (FUNCTION = last_digit_lt, LEFTARG = int4, RIGHTARG = int4);
CREATE OPERATOR ~~~= (FUNCTION = last_digit_eq, LEFTARG = int4, RIGHTARG = int4);
CREATE OPERATOR CLASS last_digit_ops FOR TYPE int4 USING btree AS
	OPERATOR 1 ~~~<, OPERATOR 3 ~~~=, FUNCTION 1 last_digit_cmp(int4, int4);
CREATE DOMAIN score AS int4 CHECK (VALUE > -100);
CREATE DOMAIN high_score AS score;
CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE COLLATION libc (provider = libc, locale = 'C.UTF-8');
CREATE COLLATION en (provider = icu, locale = 'en');
DO $$ BEGIN
	-- not every version has this provider; without it libc's POSIX locale replaces it
	CREATE COLLATION bytes (provider = builtin, locale = 'C.UTF-8');
EXCEPTION WHEN OTHERS THEN
	CREATE COLLATION bytes (provider = libc, locale = 'POSIX');
END $$;

SELECT make_values('bool', 'bool', 't', 'f');
SELECT make_values('int2', 'int2', VARIADIC ARRAY[-32768, -32767, -1, 0, 1, 255, 256, 32766, 32767]::text[]);
SELECT make_values('int4', 'int4', VARIADIC ARRAY[-2147483648, -2147483647, -65536, -1, 0, 1, 65536, 2147483646, 2147483647]::text[]);
SELECT make_values('int8', 'int8', VARIADIC ARRAY[-9223372036854775808, -9223372036854775807, -4294967296, -1, 0, 1,
	4294967296, 9223372036854775806, 9223372036854775807]::text[]);
SELECT make_values('int8_ends', 'int8', VARIADIC ARRAY[-9223372036854775808, -1, 0, 1, 9223372036854775807]::text[]);
SELECT make_values('float4', 'float4', 'NaN', 'Infinity', '-Infinity', '0', '-0', '1e-45', '-1e-45', '1.5', '-1.5', '3.4e38', '-3.4e38');
SELECT make_values('float8', 'float8', 'NaN', 'Infinity', '-Infinity', '0', '-0', '5e-324', '-5e-324', '1.5', '-1.5', '1.7e308', '-1.7e308');
SELECT make_values('date', 'date', 'infinity', '-infinity', '4713-01-01 BC', '5874897-12-31', '2000-01-01', '1999-12-31');
SELECT make_values('time', 'time', '00:00', '24:00', '23:59:59.999999', '00:00:00.000001', '12:00');
SELECT make_values('timestamp', 'timestamp', 'infinity', '-infinity', '4713-01-01 BC', '294276-12-31 23:59:59.999999', '2000-01-01');
SELECT make_values('timestamptz', 'timestamptz', 'infinity', '-infinity', '4713-01-02 BC', '294276-12-31 00:00+00', '2000-01-01 00:00+00');
SELECT make_values('timetz', 'timetz', '00:00+00', '01:00+01', '02:00+02', '23:00-01', '24:00+15:59:59', '00:00-15:59:59', '12:00+05:30', '12:00+00');
INSERT INTO timetz SELECT timezone(z, '12:00+00'::timetz) FROM unnest(ARRAY['590000 hours', '-590000 hours', '100 hours']::interval[]) z;
SELECT make_values('interval', 'interval', '0', '1 mon', '30 days', '720 hours', '29 days 24:00:00.000001', '1 mon -1 day', '29 days',
	'-1 mon', '-30 days', '-1 mon 1 day', '-1 us', '1 us', '178956970 years 7 mons', '-178956970 years -8 mons',
	'2147483647 days 2562047788:00:54.775807', '-2147483648 days -2562047788:00:54.775807', '2562047788:00:54.775807');
SELECT make_values('money', 'money', '-92233720368547758.08', '-92233720368547758.07', '0', '1', '92233720368547758.06', '92233720368547758.07');
SELECT make_values('oid', 'oid', '0', '1', '2147483647', '2147483648', '4294967295');
SELECT make_values('regclass', 'regclass', 'pg_class', 'pg_proc', 'pg_type');
SELECT make_values('xid8', 'xid8', '0', '1', '9223372036854775808', '18446744073709551614', '18446744073709551615');
SELECT make_values('pg_lsn', 'pg_lsn', '0/0', '0/1', '7FFFFFFF/FFFFFFFF', '80000000/0', 'FFFFFFFF/FFFFFFFE', 'FFFFFFFF/FFFFFFFF');
SELECT make_values('tid', 'tid', '(0,0)', '(0,1)', '(0,65535)', '(1,0)', '(4294967295,65535)', '(4294967295,0)', '(65536,1)');
SELECT make_values('uuid', 'uuid', '00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000001',
	'00000000-0000-0000-0000-000000000002', '00000000-0000-0001-0000-000000000000', '7fffffff-ffff-ffff-ffff-ffffffffffff',
	'ffffffff-ffff-ffff-0000-000000000000', 'ffffffff-ffff-ffff-ffff-fffffffffffd',
	'ffffffff-ffff-ffff-ffff-fffffffffffe', 'ffffffff-ffff-ffff-ffff-ffffffffffff');
SELECT make_values('uuid_ends', 'uuid', '00000000-0000-0000-0000-000000000000', '12345678-1234-1234-1234-123456789012',
	'ffffffff-ffff-ffff-ffff-ffffffffffff');
SELECT make_values('macaddr', 'macaddr', '00:00:00:00:00:00', '00:00:00:00:00:01', '00:00:01:00:00:00', '7f:ff:ff:00:00:00', '80:00:00:00:00:00', 'ff:ff:ff:ff:ff:ff');
SELECT make_values('macaddr8', 'macaddr8', '00:00:00:00:00:00:00:00', '00:00:00:00:00:00:00:01', '80:00:00:00:00:00:00:00',
	'ff:ff:ff:ff:ff:ff:ff:fe', 'ff:ff:ff:ff:ff:ff:ff:ff');
SELECT make_values('inet4', 'inet', '0.0.0.0/0', '0.0.0.0/1', '0.0.0.0', '10.0.0.0/8', '10.0.0.0/16', '10.0.0.1/8', '10.0.0.1/16', '10.0.0.1', '10.1.0.0/16',
	'10.128.0.0/9', '10.64.0.1/8', '255.255.255.255', '255.255.255.255/31', '255.255.255.255/0', '128.0.0.0/1', '127.255.255.255');
SELECT make_values('inet', 'inet', '0.0.0.0/0', '10.0.0.1/8', '255.255.255.255', '::/0', '::', '::1', '::2', '::3', '::4', '::1/127', '::ffff:10.0.0.1', 'fe80::1/64',
	'fe80::2/64', 'fe80::/10', 'fe80::1/65', 'fe80:0:0:0:8000::/65', 'fe80::8000:1/96', 'fe80::1/112', 'fe80::8000:1/112', '8000::/1', 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff', 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/0');
SELECT make_values('cidr', 'cidr', '10.0.0.0/8', '10.0.0.0/16', '10.1.0.0/16', '0.0.0.0/0', '255.255.255.255/32');
SELECT make_values('enum', 'mood', VARIADIC enum_range(NULL::mood)::text[]);
SELECT make_values('domain', 'high_score', '-1', '0', '99');
SELECT make_values('char', '"char"', '', 'a', 'b', 'Z');
INSERT INTO "char" SELECT i::"char" FROM generate_series(-128, 127) i;

-- strings that are prefixes of each other, with the lengths at which words end
SELECT make_values('text', 'text COLLATE "C"', VARIADIC ARRAY['', ' ', 'a', 'b', 'aa', 'ab', 'Z', 'é', 'ÿ', '日本語', 'zzzzzzzz', E'\x01', repeat(chr(1114111), 5)] ||
	array_agg(s) || array_agg(s || ' ') || array_agg(s || E'\x01') || random_strings('ab', 17, 30))
FROM generate_series(0, 20) n, LATERAL (SELECT substr('the same long head', 1, n)) x(s);
SELECT make_values('short_text', 'text COLLATE "C"', VARIADIC random_strings(E'ab \x01', 15, 60));
SELECT make_values('varchar', 'varchar COLLATE bytes', VARIADIC random_strings('aB', 18, 60) ||
	ARRAY[repeat('x', 15), repeat('x', 16), repeat('x', 17), repeat('x', 16) || 'a']);
SELECT make_values('bpchar', 'bpchar(20) COLLATE "C"', VARIADIC random_strings(E'a \x01', 18, 60) ||
	ARRAY[repeat('x', 15), repeat('x', 15) || '  x', repeat('x', 15) || ' x', repeat('x', 15) || '  ']);
SELECT make_values('bpchar_free', 'bpchar COLLATE "C"', VARIADIC random_strings('a  ', 16, 60) || ARRAY['', ' ', repeat(' ', 30), 'a' || repeat(' ', 30)]);
SELECT make_values('name', 'name', VARIADIC random_strings('ab', 17, 60) || ARRAY['', repeat('x', 63), repeat('x', 62), repeat('x', 15), repeat('x', 16)]);
SELECT make_values('bytea', 'bytea', VARIADIC ARRAY['\x', '\x00', '\x0000', '\xff', '\xff00', '\x' || repeat('00', 15), '\x' || repeat('00', 16), '\x' || repeat('00', 17),
	'\x' || repeat('ff', 14), '\x' || repeat('ff', 15), '\x' || repeat('ff', 16), '\x' || repeat('ff', 14) || '00', '\x' || repeat('ff', 15) || '00', '\x' || repeat('ff', 14) || '0000'] ||
	(SELECT array_agg('\x' || replace(replace(s, 'a', '00'), 'b', 'ff')) FROM unnest(random_strings('aaab', 18, 60)) s));
SELECT make_values('short_bytea', 'bytea', VARIADIC
	(SELECT array_agg('\x' || replace(replace(s, 'a', '00'), 'b', '01')) FROM unnest(random_strings('aaab', 15, 60)) s));
SELECT make_values('icu', 'text COLLATE en', VARIADIC ARRAY['', ' ', 'a', 'A', 'á', 'b', 'B', 'résumé', 'resume', 'Resume', 'co-op', 'coop', '日本', E'a\u0301', 'zzzzzzzzzzzzzzzz', 'zzzzzzzzzzzzzzza'] ||
	random_strings('aAbBáé -', 12, 80));
SELECT make_values('icu_nocase', 'text COLLATE nocase', VARIADIC ARRAY['', 'a', 'A', 'á', 'b', 'B', 'ABC', 'abc'] || random_strings('aAbB', 10, 80));
SELECT make_values('small', 'citext COLLATE "C"', VARIADIC ARRAY['', 'a', 'A', 'b', 'B', 'É', 'é', 'ß', 'Ÿ', '[', '_', '@', repeat('X', 15), repeat('x', 16), repeat('X', 16) || 'a', repeat('x', 16) || 'B', repeat('É', 7), repeat('é', 8)] ||
	random_strings('aAbB[_É', 17, 80));
SELECT make_values('short_citext', 'citext COLLATE "C"', VARIADIC random_strings('aAbB[_@', 15, 60));
SELECT make_values('icu_citext', 'citext COLLATE en', VARIADIC ARRAY['', 'a', 'A', 'á', 'Á', 'b'] || random_strings('aAbBáÁ -', 12, 80));
SELECT make_values('icu_bpchar', 'bpchar(12) COLLATE en', VARIADIC random_strings(E'aA  \t', 12, 60));

-- Under ICU the characters next to a character may change its weights, and settings of the
-- collation may change all weights.  These alphabets have many such characters.
CREATE FUNCTION chars(VARIADIC ranges text[]) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(chr(c), '') FROM unnest(ranges) range,
		LATERAL (SELECT split_part(range, '-', 1), split_part(range, '-', 2)) part(first, last),
		generate_series(('x' || lpad(first, 8, '0'))::bit(32)::int, ('x' || lpad(coalesce(nullif(last, ''), first), 8, '0'))::bit(32)::int) c
$$;
CREATE TABLE icu_alphabets AS
SELECT name, letters FROM (SELECT chars('300-30C', '323', '328', '329', '338'), chars('1', '8', '7F', 'AD', '34F', '200B', '200D', '2060', 'FEFF')) parts(marks, ignorable),
LATERAL (VALUES
	('ascii', chars('20-7E')),
	('latin', 'aeioucnszAEIOUCNSZ' || chars('C0-17F') || marks),
	('marks', 'aaaeoucAO' || chars('329') || marks),
	('few marks', 'ab' || chars('329', '30A')),
	('digraphs', 'cchhddzzggyyllnnjjssijaeoCHDZSYLNJAaaårv·' || marks || ignorable),
	('ignorable', 'aaabbbABch' || ignorable),
	('greek, cyrillic', chars('386-3CE', '400-45F') || marks),
	('hangul', chars('1100-1112', '1161-1175', '11A8-11C2', 'AC00-AC40')),
	('jamo', '가고까' || chars('1100-1103', '1161', '1169', '11A8')),
	('thai, lao', chars('E01-E3A', 'E40-E4E', 'E81-E82', 'EC0-EC4', 'EC8-ECD')),
	('japanese', 'ーーー' || chars('3041-3060', '3099-309E', '30A1-30B0', '30FC-30FE', '4E00-4E20')),
	('kana', 'ああアカかーーーゝ' || chars('3099-309A')),
	('semitic', chars('5B0-5BD', '5D0-5EA', '621-652')),
	('indic', chars('901-963', 'F40-F47', 'F71-F80', 'FB2-FB3')),
	('emoji', chars('1F600-1F610', '1F3FB-1F3FF', '200D', 'FE0F', '2764')),
	('digits', '000112345678999000abch.,-' || marks || chars('660-669', '966-96C', 'B2-B3', 'FF10-FF12')),
	('other digits', '00129ab' || chars('1D7CE-1D7D4', '104A0-104A3', '660-662', '1F600')),
	('starts', 'aaLL44' || chars('FDD0-FDD1', '1F600')),
	('odd', 'chLl4' || marks || chars('FFFD-FFFF', 'FDD0-FDD1', 'D7FF', 'E000', '10000', '10FFFF', '378', 'F900', '2F800', '20000', '1D15E', '11100', '11127')),
	('any', (SELECT string_agg(chr(c), '') FROM (SELECT floor(random() * 65535)::int + 1 AS c FROM generate_series(1, 300)) x WHERE c NOT BETWEEN 55296 AND 57343))
	) alphabets(name, letters);
-- short strings, and strings with a common beginning
CREATE TABLE icu_strings AS
SELECT unnest(random_strings(letters, 12, 60) || (SELECT array_agg(substr(letters, 1, 8) || s) FROM unnest(random_strings(substr(letters, 1, 4), 6, 20)) s)) AS s
FROM icu_alphabets;
INSERT INTO icu_strings SELECT s || t FROM unnest(ARRAY['', 'a', 'A', E'a\u0301', 'á', repeat('x', 15), repeat(' ', 300), repeat(E'\x01', 300)]) s, unnest(ARRAY['', 'b', 'B', 'ch', 'c' || E'\u0301' || 'h']) t;
-- contractions of three letters, at different distances after a character that is left to ICU
INSERT INTO icu_strings SELECT chars('1F600') || repeat(chars('F40'), i) || chars('F42', 'F51') || t
FROM generate_series(0, 6) i, unnest(string_to_array(chars('F40-F69', '61'), NULL)) t;
-- contractions that begin with a character that is left to ICU
INSERT INTO icu_strings SELECT repeat(chars('1F600'), i) || s || t
FROM generate_series(0, 6) i, unnest(ARRAY[chars('1F468'), chars('1F468', '200D'), chars('1F468', '200D', '2695'), 'x', E'x\u0301', E'x\u0301y', E'x\u0301yz']) s,
	unnest(ARRAY['', 'a', 'y', 'z', chars('2695'), chars('1F600')]) t;
-- numbers of all lengths, with zeros in front and at the end; some differ only in a late digit
INSERT INTO icu_strings SELECT p || repeat('0', z) || left(repeat(d, 300), n) || s
FROM unnest(ARRAY['', 'a', '-', 'x' || chars('301')]) p, unnest(ARRAY[0, 1, 7, 300]) z, unnest(ARRAY['1', '9', '10', '000001', '7300']) d,
	unnest(ARRAY[1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 31, 253, 254, 255, 300]) n, unnest(ARRAY['', '0', '1', 'b', '.5']) s WHERE random() < 0.4;
INSERT INTO icu_strings SELECT n::text FROM generate_series(0, 12000, 37) n;
INSERT INTO icu_strings SELECT n || '/' || m FROM unnest(ARRAY[0, 73, 74, 75, 9, 10, 99, 100, 10233, 10234, 10235, 10236, 1042489, 1042490, 1042491]) n, unnest(ARRAY[1, 10, 2]) m;
-- a string so long that the weights of all later strings are looked up
INSERT INTO icu_strings VALUES (repeat('x', 600000));
-- collations that a version of ICU lacks are left out
CREATE TABLE few_strings AS SELECT (n % 3 || v || ' and so on') COLLATE "C" AS v, n
FROM generate_series(1, 300) n, LATERAL (SELECT (ARRAY['Deutschland, Bundesrepublik', 'Österreich, Bundesrepublik', 'a', NULL])[1 + n % 4]) x(v);
CREATE TABLE few_icu AS SELECT (CASE WHEN n % 2 = 0 THEN v ELSE upper(v) END) COLLATE nocase AS v, n
FROM generate_series(1, 200) n, LATERAL (SELECT (ARRAY['Basel', 'Bern', 'Biel', 'Brig', NULL])[1 + n % 5]) x(v);
CREATE TABLE prefixed AS SELECT ('https://www.example.com/products/' || left(md5(n::text), n % 12)) COLLATE "C" AS v, n FROM generate_series(1, 200) n;
CREATE TABLE prefixed_bpchar AS SELECT v::bpchar(60) COLLATE "C" AS v FROM prefixed;
CREATE TABLE prefixed_bytea AS SELECT convert_to(v, 'UTF8') AS v FROM prefixed;
-- characters that combine with the end of a prefix, then strings without it
CREATE TABLE prefixed_c AS SELECT 'a long prefix that ends in c' || s || t AS v
FROM unnest(ARRAY['', 'h', 'H', E'\u0301', E'\u0327', 'ch', 's', 'z', '-', ' ', 'a', E'\u00AD', chars('1F600'), E'\u0E40', E'\u0E01']) s,
	 unnest(ARRAY['', 'a', 'h', 'za', 'zb', E'\u0301', 'some more letters', 'some more LETTERS', E'\u4E00']) t;
INSERT INTO prefixed_c SELECT left(v, n) FROM prefixed_c, generate_series(1, 27, 13) n WHERE length(v) > 35;
INSERT INTO prefixed_c VALUES ('A long prefix that ends in ch'), ('a long prefix that ends in Č'), ('a long prefiy'), (''), ('z');
CREATE TABLE prefixed_a AS SELECT replace(v, 'ends in c', 'ends in a') AS v FROM prefixed_c UNION ALL SELECT replace(v, 'ends in c', 'ends in A') FROM prefixed_c;
CREATE TABLE prefixed_han AS SELECT replace(v, 'ends in c', E'\u65E5\u672C\u8A9E\u30AB') AS v FROM prefixed_c UNION ALL SELECT replace(v, 'ends in c', E'\u65E5\u672C\u8A9E\uAC00\u30FC') FROM prefixed_c;
CREATE TABLE icu_collations (name text);
CREATE PROCEDURE try_collation(locale text, rules text = NULL) LANGUAGE plpgsql AS $$
DECLARE
	name text := locale || coalesce(' ' || rules, '');
BEGIN
	EXECUTE format('CREATE COLLATION %I (provider = icu, locale = %L', name, locale) ||
		CASE WHEN rules IS NULL THEN '' ELSE format(', rules = %L', rules) END || ')';
	INSERT INTO icu_collations VALUES (name);
EXCEPTION WHEN OTHERS THEN
	RAISE DEBUG 'collation % is left out: %', name, SQLERRM;
END $$;
DO $$ DECLARE
	locale text;
	rules text;
BEGIN
	FOREACH locale IN ARRAY ARRAY['und', 'en-US', 'de', 'de-u-co-phonebk', 'sv', 'da', 'es-u-co-trad', 'cs', 'hu', 'sk', 'hr', 'vi', 'th', 'lo',
		'ja', 'ko', 'ko-u-co-searchjl', 'zh', 'zh-u-co-stroke', 'ar', 'bo', 'he', 'hi', 'ru', 'el', 'und-u-ks-level1', 'und-u-ks-level2', 'und-u-ks-level4', 'und-u-kf-upper',
		'und-u-kn-true', 'und-u-co-emoji', 'und-u-ka-shifted', 'und-u-ka-shifted-kv-symbol', 'und-u-kc', 'und-u-kr-grek-latn', 'und-u-kk-true'] LOOP
		CALL try_collation(locale);
	END LOOP;
	FOREACH rules IN ARRAY ARRAY['&c<k', '&a<ch<<<Ch', '&b=x|c', E'&a<<<x\u0301yz', '[reorder Grek]', '&9<x', '[alternate shifted]'] LOOP
		CALL try_collation('und', rules);
	END LOOP;
END $$;

-- numerics of all lengths and with all headers, equal numerics such as 1.0 and 1.00, and zeros with scales
SELECT make_values('numeric', 'numeric', VARIADIC ARRAY['NaN', 'Infinity', '-Infinity', '0', '0.00', '-0.000', '1', '1.0', '1.00', '-1', '-1.0', '0.1', '0.10', '9999', '10000', '10001',
	'99999999', '100000000', '1e-20', '-1e-20', '1e1000', '-1e1000', '1e-1000', '-1e-1000', '9e131071', '-9e131071', '1e131068', '1e-16383', '-1e-16383', '9.9e-16382',
	'1234567890123456789012345678', '1234567890123456789012345679', '12345678901234567890123456781', '12345678901234567890123456781.5',
	'-1234567890123456789012345678', '-1234567890123456789012345678.5', '1234567890123456789012345678.0001', '1234567890123456789012345678.0002',
	'9999999999999999999999999999', '9999999999999999999999999999.9999', '1e252', '1e256', '1e260', '1e-256', '1e-260', '1e-264',
	(SELECT string_agg('1234567890', '') FROM generate_series(1, 200))] ||
	(SELECT array_agg((CASE WHEN random() < 0.5 THEN '-' ELSE '' END) || floor(random() * 1000) || 'e' || floor(random() * 12 - 6)) FROM generate_series(1, 60)));
SELECT make_values('short_numeric', 'numeric', VARIADIC ARRAY['NaN', 'Infinity', '-Infinity', '0', '0.00', '1.0', '1.00', '-1.0', '9999999999999999999999999999', '-9999999999999999999999999999'] ||
	(SELECT array_agg((random() * 1e6 - 5e5)::numeric(20, 4)::text) FROM generate_series(1, 60)));
SELECT make_values('fixed_numeric', 'numeric(10,2)', VARIADIC (SELECT array_agg((random() * 100 - 50)::text) FROM generate_series(1, 100)));

-- values that are compressed or stored out of line
CREATE TABLE toasted (t text COLLATE "C", c bpchar COLLATE "C", b bytea, n numeric, i text COLLATE en);
ALTER TABLE toasted ALTER t SET STORAGE EXTENDED, ALTER b SET STORAGE EXTERNAL, ALTER n SET STORAGE EXTERNAL;
INSERT INTO toasted
SELECT repeat(s, 2000 + i::int % 3), s || repeat(' ', 10000), convert_to(repeat(s, 3000), 'UTF8'),
	   (CASE WHEN i % 2 = 0 THEN '-' ELSE '' END || repeat('1234', 3000) || i % 3)::numeric, repeat(s, 3000)
FROM unnest(random_strings('ab', 3, 20)) WITH ORDINALITY AS x(s, i) WHERE s <> '';
INSERT INTO toasted SELECT s, s, s::bytea, 5, s FROM unnest(ARRAY['a', 'b', 'ab', 'aaaaaaaaaaaaaaaa']) s;

\o
SELECT * FROM no_plan();

-- this comes before all other tests of ICU: the words must not change when the lookup of weights begins
SELECT is(rowkey_check(format('SELECT s COLLATE %I AS s FROM icu_strings', name), 's'), 'lossy', 'ICU: ' || name) FROM icu_collations;
SELECT ok(count(*) > 30, 'ICU: there are more than 30 collations') FROM icu_collations;
-- 127 bits of weights: one byte for a Latin letter, two for a Cyrillic one; or eight bytes of ICU's sort key
SELECT is(rowkey_distinct($$SELECT 'pneumonoultram' || chr(i) COLLATE "und" AS s FROM generate_series(ascii('a'), ascii('z')) i$$, 's'),
	CASE WHEN rowkey_by_weights() THEN 26 ELSE 1 END, 'ICU: the fifteenth letter counts');
SELECT is(rowkey_distinct($$SELECT 'шестьс' || chr(i) COLLATE "und" AS s FROM generate_series(ascii('к'), ascii('щ')) i$$, 's'),
	16, 'ICU: the seventh letter counts in Cyrillic');
SELECT is(rowkey_distinct($$SELECT 'pneumono ' || i || ' a' COLLATE "und-u-kn-true" AS s FROM generate_series(1, 2000) i$$, 's'),
	CASE WHEN rowkey_by_weights() THEN 2000 ELSE 1 END, 'ICU: numbers count in a numeric collation');

SELECT check_alone(name, 'exact') FROM unnest(ARRAY['bool', 'char', 'int2', 'int4', 'float4', 'float8', 'date', 'time', 'timestamp', 'timestamptz',
	'timetz', 'interval', 'oid', 'regclass', 'tid', 'macaddr', 'inet4', 'cidr', 'enum', 'domain', 'int8_ends', 'uuid_ends',
	'short_text', 'short_citext', 'short_bytea', 'short_numeric', 'fixed_numeric']) name;
-- a word of 64 bits, or two of 128, have no room for NULL, so at each end of the range two values share a word
SELECT check_alone(name, 'lossy') FROM unnest(ARRAY['int8', 'money', 'xid8', 'pg_lsn', 'macaddr8', 'uuid', 'inet',
	'text', 'varchar', 'bpchar', 'name', 'bytea', 'icu', 'icu_nocase', 'icu_bpchar', 'small', 'icu_citext', 'numeric']) name;
SELECT check_alone('bpchar_free', 'cautious');
SELECT check_alone('text', 'lossy', 'USING ~<~', 'USING ~>~');
SELECT check_alone('icu', 'lossy', 'USING ~<~', 'USING ~>~');
SELECT check_alone('bpchar', 'lossy', 'USING ~<~', 'USING ~>~');
SELECT is(rowkey_check('SELECT t FROM toasted', 't'), 'lossy', 'compressed text');
SELECT is(rowkey_check('SELECT c FROM toasted', 'c'), 'cautious', 'compressed blanks');
SELECT is(rowkey_check('SELECT b FROM toasted', 'b DESC'), 'lossy', 'bytea stored out of line');
SELECT is(rowkey_check('SELECT n FROM toasted', 'n'), 'lossy', 'numeric stored out of line');
SELECT is(rowkey_check('SELECT i FROM toasted', 'i'), 'lossy', 'compressed text under ICU');
SELECT is(rowkey_check('SELECT t, c, b, n, i FROM toasted', 'c, n DESC, b, t, i'), 'lossy', 'all these types together');

-- pairs of kinds: if the words do not decide the first column, the words of the second column must not decide the order
CREATE TABLE kinds AS
SELECT * FROM unnest(ARRAY['bool', 'int4', 'int8', 'int8_ends', 'float8', 'uuid', 'inet', 'enum', 'text', 'short_text',
	'bpchar', 'bytea', 'numeric', 'interval', 'timetz', 'icu']) WITH ORDINALITY AS kind(name, n);
SELECT matches(rowkey_check(
		format('SELECT v1, v2 FROM (SELECT a.v v1, b.v v2 FROM %I a, %I b ORDER BY random() LIMIT 3000) s', a.name, b.name),
		format('v1 %s NULLS %s, v2 %s NULLS %s',
			   CASE WHEN x & 1 = 0 THEN 'ASC' ELSE 'DESC' END, CASE WHEN x & 2 = 0 THEN 'FIRST' ELSE 'LAST' END,
			   CASE WHEN x & 4 = 0 THEN 'ASC' ELSE 'DESC' END, CASE WHEN x & 8 = 0 THEN 'FIRST' ELSE 'LAST' END)),
	CASE WHEN a.name = 'icu' OR a.name IN ('int8', 'uuid', 'inet', 'text', 'bpchar', 'bytea', 'numeric') THEN '^lossy$'
		 ELSE '^(exact|lossy|cautious)$' END,
	format('%s, %s: %s', a.name, b.name, x))
FROM kinds a, kinds b, LATERAL (SELECT (a.n * 7 + b.n * 3 + i * 5)::int & 15 AS x FROM generate_series(1, 2) i) d;

-- a key of exact columns is exact
SELECT is(rowkey_check('SELECT a.v v1, b.v v2, c.v v3 FROM int8_ends a, int4 b, uuid_ends c', o), 'exact', o)
FROM unnest(ARRAY['v1, v2, v3', 'v3 DESC, v1 NULLS FIRST, v2 DESC NULLS LAST', 'v2 DESC, v3 NULLS FIRST, v1 DESC']) o;
-- columns whose values share words at both ends of the range, with a column after them
SELECT is(rowkey_check('SELECT a.v v1, b.v v2, c.v v3 FROM int8 a, int8 b, int2 c', o), 'lossy', o)
FROM unnest(ARRAY['v1, v2, v3', 'v1 DESC, v2 DESC, v3', 'v1 NULLS FIRST, v2 DESC NULLS LAST, v3']) o;
-- the words of a text under ICU are the last words of a key
SELECT is(rowkey_check('SELECT a.v v1, b.v v2 FROM (SELECT v FROM icu WHERE v IS NULL) a, int4 b', 'v1, v2'), 'lossy', 'NULL under ICU and another column');

SELECT is(rowkey_refusal(q, o), wanted, coalesce(wanted, 'no refusal: ' || q))
FROM (VALUES
	('SELECT v FROM int4', 'v', NULL),
	('SELECT v FROM icu', 'v', NULL),
	('SELECT v::text COLLATE libc AS v FROM text', 'v USING ~<~', NULL),
	('SELECT v FROM small', 'v', NULL),
	('SELECT v FROM small', 'v USING ~<~', 'type "citext" is not supported'),
	('SELECT v FROM int4', 'v USING ~~~<', 'the operator family of column 1 is not built in'),
	('SELECT ARRAY[v] AS v FROM int4', 'v', 'type integer[] is not supported'),
	('SELECT ARRAY[v] AS v FROM small', 'v', 'type "citext[]" is not supported'),
	('SELECT v::text::int2vector AS v FROM int4', 'v', 'type int2vector is not supported'),
	('SELECT int4range(v, NULL) AS v FROM int4', 'v', 'type int4range is not supported'),
	('SELECT int4multirange(int4range(v, NULL)) AS v FROM int4', 'v', 'type int4multirange is not supported'),
	('SELECT v::bit(9) AS v FROM int4', 'v', 'type bit is not supported'),
	('SELECT v::bit(9)::varbit AS v FROM int4', 'v', 'type bit varying is not supported'),
	('SELECT x AS v FROM int4 x', 'v', 'type "public.int4" is not supported'),
	('SELECT x AS v FROM int4 x', 'v USING *<', 'type "public.int4" is not supported'),
	('SELECT ROW(v, v) AS v FROM int4', 'v', 'type record is not supported'),
	('SELECT to_jsonb(v) AS v FROM int4', 'v', 'type jsonb is not supported'),
	('SELECT v COLLATE en AS v FROM name', 'v', 'column 1 of type name compares by ICU'),
	('SELECT a.v, b.v COLLATE libc AS t FROM int4 a, text b', 'v, t', NULL),
	('SELECT a.v, b.v COLLATE libc AS t FROM icu a, text b', 'v, t', NULL),
	('SELECT a.v, b.v COLLATE libc AS t FROM icu a, text b', 't, v', NULL)
	) cases(q, o, wanted);
-- a key may have 16 words, but not 17
SELECT is(rowkey_refusal('SELECT ' || columns || ' FROM int4', order_by), wanted, coalesce(wanted, 'no refusal: 16 columns'))
FROM (SELECT n, string_agg('v + ' || i || ' AS v' || i, ', ') AS columns, string_agg('v' || i, ', ') AS order_by
	  FROM (VALUES (16), (17)) limits(n), generate_series(1, n) i GROUP BY n) x
	 JOIN (VALUES (16, NULL), (17, 'the key of 17 columns is longer than 16 words')) cases(n, wanted) USING (n);
SELECT is(rowkey_check('SELECT ' || string_agg('v % ' || i || ' AS v' || i, ', ') || ' FROM short_numeric', string_agg('v' || i, ', ')),
	'exact', 'a key of 16 words') FROM generate_series(2, 9) i;

-- a sample makes words exact: of IPv6 networks, of few long strings, of strings with a common prefix
SELECT is(rowkey_sampled(format('SELECT v FROM inet %s', rows), 'v' || direction), wanted, format('inet%s %s with a sample', direction, rows))
FROM (VALUES ('WHERE family(v) = 4 OR v = network(v) OR v IS NULL', 'exact'), ('', 'lossy')) cases(rows, wanted), unnest(ARRAY['', ' DESC', ' NULLS FIRST']) direction;
SELECT is(rowkey_sampled(format('SELECT v FROM %I', name), 'v' || direction), 'exact', format('%s%s with a sample', name, direction))
FROM unnest(ARRAY['few_strings', 'prefixed', 'prefixed_bpchar', 'prefixed_bytea']) name, unnest(ARRAY['', ' DESC', ' NULLS FIRST']) direction;
SELECT is(rowkey_sampled(format('SELECT v, n FROM %I', name), 'v DESC, n'), wanted, format('%s and another column', name))
FROM (VALUES ('prefixed', 'exact'), ('few_strings', 'lossy'), ('few_icu', 'lossy')) cases(name, wanted);
-- words decide while strings of different bytes have different ones
SELECT is(rowkey_sampled(format('SELECT %s COLLATE nocase AS v FROM few_icu', v), 'v'), CASE WHEN rowkey_by_weights() THEN wanted ELSE 'lossy' END,
	format('few strings under ICU: %s', v))
FROM (VALUES ('lower(v)', 'exact'), ('v', 'cautious')) cases(v, wanted);
SELECT is(rowkey_sampled('SELECT v COLLATE en AS v FROM few_icu UNION ALL SELECT v || ''!'' COLLATE en AS v FROM few_icu', 'v'), 'lossy', 'strings that share words');
-- a prefix, behind which characters depend on its end, and strings that lack it
SELECT matches(rowkey_sampled(format('SELECT v COLLATE %I AS v FROM %s', name, strings), 'v'), '^(lossy|exact|cautious)$',
	format('prefix under ICU: %s, %s', name, strings))
FROM icu_collations, unnest(ARRAY['prefixed_c', 'prefixed_a', 'prefixed_han']) strings
-- here ICU's comparisons contradict each other
WHERE (name, strings) <> ('und-u-ka-shifted-kv-symbol', 'prefixed_han');

SELECT * FROM finish();
