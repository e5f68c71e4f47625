"""Keys to compare again: a set, not a list of events, so that a backlog is at most one item per object (rule 10)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Set
from typing import Generic, NamedTuple

from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.reconcile.change import K
from holdfast.runtime.clock import Clock


class Taken(NamedTuple, Generic[K]):
    """Marks that the loop works on: whether everything is marked, the keys in order, and the oldest mark."""

    everything: bool = False
    keys: Set[K] = frozenset()
    since: Instant = NEVER


class Dirty(Generic[K]):
    """Marked keys in order, or everything. Marking a key twice is marking it once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._keys: dict[K, None] = {}
        self._since = NEVER
        """The oldest mark of a key: keys that are put back are older than those marked meanwhile."""
        self._everything = NEVER
        self._woken = asyncio.Event()
        self._called = False

    def __len__(self) -> int:
        return len(self._keys) + bool(self._everything)

    def __iter__(self) -> Iterator[K]:
        return iter(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    @property
    def is_everything(self) -> bool:
        """True if everything is marked: a full pass is next."""
        return bool(self._everything)

    def oldest(self) -> Instant:
        """Return when the oldest mark was made; NEVER when nothing is marked."""
        return min(filter(None, (self._since, self._everything)), default=NEVER)

    def mark(self, keys: Iterable[K], since: Instant | None = None) -> None:
        """Mark keys, which have waited since then or begin to wait now."""
        marked = dict.fromkeys(keys)
        if not marked:
            return
        since = since or self._clock.now()
        self._since = min(self._since or since, since)
        self._keys |= marked
        self._woken.set()

    def mark_all(self, since: Instant | None = None) -> None:
        since = since or self._clock.now()
        self._everything = min(self._everything or since, since)
        self._woken.set()

    def take(self) -> Taken[K]:
        """Return and clear the marks."""
        taken = Taken(bool(self._everything), self._keys.keys(), self.oldest())
        self._keys = {}
        self._since = self._everything = NEVER
        if not self._called:
            self._woken.clear()
        return taken

    def begin(self) -> None:
        """Start a turn. A `wake` from here on causes another turn: this one may have passed its cause already."""
        self._called = False

    async def wait(self, most: Duration) -> None:
        """Wait until something is marked, or for that long."""
        try:
            async with asyncio.timeout(max(0.0, most.total_seconds())):
                await self._woken.wait()
        except TimeoutError:
            return

    def wake(self) -> None:
        """End a wait although nothing is marked (a gate may have opened, a feed may have changes)."""
        self._called = True
        self._woken.set()
