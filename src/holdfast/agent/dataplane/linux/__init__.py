"""Dataplane on Linux: nexthops, routes, neighbours, tunnels and rules of one network namespace.

Reading order: `dataplane`, `snapshot`, `apply`, `routes`, `vxlan`, `devices`, `event_socket`, `event_handler`.
"""

from __future__ import annotations

from holdfast.agent.dataplane.linux.dataplane import LinuxDataplane

__all__ = ["LinuxDataplane"]
