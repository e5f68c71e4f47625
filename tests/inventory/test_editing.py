"""Changing the inventory: what is created, changed, moved, deleted and undone, and what is refused."""

from __future__ import annotations

import threading

import pytest

from holdfast.inventory.edit import Did, Editor, Refused, Wanted, wanted
from holdfast.inventory.sql import SqlInventory
from holdfast.model.bad import Bad
from holdfast.model.endpoint import ENDPOINT
from holdfast.model.host import HOST, Host, HostSpec
from holdfast.model.region import Region
from tests.inventory.things import endpoint, endpoint_key, endpoint_name, host, subnet


def test_an_object_is_created_with_an_outbox_row_of_the_same_revision(editor: Editor, inventory: SqlInventory) -> None:
    (edit,) = editor.change([host(1)], who="alice")
    (row,) = inventory.look([edit.key])
    (noted,) = inventory.outbox(10)
    assert edit.did is Did.CREATED
    assert (row.revision, row.doc, noted.key, noted.before) == (noted.id, edit.new, edit.key, None)


def test_a_created_object_gets_a_uid_and_keeps_it_when_it_changes(editor: Editor) -> None:
    editor.change([endpoint(1)], who="alice")
    editor.change([endpoint(1, gateway="10.0.0.254")], who="alice")
    (held,) = editor.objects(ENDPOINT)
    thing = ENDPOINT.decode(held.key, held.doc)
    (first,) = (past.new for past in editor.history(ENDPOINT, endpoint_name(1))[1:])
    assert first is not None
    born = ENDPOINT.decode(held.key, first)
    assert not isinstance(thing, Bad)
    assert not isinstance(born, Bad)
    assert thing.metadata.uid
    assert thing.metadata.uid == born.metadata.uid
    assert thing.spec.ipv4_gateway == "10.0.0.254"


def test_asking_for_what_is_there_changes_nothing_and_wakes_nobody(editor: Editor, inventory: SqlInventory) -> None:
    editor.change([host(1)], who="alice")
    before = inventory.outbox(10)
    (edit,) = editor.change([host(1)], who="alice")
    assert edit.did is Did.UNCHANGED
    assert inventory.outbox(10) == before


def test_a_move_is_one_change_that_names_the_key_before(editor: Editor, inventory: SqlInventory) -> None:
    editor.change([endpoint(1, on="r1")], who="alice")
    (edit,) = editor.change([endpoint(1, on="r2")], who="alice")
    assert edit.did is Did.MOVED
    assert inventory.outbox(10)[-1][1:] == (endpoint_key(1, on="r2"), endpoint_key(1, on="r1"))
    assert [row.key for row in inventory.look([endpoint_key(1, on="r1"), endpoint_key(1, on="r2")])] == [edit.key]


def test_a_delete_leaves_an_outbox_row(editor: Editor, inventory: SqlInventory) -> None:
    editor.change([endpoint(1)], who="alice")
    (edit,) = editor.change([Wanted(ENDPOINT, endpoint_name(1))], who="alice")
    assert edit.did is Did.DELETED
    assert inventory.outbox(10)[-1].key == endpoint_key(1)
    assert inventory.look([endpoint_key(1)]) == []


def test_an_address_that_another_has_is_refused_by_name(editor: Editor, inventory: SqlInventory) -> None:
    editor.change([endpoint(1)], who="alice")
    with pytest.raises(Refused, match=r"holdfast-w2-eth0 cannot have 10\.0\.0\.1: .* endpoint holdfast-w1-eth0"):
        editor.change([endpoint(3), endpoint(2, address="10.0.0.1/32")], who="alice")
    assert inventory.look([endpoint_key(3)]) == [], "all of a request or nothing"


def test_two_objects_may_swap_their_addresses_in_one_request(editor: Editor) -> None:
    editor.change([endpoint(1), endpoint(2)], who="alice")
    swapped = [endpoint(1, address="10.0.0.2/32"), endpoint(2, address="10.0.0.1/32")]
    assert [edit.did for edit in editor.change(swapped, who="alice")] == [Did.CHANGED, Did.CHANGED]


