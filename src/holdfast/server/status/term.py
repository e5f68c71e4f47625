"""A status worker's reign: from winning to losing, what is reported goes into the inventory, differences only.

The mirror is not made here: it is warm on followers, too, so that a new leader compares what it has and writes what
differs (C16). Agents and endpoints have a reign each, of the same make: the one loop of
`holdfast.runtime.reconciler.loop`, fed by the mirror and by changes of the inventory (C31), audited every few minutes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

import msgspec
import structlog

from holdfast.inventory.api import Fence, Observed
from holdfast.inventory.sql.thread import RunInThread
from holdfast.inventory.sql.wake import Waker
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.reconcile import Outstanding, Pause, PauseGate, SyncGate, one_kind
from holdfast.runtime.clock import Clock
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.daemon.vitals import Vitals
from holdfast.runtime.decision_log import DecisionLog
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.runtime.reconciler import Reconciler
from holdfast.runtime.reconciler.place import LoopTimings, Place
from holdfast.runtime.tasks import until_first
from holdfast.server.election.leadership import LeaderGate, Leadership
from holdfast.server.status.feed import StatusFeed
from holdfast.server.status.inventory_rows import Rows
from holdfast.server.status.mass_loss import MassLoss
from holdfast.server.status.metrics import StatusMetrics
from holdfast.server.status.source import StatusRules, StatusSource, hear, loser
from holdfast.server.status.staleness import Backlog, Staleness
from holdfast.server.status.target import ObservedTarget
from holdfast.store.mirror.mirror import Mirror

log = structlog.get_logger(__name__)

NAMED = 20
"""Bad values that are named one by one at a time."""

T = TypeVar("T")
V = TypeVar("V", bound=msgspec.Struct)

BATCH = 5_000
LOOK_EVERY = Duration(seconds=2)
REMEMBERED = 1_000
"""Looks at the store's revision that are remembered: how far behind we are is told for half an hour exactly."""


@dataclass
class Around:
    """What a status worker stands on."""

    observed: Observed
    aside: RunInThread
    waker: Waker
    clock: Clock
    leadership: Leadership
    vitals: Vitals
    metrics: WorkerMetrics
    decisions: DecisionLog
    staleness: Staleness = field(default_factory=Staleness)
    audit_every: Duration = Duration(minutes=5)
    poll_every: Duration = Duration(seconds=5)
    figures: StatusMetrics = field(init=False)

    def __post_init__(self) -> None:
        self.figures = StatusMetrics(self.metrics.registry)


@dataclass
class StatusKind(Generic[T, V]):
    """Which of the two it is: what is reported about, its mirror, its rows of the inventory, and how a row looks."""

    name: str
    subject: StatusRules[T, V]
    mirror: Mirror[T]
    rows: Rows
    blank: V
    """A row without content: what stands for one that cannot be read."""
    states: Callable[[Iterable[V]], Mapping[str, int]]
    extra: Callable[[], Mapping[str, int]] = field(default=dict)


