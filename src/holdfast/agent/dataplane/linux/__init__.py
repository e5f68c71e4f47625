"""The agent's dataplane on Linux: the nexthops, routes, neighbours, tunnels and rules of one network namespace."""

from __future__ import annotations

from holdfast.agent.dataplane.linux.dataplane import LinuxDataplane

__all__ = ["LinuxDataplane"]
