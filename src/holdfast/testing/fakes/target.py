"""A dataplane in memory: the target of a reconciler, for tests and for the lab.

It behaves like a kernel: it keeps what it was told, outlives whoever told it, can lose everything, refuse single
objects, be away, or accept a write and not keep it.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic

from holdfast.reconcile import Away, Change, Outcome, Owned
from holdfast.reconcile.change import K, V


class MemoryTarget(Generic[K, V]):
    """`objects` is what is there; `calls` every change that was made, in order."""

    def __init__(self, objects: Mapping[K, Owned[V]] | None = None, page: int = 1_000) -> None:
        self.objects: dict[K, Owned[V]] = dict(objects or {})
        self.calls: list[Change[K, V]] = []
        self.page = page
        self.away: str | None = None
        self.refuse: Callable[[Change[K, V]], str | None] = lambda _change: None
        self.forgets: Callable[[Change[K, V]], bool] = lambda _change: False

    async def read(self, after: K | None) -> tuple[Sequence[tuple[K, Owned[V]]], K | None]:
        self._reachable()
        keys: list[Any] = sorted(self.objects)  # keys are ordered by contract
        start = 0 if after is None else bisect.bisect_right(keys, after)
        page = keys[start : start + self.page]
        more = start + self.page < len(keys)
        return [(key, self.objects[key]) for key in page], page[-1] if more else None

    async def get(self, keys: Collection[K]) -> Mapping[K, Owned[V]]:
        self._reachable()
        return {key: self.objects[key] for key in keys if key in self.objects}

    async def apply(self, ready: Sequence[Change[K, V]]) -> Sequence[Outcome[K, V]]:
        self._reachable()
        return [self._applied(change) for change in ready]

    def _applied(self, change: Change[K, V]) -> Outcome[K, V]:
        error = self.refuse(change)
        if error is not None:
            return Outcome(change, error)
        self.calls.append(change)
        if not self.forgets(change):
            if change.new is None:
                self.objects.pop(change.key, None)
            else:
                self.objects[change.key] = change.new
        return Outcome(change)

    def _reachable(self) -> None:
        if self.away is not None:
            raise Away("dataplane", self.away)


class MemorySource(Generic[K, V]):
    """What is wanted, as a dict that a test changes; `refreshes` counts how often a fresh list was asked for."""

    def __init__(self, objects: Mapping[K, Owned[V]] | None = None) -> None:
        self.objects: dict[K, Owned[V]] = dict(objects or {})
        self.refreshes = 0
        self.what = "database"
        self.away: str | None = None
        self.unlisted: str | None = None
        """Why no fresh list can be had, while what is known can still be read."""

    async def read(self, after: K | None, upto: K | None) -> Sequence[tuple[K, Owned[V]]]:
        self._reachable()
        keys: list[Any] = sorted(self.objects)  # keys are ordered by contract
        start = 0 if after is None else bisect.bisect_right(keys, after)
        end = len(keys) if upto is None else bisect.bisect_right(keys, upto)
        return [(key, self.objects[key]) for key in keys[start:end]]

    async def get(self, keys: Collection[K]) -> Mapping[K, Owned[V]]:
        self._reachable()
        return {key: self.objects[key] for key in keys if key in self.objects}

    async def refresh(self) -> None:
        self._reachable()
        if self.unlisted is not None:
            raise Away(self.what, self.unlisted)
        self.refreshes += 1

    def _reachable(self) -> None:
        if self.away is not None:
            raise Away(self.what, self.away)
