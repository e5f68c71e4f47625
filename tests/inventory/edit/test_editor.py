"""Edits of the inventory: create, change, move, delete, undo, and refusals."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from sqlalchemy import Engine, update

from holdfast.inventory.changes import ChangeKind, EditRefused, WantedObject, wanted
from holdfast.inventory.edit import editor as editing
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.edit.rules import DOCUMENT_LIMIT
from holdfast.inventory.sql.engine import writing
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.inventory.sql.schema import OBJECTS
from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointName
from holdfast.model.calico.host import HOST, Host, HostSpec
from holdfast.testing.real.processes import wait_until
from tests.inventory.harness import REGION, endpoint, endpoint_key, endpoint_name, host, is_waiting, subnet


def test_an_object_is_created_with_an_outbox_row_of_the_same_revision(editor: Editor, inventory: SqlInventory) -> None:
    (edit,) = editor.change([host(1)], who="alice")
    (row,) = inventory.read_keys([edit.key])
    (noted,) = inventory.outbox(10)
    assert edit.did is ChangeKind.CREATED
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


def test_requesting_a_stored_object_changes_nothing_and_wakes_no_syncer(
    editor: Editor, inventory: SqlInventory
) -> None:
    editor.change([host(1)], who="alice")
    before = inventory.outbox(10)
    (edit,) = editor.change([host(1)], who="alice")
    assert edit.did is ChangeKind.UNCHANGED
    assert inventory.outbox(10) == before


def test_a_move_is_one_change_that_names_the_old_key(editor: Editor, inventory: SqlInventory) -> None:
    editor.change([endpoint(1, on="r1")], who="alice")
    (edit,) = editor.change([endpoint(1, on="r2")], who="alice")
    assert edit.did is ChangeKind.MOVED
    assert inventory.outbox(10)[-1][1:3] == (endpoint_key(1, on="r2"), endpoint_key(1, on="r1"))
    assert [row.key for row in inventory.read_keys([endpoint_key(1, on="r1"), endpoint_key(1, on="r2")])] == [edit.key]


def test_a_delete_leaves_an_outbox_row(editor: Editor, inventory: SqlInventory) -> None:
    editor.change([endpoint(1)], who="alice")
    (edit,) = editor.change([WantedObject(ENDPOINT, endpoint_name(1))], who="alice")
    assert edit.did is ChangeKind.DELETED
    assert inventory.outbox(10)[-1].key == endpoint_key(1)
    assert inventory.read_keys([endpoint_key(1)]) == []


def test_a_taken_address_is_refused_with_its_owner(editor: Editor, inventory: SqlInventory) -> None:
    editor.change([endpoint(1)], who="alice")
    with pytest.raises(EditRefused, match=r"holdfast-w2-eth0 cannot have 10\.0\.0\.1: .* endpoint holdfast-w1-eth0"):
        editor.change([endpoint(3), endpoint(2, address="10.0.0.1/32")], who="alice")
    assert inventory.read_keys([endpoint_key(3)]) == [], "all of a request or nothing"


def test_two_objects_may_swap_their_addresses_in_one_request(editor: Editor) -> None:
    editor.change([endpoint(1), endpoint(2)], who="alice")
    swapped = [endpoint(1, address="10.0.0.2/32"), endpoint(2, address="10.0.0.1/32")]
    assert [edit.did for edit in editor.change(swapped, who="alice")] == [ChangeKind.CHANGED, ChangeKind.CHANGED]


def test_one_request_cannot_give_an_address_to_two(editor: Editor) -> None:
    with pytest.raises(EditRefused, match=r"cannot have 10\.0\.0\.9"):
        editor.change([endpoint(1, address="10.0.0.9/32"), endpoint(2, address="10.0.0.9")], who="alice")


def test_concurrent_edits_cannot_take_the_same_address(editor: Editor) -> None:
    outcomes: list[str] = []

    def take(number: int) -> None:
        try:
            editor.change([endpoint(number, address="10.9.9.9/32")], who=f"user {number}")
            outcomes.append("created")
        except EditRefused as refusal:
            outcomes.append("refused" if "10.9.9.9" in str(refusal) else str(refusal))

    threads = [threading.Thread(target=take, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["created", "refused", "refused", "refused"]


def test_a_host_with_endpoints_cannot_be_deleted(editor: Editor) -> None:
    editor.change([host(1), endpoint(1, on="r1")], who="alice")
    with pytest.raises(EditRefused, match=r"host r1 has endpoints \(holdfast-w1-eth0\): move or delete them first"):
        editor.change([WantedObject(HOST, "r1")], who="alice")
    done = editor.change([WantedObject(HOST, "r1"), WantedObject(ENDPOINT, endpoint_name(1))], who="alice")
    assert [edit.did for edit in done] == [ChangeKind.DELETED, ChangeKind.DELETED]


def test_undo_restores_a_deleted_object(editor: Editor, inventory: SqlInventory) -> None:
    editor.change([endpoint(1)], who="alice")
    (before,) = inventory.read_keys([endpoint_key(1)])
    editor.change([WantedObject(ENDPOINT, endpoint_name(1))], who="bob", why="a slip")
    assert editor.undo(ENDPOINT, endpoint_name(1), who="alice")[0].did is ChangeKind.CREATED
    (after,) = inventory.read_keys([endpoint_key(1)])
    assert after.doc == before.doc


def test_undo_of_a_move_moves_back_and_of_a_creation_deletes(editor: Editor) -> None:
    editor.change([endpoint(1, on="r1")], who="alice")
    editor.change([endpoint(1, on="r2")], who="alice")
    assert editor.undo(ENDPOINT, endpoint_name(1), who="alice")[0].key == endpoint_key(1, on="r1")
    editor.change([subnet("red", "10.0.0.0/8")], who="alice")
    kind = subnet("red", "10.0.0.0/8").kind
    assert editor.undo(kind, "red", who="alice")[0].did is ChangeKind.DELETED


def test_undo_of_what_never_changed_is_refused(editor: Editor) -> None:
    with pytest.raises(EditRefused, match="nothing to undo"):
        editor.undo(HOST, "r9", who="alice")


def test_history_has_who_and_why_newest_first(editor: Editor) -> None:
    editor.change([host(1)], who="alice", why="rack 12")
    editor.change([WantedObject(HOST, "r1")], who="bob", why="decommission r12")
    assert [(past.who, past.why, past.new is None) for past in editor.history(HOST, "r1")] == [
        ("bob", "decommission r12", True),
        ("alice", "rack 12", False),
    ]


def test_a_dry_run_shows_edits_and_changes_nothing(editor: Editor, inventory: SqlInventory) -> None:
    (edit,) = editor.change([host(1)], who="alice", dry_run=True)
    assert edit.did is ChangeKind.CREATED
    assert inventory.outbox(10) == []
    assert editor.objects(HOST) == []


def test_many_objects_are_one_transaction(editor: Editor, inventory: SqlInventory) -> None:
    edits = editor.change([endpoint(number) for number in range(1_200)], who="alice")
    assert len({edit.revision for edit in edits}) == 1_200
    assert len(inventory.outbox(5_000)) == 1_200


def test_a_host_of_a_named_region_has_the_region_label() -> None:
    wish = wanted(HOST, Region("ams"), "r1", Host.of("r1", HostSpec()))
    assert isinstance(wish.thing, Host)
    assert wish.thing.metadata.labels == {"holdfast/region": "ams"}


def test_a_delete_that_waited_for_a_change_deletes_its_result(
    postgres_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was passed by in silence: the row that it had waited for was another one by then."""
    editor = Editor(postgres_engine, REGION)
    editor.change([endpoint(1)], who="alice")
    under_way, write = threading.Event(), editing._write

    def write_until_the_other_waits(*args: Any) -> Any:
        made = write(*args)
        if not under_way.is_set():
            under_way.set()
            wait_until(lambda: is_waiting(postgres_engine), "the delete waits for a lock")
        return made

    monkeypatch.setattr(editing, "_write", write_until_the_other_waits)
    with ThreadPoolExecutor(1) as pool:
        changing = pool.submit(editor.change, [endpoint(1, gateway="10.0.0.254")], who="alice")
        assert under_way.wait(30)
        (deleted,) = editor.change([WantedObject(ENDPOINT, endpoint_name(1))], who="bob")
        assert (changing.result(30)[0].did, deleted.did) == (ChangeKind.CHANGED, ChangeKind.DELETED)
    assert editor.objects(ENDPOINT) == []


