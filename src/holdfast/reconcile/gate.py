"""Gates decide whether a change may be applied yet; `plan` asks them about a list of changes.

A gate that holds a change returns `Closed`: which gate, why, since when, and which command or event releases it. The
same words appear in the log, the metrics, the API and `holdfast explain`.

Gates are asked one after the other, each about what the gates before it let through, and each with counts of just that
(C71). The two halves of a move, the delete of its old key and the create of its new one, pass together or are held
together (C62).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import Generic, Protocol

from holdfast.model.base.time import Instant
from holdfast.reconcile.change import Change, K, Op, V

BRAKE_GATE = "brake"

JUDGED_AT_A_TIME = 500
"""Changes about which a gate is asked between two yields."""

_OP = attrgetter("op")


class Reason(Enum):
    """Why a gate is closed. Each gate defines its own members: the value is the sentence, the name the label."""

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Closed:
    """Answer of a closed gate. `opens` names the command or event that releases, `detail` the values of this case.

    `is_going` marks a delete that waits only for its turn: the brake counts it like those that it holds itself.
    """

    gate: str
    reason: Reason
    since: Instant
    opens: str
    detail: str = ""
    is_going: bool = False

    @property
    def sentence(self) -> str:
        return f"{self.detail}: {self.reason.value}" if self.detail else self.reason.value

    @property
    def counts(self) -> bool:
        """True if the held change counts for the brake all the same."""
        return self.is_going or self.gate == BRAKE_GATE


class Gate(Protocol[K, V]):
    """Judges one change. `tally` counts the outstanding changes of its kind, `have` the objects present of it, both
    without what other gates hold."""

    def judge(self, change: Change[K, V], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None: ...


def is_latched(gate: Gate[K, V], now: Instant) -> bool:
    """True for a gate that says up front, by a method `is_open`, that it lets every change through."""
    is_open: Callable[[Instant], bool] | None = getattr(gate, "is_open", None)  # a tenth of isinstance on a protocol
    return is_open is not None and is_open(now)


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
    individual: Callable[[K], Hashable] | None = None,
    counts: Callable[[Change[K, V]], bool] | None = None,
) -> Plan[K, V]:
    """Make a plan at once: see `plan_in_steps`."""
    steps = plan_in_steps(
        changes,
        gates,
        have,
        now,
        kinds,
        outstanding=outstanding,
        compared=compared,
        individual=individual,
        counts=counts,
    )
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: Plan[K, V] = end.value
            return made


def plan_in_steps(
    changes: Iterable[Change[K, V]],
    gates: Sequence[Gate[K, V]],
    have: Mapping[str, int],
    now: Instant,
    kinds: Kinds[K],
    *,
    outstanding: Mapping[str, Mapping[Op, int]] | None = None,
    compared: Collection[K] | None = None,
    individual: Callable[[K], Hashable] | None = None,
    counts: Callable[[Change[K, V]], bool] | None = None,
) -> Generator[None, None, Plan[K, V]]:
    """Ask the gates about each change; the first closed gate holds it.

    Deletes go first, dependents before what they depend on; then replaces, then creates in the opposite order; within
    that, key order. `outstanding` counts the changes of keys that were not compared this time. `individual` returns
    what identifies an object across its keys, or None; `counts` is False for a delete that is no loss.

    Yields while it asks about many: a first list of a hundred thousand objects takes seconds, and the other tasks of a
    daemon must not wait for that.
    """
    changes, of = list(changes), kinds.of
    tallies: dict[str, Counter[Op]] = {kind: Counter(tally) for kind, tally in (outstanding or {}).items()}
    sorts = kinds.count(changes)
    for (kind, op), count in sorts.items():
        tallies.setdefault(kind, Counter())[op] += count
    ops = {op for _, op in sorts}
    no_loss: set[K] = set()
    if counts is not None and Op.DELETE in ops:
        no_loss = {change.key for change in changes if change.op is Op.DELETE and not counts(change)}
        for key in no_loss:
            tallies[of(key)][Op.DELETE] -= 1
    if len(sorts) > 1:  # changes of one kind and operation are in key order already
        places = {sort: _place(sort[1], kinds.rank(sort[0])) for sort in sorts}
        changes.sort(key=lambda change: places[of(change.key), change.op])
    only = next(iter(tallies)) if len(tallies) == 1 else None
    can_move = individual is not None and {Op.DELETE, Op.CREATE} <= ops
    left, refused, there = changes, dict[K, Closed](), have
    for gate in gates:
        if is_latched(gate, now):
            continue
        judge, closed = gate.judge, dict[K, Closed]()
        for at, change in enumerate(left, 1):
            if not at % JUDGED_AT_A_TIME:
                yield
            kind = only or of(change.key)
            answer = judge(change, tallies[kind], there.get(kind, 0), now)
            if answer is not None:
                closed[change.key] = answer
        if not closed:
            continue
        if can_move and individual is not None:
            closed |= other_halves(closed, left, individual)
        refused |= closed
        losses = closed.keys() - no_loss
        there = set_aside([(change, closed[change.key]) for change in left if change.key in losses], tallies, there, of)
        left = [change for change in left if change.key not in closed]
    held = [(change, refused[change.key]) for change in changes if change.key in refused] if refused else []
    return Plan(left, held, compared)


def other_halves(
    closed: Mapping[K, Closed], changes: Sequence[Change[K, V]], individual: Callable[[K], Hashable]
) -> dict[K, Closed]:  # protection: C62
    """C62: return the halves of moves whose other half is held; an object is never under both keys, or under none."""
    halves = [(change, individual(change.key)) for change in changes if change.op is not Op.REPLACE]
    waiting = {one: closed[change.key] for change, one in halves if one is not None and change.key in closed}
    return {change.key: waiting[one] for change, one in halves if one in waiting and change.key not in closed}


def set_aside(
    held: Iterable[tuple[Change[K, V], Closed]],
    tallies: Mapping[str, Counter[Op]],
    there: Mapping[str, int],
    of: Callable[[K], str],
) -> Mapping[str, int]:  # protection: C71
    """C71: what a gate holds counts for the gates after it neither as going nor as there. Returns what is there."""
    aside = Counter((of(change.key), change.op) for change, closed in held if not closed.counts)
    for (kind, op), count in aside.items():
        tallies[kind][op] -= count
    deletes = {kind: count for (kind, op), count in aside.items() if op is Op.DELETE}
    return {kind: count - deletes.get(kind, 0) for kind, count in there.items()} if deletes else there


def _place(op: Op, rank: int) -> tuple[Op, int]:
    return op, -rank if op is Op.DELETE else rank
