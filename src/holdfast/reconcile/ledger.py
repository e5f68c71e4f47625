"""The ledger: what is outstanding for each object, why, since when, and when it is tried again.

It is the reconciler's memory between two looks. A held change keeps its place and its age until the object has been
compared again; a failed one is retried after 100 ms, doubling to 60 s, deletes as well; a wish that changed meanwhile
is tried at once. As a gate it holds what failed a moment ago, so that waiting to retry is explained like all waiting.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

import msgspec

from holdfast.model.base.time import Duration, Instant
from holdfast.reconcile.change import Change, K, Op, Outcome, V
from holdfast.reconcile.gate import Closed, Kinds, Plan, Reason

BACKOFF = "backoff"


class RetryReason(Reason):
    FAILED = "the last attempt failed"


class Outstanding(msgspec.Struct, Generic[K, V], frozen=True, gc=False):
    """All that is known of one outstanding object: the change it needs, and what stands in the way."""

    change: Change[K, V]
    since: Instant
    closed: Closed | None = None
    error: str | None = None
    attempts: int = 0
    retry: Instant | None = None

    @property
    def is_held(self) -> bool:
        """Whether somebody or something holds it on purpose; one that failed and is tried again soon is late."""
        return self.closed is not None and self.closed.gate != BACKOFF


@dataclass(frozen=True, slots=True)
class Backoff:
    first: Duration = Duration(milliseconds=100)
    most: Duration = Duration(seconds=60)

    def after(self, attempts: int) -> Duration:
        return min(self.most, self.first * (1 << min(attempts - 1, 20)))


class Ledger(Generic[K, V]):
    def __init__(self, kinds: Kinds[K], backoff: Backoff | None = None) -> None:
        self._kinds = kinds
        self._backoff = backoff or Backoff()
        self._stories: dict[K, Outstanding[K, V]] = {}
        self._tallies: dict[str, Counter[Op]] = {}
        self._retries: list[tuple[Instant, int, K]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._stories)

    def __iter__(self) -> Iterator[Outstanding[K, V]]:
        return iter(self._stories.values())

    def story(self, key: K) -> Outstanding[K, V] | None:
        """What is outstanding for this object, or None when it is as wanted."""
        return self._stories.get(key)

    def note(self, event: Plan[K, V] | Outcome[K, V], now: Instant) -> list[tuple[Change[K, V], Closed]]:
        """Takes a plan or an outcome into account. Returns the holds that are new or have a new reason."""
        if isinstance(event, Plan):
            return self._note_plan(event, now)
        self.note_outcomes([event], now)
        return []

    def note_outcomes(self, outcomes: Sequence[Outcome[K, V]], now: Instant) -> None:
        """The same for all that came of one batch. What succeeded is outstanding no more."""
        taken_out = self._stories.pop
        stories = [taken_out(outcome.change.key, None) for outcome in outcomes if outcome.error is None]
        self._settled([story.change for story in stories if story is not None])
        for outcome in outcomes:
            if outcome.error is not None:
                self._retry(outcome, now)

    def is_open(self, now: Instant) -> bool:
        return not self._retries

    def judge(self, change: Change[K, V], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        story = self._stories.get(change.key)
        if story is None or story.retry is None or story.retry <= now or not _same_wish(story.change, change):
            return None
        opens = f"the next attempt, in {(story.retry - now).total_seconds():.1f} s"
        return Closed(BACKOFF, RetryReason.FAILED, story.since, opens, story.error or "")

    def due(self, now: Instant) -> list[K]:
        """The objects whose time to be tried again has come."""
        keys: list[K] = []
        while self._retries and self._retries[0][0] <= now:
            retry, _, key = heapq.heappop(self._retries)
            story = self._stories.get(key)
            if story is not None and story.retry == retry:
                keys.append(key)
        return keys

    def next_due(self) -> Instant | None:
        return self._retries[0][0] if self._retries else None

    def outstanding(self, except_for: Collection[K] = ()) -> dict[str, Counter[Op]]:
        """How many changes of each kind wait, but for those keys: what a partial plan has to count as well."""
        tallies = {kind: Counter(tally) for kind, tally in self._tallies.items()}
        for key in self._stories.keys() & except_for:
            tallies[self._kinds.of(key)][self._stories[key].change.op] -= 1
        return tallies

    def _note_plan(self, plan: Plan[K, V], now: Instant) -> list[tuple[Change[K, V], Closed]]:
        compared = set(self._stories) if plan.looked is None else self._stories.keys() & plan.looked
        if compared:
            waiting = {change.key for change, _ in plan.held} | {change.key for change in plan.ready}
            for key in compared - waiting:
                self._drop(key)
        news = []
        for change, closed in plan.held:
            before = self._stories.get(change.key)
            if before is None or before.closed is None or _words(before.closed) != _words(closed):
                news.append((change, closed))
            self._keep(change, before, now, closed)
        new = [change for change in plan.ready if not self._is_kept(change, now)] if self._stories else plan.ready
        self._stories |= {change.key: Outstanding(change, now) for change in new}
        for (kind, op), count in self._kinds.count(new).items():
            self._tally(kind)[op] += count
        return news

    def _is_kept(self, change: Change[K, V], now: Instant) -> bool:
        """Keeps the age of an object that was outstanding before; most were not."""
        before = self._stories.get(change.key)
        if before is not None:
            self._keep(change, before, now, None)
        return before is not None

    def _keep(
        self, change: Change[K, V], before: Outstanding[K, V] | None, now: Instant, closed: Closed | None
    ) -> None:
        if before is None:
            story = Outstanding(change, now, closed)
        elif _same_wish(before.change, change):
            story = Outstanding(change, before.since, closed, before.error, before.attempts, before.retry)
        else:
            story = Outstanding(change, before.since, closed)
        self._set(story, before)

    def _retry(self, outcome: Outcome[K, V], now: Instant) -> None:
        key = outcome.change.key
        before = self._stories.get(key)
        attempts = 1 + (before.attempts if before else 0)
        retry = now + self._backoff.after(attempts)
        since = before.since if before else now
        self._set(Outstanding(outcome.change, since, None, outcome.error, attempts, retry), before)
        self._sequence += 1
        heapq.heappush(self._retries, (retry, self._sequence, key))

    def _set(self, story: Outstanding[K, V], before: Outstanding[K, V] | None) -> None:
        change = story.change
        if before is not None:
            self._drop(change.key)
        self._stories[change.key] = story
        self._tally(self._kinds.of(change.key))[change.op] += 1

    def _tally(self, kind: str) -> Counter[Op]:
        return self._tallies.setdefault(kind, Counter())

    def _drop(self, key: K) -> None:
        story = self._stories.pop(key, None)
        if story is not None:
            self._settled([story.change])

    def _settled(self, changes: Sequence[Change[K, V]]) -> None:
        for (kind, op), count in self._kinds.count(changes).items():
            self._tallies[kind][op] -= count


def _same_wish(before: Change[K, V], after: Change[K, V]) -> bool:
    return before.op is after.op and before.new == after.new


def _words(closed: Closed) -> tuple[str, Reason]:
    return closed.gate, closed.reason
