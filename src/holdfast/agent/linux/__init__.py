"""The agent's dataplane on Linux: the nexthops, routes, neighbours, tunnels and rules of one network namespace."""

from __future__ import annotations

from holdfast.agent.linux.dataplane import LinuxDataplane
from holdfast.agent.linux.settings import Settings, TunnelEnd, tunnel_mac

__all__ = ["LinuxDataplane", "Settings", "TunnelEnd", "tunnel_mac"]
