"""The agent's main worker: opens journal and dataplane, then runs the reconciler, commands and endpoint reports.

A journal that cannot be opened, or a kernel that is unreachable, is waited for and reported: never a crash loop, and
never a start that knows nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import structlog

from holdfast import __version__
from holdfast.agent import PEERS_WORKER, ROLE, host_name
from holdfast.agent.claims import ARRIVAL_METRIC, ClaimKey
from holdfast.agent.commands.adopt import AdoptCommand
from holdfast.agent.commands.control import AgentCommands
from holdfast.agent.dataplane.api import HostDataplane
from holdfast.agent.dataplane.open import open_dataplane
from holdfast.agent.desired.peers import Encapsulation, LocalHost, Routing
from holdfast.agent.desired.watcher import SourceWatcher
from holdfast.agent.host_addresses import own_addresses
from holdfast.agent.journal import Journal
from holdfast.agent.journal.journal import JournalUnreadable
from holdfast.agent.namespace_watch import NamespaceWatch
from holdfast.agent.reconciler import AgentReconciler, reconciler_settings
from holdfast.agent.report.endpoints import EndpointReporter
from holdfast.agent.report.summary import AgentDetails, AgentSummary, Moment
from holdfast.agent.report.worker import REPORTER, reporting_host
from holdfast.agent.store_addresses import StoreAddresses
from holdfast.agent.target import JournaledTarget
from holdfast.agent.tunnels import OwnTunnels
from holdfast.config.root import Config
from holdfast.config.sections.linux import MAIN_TABLE, LinuxSettings
from holdfast.model.base.region import configured_region
from holdfast.model.base.time import Duration
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.model.fleet.agent_report import AGENT_REPORT
from holdfast.reconcile import Away
from holdfast.runtime.clock import Clock
from holdfast.runtime.control import Request, Who
from holdfast.runtime.daemon.process import boot_id, trim_memory
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.runtime.intents.commands import IntentCommands
from holdfast.runtime.intents.store import FileIntents
from holdfast.runtime.paths import RolePaths
from holdfast.runtime.reconciler.brake_memory import BrakeMemory
from holdfast.runtime.store_client import open_store
from holdfast.runtime.store_memory import StoreMemory
from holdfast.runtime.tasks import until_first
from holdfast.store.api import OwnKey, Store
from holdfast.store.host_keys import HostNameRefused, keys_of
from holdfast.store.watch.watch import RELIST_SPREAD

log = structlog.get_logger(__name__)

PEERS = Spec(PEERS_WORKER, "holdfast.agent.worker:run")
WORKERS: tuple[Spec, ...] = (PEERS, REPORTER)
_RETRY = Duration(seconds=2)
_MEASURE = Duration(seconds=5)
_OWN_WRITE_INTERVAL = Duration(seconds=10)
"""Longest interval at which each watch is checked for our own report."""
_LONGEST_WRITE_INTERVAL = Duration(seconds=60)
"""Reports that are rarer than this do not prove a watch alone: in between, it asks its member as well."""

T = TypeVar("T")


def journal_file(paths: RolePaths) -> Path:
    """Path in the runtime folder: the journal describes kernel state, and both are gone after a reboot."""
    return paths.runtime / f"{ROLE}.journal"


def source_watcher(
    config: Config, store: Store, clock: Clock, target: JournaledTarget, tunnels: OwnTunnels | None = None
) -> SourceWatcher:
    """Watcher of the only source: this region of the store."""
    region, info = configured_region(config), target.dataplane.describe()
    return SourceWatcher(
        region.segment,
        store,
        region,
        replace(local_host(config), sets_up_interfaces=info.sets_up_interfaces, guards=info.guards),
        clock,
        own_key(config),
        blocked_by=target.dataplane.blocked_by,
        owner_of=target.owner_of,
        own_tunnels=tunnels,
    )


def local_host(config: Config) -> LocalHost:
    """Return this host as configured."""
    routing = Routing(config.agent.routing)
    return LocalHost(
        host_name(config),
        Encapsulation(config.agent.encapsulation),
        routing,
        arrival_metric(routing, config.agent.linux),
    )


def arrival_metric(routing: Routing, settings: LinuxSettings) -> int | None:
    """Return the metric of routes to workloads that are on their way here. FRR announces all of the main table, so
    there they are not programmed before they have arrived."""
    if routing is Routing.MESH:
        return 0
    return None if settings.table == MAIN_TABLE else ARRIVAL_METRIC


def own_key(config: Config) -> OwnKey:
    """Key that this host's reporter writes anyway: a watch that does not deliver it is dead (C38)."""
    key = AGENT_REPORT.key(configured_region(config), host_name(config))
    every = config.agent.report_interval
    # protection: C38
    return OwnKey(key, min(every, _OWN_WRITE_INTERVAL), min(every, _LONGEST_WRITE_INTERVAL))


