\set n random(1000, 5000)
\set seed random(1, 1000000000)
SELECT load.sort_array(:client_id, :n, :seed);
