"""Transport to etcd's gateway: endpoints, HTTP, wire format, failures."""
