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
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import structlog

from holdfast.inventory.api import Fence, Inventory, MarkUnknown
from holdfast.inventory.sql.thread import NotedCalls, RunInThread
from holdfast.inventory.sql.wake import Waker
from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration, Instant
from holdfast.model.control.identity import Identity
from holdfast.model.control.leader import LEADER
from holdfast.model.control.mark import MARK, Mark
from holdfast.reconcile import Away, Change, Op, PauseGate, SyncGate
from holdfast.runtime.daemon.board import Cell
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.daemon.waiting import Waiting
from holdfast.runtime.intents.applied import AppliedIntents
from holdfast.runtime.intents.commands import APPLIED_WITHIN
from holdfast.runtime.intents.etcd import EtcdIntents
from holdfast.runtime.reconciler import Reconciler
from holdfast.runtime.reconciler.place import LoopTimings, Place
from holdfast.runtime.reconciler.rekeying import Rekeying
from holdfast.runtime.tasks import until_first
from holdfast.server.election.leadership import LeaderGate, Leadership, Leading
from holdfast.server.identity.gate import FleetIdentityGate, IdentityCell
from holdfast.server.identity.judge import IdentityJudge
from holdfast.server.identity.verdict import (
    LATCHED,
    OPENS,
    FleetIdentityReason,
    IdentityVerdict,
    Naming,
    Sides,
    epoch_of,
    identity_verdict,
)
from holdfast.server.syncer.census import CensusPublisher
from holdfast.server.syncer.fleet_prefixes import FleetPrefixesPublisher
from holdfast.server.syncer.gates import SyncerBrake, recall_deletes, recent_deletes
from holdfast.server.syncer.host_census import HostCensusPublisher
from holdfast.server.syncer.keys import RegionKeys
from holdfast.server.syncer.metrics import REFUSED, UNWITNESSED, SyncerMetrics
from holdfast.server.syncer.moves import Moves
from holdfast.server.syncer.outbox import Outbox
from holdfast.server.syncer.pruning import HistoryPruning
from holdfast.server.syncer.source import InventorySource
from holdfast.server.syncer.target import EtcdTarget
from holdfast.server.syncer.witness import IgnoredKeys, WitnessGate, WitnessLookup, unwitnessed
from holdfast.store.api import Aspect, Compare, Deposed, Entry, Put, Store, StoreError
from holdfast.store.fenced.store import FencedStore
from holdfast.store.identity import SeenStore, create_identity, mark_key, replace_identity

log = structlog.get_logger(__name__)

