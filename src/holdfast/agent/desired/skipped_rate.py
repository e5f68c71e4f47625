"""Rate at which an agent's watch delivers changes of other kinds, which it skips. Pure.

The watch covers every key between migrations and endpoints, in a shared etcd also policies and other regions. Each such
change costs etcd a delivery to every agent, so a fleet with many of them does not scale by this watch.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from holdfast.model.base.time import Duration, Instant

WINDOW = Duration(seconds=60)
SHORTEST = Duration(seconds=20)
"""Least time from which a rate is computed: a burst at a start is none."""


@dataclass(slots=True)
class SkippedRate:
    _totals: deque[tuple[Instant, int]] = field(default_factory=deque)

    def note(self, total: int, now: Instant) -> None:
        """Note the number of changes skipped so far."""
        self._totals.append((now, total))
        while now - self._totals[0][0] > WINDOW:
            self._totals.popleft()

    @property
    def per_second(self) -> float:
        """Changes per second over the last minute; 0 while too little is known."""
        if not self._totals:
            return 0.0
        (began, before), (ended, after) = self._totals[0], self._totals[-1]
        passed = ended - began
        return (after - before) / passed.total_seconds() if passed >= SHORTEST else 0.0
