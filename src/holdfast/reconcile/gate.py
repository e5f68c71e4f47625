"""Gates: *may I touch the world yet?* — and the plan that their answers make of a list of changes.

A gate never says just no. It says which gate, for which reason, since when, and which command or event opens it; these
words go unchanged into the log, the metrics, the API and `holdfast explain`.
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
    """Why something is refused. Each gate has its own members: the value is the sentence, the name the label."""

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Closed:
    """A refusal. `opens` names the command or the event that ends it; `detail` has the figures of this case."""

    gate: str
    reason: Reason
    since: Instant
    opens: str
    detail: str = ""

    @property
    def sentence(self) -> str:
        return f"{self.detail}: {self.reason.value}" if self.detail else self.reason.value


class Gate(Protocol[K, V]):
    """Judges one change. `tally` counts all outstanding changes of its kind, `have` what is there of that kind."""

    def judge(self, change: Change[K, V], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None: ...


@runtime_checkable
class Latch(Protocol):
    """A gate that can tell without looking at any change that it lets all of them through; it is not asked then."""

    def is_open(self, now: Instant) -> bool: ...


@dataclass(frozen=True, slots=True)
class Plan(Generic[K, V]):
    """What is to be done now, and what waits for which gate, both in the order of application.

    `looked` are the keys that were compared; None means every key there is.
    """

    ready: Sequence[Change[K, V]]
    held: Sequence[tuple[Change[K, V], Closed]]
    looked: Collection[K] | None = None


@dataclass(frozen=True, slots=True)
class Kinds(Generic[K]):
    """How keys fall into kinds, and which kinds stand on which: `order` lists the ones leaned upon first."""

    of: Callable[[K], str]
    order: Sequence[str] = ()

    def rank(self, kind: str) -> int:
        return self.order.index(kind) if kind in self.order else len(self.order)

    def census(self, keys: Collection[K]) -> Mapping[str, int]:
        """How many there are of each kind."""
        return Counter(map(self.of, keys))

    def count(self, changes: Iterable[Change[K, V]]) -> Counter[tuple[str, Op]]:
        """How many there are of each kind and sort."""
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
    """For places where all keys are of one kind."""
    return _OneKind(of=lambda _key: name, name=name)


def plan(
    changes: Iterable[Change[K, V]],
    gates: Sequence[Gate[K, V]],
    have: Mapping[str, int],
    now: Instant,
    kinds: Kinds[K],
    *,
    outstanding: Mapping[str, Mapping[Op, int]] | None = None,
    looked: Collection[K] | None = None,
) -> Plan[K, V]:
    """Asks the gates about each change; the first that is closed holds it.

    Deletes go first and in reverse order of dependence, then replaces, then creates in order of dependence; within
    that, key order. `outstanding` are changes that earlier plans hold for keys not compared this time: they count.
    """
    changes, of = list(changes), kinds.of
    tallies: dict[str, Counter[Op]] = {kind: Counter(tally) for kind, tally in (outstanding or {}).items()}
    counts = kinds.count(changes)
    for (kind, op), count in counts.items():
        tallies.setdefault(kind, Counter())[op] += count
    if len(counts) > 1:  # what is all of one sort is in order already
        places = {sort: _place(sort[1], kinds.rank(sort[0])) for sort in counts}
        changes.sort(key=lambda change: places[of(change.key), change.op])
    judges = [gate.judge for gate in gates if not (isinstance(gate, Latch) and gate.is_open(now))]
    if not judges:
        return Plan(changes, (), looked)
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
    return Plan(ready, held, looked)


def _place(op: Op, rank: int) -> tuple[Op, int]:
    return op, -rank if op is Op.DELETE else rank
