"""Verdict on inventory and store, and what the syncer's identity gate lets through under each."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.inventory.api import Fence, InventoryMarks
from holdfast.model.base.bad import Bad, BadReason
from holdfast.model.base.time import NEVER, seconds
from holdfast.model.control.identity import Identity, LatchedVerdict
from holdfast.model.control.mark import Mark
from holdfast.reconcile import Change, Op, Owned
from holdfast.server.identity.gate import FleetIdentityGate
from holdfast.server.identity.verdict import (
    OPENS,
    FleetIdentityReason,
    IdentityVerdict,
    Naming,
    Sides,
    epoch_of,
    identity_verdict,
    next_epoch,
)
from holdfast.store.api import Entry
from holdfast.store.identity import SeenStore, StoreIdentity

NOW = NEVER + seconds(1_000)
KNOWN = SeenStore("f1", 3, 500)
EMPTY = StoreIdentity(None, 5)
UNREADABLE = StoreIdentity(Bad(b"k", BadReason.NOT_JSON, ""), 900)
NO_MARKS = InventoryMarks(0, 0, 0)
TEN_MARKS = InventoryMarks(1, 10, 9)


def store(fleet: str = "f1", epoch: int = 3, revision: int = 900, mark: int = 0, **more: Any) -> StoreIdentity:
    return StoreIdentity(Identity(fleet, epoch, **more), revision, mark=Mark(mark, "m") if mark else None)


def sides(fleet: str | None, found: StoreIdentity, remembered: SeenStore | None = None, **more: Any) -> Sides:
    given: dict[str, Any] = {
        "marks": NO_MARKS,
        "fence": Fence("no-region", 3, 70),
        "revision": 40,
        "has_mark": True,
        "empty": True,
        "term": 80,
    }
    return Sides(fleet, found=found, remembered=remembered, **given | more)


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (sides("f1", store()), None),
        (sides("f1", store(), KNOWN), None),
        (sides("f1", store(revision=400), KNOWN), "STORE_RESTORED"),
        (sides("f1", store(epoch=4, revision=400), KNOWN), None),
        (sides("f1", store("f2"), KNOWN), "FOREIGN_INVENTORY"),
        (sides("f2", store("f2"), KNOWN), "FOREIGN_STORE"),
        (sides(None, store()), "EMPTY_INVENTORY"),
        (sides(None, EMPTY, KNOWN), "BOTH_EMPTY"),
        (sides(None, EMPTY, KNOWN, empty=False), "STORE_UNNAMED"),
        (sides("f1", UNREADABLE, KNOWN), "STORE_RESTORED"),
        (sides("f1", store(filling=True)), "FILLING"),
        (sides(None, EMPTY, empty=False), "STORE_UNNAMED"),
        (sides("f1", EMPTY, empty=False), "STORE_UNNAMED"),
        (sides("f1", EMPTY, KNOWN, empty=False), "STORE_RESTORED"),
        (sides("f1", EMPTY, empty=False, marks=TEN_MARKS), "STORE_RESTORED"),
        (sides("f1", EMPTY, SeenStore("f1", 3, 500, mark=11), marks=TEN_MARKS), "INVENTORY_RESTORED"),
    ],
)
def test_two_ids_and_a_memory_have_one_verdict(read: Sides, expected: str | None) -> None:
    closed = identity_verdict(read).closed
    assert (closed and closed.name) == expected


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (sides("f1", store(mark=10), marks=TEN_MARKS), None),
        (sides("f1", store(mark=9), marks=TEN_MARKS), None),  # C67: mark 10 may never have reached the store
        (sides("f1", store(mark=8), marks=TEN_MARKS), "STORE_RESTORED"),
        (sides("f1", store(), marks=TEN_MARKS), "STORE_RESTORED"),
        (sides("f1", store(mark=3), has_mark=False, marks=InventoryMarks(5, 10, 9)), "STORE_RESTORED"),
        (sides("f1", store(mark=12), has_mark=False, marks=TEN_MARKS), "INVENTORY_RESTORED"),
        (sides("f1", store(mark=10), has_mark=False, marks=TEN_MARKS), "INVENTORY_RESTORED"),
        (sides("f1", store(mark=1), has_mark=False), "INVENTORY_RESTORED"),
        (sides("f1", store(mark=10), SeenStore("f1", 3, 900, mark=12), marks=TEN_MARKS), "STORE_RESTORED"),
    ],
)
def test_marks_tell_which_side_went_back(read: Sides, expected: str | None) -> None:
    closed = identity_verdict(read).closed
    assert (closed and closed.name) == expected


def test_a_fence_from_the_future_means_that_the_store_went_back() -> None:
    went_back = sides("f1", store(), fence=Fence("no-region", 3, 81))
    verdict = identity_verdict(went_back)
    assert (verdict.closed, verdict.is_fenced) == (FleetIdentityReason.STORE_RESTORED, False)
    assert "before term 81 of epoch 3" in verdict.sentence
    assert identity_verdict(sides("f1", store(), fence=Fence("no-region", 4, 1))).closed is verdict.closed


@pytest.mark.parametrize("name", ["store_restored", "inventory_restored"])
def test_a_recorded_verdict_stands_whatever_the_marks_say(name: str) -> None:
    found = store(mark=10, verdict=LatchedVerdict(name, "it went back", 33))
    verdict = identity_verdict(sides("f1", found, marks=TEN_MARKS))
    assert verdict.closed is FleetIdentityReason[name.upper()]
    assert verdict.sentence == "it went back"


def test_with_both_sides_restored_the_inventory_comes_first() -> None:
    read = sides("f1", store(revision=1, mark=10), KNOWN, has_mark=False, marks=InventoryMarks(1, 8, 7))
    assert identity_verdict(read).closed is FleetIdentityReason.INVENTORY_RESTORED


@pytest.mark.parametrize(
    ("read", "naming"),
    [
        (sides(None, EMPTY), Naming.INVENTORY),
        (sides("f1", EMPTY), Naming.STORE),
        (sides("f1", EMPTY, KNOWN, marks=TEN_MARKS), Naming.STORE),
        (sides("f1", store()), Naming.NOTHING),
    ],
)
def test_an_empty_side_is_named(read: Sides, naming: Naming) -> None:
    verdict = identity_verdict(read)
    assert (verdict.naming, verdict.is_fenced) == (naming, True)


def change(op: Op, revision: int = 1) -> Change[bytes, Entry]:
    owned = Owned(Entry(b"k"), "inventory", revision)
    return Change(op, b"k", None if op is Op.CREATE else owned, None if op is Op.DELETE else owned)


@pytest.mark.parametrize("reason", FleetIdentityReason)
def test_a_store_that_is_filled_or_restored_takes_everything_but_deletes_and_all_others_take_nothing(
    reason: FleetIdentityReason,
) -> None:
    gate = FleetIdentityGate(verdict=IdentityVerdict(reason, revision=40))
    adds = reason in (FleetIdentityReason.FILLING, FleetIdentityReason.STORE_RESTORED)
    held = [op for op in Op if gate.judge(change(op), {}, 0, NOW) is not None]
    assert held == ([Op.DELETE] if adds else [Op.DELETE, Op.REPLACE, Op.CREATE])
    assert OPENS[reason]


def test_the_delete_of_a_move_passes_while_a_store_is_refilled() -> None:
    gate = FleetIdentityGate(wanted_at=lambda _key: b"elsewhere")
    gate.note(IdentityVerdict(FleetIdentityReason.STORE_RESTORED), NOW)
    assert gate.judge(change(Op.DELETE), {}, 0, NOW) is None


def test_with_a_restored_inventory_only_what_was_edited_later_passes() -> None:
    edited = {b"k": 40}
    gate = FleetIdentityGate(edited_at=edited.__getitem__)
    gate.note(IdentityVerdict(FleetIdentityReason.INVENTORY_RESTORED, revision=40), NOW)
    assert [gate.judge(change(op, 40), {}, 0, NOW) is None for op in Op] == [False, False, False]
    edited[b"k"] = 41
    assert [gate.judge(change(op, 41), {}, 0, NOW) is None for op in Op] == [True, True, True]


def test_since_when_the_gate_is_closed_is_kept_while_the_reason_is_the_same() -> None:
    gate = FleetIdentityGate()
    assert gate.note(IdentityVerdict(FleetIdentityReason.FILLING), NOW)
    assert not gate.note(IdentityVerdict(FleetIdentityReason.FILLING), NOW + seconds(5))
    closed = gate.judge(change(Op.DELETE), {}, 0, NOW + seconds(9))
    assert closed is not None
    assert (closed.gate, closed.since) == ("identity", NOW)


def test_a_store_that_lost_its_epoch_gets_one_above_all_that_were() -> None:
    assert epoch_of(sides("f1", store(epoch=7), KNOWN)) == 7
    assert epoch_of(sides("f1", EMPTY, fence=Fence("no-region", 0, 0))) == 1
    assert epoch_of(sides("f1", EMPTY, KNOWN, fence=Fence("no-region", 2, 9))) == 4
    assert next_epoch(sides("f1", store(epoch=7), KNOWN, fence=Fence("no-region", 8, 1))) == 9
