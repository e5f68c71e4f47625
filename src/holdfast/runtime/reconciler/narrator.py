"""Narration: each decision becomes a record in the decision log, a count in the metrics and a sentence for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, Generic

import msgspec
import structlog

from holdfast.model.base.time import Instant
from holdfast.reconcile import BACKOFF, Change, Closed, Op, Outcome, Outstanding, Owned, alike
from holdfast.reconcile.change import K, V
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.decision_log import Decision
from holdfast.runtime.reconciler.place import Place

log = structlog.get_logger(__name__)

_VERB = {op: op.name.lower() for op in Op}
_NAMED = 3
_OP = attrgetter("op")

_Sorted = Mapping[Op, Sequence[Change[K, V]]]


class DecisionNarrator(Generic[K, V]):
    """Tells what one place did and did not do."""

    def __init__(self, place: Place[K, V], context: Context) -> None:
        self._place = place
        self._clock = context.clock
        self._decisions = context.decisions
        self._metrics = context.metrics

    def held(self, news: Sequence[tuple[Change[K, V], Closed]]) -> None:
        """Holds that are new. Waiting to retry was told as a failure already."""
        for change, closed in news:
            if closed.gate in self._place.quiet:
                log.debug(f"{self._place.name} leaves {self._place.show(change.key)} as it is: {closed.reason.label}")
        untold = {BACKOFF, *self._place.quiet}
        news = [(change, closed) for change, closed in news if closed.gate not in untold]
        at = self._clock.wall()
        self._write(self._record(at, change, "held", closed.sentence, closed) for change, closed in news)
        groups = Counter((closed, change.op) for change, closed in news)
        for (closed, op), count in groups.items():
            log.warning(
                f"{self._place.name} holds {count:,} {op.name.lower()}{'s' * (count != 1)}: {closed.sentence}. "
                f"Opens by: {closed.opens}",
                gate=closed.gate,
                reason=closed.reason.label,
            )

    def applied(self, changes: Sequence[Change[K, V]], failed: Sequence[Outcome[K, V]]) -> None:
        done, routine = _by_op(changes), self._place.routine
        self._count(done, "applied")
        self._count(_by_op([outcome.change for outcome in failed]), "failed")
        told = done
        if routine is not None:
            told = _by_op([change for change in changes if not routine(change)])
        self._write(self._records(told, failed))
        groups = list(alike([*told.get(Op.DELETE, ()), *told.get(Op.REPLACE, ())]))
        self._tell_each(groups)
        self._metrics.decisions_lost.set(self._decisions.lost)
        for op, some in told.items():
            for values, those in self._in_words(some, [group for group in groups if group[0].op is op]):
                said = f": {values}" if values else ""
                log.info(f"{self._place.name} {self._place.deeds[op].done} {self._names(those)}{said}")
        for outcome in failed[:_NAMED]:
            log.warning(f"{self._place.name} could not {self._place.deeds[outcome.change.op].do} {self._told(outcome)}")

    def story(self, story: Outstanding[K, V], now: Instant) -> dict[str, Any]:
        """An outstanding object as `holdfast explain` shows it."""
        closed = story.closed
        return {
            "key": self._place.show(story.change.key),
            "kind": self._place.kinds.of(story.change.key),
            "op": _VERB[story.change.op],
            "since_s": round((now - story.since).total_seconds(), 3),
            "attempts": story.attempts,
            "error": story.error,
            "gate": closed.gate if closed else None,
            "reason": closed.sentence if closed else None,
            "opens": closed.opens if closed else None,
        }

    def _count(self, changes: _Sorted[K, V], outcome: str) -> None:
        for op, some in changes.items():
            self._metrics.writes.labels(op=_VERB[op], outcome=outcome).inc(len(some))

    def _records(self, done: _Sorted[K, V], failed: Sequence[Outcome[K, V]]) -> Iterable[Decision]:
        at = self._clock.wall()
        if created := done.get(Op.CREATE):
            made = f"{self._place.deeds[Op.CREATE].done} {self._names(created)}"
            first = self._record(at, created[0], "applied", made)
            yield first if len(created) == 1 else msgspec.structs.replace(first, count=len(created))
        for outcome in failed:
            yield self._record(at, outcome.change, "failed", outcome.error or "")

    def _in_words(
        self, changes: Sequence[Change[K, V]], groups: Sequence[Sequence[Change[K, V]]]
    ) -> Iterable[tuple[str, Sequence[Change[K, V]]]]:
        """From what to what, and which: one sentence for each, where that takes no more than a few."""
        found: dict[str, list[Change[K, V]]] = {}
        for some in groups:
            found.setdefault(self._values(some[0]), []).extend(some)
            if len(found) > _NAMED:
                break
        return found.items() if 0 < len(found) <= _NAMED else [("", changes)]

    def _tell_each(self, groups: Sequence[Sequence[Change[K, V]]]) -> None:
        """One record each. Those of a flood mostly say the same of another object: that is put into words once."""
        at, show = self._clock.wall(), self._place.show
        told = [(self._record(at, some[0], "applied"), some) for some in groups]
        self._write(record for record, some in told if len(some) == 1)
        for record, some in told:
            if len(some) > 1:
                self._decisions.repeat(record, [show(change.key) for change in some])

    def _record(
        self, at: datetime, change: Change[K, V], outcome: str, sentence: str = "", closed: Closed | None = None
    ) -> Decision:
        place = self._place
        said, old, new = self._words(change)
        return Decision(
            time=at,
            worker=place.name,
            op="hold" if closed else _VERB[change.op],
            key=place.show(change.key),
            kind=place.kinds.of(change.key),
            outcome=outcome,
            sentence=sentence or said,
            old=old,
            new=new,
            revision=change.owner.revision,
            term=place.term(),
            gate=closed.gate if closed else "",
            reason=closed.reason.label if closed else "",
        )

    def _words(self, change: Change[K, V]) -> tuple[str, str, str]:
        """What was done, and who wanted what was there and what is there now."""
        old, new, values = _owner(change.old), _owner(change.new), self._values(change)
        said = f" ({values})" if values else ""
        return f"{self._place.deeds[change.op].done}{said}{_because(old, new)}", old, new

    def _values(self, change: Change[K, V]) -> str:
        """From what to what, where values have words."""
        words = self._place.words
        was = words(change.old.value) if change.old is not None else ""
        if not was or change.new is None:
            return was
        return f"{was} → {will}" if (will := words(change.new.value)) else ""

    def _write(self, records: Iterable[Decision]) -> None:
        self._decisions.write(list(records))

    def _names(self, changes: Sequence[Change[K, V]]) -> str:
        names = ", ".join(self._place.show(change.key) for change in changes[:_NAMED])
        more = len(changes) - _NAMED
        return f"{len(changes):,} ({names}, and {more:,} more)" if more > 0 else names

    def _told(self, outcome: Outcome[K, V]) -> str:
        return f"{self._place.show(outcome.change.key)}: {outcome.error}"


def _by_op(changes: Sequence[Change[K, V]]) -> _Sorted[K, V]:
    """What there is of each sort, in the order of application."""
    ops: set[Op] = set(map(_OP, changes))
    if len(ops) == 1:
        return {ops.pop(): changes}
    return {op: [change for change in changes if change.op is op] for op in sorted(ops)}


def _owner(owned: Owned[V] | None) -> str:
    return "" if owned is None else f"{owned.source or 'nobody'}@{owned.revision}"


def _because(old: str, new: str) -> str:
    """Revision 0 stands for none."""
    wanted = (new or old).removesuffix("@0")
    return f": now wanted by {wanted}" if new else f": {wanted} wanted it last, nobody does now"
