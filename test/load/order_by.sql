\set n random(10000, 100000)
SELECT load.order_by(:client_id, 'order by', :n);