def test_one_request_cannot_give_an_address_to_two(editor: Editor) -> None:
    with pytest.raises(Refused, match=r"cannot have 10\.0\.0\.9"):
        editor.change([endpoint(1, address="10.0.0.9/32"), endpoint(2, address="10.0.0.9")], who="alice")


def test_two_at_once_do_not_get_the_same_address(editor: Editor) -> None:
    outcomes: list[str] = []

    def take(number: int) -> None:
        try:
            editor.change([endpoint(number, address="10.9.9.9/32")], who=f"user {number}")
            outcomes.append("created")
        except Refused as refusal:
            outcomes.append("refused" if "10.9.9.9" in str(refusal) else str(refusal))

    threads = [threading.Thread(target=take, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["created", "refused", "refused", "refused"]


def test_a_host_does_not_go_before_its_endpoints(editor: Editor) -> None:
    editor.change([host(1), endpoint(1, on="r1")], who="alice")
    with pytest.raises(Refused, match=r"host r1 has endpoints \(holdfast-w1-eth0\): move or delete them first"):
        editor.change([Wanted(HOST, "r1")], who="alice")
    done = editor.change([Wanted(HOST, "r1"), Wanted(ENDPOINT, endpoint_name(1))], who="alice")
    assert [edit.did for edit in done] == [Did.DELETED, Did.DELETED]


def test_undo_brings_a_deleted_object_back(editor: Editor, inventory: SqlInventory) -> None:
    editor.change([endpoint(1)], who="alice")
    (before,) = inventory.look([endpoint_key(1)])
    editor.change([Wanted(ENDPOINT, endpoint_name(1))], who="bob", why="a slip")
    assert editor.undo(ENDPOINT, endpoint_name(1), who="alice").did is Did.CREATED
    (after,) = inventory.look([endpoint_key(1)])
    assert after.doc == before.doc


def test_undo_of_a_move_moves_back_and_of_a_creation_deletes(editor: Editor) -> None:
    editor.change([endpoint(1, on="r1")], who="alice")
    editor.change([endpoint(1, on="r2")], who="alice")
    assert editor.undo(ENDPOINT, endpoint_name(1), who="alice").key == endpoint_key(1, on="r1")
    editor.change([subnet("red", "10.0.0.0/8")], who="alice")
    kind = subnet("red", "10.0.0.0/8").kind
    assert editor.undo(kind, "red", who="alice").did is Did.DELETED


def test_undo_of_what_never_changed_is_refused(editor: Editor) -> None:
    with pytest.raises(Refused, match="nothing to undo"):
        editor.undo(HOST, "r9", who="alice")


def test_history_says_who_and_why_newest_first(editor: Editor) -> None:
    editor.change([host(1)], who="alice", why="rack 12")
    editor.change([Wanted(HOST, "r1")], who="bob", why="decommission r12")
    assert [(past.who, past.why, past.new is None) for past in editor.history(HOST, "r1")] == [
        ("bob", "decommission r12", True),
        ("alice", "rack 12", False),
    ]


def test_a_dry_run_tells_and_changes_nothing(editor: Editor, inventory: SqlInventory) -> None:
    (edit,) = editor.change([host(1)], who="alice", dry_run=True)
    assert edit.did is Did.CREATED
    assert inventory.outbox(10) == []
    assert editor.objects(HOST) == []


def test_many_objects_are_one_transaction(editor: Editor, inventory: SqlInventory) -> None:
    edits = editor.change([endpoint(number) for number in range(1_200)], who="alice")
    assert len({edit.revision for edit in edits}) == 1_200
    assert len(inventory.outbox(5_000)) == 1_200


def test_a_host_of_a_named_region_says_whose_it_is() -> None:
    wish = wanted(HOST, Region("ams"), "r1", Host.of("r1", HostSpec()))
    assert isinstance(wish.thing, Host)
    assert wish.thing.metadata.labels == {"holdfast/region": "ams"}