NAME = "syncer"
BATCH = 20_000
"""Changes per plan: large enough that both halves of a move are in the same plan."""
_NEVER_AGAIN = Duration(days=36_500)
_RETRY = Duration(seconds=1)
_HOPELESS = 5
"""Attempts after which a write that fails by itself no longer keeps a store from counting as filled."""


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
    intents: EtcdIntents
    """Intents of operators; the worker of this server shares them."""
    seen_store: Callable[[], SeenStore | None]
    """Reads what this server remembers of the store."""
    poll_every: Duration = Duration(seconds=5)
    resync_interval: Duration = Duration(minutes=10)
    metrics: SyncerMetrics = field(init=False)
    adoption: dict[str, Any] = field(default_factory=dict)
    """State of the last adoption of store or inventory that an operator requested here."""

    identity_cell: Cell[IdentityCell] | None = None
    """Cell of the board that shows the verdict to the other workers."""

    def __post_init__(self) -> None:
        self.metrics = SyncerMetrics(self.context.metrics.registry)
        is_ours = RegionKeys(self.region, self.inventory.kinds).is_ours
        self._judge = IdentityJudge(
            self.store, self.region, self.inventory, self.run_in_thread, self.seen_store, is_ours
        )

    async def begin(self, leading: Leading) -> SyncerTerm:
        """Judge inventory and store, and raise the inventory's fence if they belong together, before anything else.
        Waits, and shows for what, until both answer."""
        gate, waiting = FleetIdentityGate(), Waiting(self.context.clock)
        while True:
            try:
                began = self.context.clock.now()
                sides = await self.read_sides(leading.term)
                verdict = self.note_verdict(gate, sides)
                fence = Fence(self.region.segment, epoch_of(sides), leading.term)
                if verdict.is_fenced:
                    await self.run_in_thread(partial(self.inventory.raise_fence, fence))
                term = SyncerTerm(self, fence, gate, sides)
                await self.latch(term.fenced, sides)
                await term.apply_intents()
                await term.ignored.refresh()
                term.show_identity(began)
                log.info("syncer term begins", term=fence.term, epoch=fence.epoch, **waiting.end())
                return term
            except Away as away:
                self.context.vitals.attempted(success=False, state=f"waiting: {away.what}")
                if waiting.is_news(away.what):
                    log.warning("syncer is waiting", reason=str(away), **waiting.fields())
                await asyncio.sleep(_RETRY.total_seconds())

    def new_fleet(self) -> str:
        """An unused fleet id."""
        return uuid.uuid4().hex

    async def read_sides(self, term: int, written: int = 0, marked: int = 0) -> Sides:
        """Read inventory and store for a verdict. Raises `Away` or `Deposed`."""
        return await self._judge.read(term, written, marked)

    async def latch(self, fenced: FencedStore, sides: Sides) -> None:
        """Record a verdict that an operator has to end in the store. Raises `Deposed`."""
        await self._judge.latch(fenced, sides, identity_verdict(sides))

    def note_verdict(self, gate: FleetIdentityGate, sides: Sides) -> IdentityVerdict:
        """Judge both sides; logs a verdict that differs from the last."""
        verdict = identity_verdict(sides)
        is_new = gate.note(verdict, self.context.clock.now())
        if is_new and verdict.closed not in (None, FleetIdentityReason.FILLING) and verdict.naming is Naming.NOTHING:
            log.warning(
                "identity gate closes",
                reason=verdict.closed.value,
                details=verdict.sentence or None,
                to_release=OPENS[verdict.closed],
            )
        return verdict


