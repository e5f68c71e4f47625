"""Ledger: the outstanding change of each object, why it waits, since when, and when it is retried.

The ledger keeps a held change and its age until the object has been compared again. A failed change, deletes
included, is retried after 100 ms, doubling to 60 s; a change that differs from the failed one is tried at once, and so
is every change after an event that may have removed the cause. The ledger is also a gate: it holds what failed
recently, so that a retry is explained like every other wait.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

import msgspec

from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.reconcile.change import Change, K, Op, Outcome, V
from holdfast.reconcile.gate import Closed, Kinds, Plan, Reason

BACKOFF = "backoff"


class RetryReason(Reason):
    FAILED = "the last attempt failed"


class Outstanding(msgspec.Struct, Generic[K, V], frozen=True, gc=False):
    """One outstanding object: the change it needs, and what holds or failed it.

    A change is in one of three states: held by a gate, failed and waiting for its retry, or about to be applied.
    """

    change: Change[K, V]
    since: Instant
    closed: Closed | None = None
    error: str | None = None
    attempts: int = 0
    retry: Instant | None = None
    released: Instant = NEVER
    """When the gate that held it opened; NEVER if none has held it, or one does."""
    aside: bool = False
    """True for a delete that the brake does not count: another gate holds it, or it is no loss."""

    @property
    def is_held(self) -> bool:
        """True when a gate holds it; waiting for a retry does not count."""
        return self.closed is not None and self.closed.gate != BACKOFF

    @property
    def waits_since(self) -> Instant:
        """Since when it waits to be applied: the time that a gate held it does not count."""
        return self.released or self.since

    @property
    def is_failed(self) -> bool:
        """True when its last attempt failed and no gate holds it now."""
        return self.error is not None and not self.is_held


@dataclass(frozen=True, slots=True)
class Backoff:
    first: Duration = Duration(milliseconds=100)
    most: Duration = Duration(seconds=60)

    def after(self, attempts: int) -> Duration:
        return min(self.most, self.first * (1 << min(attempts - 1, 20)))


class Ledger(Generic[K, V]):
    """`counts` is False for a delete that is no loss."""

    def __init__(
        self,
        kinds: Kinds[K],
        backoff: Backoff | None = None,
        counts: Callable[[Change[K, V]], bool] | None = None,
    ) -> None:
        self._kinds = kinds
        self._counts = counts
        self._backoff = backoff or Backoff()
        self._entries: dict[K, Outstanding[K, V]] = {}
        self._tallies: dict[str, Counter[Op]] = {}
        self._aside: Counter[str] = Counter()
        self._retries: list[tuple[Instant, int, K]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Outstanding[K, V]]:
        return iter(self._entries.values())

    def outstanding(self, key: K) -> Outstanding[K, V] | None:
        """Return the outstanding change of this object, or None when it is as desired."""
        return self._entries.get(key)

    def note(self, event: Plan[K, V] | Outcome[K, V], now: Instant) -> list[tuple[Change[K, V], Closed]]:
        """Record a plan or an outcome. Returns the holds that are new or have a new reason."""
        if isinstance(event, Plan):
            return self._note_plan(event, now)
        self.note_outcomes([event], now)
        return []

    def note_outcomes(self, outcomes: Sequence[Outcome[K, V]], now: Instant) -> None:
        """Record the outcomes of one batch. What succeeded is no longer outstanding."""
        pop = self._entries.pop
        applied = [pop(outcome.change.key, None) for outcome in outcomes if outcome.error is None]
        self._settled([entry for entry in applied if entry is not None])
        if not self._entries:
            self._entries = {}  # one that held a hundred thousand changes keeps its memory
        for outcome in outcomes:
            if outcome.error is not None:
                self._retry(outcome, now)

    def is_open(self, now: Instant) -> bool:
        return not self._retries

    def judge(self, change: Change[K, V], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        entry = self._entries.get(change.key)
        if entry is None or entry.retry is None or entry.retry <= now or not _same_change(entry.change, change):
            return None
        opens = f"the next attempt, in {(entry.retry - now).total_seconds():.1f} s"
        return Closed(BACKOFF, RetryReason.FAILED, entry.since, opens, entry.error or "")

    def due(self, now: Instant) -> list[K]:
        """Return the objects whose retry is due."""
        keys: list[K] = []
        while self._retries and self._retries[0][0] <= now:
            retry, _, key = heapq.heappop(self._retries)
            entry = self._entries.get(key)
            if entry is not None and entry.retry == retry:
                keys.append(key)
        return keys

    def clear_backoff(self, keys: Collection[K] | None = None) -> None:
        """Forget the failed attempts of these objects, or of all: something happened that may let them succeed."""
        # protection: N20, else an object waits for its retry long after what it waited for is back
        for key in list(self._entries) if keys is None else self._entries.keys() & keys:
            entry = self._entries[key]
            if entry.retry is not None:
                self._entries[key] = msgspec.structs.replace(entry, attempts=0, retry=None)
        if keys is None:
            self._retries.clear()

    def next_due(self) -> Instant | None:
        return self._retries[0][0] if self._retries else None

    def tallies(self) -> dict[str, Counter[Op]]:
        """Count the outstanding changes of each kind."""
        return {kind: Counter(tally) for kind, tally in self._tallies.items()}

    def counted(self, except_for: Collection[K] = ()) -> tuple[dict[str, Counter[Op]], Counter[str]]:
        """Count the outstanding changes of each kind except for those keys; a partial plan must count them too.

        Deletes that the brake does not count are not in the first answer; the second is their number by kind.
        """
        tallies, aside = self.tallies(), self._aside.copy()
        for key in self._entries.keys() & except_for:
            entry = self._entries[key]
            tallies[self._kinds.of(key)][entry.change.op] -= 1
            aside[self._kinds.of(key)] -= entry.aside
        for kind, count in aside.items():
            tallies[kind][Op.DELETE] -= count
        return tallies, aside

    def _is_aside(self, change: Change[K, V], closed: Closed | None) -> bool:
        if change.op is not Op.DELETE:
            return False
        if closed is not None and closed.gate != BACKOFF and not closed.counts:
            return True
        return self._counts is not None and not self._counts(change)

    def _note_plan(self, plan: Plan[K, V], now: Instant) -> list[tuple[Change[K, V], Closed]]:
        compared = set(self._entries) if plan.compared is None else self._entries.keys() & plan.compared
        if compared:
            waiting = {change.key for change, _ in plan.held} | {change.key for change in plan.ready}
            for key in compared - waiting:
                self._drop(key)
        news = []
        for change, closed in plan.held:
            before = self._entries.get(change.key)
            if before is None or before.closed is None or _words(before.closed) != _words(closed):
                news.append((change, closed))
            self._keep(change, before, now, closed)
        new = [change for change in plan.ready if not self._is_kept(change, now)] if self._entries else plan.ready
        self._entries |= {change.key: Outstanding(change, now) for change in new}
        for (kind, op), count in self._kinds.count(new).items():
            self._tally(kind)[op] += count
        return news

    def _is_kept(self, change: Change[K, V], now: Instant) -> bool:
        """Keep the age of an object that was outstanding before; returns False for one that was not."""
        before = self._entries.get(change.key)
        if before is not None:
            self._keep(change, before, now, None)
        return before is not None

    def _keep(
        self, change: Change[K, V], before: Outstanding[K, V] | None, now: Instant, closed: Closed | None
    ) -> None:
        if before is None:
            self._set(Outstanding(change, now, closed), before)
            return
        entry: Outstanding[K, V] = Outstanding(change, before.since, closed, released=before.released)
        if _same_change(before.change, change):
            entry = msgspec.structs.replace(before, change=change, closed=closed, aside=False)
        if entry.is_held or before.is_held:
            entry = msgspec.structs.replace(entry, released=NEVER if entry.is_held else now)
        self._set(entry, before)

    def _retry(self, outcome: Outcome[K, V], now: Instant) -> None:
        key = outcome.change.key
        before = self._entries.get(key)
        attempts = 1 + (before.attempts if before else 0)
        retry = now + self._backoff.after(attempts)
        since, released = (before.since, before.released) if before else (now, NEVER)
        self._set(Outstanding(outcome.change, since, None, outcome.error, attempts, retry, released), before)
        self._sequence += 1
        heapq.heappush(self._retries, (retry, self._sequence, key))

    def _set(self, entry: Outstanding[K, V], before: Outstanding[K, V] | None) -> None:
        change = entry.change
        if before is not None:
            self._drop(change.key)
        if self._is_aside(change, entry.closed):
            entry = msgspec.structs.replace(entry, aside=True)
            self._aside[self._kinds.of(change.key)] += 1
        self._entries[change.key] = entry
        self._tally(self._kinds.of(change.key))[change.op] += 1

    def _tally(self, kind: str) -> Counter[Op]:
        return self._tallies.setdefault(kind, Counter())

    def _drop(self, key: K) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._settled([entry])

    def _settled(self, entries: Sequence[Outstanding[K, V]]) -> None:
        for (kind, op), count in self._kinds.count([entry.change for entry in entries]).items():
            self._tallies[kind][op] -= count
        aside = [entry.change.key for entry in entries if entry.aside]
        if aside:
            self._aside.subtract(self._kinds.census(aside))


def _same_change(before: Change[K, V], after: Change[K, V]) -> bool:
    return before.op is after.op and before.new == after.new


def _words(closed: Closed) -> tuple[str, Reason]:
    return closed.gate, closed.reason