class AgentJob:
    """Everything that runs once journal and dataplane are open."""

    def __init__(
        self, worker: Worker, store: Store, target: JournaledTarget, tunnels: OwnTunnels, namespace: NamespaceWatch
    ) -> None:
        self._namespace = namespace
        config, host = worker.config, host_name(worker.config)
        self._worker = worker
        self._config_at_start = config.agent
        self._addresses: tuple[str, ...] = ()
        """Own addresses as last measured: a report each second should not read them from the kernel each time."""
        self._store_addresses = StoreAddresses(config.store.endpoints)
        source = source_watcher(config, store, worker.clock, target, tunnels)
        memories = {source.name: StoreMemory(worker.paths.state, ROLE)}
        settings = reconciler_settings(config, self._store_addresses.addresses)
        intents, here = FileIntents(worker.paths, worker.name, worker.clock), Scope(ScopeKind.HOST, host)
        self.reconciler = reconciler = AgentReconciler(
            host,
            [source],
            target,
            memories,
            worker.context,
            settings,
            own_intents=intents.all,
            brake_memory=BrakeMemory(worker.paths.deletes(worker.name), boot_id()),
        )
        self._intents = IntentCommands(
            worker.context, reconciler.loop, reconciler.intents, reconciler.sync_gate, here, intents
        )
        worker.handlers |= self._intents.handlers()
        commands = AgentCommands(
            self.reconciler,
            host,
            boot_id(),
            worker.clock,
            lambda: self._addresses,
            tunnels.macs,
            partial(store.note_write, own_key(config).key),
        )
        worker.handlers |= commands.handlers()
        worker.handlers |= AdoptCommand(self.reconciler, worker.clock, worker.decisions).handlers()
        self._endpoint_reporter = EndpointReporter(
            store,
            reporting_host(config, worker.paths),
            commands.endpoints,
            worker.clock.now,
            own_key(config),
            commands.knows_all_endpoints,
        )

    async def run(self) -> None:
        await self._store_addresses.resolve()
        await asyncio.to_thread(int)  # start the thread that journal compaction needs: starting one takes long
        await until_first(
            {
                "store addresses": self._store_addresses.run(),
                "endpoint statuses": self._endpoint_reporter.run(),
                "measure": self._measure(),
                "namespace": self._namespace.run(),
                "reconciler": self.reconciler.run(self._worker.stopping),
            }
        )

    async def _measure(self) -> None:
        passes = 0
        while True:
            if self.reconciler.loop.passes != passes:
                passes = self.reconciler.loop.passes
                await asyncio.to_thread(trim_memory)  # a full comparison takes a tenth more than it keeps
            self.reconciler.measure(self._worker.clock.now())
            await self._intents.readmit_sources()
            self._addresses = own_addresses(self._config_at_start)
            await asyncio.sleep(_MEASURE.total_seconds())


class StartupWait:
    """Waits until journal and dataplane can be opened, and answers commands meanwhile."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._error = ""
        self._since = worker.clock.now()
        worker.handlers |= {"report": self._report, "about": self._about}

    async def until_open(self, opener: Callable[[], T]) -> T | None:
        """Return what `opener` returns, as soon as it succeeds; None if the worker is to stop before."""
        while True:
            try:
                return opener()
            except HostNameRefused as error:
                self._show(str(error), what="host name")
            except (JournalUnreadable, Away) as error:
                self._show(str(error), what=error.what if isinstance(error, Away) else "journal")
            if await self._worker.stopped(_RETRY):
                return None

    def _show(self, error: str, what: str) -> None:
        if error != self._error:
            log.error("the agent cannot start; programmed state stays", error=error)
            self._error, self._since = error, self._worker.clock.now()
        self._worker.vitals.attempted(success=False, state=f"waiting: {what}")

    async def _report(self, _request: Request, _who: Who) -> Any:
        clock = self._worker.clock
        summary = AgentSummary(__version__, boot_id(), startup_error=self._error, startup_error_since=self._since)
        return msgspec.to_builtins(summary.report(Moment(clock.now(), clock.wall())))

    async def _about(self, _request: Request, _who: Who) -> Any:
        config = self._worker.config
        details = AgentDetails(host_name(config), config.agent.dataplane.kind, startup_error=self._error)
        return msgspec.to_builtins(details)


def _open_dataplane(worker: Worker, tunnels: OwnTunnels, journal: Journal) -> tuple[HostDataplane, NamespaceWatch]:
    settings = worker.config.agent
    namespace = NamespaceWatch(settings.dataplane.netns if settings.dataplane.kind == "linux" else None)
    is_journaled = partial(_is_journaled, journal)
    return open_dataplane(settings, tunnels.underlay, worker.paths.runtime, is_journaled), namespace


def _is_journaled(journal: Journal, key: ClaimKey) -> bool:
    return key in journal.contents


async def run(worker: Worker) -> None:
    config, startup = worker.config, StartupWait(worker)
    named = partial(keys_of, host_name(config), configured_region(config))
    if config.agent.routing == "bgp" and await startup.until_open(named) is None:
        return
    journal = await startup.until_open(lambda: Journal.open(journal_file(worker.paths), boot_id()))
    if journal is None:
        return
    (log.warning if journal.opened.quarantine else log.info)("journal opened", state=journal.opened.sentence)
    tunnels = OwnTunnels()
    opened = await startup.until_open(partial(_open_dataplane, worker, tunnels, journal))
    if opened is None:
        return
    dataplane, namespace = opened
    store = open_store(config.store, relist_spread=RELIST_SPREAD)
    worker.metrics.follow(store.contact, worker.clock.now)
    try:
        await AgentJob(worker, store, JournaledTarget(journal, dataplane), tunnels, namespace).run()
    finally:
        await store.close()
        journal.close()
