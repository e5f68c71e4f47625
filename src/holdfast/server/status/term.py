"""One term of a status worker: reports go into the inventory, differences only.

The mirror belongs to `StatusKind`, because it is warm on followers, too: a new leader compares what it has and writes
what differs (C16). Agents and endpoints have one term each, of the same class: the one loop of
`holdfast.runtime.reconciler`, fed by the mirror and by changes of the inventory (C31), with an audit every few minutes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Generic, TypeVar

import msgspec
import structlog

from holdfast.inventory.api import Fence
from holdfast.inventory.sql.wake import Waker
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.reconcile import Away, Outstanding, PauseGate, SyncGate, one_kind
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.reconciler import Reconciler
from holdfast.runtime.reconciler.place import LoopTimings, Place
from holdfast.runtime.tasks import until_first
from holdfast.server.election.leadership import LeaderGate, Leadership
from holdfast.server.identity.gate import StatusIdentityGate
from holdfast.server.status.feed import StatusFeed
from holdfast.server.status.kinds import StatusKind
from holdfast.server.status.metrics import StatusMetrics
from holdfast.server.status.rules.mass_loss import MassLoss
from holdfast.server.status.rules.staleness import Backlog, Staleness
from holdfast.server.status.source import StatusSource, lost_host, note_reports
from holdfast.server.status.target import ObservedTarget

log = structlog.get_logger(__name__)

NAMED = 20
"""Bad values that are logged one by one; the rest is counted."""

T = TypeVar("T")
V = TypeVar("V", bound=msgspec.Struct)

BATCH = 5_000
CHECK_EVERY = Duration(seconds=2)
KEEP_FRESH_EVERY = Duration(seconds=5)
"""Well below half of Neutron's `agent_down_time`, after which a heartbeat is renewed."""
REMEMBERED = 1_000
"""Samples of the store's revision that are kept: the backlog in revisions is exact for half an hour."""


