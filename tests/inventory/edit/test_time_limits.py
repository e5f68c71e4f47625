"""Editors have time limits of their own, and say which one was reached."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine

from holdfast.inventory.edit import editor as module
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.edit.importing import bring_in
from holdfast.inventory.edit.transaction import EditTimedOut, EditTimeouts, editing
from holdfast.inventory.sql.engine import DatabaseTimeouts, database_url, open_engine
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.model.base.time import Duration, seconds
from holdfast.model.calico.host import HOST
from holdfast.testing.fakes.inventory import fresh_engine
from holdfast.testing.fault import fault
from holdfast.testing.real.postgres import Postgres
from tests.inventory.harness import REGION, host

LEADERS = DatabaseTimeouts(wait=Duration(milliseconds=200), idle=Duration(milliseconds=200))
SOON = Duration(milliseconds=200)


@pytest.fixture
def hurried(postgres: Postgres) -> Iterator[Engine]:
    """Sessions with the time limits of a leader, but short ones; the tables are created without haste."""
    address = postgres.create_database()
    with fresh_engine(address):
        made = open_engine(database_url(address), LEADERS)
    try:
        yield made
    finally:
        made.dispose()


def thinking(monkeypatch: pytest.MonkeyPatch, for_s: float) -> None:
    """Let each object of an edit take that long to plan, inside the transaction."""
    decide = module._decide

    def slowly(*args: Any) -> Any:
        time.sleep(for_s)
        return decide(*args)

    monkeypatch.setattr(module, "_decide", slowly)


@fault(
    "C58",
    without="holdfast.inventory.edit.transaction:set_limits",
    sees=(EditTimedOut, r"the edit stood still for more than \d+ s and the database"),
)
def test_C58_an_edit_outlasts_the_time_limits_of_leaders(hurried: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = Editor(hurried, REGION)
    thinking(monkeypatch, 0.8)
    editor.change([host(1)], who="alice", dry_run=True)
    editor.change([host(1)], who="alice")
    assert len(editor.objects(HOST)) == 1


@fault(
    "C58",
    without="holdfast.inventory.edit.transaction:set_limits",
    sees=(EditTimedOut, r"the database took more than \d+ s for one statement, so"),
)
def test_C58_an_edit_waits_for_a_long_one(hurried: Engine) -> None:
    editor, second = Editor(hurried, REGION), Editor(hurried, REGION)
    with ThreadPoolExecutor(1) as thread, editing(hurried, EditTimeouts()) as first:
        # On a busy machine the loop below may stand still for longer than a leader's session may.
        first.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
        waiting = thread.submit(second.change, [host(2)], who="bob")
        deadline = time.monotonic() + 0.8
        while time.monotonic() < deadline:
            first.exec_driver_sql("SELECT 1")
            time.sleep(0.05)
    waiting.result()
    assert [one.name for one in editor.objects(HOST)] == ["r2"]


def test_the_leaders_own_limits_stay(hurried: Engine) -> None:
    Editor(hurried, REGION).change([host(1)], who="alice")
    with hurried.connect() as connection:
        found = connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar_one()
    assert found == "200ms"


def test_an_edit_that_waits_too_long_for_another_says_so(engine: Engine, inventory: SqlInventory) -> None:
    editor = Editor(engine, REGION, EditTimeouts(lock=SOON))
    too_long = pytest.raises(EditTimedOut, match=r"another edit has been running for 0\.2 s")
    with editing(engine, EditTimeouts()), too_long:
        editor.change([host(1)], who="alice")
    assert inventory.waiting() == 0
    editor.change([host(1)], who="alice")


def test_an_import_that_waits_too_long_is_not_repeated_object_by_object(engine: Engine) -> None:
    editor = Editor(engine, REGION, EditTimeouts(lock=SOON))
    with editing(engine, EditTimeouts()), pytest.raises(EditTimedOut):
        bring_in(editor, [host(1), host(2)], who="alice", why="", progress=lambda _done: None)


def test_an_edit_that_stands_still_too_long_says_so(postgres_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = Editor(postgres_engine, REGION, EditTimeouts(idle=SOON))
    thinking(monkeypatch, 1)
    with pytest.raises(EditTimedOut, match=r"stood still for more than 0\.2 s .* apply fewer objects at once"):
        editor.change([host(1)], who="alice")
    assert Editor(postgres_engine, REGION).objects(HOST) == []


def test_a_statement_that_takes_too_long_says_so(postgres_engine: Engine) -> None:
    limits = EditTimeouts(statement=SOON, lock=seconds(20))
    with (
        pytest.raises(EditTimedOut, match=r"more than 0\.2 s for one statement"),
        editing(postgres_engine, limits) as connection,
    ):
        connection.exec_driver_sql("SELECT pg_sleep(5)")