class SyncerTerm:
    """One term's work, from the moment that the inventory's fence is raised."""

    def __init__(self, syncer: Syncer, fence: Fence, identity_gate: FleetIdentityGate, sides: Sides) -> None:
        self.syncer = syncer
        self.fence = fence
        self.is_fenced = identity_gate.verdict.is_fenced
        """True if the inventory's fence is raised for this term; until then nothing is written to the inventory."""
        self.identity_gate = identity_gate
        self.is_adopting = False
        """True while an operator's adoption is carried out: the term does not begin again before it is done."""
        self._mark, self._mark_revision = _readable(sides.found.mark), sides.found.mark_revision
        self._recheck = asyncio.Event()
        self._filled_since = 0
        """Number of full passes when the verdict last changed: a later one has seen everything."""
        store, region, inventory, context = syncer.store, syncer.region, syncer.inventory, syncer.context
        now = context.clock.now
        run_in_thread = NotedCalls(syncer.run_in_thread, self.note_progress)
        self.layout = RegionKeys(region, inventory.kinds)
        self.fenced = FencedStore(store, LEADER.key(region, "leader"), fence.term, now=now)
        self.prefixes = FleetPrefixesPublisher(inventory, syncer.run_in_thread, self.fenced, region, now)
        self.census = CensusPublisher(inventory, syncer.run_in_thread, self.fenced, region, now, self._written)
        self.host_census = HostCensusPublisher(inventory, syncer.run_in_thread, self.fenced, region, now, self._written)
        self.intents = syncer.intents
        self.sync = SyncGate()
        self.pause: PauseGate[bytes] = PauseGate()
        self.source = InventorySource(inventory, run_in_thread, self.sync, now, self.layout.wants)
        self.moves = Moves(inventory, run_in_thread, self.layout, lambda key: self.reconciler.is_open(key))
        self.target = EtcdTarget(
            self.fenced,
            self.layout,
            self.source.bound,
            on_conflict=syncer.metrics.conflicts.inc,
            new_keys=self.moves.find,
            before_write=self._before_write,
            attempted=self.note_progress,
        )
        self.outbox = Outbox(
            *(inventory, run_in_thread, fence, self.layout.has, now),
            may_settle=lambda: self.may_settle,
            is_pass_next=lambda: self.reconciler.dirty.is_everything,
            mark=lambda: self._mark,
        )
        self.witness = WitnessGate(self.moves.wanted_at)
        self.witnesses = WitnessLookup(self.witness, inventory, run_in_thread, now)
        identity_gate.wanted_at, identity_gate.edited_at = self.moves.wanted_at, self._edited_at
        self._moved: dict[bytes, int] = {}
        """Revisions of the objects that the deletes of the last plan move."""
        self.pruning = HistoryPruning(
            *(inventory, syncer.run_in_thread, fence, context, syncer.metrics),
            held=lambda: [one.change.key for one in self.reconciler.ledger if one.change.op is Op.DELETE],
        )
        self.ignored = IgnoredKeys(inventory, syncer.run_in_thread, self.layout)
        self.rekeying: Rekeying[bytes, Entry] = Rekeying(self.layout.individual)
        self.brake = SyncerBrake(
            f"{NAME}/brake",
            self.layout.kinds,
            region,
            wanted_at=self.moves.wanted_at,
            is_announced=self.outbox.has_announced,
        )
        if self._mark is not None:
            recall_deletes(self.brake, self._mark.deletes, context.clock)
        self.reconciler = Reconciler(
            self._place(), context, LoopTimings(audit=syncer.resync_interval or _NEVER_AGAIN, batch=BATCH)
        )
        self.applied = AppliedIntents(context, self.reconciler, self.pause, self.intents.all)
        self._counted = 0
        self._verdicts = 0
        self._epoch = fence.epoch
        self._seen_epoch = 0
        """Epoch of the store's identity when it was last read in this term; 0 if it had none."""
        self._background: set[asyncio.Task[None]] = set()
        self.reconciler.dirty.mark_all()

    def note_progress(self) -> None:  # protection: C48
        """C48: count each page and each transaction of the loop as an attempt; slow ones are no stall."""
        self.syncer.context.vitals.attempted(success=False)

    def _place(self) -> Place[bytes, Entry]:
        return Place(
            NAME,
            self.source,
            self.target,
            [LeaderGate(self.syncer.leadership), self.identity_gate, self.sync, self.pause, self.witness],
            self.layout.kinds,
            self.layout.show,
            self.layout.same,
            brake=self.brake,
            feed=self.outbox,
            moves=self.rekeying,
            look_up=self._look_up,
            other_keys=self.moves.other_keys,
            term=lambda: self.fence.term,
            on_away=self._note_away,
            read_back=False,  # a transaction that compared proves itself
        )

    async def _look_up(self, changes: Sequence[Change[bytes, Entry]]) -> None:
        """Fetch what the gates must know about the deletes of a plan."""
        await self.moves.look_up(changes)
        await self.witnesses.look_up(changes, self.reconciler.is_open)
        if self.identity_gate.verdict.closed is FleetIdentityReason.INVENTORY_RESTORED:
            wanted_at = self.moves.wanted_at
            moved = {c.key: at for c in changes if c.op is Op.DELETE and (at := wanted_at(c.key)) is not None}
            rows = await self.syncer.run_in_thread(lambda: self.syncer.inventory.read_keys(set(moved.values())))
            revisions = {row.key: row.revision for row in rows}
            self._moved = {key: revisions.get(at, 0) for key, at in moved.items()}

    def _edited_at(self, key: bytes) -> int:
        """Revision at which the inventory gave up this key; known under INVENTORY_RESTORED, where it counts."""
        witness = self.witness.witness_of(key)
        return max(witness.revision if witness is not None else 0, self._moved.get(key, 0))

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
        """Run at once, too: with short terms, an inventory that needs an id would otherwise never get one. Ends when
        the fence must be raised, or raised to another epoch: the term then begins again."""
        while True:
            try:
                await self.apply_intents()
                self.reconciler.dirty.mark(await self.ignored.refresh())
                await self.intents.extend_allow(self.fenced, self.target.known)
                if not self.is_adopting:
                    await self.check_identity()
                if self._may_publish:
                    await self.prefixes.keep()
                    await self.census.keep()
                    await self.host_census.keep()
                await self._after_a_resync()
            except Deposed:
                raise
            except (Away, StoreError) as error:  # out of space, too: the identity is written when there is some
                log.debug("cannot compare inventory and store; retrying", error=str(error))
            if self.is_outdated and not self.is_adopting:
                return
            self._recheck.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout((_RETRY if self.pause.unread_since else APPLIED_WITHIN).total_seconds()):
                    await self._recheck.wait()

    @property
    def is_outdated(self) -> bool:
        """True if this term has to begin again, with another fence."""
        return self._epoch != self.fence.epoch or (self.identity_gate.verdict.is_fenced and not self.is_fenced)

    @property
    def _may_publish(self) -> bool:
        """True while inventory and store belong together: only then is what the inventory says the fleet's."""
        return self.is_fenced and self.identity_gate.verdict.closed in (None, FleetIdentityReason.FILLING)

    def _written(self) -> object:
        """Return the last mark, which changes with every write; None while inventory and store may differ."""
        is_settled = self.reconciler.passes and not len(self.reconciler.ledger) and not len(self.outbox)
        closed = self.identity_gate.verdict.closed
        return self._mark.number if is_settled and closed is None and self._mark is not None else None

    async def apply_intents(self) -> None:
        """Put operators' intents into effect, whichever server accepted them."""
        try:
            await self.intents.refresh()
        except Away:
            self._note_away("store")
            raise
        self.pause.unread_since = None
        self.applied.apply()

    def _note_away(self, what: str) -> None:
        """Hold everything until the intents are read again: an outage of the store may be over before their next read
        would notice it, and a pause may have been stored just before."""
        if what == "store":
            self.pause.unread_since = self.pause.unread_since or self.syncer.context.clock.now()
            self._recheck.set()

    async def _after_a_resync(self) -> None:
        self._measure()
        if self.reconciler.passes > self._counted:
            self.syncer.metrics.resyncs.inc(self.reconciler.passes - self._counted)
            self._counted = self.reconciler.passes
            self.pruning.begin()
        if self.may_settle:
            await self.pruning.advance()

    def _measure(self) -> None:
        metrics = self.syncer.metrics
        metrics.outbox.set(len(self.outbox))
        metrics.resync_duration.set(self.reconciler.pass_took.total_seconds())
        outstanding = self.reconciler.ledger.tallies()
        held = Counter(self.layout.plural(change.key) for change in unwitnessed(self.reconciler.ledger))
        refused = Counter(self.layout.plural(key) for key in self.source.refused)
        for kind in self.layout.kinds.order:
            metrics.objects.labels(kind, "stored").set(self.reconciler.present.get(kind, 0))
            metrics.objects.labels(kind, "outstanding").set(outstanding.get(kind, Counter()).total())
            metrics.objects.labels(kind, UNWITNESSED).set(held[kind])
            metrics.objects.labels(kind, REFUSED).set(refused[kind])

    @property
    def may_settle(self) -> bool:
        """True if the outbox may be settled: the fence is raised, and what was written stays written."""
        return self.is_fenced and self.identity_gate.verdict.closed is not FleetIdentityReason.STORE_RESTORED

    async def check_identity(self) -> None:
        """Judge inventory and store again, and do what follows: record the verdict, name a side, end the filling."""
        syncer, before, began = self.syncer, self.identity_gate.verdict, self.syncer.context.clock.now()
        marked = self._mark.number if self._mark is not None else 0
        sides = await syncer.read_sides(self.fence.term, self.target.known, marked)
        await syncer.latch(self.fenced, sides)  # first: what is written after that is newer than the backup
        verdict = syncer.note_verdict(self.identity_gate, sides)
        self._epoch = epoch_of(sides)
        if isinstance(sides.found.identity, Identity):
            self._seen_epoch = sides.found.identity.epoch
        went_back = sides.found.revision < sides.written or sides.found.mark_number < sides.marked
        if went_back or sides.found.mark_revision >= self._mark_revision:
            self._mark, self._mark_revision = _readable(sides.found.mark), sides.found.mark_revision
        if went_back or verdict.closed is not before.closed:
            self._verdicts += 1
            self._filled_since = self.reconciler.passes
            self.outbox.forget()
            self.prefixes.forget()
            self.census.forget()
            self.host_census.forget()
            self.reconciler.dirty.mark_all()
        self.show_identity(began)
        if went_back or verdict.closed is FleetIdentityReason.STORE_RESTORED:
            self.target.lower_floor(sides.found.revision)
            if self.reconciler.place.brake is not None:
                self.reconciler.place.brake.end_allowance()
        await self._name(sides, verdict)
        if verdict.closed is FleetIdentityReason.FILLING and self.is_filled:
            await self._end_filling(sides)

    def recheck_identity(self) -> None:
        """Judge inventory and store again at once."""
        self._recheck.set()

    def release_held(self) -> bool:
        """Release exactly the deletes that gates hold now, for an operator. Returns whether there were any."""
        held, brake = unwitnessed(self.reconciler.ledger), self.reconciler.place.brake
        self.witness.allow(held)
        return (brake is not None and brake.allow() > 0) or bool(held)

    def show_identity(self, began: Instant) -> None:
        """Show the verdict, for which both sides were read from `began` on, to the other workers of this server."""
        closed = self.identity_gate.verdict.closed
        shown = closed.name if closed is not None else "" if self.is_fenced else FleetIdentityReason.UNKNOWN.name
        if self.syncer.identity_cell is not None:
            self.syncer.identity_cell.write(
                IdentityCell(self.fence.term, self.fence.epoch, shown, began, self._verdicts)
            )

    async def _name(self, sides: Sides, verdict: IdentityVerdict) -> None:
        """Give a fleet id to the side that has none: the inventory first, then the store, before it is filled."""
        syncer = self.syncer
        if verdict.naming is Naming.NOTHING or not self.is_fenced:
            return
        known = max(self._seen_epoch, sides.remembered.epoch if sides.remembered else 0)
        if verdict.naming is Naming.STORE and known >= self.fence.epoch:
            return  # wiped within this term: it begins again, with an epoch above all that were
        if verdict.naming is Naming.INVENTORY:
            fleet = syncer.new_fleet()
            await syncer.run_in_thread(lambda: syncer.inventory.name_fleet(self.fence, fleet))
            log.info("inventory identity created", fleet=fleet)
        else:
            mark = await syncer.run_in_thread(lambda: syncer.inventory.mark(self.fence, sides.found.mark_number))
            identity = Identity(sides.fleet or "", self.fence.epoch, filling=True)
            await create_identity(self.fenced, syncer.region, identity, mark)
            log.info("store identity created; filling begins", fleet=identity.fleet, epoch=identity.epoch)
        await self.check_identity()

    async def _end_filling(self, sides: Sides) -> None:
        identity = sides.found.identity
        assert isinstance(identity, Identity)
        await replace_identity(
            self.fenced, self.syncer.region, sides.found, msgspec.structs.replace(identity, filling=False)
        )
        log.info("store is filled", fleet=identity.fleet, epoch=identity.epoch)
        await self.check_identity()

    @property
    def missing(self) -> int:
        """Number of wanted objects that the store lacks, as far as a leader can write them: what fails again and again
        is named in `status`, and must not keep the store from being full."""
        individual = self.layout.individual
        deletes = (one.change.key for one in self.reconciler.ledger if one.change.op is Op.DELETE)
        moving = set(map(individual, deletes)) - {None}  # these are stored under their old key
        return sum(individual(change.key) not in moving for change in self.open_writes())

    def open_writes(self) -> list[Change[bytes, Entry]]:
        """Creates and replaces that are outstanding, without those that fail again and again."""
        return [
            one.change
            for one in self.reconciler.ledger
            if one.change.op is not Op.DELETE and not (one.is_failed and one.attempts >= _HOPELESS)
        ]

    @property
    def is_filled(self) -> bool:
        """True once everything wanted is stored: a whole pass since the verdict, and nothing is missing."""
        return self.reconciler.passes > self._filled_since and not self.missing

    async def _before_write(self, changes: Sequence[Change[bytes, Entry]]) -> None:
        """Ask the identity gate again, since a verdict may have been reached after the plan, then write a mark to both
        sides. None is made while a verdict stands, so that nothing outgrows it; what is created has a witness all the
        same."""
        self._check_gate(changes)
        if not self.is_fenced:
            return
        created = [change.key for change in changes if change.op is Op.CREATE]
        if created:
            await self.syncer.run_in_thread(partial(self.syncer.inventory.expect, self.fence, created))
        if self.identity_gate.verdict.closed not in LATCHED:
            await self._write_mark(changes)
            if self._may_publish:
                await self._publish_prefixes([change.key for change in changes])
        self._check_gate(changes)

    async def _publish_prefixes(self, keys: Sequence[bytes]) -> None:
        try:
            await self.prefixes.before(keys)
        except Deposed:
            raise
        except StoreError as error:
            raise Away("store", str(error)) from error

    def _check_gate(self, changes: Sequence[Change[bytes, Entry]]) -> None:
        now = self.syncer.context.clock.now()
        if any(self.identity_gate.judge(change, {}, 0, now) is not None for change in changes):
            raise Away("store identity", "inventory and store were judged anew after this was planned")

    async def _write_mark(self, changes: Sequence[Change[bytes, Entry]]) -> None:
        """Write a mark to the inventory and then to the store. If the last mark is no longer there on one side, that
        side may have been restored: the batch waits until both were judged."""
        revision = self._mark_revision
        try:
            mark = await self._make_mark()
            mark = msgspec.structs.replace(mark, deletes=recent_deletes(self.brake, changes, self.syncer.context.clock))
        except MarkUnknown:
            self._recheck.set()
            raise
        key = mark_key(self.syncer.region)
        unchanged = Compare(key, Aspect.MOD_REVISION, revision)
        try:
            result = await self.fenced.txn([unchanged], [Put(key, MARK.encode(mark))])
        except Deposed:
            raise
        except StoreError as error:
            raise Away("store", str(error)) from error
        if not result.succeeded:  # protection: C43
            self._recheck.set()
            raise Away(
                "store identity", "the store's mark is not the last one that this leader wrote; judging it again"
            )
        self._mark, self._mark_revision = mark, result.revision

    async def _make_mark(self) -> Mark:
        inventory, fence, last = self.syncer.inventory, self.fence, self._mark
        number, nonce = (last.number, last.nonce) if last is not None else (0, "")
        return await self.syncer.run_in_thread(lambda: inventory.mark(fence, number, nonce))


def _readable(mark: Mark | Bad | None) -> Mark | None:
    return mark if isinstance(mark, Mark) else None