class StatusTerm(Generic[T, V]):
    """One term's work on one kind, from the moment that the inventory's fence is raised."""

    def __init__(
        self,
        context: Context,
        kind: StatusKind[T, V],
        fence: Fence,
        *,
        waker: Waker,
        leadership: Leadership,
        metrics: StatusMetrics,
        staleness: Staleness,
        audit_every: Duration = Duration(minutes=5),
        poll_every: Duration = Duration(seconds=5),
        identity: StatusIdentityGate | None = None,
        confirm: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.context = context
        self.kind = kind
        self.rules = rules = kind.rules
        self.mirror = kind.mirror
        self.staleness = staleness
        self._metrics = metrics
        self._waker = waker
        self._poll_every = poll_every
        self._identity = [identity] if identity is not None else []
        if identity is not None:
            identity.follow(lambda: kind.mirror.rewinds, self._has_report)
        clock = context.clock
        self.mass_loss: MassLoss[bytes, V] = MassLoss(rules.name, partial(lost_host, rules))
        self.pause: PauseGate[bytes] = PauseGate()
        self.sync = SyncGate()
        self.target = ObservedTarget(
            kind.observed,
            kind.run_in_thread,
            fence,
            rules.kind,
            rules.prefix,
            rules.blank,
            clock,
            expected=lambda: len(kind.mirror.objects),
            attempted=lambda: context.vitals.attempted(success=False),
            confirm=confirm,
        )
        self.source = StatusSource(kind, self.target, self.mass_loss, clock.now)
        self.feed = StatusFeed(
            kind,
            self.mass_loss,
            staleness,
            clock,
            wake=lambda: self.reconciler.dirty.wake(),
            mark=lambda keys, since: self.reconciler.dirty.mark(keys, since),
            behind=self.behind,
        )
        self.reconciler = Reconciler(
            self._place(leadership, fence.term), context, LoopTimings(audit=audit_every, batch=BATCH)
        )
        context.vitals.consumes(self)
        staleness.begin()
        self._bad: set[bytes] = set()
        self._revisions: deque[tuple[Instant, int]] = deque([(clock.now(), kind.mirror.revision)], maxlen=REMEMBERED)

    def _place(self, leadership: Leadership, term: int) -> Place[bytes, V]:
        return Place(
            self.rules.name,
            self.source,
            self.target,
            [LeaderGate(leadership), *self._identity, self.mass_loss, self.pause],
            one_kind(self.rules.plural),
            self.rules.show,
            self._same,
            feed=self.feed,
            term=lambda: term,
            routine=self.rules.routine,
            show_value=self.rules.words,
            live_first=True,
            read_back=False,  # a committed transaction proves itself
        )

    def _has_report(self, key: bytes) -> bool:
        """Return whether the store had a report when its row was compared: one that came since then is still to be
        handled, and the row follows from its absence."""
        if self.mirror.is_pending(key) or key in self.feed.taken:
            return False
        return key in self.mirror.objects or key in self.mirror.bad

    def _same(self, new: V, old: V) -> bool:
        return old is not self.target.blank and same(new, old)

    def backlog(self) -> int:
        """Number of waiting objects, wherever they wait: each counts once (rule 10). A turn that is under way counts as
        one at least, as in every loop: if it hangs, that is a stall."""
        return self._count(self.reconciler.ledger) or int(self.reconciler.is_in_turn())

    def oldest(self) -> Instant:
        return min(filter(None, (self.feed.oldest(), self.reconciler.oldest())), default=NEVER)

    def behind(self) -> Backlog:
        """Backlog of the inventory behind the store that is our own: what is held or paused does not count."""
        late = [one for one in self.reconciler.ledger if not one.is_held]
        since = min((one.waits_since for one in late), default=NEVER)
        in_hand = self.reconciler.in_hand.since if self.reconciler.in_hand.keys else NEVER
        oldest = min(filter(None, (self.feed.oldest(), self.reconciler.dirty.oldest(), in_hand, since)), default=NEVER)
        if not oldest:
            return Backlog()
        then = next((revision for at, revision in reversed(self._revisions) if at <= oldest), self._revisions[0][1])
        revisions = max(0, self.mirror.revision - then)
        return Backlog(revisions, self._count(late), self.context.clock.now() - oldest)

    def _count(self, outstanding: Iterable[Outstanding[bytes, V]]) -> int:
        """Count without iterating over what waits at the mirror, which may be much."""
        mirror = self.mirror
        in_hand = self.reconciler.in_hand.keys
        keys = {*self.feed.taken, *self.reconciler.dirty, *in_hand, *(one.change.key for one in outstanding)}
        if not mirror.backlog:
            return len(keys)
        return mirror.backlog + sum(1 for key in keys if not mirror.is_pending(key))

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until cancelled or `stopping` is set. Raises `Deposed`."""
        works = {
            "reconciler": self.reconciler.run(stopping),
            "mirror": self.feed.listen(),
            "inventory": self._listen(),
            "check": self._check_periodically(),
        }
        if not self.kind.observed.is_fenced:
            works["heartbeats"] = self._keep_fresh_periodically()
        await until_first(works)

    async def _listen(self) -> None:
        while True:
            await self._waker.wait(self._poll_every)
            self.feed.inventory_changed()

    async def _check_periodically(self) -> None:
        while True:
            await asyncio.sleep(CHECK_EVERY.total_seconds())
            self.check()

    async def _keep_fresh_periodically(self) -> None:
        while True:
            await asyncio.sleep(KEEP_FRESH_EVERY.total_seconds())
            try:
                await self.target.keep_fresh()
            except Away as away:
                log.debug("cannot renew heartbeats; retrying", error=str(away))

    def check(self) -> None:
        """Warn when a change has waited for too long, compare unreadable values, and update the metrics."""
        now = self.context.clock.now()
        self._revisions.append((now, self.mirror.revision))
        note_reports(self.rules, self.mass_loss, now)  # reports without a change can end a hold, too
        self.mass_loss.release_due(now)
        behind = self.behind()
        late = self.staleness.waiting(behind, now)
        if late is not None:
            log.warning(
                "status is behind",
                cause=late.cause.value,
                age_s=late.age.total_seconds(),
                revisions_behind=behind.revisions,
                waiting=behind.waiting,
            )
        self._check_bad()
        self._metrics.staleness(self.staleness, self.behind())
        self._metrics.objects(self.rules.kind, self.rules.states(self.target.values()))
        self._metrics.findings(bad=len(self.mirror.bad), held=len(self.mass_loss.held), **self.rules.counts())

    def _check_bad(self) -> None:
        """A value that was never good is no change of the mirror, but it is present (C39), so it is compared here. Each
        is logged once (rule 9)."""
        bad = self.mirror.bad
        new = sorted(bad.keys() - self._bad)
        for key in new[:NAMED]:
            log.warning("unreadable value skipped", error=str(bad[key]))
        if len(new) > NAMED:
            log.warning("more unreadable values skipped: see holdfast doctor", count=len(new) - NAMED)
        self.reconciler.dirty.mark([*(bad.keys() ^ self._bad), *self.source.readable_again()])
        self._bad = set(bad)


def same(new: V, old: V) -> bool:  # protection: C15, C16
    """C16: an equal row is not written again."""
    return new == old
