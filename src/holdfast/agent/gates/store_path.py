"""The path gate: what carries our own way to the store goes last, after a hold-down.

An agent that removes the route to its store learns nothing any more, not even that it was wrong (N13). So the routes
that cover a store's address, and all that they lean on, are removed only after everything else has had its time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address

from holdfast.agent.claims import Claim, ClaimKey, ClaimKind, leans_on
from holdfast.agent.gates.dependents import Present
from holdfast.model.base.time import Duration, Instant
from holdfast.reconcile import Change, Closed, Op, Reason

HOLD_DOWN = Duration(seconds=30)
_BETWEEN = Duration(seconds=30)
"""Two looks at what is held are about a second apart, and more where very much is held."""


class StorePathReason(Reason):
    STORE_BEHIND_IT = "the way to the store goes over it, so it goes last"


@dataclass
class StorePathGate:
    """The gate. `stores` are the addresses at which the store is reached now."""

    present: Present
    stores: Callable[[], Collection[str]]
    hold_down: Duration = HOLD_DOWN
    _waiting: dict[ClaimKey, tuple[Instant, Instant]] = field(default_factory=dict)
    """Since when each has waited, and when it was last asked for."""
    _known: tuple[int, Collection[str]] = (-1, ())
    _carrying: frozenset[ClaimKey] = frozenset()

    def judge(self, change: Change[ClaimKey, Claim], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        if change.op is not Op.DELETE or change.key not in self._on_path():
            return None
        since, last = self._waiting.get(change.key, (now, now))
        if now - last > self.hold_down + _BETWEEN:
            since = now  # it was wanted meanwhile
        self._waiting[change.key] = since, now
        if now - since >= self.hold_down:
            return None
        opens = f"{self.hold_down.total_seconds():g} s in which it is still not wanted"
        return Closed("path", StorePathReason.STORE_BEHIND_IT, since, opens, str(change.key))

    def _on_path(self) -> frozenset[ClaimKey]:
        known = self.present.version, self.stores()
        if known != self._known:
            self._known, self._carrying = known, on_path(self.present, known[1])
        return self._carrying


def on_path(present: Present, stores: Collection[str]) -> frozenset[ClaimKey]:
    """The present objects that carry traffic to one of these addresses."""
    found: set[ClaimKey] = set()
    for store in stores:
        for key in _covering(store):
            while key in present.claims and key not in found:
                found.add(key)
                foot = leans_on(key, present.claims[key].value.shape)
                if foot is None:
                    break
                key = foot
    return frozenset(found)


def _covering(address: str) -> list[ClaimKey]:
    """The keys of all routes that could carry traffic to that address, most specific first."""
    parsed = ip_address(address)
    bits = 128 if isinstance(parsed, IPv6Address) else 32
    number = int(parsed)
    return [
        ClaimKey(ClaimKind.ROUTE, parsed.version, number >> bits - length << bits - length, length)
        for length in range(bits, -1, -1)
    ]
