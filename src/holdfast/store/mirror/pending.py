"""Changes that wait for their reader, coalesced to at most one per key, however far it is behind (rule 10).

A pending change is remembered as the object that the reader knows, never as a history. Live changes are returned before
those that a snapshot has brought.
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
    """One key whose change the reader has not taken: the object it knows, and when and at which revision it changed."""

    known: T | None
    since: Instant
    revision: int


class Delta(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """Change of one key since its reader last took it. `old` and `new` may be the same object: then it was another one
    in between, and a reader that read it at that moment without `Mirror.mark_read` has to read it again."""

    key: bytes
    old: T | None
    new: T | None
    live: bool


@dataclass(slots=True)
class Pending(Generic[T]):
    """All pending keys, oldest first."""

    _live: dict[bytes, PendingKey[T]] = field(default_factory=dict)
    _listed: dict[bytes, PendingKey[T]] = field(default_factory=dict)
    _promoted: dict[bytes, PendingKey[T]] = field(default_factory=dict)
    """Live changes of keys that a snapshot had brought before: they have waited longer than the others."""

    def __len__(self) -> int:
        return len(self._live) + len(self._listed) + len(self._promoted)

    def __contains__(self, key: object) -> bool:
        return key in self._live or key in self._listed or key in self._promoted

    def changed(self, key: bytes, known: T | None, revision: int, now: Instant) -> None:
        """Add a live change. `known` is ignored if the key is pending already."""
        if key in self._live:
            return  # in a flood, nearly always
        if key in self._listed:
            self._promoted[key] = self._listed.pop(key)
        elif key not in self._promoted:
            self._live[key] = PendingKey(known, now, revision)

    def listed(self, differs: Mapping[bytes, PendingKey[T]]) -> None:
        """Add the changes of a snapshot. Keys that are pending already keep the object that the reader knows."""
        if self:
            differs = {key: waiting for key, waiting in differs.items() if key not in self}
        self._listed |= differs

    def mark_read(self, keys: Iterable[bytes], now: Callable[[bytes], T | None]) -> None:
        """Record that the reader has read the current objects of these keys, if they are pending."""
        for waiting in self._live, self._listed, self._promoted:
            if waiting:
                _renew(waiting, keys, now)

    def oldest(self) -> PendingKey[T] | None:
        firsts = [next(iter(waiting.values())) for waiting in (self._live, self._listed) if waiting]
        return min([*firsts, *self._promoted.values()], key=lambda waiting: waiting.since, default=None)

    def take(self, most: int) -> Sequence[tuple[bool, Sequence[tuple[bytes, PendingKey[T]]]]]:
        """Remove and return up to `most` keys, live changes first, in groups with a flag for live ones."""
        taken = []
        for live, waiting in (True, self._promoted), (True, self._live), (False, self._listed):
            some = _take_first(waiting, most)
            most -= len(some)
            taken.append((live, some))
        return taken


def _renew(waiting: dict[bytes, PendingKey[T]], keys: Iterable[bytes], now: Callable[[bytes], T | None]) -> None:
    """Set the known object of pending keys to the current one. Equal keys of one list share one `PendingKey`."""
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


def _take_first(waiting: dict[bytes, PendingKey[T]], most: int) -> Sequence[tuple[bytes, PendingKey[T]]]:
    if len(waiting) <= most:
        taken = list(waiting.items())
        waiting.clear()  # popping one by one leaves gaps, which every later search for the first item walks over
        return taken
    # Take the keys in one pass: a dict that loses its first item again and again takes ever longer to find the next.
    return [(key, waiting.pop(key)) for key in list(itertools.islice(waiting, most))]
