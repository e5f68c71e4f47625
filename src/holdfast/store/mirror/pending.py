"""Changes that wait for their reader, coalesced: however far behind, at most one per key (rule 10).

What has changed is remembered as "what the reader knows of this key", never as a history. Live changes are handed out
before those that a snapshot has brought.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from holdfast.model.base.time import Instant

T = TypeVar("T")


class PendingKey(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One key that the reader has not heard of yet: what it knows, and when and at which revision that got old."""

    known: T | None
    since: Instant
    revision: int


class Delta(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """What became of one key since its reader last heard of it. `old` and `new` may be the same: then it was something
    else in between, and whoever looked at it at that moment without telling (`Mirror.looked_at`) has to look again."""

    key: bytes
    old: T | None
    new: T | None
    live: bool


@dataclass(slots=True)
class Pending(Generic[T]):
    """All keys that wait, oldest first."""

    _live: dict[bytes, PendingKey[T]] = field(default_factory=dict)
    _listed: dict[bytes, PendingKey[T]] = field(default_factory=dict)
    _promoted: dict[bytes, PendingKey[T]] = field(default_factory=dict)
    """Live ones that a snapshot had brought before: they have waited for longer than the others."""

    def __len__(self) -> int:
        return len(self._live) + len(self._listed) + len(self._promoted)

    def __contains__(self, key: object) -> bool:
        return key in self._live or key in self._listed or key in self._promoted

    def changed(self, key: bytes, known: T | None, revision: int, now: Instant) -> None:
        """A live change. `known` counts only if the key was not waiting already."""
        if key in self._live:
            return  # in a flood, nearly always
        if key in self._listed:
            self._promoted[key] = self._listed.pop(key)
        elif key not in self._promoted:
            self._live[key] = PendingKey(known, now, revision)

    def listed(self, differs: Mapping[bytes, PendingKey[T]]) -> None:
        """Changes that a snapshot has brought; of what waits already the reader knows what it knew."""
        if self:
            differs = {key: waiting for key, waiting in differs.items() if key not in self}
        self._listed |= differs

    def looked_at(self, keys: Iterable[bytes], now: Callable[[bytes], T | None]) -> None:
        """The reader has looked by itself at what is there now: that is what it knows of these, if they wait."""
        for waiting in self._live, self._listed, self._promoted:
            if waiting:
                _renew(waiting, keys, now)

    def oldest(self) -> PendingKey[T] | None:
        firsts = [next(iter(waiting.values())) for waiting in (self._live, self._listed) if waiting]
        return min([*firsts, *self._promoted.values()], key=lambda waiting: waiting.since, default=None)

    def take(self, most: int) -> Sequence[tuple[bool, Sequence[tuple[bytes, PendingKey[T]]]]]:
        """Hands out up to `most` keys, live changes first, and whether they are live; they wait no more."""
        taken = []
        for live, waiting in (True, self._promoted), (True, self._live), (False, self._listed):
            some = _taken_out(waiting, most)
            most -= len(some)
            taken.append((live, some))
        return taken


def _renew(waiting: dict[bytes, PendingKey[T]], keys: Iterable[bytes], now: Callable[[bytes], T | None]) -> None:
    """What is there now is known of those that wait. Those that came with one list and are alike share one."""
    last: PendingKey[T] | None = None
    alike: dict[int, PendingKey[T]] = {}
    for key in keys:
        was = waiting.get(key)
        if was is None:
            continue
        if was is not last:
            last, alike = was, {}
        known = now(key)
        one = alike.get(id(known))
        if one is None:
            one = alike[id(known)] = PendingKey(known, was.since, was.revision)
        waiting[key] = one


def _taken_out(waiting: dict[bytes, PendingKey[T]], most: int) -> Sequence[tuple[bytes, PendingKey[T]]]:
    if len(waiting) <= most:
        taken = list(waiting.items())
        waiting.clear()  # not one by one: that leaves a gap for each, and whoever looks for the first goes over them
        return taken
    # All at once: a dict that loses its first item again and again takes ever longer to find the next.
    return [(key, waiting.pop(key)) for key in list(itertools.islice(waiting, most))]
