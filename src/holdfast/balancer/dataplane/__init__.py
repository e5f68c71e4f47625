"""Dataplanes of the balancer: the protocol (`api`), the choice (`open`), nftables, a dry run."""
