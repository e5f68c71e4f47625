"""Witnesses of deletes: the newest recorded change that names a key, if it gave the key up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, delete

from holdfast.inventory.api import Fence, Witness
from holdfast.inventory.changes import WantedObject
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.sql.objects import KEYS_PER_QUERY, SqlInventory
from holdfast.inventory.sql.schema import OBJECTS
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.store.api import Deposed
from tests.inventory.harness import endpoint, endpoint_key, endpoint_name

FENCE = Fence("no-region", 1, 7)
GONE = WantedObject(ENDPOINT, endpoint_name(1))


def test_a_delete_is_a_witness(editor: Editor, inventory: SqlInventory) -> None:
    editor.change([endpoint(1)], who="alice")
    (gone,) = editor.change([GONE], who="bob")
    found = inventory.witness([endpoint_key(1)])
    assert found == {endpoint_key(1): Witness(gone.revision, "bob", at=found[endpoint_key(1)].at)}


def test_a_move_is_a_witness_for_its_old_key_only(editor: Editor, inventory: SqlInventory) -> None:
    editor.change([endpoint(1)], who="alice")
    (moved,) = editor.change([endpoint(1, on="r2")], who="bob")
    old, new = endpoint_key(1), endpoint_key(1, on="r2")
    found = inventory.witness([old, new])
    assert found == {old: Witness(moved.revision, "bob", new, found[old].at)}


def test_a_move_back_wants_the_old_key_again(editor: Editor, inventory: SqlInventory) -> None:
    for on in ("r1", "r2", "r1"):
        editor.change([endpoint(1, on=on)], who="alice")
    assert set(inventory.witness([endpoint_key(1), endpoint_key(1, on="r2")])) == {endpoint_key(1, on="r2")}


def test_both_keys_of_an_object_that_moved_and_was_deleted_are_witnessed(
    editor: Editor, inventory: SqlInventory
) -> None:
    editor.change([endpoint(1)], who="alice")
    editor.change([endpoint(1, on="r2")], who="bob")
    editor.change([GONE], who="carol")
    found = inventory.witness([endpoint_key(1), endpoint_key(1, on="r2")])
    assert [found[endpoint_key(1, on=on)].who for on in ("r1", "r2")] == ["bob", "carol"]


def test_creates_changes_and_the_undo_of_a_delete_are_no_witnesses(editor: Editor, inventory: SqlInventory) -> None:
    editor.change([endpoint(1)], who="alice")
    assert inventory.witness([endpoint_key(1)]) == {}
    editor.change([endpoint(1, gateway="10.0.0.1")], who="alice")
    assert inventory.witness([endpoint_key(1)]) == {}
    editor.change([GONE], who="alice")
    assert endpoint_key(1) in inventory.witness([endpoint_key(1)])
    editor.undo(ENDPOINT, endpoint_name(1), who="alice")
    assert inventory.witness([endpoint_key(1)]) == {}


def test_an_object_deleted_without_a_record_has_no_witness(
    engine: Engine, editor: Editor, inventory: SqlInventory
) -> None:
    editor.change([endpoint(1)], who="alice")
    editor.change([endpoint(1, gateway="10.0.0.1")], who="alice")
    with engine.begin() as connection:
        connection.execute(delete(OBJECTS))
    assert inventory.witness([endpoint_key(1)]) == {}


def test_an_address_that_another_object_took_over_is_decided_by_key(editor: Editor, inventory: SqlInventory) -> None:
    """The key of one endpoint is never that of another: a namesake on another host is the same individual."""
    editor.change([endpoint(1)], who="alice")
    editor.change([GONE, endpoint(2, address="10.0.0.1/32")], who="bob")
    assert set(inventory.witness([endpoint_key(1), endpoint_key(2)])) == {endpoint_key(1)}


def test_many_keys_are_asked_for_in_batches(editor: Editor, inventory: SqlInventory) -> None:
    numbers = range(1, 2 * KEYS_PER_QUERY + 2)
    editor.change([endpoint(number) for number in numbers], who="alice")
    editor.change([WantedObject(ENDPOINT, endpoint_name(number)) for number in numbers if number % 2], who="bob")
    found = inventory.witness([endpoint_key(number) for number in numbers])
    assert set(found) == {endpoint_key(number) for number in numbers if number % 2}
    assert inventory.witness([]) == {}


def test_voided_witnesses_do_not_count_and_later_ones_do(editor: Editor, inventory: SqlInventory) -> None:
    inventory.raise_fence(FENCE)
    inventory.name_fleet(FENCE, "f1")
    editor.change([endpoint(1), endpoint(2)], who="alice")
    editor.change([GONE], who="bob")
    inventory.void_witnesses(FENCE)
    editor.change([WantedObject(ENDPOINT, endpoint_name(2))], who="bob")
    assert set(inventory.witness([endpoint_key(1), endpoint_key(2)])) == {endpoint_key(2)}


def test_witnesses_are_voided_up_to_a_revision_and_never_restored(editor: Editor, inventory: SqlInventory) -> None:
    """Under a verdict, what was deleted since it was reached is still meant."""
    inventory.raise_fence(FENCE)
    inventory.name_fleet(FENCE, "f1")
    editor.change([endpoint(1), endpoint(2)], who="alice")
    (gone,) = editor.change([GONE], who="bob")
    editor.change([WantedObject(ENDPOINT, endpoint_name(2))], who="carol")
    inventory.void_witnesses(FENCE, gone.revision)
    assert set(inventory.witness([endpoint_key(1), endpoint_key(2)])) == {endpoint_key(2)}
    inventory.void_witnesses(FENCE, 0)
    assert set(inventory.witness([endpoint_key(1), endpoint_key(2)])) == {endpoint_key(2)}


def test_voiding_needs_the_present_term(inventory: SqlInventory) -> None:
    inventory.raise_fence(FENCE)
    with pytest.raises(Deposed):
        inventory.void_witnesses(FENCE._replace(term=6))


def test_assigning_the_database_to_another_fleet_voids_its_witnesses(editor: Editor, inventory: SqlInventory) -> None:
    """What was deleted from another fleet is no reason to delete here."""
    editor.change([endpoint(1), endpoint(2)], who="alice")
    editor.change([GONE], who="bob")
    inventory.assign("f1")
    assert (inventory.fleet(), set(inventory.witness([endpoint_key(1)]))) == ("f1", {endpoint_key(1)})
    inventory.assign("f2")
    assert (inventory.fleet(), inventory.witness([endpoint_key(1)])) == ("f2", {})
    editor.change([WantedObject(ENDPOINT, endpoint_name(2))], who="bob")
    inventory.assign("f2")
    assert set(inventory.witness([endpoint_key(1), endpoint_key(2)])) == {endpoint_key(2)}


def test_a_pruned_delete_is_no_witness_any_more(editor: Editor, inventory: SqlInventory) -> None:
    inventory.raise_fence(FENCE)
    editor.change([endpoint(1)], who="alice")
    editor.change([GONE], who="bob")
    list(inventory.prune_history(FENCE, datetime.now(UTC) - timedelta(days=1)))
    assert endpoint_key(1) in inventory.witness([endpoint_key(1)])
    list(inventory.prune_history(FENCE, datetime.now(UTC) + timedelta(days=1)))
    assert endpoint_key(1) in inventory.witness([endpoint_key(1)]), "while the store may still have it"
    inventory.settle(FENCE, [row.id for row in inventory.outbox(10)])
    list(inventory.prune_history(FENCE, datetime.now(UTC) + timedelta(days=1)))
    assert inventory.witness([endpoint_key(1)]) == {}


def test_the_revision_of_the_inventory_does_not_fall_when_history_is_pruned(
    editor: Editor, inventory: SqlInventory
) -> None:
    inventory.raise_fence(FENCE)
    assert inventory.revision() == 0
    (made,) = editor.change([endpoint(1)], who="alice")
    list(inventory.prune_history(FENCE, datetime.now(UTC) + timedelta(days=1)))
    assert inventory.revision() == made.revision
