"""Connection to the balancer's table and to connection tracking, over one netlink socket."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Set

from holdfast.balancer.dataplane.api import Client
from holdfast.balancer.dataplane.nftables import conntrack
from holdfast.balancer.dataplane.nftables.conntrack import Flows
from holdfast.balancer.vip import Vip
from holdfast.netlink.nftables.connection import NftError, NftTable, raise_if_refused

__all__ = ["NftConnection", "NftError"]


class NftConnection(NftTable):
    def __init__(self, table: str) -> None:
        super().__init__(table, "choose another balancer.dataplane")

    def count_flows(self, mark: int | None = None) -> Mapping[int, Flows]:
        """Count the current flows of each of our marks, or of one mark."""
        return conntrack.by_mark(self.dump(conntrack.listing(mark)))

    def end_flows(self, mark: int) -> None:
        for message in self.exchange(conntrack.ending(mark)):
            raise_if_refused(message, but=errno.ENOENT)

    def end_undispatched_flows(self, vips: Set[Vip]) -> None:
        """End unanswered flows to these VIPs that began before packets were dispatched to them."""
        for request in conntrack.ending_undispatched(self.dump(conntrack.listing(0)), vips):
            for message in self.exchange(request):
                raise_if_refused(message, but=errno.ENOENT)

    def mark_of_flow(self, vip: Vip, client: Client) -> int | None:
        """Mark of a client's established flow to a VIP; None when there is none."""
        answers = self.exchange(conntrack.finding(vip, client))
        for message in answers:
            raise_if_refused(message, but=errno.ENOENT)
        return conntrack.mark_in(answers)
