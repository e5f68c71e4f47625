"""The balancer's worker: configuration in, one keeper, the operator's commands, metrics."""

from __future__ import annotations

import asyncio
import socket

import structlog

from holdfast import __version__
from holdfast.balancer.announce.worker import ANNOUNCE
from holdfast.balancer.commands.control import BalancerCommands
from holdfast.balancer.dataplane.api import VipDataplane
from holdfast.balancer.dataplane.open import open_dataplane
from holdfast.balancer.desired.state import BalancerState
from holdfast.balancer.intents import BalancerIntentFile
from holdfast.balancer.peers.reports import PeerReports, by_input, own_key
from holdfast.balancer.probing.channel import ProberClient
from holdfast.balancer.probing.worker import LINE, PROBER
from holdfast.balancer.reconciler import NAME, ProberLink, VipReconciler
from holdfast.balancer.services.resolved import Services, roster
from holdfast.balancer.services.store_watcher import ServicesUpdate, ServicesWatcher
from holdfast.balancer.source import WantedVips
from holdfast.balancer.warm_up import WarmUp
from holdfast.config.sections.balancer import BalancerSettings as Configuration
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration, Instant
from holdfast.model.fleet.balancer_report import BalancerReport
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.runtime.intents.commands import IntentCommands
from holdfast.runtime.store_client import open_store
from holdfast.store.api import Store

log = structlog.get_logger(__name__)

VIPS = Spec(NAME, "holdfast.balancer.worker:keep")
WORKERS: tuple[Spec, ...] = (PROBER, VIPS, ANNOUNCE)
_AT_START = ("source", "dataplane", "sync_interval", "startup_min_delay", "startup_max_delay", "transition_history")
_MEASURE_EVERY = Duration(seconds=5)


class BalancerJob:
    def __init__(self, worker: Worker, dataplane: VipDataplane, prober: ProberLink, store: Store | None = None) -> None:
        """With a store, what is served comes from there."""
        config = worker.config.balancer
        self._worker = worker
        self._begun_with = config
        self._clock = worker.clock
        self._follower = None if store is None else self._following(store)
        self._herald = (
            None if store is None else PeerReports(store, self._region, self._name, worker.clock, self._report)
        )
        warm = WarmUp(worker.clock.now(), config.startup_min_delay, config.startup_max_delay)
        first = roster(config) if self._follower is None else self._follower.remembered()
        self.balancer = BalancerState(first, warm, history=config.transition_history)
        self.keeper = VipReconciler(
            self.balancer,
            dataplane,
            prober,
            worker.context,
            sync_interval=config.sync_interval,
            source=self._source(),
            namespace=config.netns or "",
        )
        self._wishes = self._follower or BalancerIntentFile(
            worker.paths.state / "intents" / f"{worker.role}.backends.json"
        )
        self._commands = BalancerCommands(self.keeper, self._wishes, worker.clock, worker.decisions)
        IntentCommands(worker, self.keeper.reconciler, self.keeper.intent, self.keeper.sync).offer()
        worker.handlers |= self._commands.handlers()
        self.keeper.on_tick = self._tick
        self._measured = warm.started

    async def run(self) -> None:
        if self._follower is None:
            self.keeper.complete(1)
        self._commands.take_effect()
        async with asyncio.TaskGroup() as tasks:
            helpers = [tasks.create_task(self._reload(), name="reload")]
            if self._follower is not None and self._herald is not None:
                helpers.append(tasks.create_task(self._follower.run(self._hear), name="store"))
                helpers.append(tasks.create_task(self._herald.run(), name="herald"))
            await tasks.create_task(self.keeper.run(self._worker.stopping), name="keeper")
            for helper in helpers:
                helper.cancel()

    @property
    def _region(self) -> Region:
        return Region(self._worker.config.store.region or "")

    @property
    def _name(self) -> str:
        return self._begun_with.name or socket.gethostname()

    def _following(self, store: Store) -> ServicesWatcher:
        own = own_key(self._region, self._name)
        return ServicesWatcher(store, self._region, self._worker.paths.state, self._clock, self._begun_with, own)

    def _report(self) -> BalancerReport:
        digests = self.keeper.digests()
        return BalancerReport(
            version=__version__,
            table=digests.table,
            configuration=digests.configuration,
            health=digests.health,
            intents=digests.intents,
            frontends={name: one.state.value for name, one in self.keeper.serving(self._clock.now()).items()},
        )

    def _source(self) -> WantedVips:
        if self._follower is None:
            return WantedVips(self.balancer, self._clock)
        return WantedVips(self.balancer, self._clock, "etcd", self._follower.refresh)

    async def _reload(self) -> None:
        while True:
            await self._worker.reloaded.wait()
            self._worker.reloaded.clear()
            config = self._worker.config.balancer
            self.keeper.namespace = config.netns or ""
            self._tell_what_waits(config)
            if self._follower is None:
                self.take_over(roster(config), self.keeper.source.revision + 1)
            else:
                self._follower.base = config
                self.keeper.reloaded()

    def _tell_what_waits(self, config: Configuration) -> None:
        """Some settings cannot change under a running balancer; nobody shall believe that they did."""
        waiting = [name for name in _AT_START if getattr(config, name) != getattr(self._begun_with, name)]
        if waiting:
            names = ", ".join(f"balancer.{name}" for name in waiting)
            log.warning(f"{names}: the new value is taken up at the next start of the balancer")

    def _hear(self, news: ServicesUpdate) -> None:
        self.take_over(news.roster, news.served.revision, news.unreadable)
        self._commands.take_effect()
        self.keeper.reloaded()

    def take_over(self, new: Services, revision: int, unreadable: tuple[str, ...] = ()) -> None:
        """Runs with another configuration: only what differs changes."""
        before = self.balancer.roster
        self.keeper.touch(self.balancer.reload(new, self._clock.now()))
        self.keeper.complete(revision, unreadable)
        self.keeper.reloaded()
        if before != new:
            log.info(f"runs with the new configuration: {told(before, new)}")

    def _tick(self, now: Instant) -> None:
        if self._has_run_out():
            self._commands.take_effect()
            self.keeper.reloaded()
        if now - self._measured >= _MEASURE_EVERY:
            self._measured = now
            self.keeper.measure(now)
            if self._herald is not None:
                for name, count in by_input(self._herald.differing()).items():
                    self.keeper.metrics.peers.labels(input=name).set(count)

    def _has_run_out(self) -> bool:
        """Whether an operator's wish has come to its end since the last look."""
        wall = self._clock.wall()
        wishes = (*self.balancer.intents, *self.balancer.pauses.values())
        return any(not intent.holds(wall) for intent in wishes)


def told(before: Services, after: Services) -> str:
    """What a reload changes, in words."""
    words = []
    for kind in ("frontends", "backends"):
        old, new = getattr(before, kind), getattr(after, kind)
        counts = {
            "new": len(new.keys() - old.keys()),
            "gone": len(old.keys() - new.keys()),
            "changed": sum(old[name] != new[name] for name in old.keys() & new.keys()),
        }
        words += [f"{count} {kind} {what}" for what, count in counts.items() if count]
    return ", ".join(words) or "nothing that is served has changed"


async def keep(worker: Worker) -> None:
    dataplane, prober = open_dataplane(worker.config.balancer.dataplane), ProberClient(worker.paths.socket(LINE))
    if worker.config.balancer.source == "file":
        await BalancerJob(worker, dataplane, prober).run()
        return
    store = open_store(worker.config.store)
    try:
        await BalancerJob(worker, dataplane, prober, store).run()
    finally:
        await store.close()
