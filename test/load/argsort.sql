\set n random(10000, 40000)
\set seed random(1, 1000000000)
SELECT load.argsort(:client_id, :n, :seed);
