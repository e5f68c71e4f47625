"""The balancer's worker: configuration in, one keeper, the operator's commands, metrics."""

from __future__ import annotations

import asyncio
import contextlib

import structlog

from holdfast.balancer.commands import Commands
from holdfast.balancer.core import Balancer
from holdfast.balancer.dataplane import Dataplane
from holdfast.balancer.dataplane.dryrun import DryRun
from holdfast.balancer.keeper import NAME, Around, Keeper
from holdfast.balancer.line import BalancerEnd
from holdfast.balancer.prober_job import LINE, PROBER
from holdfast.balancer.roster import Roster, roster
from holdfast.balancer.source import WantedVips
from holdfast.balancer.warmup import WarmUp
from holdfast.balancer.wishes import WishesFile
from holdfast.config.balancer import Dataplane as DataplaneConfig
from holdfast.model.time import Duration, Instant
from holdfast.runtime.intents import Intents
from holdfast.runtime.worker import Spec, Worker

log = structlog.get_logger(__name__)

VIPS = Spec(NAME, "holdfast.balancer.job:keep")
WORKERS: tuple[Spec, ...] = (PROBER, VIPS)
_MEASURE_EVERY = Duration(seconds=1)


def open_dataplane(config: DataplaneConfig) -> Dataplane:
    """The dataplane that is configured."""
    match config.kind:
        case "dry-run":
            return DryRun(config.table_size)


class BalancerJob:
    def __init__(self, worker: Worker, dataplane: Dataplane) -> None:
        config = worker.config.balancer
        self._worker = worker
        self._clock = worker.clock
        warm = WarmUp(worker.clock.now(), config.startup_min_delay, config.startup_max_delay)
        self.balancer = Balancer(roster(config), warm, history=config.transition_history)
        around = Around(worker.clock, worker.vitals, worker.decisions, worker.metrics)
        self.keeper = Keeper(
            self.balancer,
            dataplane,
            BalancerEnd(worker.paths.socket(LINE)),
            around,
            sync_interval=config.sync_interval,
            source=WantedVips(self.balancer, worker.clock),
            namespace=config.netns or "",
        )
        self._wishes = WishesFile(worker.paths.state / "intents" / f"{worker.role}.backends.json")
        self._commands = Commands(self.keeper, self._wishes, worker.clock, worker.decisions)
        Intents(worker, self.keeper.reconciler, self.keeper.intent, self.keeper.sync).offer()
        worker.handlers |= self._commands.handlers()
        self.keeper.on_tick = self._tick
        self._measured = warm.started

    async def run(self) -> None:
        self.keeper.complete(1)
        self._commands.take_effect()
        reloading = asyncio.create_task(self._reload(), name="reload")
        try:
            await self.keeper.run(self._worker.stopping)
        finally:
            reloading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reloading

    async def _reload(self) -> None:
        while True:
            await self._worker.reloaded.wait()
            self._worker.reloaded.clear()
            self.take_over(roster(self._worker.config.balancer), self.keeper.source.revision + 1)

    def take_over(self, new: Roster, revision: int) -> None:
        """Runs with another configuration: only what differs changes."""
        before = self.balancer.roster
        self.keeper.namespace = self._worker.config.balancer.netns or ""
        self.keeper.touch(self.balancer.reload(new, self._clock.now()))
        self.keeper.complete(revision)
        self.keeper.reloaded()
        log.info(f"runs with the new configuration: {told(before, new)}")

    def _tick(self, now: Instant) -> None:
        if self._wishes.forget_what_ran_out(self._clock.wall()):
            self._commands.take_effect()
            self.keeper.reloaded()
        if now - self._measured >= _MEASURE_EVERY:
            self._measured = now
            self.keeper.measure(now)


def told(before: Roster, after: Roster) -> str:
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
    await BalancerJob(worker, open_dataplane(worker.config.balancer.dataplane)).run()
