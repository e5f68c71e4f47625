"""The leader's side of the inventory: snapshots, the outbox, the schema, and wake-ups."""

from __future__ import annotations

import asyncio
import itertools
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, text

from holdfast.inventory.api import DatabaseAway, Fence
from holdfast.inventory.changes import WantedObject
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.sql.engine import DatabaseTimeouts, database_url, open_engine, reading
from holdfast.inventory.sql.migrate import migrate
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.inventory.sql.schema import METADATA
from holdfast.inventory.sql.wake import waker
from holdfast.model.base.time import Duration, seconds
from holdfast.model.calico.host import HOST
from holdfast.testing.fakes.inventory import fresh_engine
from holdfast.testing.real.postgres import Postgres
from tests.inventory.harness import REGION, endpoint, endpoint_key, host, subnet

FENCE = Fence("no-region", 1, 7)


def test_a_snapshot_does_not_see_later_changes(editor: Editor, inventory: SqlInventory) -> None:
    editor.change([host(number) for number in range(1, 5)], who="alice")
    snapshot = inventory.snapshot()
    first = snapshot.read(None, 2)
    editor.change([host(9), host(4, last=44)], who="alice")
    rest = snapshot.read(first[-1].key, 10)
    snapshot.close()
    assert [row.revision for row in (*first, *rest)] == [1, 2, 3, 4]
    assert snapshot.revision() == 4


def test_keys_come_in_the_order_of_their_bytes(editor: Editor, inventory: SqlInventory) -> None:
    numbers = [7, 10, 2, 100, 1]
    editor.change(
        [endpoint(n, on=f"R{n}") for n in numbers] + [endpoint(n + 200, on=f"ä{n}") for n in numbers], who="a"
    )
    editor.change([subnet("red", "10.0.0.0/8"), host(1)], who="alice")
    snapshot = inventory.snapshot()
    keys = [row.key for row in snapshot.read(None, 100)]
    snapshot.close()
    assert len(keys) == 12
    assert keys == sorted(keys)


def test_a_database_without_tables_raises_database_away_with_the_fix(address: str) -> None:
    engine = open_engine(database_url(address))
    with pytest.raises(DatabaseAway, match="run holdfast inventory init"):
        SqlInventory(engine).outbox(1)
    with pytest.raises(DatabaseAway, match="run holdfast inventory init"):
        SqlInventory(engine).snapshot()
    engine.dispose()


def test_migrating_twice_gives_the_schema(engine: Engine) -> None:
    migrate(engine)
    with reading(engine) as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []


def test_settling_removes_exactly_those_rows(editor: Editor, inventory: SqlInventory) -> None:
    inventory.raise_fence(FENCE)
    editor.change([host(1), host(2), host(3)], who="alice")
    first, second, third = inventory.outbox(10)
    inventory.settle(FENCE, [first.id, third.id])
    assert inventory.outbox(10) == [second]
    assert inventory.waiting() == 1


def test_the_id_of_a_settled_row_is_never_reused(editor: Editor, inventory: SqlInventory) -> None:
    inventory.raise_fence(FENCE)
    (first,) = editor.change([host(1)], who="alice")
    inventory.settle(FENCE, [first.revision])
    (second,) = editor.change([host(2)], who="alice")
    assert second.revision > first.revision


def test_the_fleet_id_is_set_once(inventory: SqlInventory) -> None:
    inventory.raise_fence(FENCE)
    assert inventory.fleet() is None
    inventory.name_fleet(FENCE, "f1")
    inventory.name_fleet(FENCE, "f2")
    assert inventory.fleet() == "f1"


def test_pruning_deletes_old_history_and_nothing_else(editor: Editor, inventory: SqlInventory) -> None:
    inventory.raise_fence(FENCE)
    (made,) = editor.change([host(1)], who="alice")
    inventory.settle(FENCE, [made.revision])
    list(inventory.prune_history(FENCE, datetime.now(UTC) - timedelta(days=1)))
    assert len(editor.history(HOST, "r1")) == 1
    list(inventory.prune_history(FENCE, datetime.now(UTC) + timedelta(days=1)))
    assert editor.history(HOST, "r1") == []
    assert len(editor.objects(HOST)) == 1


