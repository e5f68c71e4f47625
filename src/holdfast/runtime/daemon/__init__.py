"""Daemon runtime: read `supervisor` (with `pulse` and `restart`), then `worker`, `board` and `report`."""
