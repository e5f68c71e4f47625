"""Real services for tests, cleaned up after use: etcd, PostgreSQL, nginx, namespaces, daemons."""
