-- PostGIS: geometry has a btree order, and GiST indexes that sort by themselves.

CREATE TABLE places (id int PRIMARY KEY, geom geometry(Point, 4326));
INSERT INTO places SELECT id, CASE WHEN id % 100 > 0 THEN ST_SetSRID(ST_MakePoint(k % 180, coalesce(n, 0) % 90), 4326) END FROM items;
ANALYZE places;

\echo == a column of geometry
SELECT sorted('SELECT id, geom FROM places ORDER BY geom, id');
SELECT sorted('SELECT id, geom FROM places ORDER BY geom DESC NULLS LAST, id DESC');
SELECT count(*), md5(string_agg(geom::text, ',')) FROM (SELECT DISTINCT geom FROM places ORDER BY geom OFFSET 0) AS s;
SELECT ST_AsText(ST_MakeLine(geom ORDER BY geom DESC)) FROM places WHERE id < 20;

\echo == values that functions make
SELECT sorted('SELECT id, ST_X(geom) FROM places ORDER BY ST_X(geom), ST_Y(geom), id');
SELECT sorted('SELECT id FROM places ORDER BY geom <-> ST_SetSRID(ST_MakePoint(10, 10), 4326), id');
SELECT sorted('SELECT ST_SnapToGrid(geom, 30) AS cell, count(*) FROM places GROUP BY 1 ORDER BY 2 DESC, 1');

\echo == a btree index
CREATE INDEX places_btree ON places (geom, id);
SELECT must(plan_of('SELECT id FROM places ORDER BY geom, id LIMIT 5') ~ 'Index (Only )?Scan using places_btree', 'it is used');
SELECT id FROM places ORDER BY geom, id LIMIT 5;
SELECT must(check_indexes() > 1, 'it is right');

\echo == a GiST index
CREATE INDEX places_gist ON places USING gist (geom);
SELECT must(plan_of('SELECT id FROM places ORDER BY geom <-> ''SRID=4326;POINT(10 10)'' LIMIT 5') ~ 'Index (Only )?Scan using places_gist', 'it is used');
SELECT ST_AsText(geom) FROM places ORDER BY geom <-> 'SRID=4326;POINT(10 10)' LIMIT 5;
SELECT sorted('SELECT id, geom FROM places WHERE geom && ST_MakeEnvelope(5, 5, 50, 50, 4326) ORDER BY geom, id', 'places_gist');
SELECT pg_relation_size('places_gist');

\echo == CLUSTER by a GiST index
CLUSTER places USING places_gist;
SELECT physical_order('places'), contents('places'), must(check_indexes() > 1, 'indexes are right');
