"""Replacements for protections of the syncer that a fault test removes."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from typing import Any

from holdfast.inventory.api import Fence
from holdfast.model.base.bad import Bad
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.control.identity import Identity
from holdfast.model.control.intent import Intent
from holdfast.model.control.mark import Mark
from holdfast.reconcile import BrakeReason, Change, Op, Outcome
from holdfast.runtime.reconciler import Reconciler
from holdfast.runtime.reconciler.rekeying import Rekeying
from holdfast.server.identity.judge import IdentityJudge
from holdfast.server.identity.verdict import Sides, next_epoch
from holdfast.server.syncer.adopt import AdoptCommands
from holdfast.server.syncer.gates import SyncerBrake
from holdfast.server.syncer.keys import RegionKeys
from holdfast.server.syncer.outbox import Outbox
from holdfast.server.syncer.target import EtcdTarget
from holdfast.server.syncer.term import SyncerTerm
from holdfast.store.api import Aspect, Compare, Entry
from holdfast.store.fenced.store import WriteResult
from holdfast.store.identity import read_identity, replace_identity


async def everything_goes(_self: Reconciler[Any, Any], batch: Sequence[Change[Any, Any]]) -> list[Change[Any, Any]]:
    """Deletes are sent as they were planned, however long ago."""
    return list(batch)


async def nothing_noted(_self: Outbox) -> Collection[bytes]:
    return ()


def whatever_it_is_now(change: Change[bytes, Entry]) -> Compare:
    return Compare(change.key, Aspect.VERSION, -1, "GREATER")


def first_failure_ends_it(
    _self: EtcdTarget, change: Change[bytes, Entry], result: WriteResult
) -> Outcome[bytes, Entry]:
    return Outcome(change, str(result.error), stop=True) if result.error else Outcome(change)


def believed(revision: int, _known: int) -> int:
    return revision


def creates_flow(_self: Rekeying[Any, Any], changes: Sequence[Change[Any, Any]]) -> list[Change[Any, Any]]:
    """Every create goes with its page, whatever is still to be deleted."""
    return [change for change in changes if change.op is not Op.DELETE]


def endpoints_alone(layout: RegionKeys, key: bytes) -> bytes | None:
    """A migration goes by itself, whatever becomes of its endpoint."""
    name = ENDPOINT.parse(key, layout.region)
    return None if isinstance(name, Bad) else name.individual.encode()


def large_kinds_only(brake: SyncerBrake, _change: Change[bytes, Entry], going: int, of: int) -> BrakeReason | None:
    return brake.limits.exceeded(going, of)


def moved_at_some_time(brake: SyncerBrake, change: Change[bytes, Entry]) -> bool:
    """The outbox says that it moved, whatever became of it since."""
    outbox: Outbox = brake._is_announced.__self__  # type: ignore[attr-defined]
    return all(row.before != change.key for row in outbox._noted.values())


async def as_it_was_listed(_self: Reconciler[Any, Any], changes: list[Change[Any, Any]]) -> list[Change[Any, Any]]:
    return changes


async def halves_go_alone(
    loop: Reconciler[Any, Any], changes: list[Change[Any, Any]], compared: Set[Any]
) -> tuple[list[Change[Any, Any]], Set[Any]]:
    """Half of a move is planned without the other half, unless both happen to be compared at once."""
    if changes and loop.place.look_up is not None:
        await loop.place.look_up(changes)
    return changes, compared


def only_these_are_dropped(
    _self: Rekeying[Any, Any], batch: Sequence[Change[Any, Any]], dropped: Collection[Any]
) -> tuple[list[Change[Any, Any]], list[Any]]:
    """The other half of a move stays in the batch."""
    return [change for change in batch if change.key not in dropped], []


async def nothing_is_too_early(_self: EtcdTarget, _ready: Sequence[Change[bytes, Entry]]) -> dict[bytes, Any]:
    """A delete goes without the create that it was to go with."""
    return {}


async def no_mark(_self: SyncerTerm, *_args: object) -> None:
    return


async def verdict_ends_first(self: AdoptCommands, asked: Intent, **_more: object) -> str:
    """The epoch rises before anything else is done."""
    term, syncer = self._term, self._term.syncer
    sides = await syncer.read_sides(term.fence.term)
    fence = Fence(syncer.region.segment, next_epoch(sides), term.fence.term)
    identity = Identity(sides.fleet or "", fence.epoch, asked.who, asked.why)
    await replace_identity(term.fenced, syncer.region, sides.found, identity)
    await syncer.run_in_thread(lambda: syncer.inventory.raise_fence(fence))
    return ""


async def no_allowance(_term: SyncerTerm, _asked: Intent) -> int:
    return 0


async def always_empty(_self: IdentityJudge) -> bool:
    return True


filled_at_once = property(lambda _self: True)


def every_mark_counts(sides: Sides, _identity: Identity) -> str:
    """A mark that was made counts as one that reached the store."""
    return "went back" if sides.marks.newest > sides.found.mark_number else ""


async def store_first(self: IdentityJudge, term: int, *_known: int) -> Sides:
    """The store is read before the database, and both before what they are compared with."""
    found = await read_identity(self.store, self.region)
    fleet, marks, fence, revision = await self.run_in_thread(self._read_inventory)
    mark = found.mark
    known = isinstance(mark, Mark) and self.inventory.has_mark(self.region.segment, mark)
    return Sides(fleet, marks, fence, revision, found, known, False, self.seen_store(), term)


async def unchecked_mark(self: SyncerTerm) -> Mark:
    """The database is not asked whether it made the last mark."""
    return self.syncer.inventory.mark(self.fence, self._mark.number if self._mark else 0)
