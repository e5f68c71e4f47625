"""One term of the syncer: raise the inventory's fence, compare everything, follow the outbox.

`Syncer` is what a server has of it, leader or not; `SyncerTerm` is one leader's work from winning to losing. Every
write goes through the one loop of `holdfast.runtime.reconciler`. Store, inventory, clock and leadership are arguments,
so that the simulation runs exactly this code.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

from holdfast.inventory.api import Fence, Inventory
from holdfast.inventory.sql.thread import RunInThread
from holdfast.inventory.sql.wake import Waker
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.migration import MIGRATION
from holdfast.model.control.identity import Identity
from holdfast.model.control.leader import LEADER
from holdfast.reconcile import Away, Op, PauseGate, SyncGate
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.reconciler import Reconciler
from holdfast.runtime.reconciler.place import LoopTimings, Place
from holdfast.runtime.reconciler.rekeying import Rekeying
from holdfast.runtime.tasks import until_first
from holdfast.server.election.leadership import LeaderGate, Leadership, Leading
from holdfast.server.intents.pause import APPLIED_WITHIN
from holdfast.server.intents.store import EtcdIntents
from holdfast.server.syncer.gates import OPENS, FleetIdentityGate, SyncerBrake, epoch_of, identity_verdict
from holdfast.server.syncer.keys import RegionKeys
from holdfast.server.syncer.metrics import SyncerMetrics
from holdfast.server.syncer.outbox import Outbox
from holdfast.server.syncer.source import InventorySource
from holdfast.server.syncer.target import EtcdTarget
from holdfast.store.api import Deposed, Entry, Store, StoreError
from holdfast.store.fenced.store import FencedStore
from holdfast.store.identity import SeenStore, create_identity, read_identity

log = structlog.get_logger(__name__)

NAME = "syncer"
BATCH = 20_000
"""Changes per plan: large enough that both halves of a move are in the same plan."""
HISTORY = Duration(days=90)
"""Retention of the inventory's change history; `holdfast undo` reaches no further back."""
_NEVER_AGAIN = Duration(days=36_500)
_RETRY = Duration(seconds=1)


@dataclass(kw_only=True)
class Syncer:
    """One server's syncer across its terms."""

    context: Context
    store: Store
    region: Region
    inventory: Inventory
    run_in_thread: RunInThread
    waker: Waker
    leadership: Leadership
    seen_store: Callable[[], SeenStore | None]
    """Reads what this server remembers of the store."""
    poll_every: Duration = Duration(seconds=5)
    resync_interval: Duration = Duration(minutes=10)
    metrics: SyncerMetrics = field(init=False)

    def __post_init__(self) -> None:
        self.metrics = SyncerMetrics(self.context.metrics.registry)

    async def begin(self, leading: Leading) -> SyncerTerm:
        """Raise the inventory's fence, before anything else. Waits, and shows for what, until it is raised."""
        gate = FleetIdentityGate()
        while True:
            try:
                fence = Fence(self.region.segment, await self.check_identity(gate), leading.term)
                await self.run_in_thread(partial(self.inventory.raise_fence, fence))
                term = SyncerTerm(self, fence, gate)
                await term.apply_intents()
                log.info("syncer term begins", term=fence.term, epoch=fence.epoch)
                return term
            except Away as away:
                self.context.vitals.attempted(success=False, state=f"waiting: {away.what}")
                log.warning("syncer is waiting", reason=str(away))
                await asyncio.sleep(_RETRY.total_seconds())

    async def check_identity(self, gate: FleetIdentityGate) -> int:
        """Compare the fleet ids of inventory and store. Returns the epoch that a leader writes under now."""
        try:
            found = await read_identity(self.store, self.region)
        except StoreError as error:
            raise Away("store", str(error)) from error
        fleet = await self.run_in_thread(self.inventory.fleet)
        seen = self.seen_store()
        verdict = identity_verdict(fleet, found, seen, uuid.uuid4().hex)
        if gate.note(verdict, self.context.clock.now()) and verdict.closed is not None:
            log.warning("identity gate closes", reason=verdict.closed.value, to_release=OPENS[verdict.closed])
        fenced_before = await self.run_in_thread(partial(self.inventory.epoch, self.region.segment))
        return epoch_of(found, fenced_before, seen)


