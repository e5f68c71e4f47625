"""The SQL fence on both databases: a deposed leader's write fails, and no session holds the fence for ever."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, delete, text

from holdfast.inventory.api import Fence, FenceHeld
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.sql import fence
from holdfast.inventory.sql.engine import DatabaseTimeouts, database_url, open_engine
from holdfast.inventory.sql.fence import current, fenced
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.inventory.sql.schema import OUTBOX
from holdfast.model.base.time import seconds
from holdfast.store.api import Deposed
from holdfast.testing.fakes.inventory import fresh_engine
from holdfast.testing.fault import fault
from holdfast.testing.real.postgres import Postgres
from holdfast.testing.real.processes import wait_until
from tests.inventory.harness import REGION, host

OLD, NEW = Fence("no-region", 1, 70), Fence("no-region", 1, 83)


@contextlib.contextmanager
def opened(address: str, limits: DatabaseTimeouts) -> Iterator[Engine]:
    """Another engine of a database whose tables are there: what takes its time must not be done under short limits."""
    engine = open_engine(database_url(address), limits)
    try:
        yield engine
    finally:
        engine.dispose()


def test_a_new_term_is_not_deposed_by_an_earlier_fence(inventory: SqlInventory) -> None:
    inventory.raise_fence(OLD)
    inventory.settle(NEW, [])
    assert inventory.fence("no-region").epoch == 1


def test_an_earlier_term_cannot_raise_the_fence(inventory: SqlInventory) -> None:
    inventory.raise_fence(NEW)
    with pytest.raises(Deposed, match="term 70 is over"):
        inventory.raise_fence(OLD)


def test_the_same_term_can_raise_the_fence_again(inventory: SqlInventory, engine: Engine) -> None:
    inventory.raise_fence(NEW)
    inventory.raise_fence(NEW)
    assert current(engine, "no-region") == NEW


def test_a_higher_epoch_is_later_whatever_its_term(inventory: SqlInventory) -> None:
    inventory.raise_fence(NEW)
    inventory.raise_fence(Fence("no-region", 2, 5))
    with pytest.raises(Deposed):
        inventory.settle(NEW, [])


def test_regions_do_not_depose_each_other(inventory: SqlInventory) -> None:
    inventory.raise_fence(NEW)
    inventory.raise_fence(Fence("region-ams", 1, 2))
    inventory.settle(NEW, [])
    inventory.settle(Fence("region-ams", 1, 2), [])
    assert inventory.fence("region-ams").epoch == 1


@fault(
    "C28",
    without="holdfast.inventory.sql.fence:check",
    sees=(AssertionError, r"\(refused, inventory.waiting\(\)\) == \(True, 1\)"),
)
def test_C28_a_deposed_leader_settles_nothing(editor: Editor, inventory: SqlInventory) -> None:
    inventory.raise_fence(OLD)
    (edit,) = editor.change([host(1)], who="alice")
    inventory.raise_fence(NEW)
    refused = False
    try:
        inventory.settle(OLD, [edit.revision])
    except Deposed:
        refused = True
    assert (refused, inventory.waiting()) == (True, 1)


@fault("C28", without="holdfast.inventory.sql.fence:check", sees=(AssertionError, r"inventory.waiting\(\) == 1"))
def test_C28_a_transaction_opened_before_the_takeover_writes_nothing_after_it(postgres_engine: Engine) -> None:
    inventory, editor = SqlInventory(postgres_engine), Editor(postgres_engine, REGION)
    inventory.raise_fence(OLD)
    editor.change([host(1)], who="alice")
    with postgres_engine.connect() as old, old.begin():
        old.execute(text("SELECT count(*) FROM fence"))  # open, and about to check
        inventory.raise_fence(NEW)
        try:
            fence.check(old, OLD)
            old.execute(delete(OUTBOX))
            old.commit()
        except Deposed:
            old.rollback()
    assert inventory.waiting() == 1


def test_C28_a_new_term_begins_only_after_the_old_ones_open_transaction(postgres_engine: Engine) -> None:
    inventory = SqlInventory(postgres_engine)
    inventory.raise_fence(OLD)
    raising = threading.Thread(target=inventory.raise_fence, args=(NEW,))
    with fenced(postgres_engine, OLD) as old:
        raising.start()
        wait_until(lambda: _waits_for_lock(postgres_engine), "the new leader waits for the fence")
        assert current(postgres_engine, "no-region") == OLD
        old.execute(delete(OUTBOX))
    raising.join()
    assert current(postgres_engine, "no-region") == NEW


def _waits_for_lock(engine: Engine) -> bool:
    with engine.connect() as connection:
        return bool(connection.execute(text("SELECT count(*) FROM pg_locks WHERE NOT granted")).scalar_one())


@fault(
    "C34",
    without="holdfast.inventory.sql.engine:session_options",
    by="tests.inventory.without_protection:sessions_that_may_idle",
    sees=(FenceHeld, r"fence held by term \d+ is unreachable: one of its"),
)
def test_C34_a_frozen_leader_does_not_hold_the_fence_for_ever(postgres: Postgres) -> None:
    address = postgres.create_database()
    with (
        fresh_engine(address, DatabaseTimeouts(wait=seconds(30))) as engine,
        opened(address, DatabaseTimeouts(idle=seconds(1))) as short_of_time,
    ):
        inventory = SqlInventory(engine)
        inventory.raise_fence(OLD)
        with short_of_time.connect() as frozen:
            frozen.begin()
            fence.check(frozen, OLD)
            try:
                inventory.raise_fence(NEW)
            finally:
                frozen.invalidate()
        assert current(engine, "no-region") == NEW


def test_a_held_fence_names_the_term_that_holds_it(address: str) -> None:
    with fresh_engine(address) as engine, opened(address, DatabaseTimeouts(wait=seconds(1))) as short_of_time:
        inventory = SqlInventory(engine)
        inventory.raise_fence(OLD)
        with fenced(engine, OLD), pytest.raises(FenceHeld, match="fence held by term 70"):
            SqlInventory(short_of_time).raise_fence(NEW)
        inventory.raise_fence(NEW)
        assert current(engine, "no-region") == NEW
