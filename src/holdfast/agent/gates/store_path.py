"""Store path gate: deletes what carries traffic to the store last, after a hold-down. Pure.

An agent that deletes the route to its store receives no further changes, not even a correction (N13). So the routes
that cover an address of the store, and everything they depend on, are deleted only when they have stayed unwanted for
the whole hold-down.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address

from holdfast.agent.claims import Claim, ClaimKey, ClaimKind, depends_on
from holdfast.agent.present import Present
from holdfast.model.base.time import Duration, Instant
from holdfast.reconcile import Change, Closed, Op, Reason

HOLD_DOWN = Duration(seconds=30)
_BETWEEN = Duration(seconds=30)
"""Longest plausible gap between two evaluations of a held delete: about a second, more where much is held."""


class StorePathReason(Reason):
    CARRIES_STORE_TRAFFIC = "traffic to the store uses it, so it is deleted last"


@dataclass
class StorePathGate:
    present: Present
    stores: Callable[[], Collection[str]]
    """Addresses at which the store is reached now."""
    hold_down: Duration = HOLD_DOWN
    _waiting: dict[ClaimKey, tuple[Instant, Instant]] = field(default_factory=dict)
    """Per key: since when it has been held, and when it was last evaluated."""
    _known: tuple[int, Collection[str]] = (-1, ())
    _carrying: frozenset[ClaimKey] = frozenset()

    def judge(self, change: Change[ClaimKey, Claim], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        if change.op is not Op.DELETE or change.key not in self._on_path():
            return None
        since, last = self._waiting.get(change.key, (now, now))
        if now - last > self.hold_down + _BETWEEN:
            since = now  # it was wanted in between
        self._waiting[change.key] = since, now
        if now - since >= self.hold_down:
            return None
        opens = f"wait until it has been unwanted for {self.hold_down.total_seconds():g} s"
        return Closed("path", StorePathReason.CARRIES_STORE_TRAFFIC, since, opens, str(change.key))

    def _on_path(self) -> frozenset[ClaimKey]:
        known = self.present.version, self.stores()
        if known != self._known:
            self._known, self._carrying = known, on_path(self.present, known[1])
        return self._carrying


def on_path(present: Present, stores: Collection[str]) -> frozenset[ClaimKey]:
    """Return the present objects that carry traffic to one of these addresses."""
    # protection: N13
    found: set[ClaimKey] = set()
    left = [key for store in stores for key in _covering(store)]
    while left:
        key = left.pop()
        if key in present.claims and key not in found:
            found.add(key)
            left += depends_on(key, present.claims[key].value.shape)
    return frozenset(found)


def _covering(address: str) -> list[ClaimKey]:
    """Keys of all routes that could carry traffic to that address, most specific first."""
    parsed = ip_address(address)
    bits = 128 if isinstance(parsed, IPv6Address) else 32
    number = int(parsed)
    return [
        ClaimKey(ClaimKind.ROUTE, parsed.version, number >> bits - length << bits - length, length)
        for length in range(bits, -1, -1)
    ]
