"""The syncer's reign: one leader's work from winning to losing. Fence the inventory, compare all, follow the outbox.

Everything that touches the world goes through the one loop of `holdfast.runtime.reconciler.loop`; here its place is put
together, fed and kept informed. Handed in are store, inventory, clock and leadership, so that the simulation runs
exactly this.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import Counter as Tally
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
from holdfast.runtime.clock import Clock
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.daemon.vitals import Vitals
from holdfast.runtime.decision_log import DecisionLog
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.runtime.reconciler import Reconciler
from holdfast.runtime.reconciler.place import LoopTimings, Place
from holdfast.runtime.reconciler.rekeying import Rekeying
from holdfast.server.election.leadership import LeaderGate, Leadership, Leading
from holdfast.server.intents.pause import HEARD_WITHIN
from holdfast.server.intents.store import EtcdIntents
from holdfast.server.syncer.brake import SyncerBrake
from holdfast.server.syncer.identity import OPENS, FleetIdentityGate, epoch_of, standing
from holdfast.server.syncer.keys import RegionKeys
from holdfast.server.syncer.metrics import SyncerMetrics
from holdfast.server.syncer.source import InventorySource, Outbox
from holdfast.server.syncer.target import EtcdTarget
from holdfast.store.api import Deposed, Entry, Store, StoreError
from holdfast.store.fenced.store import FencedStore
from holdfast.store.identity import SeenStore, create_identity, read_identity

log = structlog.get_logger(__name__)

NAME = "syncer"
BATCH = 20_000
"""Changes per plan: large enough that the two halves of a move are in the same."""
HISTORY = Duration(days=90)
"""For how long it is known who changed what; `holdfast undo` reaches no further back."""
_ONCE = Duration(days=36_500)
_RETRY = Duration(seconds=1)


@dataclass
class Surroundings:
    """What a syncer stands on."""

    store: Store
    inventory: Inventory
    aside: RunInThread
    waker: Waker
    clock: Clock
    region: Region
    leadership: Leadership
    vitals: Vitals
    metrics: WorkerMetrics
    decisions: DecisionLog
    remembered: Callable[[], SeenStore | None]
    poll_every: Duration = Duration(seconds=5)
    resync_interval: Duration = Duration(minutes=10)
    figures: SyncerMetrics = field(init=False)

    def __post_init__(self) -> None:
        self.figures = SyncerMetrics(self.metrics.registry)


class SyncerTerm:
    """One term's syncer, from the moment that the inventory's fence is raised."""

    def __init__(self, around: Surroundings, fence: Fence, belonging: FleetIdentityGate) -> None:
        self.around = around
        self.fence = fence
        self.belonging = belonging
        self.layout = RegionKeys(around.region, around.inventory.kinds)
        self.fenced = FencedStore(around.store, LEADER.key(around.region, "leader"), fence.term, now=around.clock.now)
        self.words = EtcdIntents(around.store, around.region, around.clock)
        self.sync = SyncGate()
        self.intent: PauseGate[bytes] = PauseGate(NAME)
        wants = self.layout.wants
        self.source = InventorySource(around.inventory, around.aside, self.sync, around.clock.now, wants)
        self.target = EtcdTarget(
            self.fenced,
            self.layout,
            self.source.bound,
            conflict=around.figures.conflicts.inc,
            elsewhere=self._elsewhere,
        )
        self.outbox = Outbox(around.inventory, around.aside, fence, self.layout.has)
        self.moves: Rekeying[bytes, Entry] = Rekeying(self.layout.individual)
        interval = around.resync_interval or _ONCE
        self.reconciler = Reconciler(
            self._place(),
            Context(around.clock, around.vitals, around.decisions, around.metrics),
            LoopTimings(audit=interval, batch=BATCH),
        )
        self._counted = 0
        self._beside: set[asyncio.Task[None]] = set()
        self.reconciler.dirty.mark_all()

    def _place(self) -> Place[bytes, Entry]:
        return Place(
            NAME,
            self.source,
            self.target,
            [LeaderGate(self.around.leadership), self.belonging, self.sync, self.intent],
            self.layout.kinds,
            self.layout.show,
            self.layout.same,
            brake=SyncerBrake(
                f"{NAME}/brake", self.layout.kinds, has_moved=self._has_moved, is_announced=self.outbox.has_told
            ),
            feed=self.outbox,
            moves=self.moves,
            term=lambda: self.fence.term,
            read_back=False,  # a transaction that compared is its own proof
        )

    def _has_moved(self, key: bytes) -> bool:
        """A migration is there to end: one of which the inventory says so is no loss either."""
        has_ended = self.layout.kind(key) is MIGRATION and self.outbox.has_told(key)
        return has_ended or self.outbox.has_moved(key) or self.moves.is_moving(key)

    async def _elsewhere(self, keys: Collection[bytes]) -> Mapping[bytes, bytes]:
        """Where the endpoints of these keys are wanted, if not there."""
        names = {key: name.decode() for key in keys if (name := self._endpoint(key)) is not None}
        rows = await self.around.aside(lambda: self.around.inventory.find_all(ENDPOINT, set(names.values())))
        homes = {self._endpoint(row.key): row.key for row in rows if self.layout.wants(row.key, row.doc)}
        found = {key: homes.get(self._endpoint(key), key) for key in names}
        return {key: home for key, home in found.items() if home != key}

    def _endpoint(self, key: bytes) -> bytes | None:
        """What the inventory calls the endpoint of this key."""
        return self.layout.workload(key) if self.layout.kind(key) is ENDPOINT else None

    async def run(self, stopping: asyncio.Event) -> None:
        """Works until cancelled or told to stop. Raises `Deposed`."""
        tasks = [
            asyncio.create_task(one, name=f"syncer {name}")
            for name, one in (
                ("reconciler", self.reconciler.run(stopping)),
                ("ear", self._listen()),
                ("look", self._look_around()),
            )
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            tasks += self._beside
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with contextlib.suppress(Away):
                await self.source.close()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Does something beside the loop, at most until this reign ends."""
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def _listen(self) -> None:
        while True:
            await self.around.waker.wait(self.around.poll_every)
            self.reconciler.dirty.wake()

    async def _look_around(self) -> None:
        """At once, too: where terms are short, an inventory that waits for its id would otherwise wait for ever."""
        while True:
            try:
                await self.hear()
                await self.words.keep_up(self.fenced, self.target.known)
                await look(self.around, self.belonging)
                await self.name()
                await self._after_a_resync()
            except Deposed:
                raise
            except (Away, StoreError) as obstacle:  # out of space, too: the identity is written when there is some
                log.debug(f"inventory and store cannot be compared now: {obstacle}")
            await asyncio.sleep(HEARD_WITHIN.total_seconds())

    async def hear(self) -> None:
        """What operators said, here or to another server, takes effect."""
        await self.words.read()
        before, self.intent.pause = self.intent.pause, self.words.pause
        until, brake = self.words.allowed_until, self.reconciler.place.brake
        if until is not None and brake is not None:
            brake.allow(until=until)
        if (before is None) != (self.intent.pause is None):
            self.reconciler.dirty.mark_all()

    async def _after_a_resync(self) -> None:
        self._measure()
        if self.reconciler.passes > self._counted:
            self.around.figures.resyncs.inc(self.reconciler.passes - self._counted)
            self._counted = self.reconciler.passes
            before = self.around.clock.wall() - HISTORY
            await self.around.aside(partial(self.around.inventory.prune_history, self.fence, before))

    def _measure(self) -> None:
        figures = self.around.figures
        figures.outbox.set(len(self.outbox))
        figures.resync_duration.set(self.reconciler.pass_took.total_seconds())
        outstanding = self.reconciler.ledger.tallies()
        for kind in self.layout.kinds.order:
            figures.objects.labels(kind, "stored").set(self.reconciler.present.get(kind, 0))
            figures.objects.labels(kind, "outstanding").set(outstanding.get(kind, Tally()).total())

    async def name(self) -> None:
        """Gives an id to the side that has none and is ready for it."""
        found = self.belonging.standing
        if found.name_inventory:
            await self.around.aside(lambda: self.around.inventory.name_fleet(self.fence, found.name_inventory))
            log.info(f"the inventory is named: fleet {found.name_inventory}")
        elif found.name_store and self._is_filled():
            identity = Identity(found.name_store, self.fence.epoch)
            await create_identity(self.fenced, self.around.region, identity)
            log.info(f"the store is filled and named: fleet {identity.fleet}, epoch {identity.epoch}")
        else:
            return
        await look(self.around, self.belonging)
        self.reconciler.dirty.mark_all()

    def _is_filled(self) -> bool:
        """Whether everything wanted is there: one whole pass, and nothing left but deletes."""
        return self.reconciler.passes > 0 and all(one.change.op is Op.DELETE for one in self.reconciler.ledger)


