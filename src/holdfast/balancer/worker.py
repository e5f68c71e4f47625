"""Worker that reconciles the VIPs: takes the services from the file or the store, and offers the commands."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

from holdfast import __version__
from holdfast.balancer import VIPS_WORKER
from holdfast.balancer.announce.worker import ANNOUNCE
from holdfast.balancer.commands.control import BalancerCommands
from holdfast.balancer.commands.fleet_report import frontend_details
from holdfast.balancer.commands.troubles import troubles
from holdfast.balancer.dataplane.api import Disconnects, VipDataplane
from holdfast.balancer.dataplane.open import open_dataplane
from holdfast.balancer.desired.state import BalancerState
from holdfast.balancer.peers.digest import Digests
from holdfast.balancer.peers.draining import DrainingHosts
from holdfast.balancer.peers.reports import PeerReports, by_input, own_key
from holdfast.balancer.probing.channel import ProberClient
from holdfast.balancer.probing.worker import PROBER, PROBES_SOCKET
from holdfast.balancer.reconciler import ProberLink, VipReconciler
from holdfast.balancer.services.resolved import Services, resolve_services
from holdfast.balancer.services.store_watcher import ServicesUpdate, ServicesWatcher
from holdfast.balancer.source import WantedVips
from holdfast.balancer.warm_up import WarmUp
from holdfast.model.base.region import Region, configured_region
from holdfast.model.base.time import Duration, Instant
from holdfast.model.control.identity import StoreRefusal
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.model.fleet.balancer_report import BalancerReport, detailed
from holdfast.runtime.control import Request, Who
from holdfast.runtime.daemon.process import boot_id
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.runtime.intents.commands import IntentCommands
from holdfast.runtime.intents.store import FileIntents
from holdfast.runtime.reconciler.brake_memory import BrakeMemory
from holdfast.runtime.store_client import open_store
from holdfast.runtime.store_guard import Offload
from holdfast.runtime.tasks import until_first
from holdfast.store.api import Store
from holdfast.store.identity import Judgement

log = structlog.get_logger(__name__)

VIPS = Spec(VIPS_WORKER, "holdfast.balancer.worker:reconcile_vips")
WORKERS: tuple[Spec, ...] = (PROBER, VIPS, ANNOUNCE)
_MEASURE_EVERY = Duration(seconds=5)


class BalancerJob:
    def __init__(
        self,
        worker: Worker,
        dataplane: VipDataplane,
        prober: ProberLink,
        store: Store | None = None,
        offload: Offload = asyncio.to_thread,
    ) -> None:
        """With a store, the services come from there instead of the file; `offload` runs writes to the disk."""
        config = worker.config.balancer
        self._worker = worker
        self._started_with = config
        self._clock = worker.clock
        self._watcher = None if store is None else self._open_watcher(store, offload)
        self._peers = (
            None
            if store is None
            else PeerReports(
                store, self._region, self._name, worker.clock, self._report, self._digests, 2 * config.sync_interval
            )
        )
        warm = WarmUp(worker.clock.now(), config.startup_min_delay, config.startup_max_delay)
        first = resolve_services(config) if self._watcher is None else self._watcher.saved_services()
        self.balancer = BalancerState(first, warm, history=config.transition_history)
        self.reconciler = VipReconciler(
            self.balancer,
            dataplane,
            prober,
            worker.context,
            sync_interval=config.sync_interval,
            source=self._source(),
            namespace=lambda: worker.config.balancer.netns or "",
            on_tick=self._tick,
            offload=offload,
            brake_memory=BrakeMemory(worker.paths.deletes(worker.name), boot_id()),
        )
        own, context, reconciler = FileIntents(worker.paths, worker.name, worker.clock), worker.context, self.reconciler
        self._commands = commands = BalancerCommands(
            reconciler,
            self._watcher or own,
            context,
            self._store_problem,
            own_intents=tuple if self._watcher is None else own.all,
        )
        here = Scope(ScopeKind.WORKER, worker.name)
        intents = IntentCommands(context, reconciler.loop, commands.applied, reconciler.sync, here, own)
        worker.handlers |= {**intents.handlers(), **commands.handlers(), "about": self._about}
        self._draining = DrainingHosts()
        self._measured = warm.started

    async def run(self) -> None:
        if self._watcher is None:
            self.reconciler.complete(1)
        self._commands.apply_intents()
        tasks = {"reload": self._reload()}
        if self._watcher is not None and self._peers is not None:
            tasks |= {"store": self._watcher.run(self._on_update), "peers": self._peers.run()}
        await until_first(tasks | {"reconciler": self.reconciler.run(self._worker.stopping)})

    @property
    def _region(self) -> Region:
        return configured_region(self._worker.config)

    @property
    def _name(self) -> str:
        return self._started_with.name or socket.gethostname()

    def _open_watcher(self, store: Store, offload: Offload) -> ServicesWatcher:
        state, own = self._worker.paths.state, own_key(self._region, self._name)
        return ServicesWatcher(store, self._region, state, self._clock, self._started_with, own, offload)

    def _doubt(self) -> Judgement | None:
        """Judgement on the store, while it is not taken as it is."""
        return None if self._watcher is None else self._watcher.doubt

    def _store_problem(self) -> str:
        doubt = self._doubt()
        if doubt is None:
            return ""
        release = f"; to release: {doubt.opens}" if doubt.opens else ""
        return f"{doubt.verdict.value}: {doubt.sentence}; the services served before stay{release}"

    async def _about(self, _request: Request, _who: Who) -> Any:
        """Answer `holdfast status`: the verdict on the store, while it is not taken as it is, and frontends that do not
        serve with all of their backends."""
        doubt = self._doubt()
        refusal = None if doubt is None else StoreRefusal(doubt.verdict.value, doubt.sentence, doubt.opens)
        return {
            "name": self._name,
            "uses_store": self._watcher is not None,
            "store_refusal": msgspec.to_builtins(refusal),
            "troubles": msgspec.to_builtins(troubles(self.reconciler, self._clock.now())),
        }

    def _digests(self) -> Digests:
        return self.reconciler.digests()

    def _report(self) -> BalancerReport:
        digests, doubt, now = self.reconciler.digests(), self._doubt(), self._clock.now()
        report = BalancerReport(
            version=__version__,
            table=digests.table,
            configuration=digests.configuration,
            health=digests.health,
            intents=digests.intents,
            frontends={name: one.state.value for name, one in self.reconciler.serving(now).items()},
            draining=self._flows_of_drained(),
            store_verdict="" if doubt is None else doubt.verdict.value,
        )
        return detailed(report, frontend_details(self.reconciler, now, self._clock.wall()))

    def _flows_of_drained(self) -> Mapping[str, int | None]:
        """Current flows of the backends on drained hosts, by host."""
        if self._watcher is None or not (drained := self._watcher.drained()):
            return {}
        changing = {entry.change.key.backend for entry in self.reconciler.loop.ledger}
        backends = self.balancer.services.backends.values()
        on = {
            host: frozenset(one.name for one in backends if one.configured in names) for host, names in drained.items()
        }
        outstanding = frozenset(one.name for one in backends if one.identity in changing)
        meter = self.reconciler.meter
        passed = meter.passed if meter.counts_flows else None
        return self._draining.flows(on, outstanding, passed, meter.measured, self._clock.now())

    def _source(self) -> WantedVips:
        if self._watcher is None:
            return WantedVips(self.balancer, self._clock)
        return WantedVips(self.balancer, self._clock, "etcd", self._watcher.refresh)

    async def _reload(self) -> None:
        while True:
            await self._worker.reloaded.wait()
            self._worker.reloaded.clear()
            config = self._worker.config.balancer
            if self._watcher is None:
                self.replace_services(resolve_services(config), self.reconciler.source.revision + 1)
            else:
                self._watcher.reload(config)
                self.reconciler.reloaded()

    def _on_update(self, update: ServicesUpdate) -> None:
        complete = update.revision if update.complete else None
        self.replace_services(update.services, complete, update.unreadable)
        self._commands.apply_intents()
        self.reconciler.reloaded()

    def replace_services(self, new: Services, complete: int | None, unreadable: tuple[str, ...] = ()) -> None:
        """Replace what is served; only what differs changes. `complete` is the revision of a complete configuration:
        without one nothing is removed."""
        before = self.balancer.services
        self.reconciler.touch(self.balancer.reload(new, self._clock.now()))
        if complete is not None:
            self.reconciler.complete(complete, unreadable)
        self.reconciler.reloaded()
        if before != new:
            log.info("configuration changed", **changes(before, new))

    def _tick(self, now: Instant) -> None:
        if self._has_expired_intent():
            self._commands.apply_intents()
            self.reconciler.reloaded()
        if now - self._measured >= _MEASURE_EVERY:
            self._measured = now
            self.reconciler.measure(now)
            if self._peers is not None:
                for name, count in by_input(self._peers.differing()).items():
                    self.reconciler.metrics.peers.labels(input=name).set(count)

    def _has_expired_intent(self) -> bool:
        wall = self._clock.wall()
        return any(not intent.holds(wall) for intent in self._commands.applied.holding)


def changes(before: Services, after: Services) -> dict[str, int]:
    """Count what a reload adds, removes and changes; what is 0 is left out."""
    counts: dict[str, int] = {}
    for kind in ("frontends", "backends"):
        old, new = getattr(before, kind), getattr(after, kind)
        counts[f"{kind}_added"] = len(new.keys() - old.keys())
        counts[f"{kind}_removed"] = len(old.keys() - new.keys())
        counts[f"{kind}_changed"] = sum(old[name] != new[name] for name in old.keys() & new.keys())
    return {name: count for name, count in counts.items() if count}


async def reconcile_vips(worker: Worker) -> None:
    dataplane = open_dataplane(worker.config.balancer.dataplane, worker.paths.state)
    prober = ProberClient(worker.paths.socket(PROBES_SOCKET))
    store = None if worker.config.balancer.source == "file" else open_store(worker.config.store)
    if store is not None:
        worker.metrics.follow(store.contact, worker.clock.now)
    try:
        await BalancerJob(worker, dataplane, prober, store).run()
    finally:
        if isinstance(dataplane, Disconnects):
            await dataplane.disconnect()
        if store is not None:
            await store.close()
