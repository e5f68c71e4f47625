"""The agent's reconciler: keeps the kernel as the sources want it, through the one loop.

At a start it reads the journal and programs nothing from it; it changes nothing at all until a source has delivered a
complete list. Then stale objects, those in the journal or with our tag that no source wants, are deleted like any
other: through the gates, with the whole object, by every handler. A stop or crash at any moment loses nothing of the
journal.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import eq
from zlib import crc32

import structlog

from holdfast.agent import host_name
from holdfast.agent.claims import GUARD_KINDS, KINDS, LOCAL_KINDS, Claim, ClaimKey
from holdfast.agent.desired.peers import Routing
from holdfast.agent.desired.sources import Sources
from holdfast.agent.desired.watcher import SourceWatcher
from holdfast.agent.fleet_pause import FLEET_PAUSE, FleetPause
from holdfast.agent.gates.brake import AgentBrake
from holdfast.agent.gates.dependents import DependentsGate
from holdfast.agent.gates.handover import HandoverGate, is_peers
from holdfast.agent.gates.identity import StoreIdentityGate
from holdfast.agent.gates.precedence import PrecedenceGate
from holdfast.agent.gates.prefix import PrefixGate
from holdfast.agent.gates.readiness import HandlerReadyGate, InterfaceGate
from holdfast.agent.gates.store_path import HOLD_DOWN, StorePathGate
from holdfast.agent.gates.unreadable import UnreadableValues
from holdfast.agent.journal.journal import JournalUnwritable, Offload
from holdfast.agent.known_prefixes import KnownPrefixes
from holdfast.agent.metrics import AgentMetrics
from holdfast.agent.present import Present
from holdfast.agent.source import WantedClaims
from holdfast.agent.target import JournaledTarget
from holdfast.config.root import Config
from holdfast.model.base.time import Duration, Instant
from holdfast.model.control.intent import Intent
from holdfast.reconcile import Away, BrakeLimits, Change, PauseGate, SyncGate
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.daemon.waiting import Waiting
from holdfast.runtime.intents.applied import AppliedIntents
from holdfast.runtime.intents.memory import PauseMemory
from holdfast.runtime.reconciler import Reconciler
from holdfast.runtime.reconciler.brake_memory import BrakeMemory
from holdfast.runtime.reconciler.place import LoopTimings, Place
from holdfast.runtime.store_guard import StoreGuard
from holdfast.runtime.store_memory import StoreMemory
from holdfast.runtime.tasks import until_first
from holdfast.store.identity import StoreVerdict

log = structlog.get_logger(__name__)

NAME = "agent"
IDENTITY_INTERVAL = Duration(seconds=5)
"""Least time between two reads of a store's identity, unless a change of it arrives: what was delivered since is to be
remembered (C43)."""
QUIET_INTERVAL = Duration(seconds=60)
"""The same while nothing is delivered, so that thousands of agents do not keep a store busy."""
TICK = Duration(seconds=1)
COMPARE_ALL_ABOVE = 2_000
"""Disturbed objects: with more than these, everything is compared, which is done in pages, and is safer."""
REPAIR_PAUSE = Duration(milliseconds=100)
"""Between two repairs of objects that another program keeps changing."""
_CENSUS_INTERVAL = Duration(seconds=20)
"""Between two reads of the leader's census while the brake is closed."""
_POLL = Duration(milliseconds=100)
_SPREAD = Duration(seconds=60)
_QUIET = ("dependents",)


@dataclass(frozen=True, slots=True)
class ReconcilerSettings:
    limits: BrakeLimits = field(default_factory=BrakeLimits)
    hold_down: Duration = HOLD_DOWN
    pace: LoopTimings = field(default_factory=LoopTimings)
    stores: Callable[[], Collection[str]] = tuple
    """Addresses at which the store is reached now."""
    allowed_prefixes: tuple[str, ...] = ()
    """Prefixes that an operator allows although they cover the store or a host, or lie outside the fleet's networks."""


def reconciler_settings(config: Config, stores: Callable[[], Collection[str]]) -> ReconcilerSettings:
    agent = config.agent
    return ReconcilerSettings(
        limits=BrakeLimits(count=agent.brake_count, share=agent.brake_share / 100),
        hold_down=agent.hold_down,
        pace=LoopTimings(audit=agent.verify_interval, linger=linger(host_name(config))),
        stores=stores,
        allowed_prefixes=agent.allowed_prefixes,
    )


def linger(host: str) -> Duration:
    """Delay that differs between hosts and is the same at every start: a mass delete closes the brakes of a whole
    fleet at once, and not all hosts should ask for a fresh list at once."""
    return _SPREAD * (crc32(host.encode()) / 2**32)


