"""Daemon runtime: read `supervisor` (with `pulse` and `restart`), `worker`, `board`, `report`."""
