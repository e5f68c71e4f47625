"""Rekeying: an object whose key changed is one change, also when a full pass finds its two halves pages apart (C35).

A full pass applies creates with their page and deletes at the end. Without this module the object would exist under
both keys in between, or lose the old key and never get the new one. So the create of an object that may exist under
another key waits until the pass has seen everything, within bounds: more than `most` creates at once are not moves,
and are released. `batches` keeps the two halves in one batch of any plan, and `without` drops both or none (C62).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import Generic

from holdfast.reconcile.change import Change, K, Op, V

MOST = 5_000
"""Creates that are withheld at the same time."""


class Rekeying(Generic[K, V]):
    """Moves of one full pass. `individual` returns what identifies an object across its keys, or None."""

    def __init__(self, individual: Callable[[K], Hashable], most: int = MOST) -> None:
        self.individual = individual
        self._most = most
        self._arriving: dict[Hashable, Change[K, V]] = {}
        self._leaving: dict[Hashable, list[Change[K, V]]] = {}
        self._moving: set[K] = set()

    def begin(self) -> None:
        """Start a new pass and forget the last one."""
        self._arriving.clear()
        self._leaving.clear()
        self._moving.clear()

    def is_moving(self, key: K) -> bool:
        """True when this pass found the object of this key under another key."""
        return key in self._moving

    def withhold(self, changes: Sequence[Change[K, V]]) -> list[Change[K, V]]:
        """Add the changes of a page; returns those to apply with the page."""
        # protection: C35
        ready: list[Change[K, V]] = []
        for change in changes:
            one = None if change.op is Op.REPLACE else self.individual(change.key)
            if change.op is Op.DELETE:
                if one is not None:
                    self._leaving.setdefault(one, []).append(change)
            elif one is None:
                ready.append(change)
            else:
                self._arriving[one] = change
        if len(self._arriving) > self._most:
            ready += self._release_new()
        return ready

    def batches(self, ready: Sequence[Change[K, V]], size: int) -> Iterator[Sequence[Change[K, V]]]:
        """Split a plan into batches of about `size` changes, each move within one batch."""
        halves = [(change, self.individual(change.key)) for change in ready if change.op is not Op.REPLACE]
        leaving = {one for change, one in halves if change.op is Op.DELETE}
        moving = leaving.intersection(one for change, one in halves if change.op is Op.CREATE) - {None}
        units: dict[Hashable, list[Change[K, V]]] = {one: [] for one in moving}
        for change, one in halves:
            if one in units:
                units[one].append(change)
        moved = {change.key for unit in units.values() for change in unit}
        some: list[Change[K, V]] = []
        for unit in itertools.chain(units.values(), ([change] for change in ready if change.key not in moved)):
            if some and len(some) + len(unit) > size:
                yield some
                some = []
            some += unit
        if some:
            yield some

    def without(self, batch: Sequence[Change[K, V]], dropped: Collection[K]) -> tuple[list[Change[K, V]], list[K]]:
        """Drop the changes of these keys, and the other halves of their moves. Returns the rest and the keys of those
        halves."""
        gone = {self.individual(change.key) for change in batch if change.key in dropped} - {None}
        rest = [change for change in batch if change.key not in dropped]
        split = {c.key for c in rest if c.op is not Op.REPLACE and self.individual(c.key) in gone} if gone else set()
        return [change for change in rest if change.key not in split], list(split)

    def _release_new(self) -> list[Change[K, V]]:
        """Release the withheld creates whose object was not found under another key so far."""
        new = [one for one in self._arriving if one not in self._leaving]
        return [self._arriving.pop(one) for one in new]

    def rest(self) -> list[Change[K, V]]:
        """Return, at the end of the pass, the creates that are not moves."""
        return self._release_new()

    def found(self, most: int) -> Iterator[list[Change[K, V]]]:
        """Yield, at the end of the pass, both halves of each move, in batches of about `most` changes."""
        some: list[Change[K, V]] = []
        for one, arriving in self._arriving.items():
            leaving = self._leaving[one]
            self._moving.update(change.key for change in leaving)
            some += [*leaving, arriving]
            if len(some) >= most // 2:
                yield some
                some = []
        if some:
            yield some
