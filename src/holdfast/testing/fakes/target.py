"""In-memory source and target of a reconciler, and the faults that every fake target has.

A fake behaves like a kernel: it keeps its objects, outlives the process that wrote them, can lose everything, refuse
single objects, be unreachable, or accept a write and not keep it.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from holdfast.reconcile import Away, Change, Outcome, Owned
from holdfast.reconcile.change import K, V

C = TypeVar("C")


def accept(_change: object) -> str | None:
    """Refuse nothing."""
    return None


@dataclass
class FaultyTarget(Generic[C]):
    """Base of the fakes. `calls` has every change that was applied, in order."""

    name: str = field(default="dataplane", kw_only=True)
    away: str | None = field(default=None, kw_only=True)
    """Reason why it is unreachable."""
    refuse: Callable[[C], str | None] = field(default=accept, kw_only=True)
    """Returns the error of a change to be refused."""
    calls: list[C] = field(default_factory=list, kw_only=True)

    def check_reachable(self) -> None:
        if self.away is not None:
            raise Away(self.name, self.away)


class _SortedObjects(Generic[K, V]):
    def __init__(self, objects: Mapping[K, Owned[V]] | None = None) -> None:
        self.objects: dict[K, Owned[V]] = dict(objects or {})

    def between(self, after: K | None, upto: K | None) -> Sequence[tuple[K, Owned[V]]]:
        keys: list[Any] = sorted(self.objects)  # keys are ordered by contract
        start = 0 if after is None else bisect.bisect_right(keys, after)
        end = len(keys) if upto is None else bisect.bisect_right(keys, upto)
        return [(key, self.objects[key]) for key in keys[start:end]]

    def found(self, keys: Collection[K]) -> Mapping[K, Owned[V]]:
        return {key: self.objects[key] for key in keys if key in self.objects}


class MemoryTarget(_SortedObjects[K, V], FaultyTarget[Change[K, V]]):
    """A reconciler's target; `objects` is what it holds."""

    def __init__(self, objects: Mapping[K, Owned[V]] | None = None, page: int = 1_000) -> None:
        FaultyTarget.__init__(self)
        _SortedObjects.__init__(self, objects)
        self.page = page
        self.forgets: Callable[[Change[K, V]], bool] = lambda _change: False
        """Returns True for a change that is accepted and not kept."""

    async def read(self, after: K | None) -> tuple[Sequence[tuple[K, Owned[V]]], K | None]:
        self.check_reachable()
        rest = self.between(after, None)
        page = rest[: self.page]
        return page, page[-1][0] if len(rest) > self.page else None

    async def get(self, keys: Collection[K]) -> Mapping[K, Owned[V]]:
        self.check_reachable()
        return self.found(keys)

    async def apply(self, ready: Sequence[Change[K, V]]) -> Sequence[Outcome[K, V]]:
        self.check_reachable()
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


class MemorySource(_SortedObjects[K, V]):
    """A reconciler's source: a dict that a test changes; `refreshes` counts the fresh lists that were asked for."""

    def __init__(self, objects: Mapping[K, Owned[V]] | None = None) -> None:
        super().__init__(objects)
        self.refreshes = 0
        self.what = "database"
        self.away: str | None = None
        """Reason why it is unreachable."""
        self.unlisted: str | None = None
        """Reason why no fresh list can be had, while what is known can still be read."""

    async def read(self, after: K | None, upto: K | None) -> Sequence[tuple[K, Owned[V]]]:
        self._check(self.away)
        return self.between(after, upto)

    async def get(self, keys: Collection[K]) -> Mapping[K, Owned[V]]:
        self._check(self.away)
        return self.found(keys)

    async def refresh(self) -> None:
        self._check(self.away or self.unlisted)
        self.refreshes += 1

    def _check(self, reason: str | None) -> None:
        if reason is not None:
            raise Away(self.what, reason)
