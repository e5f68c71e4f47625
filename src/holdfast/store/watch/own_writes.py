"""Own writes on a watch stream: they distinguish a dead stream from an idle one (C38), and show how far it came (C52).

A stream also watches a key that this process writes anyway. `OwnWriteCheck` remembers the oldest write that the stream
has not delivered yet; once that is two intervals old, the stream is dead. `QuietPlace` finds the revision from which a
quiet watch may resume. Pure: time is passed in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.model.base.time import NEVER, Instant
from holdfast.store.api import Event, OwnKey

SETTLED_S = 1.0
"""Least time after which nothing from before an own write can still be on its way."""


@dataclass(slots=True)
class OwnWriteCheck:
    """The own key of one stream: what was written, what the stream delivered."""

    own: OwnKey
    seen: int = 0
    _awaited: int = 0
    _since: Instant = NEVER
    _last_write: Instant = NEVER

    def reopened(self, revision: int) -> None:
        """Start over with a new stream from this revision; it will not deliver earlier writes."""
        self.seen = max(self.seen, revision)
        self._awaited = 0

    def wrote(self, revision: int, now: Instant) -> None:
        """Record a write of this process, or of another one of the same daemon."""
        if revision >= self.seen:  # an older one proves nothing: the store may have been restored since
            self._last_write = now
        self.exists(revision, now)

    def exists(self, revision: int, now: Instant) -> None:
        """Record that the key has this revision, whoever wrote it: the stream has to deliver it."""
        if revision > self.seen and not self._awaited:
            self._awaited, self._since = revision, now

    def delivered(self, revision: int) -> None:
        self.seen = max(self.seen, revision)
        if self._awaited <= self.seen:
            self._awaited = 0

    def unwritten(self, now: Instant) -> bool:
        """Return True if no write of the key is known for so long that the stream has to be checked by other means."""
        return now - self._last_write > self.own.quiet_after

    def missing(self, now: Instant) -> int:  # protection: C38
        """Return the revision of an own write that is overdue on the stream, or 0."""
        overdue = self._awaited and now - self._since > 2 * self.own.interval
        return self._awaited if overdue else 0


@dataclass(slots=True)
class QuietPlace:
    """The last own write by which everything under the prefix has been delivered, on one stream.

    etcd keeps no order between two watches of a stream: one that catches up, or whose events found the stream full, is
    served again every 10 to 100 ms. So an own write counts once two intervals have passed without a change under the
    prefix. That delay costs nothing, because history is kept for much longer."""

    own: OwnKey
    _write: Event | None = None
    _since: float = 0.0

    def reopened(self) -> None:
        """Start over with a new stream, or after a change under the prefix."""
        self._write = None

    def delivered(self, write: Event, now: float) -> Event | None:  # protection: C52
        """Record that an own write came back; return an earlier one from which the watch may resume."""
        if self._write is None:
            self._write, self._since = write, now
            return None
        if now - self._since < max(SETTLED_S, 2 * self.own.interval.total_seconds()):
            return None
        settled, self._write, self._since = self._write, write, now
        return settled


@dataclass(slots=True)
class OwnWrites:
    """Reports every write of this process to the streams that wait for it."""

    _checks: dict[bytes, list[OwnWriteCheck]] = field(default_factory=dict)

    def add(self, check: OwnWriteCheck) -> None:
        self._checks.setdefault(check.own.key, []).append(check)

    def remove(self, check: OwnWriteCheck) -> None:
        checks = self._checks[check.own.key]
        checks.remove(check)
        if not checks:
            del self._checks[check.own.key]

    def __bool__(self) -> bool:
        return bool(self._checks)

    def note(self, keys: Iterable[bytes], revision: int, now: Instant) -> None:
        for key in keys:
            for check in self._checks.get(key, ()):
                check.wrote(revision, now)
