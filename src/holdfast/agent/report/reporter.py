"""The reporter: says that this host's agent lives, and how it is; Felix's keys and format, and a report of our own.

Everything is under one lease that only a report renews: nothing keeps it alive beside the reports themselves. It is
not given back at a stop, and taken over by the next start on the same boot of the machine, so that restarting 5,000
agents is not 5,000 times "down". Only keys of this host are written, and none to a store of another fleet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

import structlog
from msgspec.structs import replace

from holdfast.agent.report import schedule as reporting
from holdfast.agent.report.schedule import Due, LastReport, ReportIntervals
from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.model.calico.agent_status import AGENT_STATUS, LAST_STATUS, AgentStatus
from holdfast.model.fleet.agent_report import AGENT_REPORT, AgentReport, fitted
from holdfast.reconcile import Away
from holdfast.runtime.clock import Clock
from holdfast.runtime.store_memory import MemoryUnreadable
from holdfast.store.api import Aspect, Compare, Entry, Get, LeaseGone, Operation, Put, Store, StoreError
from holdfast.store.identity import SeenStore, StoreVerdict, judge, read_identity

log = structlog.get_logger(__name__)

LOOK = Duration(seconds=1)
_AGAIN_MOST = Duration(seconds=10)
"""A store that comes back is not met by 5,000 agents every second."""

Asked = Callable[[], Awaitable[AgentReport | None]]
"""What the worker that does the work says of itself; None while it says nothing."""


@dataclass(frozen=True, slots=True)
class ReportingHost:
    """Whose reports these are."""

    region: Region
    name: str
    boot_id: str


@dataclass(frozen=True, slots=True)
class Around:
    """What the reporter is handed by its process."""

    clock: Clock
    asked: Asked
    remembered: Callable[[], SeenStore | None]
    """What is known of the store that this agent acts on. Raises `MemoryUnreadable`."""
    state: Callable[[bool, str], None]
    """Hears after each look whether it succeeded, and the state for `holdfast status`."""
    dated: Callable[[], tuple[datetime, Instant] | None] = lambda: None
    """What the store's clock showed, and when that was."""


class ForeignStore(Exception):
    """The store belongs to another fleet; the message is one sentence."""


_STATES: Mapping[type[Exception], str] = {
    ForeignStore: "held: foreign_store",
    MemoryUnreadable: "refused: memory unreadable",
}


