"""Revisions come from a counter inside the transaction of an edit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, delete, insert, text

from holdfast.inventory.changes import EditRefused, WantedObject
from holdfast.inventory.edit import editor as module
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.sql.engine import database_url, open_engine, writing
from holdfast.inventory.sql.migrate import migrate
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.inventory.sql.schema import CHANGES, OUTBOX
from holdfast.model.calico.host import HOST
from tests.inventory.harness import REGION, host


def test_an_edit_that_is_rolled_back_leaves_no_gap(
    editor: Editor, inventory: SqlInventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_args: object) -> None:
        raise EditRefused("after its rows were written")

    editor.change([host(1)], who="alice")
    with monkeypatch.context() as patched:
        patched.setattr(module, "_addresses", failing)
        with pytest.raises(EditRefused):
            editor.change([host(2), host(3)], who="alice")
    assert inventory.revision() == 1
    assert [edit.revision for edit in editor.change([host(4), host(5)], who="alice")] == [2, 3]
    assert inventory.revision() == 3


def test_concurrent_edits_get_revisions_in_the_order_of_their_commits(engine: Engine, inventory: SqlInventory) -> None:
    def one(number: int) -> int:
        return Editor(engine, REGION).change([host(number), host(100 + number)], who="alice")[1].revision

    with ThreadPoolExecutor(4) as editors:
        revisions = list(editors.map(one, range(1, 25)))
    assert sorted(revisions) == list(range(2, 49, 2))
    assert [row.id for row in inventory.outbox(100)] == list(range(1, 49))
    assert inventory.revision() == 48


def test_the_revision_of_a_pruned_change_is_not_given_out_again(editor: Editor, engine: Engine) -> None:
    editor.change([host(1)], who="alice")
    (gone,) = editor.change([WantedObject(HOST, "r1")], who="alice")
    with writing(engine) as connection:
        connection.execute(delete(CHANGES))
        connection.execute(delete(OUTBOX))
    assert SqlInventory(engine).revision() == gone.revision
    assert editor.change([host(2)], who="alice")[0].revision == gone.revision + 1


def test_a_copy_of_the_database_without_its_sequences_can_be_edited(postgres_engine: Engine) -> None:
    editor = Editor(postgres_engine, REGION)
    editor.change([host(1), host(2)], who="alice")
    with writing(postgres_engine) as connection:
        connection.execute(text("ALTER SEQUENCE outbox_id_seq RESTART"))  # as after a logical replica was promoted
    assert editor.change([host(3)], who="alice")[0].revision == 3


def test_an_upgrade_goes_on_from_the_highest_number_that_was_given_out(address: str) -> None:
    engine = open_engine(database_url(address))
    migrate(engine, "0005")
    _insert_as_before(engine, b"a", b"b", b"c")
    with writing(engine) as connection:
        connection.execute(delete(OUTBOX))
    migrate(engine)
    assert Editor(engine, REGION).change([host(1)], who="alice")[0].revision == 4
    engine.dispose()


def test_edits_of_the_last_version_and_of_this_one_alternate(editor: Editor, engine: Engine) -> None:
    editor.change([host(1), host(2)], who="alice")
    assert _insert_as_before(engine, b"x") == [3]
    assert editor.change([host(3)], who="alice")[0].revision == 4
    assert _insert_as_before(engine, b"y", b"z") == [5, 6]
    assert SqlInventory(engine).revision() == 6


def _insert_as_before(engine: Engine, *keys: bytes) -> list[int]:
    """Insert changes as the last version does: their revisions are the ids that the outbox gives out."""
    with writing(engine) as connection:
        rows = [{"key": key} for key in keys]
        made = insert(OUTBOX).returning(OUTBOX.c.id, sort_by_parameter_order=True)
        ids = list(connection.execute(made, rows).scalars())
        past = {"kind": "host", "name": "r", "who": "old", "why": "", "at": text("CURRENT_TIMESTAMP")}
        for number in ids:
            connection.execute(insert(CHANGES).values(revision=number, **past))
    return ids
