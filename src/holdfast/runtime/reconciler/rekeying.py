"""Moves: an object that got another key is one change, also where a full pass finds its two halves pages apart (C35).

A create flows with its page, a delete waits for the end: the object would stand at both keys in between, or lose one
and get no other. So the create of something that could be elsewhere is kept back until the pass has seen everything,
within bounds: when many are new at once they are not moves, and flow. What moved is no loss, and brakes may ask.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Generic

from holdfast.reconcile.change import Change, K, Op, V

MOST = 5_000
"""Creates that are kept back at the same time."""


class Rekeying(Generic[K, V]):
    """The moves of one full pass. `individual` is what stays the same when an object gets another key, or None."""

    def __init__(self, individual: Callable[[K], Hashable], most: int = MOST) -> None:
        self._individual = individual
        self._most = most
        self._arriving: dict[Hashable, Change[K, V]] = {}
        self._leaving: dict[Hashable, list[Change[K, V]]] = {}
        self._moving: set[K] = set()

    def begin(self) -> None:
        """A new pass: what is known of the last one is forgotten."""
        self._arriving.clear()
        self._leaving.clear()
        self._moving.clear()

    def is_moving(self, key: K) -> bool:
        """Whether the object of this key was found to have another one now."""
        return key in self._moving

    def kept_back(self, changes: Sequence[Change[K, V]]) -> list[Change[K, V]]:
        """Takes in the changes of a page; those that flow with it."""
        flowing: list[Change[K, V]] = []
        for change in changes:
            one = None if change.op is Op.REPLACE else self._individual(change.key)
            if change.op is Op.DELETE:
                if one is not None:
                    self._leaving.setdefault(one, []).append(change)
            elif one is None:
                flowing.append(change)
            else:
                self._arriving[one] = change
        if len(self._arriving) > self._most:
            flowing += self._new()
        return flowing

    def _new(self) -> list[Change[K, V]]:
        """The creates kept back whose object was seen nowhere else so far."""
        new = [one for one in self._arriving if one not in self._leaving]
        return [self._arriving.pop(one) for one in new]

    def rest(self) -> list[Change[K, V]]:
        """At the end of the pass: the creates that are no moves."""
        return self._new()

    def found(self, most: int) -> Iterator[list[Change[K, V]]]:
        """At the end of the pass: all halves of each move, about as many changes at a time."""
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
