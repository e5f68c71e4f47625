"""The rule that only the bound host of a port reports its status (C24). No neutron import."""

from __future__ import annotations

from typing import Any


def is_bound_to(plugin: Any, context: Any, port: str, host: str) -> bool:  # protection: C24
    """Ask Neutron just before a write: the port may have moved since its status was compared."""
    return bool(plugin.port_bound_to_host(context, port, host))