def test_concurrent_changes_of_the_same_objects_all_succeed(editor: Editor) -> None:
    def change(turn: int) -> ChangeKind:
        numbers = range(20) if turn % 2 else range(19, -1, -1)
        return editor.change([endpoint(n, gateway=f"10.9.9.{turn}") for n in numbers], who=f"user {turn}")[0].did

    with ThreadPoolExecutor(4) as pool:
        assert ChangeKind.UNCHANGED not in list(pool.map(change, range(12)))


def test_undo_does_not_revert_a_concurrent_change(editor: Editor, monkeypatch: pytest.MonkeyPatch) -> None:
    editor.change([host(1)], who="alice")
    seen = editor.history(HOST, "r1", last=1)
    editor.change([host(1, last=7)], who="bob")
    monkeypatch.setattr(editor, "history", lambda *_, **__: seen)
    with pytest.raises(EditRefused, match="host r1 was changed in the meantime: read it again"):
        editor.undo(HOST, "r1", who="alice")
    assert len(editor.objects(HOST)) == 1


def test_one_request_that_names_an_object_twice_is_refused(editor: Editor) -> None:
    with pytest.raises(EditRefused, match="host r1 is named twice in one request"):
        editor.change([host(1), host(1, last=7)], who="alice")


AMS = Region("ams")


