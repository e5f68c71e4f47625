"""Keys to compare again: a set, not a list of events, so that a backlog is at most one item per object (rule 10)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Set
from typing import Generic

from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.reconcile.change import K
from holdfast.runtime.clock import Clock


class Dirty(Generic[K]):
    """Marked keys, oldest first, or everything. Marking a key twice is marking it once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._keys: dict[K, Instant] = {}
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
        first = next(iter(self._keys.values()), NEVER)
        return min(filter(None, (first, self._everything)), default=NEVER)

    def mark(self, keys: Iterable[K], since: Instant | None = None) -> None:
        now = since or self._clock.now()
        if self._keys:
            for key in keys:
                self._keys.setdefault(key, now)
        else:
            self._keys = dict.fromkeys(keys, now)
        if self._keys:
            self._woken.set()

    def mark_all(self, since: Instant | None = None) -> None:
        self._everything = self._everything or since or self._clock.now()
        self._woken.set()

    def take(self) -> tuple[bool, Set[K], Instant]:
        """Return and clear the marks: whether everything is marked, the keys in order, and the oldest mark."""
        taken = bool(self._everything), self._keys.keys(), self.oldest()
        self._keys = {}
        self._everything = NEVER
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
