"""Own writes must come back: how a watch stream that is silently dead is told from one on which nothing happens (C38).

A stream also watches a key that this process writes anyway. `OwnWriteCheck` remembers the oldest write that the
stream has not
shown yet; when that is two intervals old, the stream is dead. Pure: time is handed in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.model.base.time import NEVER, Instant
from holdfast.store.api import OwnKey


@dataclass(slots=True)
class OwnWriteCheck:
    """The own key of one stream: what was written, what came back."""

    own: OwnKey
    seen: int = 0
    _awaited: int = 0
    _since: Instant = NEVER
    _last_write: Instant = NEVER

    def reopened(self, revision: int) -> None:
        """A new stream watches from here on; what was written before will not be shown again."""
        self.seen = max(self.seen, revision)
        self._awaited = 0

    def wrote(self, revision: int, now: Instant) -> None:
        """This process has written the key."""
        self._last_write = now
        self.exists(revision, now)

    def exists(self, revision: int, now: Instant) -> None:
        """The key stands at this revision, whoever wrote it: the stream has to show it."""
        if revision > self.seen and not self._awaited:
            self._awaited, self._since = revision, now

    def came_back(self, revision: int) -> None:
        self.seen = max(self.seen, revision)
        if self._awaited <= self.seen:
            self._awaited = 0

    def unwritten(self, now: Instant) -> bool:
        """Nobody in this process has written the key for two intervals: someone else does, so it has to be read."""
        return now - self._last_write > 2 * self.own.interval

    def missing(self, now: Instant) -> int:
        """The revision of an own write that should have come back by now, or 0."""
        overdue = self._awaited and now - self._since > 2 * self.own.interval
        return self._awaited if overdue else 0


@dataclass(slots=True)
class OwnWrites:
    """Hands every write of this process to the streams that wait for it."""

    _echoes: dict[bytes, list[OwnWriteCheck]] = field(default_factory=dict)

    def add(self, echo: OwnWriteCheck) -> None:
        self._echoes.setdefault(echo.own.key, []).append(echo)

    def remove(self, echo: OwnWriteCheck) -> None:
        echoes = self._echoes[echo.own.key]
        echoes.remove(echo)
        if not echoes:
            del self._echoes[echo.own.key]

    def __bool__(self) -> bool:
        return bool(self._echoes)

    def note(self, keys: Iterable[bytes], revision: int, now: Instant) -> None:
        for key in keys:
            for echo in self._echoes.get(key, ()):
                echo.wrote(revision, now)