class StatusTerm(Generic[T, V]):
    """One term's work on one topic, from the moment that the inventory's fence is raised."""

    def __init__(self, around: Around, topic: StatusKind[T, V], fence: Fence) -> None:
        self.around = around
        self.topic = topic
        subject, clock = topic.subject, around.clock
        self.mass_loss: MassLoss[bytes, V] = MassLoss(topic.name, partial(loser, subject))
        self.intent: PauseGate[bytes] = PauseGate(topic.name)
        self.sync = SyncGate()
        self.target = ObservedTarget(
            around.observed,
            around.aside,
            fence,
            subject.kind,
            subject.prefix,
            topic.blank,
            clock,
            expected=lambda: len(topic.mirror.objects),
        )
        self.source = StatusSource(subject, topic.mirror, topic.rows, self.target, self.mass_loss, clock.now)
        self.feed = StatusFeed(
            subject,
            topic.mirror,
            topic.rows,
            self.mass_loss,
            around.staleness,
            clock,
            lambda: self.reconciler.dirty.wake(),
        )
        self.feed.behind = self.behind
        self.reconciler = Reconciler(
            self._place(fence.term),
            Context(clock, around.vitals, around.decisions, around.metrics),
            LoopTimings(audit=around.audit_every, batch=BATCH),
        )
        around.vitals.consumes(self)
        around.staleness.begin()
        self._bad: set[bytes] = set()
        self._seen: deque[tuple[Instant, int]] = deque([(clock.now(), topic.mirror.revision)], maxlen=REMEMBERED)

    def _place(self, term: int) -> Place[bytes, V]:
        return Place(
            self.topic.name,
            self.source,
            self.target,
            [LeaderGate(self.around.leadership), self.mass_loss, self.intent],
            one_kind(self.topic.subject.plural),
            self.topic.subject.show,
            self._same,
            feed=self.feed,
            term=lambda: term,
            routine=self.topic.subject.routine,
            show_value=self.topic.subject.words,
            live_first=True,
            read_back=False,  # a transaction that was committed is its own proof
        )

    def _same(self, new: V, old: V) -> bool:
        return old is not self.target.blank and same(new, old)

    def backlog(self) -> int:
        """Objects that wait, wherever they do: each counts once (rule 10)."""
        return self._count(self.reconciler.ledger)

    def oldest(self) -> Instant:
        return min(filter(None, (self.feed.oldest(), self.reconciler.oldest())), default=NEVER)

    def behind(self) -> Backlog:
        """How far the inventory is behind the store, because of us: what is held or paused waits for somebody else."""
        late = [story for story in self.reconciler.ledger if not story.is_held]
        since = min((story.since for story in late), default=NEVER)
        oldest = min(filter(None, (self.feed.oldest(), self.reconciler.dirty.oldest(), since)), default=NEVER)
        if not oldest:
            return Backlog()
        then = next((revision for at, revision in reversed(self._seen) if at <= oldest), self._seen[0][1])
        revisions = max(0, self.topic.mirror.revision - then)
        return Backlog(revisions, self._count(late), self.around.clock.now() - oldest)

    def _count(self, stories: Iterable[Outstanding[bytes, V]]) -> int:
        """What waits at the mirror may be much, and is not gone through."""
        mirror = self.topic.mirror
        keys = {*self.feed.taken, *self.reconciler.dirty, *(story.change.key for story in stories)}
        if not mirror.backlog:
            return len(keys)
        return mirror.backlog + sum(1 for key in keys if not mirror.is_pending(key))

    async def run(self, stopping: asyncio.Event) -> None:
        """Works until cancelled or told to stop. Raises `Deposed`."""
        await until_first(
            {
                "reconciler": self.reconciler.run(stopping),
                "mirror": self.feed.listen(),
                "inventory": self._listen(),
                "look": self._look_around(),
            }
        )

    async def _listen(self) -> None:
        while True:
            await self.around.waker.wait(self.around.poll_every)
            self.feed.inventory_changed()

    async def _look_around(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY.total_seconds())
            self.look()

    def obey(self, pause: Pause | None) -> None:
        """What operators said, here or to another server, takes effect."""
        before, self.intent.pause = self.intent.pause, pause
        if (before is None) != (pause is None):
            self.reconciler.dirty.mark_all()

    def look(self) -> None:
        """Says when something has waited for too long, and shows how things are."""
        self._seen.append((self.around.clock.now(), self.topic.mirror.revision))
        hear(self.topic.subject, self.mass_loss)  # where nothing changes agents still report, and that can end a hold
        self.mass_loss.look(self.around.clock.now())
        late = self.around.staleness.waiting(self.behind(), self.around.clock.now())
        if late is not None:
            log.warning(late.sentence)
        self._look_at_bad()
        self.around.figures.staleness(self.around.staleness, self.behind())
        self.around.figures.objects(self.topic.subject.kind, self.topic.states(self.target.values()))
        bad = len(self.topic.mirror.bad)
        self.around.figures.findings(bad=bad, held=len(self.mass_loss.held), **self.topic.extra())

    def _look_at_bad(self) -> None:
        """A value that was never good is no change of an object, and yet it is present (C39), so it is looked at here.
        It is named once (rule 9)."""
        bad = self.topic.mirror.bad
        new = sorted(bad.keys() - self._bad)
        for key in new[:NAMED]:
            log.warning(f"{self.topic.name} passes over a value that cannot be read: {bad[key]}")
        if len(new) > NAMED:
            log.warning(f"{self.topic.name} passes over {len(new) - NAMED:,} more that cannot be read: holdfast doctor")
        self.reconciler.dirty.mark([*(bad.keys() ^ self._bad), *self.source.readable_again()])
        self._bad = set(bad)


def same(new: V, old: V) -> bool:
    """C16: what the inventory says already is not written again."""
    return new == old
