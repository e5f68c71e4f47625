"""Dataplanes of the agent: the protocol (`api`), a file for labs (`file`), the Linux kernel (`linux`)."""
