-- pg_partman: partitions that it makes and fills, sorted each alone and all together.

CREATE TABLE parts (id int NOT NULL, k int, t text COLLATE "C") PARTITION BY RANGE (id);
CREATE INDEX ON parts (k, id);
CREATE TABLE parts_template (LIKE parts);
ALTER TABLE parts_template ADD PRIMARY KEY (id);
SELECT partman.create_parent(p_parent_table => 'public.parts', p_control => 'id', p_interval => '10000', p_template_table => 'public.parts_template',
    p_type => CASE WHEN extversion < '5' THEN 'native' ELSE 'range' END)
  FROM pg_extension WHERE extname = 'pg_partman';
INSERT INTO parts SELECT id, k, t FROM items;
CALL partman.run_maintenance_proc();
ANALYZE parts;

\echo == the partitions
SELECT tableoid::regclass, count(*) FROM parts GROUP BY 1 ORDER BY 1;
SELECT must(check_indexes() > 8, 'their indexes are right');

\echo == all rows
SELECT sorted('SELECT * FROM parts ORDER BY t', 'Append');
SELECT sorted('SELECT * FROM parts WHERE id BETWEEN 5000 AND 15000 ORDER BY t', 'Append');
SELECT count(*), md5(string_agg(p::text, ',')) FROM (SELECT * FROM parts ORDER BY k, id OFFSET 0) AS p;
SELECT id, k FROM parts ORDER BY id DESC LIMIT 3;

\echo == partitionwise joins and groups
SET enable_partitionwise_join = on;
SET enable_partitionwise_aggregate = on;
SET enable_hashjoin = off;
SET enable_hashagg = off;
SELECT sorted('SELECT a.id, b.t FROM parts AS a JOIN parts AS b ON a.id = b.id AND a.k = b.k ORDER BY b.t');
SELECT sorted('SELECT k % 50 AS m, min(t), count(DISTINCT id) FROM parts GROUP BY 1 ORDER BY 2');

\echo == more partitions, and rows out of the default one
INSERT INTO parts SELECT id + 100000, k, t FROM items WHERE id < 15000;
CALL partman.partition_data_proc('public.parts');
CALL partman.run_maintenance_proc();
SELECT tableoid::regclass, count(*) FROM parts GROUP BY 1 ORDER BY 1;
SELECT sorted('SELECT * FROM parts ORDER BY t, id', 'Append'), must(check_indexes() > 8, 'indexes are right');
