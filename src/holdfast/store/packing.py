"""How many writes go into transactions: which ones next, how many together, what to do when one does not fit.

Promises: a write is never split over two transactions (a move is one); a key is in one transaction at a time, and
writes to the same key keep their order; a transaction stays under etcd's limits; a store that takes long gets smaller
ones. Pure: it is told what happened and says what to send next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from holdfast.model.time import Duration
from holdfast.store.api import Compare, Delete, Put

MOST_OPERATIONS = 127
"""etcd takes 128 comparisons or operations; one comparison is the term's."""
FEWEST_OPERATIONS = 16
MOST_BYTES = 1 << 20
OVERHEAD = 32
SLOW = Duration(milliseconds=100)
QUICK = Duration(milliseconds=50)
QUICK_IN_A_ROW = 8
LOOK_AHEAD = 1_000


class Write(msgspec.Struct, frozen=True):
    """What happens to one object, atomically: a put, a delete, or a move (both), under its comparisons."""

    operations: Sequence[Put | Delete]
    compares: Sequence[Compare] = ()

    @property
    def key(self) -> bytes:
        """The key that the write is called by: the first that it touches."""
        return self.operations[0].key


class _Measure(NamedTuple):
    """What a write takes of a transaction."""

    keys: Sequence[bytes]
    weight: int
    size: int


def _measure(write: Write) -> _Measure:
    operations = write.operations
    weight = max(len(operations), len(write.compares))
    if weight > MOST_OPERATIONS or not operations:
        raise ValueError(f"one object takes 1 to {MOST_OPERATIONS} operations and comparisons, not {weight}")
    size = 0
    for op in operations:
        size += len(op.key) + OVERHEAD
        if isinstance(op, Put):
            size += len(op.value)
        elif op.end is not None:
            raise ValueError("a plan deletes keys, not ranges: each delete must be one that somebody decided")
    return _Measure([op.key for op in operations], weight, size)


@dataclass(slots=True)
class Window:
    """How many operations a transaction may have now: halved when one was slow, doubled after a run of quick ones."""

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

    writes: Sequence[Write]
    window: Window = field(default_factory=Window)
    _measures: Sequence[_Measure] = field(init=False)
    _waiting: deque[int] = field(init=False)
    _busy: set[bytes] = field(default_factory=set)
    _alone: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._measures = [_measure(write) for write in self.writes]
        self._waiting = deque(range(len(self.writes)))

    def next(self) -> Sequence[int]:
        """The writes of the next transaction; empty when all that wait touch keys that are under way."""
        pack: list[int] = []
        passed: list[int] = []
        held: set[bytes] = set()
        weight_left, size_left = self.window.operations, MOST_BYTES
        while self._waiting and len(passed) < LOOK_AHEAD:
            number = self._waiting[0]
            keys, weight, size = self._measures[number]
            if pack and (weight > weight_left or size > size_left or number in self._alone or pack[0] in self._alone):
                break
            self._waiting.popleft()
            if self._busy.isdisjoint(keys) and held.isdisjoint(keys):
                pack.append(number)
                weight_left -= weight
                size_left -= size
            else:
                passed.append(number)
            held.update(keys)
        self._waiting.extendleft(reversed(passed))
        for number in pack:
            self._busy.update(self._measures[number].keys)
        return pack

    def done(self, pack: Sequence[int]) -> None:
        """The transaction is over; its keys are free again."""
        for number in pack:
            self._busy.difference_update(self._measures[number].keys)

    def again(self, numbers: Sequence[int], *, alone: bool = False) -> None:
        """These were not written and have to be sent again, before all others; `alone` each in its own transaction."""
        self._waiting.extendleft(sorted(numbers, reverse=True))
        if alone:
            self._alone.update(numbers)

    def rest(self) -> Sequence[int]:
        """What has not been sent; after this nothing more will be."""
        numbers = sorted(self._waiting)
        self._waiting.clear()
        return numbers
