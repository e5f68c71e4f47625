"""A balancer on virtual time: the real reconciler, a dataplane in memory, and a prober with given results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path

from holdfast.balancer.desired.state import BalancerState
from holdfast.balancer.probing.messages import (
    Assignment,
    ProbeCode,
    ProbeInterval,
    ProbeReport,
    ProbeResult,
    TargetSpec,
)
from holdfast.balancer.reconciler import VipReconciler
from holdfast.balancer.services.resolved import resolve_services
from holdfast.balancer.source import WantedVips
from holdfast.balancer.vip import Vip, shown
from holdfast.balancer.warm_up import WarmUp
from holdfast.config import ConfigFile, Loaded, resolve
from holdfast.config.sections.balancer import BalancerSettings
from holdfast.model.base.time import Duration, seconds
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.daemon.vitals import Vitals
from holdfast.runtime.decision_log import DecisionLog
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.runtime.reconciler.brake_memory import BrakeMemory
from holdfast.testing import Node
from holdfast.testing.fakes.dataplane import FakeDataplane

_EVERY = 0.25


def configuration(text: str) -> BalancerSettings:
    """The `balancer:` section that this text is the inside of."""
    indented = "".join(f"  {line}\n" for line in text.splitlines())
    loaded = resolve(ConfigFile("test", f"balancer:\n{indented}".encode()), {})
    assert isinstance(loaded, Loaded), str(loaded)
    return loaded.config.balancer


def simple(*backends: int, frontends: int = 1, extra: str = "", check: str = "") -> BalancerSettings:
    """Backends 10.0.0.N behind VIPs 192.0.2.N, all in one pool."""
    lines = ["healthchecks:", f"  web: {{type: tcp, interval: 1s{check}}}", "backends:"]
    lines += [f"  b{n}: {{address: 10.0.0.{n}, port: 80, healthcheck: web}}" for n in backends]
    lines.append("frontends:")
    pool = ", ".join(f"b{n}: {{}}" for n in backends)
    for n in range(1, frontends + 1):
        lines += [f"  f{n}:", f"    address: 192.0.2.{n}", "    port: 80", f"    pools: [{{backends: {{{pool}}}}}]"]
        lines += [f"    {line}" for line in extra.splitlines()]
    return configuration("\n".join(lines))


async def at_once(work: Callable[[], None]) -> None:
    work()


class TruthfulProber:
    """Reports four times a second, for every target, what `down` says; dead or blind it tells nothing. Like the real
    one, it only counts passes of targets at their normal interval that had passed before."""

    def __init__(self, node: Node, truth: Truth) -> None:
        self._node = node
        self._truth = truth
        self.assigned = Assignment(())
        self.intervals: dict[str, ProbeInterval] = {}
        self._current: dict[str, ProbeInterval] = {}
        self._passing: set[TargetSpec] = set()

    def assign(self, wanted: Assignment) -> None:
        self.assigned = wanted
        self._current = dict(wanted.intervals)
        self._passing &= set(wanted.targets)

    def set_intervals(self, intervals: Mapping[str, ProbeInterval]) -> None:
        self.intervals |= intervals
        self._current |= intervals

    async def reports(self) -> AsyncGenerator[ProbeReport, None]:
        while True:
            await asyncio.sleep(_EVERY)
            if self._truth.dead:
                continue
            now = self._node.clock.now()
            answering = [one for one in self.assigned.targets if one.id.partition("/")[0] not in self._truth.mute]
            results = {} if self._truth.blind else {one: self._result(one) for one in answering}
            quiet = [one for one, result in results.items() if self._changes_nothing(one, result)]
            self._passing = self._passing - results.keys() | {one for one in results if results[one].passed}
            yield ProbeReport(
                now,
                tuple(result for one, result in results.items() if one not in quiet),
                len(self.assigned.targets),
                trouble=self._truth.blind,
                passed=len(quiet),
                passing=tuple(one.id for one in quiet[-2:]),
            )

    def _changes_nothing(self, target: TargetSpec, result: ProbeResult) -> bool:
        is_normal = self._current.get(target.id, ProbeInterval.NORMAL) is ProbeInterval.NORMAL
        return result.passed and is_normal and target in self._passing

    def _result(self, target: TargetSpec) -> ProbeResult:
        name = target.id.partition("/")[0]
        passed = name not in self._truth.down | self._truth.no_route and not self._truth.late
        failed = ProbeCode.NOROUTE if name in self._truth.no_route else ProbeCode.L4CON
        code = ProbeCode.L4OK if passed else failed
        now, generation = self._node.clock.now(), target.generation
        return ProbeResult(target.id, passed, code, seconds(0.001), now, self._truth.late, generation=generation)


class Truth:
    """How the world is, as a prober finds it."""

    def __init__(self) -> None:
        self.down: set[str] = set()
        self.mute: set[str] = set()
        """Of these no probe has come home yet."""
        self.no_route: set[str] = set()
        self.dead = False
        self.late = False
        self.blind = ""


class BalancerHarness:
    """One balancer. The dataplane outlives it; `start` after a kill is a restart."""

    def __init__(self, node: Node, folder: Path, dataplane: FakeDataplane | None = None) -> None:
        self.node = node
        self.dataplane = dataplane or FakeDataplane()
        self.truth = Truth()
        self._folder = folder

    def start(
        self, config: BalancerSettings, *, low: Duration = seconds(5), high: Duration = seconds(30)
    ) -> VipReconciler:
        clock = self.node.clock
        balancer = BalancerState(resolve_services(config), WarmUp(clock.now(), low, high))
        vitals = Vitals(clock)
        decisions = DecisionLog(self._folder, "balancer.vips")
        context = Context(clock, vitals, decisions, WorkerMetrics())
        self.prober = TruthfulProber(self.node, self.truth)
        self.reconciler = VipReconciler(
            balancer,
            self.dataplane,
            self.prober,
            context,
            sync_interval=config.sync_interval,
            source=WantedVips(balancer, clock),
            offload=at_once,
            brake_memory=BrakeMemory(self._folder / "deletes", "boot-1"),
        )
        self.reconciler.complete(1)
        self.node.run(self.reconciler.run(asyncio.Event()))
        return self.reconciler

    def reload(self, config: BalancerSettings) -> None:
        self.reconciler.balancer.reload(resolve_services(config), self.node.clock.now())
        self.reconciler.complete(self.reconciler.source.revision + 1)
        self.reconciler.reloaded()

    def weights(self, vip: int = 1) -> dict[str, int]:
        """What the dataplane has under 192.0.2.N: the end of each backend's address, and its weight."""
        wanted = Vip.of(f"192.0.2.{vip}", "tcp", 80)
        found = {key: entry for key, entry in self.dataplane.entries.items() if key.vip == wanted}
        return {f"b{shown(key.backend).partition(':')[0].rpartition('.')[2]}": one.weight for key, one in found.items()}
