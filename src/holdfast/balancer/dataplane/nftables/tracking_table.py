"""Fill of the kernel's table of connections, in the network namespace of this process.

A full table drops the first packet of every new flow, whatever its backend: for clients every VIP is down at once.
Each namespace counts its own connections; the limit is one number of the machine.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.balancer.dataplane.api import TrackedFlows

_FOLDER = Path("/proc/sys/net/netfilter")


def tracked_flows() -> TrackedFlows | None:
    """Return None where the kernel tracks no connections."""
    try:
        count, most = (int((_FOLDER / f"nf_conntrack_{name}").read_text()) for name in ("count", "max"))
    except FileNotFoundError:
        return None
    return TrackedFlows(count, most)
