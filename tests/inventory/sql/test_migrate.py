"""Schema migrations keep all content of an inventory of the first version."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from sqlalchemy import Engine, text

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
