-- postgres_fdw: the other side sorts, or this one does.

CREATE SERVER other FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host :'HOST', port :'PORT', dbname :'DBNAME');
CREATE USER MAPPING FOR CURRENT_USER SERVER other OPTIONS (user :'USER');
CREATE SCHEMA far;
IMPORT FOREIGN SCHEMA public LIMIT TO (items, prices) FROM SERVER other INTO far;
ANALYZE far.items;

\echo == the other side sorts
SELECT must(plan_of('SELECT * FROM far.items ORDER BY n, id') ~ '^Foreign Scan.*Remote SQL: .* ORDER BY n ', 'ORDER BY is pushed down');
SELECT done('sort') AS before \gset
SELECT count(*), md5(string_agg(r::text, ',')) FROM (SELECT * FROM far.items ORDER BY n, id OFFSET 0) AS r;
SELECT must(done('sort') > :before, 'gpusort does it');
SELECT id, n FROM far.items ORDER BY n DESC NULLS LAST, id LIMIT 5;

\echo == this side sorts
SELECT sorted('SELECT * FROM far.items ORDER BY plan_of(''SELECT 1''), t', 'Foreign Scan');
SELECT sorted('SELECT * FROM (SELECT * FROM far.items OFFSET 0) AS s ORDER BY ts, id', 'Foreign Scan');

\echo == joins
SET enable_hashjoin = off;
SET enable_nestloop = off;
SELECT sorted('SELECT i.id, f.t, i.n FROM items AS i JOIN far.items AS f ON f.t = i.t ORDER BY i.n, i.id', 'Merge Join.*Foreign Scan');
SELECT sorted('SELECT f.id, price FROM far.items AS f JOIN prices AS p ON p.k = f.k ORDER BY price, f.id', 'Foreign Scan');
SELECT count(*), md5(string_agg(r::text, ',')) FROM (SELECT f.id, price FROM far.items AS f JOIN far.prices AS p ON p.k = f.k ORDER BY price, f.id OFFSET 0) AS r;

\echo == writing in order
CREATE TABLE received (place serial, id int, t text);
CREATE FOREIGN TABLE far.received (id int, t text) SERVER other OPTIONS (schema_name 'public', table_name 'received', batch_size '100');
INSERT INTO far.received SELECT id, t FROM items WHERE k < 100 ORDER BY t;
SELECT count(*), md5(string_agg(id::text, ',' ORDER BY place)) FROM received;