def abroad(number: int) -> WantedObject:
    here = endpoint(number).thing
    assert isinstance(here, Endpoint)
    return wanted(ENDPOINT, AMS, EndpointName("r1", "holdfast", f"w{number}", "eth0"), Endpoint.of(AMS, here.spec))


def test_an_object_does_not_move_into_another_region(engine: Engine, editor: Editor) -> None:
    editor.change([endpoint(1), host(1)], who="alice")
    before = [*editor.objects(ENDPOINT), *editor.objects(HOST)]
    other = Editor(engine, AMS)
    there = wanted(HOST, AMS, "r1", Host.of("r1", HostSpec()))
    for change in ([abroad(1)], [there], [WantedObject(ENDPOINT, endpoint_name(1))], [WantedObject(HOST, "r1")]):
        with pytest.raises(EditRefused, match="belongs to another region, and this configuration is for region ams"):
            other.change(change, who="bob")
    for change in ([abroad(2)], [there]):
        with pytest.raises(EditRefused, match="belongs to another region, and this configuration is for no region"):
            editor.change(change, who="bob")
    assert [*editor.objects(ENDPOINT), *editor.objects(HOST)] == before


def test_an_object_that_the_store_cannot_accept_is_refused(editor: Editor) -> None:
    labels = {f"l{number}": "x" * 1_000 for number in range(DOCUMENT_LIMIT // 1_000)}
    with pytest.raises(EditRefused, match=r"host r1 has 1,\d{3},\d{3} bytes, and the store accepts 1,048,576"):
        editor.change([wanted(HOST, REGION, "r1", Host.of("r1", HostSpec(), labels=labels))], who="alice")
    name = "r" * 2_000
    with pytest.raises(EditRefused, match=r"has a key of 2,\d{3} bytes, and 1,000 is the limit: shorten its name"):
        editor.change([wanted(HOST, REGION, name, Host.of(name, HostSpec()))], who="alice")


def test_unknown_fields_of_a_newer_version_survive_a_change(engine: Engine, editor: Editor) -> None:
    editor.change([host(1)], who="alice")
    (held,) = editor.objects(HOST)
    newer = msgspec.json.encode({**msgspec.json.decode(held.doc), "fromTheFuture": 1})
    with writing(engine) as connection:
        connection.execute(update(OBJECTS).values(doc=newer))
    assert editor.change([host(1)], who="alice")[0].did is ChangeKind.UNCHANGED
    editor.change([host(1, last=7)], who="alice")
    assert msgspec.json.decode(editor.objects(HOST)[0].doc)["fromTheFuture"] == 1
