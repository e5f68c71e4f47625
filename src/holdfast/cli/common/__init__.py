"""Shared parts of the commands: configuration flags, control socket, access to etcd, output format."""
