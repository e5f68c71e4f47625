"""Messages of the stream, and what a client that comes back has missed. Pure.

Most messages are levels: the newest one of an event replaces those before it. Increments (changed cells, new
decisions) are kept, up to a bound; a client that has missed more gets the levels that they add up to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

_MOST = 2_000
_MOST_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class StreamMessage:
    number: int
    event: str
    data: str


class StreamReplay:
    """`epoch` tells this process from the one before it: its numbers mean nothing here."""

    def __init__(self, epoch: str, most: int = _MOST, most_bytes: int = _MOST_BYTES) -> None:
        self._epoch = epoch
        self._most, self._most_bytes = most, most_bytes
        self._levels: dict[str, StreamMessage] = {}
        self._sums: dict[str, StreamMessage] = {}
        """The levels that increments add up to."""
        self._increments: deque[StreamMessage] = deque()
        self._bytes = 0
        self._dropped = 0
        """Number of the newest increment that is no longer kept."""
        self.newest = 0

    def level(self, event: str, data: str) -> bool:
        """Replace the level of an event. Returns False if it is the same as before."""
        if event in self._levels and self._levels[event].data == data:
            return False
        self._levels[event] = self._next(event, data)
        return True

    def increment(self, event: str, data: str, total: tuple[str, str]) -> None:
        """Add an increment; `total` is event and data of the level with it."""
        one = self._next(event, data)
        self._increments.append(one)
        self._sums[total[0]] = StreamMessage(one.number, *total)
        self._bytes += len(data)
        while len(self._increments) > self._most or self._bytes > self._most_bytes:
            gone = self._increments.popleft()
            self._dropped, self._bytes = gone.number, self._bytes - len(gone.data)

    def forget(self, *sums: str) -> None:
        """Forget all levels, these sums and all increments: nobody has kept them up to date.

        They are sent once they are read again, also if they are the same then. Every client starts anew.
        """
        self._levels.clear()
        self._increments.clear()
        self._dropped, self._bytes = self.newest, 0
        kept = [one for event, one in self._sums.items() if event not in sums]
        self._sums = {one.event: self._next(one.event, one.data) for one in kept}

    def id_of(self, message: StreamMessage) -> str:
        return f"{self._epoch}-{message.number}"

    def number_of(self, last_id: str) -> int | None:
        """Return the number in an id; None if it is not one of this process."""
        epoch, _, number = last_id.rpartition("-")
        known = epoch == self._epoch and number.isascii() and number.isdecimal() and len(number) < 16
        return int(number) if known and int(number) <= self.newest else None

    def after(self, number: int | None) -> Sequence[StreamMessage]:
        """Return what a client that has seen everything up to `number` needs, in order; None: it has seen nothing."""
        if number is None or number < self._dropped:
            found = [*self._levels.values(), *self._sums.values()]
        else:
            newer = [one for one in self._levels.values() if one.number > number]
            found = [*newer, *(one for one in self._increments if one.number > number)]
        return sorted(found, key=lambda one: one.number)

    def _next(self, event: str, data: str) -> StreamMessage:
        self.newest += 1
        return StreamMessage(self.newest, event, data)
