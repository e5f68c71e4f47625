"""Handover gate: with `routing: bgp`, keeps what `mesh` programmed until another program routes those prefixes. Pure.

After a change of `routing` nothing of another host is wanted any more, and the BGP daemon may not have its routes yet.
So the route of a peer goes once the main table has one for that prefix, and the rule of a table that is left once main
has a route for every prefix in it. A route that is never taken over is harmless: nobody has that address.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass

from holdfast.agent.claims import Claim, ClaimKey, ClaimKind, FdbEntry, NeighbourEntry, NexthopEntry, RemoteRoute
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.reconcile import Away, Change, Closed, Op, Reason

MAIN = 254
_AGE = Duration(seconds=1)
"""Age up to which a read of the main table is used."""

RoutesIn = Callable[[int], Set[ClaimKey]]
"""Returns the routes of a table, of whatever program. Raises `Away`."""


class HandoverReason(Reason):
    NOT_TAKEN_OVER = "the BGP daemon has no route for it in the main table yet"


@dataclass
class HandoverGate:
    routes_in: RoutesIn
    _main: Set[ClaimKey] = frozenset()
    _read: Instant = NEVER

    def judge(self, change: Change[ClaimKey, Claim], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        if change.new is not None or change.old is None or change.old.value.missing:
            return None
        try:
            detail = self._lost(change, now)
        except Away as away:
            detail = str(away)
        if not detail:
            return None
        opens = "wait until BIRD or FRR has a route for it; if nobody has that prefix any more: ip route del"
        return Closed("handover", HandoverReason.NOT_TAKEN_OVER, now, opens, detail)

    def _lost(self, change: Change[ClaimKey, Claim], now: Instant) -> str:
        """Describe the prefixes that would have no route without this object; empty if there are none."""
        key = change.key
        if key.kind is ClaimKind.RULE:
            left = {one for one in self.routes_in(key.number) if one.family == key.family}
            lost = len(left - self._main_table(now))
            return f"{lost:,} prefixes of table {key.number}" if lost else ""
        is_awaited = change.old is not None and is_workloads(change.old.value)
        return str(key) if is_awaited and key not in self._main_table(now) else ""

    def _main_table(self, now: Instant) -> Set[ClaimKey]:
        if not self._read or now - self._read > _AGE:
            self._main = self.routes_in(MAIN)
            self._read = now
        return self._main


def is_workloads(claim: Claim) -> bool:
    """Return whether it is a route to a remote workload; nobody takes over one to the tunnel address of a host."""
    is_tunnels = claim.owner and not claim.owner.endpoint
    return isinstance(claim.shape, RemoteRoute) and not is_tunnels


def is_peers(change: Change[ClaimKey, Claim]) -> bool:
    """Return whether an object was programmed for another host."""
    peers = RemoteRoute | NexthopEntry | NeighbourEntry | FdbEntry
    return change.old is not None and isinstance(change.old.value.shape, peers)
