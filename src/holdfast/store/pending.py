"""Changes that wait for their reader, coalesced: however far behind, at most one per key (rule 10).

What has changed is remembered as "what the reader knows of this key", never as a history: a key that came and went in
between is no change at all. Live changes are handed out before those that a snapshot has brought.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from holdfast.model.time import Instant

T = TypeVar("T")


class Waiting(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One key that the reader has not heard of yet: what it knows, and when and at which revision that got old."""

    known: T | None
    since: Instant
    revision: int


@dataclass(slots=True)
class Pending(Generic[T]):
    """All keys that wait, oldest first."""

    _live: dict[bytes, Waiting[T]] = field(default_factory=dict)
    _listed: dict[bytes, Waiting[T]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._live) + len(self._listed)

    def __contains__(self, key: object) -> bool:
        return key in self._live or key in self._listed

    def changed(self, key: bytes, known: T | None, revision: int, now: Instant) -> None:
        """A live change. `known` counts only if the key was not waiting already."""
        if key not in self._live:
            waiting = self._listed.pop(key) if key in self._listed else Waiting(known, now, revision)
            self._live[key] = waiting

    def listed(self, key: bytes, waiting: Waiting[T]) -> None:
        """A change that a snapshot has brought."""
        if key not in self._live:
            self._listed.setdefault(key, waiting)

    def oldest(self) -> Waiting[T] | None:
        firsts = [next(iter(waiting.values())) for waiting in (self._live, self._listed) if waiting]
        return min(firsts, key=lambda waiting: waiting.since, default=None)

    def take(self, most: int) -> Sequence[tuple[bytes, Waiting[T], bool]]:
        """Hands out up to `most` keys, with whether the change was live; they wait no more."""
        taken = [(key, waiting, True) for key, waiting in _taken_out(self._live, most)]
        taken += [(key, waiting, False) for key, waiting in _taken_out(self._listed, most - len(taken))]
        return taken


def _taken_out(waiting: dict[bytes, Waiting[T]], most: int) -> Sequence[tuple[bytes, Waiting[T]]]:
    if len(waiting) <= most:
        taken = list(waiting.items())
        waiting.clear()  # not one by one: that leaves a gap for each, and whoever looks for the first goes over them
        return taken
    # All at once: a dict that loses its first item again and again takes ever longer to find the next.
    return [(key, waiting.pop(key)) for key in list(itertools.islice(waiting, most))]
