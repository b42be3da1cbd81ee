-- Row keys of text under the database's default collation.  :comparer says what compares
-- text there (libc, bytes or icu), and :module is the module of rowkey_test.c.
\ir include/setup.psql
CREATE OR REPLACE FUNCTION rowkey_check(query text, order_by text) RETURNS text
	LANGUAGE c STRICT AS :'module', 'rowkey_check';
CREATE OR REPLACE FUNCTION rowkey_refusal(query text, order_by text) RETURNS text
	LANGUAGE c STRICT AS :'module', 'rowkey_refusal';
CREATE OR REPLACE FUNCTION rowkey_by_weights() RETURNS bool
	LANGUAGE c STRICT AS :'module', 'rowkey_by_weights';
CREATE TEMPORARY TABLE strings (t text, v varchar, b bpchar, n name);
INSERT INTO strings
SELECT s, s, s, s FROM unnest(ARRAY['', 'a', 'A', 'b', 'B', 'aB', 'Ab', 'a b', 'a-b', 'ab', 'Z', 'zz', NULL]) s;

SELECT * FROM no_plan();
SELECT :'comparer' = 'libc' AS libc \gset
\if :libc
-- C.UTF-8 orders by bytes in some versions of libc; in others the words only propose this order
SELECT is(rowkey_refusal('SELECT * FROM strings', c), NULL, c || ' is not refused')
FROM unnest(ARRAY['t', 'v', 'b', 't DESC', 't, n']) c;
SELECT ok(rowkey_check('SELECT * FROM strings', c) IN ('exact', 'lossy', 'cautious'), c)
FROM unnest(ARRAY['t', 'v', 'b', 't DESC', 't, n']) c;
\else
SELECT is(rowkey_check('SELECT * FROM strings', c), CASE WHEN :'comparer' = 'bytes' THEN 'exact'
	-- the weights of a and A are equal
	WHEN rowkey_by_weights() THEN 'lossy' ELSE 'cautious' END, c)
FROM unnest(ARRAY['t', 'v', 'b', 't DESC', 'v NULLS FIRST', 'b DESC NULLS LAST']) c;
\endif
SELECT is(rowkey_check('SELECT * FROM strings', c), 'exact', c) FROM unnest(ARRAY['n', 't USING ~<~', 'b USING ~>~']) c;
SELECT * FROM finish();
