"""Agreement: which peers have another table than this balancer, for long enough to mean something.

Balancers hear of the same change seconds apart, and one that compares again only every sync interval may follow later
still. So a peer counts as differing once its table has differed for `settle` without a break. A peer that only lags,
and has a table that was ours within that time, agrees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.balancer.peers.digest import Digests
from holdfast.model.base.time import Duration, Instant


@dataclass(slots=True)
class Agreement:
    settle: Duration
    _own: dict[str, Instant] = field(default_factory=dict)
    """When this balancer last had each of its tables."""
    _since: dict[str, Instant] = field(default_factory=dict)
    """Since when each peer has had another table."""

    def differing(self, ours: Digests, peers: Mapping[str, Digests], now: Instant) -> dict[str, tuple[str, ...]]:
        """Peers whose table differs, each with the inputs that differ."""
        self._own = {table: at for table, at in self._own.items() if now - at <= self.settle} | {ours.table: now}
        others = {name: peer for name, peer in peers.items() if peer.table not in self._own}
        self._since = {name: self._since.get(name, now) for name in others}
        return {name: ours.differing(peer) for name, peer in others.items() if now - self._since[name] >= self.settle}
