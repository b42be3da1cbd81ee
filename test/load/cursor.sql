SELECT load.glance(:client_id);
