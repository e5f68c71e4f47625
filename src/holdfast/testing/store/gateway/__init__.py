"""etcd's JSON gateway in memory: real bytes in and out, on connections that a virtual loop makes (`network`)."""
