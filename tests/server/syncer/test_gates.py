"""Identity gate of the syncer: every combination of ids has one verdict."""

from __future__ import annotations

import pytest

from holdfast.model.base.bad import Bad, BadReason
from holdfast.model.base.time import NEVER, seconds
from holdfast.model.control.identity import Identity
from holdfast.reconcile import Change, Op, Owned
from holdfast.server.syncer.gates import (
    OPENS,
    FleetIdentityGate,
    FleetIdentityReason,
    IdentityVerdict,
    epoch_of,
    identity_verdict,
)
from holdfast.store.identity import SeenStore, StoreIdentity

NOW = NEVER + seconds(1_000)
OURS = SeenStore("f1", 3, 500)


def store(fleet: str = "f1", epoch: int = 3, revision: int = 900) -> StoreIdentity:
    return StoreIdentity(Identity(fleet, epoch), revision)


EMPTY = StoreIdentity(None, 5)
UNREADABLE = StoreIdentity(Bad(b"k", BadReason.NOT_JSON, ""), 900)


@pytest.mark.parametrize(
    ("inventory", "found", "remembered", "expected"),
    [
        ("f1", store(), None, IdentityVerdict(None)),
        ("f1", store(), OURS, IdentityVerdict(None)),
        ("f1", store(revision=400), OURS, IdentityVerdict(FleetIdentityReason.STORE_RESTORED)),
        ("f1", store(epoch=4, revision=400), OURS, IdentityVerdict(None)),
        ("f1", store("f2"), OURS, IdentityVerdict(FleetIdentityReason.FOREIGN_INVENTORY)),
        ("f2", store("f2"), OURS, IdentityVerdict(FleetIdentityReason.FOREIGN_STORE)),
        ("f1", EMPTY, None, IdentityVerdict(FleetIdentityReason.REFILLING, name_store="f1")),
        ("f1", EMPTY, OURS, IdentityVerdict(FleetIdentityReason.REFILLING, name_store="f1")),
        (None, store(), None, IdentityVerdict(FleetIdentityReason.EMPTY_INVENTORY)),
        (None, EMPTY, OURS, IdentityVerdict(FleetIdentityReason.EMPTY_INVENTORY)),
        (None, EMPTY, None, IdentityVerdict(FleetIdentityReason.UNKNOWN, name_inventory="new")),
        ("f1", UNREADABLE, OURS, IdentityVerdict(FleetIdentityReason.STORE_RESTORED)),
    ],
)
def test_two_ids_and_a_memory_have_one_answer(
    inventory: str | None, found: StoreIdentity, remembered: SeenStore | None, expected: IdentityVerdict
) -> None:
    assert identity_verdict(inventory, found, remembered, "new") == expected


def change(op: Op) -> Change[bytes, bytes]:
    owned = Owned(b"", "inventory", 1)
    return Change(op, b"k", None if op is Op.CREATE else owned, None if op is Op.DELETE else owned)


@pytest.mark.parametrize("reason", FleetIdentityReason)
def test_a_store_that_is_filled_or_restored_takes_everything_but_deletes_and_all_others_take_nothing(
    reason: FleetIdentityReason,
) -> None:
    gate = FleetIdentityGate(IdentityVerdict(reason))
    adds = reason in (FleetIdentityReason.REFILLING, FleetIdentityReason.STORE_RESTORED)
    held = [op for op in Op if gate.judge(change(op), {}, 0, NOW) is not None]
    assert held == ([Op.DELETE] if adds else [Op.DELETE, Op.REPLACE, Op.CREATE])
    assert OPENS[reason]


def test_since_when_the_gate_is_closed_is_kept_while_the_reason_is_the_same() -> None:
    gate = FleetIdentityGate()
    assert gate.note(IdentityVerdict(FleetIdentityReason.REFILLING), NOW)
    assert not gate.note(IdentityVerdict(FleetIdentityReason.REFILLING), NOW + seconds(5))
    closed = gate.judge(change(Op.DELETE), {}, 0, NOW + seconds(9))
    assert closed is not None
    assert (closed.gate, closed.since) == ("identity", NOW)


def test_a_store_that_lost_its_epoch_gets_one_above_all_that_were() -> None:
    assert epoch_of(store(epoch=7), 9, OURS) == 7
    assert epoch_of(EMPTY, 0, None) == 1
    assert epoch_of(EMPTY, 2, OURS) == 4
    assert epoch_of(EMPTY, 8, OURS) == 9
