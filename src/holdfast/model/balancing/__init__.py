"""Load-balancing kinds: frontends, backends, health checks."""
