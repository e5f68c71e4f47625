"""Embedded etcd: find the binary, run it, check that the port is ours."""
