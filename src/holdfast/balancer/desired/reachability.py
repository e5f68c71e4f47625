"""Reachability: whether a missing route says something about one backend, or about this machine (B27).

A backend that this machine has no route to is failing if backends at other addresses pass: the network works, and this
backend is not in it. If none passes, the machine itself is cut off, and nothing is known of any backend. Passes from
before the route was missing prove little, because all routes may have gone at once: they make only the first result
count, later ones need a newer pass. The two newest passes at different addresses are enough to judge every address.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.model.base.time import NEVER, Duration, Instant


class _Pass(NamedTuple):
    """A passed probe, and when the next one of that target is overdue."""

    address: str
    at: Instant
    until: Instant


_NONE = _Pass("", NEVER, NEVER)


@dataclass(slots=True)
class Reachability:
    """The newest passes, the addresses without a route, and since when nothing but missing routes is reported."""

    cut_off_since: Instant | None = None
    """Instant of the first result without a route since any backend passed; None while one passes."""
    _newest: _Pass = _NONE
    _other: _Pass = _NONE
    """The newest pass at another address than the newest."""
    _without_route: dict[str, Instant] = field(default_factory=dict)
    """When the route to an address was first missing, since its last pass."""

    def on_pass(self, address: str, now: Instant, interval: Duration) -> None:
        if address != self._newest.address:
            self._other = self._newest
        self._newest = _Pass(address, now, now + 2 * interval)
        self.cut_off_since = None
        if self._without_route:
            self._without_route.pop(address, None)

    def is_failing(self, address: str, now: Instant) -> bool:
        """Judge a backend without a route (protection: B27)."""
        beside = self._other if self._newest.address == address else self._newest
        is_first = address not in self._without_route
        first = self._without_route.setdefault(address, now)
        if beside.address and now <= beside.until and (is_first or beside.at > first):
            return True
        if self.cut_off_since is None:
            self.cut_off_since = now
        return False
