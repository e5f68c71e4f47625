"""VIP reconciler: applies probe reports to the state, and reconciles the dataplane with it.

`desired.state` decides; this module does the IO. Frontends that change are gathered for 50 ms and then compared
together, each by its own keys, so that one event compares one frontend and a storm of events is one batch. What the
dataplane holds at the start is adopted before anything is written. VIPs are deleted only in a full comparison.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Protocol

import structlog

from holdfast.balancer import VIPS_WORKER
from holdfast.balancer.dataplane.api import VipDataplane
from holdfast.balancer.desired.pools import Serving
from holdfast.balancer.desired.state import BalancerState, HealthTransition
from holdfast.balancer.gates import AnnouncedGate, HealthGate, HealthReason, VipBrake, WarmUpGate, pause_covers
from holdfast.balancer.health import HealthState
from holdfast.balancer.metrics import BalancerMetrics
from holdfast.balancer.peers import digest
from holdfast.balancer.probing.messages import Assignment, ProbeInterval, ProbeReport
from holdfast.balancer.services.resolved import ResolvedFrontend
from holdfast.balancer.source import WantedVips
from holdfast.balancer.target import BucketMoves, VipTarget
from holdfast.balancer.traffic import TrafficMeter
from holdfast.balancer.vip import KINDS, BackendEntry, Value, Vip, VipKey, filled, in_words
from holdfast.balancer.warm_up import WarmUpPhase
from holdfast.model.base.time import Duration, Instant
from holdfast.reconcile import Away, PauseGate, Synced, SyncGate
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.decision_log import Decision
from holdfast.runtime.reconciler import Reconciler
from holdfast.runtime.reconciler.brake_memory import BrakeMemory
from holdfast.runtime.reconciler.place import LoopTimings, Place
from holdfast.runtime.store_guard import Offload
from holdfast.runtime.tasks import until_first

log = structlog.get_logger(__name__)

GATHER_FOR = Duration(milliseconds=50)
SILENT_AFTER = Duration(seconds=3)
MEASURE_EVERY = Duration(seconds=15)
_TICK_EVERY = Duration(milliseconds=250)
_KEY = itemgetter(0)
_ADOPT_RETRY = Duration(milliseconds=200)


class ProberLink(Protocol):
    """Connection to the prober."""

    def assign(self, wanted: Assignment) -> None: ...

    def set_intervals(self, intervals: Mapping[str, ProbeInterval]) -> None: ...

    def reports(self) -> AsyncGenerator[ProbeReport, None]: ...


class VipReconciler:
    def __init__(
        self,
        balancer: BalancerState,
        dataplane: VipDataplane,
        prober: ProberLink,
        context: Context,
        *,
        sync_interval: Duration,
        source: WantedVips,
        namespace: Callable[[], str] = lambda: "",
        on_tick: Callable[[Instant], None] = lambda _now: None,
        brake_memory: BrakeMemory | None = None,
        offload: Offload = asyncio.to_thread,
    ) -> None:
        """`namespace` returns the network namespace to probe from; a reload can change it. `on_tick` is called
        several times a second, for what else changes by itself (an intent that expires). `offload` runs what would
        keep the event loop busy: building tables."""
        self.balancer = balancer
        self.dataplane = dataplane
        balancer.canonical = dataplane.canonical
        self.source = source
        self._namespace = namespace
        self.pause_gate: PauseGate[VipKey] = PauseGate(partial(pause_covers, balancer.frontend_state))
        self.sync = SyncGate({source.name: Synced(balancer.warm.started)})
        self.warm_up = WarmUpGate(lambda: balancer.warm, balancer.frontend_state)
        self.target = VipTarget(dataplane, self._log_moves, offload, self._compare_vip, self._note_programmed)
        self.brake = VipBrake(f"{VIPS_WORKER}/brake", lambda: self.target.held, lambda vip: vip in balancer.services.at)
        self.announced_gate = AnnouncedGate(self.brake, self._is_announced)
        self.health = HealthGate(
            balancer.frontend_state,
            has_results=lambda: balancer.has_results,
            since=balancer.warm.started,
            programmed=lambda key: self.target.programmed.get(key),
            entries=self.target.entries,
            wanted=source.of,
            has_base=dataplane.describe().takes_table,
        )
        self.metrics = BalancerMetrics(context.metrics.registry)
        self.meter = TrafficMeter(dataplane, context.metrics.registry)
        self._prober = prober
        self._clock = context.clock
        self._vitals = context.vitals
        self._decisions = context.decisions
        self._last_report = balancer.warm.started
        self._changed_frontends: set[str] = set()
        self._gathering: asyncio.TimerHandle | None = None
        self._woken = asyncio.Event()
        self._phase = WarmUpPhase.CLOSED
        self._on_tick = on_tick
        self.loop: Reconciler[VipKey, Value] = Reconciler(
            self._place(),
            context,
            LoopTimings(audit=sync_interval, recheck=Duration(milliseconds=500)),
            brake_memory,
        )

    def _place(self) -> Place[VipKey, Value]:
        return Place(
            name=VIPS_WORKER,
            source=self.source,
            target=self.target,
            gates=(self.pause_gate, self.warm_up, self.health, self.sync, self.announced_gate),
            kinds=KINDS,
            show=str,
            show_value=in_words,
            same=same,
            brake=self.brake,
            quiet=("warm_up",),
            read_back=False,  # a dataplane answers for each change; the full comparison reads again
        )

    def _is_announced(self, host: str) -> bool:
        """Tell whether a frontend wants this address announced."""
        frontends = self.balancer.services.frontends.values()
        return any(one.config.announce is not None and one.vip.host == host for one in frontends)

    def complete(self, revision: int, unreadable: tuple[str, ...] = ()) -> None:
        """Mark the configuration as complete at this revision."""
        self.source.complete(revision)
        self.sync.note_source(self.source.name, Synced(self._clock.now(), revision, unreadable))

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until stopped. What is programmed stays."""
        await self._adopt(stopping)
        self._prober.assign(self.balancer.assignment(self._namespace()))
        await until_first(
            {
                "reports": self._read_reports(),
                "tick": self._tick_periodically(),
                "dataplane": self._watch_dataplane(),
                "traffic": self._measure_traffic(),
                "reconciler": self.loop.run(stopping),
            }
        )

    def touch(self, frontends: Iterable[str]) -> None:
        """Compare these frontends within 50 ms, together with all others that change until then."""
        self._changed_frontends |= set(frontends)
        if self._changed_frontends and self._gathering is None:
            loop = asyncio.get_running_loop()
            self._gathering = loop.call_later(GATHER_FOR.total_seconds(), self._compare_changed)

    def _compare_vip(self, vip: Vip) -> None:
        if (frontend := self.balancer.services.at.get(vip)) is not None:
            self.touch([frontend.name])

    def _note_programmed(self, made: Sequence[tuple[VipKey, Value | None]]) -> None:
        self.touch(self.balancer.on_programmed(made, self._clock.now()))

    def reloaded(self) -> None:
        """React to new services or intents: the prober gets a new assignment, and everything is compared."""
        self._prober.assign(self.balancer.assignment(self._namespace()))
        self.log_transitions()
        self.loop.dirty.mark_all()
        self._woken.set()

    def digests(self) -> digest.Digests:
        """Digests of what is programmed, and of the inputs it was computed from."""
        balancer = self.balancer
        intents = [(one.what.value, str(one.scope), one.weight) for one in balancer.holding_intents()]
        return digest.Digests(
            table=digest.of_table(self._table(self._clock.now())),
            configuration=digest.of_struct((balancer.services.backends, balancer.services.frontends)),
            health=digest.of_health({name: one.state for name, one in balancer.health.items()}),
            intents=digest.of_struct(sorted(intents, key=str)),
        )

    def _table(self, now: Instant) -> Iterator[tuple[VipKey, Value]]:
        """Programmed objects; what the dataplane cannot tell is as wanted, as in every comparison."""
        for vip, objects in itertools.groupby(sorted(self.target.held.items(), key=_KEY), key=lambda pair: pair[0].vip):
            wanted = self.source.of(vip, now)
            yield from ((key, filled(held, wanted.get(key, held))) for key, held in objects)

    def measure(self, now: Instant) -> None:
        """Bring the gauges up to date."""
        states = {name: one.state for name, one in self.balancer.health.items()}
        frontends = {name: (one.state is HealthState.UP, one.panic) for name, one in self.serving(now).items()}
        self.metrics.show(states, frontends, self.digests())

    def serving(self, now: Instant) -> Mapping[str, Serving]:
        """The desired serving state of every frontend."""
        frontends = self.balancer.services.frontends
        return {name: self.balancer.desired(one, now).serving for name, one in frontends.items()}

    async def _adopt(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            try:
                held = await self.dataplane.read()
            except Away as away:
                log.warning("cannot read the dataplane; retrying", error=str(away))
                self._vitals.attempted(success=False, state=f"waiting: {away.what}")
                await asyncio.sleep(_ADOPT_RETRY.total_seconds())
                continue
            self.target.adopt(held)
            self.balancer.adopt(held)
            vips = sum(KINDS.of(key) == "vip" for key in held)
            log.info(
                "adopted the dataplane; it stays as it is until health is known", vips=vips, entries=len(held) - vips
            )
            return

    async def _read_reports(self) -> None:
        async with contextlib.aclosing(self._prober.reports()) as reports:
            async for report in reports:
                self.on_report(report)

    def on_report(self, report: ProbeReport) -> None:
        now = self._clock.now()
        # B14: a prober in trouble counts as silent, unless it has results all the same.
        if report.results or report.passed or not report.trouble:
            self._last_report = now
        self.touch(self.balancer.on_report(report, now))
        if intervals := self.balancer.take_changed_intervals():
            self._prober.set_intervals(intervals)
        self.log_transitions()
        self.tick(now)

    async def _tick_periodically(self) -> None:
        while True:
            self.tick(self._clock.now())
            due = self.balancer.next_due()
            pause = _TICK_EVERY if due is None else min(_TICK_EVERY, max(Duration(0), due - self._clock.now()))
            self._woken.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.001, pause.total_seconds())):
                    await self._woken.wait()

    def tick(self, now: Instant) -> None:
        """Apply what time alone changes: releases, steps of slow starts, delayed flushes, a silent prober."""
        for name, trigger in self.balancer.released(now).items():
            log.info("warm-up released a frontend", frontend=name, reason=trigger.value)
            self.touch([name])
        self._check_prober(now)
        self.touch(self.balancer.due(now))
        self._on_tick(now)
        if (phase := self.balancer.warm.phase(now)) is not self._phase:
            self._phase = phase
            self.loop.dirty.mark_all()  # what waits has another reason, or none

    def _check_prober(self, now: Instant) -> None:
        """Close the health gate while the prober is silent or cut off (protection: B21)."""
        since, reason = self._last_report, HealthReason.NO_PROBER
        cut_off = self.balancer.reachability.cut_off_since
        if cut_off is not None and now - since <= SILENT_AFTER:
            since, reason = cut_off, HealthReason.NO_ROUTE
        silent_since = since if now - since > SILENT_AFTER else None
        if not self.health.on_prober(silent_since, reason):
            return
        if silent_since is not None:
            log.warning("health changes are held until the prober delivers results again", reason=reason.value)
        else:
            log.info("the prober delivers results again")

    def _compare_changed(self) -> None:
        self._gathering = None
        now = self._clock.now()
        frontends, self._changed_frontends = self._changed_frontends, set()
        services = self.balancer.services
        for name in _still_there(frontends, services.frontends):
            frontend = services.frontends[name]
            self.loop.dirty.mark(key for key, _ in self.balancer.desired(frontend, now).objects)
            # An old address that has served until now is no longer among the desired objects (B35).
            self.loop.dirty.mark(VipKey(frontend.vip, backend) for backend in self.target.entries(frontend.vip))

    async def _watch_dataplane(self) -> None:
        # protection: B15
        while True:
            why = await self.dataplane.lost()
            log.warning("dataplane disturbed; comparing everything again", reason=why)
            self.meter.disturbances += 1
            sentence = f"{why}: everything is compared again"
            disturbed = Decision(
                self._clock.wall(), VIPS_WORKER, "disturbed", "dataplane", "noticed", sentence, "dataplane"
            )
            self._decisions.write([disturbed])
            self.loop.dirty.mark_all()

    async def measure_traffic(self) -> None:
        """Read the traffic of each backend."""
        await self.meter.measure(self.balancer.services, self._clock.now())

    async def _measure_traffic(self) -> None:
        while True:
            await self.measure_traffic()
            await asyncio.sleep(MEASURE_EVERY.total_seconds())

    def _log_moves(self, moved: Sequence[BucketMoves]) -> None:
        for one in moved:
            self.metrics.moved.inc(one.churn.moved)
            if one.churn.moved:
                log.info(
                    "moving buckets of a VIP",
                    vip=str(one.vip),
                    moved=one.churn.moved,
                    buckets=one.churn.buckets,
                    of_new_flows=f"{one.churn.share:.2%}",
                )

    def log_transitions(self) -> None:
        """Write each new transition to the log and to the decision log."""
        transitions, self.balancer.unlogged = self.balancer.unlogged, []
        for transition in transitions:
            self.metrics.transitions.labels(state=transition.new.value).inc()
            log.info(
                "backend changed state",
                backend=transition.backend,
                state=transition.new.value,
                was=transition.old.value,
                reason=transition.why,
            )
        self._decisions.write([self._record(transition) for transition in transitions])

    def _record(self, transition: HealthTransition) -> Decision:
        sentence = f"{transition.old.value} → {transition.new.value}: {transition.why}"
        key = f"backend/{transition.backend}"
        return Decision(self._clock.wall(), VIPS_WORKER, "transition", key, transition.new.value, sentence, "backend")


def same(wanted: Value, held: Value) -> bool:
    """Compare two values; what the dataplane cannot tell is as wanted. An entry at weight 0 whose flows were killed
    needs no second kill (protection: B6)."""
    held = filled(held, wanted)
    if isinstance(wanted, BackendEntry) and isinstance(held, BackendEntry) and not wanted.weight and not held.weight:
        return wanted.base == held.base and (held.kill or not wanted.kill)
    return wanted == held


def _still_there(touched: set[str], frontends: Mapping[str, ResolvedFrontend]) -> set[str]:
    """Drop frontends that are gone by now; a full comparison handles them (protection: B16)."""
    return touched & frontends.keys()
