"""nftables: VIPs in a table of our own, on any Linux kernel that has nftables and connection tracking."""

from __future__ import annotations

from holdfast.balancer.dataplane.nftables.kernel import Kernel, KernelError
from holdfast.balancer.dataplane.nftables.plane import Nftables
from holdfast.balancer.dataplane.nftables.structure import Shape

__all__ = ["KernelError", "Nftables", "Shape", "open_nftables"]


def open_nftables(table: str, size: int, *, snat: bool = False) -> Nftables:
    """The dataplane in this process's network namespace. Raises `KernelError`: one sentence."""
    return Nftables(Kernel(table), Shape(table, size, snat))
