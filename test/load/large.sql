SELECT load.sort_large(:client_id);
