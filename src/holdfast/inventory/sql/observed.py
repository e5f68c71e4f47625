"""`SqlObserved`: the status workers' side of the SQL inventory, on SQLite and PostgreSQL."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Select, Table, and_, delete, func, select
from sqlalchemy.dialects import mysql
from sqlalchemy.dialects.mysql import Insert
from sqlalchemy.sql.elements import ColumnElement

from holdfast.inventory.api import ChangedKeys, DatabaseAway, Fence, ObservedRow
from holdfast.inventory.sql.engine import reading
from holdfast.inventory.sql.fence import fenced
from holdfast.inventory.sql.objects import batches
from holdfast.inventory.sql.schema import CHANGES, CONTROL, OBJECTS, ControlTables
from holdfast.model.base.bad import Bad
from holdfast.model.calico.host import HOST, REGION_LABEL
from holdfast.store.api import prefix_end

T = TypeVar("T")

_Row = tuple[bytes, bytes]
_NEWEST = select(func.max(CHANGES.c.revision))


class ObservedRows:
    """Observed state in a table of these."""

    def __init__(self, engine: Engine, tables: ControlTables) -> None:
        self.engine = engine
        self.tables = tables

    def read(self, kind: str, prefix: bytes, after: bytes | None, most: int) -> Sequence[ObservedRow]:
        columns = self.tables.observed.c
        query = select(columns.key, columns.doc, columns.at).where(*_under(self.tables.observed, prefix, after))
        query = query.where(columns.kind == kind)
        with reading(self.engine) as connection:
            return _observed_rows(_driver_rows(connection, query.order_by(columns.key).limit(most)))

    def read_settled(self, fence: Fence, keys: Collection[bytes]) -> Sequence[ObservedRow]:
        """Locks the fence alone, which waits for the open transactions of all leaders: the commit of one whose answer
        was lost may still be under way in the database (C47)."""
        columns = self.tables.observed.c
        query = select(columns.key, columns.doc, columns.at)
        with fenced(self.engine, fence, self.tables.fence, alone=True) as connection:
            found = [_driver_rows(connection, query.where(columns.key.in_(some))) for some in batches(sorted(keys))]
        return _observed_rows([row for rows in found for row in rows])

    def shared(self, kind: str) -> bool:
        return False  # the fence keeps others from writing

    @property
    def is_fenced(self) -> bool:
        return True

    def keep_fresh(self, fence: Fence, kind: str) -> None:
        """A row of ours does not age."""

    def write(
        self, fence: Fence, kind: str, rows: Mapping[bytes, Sequence[bytes]], gone: Collection[bytes], at: datetime
    ) -> Mapping[bytes, str]:
        observed = self.tables.observed
        with fenced(self.engine, fence, self.tables.fence) as connection:
            if rows:
                _upsert(connection, observed, kind, rows, at)
            for batch in batches(sorted(gone)):
                connection.execute(delete(observed).where(observed.c.key.in_(batch)))
        return {}


class SqlObserved(ObservedRows):
    """The `Observed` of a fleet without OpenStack."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, CONTROL)

    def wanted(self, prefix: bytes, after: bytes | None, most: int) -> Sequence[bytes]:
        query = select(OBJECTS.c.key).where(*_under(OBJECTS, prefix, after)).order_by(OBJECTS.c.key).limit(most)
        with reading(self.engine) as connection:
            return [key for (key,) in _driver_rows(connection, query)]

    def hosts(self, region: str) -> Sequence[str]:
        query = select(OBJECTS.c.name, OBJECTS.c.key, OBJECTS.c.doc).where(OBJECTS.c.kind == HOST.name)
        with reading(self.engine) as connection:
            return [row.name for row in connection.execute(query) if _region_of(row.key, row.doc) == region]

    def newest(self) -> int:
        with reading(self.engine) as connection:
            return connection.execute(_NEWEST).scalar_one() or 0

    def changed_since(self, kind: str, revision: int) -> ChangedKeys:
        """Callers pass a revision far enough back to include changes that commit late (C37)."""
        now = and_(OBJECTS.c.kind == CHANGES.c.kind, OBJECTS.c.name == CHANGES.c.name)
        query = select(CHANGES.c.old_key, OBJECTS.c.key).outerjoin(OBJECTS, now)
        query = query.where(CHANGES.c.revision > revision, CHANGES.c.kind == kind)
        with reading(self.engine) as connection:
            newest = connection.execute(_NEWEST).scalar_one()
            rows = connection.execute(query).all()
        present = {row.key for row in rows if row.key is not None}
        return ChangedKeys(newest or 0, present, {row.old_key for row in rows if row.old_key is not None} - present)


