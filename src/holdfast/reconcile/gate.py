"""Gates decide whether a change may be applied yet; `plan` asks them about a list of changes.

A gate that holds a change returns `Closed`: which gate, why, since when, and which command or event releases it. The
same words appear in the log, the metrics, the API and `holdfast explain`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import Generic, Protocol, runtime_checkable

from holdfast.model.base.time import Instant
from holdfast.reconcile.change import Change, K, Op, V

_OP = attrgetter("op")


class Reason(Enum):
    """Why a gate is closed. Each gate defines its own members: the value is the sentence, the name the label."""

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Closed:
    """Answer of a closed gate. `opens` names the command or event that releases, `detail` the values of this case."""

    gate: str
    reason: Reason
    since: Instant
    opens: str
    detail: str = ""

    @property
    def sentence(self) -> str:
        return f"{self.detail}: {self.reason.value}" if self.detail else self.reason.value


class Gate(Protocol[K, V]):
    """Judges one change. `tally` counts the outstanding changes of its kind, `have` the objects present of it."""

    def judge(self, change: Change[K, V], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None: ...


@runtime_checkable
class Latch(Protocol):
    """A gate that can say up front that it lets every change through; `plan` then skips it."""

    def is_open(self, now: Instant) -> bool: ...


@dataclass(frozen=True, slots=True)
class Plan(Generic[K, V]):
    """Changes to apply now, and changes held by a gate, both in the order of application.

    `compared` are the keys that were compared; None means every key.
    """

    ready: Sequence[Change[K, V]]
    held: Sequence[tuple[Change[K, V], Closed]]
    compared: Collection[K] | None = None


@dataclass(frozen=True, slots=True)
class Kinds(Generic[K]):
    """Maps keys to kinds. `order` lists the kinds so that each comes after those that it depends on."""

    of: Callable[[K], str]
    order: Sequence[str] = ()

    def rank(self, kind: str) -> int:
        return self.order.index(kind) if kind in self.order else len(self.order)

    def census(self, keys: Collection[K]) -> Mapping[str, int]:
        """Count the keys of each kind."""
        return Counter(map(self.of, keys))

    def count(self, changes: Iterable[Change[K, V]]) -> Counter[tuple[str, Op]]:
        """Count the changes of each kind and operation."""
        of = self.of
        return Counter([(of(change.key), change.op) for change in changes])


@dataclass(frozen=True, slots=True)
class _OneKind(Kinds[K]):
    name: str = ""

    def census(self, keys: Collection[K]) -> Mapping[str, int]:
        return {self.name: len(keys)}

    def count(self, changes: Iterable[Change[K, V]]) -> Counter[tuple[str, Op]]:
        ops: list[Op] = list(map(_OP, changes))
        return Counter({(self.name, op): ops.count(op) for op in set(ops)})


def one_kind(name: str) -> Kinds[K]:
    """Kinds of a place where all keys are of the same kind."""
    return _OneKind(of=lambda _key: name, name=name)


def plan(
    changes: Iterable[Change[K, V]],
    gates: Sequence[Gate[K, V]],
    have: Mapping[str, int],
    now: Instant,
    kinds: Kinds[K],
    *,
    outstanding: Mapping[str, Mapping[Op, int]] | None = None,
    compared: Collection[K] | None = None,
) -> Plan[K, V]:
    """Ask the gates about each change; the first closed gate holds it.

    Deletes go first, dependents before what they depend on; then replaces, then creates in the opposite order; within
    that, key order. `outstanding` counts the changes of keys that were not compared this time.
    """
    changes, of = list(changes), kinds.of
    tallies: dict[str, Counter[Op]] = {kind: Counter(tally) for kind, tally in (outstanding or {}).items()}
    counts = kinds.count(changes)
    for (kind, op), count in counts.items():
        tallies.setdefault(kind, Counter())[op] += count
    if len(counts) > 1:  # changes of one kind and operation are in key order already
        places = {sort: _place(sort[1], kinds.rank(sort[0])) for sort in counts}
        changes.sort(key=lambda change: places[of(change.key), change.op])
    judges = [gate.judge for gate in gates if not (isinstance(gate, Latch) and gate.is_open(now))]
    if not judges:
        return Plan(changes, (), compared)
    ready: list[Change[K, V]] = []
    held: list[tuple[Change[K, V], Closed]] = []
    only = next(iter(tallies)) if len(tallies) == 1 else None
    for change in changes:
        kind = only or of(change.key)
        tally, there = tallies[kind], have.get(kind, 0)
        for judge in judges:
            closed = judge(change, tally, there, now)
            if closed is not None:
                held.append((change, closed))
                break
        else:
            ready.append(change)
    return Plan(ready, held, compared)


def _place(op: Op, rank: int) -> tuple[Op, int]:
    return op, -rank if op is Op.DELETE else rank
