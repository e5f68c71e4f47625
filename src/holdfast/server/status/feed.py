"""Feed of a status worker: changes from the mirror to the loop, live changes first, in bounded, gathered portions.

The next portion is taken when the loop has fetched the last one, so that however slow the database is, at most one item
per object waits, and it waits where it is coalesced. Fresh reports are checked for staleness on the way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from functools import cache, partial
from typing import Generic, TypeVar

import msgspec
import structlog

from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.model.calico.agent_status import AgentStatus
from holdfast.runtime.clock import Clock
from holdfast.server.status.kinds import StatusKind
from holdfast.server.status.rules.mass_loss import MassLoss
from holdfast.server.status.rules.staleness import Backlog, LateReport, Staleness
from holdfast.server.status.source import note_reports
from holdfast.store.mirror.mirror import Mirror
from holdfast.store.mirror.pending import Delta

log = structlog.get_logger(__name__)

T = TypeVar("T")
V = TypeVar("V", bound=msgspec.Struct)

MOST = 2_000
"""Objects per portion. Larger portions would drain a flood sooner, but write more that changes again meanwhile."""
RETRY = Duration(seconds=1)
GATHER = Duration(milliseconds=250)
"""Pause between two portions, so that one transaction covers what came meanwhile."""


async def follow(mirror: Mirror[T], name: str) -> None:
    """Keep a mirror running through errors of the store, so that the tasks beside it go on."""
    await mirror.keep_running(
        lambda error: log.warning("mirror failed; retrying", mirror=name, error=str(error)), RETRY
    )


class StatusFeed(Generic[T, V]):
    """`wake` makes the loop fetch; `mark` hands keys to it, which have waited since then; `behind` returns our own
    backlog, by which reports are judged."""

    def __init__(
        self,
        kind: StatusKind[T, V],
        mass_loss: MassLoss[bytes, V],
        staleness: Staleness,
        clock: Clock,
        wake: Callable[[], None],
        mark: Callable[[Collection[bytes], Instant], None],
        behind: Callable[[], Backlog],
    ) -> None:
        self._rules, self._mirror, self._rows = kind.rules, kind.mirror, kind.rows
        self._mass_loss = mass_loss
        self._staleness = staleness
        self._clock = clock
        self._wake = wake
        self._mark = mark
        self._behind = behind
        self._taken: dict[bytes, None] = {}
        self._since = NEVER
        self._handed_on = asyncio.Event()
        self._inventory_changed = True

    @property
    def taken(self) -> Collection[bytes]:
        """Keys that wait here."""
        return self._taken.keys()

    def oldest(self) -> Instant:
        """Instant since which the oldest change has waited here."""
        lag = self._mirror.lag(self._clock.now())
        pending = self._clock.now() - lag.oldest if self._mirror.backlog else NEVER
        return min(filter(None, (pending, self._since if self._taken else NEVER)), default=NEVER)

    async def listen(self) -> None:
        """Take changes from the mirror, without end."""
        while True:
            behind, began = self._behind(), self.oldest()
            deltas = await self._mirror.take(MOST)
            self.take(deltas, behind)
            self._since = began or self._clock.now()
            if self._taken:
                self._handed_on.clear()
                self._wake()
                await self._handed_on.wait()
            await asyncio.sleep(GATHER.total_seconds())

    def take(self, deltas: Sequence[Delta[T]], behind: Backlog) -> None:
        """Note which objects to compare, and judge the age of the reports."""
        fresh = (one.key for one in deltas if one.live and one.new is not None)
        note_reports(self._rules, self._mass_loss, self._clock.now(), fresh)
        self._taken |= dict.fromkeys(self._rules.affected(deltas))
        if self._rules.dated:
            self._judge_all(deltas, behind)

    def inventory_changed(self) -> None:
        self._inventory_changed = True
        self._wake()

    async def fetch(self) -> Collection[bytes]:
        """Hand on what waits here, with its age, and return the keys that the inventory has changed."""
        changed: Collection[bytes] = ()
        if self._inventory_changed:
            self._inventory_changed = False
            try:
                changed = await self._rows.follow(self._clock.now())
            except BaseException:
                self._inventory_changed = True
                raise
        if self._taken:
            self._mark(self._taken, self._since)
            self._taken = {}
        self._handed_on.set()
        return changed

    async def settle(self, is_open: Callable[[bytes], bool]) -> bool:
        return False

    def _judge_all(self, deltas: Sequence[Delta[T]], behind: Backlog) -> None:
        wall, now, host = self._clock.wall(), self._clock.now(), self._rules.host
        for delta in deltas:
            if delta.new is None:
                self._staleness.forget(host(delta.key))  # a host that comes back may have another clock
        self._staleness.heard([host(delta.key) for delta in deltas if delta.live and delta.new is not None], now)
        fleet = cache(partial(self._lateness, wall, now))  # of one portion, and only if a report of it is stale
        for delta in deltas:
            if isinstance(delta.new, AgentStatus):
                self._judge(delta, delta.new, behind, wall, now, fleet)

    def _lateness(self, wall: datetime, now: Instant) -> Sequence[Duration]:
        reports = self._mirror.objects.items()
        dated = ((self._rules.host(key), one.reported) for key, one in reports if isinstance(one, AgentStatus))
        return self._staleness.lateness(dated, wall, now)

    def _judge(
        self,
        delta: Delta[T],
        report: AgentStatus,
        behind: Backlog,
        wall: datetime,
        now: Instant,
        fleet: Callable[[], Sequence[Duration]],
    ) -> None:
        host = self._rules.host(delta.key)
        warning = self._staleness.report(
            host, report.reported, live=delta.live, behind=behind, wall=wall, now=now, fleet=fleet
        )
        if isinstance(warning, LateReport):
            log.warning(
                "report is stale",
                host=host,
                cause=warning.cause.value,
                age_s=warning.age.total_seconds(),
                revisions_behind=behind.revisions,
                waiting=behind.waiting,
            )
        elif warning is not None:
            log.warning("report has an unparseable time; its age is not known", host=host)
