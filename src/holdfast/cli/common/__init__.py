"""Shared parts of the commands: configuration flags, control socket, etcd access, formatting."""
