"""The keeper: hears the prober, keeps the dataplane as wanted, and says what it did. Thin: `core` decides.

Frontends that something happened to are gathered for 50 ms and then looked at together, each by its own keys, so that
one event is one look at one frontend, and a storm of events is one batch. What the dataplane holds at the start is
adopted before anything is written to it. VIPs go only in a full comparison.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Protocol

import structlog

from holdfast.balancer.announce.vip_gate import AnnouncedGate, host_of
from holdfast.balancer.dataplane.api import VipDataplane
from holdfast.balancer.desired.pools import Serving
from holdfast.balancer.desired.state import BalancerState, HealthTransition
from holdfast.balancer.gates import FrontendPauseGate, HealthGate, WarmUpGate
from holdfast.balancer.health import HealthState
from holdfast.balancer.metrics import BalancerMetrics
from holdfast.balancer.peers import digest
from holdfast.balancer.probing.messages import Assignment, ProbeInterval, ProbeReport
from holdfast.balancer.services.resolved import ResolvedFrontend
from holdfast.balancer.source import WantedVips
from holdfast.balancer.target import BucketMoves, VipTarget
from holdfast.balancer.traffic import TrafficMeter
from holdfast.balancer.vip import KINDS, BackendEntry, Value, VipKey
from holdfast.balancer.warm_up import WarmUpPhase
from holdfast.model.base.time import Duration, Instant
from holdfast.reconcile import Away, Brake, PauseGate, Synced, SyncGate
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.decision_log import Decision
from holdfast.runtime.reconciler import Reconciler
from holdfast.runtime.reconciler.place import LoopTimings as LoopPace
from holdfast.runtime.reconciler.place import Place

log = structlog.get_logger(__name__)

NAME = "vips"
GATHER = Duration(milliseconds=50)
SILENT_AFTER = Duration(seconds=3)
METER = Duration(seconds=15)
_POLL = Duration(milliseconds=250)
_ADOPT_AGAIN = Duration(milliseconds=200)


class ProberLink(Protocol):
    """The line to the prober."""

    def assign(self, wanted: Assignment) -> None: ...

    def pace(self, paces: Mapping[str, ProbeInterval]) -> None: ...

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
        namespace: str = "",
    ) -> None:
        self.balancer = balancer
        self.dataplane = dataplane
        self.source = source
        self.namespace = namespace
        self.intent: PauseGate[VipKey] = PauseGate(NAME)
        self.pauses = FrontendPauseGate(balancer.standing)
        self.sync = SyncGate({source.name: Synced(balancer.warm.started)})
        self.warm_up = WarmUpGate(balancer.warm, balancer.standing)
        self.brake: Brake[VipKey, Value] = Brake(f"{NAME}/brake", KINDS)
        self.farewell = AnnouncedGate(self.brake, self._is_announced)
        self.target = VipTarget(dataplane, self._moves)
        self.health = HealthGate(
            balancer.standing, since=balancer.warm.started, programmed=lambda key: self.target.programmed.get(key)
        )
        self.metrics = BalancerMetrics(context.metrics.registry)
        self.meter = TrafficMeter(dataplane, context.metrics.registry)
        self._prober = prober
        self._clock = context.clock
        self._vitals = context.vitals
        self._decisions = context.decisions
        self._spoken = balancer.warm.started
        self._touched: set[str] = set()
        self._gathering: asyncio.TimerHandle | None = None
        self._woken = asyncio.Event()
        self._over = False
        self.on_tick: Callable[[Instant], None] = lambda _now: None
        """Called now and then: what else changes by itself (an intent that runs out)."""
        self.reconciler: Reconciler[VipKey, Value] = Reconciler(
            self._place(),
            context,
            LoopPace(audit=sync_interval, recheck=Duration(milliseconds=500)),
        )

    def _place(self) -> Place[VipKey, Value]:
        return Place(
            name=NAME,
            source=self.source,
            target=self.target,
            gates=(self.intent, self.pauses, self.warm_up, self.health, self.sync, self.farewell),
            kinds=KINDS,
            show=str,
            same=_same,
            brake=self.brake,
            quiet=("warm_up",),
        )

    def _is_announced(self, host: str) -> bool:
        """Whether a frontend wants that address announced."""
        frontends = self.balancer.roster.frontends.values()
        return any(one.config.announce is not None and host_of(one.vip) == host for one in frontends)

    def complete(self, revision: int, unreadable: tuple[str, ...] = ()) -> None:
        """The configuration is known to be all there is, at this revision."""
        self.source.revision = revision
        self.sync.note_source(self.source.name, Synced(self._clock.now(), revision, unreadable))

    async def run(self, stopping: asyncio.Event) -> None:
        """Until told to stop. What is programmed stays."""
        await self._adopt(stopping)
        self._prober.assign(self.balancer.assignment(self.namespace))
        async with asyncio.TaskGroup() as tasks:
            helpers = [
                tasks.create_task(self._listen(), name="listen"),
                tasks.create_task(self._tend(), name="tend"),
                tasks.create_task(self._watch_dataplane(), name="dataplane"),
                tasks.create_task(self._meter(), name="meter"),
            ]
            await tasks.create_task(self.reconciler.run(stopping), name="reconciler")
            for helper in helpers:
                helper.cancel()

    def touch(self, frontends: Iterable[str]) -> None:
        """Something happened to these: they are looked at within 50 ms, all that gather until then at once."""
        self._touched |= set(frontends)
        if self._touched and self._gathering is None:
            loop = asyncio.get_running_loop()
            self._gathering = loop.call_later(GATHER.total_seconds(), self._look)

    def reloaded(self) -> None:
        """The roster, or an operator's wish, has changed: the prober gets new orders and everything is compared."""
        self._prober.assign(self.balancer.assignment(self.namespace))
        self.tell_transitions()
        self.reconciler.dirty.mark_all()
        self._woken.set()

    def digests(self) -> digest.Digests:
        """Of what is programmed, and of what it was made from."""
        balancer = self.balancer
        wishes = (*balancer.intents, *balancer.pauses.values())
        held = [(one.what.value, str(one.scope), one.weight) for one in wishes]
        return digest.Digests(
            table=digest.of_table(self.target.held.items()),
            configuration=digest.of_struct((balancer.roster.backends, balancer.roster.frontends)),
            health=digest.of_health({name: one.state for name, one in balancer.health.items()}),
            intents=digest.of_struct(sorted(held, key=str)),
        )

    def measure(self, now: Instant) -> None:
        """Brings the gauges up to date."""
        states = Counter(one.state for one in self.balancer.health.values())
        frontends = {name: (one.state is HealthState.UP, one.panic) for name, one in self.serving(now).items()}
        self.metrics.show(states, frontends, self.digests())

    def serving(self, now: Instant) -> Mapping[str, Serving]:
        """Every frontend as it should be now."""
        frontends = self.balancer.roster.frontends
        return {name: self.balancer.desired(one, now).serving for name, one in frontends.items()}

    async def _adopt(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            try:
                held = await self.dataplane.read()
            except Away as away:
                log.warning(f"the dataplane cannot be read yet: {away}")
                self._vitals.attempted(success=False, state=f"waiting: {away.what}")
                await asyncio.sleep(_ADOPT_AGAIN.total_seconds())
                continue
            self.target.adopt(held)
            self.balancer.adopt(held)
            vips = sum(KINDS.of(key) == "vip" for key in held)
            log.info(
                f"found {vips} VIPs with {len(held) - vips} entries in the dataplane; they stay until health is known"
            )
            return

    async def _listen(self) -> None:
        async with contextlib.aclosing(self._prober.reports()) as reports:
            async for report in reports:
                self.hear(report)

    def hear(self, report: ProbeReport) -> None:
        now = self._clock.now()
        # A prober that cannot probe as told is as good as silent (B14), unless it finds something all the same.
        if report.results or not report.trouble:
            self._spoken = now
        self.touch(self.balancer.heard(report, now))
        if self.balancer.paced:
            self._prober.pace(self.balancer.paced)
            self.balancer.paced = {}
        self.tell_transitions()
        self.tend(now)

    async def _tend(self) -> None:
        while True:
            self.tend(self._clock.now())
            due = self.balancer.next_due()
            pause = _POLL if due is None else min(_POLL, max(Duration(0), due - self._clock.now()))
            self._woken.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.001, pause.total_seconds())):
                    await self._woken.wait()

    def tend(self, now: Instant) -> None:
        """What time alone changes: releases, steps of slow start, flushes that have waited, silence."""
        for name, trigger in self.balancer.released(now).items():
            log.info(f"warm-up lets {name} through: {trigger.value}")
            self.touch([name])
        self.warm_up.warm = self.balancer.warm
        self.health.told = self.balancer.told
        self._judge_silence(now)
        self.touch(self.balancer.due(now))
        self.on_tick(now)
        if not self._over and self.balancer.warm.phase(now) is WarmUpPhase.OVER:
            self._over = True
            self.reconciler.dirty.mark_all()

    def _judge_silence(self, now: Instant) -> None:
        silent = self._spoken if now - self._spoken > SILENT_AFTER else None
        if (silent is None) != (self.health.silent is None):
            said = (
                "the prober is silent: health changes nothing until it speaks" if silent else "the prober speaks again"
            )
            log.log(30 if silent else 20, said)
        self.health.silent = silent

    def _look(self) -> None:
        self._gathering = None
        now = self._clock.now()
        frontends, self._touched = self._touched, set()
        roster = self.balancer.roster
        for name in _still_there(frontends, roster.frontends):
            self.reconciler.dirty.mark(key for key, _ in self.balancer.desired(roster.frontends[name], now).objects)

    async def _watch_dataplane(self) -> None:
        while True:
            await self.dataplane.lost()
            said = "what was programmed was changed, or lost, behind our back: everything is compared again"
            log.warning(said)
            self.meter.disturbed += 1
            disturbed = Decision(self._clock.wall(), NAME, "disturbed", "dataplane", "noticed", said, "dataplane")
            self._decisions.write([disturbed])
            self.reconciler.dirty.mark_all()

    async def _meter(self) -> None:
        while True:
            await self.meter.measure(self.balancer.roster)
            await asyncio.sleep(METER.total_seconds())

    def _moves(self, moved: Sequence[BucketMoves]) -> None:
        for one in moved:
            self.metrics.moved.inc(one.churn.moved)
            if one.churn.moved:
                log.info(f"{one.vip}: moves {one.churn}")

    def tell_transitions(self) -> None:
        """Each transition is a line in the log and a record in the decision log."""
        news, self.balancer.news = self.balancer.news, []
        for transition in news:
            self.metrics.transitions.labels(state=transition.new.value).inc()
            log.info(
                f"backend {transition.backend} is {transition.new.value}: {transition.why}", was=transition.old.value
            )
        self._decisions.write([self._record(transition) for transition in news])

    def _record(self, transition: HealthTransition) -> Decision:
        sentence = f"{transition.old.value} → {transition.new.value}: {transition.why}"
        key = f"backend/{transition.backend}"
        return Decision(self._clock.wall(), NAME, "transition", key, transition.new.value, sentence, "backend")


def _same(wanted: Value, held: Value) -> bool:
    """Whether nothing is to be done. An entry at zero whose flows were ended has none, also if some might live now."""
    if isinstance(wanted, BackendEntry) and isinstance(held, BackendEntry) and not wanted.weight and not held.weight:
        return held.kill or not wanted.kill
    return wanted == held


def _still_there(touched: set[str], frontends: Mapping[str, ResolvedFrontend]) -> set[str]:
    """B16: a frontend that is gone by now is left to a full comparison."""
    return touched & frontends.keys()
