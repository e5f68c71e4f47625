"""Narrator: turns each decision into a record of the decision log, a count in the metrics and a log line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Generic

import msgspec
import structlog

from holdfast.model.base.region import shown_source
from holdfast.reconcile import BACKOFF, Change, Closed, Op, Outcome, Owned, alike
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
    """Records and logs what one place applied, held and failed to apply."""

    def __init__(self, place: Place[K, V], context: Context) -> None:
        self._place = place
        self._clock = context.clock
        self._decisions = context.decisions
        self._metrics = context.metrics

    def held(self, news: Sequence[tuple[Change[K, V], Closed]]) -> None:
        """Record new holds. A change that waits for its retry was recorded as failed already."""
        place = self._place
        for change, closed in news:
            if closed.gate in place.quiet:
                log.debug(
                    "change held",
                    place=place.name,
                    key=place.show(change.key),
                    gate=closed.gate,
                    reason=closed.reason.label,
                )
        quiet = {BACKOFF, *place.quiet}
        news = [(change, closed) for change, closed in news if closed.gate not in quiet]
        at = self._clock.wall()
        self._write(self._record(at, change, "held", closed.sentence, closed) for change, closed in news)
        groups = Counter((closed, change.op) for change, closed in news)
        for (closed, op), count in groups.items():
            log.warning(
                "changes held",
                place=place.name,
                op=_VERB[op],
                count=count,
                gate=closed.gate,
                reason=closed.reason.label,
                why=closed.sentence,
                to_release=closed.opens,
            )

    def applied(self, changes: Sequence[Change[K, V]], failed: Sequence[Outcome[K, V]]) -> None:
        done, routine = _by_op(changes), self._place.routine
        self._count(done, "applied")
        self._count(_by_op([outcome.change for outcome in failed]), "failed")
        recorded = done
        if routine is not None:
            recorded = _by_op([change for change in changes if not routine(change)])
        self._write(self._records(recorded, failed))
        groups = list(alike([*recorded.get(Op.DELETE, ()), *recorded.get(Op.REPLACE, ())]))
        self._record_each(groups)
        self._metrics.decisions_lost.set(self._decisions.lost)
        for op, some in recorded.items():
            for values, those in self._by_values(some, [group for group in groups if group[0].op is op]):
                fields = {"values": values} if values else {}
                log.info("changes applied", place=self._place.name, op=_VERB[op], keys=self._names(those), **fields)
        for outcome in failed[:_NAMED]:
            log.warning(
                "change failed",
                place=self._place.name,
                op=_VERB[outcome.change.op],
                key=self._place.show(outcome.change.key),
                error=outcome.error,
            )

    def _count(self, changes: _Sorted[K, V], outcome: str) -> None:
        for op, some in changes.items():
            self._metrics.writes.labels(op=_VERB[op], outcome=outcome).inc(len(some))

    def _records(self, done: _Sorted[K, V], failed: Sequence[Outcome[K, V]]) -> Iterable[Decision]:
        at = self._clock.wall()
        if created := done.get(Op.CREATE):
            made = f"{self._place.done[Op.CREATE]} {self._names(created)}"
            first = self._record(at, created[0], "applied", made)
            yield first if len(created) == 1 else msgspec.structs.replace(first, count=len(created))
        for outcome in failed:
            yield self._record(at, outcome.change, "failed", outcome.error or "")

    def _by_values(
        self, changes: Sequence[Change[K, V]], groups: Sequence[Sequence[Change[K, V]]]
    ) -> Iterable[tuple[str, Sequence[Change[K, V]]]]:
        """Group changes by their values in words; one group without values when there are more than a few."""
        found: dict[str, list[Change[K, V]]] = {}
        for some in groups:
            found.setdefault(self._values(some[0]), []).extend(some)
            if len(found) > _NAMED:
                break
        return found.items() if 0 < len(found) <= _NAMED else [("", changes)]

    def _record_each(self, groups: Sequence[Sequence[Change[K, V]]]) -> None:
        """Write one record per change. Changes of a group differ only in their key, so a record is built once."""
        at, show = self._clock.wall(), self._place.show
        records = [(self._record(at, some[0], "applied"), some) for some in groups]
        self._write(record for record, some in records if len(some) == 1)
        for record, some in records:
            if len(some) > 1:
                self._decisions.repeat(record, [show(change.key) for change in some])

    def _record(
        self, at: datetime, change: Change[K, V], outcome: str, sentence: str = "", closed: Closed | None = None
    ) -> Decision:
        place = self._place
        applied, old, new = self._words(change)
        return Decision(
            time=at,
            worker=place.name,
            op="hold" if closed else _VERB[change.op],
            key=place.show(change.key),
            kind=place.kinds.of(change.key),
            outcome=outcome,
            sentence=sentence or applied,
            old=old,
            new=new,
            revision=change.owner.revision,
            term=place.term(),
            gate=closed.gate if closed else "",
            reason=closed.reason.label if closed else "",
        )

    def _words(self, change: Change[K, V]) -> tuple[str, str, str]:
        """Return the sentence of an applied change, its old owner and its new owner."""
        old, new, values = _owner(change.old), _owner(change.new), self._values(change)
        shown = f" ({values})" if values else ""
        return f"{self._place.done[change.op]}{shown}{_because(old, new)}", old, new

    def _values(self, change: Change[K, V]) -> str:
        """Format the old and new value where the place formats values: `ACTIVE → DOWN`."""
        show = self._place.show_value
        old = show(change.old.value) if change.old is not None else ""
        if not old or change.new is None:
            return old
        return f"{old} → {new}" if (new := show(change.new.value)) else ""

    def _write(self, records: Iterable[Decision]) -> None:
        self._decisions.write(list(records))

    def _names(self, changes: Sequence[Change[K, V]]) -> str:
        names = ", ".join(self._place.show(change.key) for change in changes[:_NAMED])
        more = len(changes) - _NAMED
        return f"{len(changes):,} ({names}, and {more:,} more)" if more > 0 else names


def _by_op(changes: Sequence[Change[K, V]]) -> _Sorted[K, V]:
    """Group changes by operation, in the order of application."""
    ops: set[Op] = set(map(_OP, changes))
    if len(ops) == 1:
        return {ops.pop(): changes}
    return {op: [change for change in changes if change.op is op] for op in sorted(ops)}


def _owner(owned: Owned[V] | None) -> str:
    return "" if owned is None else f"{owned.source or 'no source'}@{owned.revision}"


def _because(old: str, new: str) -> str:
    """Name the source and revision that caused the change; revision 0 stands for none."""
    name, _, revision = (new or old).partition("@")
    source = shown_source(name) + (f" at revision {revision}" if revision != "0" else "")
    return f": now wanted by {source}" if new else f": last wanted by {source}, no longer wanted"
