"""The SQL fence: a leader's transaction first locks the fence row and compares it with its own term (rule 3).

    old leader   BEGIN; fence row FOR SHARE: (1, 70) <= (1, 70); write …; COMMIT
    new leader                    UPDATE fence SET (1, 83) ┄┄waits┄┄┄┄┄┄► done; from here on (1, 70) finds no row

A comparison in the WHERE clause of the write alone does not fence: a transaction that began earlier can commit after
the new term began (C28). On SQLite `BEGIN IMMEDIATE` is the lock: there is one writer at a time.

A restored store counts terms from below again, so a new term can have the number of an old one, whose leader may write
until its next renewal: the restored store does not have its lease. The fence does not tell the two apart (C42). Under
`store_restored` that changes nothing, since the new leader does not raise the fence, whatever the numbers are, and its
first own write follows an adoption, which raises the epoch; so does the naming of a wiped store. A new leader that has
not noticed the restore shares the fence for that moment: the old one can settle outbox rows, which the first comparison
of the new term covers, and write statuses, which the next audit compares.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache

from sqlalchemy import BindParameter, Connection, Engine, Select, Table, and_, bindparam, or_, select, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.elements import ColumnElement

from holdfast.inventory.api import DatabaseAway, Fence, FenceHeld
from holdfast.inventory.sql.engine import is_lock_timeout, reading, writing
from holdfast.inventory.sql.schema import FENCE
from holdfast.store.api import Deposed

_EPOCH: BindParameter[int] = bindparam("epoch")
_TERM: BindParameter[int] = bindparam("term")


@cache
def _current_term(table: Table, *, alone: bool) -> Select[tuple[int]]:
    """Built once: building it takes longer than running it, and every transaction of a leader begins with it."""
    columns = table.c
    return (
        select(columns.term)
        .where(columns.region == bindparam("region"))
        .where(or_(columns.epoch < _EPOCH, and_(columns.epoch == _EPOCH, columns.term <= _TERM)))
        .with_for_update(read=not alone)  # left out on SQLite, which has no such lock
    )


@contextlib.contextmanager
def fenced(engine: Engine, fence: Fence, table: Table = FENCE, *, alone: bool = False) -> Iterator[Connection]:
    """A transaction of a term. Raises `Deposed` when the term is over; nothing was written then."""
    with writing(engine) as connection:
        check(connection, fence, table, alone=alone)
        yield connection


def check(connection: Connection, fence: Fence, table: Table = FENCE, *, alone: bool = False) -> None:
    """Lock the fence row until this transaction ends, so that no later term begins before; `alone` also waits for the
    open transactions of this term."""
    # protection: C28
    own = {"region": fence.region, "epoch": fence.epoch, "term": fence.term}
    if connection.execute(_current_term(table, alone=alone), own).first() is None:
        raise Deposed(f"term {fence.term} is over: the inventory has a later one; nothing was written")


def raise_fence(engine: Engine, fence: Fence, table: Table = FENCE) -> None:
    """Raise the fence to a new term. Waits for open transactions of the old term, as long as the timeouts allow."""
    with _held_by(engine, fence.region, table), writing(engine) as connection:
        _make_row(connection, fence.region, table)
        row = and_(table.c.region == fence.region, _earlier_than(fence, table))
        raised = connection.execute(update(table).where(row).values(epoch=fence.epoch, term=fence.term))
        if not raised.rowcount:
            check(connection, fence, table)  # the same term again: the worker of this leader was restarted


@contextlib.contextmanager
def _held_by(engine: Engine, region: str, table: Table) -> Iterator[None]:
    """Turn a lock timeout into `FenceHeld` with the term that holds the fence."""
    try:
        yield
    except DatabaseAway as away:
        if isinstance(away.__cause__, DBAPIError) and is_lock_timeout(away.__cause__):
            raise FenceHeld(current(engine, region, table).term) from away
        raise


def current(engine: Engine, region: str, table: Table = FENCE) -> Fence:
    """The latest term; (0, 0) before the first."""
    with reading(engine) as connection:
        row = connection.execute(select(table.c.epoch, table.c.term).where(table.c.region == region)).first()
    return Fence(region, row.epoch, row.term) if row else Fence(region, 0, 0)


def _make_row(connection: Connection, region: str, table: Table) -> None:
    values = {"region": region, "epoch": 0, "term": 0}
    match connection.dialect.name:
        case "postgresql":
            from sqlalchemy.dialects import postgresql

            connection.execute(postgresql.insert(table).values(values).on_conflict_do_nothing())
        case "mysql":
            from sqlalchemy.dialects import mysql

            connection.execute(mysql.insert(table).values(values).prefix_with("IGNORE"))
        case _:
            connection.execute(sqlite.insert(table).values(values).on_conflict_do_nothing())


def _earlier_than(fence: Fence, table: Table) -> ColumnElement[bool]:
    columns = table.c
    return or_(columns.epoch < fence.epoch, and_(columns.epoch == fence.epoch, columns.term < fence.term))
