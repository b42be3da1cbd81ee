\set n random(20000, 100000)
BEGIN;
SET LOCAL gpusort.memory_limit = '1MB';
SELECT load.order_by(:client_id, 'spill', :n);
COMMIT;
