"""Schema migrations keep all content of an inventory of the first version."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import Engine, inspect, text

from holdfast.inventory import migrations
from holdfast.inventory.api import DatabaseAway, Fence, ObservedRow
from holdfast.inventory.changes import ChangeKind, EditRefused
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.sql.engine import database_url, open_engine
from holdfast.inventory.sql.migrate import migrate
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.inventory.sql.observed import SqlObserved
from holdfast.model.calico.endpoint import ENDPOINT
from tests.inventory.harness import REGION, endpoint, endpoint_name

_ROW = "INSERT INTO objects (key, kind, name, doc, revision, host) VALUES (:key, 'endpoint', :name, :doc, 1, 'r1')"


def test_objects_of_the_first_schema_stay_without_a_network(address: str) -> None:
    engine = open_engine(database_url(address))
    wish = endpoint(1)
    assert wish.thing is not None
    try:
        migrate(engine, to="0001")
        with engine.begin() as connection:
            row = {"key": wish.key, "name": wish.name, "doc": ENDPOINT.encode(wish.thing)}  # type: ignore[arg-type]
            connection.execute(text(_ROW), row)
        migrate(engine)
        inventory, editor = SqlInventory(engine), Editor(engine, REGION)
        assert inventory.networks() == {"": 1}
        assert [one.name for one in editor.objects(ENDPOINT)] == [endpoint_name(1)]
        assert editor.change([wish], who="alice")[0].did is ChangeKind.UNCHANGED
    finally:
        engine.dispose()


def test_observed_rows_survive_the_migration(address: str) -> None:
    engine, fence = open_engine(database_url(address)), Fence("r", 1, 1)
    at = datetime(2026, 11, 1, 12, tzinfo=UTC)
    try:
        migrate(engine, to="0002")
        SqlInventory(engine).raise_fence(fence)
        SqlObserved(engine).write(fence, "agent", {b"{}": [b"/b", b"/a"]}, (), at)
        migrate(engine)
        observed = SqlObserved(engine)
        assert observed.read("agent", b"/", None, 10) == [ObservedRow(b"/a", b"{}", at), ObservedRow(b"/b", b"{}", at)]
        if engine.dialect.name == "sqlite":
            with engine.connect() as connection:
                made = connection.execute(text("SELECT sql FROM sqlite_master WHERE name = 'observed'")).scalar_one()
            assert "WITHOUT ROWID" in made
        observed.write(fence, "agent", {b"[]": [b"/b"]}, [b"/a"], at)
        assert observed.read("agent", b"/", None, 10) == [ObservedRow(b"/b", b"[]", at)]
    finally:
        engine.dispose()


_OLD_CHANGE = text(
    "INSERT INTO changes (revision, kind, name, old_key, old, new, who, why, at) "
    "VALUES (:revision, :kind, :name, :old_key, :old, :new, 'alice', '', :at)"
)
_OLD_HISTORY: tuple[tuple[str, bytes | None, bytes | None], ...] = (
    # name, key before, document after; revisions count from 1
    ("moved", None, b"1"),
    ("moved", b"/r1-moved", b"2"),
    ("moved", b"/r2-moved", b"3"),
    ("gone", None, b"1"),
    ("gone", b"/r1-gone", b"2"),
    ("gone", b"/r1-gone", None),
    ("again", None, b"1"),
    ("again", b"/r1-again", None),
    ("again", None, b"2"),
    ("lost", None, b"1"),
    ("lost", b"/r1-lost", b"2"),
)
_NEW_KEYS = (
    *(b"/r1-moved", b"/r2-moved", b"/r3-moved"),
    *(b"/r1-gone", b"/r1-gone", None),
    *(b"/r1-again", None, b"/r4-again"),
    *(b"/r1-lost", b"/r1-lost"),
)


def test_changes_recorded_before_the_upgrade_get_their_new_keys(address: str) -> None:
    """`moved` is on r3 now, `gone` was deleted, `again` deleted and created elsewhere, `lost` deleted by raw SQL."""
    engine = open_engine(database_url(address))
    try:
        migrate(engine, to="0003")
        with engine.begin() as connection:
            for revision, (name, old_key, new) in enumerate(_OLD_HISTORY, start=1):
                old = b"0" if old_key else None
                row = {"revision": revision, "kind": "endpoint", "name": name, "old_key": old_key}
                row |= {"old": old, "new": new}
                at = datetime(2026, 11, 1, 12, tzinfo=UTC)
                connection.execute(_OLD_CHANGE.bindparams(at=at), row)
                namesake = row | {"revision": revision + 100, "kind": "host"}
                connection.execute(_OLD_CHANGE.bindparams(at=at), namesake)
            for key, name in ((b"/r3-moved", "moved"), (b"/r4-again", "again")):
                connection.execute(text(_ROW), {"key": key, "name": name, "doc": b"{}"})
        migrate(engine)
        with engine.connect() as connection:
            query = text("SELECT new_key FROM changes WHERE kind = 'endpoint' ORDER BY revision")
            assert tuple(connection.execute(query).scalars()) == _NEW_KEYS
        keys = {key for _, key, _ in _OLD_HISTORY if key} | {b"/r3-moved", b"/r4-again"}
        with engine.begin() as connection:
            connection.execute(text("DELETE FROM changes WHERE kind = 'host'"))
        found = SqlInventory(engine).witness(keys)
        assert {key: one.moved_to for key, one in found.items()} == {
            b"/r1-moved": b"/r2-moved",
            b"/r2-moved": b"/r3-moved",
            b"/r1-gone": None,
            b"/r1-again": None,
        }
    finally:
        engine.dispose()


def columns(engine: Engine) -> Mapping[tuple[str, str], tuple[str, bool, bool]]:
    """Type of every column, whether it may be null, and whether a row can be written without it."""
    shown = inspect(engine)
    return {
        (table, column["name"]): (
            str(column["type"]),
            column["nullable"],
            column["nullable"] or column["default"] is not None,
        )
        for table in shown.get_table_names()
        for column in shown.get_columns(table)
    }


def test_every_step_only_adds_so_that_the_version_before_reads_and_writes_on(address: str) -> None:
    """A table may be added with any columns. What was there keeps its name, its type and whether it may be null; a new
    column of an old table can be left out of an INSERT."""
    steps = sorted(path.name[:4] for path in Path(migrations.__path__[0]).glob("versions/0*.py"))
    assert len(steps) > 5
    engine = open_engine(database_url(address))
    seen = {}
    try:
        for step in steps:
            migrate(engine, to=step)
            seen[step] = columns(engine)
    finally:
        engine.dispose()
    for before, after in pairwise(steps):
        kept = {name: seen[after].get(name) for name in seen[before]}
        assert kept == seen[before], f"{after} takes away what {before} has"
        old_tables = {table for table, _ in seen[before]}
        added = {name: shape for name, shape in seen[after].items() if name not in seen[before]}
        assert [
            name for name, (_, _, can_be_left_out) in added.items() if name[0] in old_tables and not can_be_left_out
        ] == []


def test_tables_of_an_earlier_version_raise_database_away_with_the_fix(address: str) -> None:
    engine = open_engine(database_url(address))
    try:
        migrate(engine, to="0001")
        with pytest.raises(DatabaseAway, match="from an earlier version: run holdfast inventory init"):
            SqlInventory(engine).networks()
    finally:
        engine.dispose()


def test_tables_of_a_newer_version_are_not_changed(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(EditRefused, match=r"the tables are from a newer version, so nothing was changed: .*9999"):
        migrate(engine)
