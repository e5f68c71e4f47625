"""Notices, inside Neutron's API, that no server writes its changes to etcd. No neutron import.

Without `neutron-periodic-workers` nothing of Holdfast runs beside the driver, and changes would wait in the outbox in
silence. So each API process looks at the oldest row of the outbox from time to time. Only if the same row has waited
for a minute is etcd asked whether anybody leads: a leader that holds a change says so itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.model.base.time import NEVER, Duration, Instant

LOOK_EVERY = Duration(seconds=20)
PATIENCE = Duration(seconds=60)
WARN_EVERY = Duration(minutes=5)


@dataclass
class UnattendedOutbox:
    """`problem` asks etcd, and returns why nobody leads, or ""."""

    problem: Callable[[], str]
    _looked: Instant = field(default=NEVER, init=False)
    _oldest: int | None = field(default=None, init=False)
    _since: Instant = field(default=NEVER, init=False)
    _warned: Instant = field(default=NEVER, init=False)

    def look(self, oldest: Callable[[], int | None], now: Instant) -> str:
        """Return a warning, or "". `oldest` returns the id of the oldest row; it is called every 20 s at most."""
        if self._looked and now - self._looked < LOOK_EVERY:
            return ""
        self._looked, found = now, oldest()
        if found is None or found != self._oldest:
            self._oldest, self._since = found, now
            return ""
        if now - self._since < PATIENCE or (self._warned and now - self._warned < WARN_EVERY):
            return ""
        self._warned = now
        why = self.problem()
        waited = round((now - self._since).total_seconds())
        return f"changes have waited for {waited} s and do not reach etcd: {why}" if why else ""
