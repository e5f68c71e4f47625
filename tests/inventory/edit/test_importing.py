"""Imports: objects come in as the store has them, and one that is refused costs the others nothing."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from msgspec.structs import replace
from sqlalchemy import Engine

from holdfast.inventory.changes import ChangeKind, WantedObject, wanted
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.edit.importing import bring_in, scratch_copy
from holdfast.inventory.kinds import KINDS
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.model.base.bad import Bad
from holdfast.model.calico.endpoint import ENDPOINT, EndpointName
from holdfast.model.calico.host import HOST
from holdfast.model.calico.migration import MIGRATION, Migration
from holdfast.server.syncer.keys import RegionKeys
from holdfast.store.api import Entry
from tests.inventory.harness import REGION, endpoint, endpoint_name, host, migration
from tests.model.test_wire import HERE, NAME, VM_KEY, VM_VALUE


def imported(wish: WantedObject, **metadata: object) -> WantedObject:
    """The request for an object that another client wrote, with fields that our model does not know."""
    assert wish.thing is not None
    document = msgspec.json.decode(wish.kind.encode(wish.thing))
    document["metadata"] |= {"resourceVersion": "77", **metadata}
    value = msgspec.json.encode({**document, "extra": {"deep": [1]}})
    thing = wish.kind.decode(wish.key, value)
    assert not isinstance(thing, Bad)
    return replace(wish, thing=thing, imported=value, based_on=0)


def moving(number: int, *, to: str) -> WantedObject:
    """The live migration of an endpoint on r1, complete with its source."""
    source = EndpointName("r1", "holdfast", f"w{number}", "eth0")
    return wanted(MIGRATION, REGION, source._replace(node=to), Migration.of(REGION, source, to))


def test_uid_creation_time_and_unknown_fields_are_kept(editor: Editor) -> None:
    given = imported(endpoint(1), uid="u-1", creationTimestamp="2020-01-02T03:04:05Z")
    bring_in(editor, [given], who="alice", why="import")
    (stored,) = editor.objects(ENDPOINT)
    assert given.imported is not None
    assert msgspec.json.decode(stored.doc) == msgspec.json.decode(given.imported)
    assert editor.history(ENDPOINT, endpoint_name(1))[0].why == "import"


def test_an_endpoint_of_networking_calico_stays_the_same_however_it_is_spelled(engine: Engine) -> None:
    editor, layout = Editor(engine, HERE), RegionKeys(HERE, KINDS)
    value = VM_VALUE.replace(b"10.28.0.7/32", b"10.28.0.7").replace(b'"spec":{', b'"spec": {"newField": 1, ')
    thing = ENDPOINT.decode(VM_KEY, value)
    assert not isinstance(thing, Bad)
    bring_in(editor, [WantedObject(ENDPOINT, NAME.individual, thing, VM_KEY, 0, value)], who="alice", why="import")
    (stored,) = editor.objects(ENDPOINT)
    assert layout.same(Entry(VM_KEY, stored.doc), Entry(VM_KEY, value))
    assert b'"newField":1' in stored.doc


def test_an_object_without_a_uid_gets_none(editor: Editor) -> None:
    given = imported(endpoint(1))
    bring_in(editor, [given], who="alice", why="import")
    (stored,) = editor.objects(ENDPOINT)
    thing = ENDPOINT.decode(stored.key, stored.doc)
    assert given.imported is not None
    assert ENDPOINT.equals(stored.key, given.imported, thing)  # type: ignore[arg-type]
    assert b'"uid"' not in stored.doc


def test_a_migration_keeps_its_uid_and_its_source(editor: Editor) -> None:
    editor.change([host(1), host(2), endpoint(1)], who="alice")
    editor.change([migration(1, to="r2")], who="alice")
    (before,) = editor.objects(MIGRATION)
    editor.change([WantedObject(MIGRATION, endpoint_name(1))], who="alice")
    thing = MIGRATION.decode(before.key, before.doc)
    asked = WantedObject(MIGRATION, before.name, thing, before.key, 0, before.doc)  # type: ignore[arg-type]
    bring_in(editor, [asked], who="alice", why="import")
    assert editor.objects(MIGRATION)[0].doc == before.doc
    editor.change([WantedObject(MIGRATION, endpoint_name(1)), endpoint(1, on="r3")], who="alice")
    (refused,) = bring_in(editor, [asked], who="alice", why="import").refused
    assert refused[1] == (
        "migration holdfast-w1-eth0 comes from host r1, but its endpoint is on r3: end that migration"
    )


@pytest.mark.parametrize("batch", [3, 1_000])
def test_what_is_refused_is_named_and_costs_the_others_nothing(editor: Editor, batch: int) -> None:
    editor.change([endpoint(500, address="10.0.0.7/32")], who="alice")
    twice = endpoint(900, address="10.0.0.3/32")
    given = [imported(one) for one in (*map(endpoint, range(1, 12)), twice)]
    outcome = bring_in(editor, given, who="bob", why="import", batch=batch)
    assert [(request.name, why.partition(":")[0]) for request, why in outcome.refused] == [
        (endpoint_name(7), "endpoint holdfast-w7-eth0 cannot have 10.0.0.7"),
        (endpoint_name(900), "endpoint holdfast-w900-eth0 cannot have 10.0.0.3"),
    ]
    assert {edit.name for edit in outcome.edits} == {endpoint_name(n) for n in range(1, 12) if n != 7}
    assert len(editor.objects(ENDPOINT)) == 11


def test_requests_that_depend_on_later_ones_are_tried_again(editor: Editor) -> None:
    """In batches of one: the migration comes before its endpoint, and that before the host which it goes to."""
    given = [imported(one) for one in (moving(1, to="r2"), endpoint(1), host(2))]
    outcome = bring_in(editor, given, who="bob", why="import", batch=1)
    assert (outcome.refused, [edit.kind.name for edit in outcome.edits]) == ([], ["endpoint", "host", "migration"])


def test_addresses_can_be_swapped_and_a_host_goes_with_its_endpoint(editor: Editor) -> None:
    editor.change([host(1), endpoint(1), endpoint(2), endpoint(3)], who="alice")
    based = {one.name: one.revision for kind in (HOST, ENDPOINT) for one in editor.objects(kind)}
    swapped = [endpoint(1, on="r2", address="10.0.0.2/32"), endpoint(2, on="r2", address="10.0.0.1/32")]
    given: Sequence[WantedObject] = [
        WantedObject(ENDPOINT, endpoint_name(3), based_on=based[endpoint_name(3)]),
        *(replace(imported(one), based_on=based[one.name]) for one in swapped),
        WantedObject(HOST, "r1", based_on=based["r1"]),
    ]
    outcome = bring_in(editor, given, who="bob", why="adopt")
    assert (outcome.refused, len(outcome.edits)) == ([], 4)
    assert [edit.did for edit in outcome.edits][1:3] == [ChangeKind.MOVED] * 2


def test_an_edit_in_the_meantime_is_not_overwritten(editor: Editor) -> None:
    editor.change([endpoint(1, gateway="10.0.0.1")], who="alice")
    (refused,) = bring_in(editor, [imported(endpoint(1))], who="bob", why="import").refused
    assert "was changed in the meantime" in refused[1]


def test_a_repeated_import_changes_nothing(editor: Editor, inventory: SqlInventory) -> None:
    given = [replace(imported(endpoint(number)), based_on=None) for number in range(1, 4)]
    bring_in(editor, given, who="bob", why="import")
    assert bring_in(editor, given, who="bob", why="import").edits == []
    assert inventory.waiting() == 3


def test_a_rehearsal_says_the_same_and_changes_nothing(engine: Engine, editor: Editor, inventory: SqlInventory) -> None:
    editor.change([host(1), endpoint(500, address="10.0.0.7/32")], who="alice")
    before = inventory.revision()
    given = [imported(one) for one in (*map(endpoint, range(1, 12)), moving(1, to="r2"), host(2))]
    with scratch_copy(engine) as copy:
        would = bring_in(Editor(copy, REGION), given, who="bob", why="", batch=3)
    assert inventory.revision() == before
    did = bring_in(editor, given, who="bob", why="", batch=3)
    assert [why for _, why in would.refused] == [why for _, why in did.refused]
    assert {edit.name for edit in would.edits} == {edit.name for edit in did.edits}
    assert len(did.refused) == 1
