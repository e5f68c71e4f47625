"""The agent's worker: configuration in, one keeper, what is told of it, the statuses of its endpoints, metrics.

A journal that cannot be opened, or a kernel that cannot be talked to, is waited for with its sentence: never a crash
loop, and never a start that knows nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

import msgspec
import structlog

from holdfast import __version__
from holdfast.agent.commands.control import AgentCommands
from holdfast.agent.dataplane.api import HostDataplane
from holdfast.agent.dataplane.file import FileDataplane
from holdfast.agent.desired.peers import Encapsulation, LocalHost
from holdfast.agent.desired.watcher import SourceWatcher
from holdfast.agent.gates.identity import StoreIdentityGate
from holdfast.agent.journal import Journal
from holdfast.agent.journal.journal import JournalUnreadable
from holdfast.agent.reconciler import AgentReconciler, ReconcilerSettings
from holdfast.agent.report.endpoints import EndpointReporter
from holdfast.agent.report.summary import AgentDetails, AgentSummary, Moment
from holdfast.agent.report.worker import REPORTER, ROLE, SPEAKER, host_name
from holdfast.agent.store_addresses import StoreAddresses
from holdfast.agent.target import JournaledTarget
from holdfast.config.root import Config
from holdfast.config.sections.agent import AgentSettings as Configuration
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.fleet.agent_report import AGENT_REPORT
from holdfast.netlink.netns import inside
from holdfast.reconcile import Away, BrakeLimits
from holdfast.runtime.clock import Clock
from holdfast.runtime.control import Request, Who
from holdfast.runtime.daemon.process import boot_id, trim_memory
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.runtime.intents.commands import IntentCommands
from holdfast.runtime.paths import RolePaths
from holdfast.runtime.reconciler.place import LoopTimings
from holdfast.runtime.store_client import open_store
from holdfast.runtime.store_memory import StoreMemory
from holdfast.store.api import OwnKey, Store

log = structlog.get_logger(__name__)

PEERS = Spec(SPEAKER, "holdfast.agent.worker:keep")
WORKERS: tuple[Spec, ...] = (PEERS, REPORTER)
_AGAIN = Duration(seconds=2)
_MEASURE = Duration(seconds=5)
_SPREAD = Duration(seconds=60)
_ECHO = Duration(seconds=10)
"""How often it is looked, at most, whether our own report has come back on each watch."""

T = TypeVar("T")


def journal_file(paths: RolePaths) -> Path:
    """In the runtime folder: what it tells of lives as long as the kernel's state, and no longer."""
    return paths.runtime / f"{ROLE}.journal"


class OwnHost:
    """What the source says about this host itself, once it has spoken."""

    def __init__(self) -> None:
        self.following: SourceWatcher | None = None

    def mac(self, family: int) -> str | None:
        """By which the others know our end of the tunnel."""
        if self.following is None or self.following.synced.revision is None:
            return None
        return self.following.demand.macs()[family]


def open_dataplane(config: Configuration, node: OwnHost, runtime: Path, *, alone: bool = True) -> HostDataplane:
    """The dataplane that is configured. Raises `Away`, also where another agent has it; not `alone` only looks."""
    match config.dataplane.kind:
        case "memory":
            return FileDataplane(Path(config.dataplane.file or runtime / f"{ROLE}.kernel.json"))
        case "linux":
            from holdfast.agent.dataplane.linux import LinuxDataplane

            make = partial(LinuxDataplane, config.linux, node.mac, alone=alone)
            return make() if config.dataplane.netns is None else inside(config.dataplane.netns, make)


def own_addresses(config: Configuration) -> tuple[str, ...]:
    """Of the host whose kernel it is; a file has none, and a namespace that is gone tells none."""
    if config.dataplane.kind != "linux":
        return ()
    from holdfast.agent.host_addresses import own_addresses

    netns = config.dataplane.netns
    try:
        return own_addresses() if netns is None else inside(netns, own_addresses)
    except Away:
        return ()


def settings(config: Config, way: StoreAddresses) -> ReconcilerSettings:
    agent = config.agent
    return ReconcilerSettings(
        limits=BrakeLimits(count=agent.brake_count, share=agent.brake_share / 100),
        hold_down=agent.hold_down,
        pace=LoopTimings(audit=agent.verify_interval, linger=linger(host_name(config))),
        stores=way.addresses,
    )


def linger(host: str) -> Duration:
    """Another time for each host, and the same at every start: a mass deletion closes the brakes of a whole fleet."""
    return _SPREAD * (crc32(host.encode()) / 2**32)


def following(config: Config, store: Store, clock: Clock) -> SourceWatcher:
    """The one source that there is: this region of the store."""
    region = Region(config.store.region or "")
    here = LocalHost(host_name(config), Encapsulation(config.agent.encapsulation))
    return SourceWatcher(region.segment, store, region, here, clock, own_key(config))


