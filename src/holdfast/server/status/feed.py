"""From the mirror to the loop: what has changed, live changes first, a bounded portion at a time, gathered.

The next portion is taken when the last one has been handed on, so however slow the database is, what waits is at most
one item per object, and it waits where it is coalesced. Fresh reports are judged on the way: are they old, and why?
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Generic, TypeVar

import msgspec
import structlog

from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.model.calico.agent_status import AgentStatus
from holdfast.runtime.clock import Clock
from holdfast.server.status.inventory_rows import Rows
from holdfast.server.status.mass_loss import MassLoss
from holdfast.server.status.source import StatusRules, hear
from holdfast.server.status.staleness import Backlog, LateReport, Staleness
from holdfast.store.mirror.mirror import Mirror
from holdfast.store.mirror.pending import Delta

log = structlog.get_logger(__name__)

T = TypeVar("T")
V = TypeVar("V", bound=msgspec.Struct)

MOST = 2_000
"""Objects of a portion. Larger ones would drain a flood sooner and write more of what has changed again meanwhile."""
RETRY = Duration(seconds=1)
GATHER = Duration(milliseconds=250)
"""Between two portions: one transaction for what came meanwhile."""


async def follow(mirror: Mirror[T], name: str) -> None:
    """Keeps a mirror warm, whatever the store says: whoever else works here goes on meanwhile."""
    await mirror.keep_running(lambda error: log.warning(f"{name} cannot follow the store: {error}"), RETRY)


class StatusFeed(Generic[T, V]):
    """The feed of a status worker's loop, and its ear at the mirror. `wake` turns the loop."""

    def __init__(
        self,
        subject: StatusRules[T, V],
        mirror: Mirror[T],
        rows: Rows,
        mass_loss: MassLoss[bytes, V],
        staleness: Staleness,
        clock: Clock,
        wake: Callable[[], None],
    ) -> None:
        self._subject = subject
        self._mirror = mirror
        self._rows = rows
        self._mass_loss = mass_loss
        self._staleness = staleness
        self._clock = clock
        self._wake = wake
        self._taken: dict[bytes, None] = {}
        self._since = NEVER
        self._handed_on = asyncio.Event()
        self._inventory_changed = True
        self.behind: Callable[[], Backlog] = lambda: Backlog()

    @property
    def taken(self) -> Collection[bytes]:
        """The keys that wait here."""
        return self._taken.keys()

    def oldest(self) -> Instant:
        """Since when the change that waits longest has waited here."""
        lag = self._mirror.lag(self._clock.now())
        pending = self._clock.now() - lag.oldest if self._mirror.backlog else NEVER
        return min(filter(None, (pending, self._since if self._taken else NEVER)), default=NEVER)

    async def listen(self) -> None:
        """Takes what the mirror has, for ever."""
        while True:
            behind, began = self.behind(), self.oldest()
            deltas = await self._mirror.take(MOST)
            self.take(deltas, behind)
            self._since = began or self._clock.now()
            if self._taken:
                self._handed_on.clear()
                self._wake()
                await self._handed_on.wait()
            await asyncio.sleep(GATHER.total_seconds())

    def take(self, deltas: Sequence[Delta[T]], behind: Backlog) -> None:
        """Notes which objects have to be looked at, and what the reports say about themselves."""
        hear(self._subject, self._mass_loss, (one.key for one in deltas if one.live and one.new is not None))
        self._taken |= dict.fromkeys(self._subject.affected(deltas))
        if self._subject.dated:
            self._judge_all(deltas, behind)

    def inventory_changed(self) -> None:
        self._inventory_changed = True
        self._wake()

    async def fetch(self) -> Collection[bytes]:
        changed: Collection[bytes] = ()
        if self._inventory_changed:
            self._inventory_changed = False
            try:
                changed = await self._rows.follow(self._clock.now())
            except BaseException:
                self._inventory_changed = True
                raise
        keys = [*self._taken, *changed]
        self._taken.clear()
        self._handed_on.set()
        return keys

    async def settle(self, is_open: Callable[[bytes], bool]) -> bool:
        return False

    def _judge_all(self, deltas: Sequence[Delta[T]], behind: Backlog) -> None:
        wall, now = self._clock.wall(), self._clock.now()
        for delta in deltas:
            if isinstance(delta.new, AgentStatus):
                self._judge(delta, delta.new, behind, wall, now)
            elif delta.new is None:
                self._staleness.forget(self._subject.host(delta.key))  # who comes back may have another clock

    def _judge(self, delta: Delta[T], report: AgentStatus, behind: Backlog, wall: datetime, now: Instant) -> None:
        host = self._subject.host(delta.key)
        said = self._staleness.report(host, report.reported, live=delta.live, behind=behind, wall=wall, now=now)
        if said is not None:
            log.warning(said.sentence if isinstance(said, LateReport) else said)