def _under(table: Table, prefix: bytes, after: bytes | None) -> Iterator[ColumnElement[bool]]:
    yield table.c.key >= prefix if after is None else table.c.key > after
    yield table.c.key < prefix_end(prefix)


_INSERT = "INSERT INTO observed (key, kind, doc, at) VALUES "
_OR_REPLACE = " ON CONFLICT (key) DO UPDATE SET doc = excluded.doc, at = excluded.at"
_UPDATE = "UPDATE observed SET doc = ?, at = ? WHERE key IN "
_ROWS, _KEYS = 200, 900
"""Rows per INSERT and per UPDATE on SQLite; old versions take at most 999 parameters."""
_SHARED = 20
"""Rows with the same document that are worth an UPDATE of their own."""
_SQLITE_TIME = "%Y-%m-%d %H:%M:%S.%f"


def _upsert(
    connection: Connection, table: Table, kind: str, rows: Mapping[bytes, Sequence[bytes]], at: datetime
) -> None:
    """Write through the driver: floods of reports arrive here, and SQLAlchemy's cost per row would dominate."""
    if connection.dialect.name != "sqlite":
        alone = sorted((key, kind, doc, at) for doc, keys in rows.items() for key in keys)
        if connection.dialect.name == "mysql":
            connection.execute(*_mysql_upsert(table, alone))
        else:
            connection.exec_driver_sql(f"{_INSERT}(%s, %s, %s, %s){_OR_REPLACE}", alone)
        return
    written = at.astimezone(UTC).strftime(_SQLITE_TIME)  # the format of SQLAlchemy
    left = sorted(itertools.chain.from_iterable(_not_updated(connection, *row, written) for row in rows.items()))
    # Many rows per statement: between two statements the driver would let the event loop's thread run.
    for batch in _batches(left, _ROWS):
        values = ", ".join(["(?, ?, ?, ?)"] * len(batch))
        made = tuple(value for key, doc in batch for value in (key, kind, doc, written))
        connection.exec_driver_sql(f"{_INSERT}{values}{_OR_REPLACE}", made)


def _mysql_upsert(table: Table, rows: Sequence[tuple[Any, ...]]) -> tuple[Insert, Sequence[Mapping[str, Any]]]:
    query = mysql.insert(table)
    query = query.on_duplicate_key_update(doc=query.inserted.doc, at=query.inserted.at)
    return query, [dict(zip(("key", "kind", "doc", "at"), row, strict=True)) for row in rows]


def _not_updated(connection: Connection, doc: bytes, keys: Sequence[bytes], at: str) -> Iterator[_Row]:
    """Update rows with the same document together, a third cheaper on SQLite than upserting each. Yields the rest:
    rows that may be new, or whose document few others share."""
    for batch in _batches(sorted(keys), _KEYS):
        if len(batch) < _SHARED or not _is_updated(connection, doc, at, batch):
            yield from ((key, doc) for key in batch)


def _is_updated(connection: Connection, doc: bytes, at: str, keys: Sequence[bytes]) -> bool:
    places = ", ".join("?" * len(keys))
    return connection.exec_driver_sql(f"{_UPDATE}({places})", (doc, at, *keys)).rowcount == len(keys)


def _batches(rows: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    return (rows[start : start + most] for start in range(0, len(rows), most))


def _driver_rows(connection: Connection, query: Select[Any]) -> Sequence[tuple[Any, ...]]:
    """Fetch rows from the driver: every start and audit reads 100,000, and bytes need no conversion."""
    cursor = connection.execute(query).cursor
    assert cursor is not None
    try:
        return cursor.fetchall()
    except connection.dialect.loaded_dbapi.Error as error:  # SQLite reads its file only now, outside SQLAlchemy
        raise DatabaseAway(str(error)) from error


def _observed_rows(rows: Sequence[tuple[Any, ...]]) -> Sequence[ObservedRow]:
    times = {at: _aware(at) for at in {at for _, _, at in rows}}  # rows of one flush share their time
    return [ObservedRow(key, doc, times[at]) for key, doc, at in rows]


def _aware(at: datetime | str) -> datetime:
    """SQLite stores times as text without a zone, MySQL without a zone; all are UTC."""
    moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _region_of(key: bytes, doc: bytes) -> str:
    if REGION_LABEL.encode() not in doc:
        return ""  # the usual case, without decoding
    host = HOST.decode(key, doc)
    return "" if isinstance(host, Bad) else host.metadata.labels.get(REGION_LABEL, "")
