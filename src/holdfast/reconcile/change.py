"""Vocabulary of a change: an owned value, an operation on one key, and its outcome.

A full pass makes these for every object it compares, a hundred thousand at a time. They are msgspec structs, which
cost a twentieth of a frozen dataclass, and `gc=False`, since none of them is ever part of a cycle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import IntEnum
from typing import Generic, TypeVar

import msgspec

K = TypeVar("K")
V = TypeVar("V")


class Op(IntEnum):
    """Operation on one key. The numbers are the order of application: deletes free what creates may need."""

    DELETE = 0
    REPLACE = 1
    CREATE = 2

    __hash__ = int.__hash__  # Enum.__hash__ is Python code, and every tally of a plan hashes


class Owned(msgspec.Struct, Generic[V], frozen=True, gc=False):
    """A value with the source that wants it and the revision of that source."""

    value: V
    source: str
    revision: int


class Kept(Owned[V], frozen=True, gc=False):
    """A wanted object that its source has and cannot express (rule 9): whatever is at its key stays, and nothing is
    created there. The value says nothing."""


class Change(msgspec.Struct, Generic[K, V], frozen=True, gc=False):
    """One step from actual to desired state.

    `old` is the whole object, also in a delete found by a full pass, so a target never looks up what it removes.
    """

    op: Op
    key: K
    old: Owned[V] | None
    new: Owned[V] | None

    @property
    def owner(self) -> Owned[V]:
        """The new owner, or for a delete the last one."""
        owned = self.old if self.new is None else self.new
        assert owned is not None
        return owned


class Outcome(msgspec.Struct, Generic[K, V], frozen=True, gc=False):
    """Result of one change. `stop` means that no further change can succeed (deposed, target gone)."""

    change: Change[K, V]
    error: str | None = None
    stop: bool = False


def alike(changes: Iterable[Change[K, V]]) -> Collection[Sequence[Change[K, V]]]:
    """Group changes that go from one value to another of the same owners, by object identity, which is how most
    changes of a flood arrive."""
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
    """A dependency (store, database) is unreachable. Callers keep the last known good state, wait and say so."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what} is unreachable: {why}")
        self.what = what
        self.why = why
