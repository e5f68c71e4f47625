"""Packing of writes into transactions.

Promises: a write is never split over two transactions (a move is one write); a key is in one transaction at a time, and
writes to the same key keep their order; a transaction stays under etcd's limits; a slow store gets smaller ones. Pure:
the caller reports what happened and asks what to send next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from holdfast.model.base.time import Duration
from holdfast.store.api import Compare, Delete, Put

MOST_OPERATIONS = 127
"""etcd accepts 128 comparisons or operations; one comparison is the fence."""
FEWEST_OPERATIONS = 16
MOST_BYTES = 1 << 20
OVERHEAD = 32
SLOW = Duration(milliseconds=100)
QUICK = Duration(milliseconds=50)
QUICK_IN_A_ROW = 8
LOOK_AHEAD = 1_000


class FencedWrite(msgspec.Struct, frozen=True, gc=False):
    """The atomic change of one object: a put, a delete, or a move (both), under its comparisons."""

    operations: Sequence[Put | Delete]
    compares: Sequence[Compare] = ()

    @property
    def key(self) -> bytes:
        """The first key that the write touches, which names it."""
        return self.operations[0].key


def _measure(write: FencedWrite) -> tuple[int, int]:
    """Return the share of a transaction that a write takes: operations or comparisons, and bytes."""
    operations = write.operations
    weight = max(len(operations), len(write.compares))
    if weight > MOST_OPERATIONS or not operations:
        raise ValueError(f"one object takes 1 to {MOST_OPERATIONS} operations and comparisons, not {weight}")
    size = 0
    for op in operations:
        if isinstance(op, Put):
            size += len(op.key) + len(op.value) + OVERHEAD
        elif op.end is None:
            size += len(op.key) + OVERHEAD
        else:
            raise ValueError("a plan deletes keys, not ranges: each delete must have been decided by itself")
    return weight, size


@dataclass(slots=True)
class Window:
    """Operations per transaction: halved after a slow transaction, doubled after a run of quick ones."""

    operations: int = MOST_OPERATIONS
    _quick: int = 0

    def took(self, time: Duration) -> None:
        if time > SLOW:
            self.operations = max(FEWEST_OPERATIONS, self.operations // 2)
            self._quick = 0
        elif time < QUICK:
            self._quick += 1
            if self._quick >= QUICK_IN_A_ROW:
                self.operations = min(MOST_OPERATIONS, self.operations * 2)
                self._quick = 0


@dataclass(slots=True)
class Packing:
    """The writes of one plan, by their number in it."""

    writes: Sequence[FencedWrite]
    window: Window = field(default_factory=Window)
    _measures: Sequence[tuple[int, int]] = field(init=False)
    _waiting: deque[int] = field(init=False)
    _busy: set[bytes] = field(default_factory=set)
    _alone: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._measures = [_measure(write) for write in self.writes]
        self._waiting = deque(range(len(self.writes)))

    def next(self) -> Sequence[int]:
        """Return the writes of the next transaction; empty when all waiting writes touch keys that are in flight."""
        pack: list[int] = []
        passed: list[int] = []
        behind: set[bytes] = set()  # keys of skipped writes: later writes of these keys must stay behind them
        waiting, busy = self._waiting, self._busy
        weight_left, size_left = self.window.operations, MOST_BYTES
        while waiting and len(passed) < LOOK_AHEAD:
            number = waiting[0]
            weight, size = self._measures[number]
            if pack and (weight > weight_left or size > size_left or number in self._alone or pack[0] in self._alone):
                break
            waiting.popleft()
            keys = [op.key for op in self.writes[number].operations]
            if busy.isdisjoint(keys) and behind.isdisjoint(keys):
                pack.append(number)
                busy.update(keys)
                weight_left -= weight
                size_left -= size
            else:
                passed.append(number)
                behind.update(keys)
        waiting.extendleft(reversed(passed))
        return pack

    def done(self, pack: Sequence[int]) -> None:
        """Free the keys of a transaction that is over."""
        self._busy.difference_update([op.key for number in pack for op in self.writes[number].operations])

    def again(self, numbers: Sequence[int], *, alone: bool = False) -> None:
        """Queue writes that were not applied before all others; `alone` each in its own transaction."""
        self._waiting.extendleft(sorted(numbers, reverse=True))
        if alone:
            self._alone.update(numbers)

    def rest(self) -> Sequence[int]:
        """Return the writes that were not sent, and send no more."""
        numbers = sorted(self._waiting)
        self._waiting.clear()
        return numbers
