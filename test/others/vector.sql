-- pgvector: its operators give orders by distance, and its type has a btree order.

CREATE TABLE points (id int PRIMARY KEY, embedding vector(3));
INSERT INTO points SELECT id, format('[%s,%s,%s]', k % 10, id % 100, coalesce(n, 0))::vector FROM items WHERE id <= 5000;
ANALYZE points;

\echo == by distance, without an index
SELECT id FROM points ORDER BY embedding <-> '[3,50,7]', id LIMIT 10;
SELECT sorted('SELECT id FROM points ORDER BY embedding <=> ''[3,50,7]'', id');

\echo == by distance, with an index
CREATE INDEX points_l2 ON points USING ivfflat (embedding vector_l2_ops) WITH (lists = 1);
SELECT must(plan_of('SELECT id FROM points ORDER BY embedding <-> ''[3,50,7]'' LIMIT 10') ~ 'Index Scan using points_l2', 'it is used');
SELECT embedding <-> '[3,50,7]' FROM points ORDER BY embedding <-> '[3,50,7]' LIMIT 10;
SELECT id FROM (SELECT * FROM points ORDER BY embedding <-> '[3,50,7]' LIMIT 10) AS nearest ORDER BY embedding <-> '[3,50,7]', id;
DROP INDEX points_l2;
CREATE INDEX points_hnsw ON points USING hnsw (embedding vector_l2_ops);
SELECT must(plan_of('SELECT id FROM points ORDER BY embedding <-> ''[3,50,7]'' LIMIT 10') ~ 'Index Scan using points_hnsw', 'it is used');
SELECT count(*) FROM (SELECT id FROM points ORDER BY embedding <-> '[3,50,7]' LIMIT 10) AS nearest;

\echo == a column of vectors
SELECT count(*), md5(string_agg(id::text, ',')) FROM (SELECT id FROM points ORDER BY embedding, id OFFSET 0) AS s;
SELECT count(DISTINCT embedding) FROM points;
CREATE UNIQUE INDEX points_btree ON points (embedding, id);
SELECT must(plan_of('SELECT id FROM points ORDER BY embedding, id LIMIT 5') ~ 'Index (Only )?Scan using points_btree', 'its index is used');
SELECT id FROM points ORDER BY embedding, id LIMIT 5;
SELECT sorted('SELECT id, embedding FROM points ORDER BY id % 10, id'), must(check_indexes() > 1, 'indexes are right');
