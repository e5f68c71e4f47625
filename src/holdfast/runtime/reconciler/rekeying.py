"""Rekeying: an object whose key changed is one change, also when a full pass finds its two halves pages apart (C35).

A full pass applies creates with their page and deletes at the end. Without this module the object would exist under
both keys in between, or lose the old key and never get the new one. So the create of an object that may exist under
another key waits until the pass has seen everything, within bounds: more than `most` creates at once are not moves,
and are released. A moved object is not a loss, and brakes may ask (`is_moving`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Generic

from holdfast.reconcile.change import Change, K, Op, V

MOST = 5_000
"""Creates that are withheld at the same time."""


class Rekeying(Generic[K, V]):
    """Moves of one full pass. `individual` returns what identifies an object across its keys, or None."""

    def __init__(self, individual: Callable[[K], Hashable], most: int = MOST) -> None:
        self._individual = individual
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
        """True when the object of this key was found under another key."""
        return key in self._moving

    def withhold(self, changes: Sequence[Change[K, V]]) -> list[Change[K, V]]:
        """Add the changes of a page; returns those to apply with the page."""
        # protection: C35
        ready: list[Change[K, V]] = []
        for change in changes:
            one = None if change.op is Op.REPLACE else self._individual(change.key)
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