class AgentReconciler:
    def __init__(
        self,
        host: str,
        watchers: Sequence[SourceWatcher],
        target: JournaledTarget,
        memories: Mapping[str, StoreMemory],
        context: Context,
        settings: ReconcilerSettings | None = None,
        offload: Offload = asyncio.to_thread,
        own_intents: Callable[[], Iterable[Intent]] = tuple,
        brake_memory: BrakeMemory | None = None,
    ) -> None:
        """`watchers` are in order of precedence; `memories` has one memory per source; `own_intents` returns those of
        this machine."""
        self.watchers = watchers
        self.target = target
        unreadable = UnreadableValues({watcher.name: watcher.region for watcher in watchers})
        self.sync_gate = SyncGate({watcher.name: watcher.synced for watcher in watchers}, unreadable.blamed)
        self.sources = Sources(
            host, {watcher.name: watcher.claims for watcher in watchers}, target.dataplane.describe().own
        )
        self.identity_gate = StoreIdentityGate(
            {one.name: StoreGuard(one.store, one.region, memories[one.name], offload) for one in watchers},
            lambda name: name in self.sync_gate.sources,
            target.load,
            self.sources.host_revision,
            self._refresh,
        )
        self.pause_gate: PauseGate[ClaimKey] = PauseGate()
        self._own_intents = own_intents
        self._fleet_pauses = {
            one.name: FleetPause(
                one,
                PauseMemory(memories[one.name].path.parent, f"{NAME}.{one.name}", [FLEET_PAUSE], offload),
                partial(self.identity_gate.verdict, one.name),
            )
            for one in watchers
        }
        self.metrics = AgentMetrics(context.metrics.registry)
        self._settings = settings or ReconcilerSettings()
        self._prefixes = KnownPrefixes(
            self.sources,
            self._settings.stores,
            self._settings.allowed_prefixes,
            lambda: [watcher.fleet_prefixes for watcher in watchers],
        )
        self._clock = context.clock
        self._vitals = context.vitals
        self._offload = offload
        self._compaction: asyncio.Task[None] | None = None
        self.loop: Reconciler[ClaimKey, Claim] = Reconciler(self._place(), context, self._settings.pace, brake_memory)
        self.intents = AppliedIntents(context, self.loop, self.pause_gate, self._all_intents)

    @property
    def present(self) -> Present:
        return self.target.present

    def _place(self) -> Place[ClaimKey, Claim]:
        target, settings = self.target, self._settings
        wanted = WantedClaims(
            self.sources,
            self.watchers,
            self.sync_gate,
            target.present,
            self._recheck_identity,
            target.journaled,
            lambda watcher: self.identity_gate.follow(watcher.name, [watcher.objects], self._clock.now()),
        )
        return Place(
            name=NAME,
            source=wanted,
            target=target,
            gates=(
                self.pause_gate,
                self.identity_gate,
                self.sync_gate,
                PrecedenceGate(tuple(self.sources.claims), self.sync_gate),
                PrefixGate(self._prefixes.policy),
                *self._handover(),
                HandlerReadyGate(target.handlers),
                InterfaceGate(target.dataplane),
                DependentsGate(target.present, self._is_backing_off, self._guards, self._is_wanted),
                StorePathGate(target.present, settings.stores, settings.hold_down),
            ),
            kinds=KINDS,
            show=str,
            same=eq,
            brake=AgentBrake(f"{NAME}/brake", KINDS, settings.limits, self._is_allowed),
            feed=wanted,
            look_up=self._read_intents,
            quiet=_QUIET,
            read_back=False,  # every handler acknowledges every object itself
        )

    @property
    def _guards(self) -> bool:
        return self.target.dataplane.describe().guards

    def _is_wanted(self, key: ClaimKey) -> bool:
        return bool(self.sources.among([key]))

    def _handover(self) -> Sequence[HandoverGate]:
        """Return the gate of `routing: bgp`."""
        return [HandoverGate(self.target.dataplane.routes_in)] if self.is_bgp else []

    @property
    def is_bgp(self) -> bool:
        return any(watcher.routing is Routing.BGP for watcher in self.watchers)

    def _is_backing_off(self, change: Change[ClaimKey, Claim], now: Instant) -> bool:
        return self.loop.ledger.judge(change, {}, 0, now) is not None

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until stopped. Programmed objects and the journal stay."""
        await until_first(
            {
                **{f"watch {watcher.name}": self._follow(watcher) for watcher in self.watchers},
                "identity": self._watch_identity(),
                "kernel": self._watch_kernel(),
                "tick": self._tick(),
                "census": self._compare_census(),
                "reconciler": self._reconcile(stopping),
            }
        )
        await self._end_compaction()

    async def _follow(self, watcher: SourceWatcher) -> None:
        await watcher.run(self._wake, self._on_intents, self.identity_gate.invalidated.set)

    async def _reconcile(self, stopping: asyncio.Event) -> None:
        await self._first_list(stopping)
        await self.loop.run(stopping)

    def measure(self, now: Instant) -> None:
        """Update the gauges."""
        for watcher in self.watchers:
            watcher.skipped.note(watcher.objects.skipped, now)
        metrics, deletes = self.metrics, self.target.pending_deletes
        hosts = {owned.value.owner.host for owned in self.present.claims.values()}
        metrics.peers.labels(state="wanted").set(self.sources.peers())
        metrics.peers.labels(state="programmed").set(len(hosts - {"", self.sources.host}))
        metrics.claims.clear()
        for kind, count in Counter(KINDS.of(key) for key in self.present).items():
            metrics.claims.labels(kind=kind).set(count)
        metrics.journal_bytes.set(self.target.journal.size)
        metrics.pending_deletes.set(len(deletes))
        since = [change.since for key in deletes if (change := self.loop.ledger.outstanding(key)) is not None]
        metrics.oldest_delete.set((now - min(since)).total_seconds() if since else 0)
        metrics.conflicts.set(len(self.sources.conflicts()))
        metrics.show_sources(self.sync_gate.sources)

    async def _first_list(self, stopping: asyncio.Event) -> None:
        """Wait for the first complete list, however long it takes (N12): without one there is nothing to add, and
        nothing may be deleted."""
        await self._read_kernel()
        log.info("loaded the journal and the kernel; waiting for the first complete list", objects=len(self.present))
        while not stopping.is_set():
            await self.loop.place.source.get(())
            if self.sources.complete or not self.sync_gate.sources:  # an operator may have forgotten all of them
                return
            self._vitals.attempted(success=True, state="waiting: a complete list")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL.total_seconds()):
                    await stopping.wait()

    async def _read_kernel(self) -> None:
        """Read what is programmed, so that it can be shown while waiting; an unreachable kernel is read later."""
        try:
            await self.target.read(None)
        except Away as away:
            log.warning("cannot read the kernel yet; retrying", error=str(away))

    def _is_allowed(self, change: Change[ClaimKey, Claim]) -> bool:
        """Return whether an operator has allowed the syncer change that a delete follows from. Allowances of a restored
        store are void: one of them may have ended since the backup. What goes with other objects needs none."""
        if change.key.kind in LOCAL_KINDS or (change.key.kind in GUARD_KINDS and not self._guards):
            return True
        if self.is_bgp and is_peers(change):
            return True  # nothing of another host is wanted, and the handover gate has let it pass
        owner = change.owner.source
        if owner in self.identity_gate.guards and self.identity_gate.verdict(owner) is StoreVerdict.RESTORED:
            return False  # protection: C69
        ours = owner in self.identity_gate.guards and self.identity_gate.verdict(owner) is StoreVerdict.OURS
        return any(
            watcher.name == owner and (watcher.is_allowed(change) or (ours and watcher.is_proven(change)))
            for watcher in self.watchers
        )

    def _all_intents(self) -> Iterable[Intent]:
        yield from self._own_intents()
        wall = self._clock.wall()
        for one in self._fleet_pauses.values():
            yield from one.all(wall)

    async def _read_intents(self, _changes: Sequence[Change[ClaimKey, Claim]]) -> None:
        """Apply the intents before the gates judge: nothing may pass between a pause and the notice of it."""
        self.intents.apply()

    async def _on_intents(self) -> None:
        """Apply and remember intents that changed."""
        self.intents.apply()
        for one in self._fleet_pauses.values():
            await one.save()

    async def _refresh(self, source: str) -> None:
        await next(one for one in self.watchers if one.name == source).refresh()

    def _recheck_identity(self, source: str) -> None:
        next(one for one in self.watchers if one.name == source).census.forget()
        self.identity_gate.invalidate(source, self._clock.now())

    def _wake(self) -> None:
        self.loop.dirty.wake()

    async def _watch_identity(self) -> None:
        while True:
            self.identity_gate.invalidated.clear()
            began, delivered = self._clock.now(), [watcher.delivered for watcher in self.watchers]
            lists = {name: one.lists for name, one in self._fleet_pauses.items()}
            changed = await self.identity_gate.check(self._clock.now())
            if self._note_restored() or changed:
                self.loop.dirty.mark_all()
            for name, one in self._fleet_pauses.items():
                one.judged(lists[name])
                await one.save()
            self.intents.apply()
            await self._until_identity_is_due(began, delivered)

    async def _until_identity_is_due(self, since: Instant, delivered: Sequence[int]) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(IDENTITY_INTERVAL.total_seconds()):  # 3.11's wait_for can swallow a stop
                    await self.identity_gate.invalidated.wait()
                    return
            has_news = delivered != [watcher.delivered for watcher in self.watchers]
            if has_news or self._is_in_doubt() or self._clock.now() - since >= QUIET_INTERVAL:
                return

    def _is_in_doubt(self) -> bool:
        """Return whether a store is not the one that it should be, or the consequences of that are not over."""
        verdicts = self.identity_gate.verdicts().values()
        return any(one is not StoreVerdict.OURS for one in verdicts) or any(
            watcher.claims.restored for watcher in self.watchers
        )

    def _note_restored(self) -> bool:
        """Let the newer of two owners have a claim while a store is restored, and afterwards until its conflicts are
        resolved: the syncer needs a moment to delete what the backup brought back. Return whether that changes."""
        before = [watcher.claims.restored for watcher in self.watchers]
        for watcher in self.watchers:
            claims, verdict = watcher.claims, self.identity_gate.verdict(watcher.name)
            if verdict is StoreVerdict.RESTORED:
                claims.restored = True
            elif verdict is StoreVerdict.OURS and claims.restored:
                claims.restored = bool(claims.conflicts())
        return before != [watcher.claims.restored for watcher in self.watchers]

    async def _watch_kernel(self) -> None:
        """Repair disturbances at once. A program that disturbs without end causes one repair per `REPAIR_PAUSE`, of
        everything disturbed meanwhile; where everything has to be compared, that takes half of our time, not all."""
        while True:
            disturbed = await self._disturbed()
            pause = REPAIR_PAUSE
            if disturbed is None or len(disturbed) > COMPARE_ALL_ABOVE:
                self.metrics.disturbed.inc()
                self.loop.target_changed(None)
                pause = max(REPAIR_PAUSE, self.loop.pass_took)
            else:
                self.loop.target_changed(disturbed)
            await asyncio.sleep(pause.total_seconds())

    async def _disturbed(self) -> Collection[ClaimKey] | None:  # protection: N23
        """Wait for a disturbance. A kernel that cannot be read, because it changes all the time or is away, is waited
        for: the events that were read stay with the dataplane until it has handled them."""
        waiting, pause = Waiting(self._clock), REPAIR_PAUSE
        while True:
            try:
                disturbed = await self.target.dataplane.disturbed()
            except Away as away:
                if waiting.is_news(away.what):
                    log.warning("cannot follow the events of the kernel; trying again", error=str(away))
                await asyncio.sleep(pause.total_seconds())
                pause = min(2 * pause, TICK)
                continue
            if waited := waiting.end():
                log.info("following the events of the kernel again", **waited)
            return disturbed

    async def _tick(self) -> None:
        """Handle what has no event: an unreadable value that is gone, a journal that has grown."""
        while True:
            await asyncio.sleep(TICK.total_seconds())
            self.intents.apply()  # some may have expired
            self._wake()
            if not all(one.is_judged for one in self._fleet_pauses.values()):
                self.identity_gate.invalidated.set()
            if self.target.journal.wants_compaction and self._compaction is None:
                self._compaction = asyncio.create_task(self._compact(), name="compaction")

    @property
    def asks_census(self) -> bool:
        """Return whether only a census of this host could confirm what its brake holds."""
        brake = self.loop.place.brake
        return self.is_bgp and brake is not None and brake.is_closed()

    async def _compare_census(self) -> None:
        """Compare the sources with the leader's census while the brake holds deletes; not all hosts at once."""
        brake = self.loop.place.brake
        assert brake is not None
        while True:
            await asyncio.sleep(TICK.total_seconds())
            if not brake.is_closed():
                continue
            await asyncio.sleep(self._settings.pace.linger.total_seconds())
            for watcher in self.watchers:
                try:
                    if await watcher.compare_census(self.present.claims):
                        log.info("the leader's census confirms the list; the brake opens", source=watcher.name)
                        self.loop.dirty.mark_all()
                except Away as away:
                    log.debug("cannot compare the list with the leader's census; retrying", error=str(away))
            await asyncio.sleep(_CENSUS_INTERVAL.total_seconds())

    async def _compact(self) -> None:
        try:
            await self.target.journal.compact(self._offload)
        except JournalUnwritable as error:
            log.error("journal compaction failed", error=str(error))
        finally:
            self._compaction = None

    async def _end_compaction(self) -> None:
        task = self._compaction
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