async def look(around: Surroundings, belonging: FleetIdentityGate) -> int:
    """Compares the ids of inventory and store; the epoch that a leader writes under now."""
    try:
        found = await read_identity(around.store, around.region)
    except StoreError as error:
        raise Away("store", str(error)) from error
    fleet = await around.aside(around.inventory.fleet)
    remembered = around.remembered()
    said = standing(fleet, found, remembered, uuid.uuid4().hex)
    if belonging.note(said, around.clock.now()) and said.closed is not None:
        log.warning(f"{NAME}: {said.closed.value}. Opens by: {OPENS[said.closed]}")
    fenced_before = await around.aside(partial(around.inventory.epoch, around.region.segment))
    return epoch_of(found, fenced_before, remembered)


async def begin(around: Surroundings, leading: Leading) -> SyncerTerm:
    """A new leader's first act: the inventory's fence. Waits, and says for what, until it is raised."""
    belonging = FleetIdentityGate()
    while True:
        try:
            fence = Fence(around.region.segment, await look(around, belonging), leading.term)
            await around.aside(partial(around.inventory.raise_fence, fence))
            reign = SyncerTerm(around, fence, belonging)
            await reign.hear()
            log.info(f"{NAME} begins under term {fence.term}, epoch {fence.epoch}")
            return reign
        except Away as away:
            around.vitals.attempted(success=False, state=f"waiting: {away.what}")
            log.warning(f"{NAME} waits: {away}")
            await asyncio.sleep(_RETRY.total_seconds())
