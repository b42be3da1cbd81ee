SELECT load.order_by(:client_id, 'travel', 300000);