def own_key(config: Config) -> OwnKey:
    """What this host's reporter writes anyway: a watch on which it does not come back is dead (C38)."""
    key = AGENT_REPORT.key(Region(config.store.region or ""), host_name(config))
    return OwnKey(key, min(config.agent.report_interval, _ECHO))


class AgentJob:
    """The keeper with all that is around it, once journal and kernel are open."""

    def __init__(self, worker: Worker, store: Store, journal: Journal, dataplane: HostDataplane, node: OwnHost) -> None:
        config = worker.config
        self._worker = worker
        self._begun_with = config.agent
        self._node = node
        self._way = StoreAddresses(config.store.endpoints)
        source = node.following = following(config, store, worker.clock)
        belonging = StoreIdentityGate({source.name: StoreMemory(worker.paths.state, ROLE)})
        host, kernel = host_name(config), JournaledTarget(journal, dataplane)
        self.keeper = AgentReconciler(host, [source], kernel, belonging, worker.context, settings(config, self._way))
        self._intents = IntentCommands(worker, self.keeper.reconciler, self.keeper.intent, self.keeper.sync)
        self._intents.offer()
        self._commands = AgentCommands(self.keeper, host, boot_id(), worker.clock)
        worker.handlers |= self._commands.handlers()
        states, are_all = self._commands.endpoints, self._commands.knows_all_endpoints
        own, now = own_key(config), worker.clock.now
        self._statuses = EndpointReporter(store, source.region, host, states, now, own, are_all)

    async def run(self) -> None:
        await self._way.look()
        await asyncio.to_thread(int)  # the journal's compaction needs a thread, and starting one takes long
        async with asyncio.TaskGroup() as tasks:
            helpers = [
                tasks.create_task(self._way.run(), name="way to the store"),
                tasks.create_task(self._statuses.run(), name="endpoint statuses"),
                tasks.create_task(self._measure(), name="measure"),
                tasks.create_task(self._reload(), name="reload"),
            ]
            await tasks.create_task(self.keeper.run(self._worker.stopping), name="keeper")
            for helper in helpers:
                helper.cancel()

    async def _measure(self) -> None:
        passes = 0
        while True:
            if self.keeper.reconciler.passes != passes:
                passes = self.keeper.reconciler.passes
                await asyncio.to_thread(trim_memory)  # a comparison of everything takes a tenth more than it keeps
            self.keeper.measure(self._worker.clock.now())
            self._intents.readmit_sources()
            self._commands.addresses = own_addresses(self._begun_with)
            self._commands.tunnel_macs = tuple(mac for family in (4, 6) if (mac := self._node.mac(family)))
            await asyncio.sleep(_MEASURE.total_seconds())

    async def _reload(self) -> None:
        while True:
            await self._worker.reloaded.wait()
            self._worker.reloaded.clear()
            if self._worker.config.agent != self._begun_with:
                log.warning("agent: the new settings are taken up at the next start of the agent")


class StartupWait:
    """Waits for what has to be open before anything can begin, and answers meanwhile."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._sentence = ""
        self._since = worker.clock.now()
        worker.handlers |= {"report": self._report, "about": self._about}

    async def opened(self, open_it: Callable[[], T]) -> T | None:
        """What `open_it` opens, as soon as it can; None when the worker is to stop before."""
        while True:
            try:
                return open_it()
            except (JournalUnreadable, Away) as error:
                self._tell(str(error), what=error.what if isinstance(error, Away) else "journal")
            if await self._worker.stopped(_AGAIN):
                return None

    def _tell(self, sentence: str, what: str) -> None:
        if sentence != self._sentence:
            log.error(f"the agent cannot begin, what is programmed stays: {sentence}")
            self._sentence, self._since = sentence, self._worker.clock.now()
        self._worker.vitals.attempted(success=False, state=f"waiting: {what}")

    async def _report(self, _request: Request, _who: Who) -> Any:
        clock = self._worker.clock
        standing = AgentSummary(__version__, boot_id(), waits=self._sentence, waits_since=self._since)
        return msgspec.to_builtins(standing.report(Moment(clock.now(), clock.wall())))

    async def _about(self, _request: Request, _who: Who) -> Any:
        config = self._worker.config
        return msgspec.to_builtins(AgentDetails(host_name(config), config.agent.dataplane.kind, waits=self._sentence))


async def keep(worker: Worker) -> None:
    config, waits = worker.config, StartupWait(worker)
    journal = await waits.opened(lambda: Journal.open(journal_file(worker.paths), boot_id()))
    if journal is None:
        return
    log.log(20 if not journal.opening.aside else 30, journal.opening.sentence)
    node = OwnHost()
    dataplane = await waits.opened(lambda: open_dataplane(config.agent, node, worker.paths.runtime))
    if dataplane is None:
        return
    store = open_store(config.store)
    try:
        await AgentJob(worker, store, journal, dataplane, node).run()
    finally:
        await store.close()
        journal.close()
