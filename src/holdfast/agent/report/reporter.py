"""Reporter: tells the store that this host's agent is alive, and its state, in Felix's keys and in a report of our own.

Everything is under one lease that only a report renews. A stop does not revoke it, and the next start on the same boot
of the machine takes it over, so that restarting 5,000 agents does not show 5,000 hosts as down. The reporter writes
only keys of this host, none to a store of another fleet (each write compares the store's identity with the one that was
read before), and none while another agent on this machine reports under the name of this host.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime

import structlog
from msgspec.structs import replace

from holdfast.agent.report import schedule
from holdfast.agent.report.reporting_host import ReportingHost
from holdfast.agent.report.schedule import Due, LastReport, ReportIntervals
from holdfast.model.base.bad import Bad
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.model.calico.agent_status import AGENT_STATUS, LAST_STATUS, AgentStatus
from holdfast.model.control.identity import IDENTITY
from holdfast.model.fleet.agent_report import AGENT_REPORT, AgentReport, fitted
from holdfast.reconcile import Away
from holdfast.runtime.clock import Clock
from holdfast.runtime.store_memory import MemoryUnreadable
from holdfast.store.api import Aspect, Compare, Entry, Get, LeaseGone, Operation, Put, Store, StoreError
from holdfast.store.identity import SeenStore, identity_key, is_foreign
from holdfast.store.lease import LeasedKey

log = structlog.get_logger(__name__)

TICK = Duration(seconds=1)
_MAX_BACKOFF = Duration(seconds=10)
"""Keeps 5,000 agents from asking a store that comes back once a second each."""


class ForeignStore(Exception):
    """The store belongs to another fleet; the message is one sentence."""


class NameTaken(Exception):
    """Another agent on this machine reports under the name of this host; the message is one sentence."""


_STATES: Mapping[type[Exception], str] = {
    ForeignStore: "held: foreign_store",
    MemoryUnreadable: "refused: memory unreadable",
}


class Reporter:
    def __init__(
        self,
        store: Store,
        host: ReportingHost,
        ttl: Duration,
        intervals: ReportIntervals,
        clock: Clock,
        *,
        query_worker: Callable[[], Awaitable[AgentReport | None]],
        remembered: Callable[[], SeenStore | None],
        show: Callable[[bool, str], None],
        store_clock: Callable[[], tuple[datetime, Instant] | None] = lambda: None,
    ) -> None:
        """`query_worker` gets the worker's report, None while it does not answer. `remembered` gives the store that
        this agent belongs to, and raises `MemoryUnreadable`. `show` receives success and state of each tick, for
        `holdfast status`. `store_clock` gives the time that the store showed, and when that was."""
        self._store = store
        self._host = host
        self._intervals = intervals
        self._clock = clock
        self._query_worker = query_worker
        self._remembered = remembered
        self._show = show
        self._store_clock = store_clock
        self._started = clock.now()
        self._answered = NEVER
        self._current: AgentReport | None = None
        self._last = LastReport()
        self.alive = NEVER
        """Time of our last full report."""
        self.revision = 0
        """Revision of our last write; a newer one of this key is from another agent of the same name."""
        self._key = LeasedKey(store, AGENT_REPORT.key(host.region, host.name), ttl)
        self._identity: bytes | None = None
        """Value of the store's identity; empty if it has none, None before it is read."""
        self._error = ""
        self._failures = 0
        self._retry = NEVER
        self._other_seen = 0, NEVER
        """Revision of the last report of another agent on this machine, and when it was first seen."""
        self.duplicate = ""
        """Sentence about another agent that reports under the same name."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until stopped. The last report stays until its lease expires."""
        while not stopping.is_set():
            await self.tick()
            try:
                async with asyncio.timeout(TICK.total_seconds()):
                    await stopping.wait()
            except TimeoutError:
                continue

    async def tick(self) -> None:
        """Ask the worker, and write what is due. Never raises because the store is unreachable."""
        report = await self._query_worker()
        now = self._clock.now()
        if report is not None:
            self._answered, self._current = now, replace(report, instance=self._host.instance)
        if self._current is None or schedule.is_silent(self._answered, self._intervals, now):
            self._show(False, "waiting: the dataplane worker does not answer, so this host is not reported alive")
            return
        if now < self._retry:
            return
        try:
            await self._write(schedule.due(self._last, self._current, self._intervals, now), self._current)
        except NameTaken as taken:
            self._set_duplicate(str(taken))
            self._retry = now + self._intervals.spacing
            self._show(False, f"refused: {taken}")
            return
        except (Away, StoreError, ForeignStore, MemoryUnreadable) as error:
            self._back_off(str(error))
            self._show(False, _STATES.get(type(error), "waiting: store"))
            return
        self._succeeded()
        self._show(True, f"refused: {self.duplicate}" if self.duplicate else "ok")

    async def _write(self, what: Due, current: AgentReport) -> None:
        if what is Due.NOTHING:
            return
        now = self._clock.now()
        await self._check_store_identity()
        if what is Due.ALIVE:
            await self._key.renew_or_grant(0 if self._key.lease else await self._predecessors_lease())
            current = replace(current, clock_skew=self._clock_skew())
        report = schedule.written(what, current, self._last)
        alive = self._alive() if what is Due.ALIVE else []
        try:
            await self._put(what, [*alive, self._key.put(AGENT_REPORT.encode(fitted(report)))])
        except LeaseGone:
            self._last = LastReport()  # the next tick writes everything again, under another lease
            return
        self._last = self._last.then(what, report, now)  # uncut: what did not fit is not a change the next time
        self.alive = self._last.alive

    def _clock_skew(self) -> float | None:
        return schedule.clock_skew(self._clock.wall(), self._clock.now(), self._store_clock())

    def _alive(self) -> list[Operation]:
        uptime = (self._clock.now() - self._started).total_seconds()
        status = AgentStatus.of(self._clock.wall(), round(uptime, 3), first=not self.alive)
        host = self._host
        return [
            Put(AGENT_STATUS.key(host.region, host.name), AGENT_STATUS.encode(status), self._key.lease),
            Put(LAST_STATUS.key(host.region, host.name), LAST_STATUS.encode(status)),
        ]

    async def _put(self, what: Due, puts: list[Operation]) -> None:
        """Write, and detect another writer of these keys: another agent writes a full report once per interval too."""
        ours = Compare(self._key.key, Aspect.MOD_REVISION, self.revision)
        result = await self._key.txn([ours, self._same_store()], puts, [Get(self._key.key)])
        if not result.succeeded:
            self._identity = None
            await self._check_store_identity()
            found = result.results[0]
            assert not isinstance(found, int)
            if found:
                self._wait_for_other(found[0])
            self._set_duplicate(self._other(found[0]) if found and self.revision else "")
            result = await self._key.txn([self._same_store()], puts)
            if not result.succeeded:
                self._identity = None
                raise Away("store identity", "it was changed meanwhile")
        elif what is Due.ALIVE:
            self._set_duplicate("")
        self.revision = result.revision

    def _wait_for_other(self, entry: Entry) -> None:
        """Raise `NameTaken` while another agent on this machine keeps writing this report: of the two, the one that
        reported first goes on. Another boot of the machine is not waited for: its report stays when it ends."""
        taken = self._host.other_here(AGENT_REPORT.decode(entry.key, entry.value))
        revision, since = self._other_seen
        if not taken:
            return
        now = self._clock.now()
        if entry.mod_revision != revision:
            self._other_seen = entry.mod_revision, now
        elif now - since > self._intervals.interval * 1.5:
            return  # it has stopped: its next full report did not come
        raise NameTaken(taken)

    def _other(self, entry: Entry) -> str:
        report = AGENT_REPORT.decode(entry.key, entry.value)
        if isinstance(report, Bad) or self._host.is_sender(report):
            return ""
        return self._host.other_here(report) or self._host.conflict(f"boot id {report.boot_id}")

    async def _predecessors_lease(self) -> int:
        """Return the lease of the agent that reported before us on this boot of the machine; 0 if there is none."""
        entry = await self._store.get(self._key.key)
        if entry is None:
            return 0
        report = AGENT_REPORT.decode(entry.key, entry.value)
        return 0 if isinstance(report, Bad) or not self._host.is_sender(report) else entry.lease

    async def _check_store_identity(self) -> None:
        """Read whose store this is, unless that is known already. Raises `ForeignStore`."""
        key = identity_key(self._host.region)
        if self._identity is None:
            entry = await self._store.get(key)
            self._identity = b"" if entry is None else entry.value
        found = IDENTITY.decode(key, self._identity) if self._identity else None
        if is_foreign(self._remembered(), found):
            self._identity = None
            raise ForeignStore("the store belongs to another fleet: check store.endpoints and store.region")

    def _same_store(self) -> Compare:
        """Condition that the store's identity is still the one that was read."""
        key = identity_key(self._host.region)
        known = self._identity
        return Compare(key, Aspect.VALUE, known) if known else Compare(key, Aspect.CREATE_REVISION, 0)

    def _back_off(self, error: str) -> None:
        if not self._error:
            log.warning("cannot report; retrying", host=self._host.name, error=error)
        self._error = error
        self._retry = self._clock.now() + min(_MAX_BACKOFF, TICK * (1 << min(self._failures, 10)))
        self._failures += 1

    def _succeeded(self) -> None:
        if self._error:
            log.info("reporting again", host=self._host.name)
        self._error = ""
        self._failures = 0

    def _set_duplicate(self, sentence: str) -> None:
        if sentence and not self.duplicate:
            log.error("duplicate agent", problem=sentence)
        self.duplicate = sentence