class Reporter:
    def __init__(
        self, store: Store, host: ReportingHost, ttl: Duration, tempo: ReportIntervals, around: Around
    ) -> None:
        self._store = store
        self._host = host
        self._ttl = ttl
        self._tempo = tempo
        self._around = around
        self._clock = around.clock
        self._started = around.clock.now()
        self._heard = NEVER
        self._said: AgentReport | None = None
        self._told = LastReport()
        self.alive = NEVER
        """When the host was last said to be alive by us; never, if it was not yet."""
        self._lease = 0
        self._revision = 0
        """Of our last write; whoever has written since is another agent of the same name."""
        self._key = AGENT_REPORT.key(host.region, host.name)
        self._obstacle = ""
        self._failures = 0
        self._again = NEVER
        self.rival = ""
        """A sentence, while another agent reports under the same name."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Until told to stop. What was reported stays until its lease runs out."""
        while not stopping.is_set():
            await self.look()
            try:
                async with asyncio.timeout(LOOK.total_seconds()):
                    await stopping.wait()
            except TimeoutError:
                continue

    async def look(self) -> None:
        """Asks the worker, and writes what is due. Never raises because the store is away."""
        report = await self._around.asked()
        now = self._clock.now()
        if report is not None:
            self._heard, self._said = now, report
        if self._said is None or reporting.is_silent(self._heard, self._tempo, now):
            self._around.state(False, "waiting: the worker of the dataplane is silent, so this host is not alive")
            return
        if now < self._again:
            return
        try:
            await self._write(reporting.due(self._told, self._said, self._tempo, now), self._said)
        except (Away, StoreError, ForeignStore, MemoryUnreadable) as error:
            self._put_off(str(error))
            self._around.state(False, _STATES.get(type(error), "waiting: store"))
            return
        self._go_on()
        self._around.state(True, f"refused: {self.rival}" if self.rival else "ok")

    async def _write(self, what: Due, said: AgentReport) -> None:
        if what is Due.NOTHING:
            return
        now = self._clock.now()
        if what is Due.ALIVE:
            await self._look_whose_store_this_is()
            await self._renew()
            said = replace(said, clock_skew=self._skew())
        report = reporting.written(what, said, self._told)
        try:
            await self._put(what, [*(self._alive() if what is Due.ALIVE else ()), self._report(fitted(report))])
        except LeaseGone:
            self._lease = 0
            self._told = LastReport()  # all is written anew at the next look, under another lease
            return
        self._told = self._told.said(what, report, now)  # the whole of it: what was cut off is no news the next time
        self.alive = self._told.alive

    def _skew(self) -> float | None:
        return reporting.clock_skew(self._clock.wall(), self._clock.now(), self._around.dated())

    def _alive(self) -> list[Operation]:
        uptime = (self._clock.now() - self._started).total_seconds()
        status = AgentStatus.of(self._clock.wall(), round(uptime, 3), first=not self.alive)
        host = self._host
        return [
            Put(AGENT_STATUS.key(host.region, host.name), AGENT_STATUS.encode(status), self._lease),
            Put(LAST_STATUS.key(host.region, host.name), LAST_STATUS.encode(status)),
        ]

    def _report(self, report: AgentReport) -> Put:
        return Put(self._key, AGENT_REPORT.encode(report), self._lease)

    async def _put(self, what: Due, puts: list[Operation]) -> None:
        """Writes, and notices who else writes these keys: also another agent says alive once per interval."""
        ours = Compare(self._key, Aspect.MOD_REVISION, self._revision)
        result = await self._store.txn([ours], puts, [Get(self._key)])
        if not result.succeeded:
            found = result.results[0]
            assert not isinstance(found, int)
            self._tell_rival(self._other(found[0]) if found and self._revision else "")
            result = await self._store.txn([], puts)
        elif what is Due.ALIVE:
            self._tell_rival("")
        self._revision = result.revision

    def _other(self, entry: Entry) -> str:
        report = AGENT_REPORT.decode(entry.key, entry.value)
        if isinstance(report, Bad) or report.boot_id == self._host.boot_id:
            return ""
        return (
            f"another agent reports as {self._host.name} (boot id {report.boot_id}): give one of the two another "
            "agent.host"
        )

    async def _renew(self) -> None:
        """Renews our lease, takes over that of our predecessor, or takes a new one."""
        lease = self._lease or await self._predecessors()
        if lease:
            try:
                left = await self._store.renew(lease)
            except LeaseGone:
                log.info(f"the lease of {self._host.name}'s reports ran out; they go on under another one")
            else:
                if left == self._ttl or lease == self._lease:
                    self._lease = lease
                    return
        self._lease = await self._store.grant(self._ttl)

    async def _predecessors(self) -> int:
        """The lease of the agent that reported before us, if that was on this boot of this machine; else 0."""
        entry = await self._store.get(self._key)
        if entry is None:
            return 0
        report = AGENT_REPORT.decode(entry.key, entry.value)
        return 0 if isinstance(report, Bad) or report.boot_id != self._host.boot_id else entry.lease

    async def _look_whose_store_this_is(self) -> None:
        judgement = judge(self._around.remembered(), await read_identity(self._store, self._host.region))
        if judgement.verdict is StoreVerdict.FOREIGN:
            raise ForeignStore(judgement.sentence)

    def _put_off(self, why: str) -> None:
        if not self._obstacle:
            log.warning(f"{self._host.name} cannot report: {why}")
        self._obstacle = why
        self._again = self._clock.now() + min(_AGAIN_MOST, LOOK * (1 << min(self._failures, 10)))
        self._failures += 1

    def _go_on(self) -> None:
        if self._obstacle:
            log.info(f"{self._host.name} reports again")
        self._obstacle = ""
        self._failures = 0

    def _tell_rival(self, sentence: str) -> None:
        if sentence and not self.rival:
            log.error(sentence)
        self.rival = sentence
