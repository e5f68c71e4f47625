"""Dataplanes of the agent: `api` is the protocol, `linux` programs a kernel, `file` stands in for one, `open`
chooses."""
