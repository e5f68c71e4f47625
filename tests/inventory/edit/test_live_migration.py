"""Live migrations in the inventory: their start, their end, and refusals."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.inventory.changes import ChangeKind, Edit, EditRefused, WantedObject, wanted
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.model.base.bad import Bad
from holdfast.model.base.kind import Kind
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointName, EndpointSpec
from holdfast.model.calico.host import HOST
from holdfast.model.calico.migration import MIGRATION, Migration
from tests.inventory.harness import REGION, endpoint, endpoint_key, endpoint_name, host, migration, migration_key

NAME = endpoint_name(1)


@pytest.fixture
def editor(editor: Editor) -> Editor:
    """One endpoint on r1, and three hosts."""
    editor.change([host(1), host(2), host(3), endpoint(1, on="r1")], who="alice")
    return editor


def under_way(editor: Editor) -> dict[str, tuple[str, str]]:
    """From where to where, by the name of the endpoint."""
    found: dict[str, tuple[str, str]] = {}
    for held in editor.objects(MIGRATION):
        thing = MIGRATION.decode(held.key, held.doc)
        assert not isinstance(thing, Bad)
        assert held.key == MIGRATION.key(REGION, thing.target)
        found[held.name] = thing.source.node, thing.target.node
    return found


def uid(editor: Editor) -> str:
    (held,) = editor.objects(MIGRATION)
    thing = MIGRATION.decode(held.key, held.doc)
    assert isinstance(thing, Migration)
    return thing.metadata.uid


def told(edits: Sequence[Edit]) -> list[tuple[str, str, str]]:
    return [(edit.kind.name, edit.did.value, edit.because) for edit in edits]


def test_a_migration_starts_on_the_host_of_its_endpoint(editor: Editor, inventory: SqlInventory) -> None:
    (edit,) = editor.change([migration(1, to="r2")], who="alice")
    assert edit.did is ChangeKind.CREATED
    assert under_way(editor) == {NAME: ("r1", "r2")}
    assert uid(editor)
    assert inventory.outbox(10)[-1][1:3] == (migration_key(1, to="r2"), None)


def test_a_migration_starts_where_the_same_batch_puts_its_endpoint(editor: Editor) -> None:
    editor.change([migration(1, to="r2"), endpoint(1, on="r3")], who="alice")
    assert under_way(editor) == {NAME: ("r3", "r2")}
    editor.change([endpoint(2, on="r1"), migration(2, to="r3"), host(4), migration(1, to="r4")], who="alice")
    assert under_way(editor) == {NAME: ("r3", "r4"), endpoint_name(2): ("r1", "r3")}


def test_requesting_a_running_migration_changes_nothing(editor: Editor) -> None:
    editor.change([migration(1, to="r2")], who="alice")
    assert editor.change([migration(1, to="r2"), endpoint(1, on="r1")], who="alice")[0].did is ChangeKind.UNCHANGED


def test_another_target_moves_the_one_migration_of_an_endpoint(editor: Editor, inventory: SqlInventory) -> None:
    editor.change([migration(1, to="r2")], who="alice")
    first = uid(editor)
    (edit,) = editor.change([migration(1, to="r3")], who="alice")
    assert edit.did is ChangeKind.MOVED
    assert inventory.outbox(10)[-1][1:3] == (migration_key(1, to="r3"), migration_key(1, to="r2"))
    assert under_way(editor) == {NAME: ("r1", "r3")}
    assert uid(editor) != first, "whoever was told that the first has arrived is told of this one, too"


def test_another_source_is_another_migration(editor: Editor) -> None:
    editor.change([migration(1, to="r2")], who="alice")
    first = uid(editor)
    edits = editor.change([migration(1, to="r2"), endpoint(1, on="r3")], who="alice")
    assert [edit.did for edit in edits] == [ChangeKind.CHANGED, ChangeKind.MOVED]
    assert under_way(editor) == {NAME: ("r3", "r2")}
    assert uid(editor) != first, "whoever was told that the first has arrived is told of this one, too"


def test_a_missing_endpoint_cannot_migrate(editor: Editor) -> None:
    with pytest.raises(
        EditRefused, match=r"endpoint holdfast-w2-eth0 is not in the inventory, so .*: apply it as well"
    ):
        editor.change([migration(2, to="r2")], who="alice")
    with pytest.raises(EditRefused, match="endpoint holdfast-w1-eth0 is not in the inventory"):
        editor.change([migration(1, to="r2"), WantedObject(ENDPOINT, NAME)], who="alice")
    assert under_way(editor) == {}


def test_no_endpoint_migrates_to_the_host_that_it_is_on(editor: Editor) -> None:
    with pytest.raises(EditRefused, match=r"holdfast-w1-eth0 is on r1, so it cannot migrate there: name another host"):
        editor.change([migration(1, to="r1")], who="alice")
    with pytest.raises(EditRefused, match="holdfast-w1-eth0 is on r2, so it cannot migrate there"):
        editor.change([endpoint(1, on="r2"), migration(1, to="r2")], who="alice")


def test_no_endpoint_migrates_to_a_missing_host(editor: Editor) -> None:
    words = r"migration holdfast-w1-eth0 goes to host r9, which is not in the inventory: apply that host as well"
    with pytest.raises(EditRefused, match=words):
        editor.change([migration(1, to="r9")], who="alice")
    with pytest.raises(EditRefused, match="goes to host r3, which is not in the inventory"):
        editor.change([migration(1, to="r3"), WantedObject(HOST, "r3")], who="alice")
    editor.change([migration(1, to="r9"), host(9)], who="alice")
    assert under_way(editor) == {NAME: ("r1", "r9")}


def test_the_target_of_a_migration_cannot_be_deleted(editor: Editor) -> None:
    editor.change([endpoint(2), migration(1, to="r2"), migration(2, to="r2")], who="alice")
    words = r"host r2 is the target of migrations \(holdfast-w1-eth0 and 1 more\): delete or redirect them first"
    with pytest.raises(EditRefused, match=words):
        editor.change([WantedObject(HOST, "r2")], who="alice")
    editor.change([WantedObject(HOST, "r2"), WantedObject(MIGRATION, NAME), migration(2, to="r3")], who="alice")
    assert under_way(editor) == {endpoint_name(2): ("r1", "r3")}


def test_a_host_with_endpoints_and_migrations_to_it_names_the_endpoints(editor: Editor) -> None:
    editor.change([endpoint(2, on="r2"), migration(1, to="r2")], who="alice")
    with pytest.raises(EditRefused, match=r"host r2 has endpoints \(holdfast-w2-eth0\): move or delete them first"):
        editor.change([WantedObject(HOST, "r2")], who="alice")


def test_a_migration_ends_when_its_endpoint_arrives(editor: Editor, inventory: SqlInventory) -> None:
    editor.change([migration(1, to="r2")], who="alice")
    edits = editor.change([endpoint(1, on="r2")], who="bob", why="cut over")
    assert told(edits) == [("endpoint", "moved", ""), ("migration", "deleted", "the endpoint is on r2 now")]
    assert under_way(editor) == {}
    assert {row.key for row in inventory.outbox(10)[-2:]} == {endpoint_key(1, on="r2"), migration_key(1, to="r2")}
    (last, *_) = editor.history(MIGRATION, NAME)
    assert (last.new, last.who, last.why) == (None, "bob", "the endpoint is on r2 now; cut over")


def test_moving_an_endpoint_changes_only_its_host_and_ends_its_migration(editor: Editor) -> None:
    editor.change([endpoint(1, on="r1", gateway="10.0.0.254"), migration(1, to="r2")], who="alice")
    edits = editor.move(NAME, "r2", who="bob", why="cut over")
    assert told(edits) == [("endpoint", "moved", ""), ("migration", "deleted", "the endpoint is on r2 now")]
    (now,) = editor.objects(ENDPOINT, NAME)
    moved = ENDPOINT.decode(now.key, now.doc)
    assert isinstance(moved, Endpoint)
    assert (now.key, moved.spec.node, moved.spec.ipv4_gateway) == (endpoint_key(1, on="r2"), "r2", "10.0.0.254")
    assert under_way(editor) == {}


def test_a_moved_endpoint_keeps_its_uid_and_labels(editor: Editor) -> None:
    spec = EndpointSpec(
        orchestrator="holdfast", workload="w7", node="r1", endpoint="eth0", ip_networks=("10.9.9.9/32",)
    )
    labelled = Endpoint.of(REGION, spec, labels={"rack": "12"}, annotations={"by": "hand"})
    editor.change([wanted(ENDPOINT, REGION, spec.name, labelled)], who="alice")
    (before,) = editor.objects(ENDPOINT, endpoint_name(7))
    editor.move(endpoint_name(7), "r2", who="bob")
    (after,) = editor.objects(ENDPOINT, endpoint_name(7))
    old, new = ENDPOINT.decode(before.key, before.doc), ENDPOINT.decode(after.key, after.doc)
    assert isinstance(old, Endpoint)
    assert isinstance(new, Endpoint)
    assert replace(new.metadata, name=old.metadata.name) == old.metadata


def test_moving_to_the_same_host_or_in_a_dry_run_changes_nothing(editor: Editor) -> None:
    assert told(editor.move(NAME, "r1", who="bob")) == [("endpoint", "unchanged", "")]
    assert told(editor.move(NAME, "r2", who="bob", dry_run=True)) == [("endpoint", "moved", "")]
    assert [held.key for held in editor.objects(ENDPOINT, NAME)] == [endpoint_key(1, on="r1")]


def test_a_move_needs_an_existing_endpoint_and_host(editor: Editor) -> None:
    with pytest.raises(EditRefused, match="there is no endpoint holdfast-w9-eth0 in the inventory"):
        editor.move(endpoint_name(9), "r2", who="bob")
    with pytest.raises(
        EditRefused, match="host r9 is not in the inventory, so endpoint holdfast-w1-eth0 cannot move there"
    ):
        editor.move(NAME, "r9", who="bob")


def test_a_migration_ends_when_its_endpoint_moves_elsewhere(editor: Editor) -> None:
    editor.change([migration(1, to="r2")], who="alice")
    (_, edit) = editor.change([endpoint(1, on="r3")], who="bob")
    assert edit.because == "the endpoint is on r3 now, so it no longer migrates to r2"
    assert under_way(editor) == {}


def test_a_migration_ends_when_its_endpoint_is_deleted(editor: Editor) -> None:
    editor.change([migration(1, to="r2")], who="alice")
    edits = editor.change([WantedObject(ENDPOINT, NAME)], who="bob")
    assert told(edits) == [("endpoint", "deleted", ""), ("migration", "deleted", "the endpoint is gone")]
    assert under_way(editor) == {}


def test_a_host_can_be_deleted_in_the_batch_that_moves_its_last_endpoint(editor: Editor) -> None:
    editor.change([migration(1, to="r2")], who="alice")
    editor.change([endpoint(1, on="r2"), WantedObject(HOST, "r1")], who="alice")
    assert under_way(editor) == {}


def test_an_endpoint_that_changes_on_its_host_keeps_its_migration(editor: Editor) -> None:
    editor.change([migration(1, to="r2")], who="alice")
    before = uid(editor)
    (edit,) = editor.change([endpoint(1, on="r1", gateway="10.0.0.254")], who="bob")
    assert edit.did is ChangeKind.CHANGED
    assert (under_way(editor), uid(editor)) == ({NAME: ("r1", "r2")}, before)


@pytest.fixture
def of_old(editor: Editor, monkeypatch: pytest.MonkeyPatch) -> Editor:
    """The endpoint is on its way to r2, and then an editor that knows of no migrations has put it there."""
    editor.change([migration(1, to="r2")], who="alice")
    with monkeypatch.context() as patched:
        patched.setattr("holdfast.inventory.edit.live_migration.ended", lambda _connection, _edits: [])
        editor.change([endpoint(1, on="r2")], who="an older version")
    assert under_way(editor) == {NAME: ("r1", "r2")}
    return editor


@pytest.mark.parametrize(("gateway", "did"), [("", "unchanged"), ("10.0.0.254", "changed")])
def test_a_migration_that_an_older_version_left_ends_with_the_next_edit_of_its_endpoint(
    of_old: Editor, gateway: str, did: str
) -> None:
    edits = of_old.change([endpoint(1, on="r2", gateway=gateway)], who="bob")
    assert told(edits) == [("endpoint", did, ""), ("migration", "deleted", "the endpoint is on r2 now")]
    assert under_way(of_old) == {}


def test_a_dry_run_shows_ending_migrations_and_ends_none(editor: Editor) -> None:
    editor.change([migration(1, to="r2")], who="alice")
    edits = editor.change([endpoint(1, on="r2")], who="bob", dry_run=True)
    assert [edit.kind for edit in edits] == [ENDPOINT, MIGRATION]
    assert under_way(editor) == {NAME: ("r1", "r2")}


def test_undoing_a_move_does_not_restore_the_migration_but_undoing_its_end_does(editor: Editor) -> None:
    editor.change([migration(1, to="r2")], who="alice")
    first = uid(editor)
    editor.change([endpoint(1, on="r2")], who="alice")
    editor.undo(ENDPOINT, NAME, who="bob")
    assert under_way(editor) == {}
    editor.undo(MIGRATION, NAME, who="bob")
    assert under_way(editor) == {NAME: ("r1", "r2")}
    assert uid(editor) != first, "it begins anew"


def test_an_arrived_migration_is_not_restored(editor: Editor) -> None:
    editor.change([migration(1, to="r2")], who="alice")
    editor.change([endpoint(1, on="r2")], who="alice")
    with pytest.raises(EditRefused, match="holdfast-w1-eth0 is on r2, so it cannot migrate there"):
        editor.undo(MIGRATION, NAME, who="bob")


def test_a_restored_migration_starts_where_the_endpoint_is_now(editor: Editor) -> None:
    editor.change([migration(1, to="r2")], who="alice")
    editor.change([endpoint(1, on="r3")], who="alice")
    editor.undo(MIGRATION, NAME, who="bob")
    assert under_way(editor) == {NAME: ("r3", "r2")}


def test_undoing_a_move_ends_a_migration_that_started_after_it(editor: Editor) -> None:
    editor.change([endpoint(1, on="r2")], who="alice")
    editor.change([migration(1, to="r3")], who="alice")
    edits = editor.undo(ENDPOINT, NAME, who="bob")
    assert told(edits)[1:] == [("migration", "deleted", "the endpoint is on r1 now, so it no longer migrates to r3")]
    assert under_way(editor) == {}


def test_undo_of_a_start_cancels_and_undo_of_a_cancellation_starts_again(editor: Editor) -> None:
    editor.change([migration(1, to="r2")], who="alice")
    editor.undo(MIGRATION, NAME, who="bob")
    assert under_way(editor) == {}
    editor.undo(MIGRATION, NAME, who="bob")
    assert under_way(editor) == {NAME: ("r1", "r2")}


def test_undo_of_another_target_goes_back_to_the_first(editor: Editor) -> None:
    editor.change([migration(1, to="r2")], who="alice")
    editor.change([migration(1, to="r3")], who="alice")
    editor.undo(MIGRATION, NAME, who="bob")
    assert under_way(editor) == {NAME: ("r1", "r2")}


def test_a_restored_endpoint_has_no_migration(editor: Editor) -> None:
    editor.change([migration(1, to="r2")], who="alice")
    editor.change([WantedObject(ENDPOINT, NAME)], who="alice")
    editor.undo(ENDPOINT, NAME, who="bob")
    assert under_way(editor) == {}


def test_a_migration_of_another_region_is_refused(editor: Editor) -> None:
    target = EndpointName("r2", "holdfast", "w1", "eth0")
    abroad = wanted(MIGRATION, Region("ams"), target, Migration.of(Region("ams"), target, "r2"))
    with pytest.raises(EditRefused, match="migration holdfast-w1-eth0 belongs to another region"):
        editor.change([abroad], who="alice")


def test_concurrent_edits_never_leave_a_migration_without_its_endpoint(editor: Editor) -> None:
    """Two that are right alone and wrong together are made one after the other."""

    def begin(turn: int) -> bool:
        return _succeeds(editor, [migration(1, to=f"r{2 + turn % 2}")])

    def put(turn: int) -> bool:
        return _succeeds(editor, [endpoint(1, on=f"r{1 + turn % 3}")])

    def draw(turn: int) -> bool:
        return _succeeds(editor, [WantedObject(HOST, "r3")] if turn % 2 else [host(3)])

    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(what, turn) for turn in range(8) for what in (begin, put, draw)]
        assert any(one.result(60) for one in done)
    _check(editor)


def _succeeds(editor: Editor, changes: Sequence[WantedObject]) -> bool:
    try:
        editor.change(changes, who="somebody")
    except EditRefused:
        return False
    return True


def _check(editor: Editor) -> None:
    """What is true at any time: a migration starts where its endpoint is, and goes to another host that is there."""
    homes = {held.name: ENDPOINT.parse(held.key, REGION) for held in editor.objects(ENDPOINT)}
    hosts = {held.name for held in editor.objects(HOST)}
    for name, (source, target) in under_way(editor).items():
        home = homes.get(name)
        assert isinstance(home, EndpointName)
        assert home.node == source != target
        assert target in hosts


numbers, hosts = st.integers(1, 3), st.integers(1, 3)
changes = st.one_of(
    st.builds(lambda number, to: migration(number, to=f"r{to}"), numbers, hosts),
    st.builds(lambda number, on: endpoint(number, on=f"r{on}"), numbers, hosts),
    st.builds(lambda number: WantedObject(MIGRATION, endpoint_name(number)), numbers),
    st.builds(lambda number: WantedObject(ENDPOINT, endpoint_name(number)), numbers),
    st.builds(host, hosts),
    st.builds(lambda number: WantedObject(HOST, f"r{number}"), hosts),
)
undone = st.tuples(st.sampled_from([ENDPOINT, MIGRATION]), numbers)
requests = st.lists(changes, min_size=1, max_size=4, unique_by=lambda change: (change.kind.name, change.name))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(requests | undone, max_size=12))
def test_after_any_requests_a_migration_starts_on_the_host_of_its_endpoint(
    editor: Editor, asked: list[list[WantedObject] | tuple[Kind[Any, Any], int]]
) -> None:
    for one in asked:
        try:
            if isinstance(one, list):
                editor.change(one, who="alice")
            else:
                editor.undo(one[0], endpoint_name(one[1]), who="alice")
        except EditRefused:
            continue
        _check(editor)
