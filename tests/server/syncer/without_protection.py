"""Replacements for protections of the syncer that a fault test removes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from holdfast.model.base.bad import Bad
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.reconcile import BrakeReason, Change, Op, Outcome
from holdfast.runtime.reconciler import Reconciler
from holdfast.runtime.reconciler.rekeying import Rekeying
from holdfast.server.syncer.gates import SyncerBrake
from holdfast.server.syncer.keys import RegionKeys
from holdfast.server.syncer.outbox import Outbox
from holdfast.server.syncer.target import EtcdTarget
from holdfast.store.api import Aspect, Compare, Entry
from holdfast.store.fenced.store import WriteResult


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


async def as_it_was_listed(_self: Reconciler[Any, Any], changes: list[Change[Any, Any]]) -> list[Change[Any, Any]]:
    return changes


async def nothing_is_too_early(_self: EtcdTarget, _ready: Sequence[Change[bytes, Entry]]) -> dict[bytes, Any]:
    """A delete goes without the create that it was to go with."""
    return {}