class SyncerTerm:
    """One term's work, from the moment that the inventory's fence is raised."""

    def __init__(self, syncer: Syncer, fence: Fence, identity_gate: FleetIdentityGate) -> None:
        self.syncer = syncer
        self.fence = fence
        self.identity_gate = identity_gate
        store, region, inventory, context = syncer.store, syncer.region, syncer.inventory, syncer.context
        now = context.clock.now
        self.layout = RegionKeys(region, inventory.kinds)
        self.fenced = FencedStore(store, LEADER.key(region, "leader"), fence.term, now=now)
        self.intents = EtcdIntents(store, region, context.clock)
        self.sync = SyncGate()
        self.pause: PauseGate[bytes] = PauseGate(NAME)
        self.source = InventorySource(inventory, syncer.run_in_thread, self.sync, now, self.layout.wants)
        self.target = EtcdTarget(
            self.fenced,
            self.layout,
            self.source.bound,
            on_conflict=syncer.metrics.conflicts.inc,
            new_keys=self._new_keys,
        )
        self.outbox = Outbox(inventory, syncer.run_in_thread, fence, self.layout.has)
        self.moves: Rekeying[bytes, Entry] = Rekeying(self.layout.individual)
        self.reconciler = Reconciler(
            self._place(), context, LoopTimings(audit=syncer.resync_interval or _NEVER_AGAIN, batch=BATCH)
        )
        self._counted = 0
        self._background: set[asyncio.Task[None]] = set()
        self.reconciler.dirty.mark_all()

    def _place(self) -> Place[bytes, Entry]:
        return Place(
            NAME,
            self.source,
            self.target,
            [LeaderGate(self.syncer.leadership), self.identity_gate, self.sync, self.pause],
            self.layout.kinds,
            self.layout.show,
            self.layout.same,
            brake=SyncerBrake(
                f"{NAME}/brake", self.layout.kinds, has_moved=self._has_moved, is_announced=self.outbox.has_announced
            ),
            feed=self.outbox,
            moves=self.moves,
            term=lambda: self.fence.term,
            read_back=False,  # a transaction that compared proves itself
        )

    def _has_moved(self, key: bytes) -> bool:
        """True if a delete is no loss: a move, or a migration whose end the inventory announced."""
        has_ended = self.layout.kind(key) is MIGRATION and self.outbox.has_announced(key)
        return has_ended or self.outbox.has_moved(key) or self.moves.is_moving(key)

    async def _new_keys(self, keys: Collection[bytes]) -> Mapping[bytes, bytes]:
        """Current keys of the endpoints of these keys, where the inventory wants them under another key."""
        names = {key: name.decode() for key in keys if (name := self._endpoint(key)) is not None}
        rows = await self.syncer.run_in_thread(lambda: self.syncer.inventory.find_all(ENDPOINT, set(names.values())))
        current = {self._endpoint(row.key): row.key for row in rows if self.layout.wants(row.key, row.doc)}
        found = {key: current.get(self._endpoint(key), key) for key in names}
        return {key: new for key, new in found.items() if new != key}

    def _endpoint(self, key: bytes) -> bytes | None:
        """Name of the endpoint of this key in the inventory."""
        return self.layout.workload(key) if self.layout.kind(key) is ENDPOINT else None

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until cancelled or `stopping` is set. Raises `Deposed`."""
        try:
            await until_first(
                {"reconciler": self.reconciler.run(stopping), "waker": self._listen(), "upkeep": self._upkeep()}
            )
        finally:
            for task in self._background:
                task.cancel()
            await asyncio.gather(*self._background, return_exceptions=True)
            with contextlib.suppress(Away):
                await self.source.close()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task beside the loop, at most until this term ends."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _listen(self) -> None:
        while True:
            await self.syncer.waker.wait(self.syncer.poll_every)
            self.reconciler.dirty.wake()

    async def _upkeep(self) -> None:
        """Run at once, too: with short terms, an inventory that needs an id would otherwise never get one."""
        while True:
            try:
                await self.apply_intents()
                await self.intents.extend_allowance(self.fenced, self.target.known)
                await self.syncer.check_identity(self.identity_gate)
                await self.create_identity()
                await self._after_a_resync()
            except Deposed:
                raise
            except (Away, StoreError) as error:  # out of space, too: the identity is written when there is some
                log.debug("cannot compare inventory and store; retrying", error=str(error))
            await asyncio.sleep(APPLIED_WITHIN.total_seconds())

    async def apply_intents(self) -> None:
        """Put operators' intents into effect, whichever server accepted them."""
        await self.intents.read()
        before, self.pause.pause = self.pause.pause, self.intents.pause
        until, brake = self.intents.allowed_until, self.reconciler.place.brake
        if until is not None and brake is not None:
            brake.allow(until=until)
        if (before is None) != (self.pause.pause is None):
            self.reconciler.dirty.mark_all()

    async def _after_a_resync(self) -> None:
        self._measure()
        if self.reconciler.passes > self._counted:
            self.syncer.metrics.resyncs.inc(self.reconciler.passes - self._counted)
            self._counted = self.reconciler.passes
            before = self.syncer.context.clock.wall() - HISTORY
            await self.syncer.run_in_thread(partial(self.syncer.inventory.prune_history, self.fence, before))

    def _measure(self) -> None:
        metrics = self.syncer.metrics
        metrics.outbox.set(len(self.outbox))
        metrics.resync_duration.set(self.reconciler.pass_took.total_seconds())
        outstanding = self.reconciler.ledger.tallies()
        for kind in self.layout.kinds.order:
            metrics.objects.labels(kind, "stored").set(self.reconciler.present.get(kind, 0))
            metrics.objects.labels(kind, "outstanding").set(outstanding.get(kind, Counter()).total())

    async def create_identity(self) -> None:
        """Give a fleet id to the side that has none and is ready for it."""
        verdict, syncer = self.identity_gate.verdict, self.syncer
        if verdict.name_inventory:
            await syncer.run_in_thread(lambda: syncer.inventory.name_fleet(self.fence, verdict.name_inventory))
            log.info("inventory identity created", fleet=verdict.name_inventory)
        elif verdict.name_store and self._is_filled():
            identity = Identity(verdict.name_store, self.fence.epoch)
            await create_identity(self.fenced, syncer.region, identity)
            log.info("store is filled; store identity created", fleet=identity.fleet, epoch=identity.epoch)
        else:
            return
        await syncer.check_identity(self.identity_gate)
        self.reconciler.dirty.mark_all()

    def _is_filled(self) -> bool:
        """True once everything wanted is stored: one whole pass, and nothing outstanding but deletes."""
        return self.reconciler.passes > 0 and all(one.change.op is Op.DELETE for one in self.reconciler.ledger)
