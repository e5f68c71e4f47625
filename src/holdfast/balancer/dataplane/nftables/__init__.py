"""nftables: VIPs in a table of our own, on any Linux kernel that has nftables and connection tracking."""

from __future__ import annotations

from holdfast.balancer.dataplane.nftables.connection import Kernel, KernelError
from holdfast.balancer.dataplane.nftables.dataplane import Nftables
from holdfast.balancer.dataplane.nftables.ruleset import Shape

__all__ = ["Nftables", "Shape", "refusal_of_nftables"]


def refusal_of_nftables(table: str) -> str | None:
    """One sentence why this process cannot use it, if so."""
    try:
        Kernel(table).close()
    except KernelError as error:
        return str(error)
    return None