def test_pruning_keeps_the_history_of_keys_that_are_held_or_in_the_outbox(
    editor: Editor, inventory: SqlInventory
) -> None:
    inventory.raise_fence(FENCE)
    editor.change([host(1), host(2), host(3)], who="alice")
    editor.change([WantedObject(HOST, f"r{n}") for n in (1, 2, 3)], who="alice")
    keys = [HOST.key(REGION, f"r{n}") for n in (1, 2, 3)]
    inventory.settle(FENCE, [one.id for one in inventory.outbox(100) if one.key != keys[0]])
    list(inventory.prune_history(FENCE, datetime.now(UTC) + timedelta(days=1), held=[keys[1]]))
    assert set(inventory.witness(keys)) == {keys[0], keys[1]}
    assert [len(editor.history(HOST, f"r{n}")) for n in (1, 2, 3)] == [2, 2, 0]


def test_a_witness_says_who_and_when(editor: Editor, inventory: SqlInventory) -> None:
    editor.change([host(1)], who="alice")
    (gone,) = editor.change([WantedObject(HOST, "r1")], who="bob")
    found = inventory.witness([gone.key])[gone.key]
    assert (found.revision, found.who, found.moved_to) == (gone.revision, "bob", None)
    assert found.at is not None
    assert abs(datetime.now(UTC) - found.at) < timedelta(minutes=1)


def test_a_change_wakes_the_waiter(editor: Editor, engine: Engine) -> None:
    async def scenario() -> float:
        ear = waker(engine)
        await ear.wait(Duration(milliseconds=300))  # listens from here on
        began = time.monotonic()
        hearing = asyncio.create_task(ear.wait(seconds(60)))
        for number in itertools.count(1):  # it may have begun to listen only after the first of them
            await asyncio.to_thread(editor.change, [endpoint(number)], who="alice")
            if (await asyncio.wait({hearing}, timeout=1))[0]:
                break
        await ear.close()
        return time.monotonic() - began

    assert asyncio.run(scenario()) < 30, "long before the poll"


def test_waiting_ends_after_its_timeout(engine: Engine) -> None:
    async def scenario() -> None:
        ear = waker(engine)
        async with asyncio.timeout(30):
            await ear.wait(Duration(milliseconds=50))
        await ear.close()

    asyncio.run(scenario())


def test_a_waker_waits_for_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    """A server starts all the same, and says what it waits for."""
    (tmp_path / "file").write_text("no folder")
    engine = open_engine(database_url(f"sqlite:///{tmp_path}/file/inventory.db"))

    async def scenario() -> None:
        ear = waker(engine)
        async with asyncio.timeout(30):
            await ear.wait(Duration(milliseconds=50))
        await ear.close()

    asyncio.run(scenario())
    with pytest.raises(DatabaseAway, match="its file does not exist, or may not be opened"):
        SqlInventory(engine).fleet()


def test_a_file_that_is_not_a_database_raises_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "inventory.db").write_bytes(b"rubbish" * 1_000)
    engine = open_engine(database_url(f"sqlite:///{tmp_path}/inventory.db"))
    with pytest.raises(DatabaseAway, match="file is not a database"):
        SqlInventory(engine).fleet()


def test_a_read_only_database_raises_database_away(postgres: Postgres) -> None:
    with fresh_engine(postgres.create_database()) as engine:
        with engine.begin() as connection:
            connection.execute(text(f"ALTER DATABASE {engine.url.database} SET default_transaction_read_only = on"))
        engine.dispose()
        with pytest.raises(DatabaseAway, match="read-only transaction"):
            Editor(engine, REGION).change([host(1)], who="alice")


def test_a_database_without_privileges_raises_database_away(postgres: Postgres) -> None:
    address = postgres.create_database()
    with fresh_engine(address) as engine, engine.begin() as connection:
        connection.execute(text("CREATE ROLE mortal LOGIN"))
    engine = open_engine(database_url(address.replace("holdfast@", "mortal@")))
    with pytest.raises(DatabaseAway, match="permission denied"):
        SqlInventory(engine).fleet()
    engine.dispose()


def test_a_lost_session_ends_only_the_snapshot(postgres_engine: Engine) -> None:
    inventory = SqlInventory(postgres_engine, DatabaseTimeouts())
    Editor(postgres_engine, REGION).change([endpoint(1)], who="alice")
    snapshot = inventory.snapshot()
    with postgres_engine.connect() as other:
        other.execute(text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"))
    with pytest.raises(DatabaseAway):
        snapshot.read(None, 10)
    assert [row.key for row in inventory.read_keys([endpoint_key(1)])] == [endpoint_key(1)]
