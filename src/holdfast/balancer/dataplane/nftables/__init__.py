"""nftables: VIPs in a table of our own, on any Linux kernel that has nftables and connection tracking."""

from __future__ import annotations

from holdfast.balancer.dataplane.nftables.connection import NftConnection, NftError
from holdfast.balancer.dataplane.nftables.dataplane import NftablesDataplane
from holdfast.balancer.dataplane.nftables.ruleset import TableShape

__all__ = ["NftablesDataplane", "TableShape", "refusal_of_nftables"]


def refusal_of_nftables(table: str) -> str | None:
    """Explain in one sentence why this process cannot use nftables; None when it can."""
    try:
        NftConnection(table).close()
    except NftError as error:
        return str(error)
    return None
