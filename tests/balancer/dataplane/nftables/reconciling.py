"""The real reconciler on the real kernel and clock, with a prober with given results."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path

from holdfast.balancer.dataplane.api import VipDataplane
from holdfast.balancer.desired.state import BalancerState
from holdfast.balancer.probing.messages import Assignment, ProbeCode, ProbeInterval, ProbeReport, ProbeResult
from holdfast.balancer.reconciler import VipReconciler
from holdfast.balancer.services.resolved import resolve_services
from holdfast.balancer.source import WantedVips
from holdfast.balancer.warm_up import WarmUp
from holdfast.config.sections.balancer import BalancerSettings
from holdfast.model.base.time import Duration, seconds
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.daemon.vitals import Vitals
from holdfast.runtime.decision_log import DecisionLog
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.testing.real.anycast import SERVERS, address
from tests.balancer.dataplane.nftables.harness import PORT
from tests.balancer.harness import configuration

_EVERY = 0.1
_NO_WARM_UP = Duration(0)


def site(vip: str = "192.0.2.1", *, backends: tuple[str, ...] = SERVERS, extra: str = "") -> BalancerSettings:
    """All servers behind one VIP; the dataplane is compared only when something happens."""
    family = 6 if ":" in vip else 4
    lines = ["sync-interval: 1h", "healthchecks: {web: {type: tcp}}", "backends:"]
    lines += [f"  {n}: {{address: '{address(n, family)}', port: {PORT}, healthcheck: web}}" for n in SERVERS]
    pool = ", ".join(f"{name}: {{}}" for name in backends)
    lines += ["frontends:", f"  www: {{address: '{vip}', port: 80, pools: [{{backends: {{{pool}}}}}]{extra}}}"]
    return configuration("\n".join(lines))


class Truthful:
    """Tells ten times a second that every target is well, but those in `down`; nothing at all while it is `silent`."""

    def __init__(self) -> None:
        self.down: set[str] = set()
        self.silent = False
        self._targets = Assignment(())

    def assign(self, wanted: Assignment) -> None:
        self._targets = wanted

    def set_intervals(self, intervals: Mapping[str, ProbeInterval]) -> None:
        """It has one interval."""

    async def reports(self) -> AsyncGenerator[ProbeReport, None]:
        clock = SystemClock()
        while True:
            await asyncio.sleep(_EVERY)
            if self.silent:
                continue
            results = []
            for target in self._targets.targets:
                well = target.id.partition("/")[0] not in self.down
                code = ProbeCode.L4OK if well else ProbeCode.L4CON
                now, generation = clock.now(), target.generation
                results.append(ProbeResult(target.id, well, code, seconds(0.001), now, generation=generation))
            yield ProbeReport(clock.now(), tuple(results), len(results))


@contextlib.asynccontextmanager
async def keeping(
    config: BalancerSettings,
    dataplane: VipDataplane,
    folder: Path,
    *,
    complete: bool = True,
    max_delay: Duration = _NO_WARM_UP,
) -> AsyncIterator[tuple[VipReconciler, Truthful]]:
    """A running reconciler. `complete`: whether its source is complete."""
    clock, prober = SystemClock(), Truthful()
    balancer = BalancerState(resolve_services(config), WarmUp(clock.now(), _NO_WARM_UP, max_delay))
    context = Context(clock, Vitals(clock), DecisionLog(folder, "balancer.vips"), WorkerMetrics())
    source = WantedVips(balancer, clock)
    reconciler = VipReconciler(balancer, dataplane, prober, context, sync_interval=config.sync_interval, source=source)
    if complete:
        reconciler.complete(1)
    stopping = asyncio.Event()
    running = asyncio.create_task(reconciler.run(stopping))
    try:
        yield reconciler, prober
    finally:
        stopping.set()
        await running


async def comes_true(what: Callable[[], bool], within: float = 60.0) -> None:
    async with asyncio.timeout(within):
        while not what():  # noqa: ASYNC110 -- what is waited for happens in the kernel, too
            await asyncio.sleep(0.02)


async def compared(reconciler: VipReconciler) -> None:
    """Everything was wanted to be compared, and was, begun and finished after this was asked for."""
    begun = reconciler.loop.passes
    for wanted in (begun + 1, begun + 2):
        reconciler.loop.dirty.mark_all()
        await comes_true(partial(_has_passed, reconciler, wanted))


def _has_passed(reconciler: VipReconciler, times: int) -> bool:
    return reconciler.loop.passes >= times
