"""Fake etcd: tests use `fake` and `client`."""
