"""The vocabulary of a change: what is wanted, what is there, and what would have to happen.

These are made for every object that is looked at, a hundred thousand in a pass: structs, which cost a twentieth of a
frozen dataclass, and not traced by the garbage collector, since none of them is ever part of a cycle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import IntEnum
from typing import Generic, TypeVar

import msgspec

K = TypeVar("K")
V = TypeVar("V")


class Op(IntEnum):
    """What happens to one key. The numbers are the order of application: space is freed before it is taken."""

    DELETE = 0
    REPLACE = 1
    CREATE = 2

    __hash__ = int.__hash__  # an enum's own is written in Python, and every tally of a plan asks for it


class Owned(msgspec.Struct, Generic[V], frozen=True, gc=False):
    """A value with who wants it and since which revision of that source."""

    value: V
    source: str
    revision: int


class Change(msgspec.Struct, Generic[K, V], frozen=True, gc=False):
    """One step from what is there to what is wanted.

    `old` is the whole object, also in a delete that nobody announced: a handler never has to look up what it removes.
    """

    op: Op
    key: K
    old: Owned[V] | None
    new: Owned[V] | None

    @property
    def owner(self) -> Owned[V]:
        """The side that says whose change this is: the new owner, or for a delete the last one."""
        owned = self.old if self.new is None else self.new
        assert owned is not None
        return owned


class Outcome(msgspec.Struct, Generic[K, V], frozen=True, gc=False):
    """What became of one change. `stop` means that no further change can succeed (deposed, target gone)."""

    change: Change[K, V]
    error: str | None = None
    stop: bool = False


def alike(changes: Iterable[Change[K, V]]) -> Collection[Sequence[Change[K, V]]]:
    """The changes, those together that are from one value of the same owner to another, as those of a flood mostly are:
    from and to the very same objects, that is."""
    groups: dict[object, list[Change[K, V]]] = {}
    for change in changes:
        old = change.old
        case = old and (id(old.value), old.source, old.revision), id(change.new)
        group = groups.get(case)
        if group is None:
            groups[case] = [change]
        else:
            group.append(change)
    return groups.values()


class Away(Exception):
    """A dependency cannot be reached now (the store, the database). Not a fault of ours: keep what is, wait, say so."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what} is away: {why}")
        self.what = what
        self.why = why
