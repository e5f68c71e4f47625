"""Changes that wait for their reader, coalesced to at most one per key, however far it is behind (rule 10).

A pending change is remembered as a key, never as a history. Live changes are returned before those that a snapshot has
brought.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from holdfast.model.base.time import Instant

T = TypeVar("T")


class PendingKey(msgspec.Struct, frozen=True, gc=False):
    """Time and revision of the first change of a key that the reader has not taken."""

    since: Instant
    revision: int


class Delta(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """Change of one key since its reader last took it, to `new`. Changed back in between, it is a change all the same:
    the reader may have seen the other object."""

    key: bytes
    new: T | None
    live: bool


@dataclass(slots=True)
class Pending:
    """All pending keys, oldest first."""

    _live: dict[bytes, PendingKey] = field(default_factory=dict)
    _listed: dict[bytes, PendingKey] = field(default_factory=dict)
    _promoted: dict[bytes, PendingKey] = field(default_factory=dict)
    """Live changes of keys that a snapshot had brought before: they have waited longer than the others."""

    def __len__(self) -> int:
        return len(self._live) + len(self._listed) + len(self._promoted)

    def __contains__(self, key: object) -> bool:
        return key in self._live or key in self._listed or key in self._promoted

    def changed(self, key: bytes, revision: int, now: Instant) -> None:
        """Add a live change. A key that is pending already keeps the time of its first change."""
        if key in self._live:
            return  # in a flood, nearly always
        if key in self._listed:
            self._promoted[key] = self._listed.pop(key)
        elif key not in self._promoted:
            self._live[key] = PendingKey(now, revision)

    def listed(self, differs: Mapping[bytes, PendingKey]) -> None:
        """Add the changes of a snapshot. Keys that are pending already keep the time of their first change."""
        if self:
            differs = {key: waiting for key, waiting in differs.items() if key not in self}
        self._listed |= differs

    def oldest(self) -> PendingKey | None:
        firsts = [next(iter(waiting.values())) for waiting in (self._live, self._listed) if waiting]
        return min([*firsts, *self._promoted.values()], key=lambda waiting: waiting.since, default=None)

    def take(self, most: int) -> Sequence[tuple[bool, Sequence[bytes]]]:
        """Remove and return up to `most` keys, live changes first, in groups with a flag for live ones."""
        taken = []
        for live, waiting in (True, self._promoted), (True, self._live), (False, self._listed):
            some = _take_first(waiting, most)
            most -= len(some)
            taken.append((live, some))
        return taken


def _take_first(waiting: dict[bytes, PendingKey], most: int) -> Sequence[bytes]:
    if len(waiting) <= most:
        taken = list(waiting)
        waiting.clear()  # popping one by one leaves gaps, which every later search for the first item walks over
        return taken
    # Take the keys in one pass: a dict that loses its first item again and again takes ever longer to find the next.
    taken = list(itertools.islice(waiting, most))
    for key in taken:
        del waiting[key]
    return taken
