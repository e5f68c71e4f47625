"""`SqlObserved`: the table `observed`, and which objects are wanted, the same on SQLite and on PostgreSQL."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Select, Table, and_, delete, func, select
from sqlalchemy.sql.elements import ColumnElement

from holdfast.inventory.api import ChangedKeys, DatabaseAway, Fence, ObservedRow
from holdfast.inventory.kinds import REGION_LABEL
from holdfast.inventory.sql.engine import reading
from holdfast.inventory.sql.fence import fenced
from holdfast.inventory.sql.objects import portions
from holdfast.inventory.sql.schema import CHANGES, OBJECTS, OBSERVED
from holdfast.model.base.bad import Bad
from holdfast.model.calico.host import HOST
from holdfast.store.api import prefix_end

T = TypeVar("T")

_Row = tuple[bytes, bytes]
_NEWEST = select(func.max(CHANGES.c.revision))


class SqlObserved:
    """The `Observed` of a fleet without OpenStack."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def read(self, kind: str, prefix: bytes, after: bytes | None, most: int) -> Sequence[ObservedRow]:
        question = select(OBSERVED.c.key, OBSERVED.c.doc, OBSERVED.c.at).where(*_under(OBSERVED, prefix, after))
        question = question.where(OBSERVED.c.kind == kind)
        with reading(self.engine) as connection:
            rows = _as_they_come(connection, question.order_by(OBSERVED.c.key).limit(most))
        times = {at: _aware(at) for at in {at for _, _, at in rows}}  # all rows of one flush have the same
        return [ObservedRow(key, doc, times[at]) for key, doc, at in rows]

    def write(
        self, fence: Fence, kind: str, rows: Mapping[bytes, Sequence[bytes]], gone: Collection[bytes], at: datetime
    ) -> None:
        with fenced(self.engine, fence) as connection:
            if rows:
                _upsert(connection, kind, rows, at)
            for some in portions(sorted(gone)):
                connection.execute(delete(OBSERVED).where(OBSERVED.c.key.in_(some)))

    def wanted(self, prefix: bytes, after: bytes | None, most: int) -> Sequence[bytes]:
        question = select(OBJECTS.c.key).where(*_under(OBJECTS, prefix, after)).order_by(OBJECTS.c.key).limit(most)
        with reading(self.engine) as connection:
            return [key for (key,) in _as_they_come(connection, question)]

    def hosts(self, region: str) -> Sequence[str]:
        question = select(OBJECTS.c.name, OBJECTS.c.key, OBJECTS.c.doc).where(OBJECTS.c.kind == HOST.name)
        with reading(self.engine) as connection:
            return [row.name for row in connection.execute(question) if _region_of(row.key, row.doc) == region]

    def newest(self) -> int:
        with reading(self.engine) as connection:
            return connection.execute(_NEWEST).scalar_one() or 0

    def touched(self, kind: str, after: int) -> ChangedKeys:
        """C37: `after` has to lie far enough back that what commits late is above it."""
        now = and_(OBJECTS.c.kind == CHANGES.c.kind, OBJECTS.c.name == CHANGES.c.name)
        question = select(CHANGES.c.old_key, OBJECTS.c.key).outerjoin(OBJECTS, now)
        question = question.where(CHANGES.c.revision > after, CHANGES.c.kind == kind)
        with reading(self.engine) as connection:
            newest = connection.execute(_NEWEST).scalar_one()
            rows = connection.execute(question).all()
        present = {row.key for row in rows if row.key is not None}
        return ChangedKeys(newest or 0, present, {row.old_key for row in rows if row.old_key is not None} - present)


def _under(table: Table, prefix: bytes, after: bytes | None) -> Iterator[ColumnElement[bool]]:
    yield table.c.key >= prefix if after is None else table.c.key > after
    yield table.c.key < prefix_end(prefix)


_INSERT = "INSERT INTO observed (key, kind, doc, at) VALUES "
_OR_REPLACE = " ON CONFLICT (key) DO UPDATE SET doc = excluded.doc, at = excluded.at"
_UPDATE = "UPDATE observed SET doc = ?, at = ? WHERE key IN "
_ROWS, _KEYS = 200, 900
"""Rows of one statement on SQLite that inserts, and that updates; old ones take no more than 999 values."""
_MANY = 20
"""Rows that say the same: so many are worth a statement of their own."""
_SQLITE_TIME = "%Y-%m-%d %H:%M:%S.%f"


def _upsert(connection: Connection, kind: str, rows: Mapping[bytes, Sequence[bytes]], at: datetime) -> None:
    """Straight to the driver: this is where a flood of reports arrives, and rows are all alike."""
    if connection.dialect.name != "sqlite":
        alone = sorted((key, kind, doc, at) for doc, keys in rows.items() for key in keys)
        connection.exec_driver_sql(f"{_INSERT}(%s, %s, %s, %s){_OR_REPLACE}", alone)
        return
    written = at.astimezone(UTC).strftime(_SQLITE_TIME)  # as SQLAlchemy writes and reads it
    left = sorted(itertools.chain.from_iterable(_not_updated(connection, *row, written) for row in rows.items()))
    # Many rows in one statement: between two of them the driver would let the event loop's thread run each time.
    for some in _portions(left, _ROWS):
        values = ", ".join(["(?, ?, ?, ?)"] * len(some))
        made = tuple(value for key, doc in some for value in (key, kind, doc, written))
        connection.exec_driver_sql(f"{_INSERT}{values}{_OR_REPLACE}", made)


def _not_updated(connection: Connection, doc: bytes, keys: Sequence[bytes], at: str) -> Iterator[_Row]:
    """Updates rows that say the same together, which costs SQLite a third less than to insert each over what is there.
    Those that are left: some of them may be new, or say something that hardly another one does."""
    for some in _portions(sorted(keys), _KEYS):
        if len(some) < _MANY or not _is_updated(connection, doc, at, some):
            yield from ((key, doc) for key in some)


def _is_updated(connection: Connection, doc: bytes, at: str, keys: Sequence[bytes]) -> bool:
    places = ", ".join("?" * len(keys))
    return connection.exec_driver_sql(f"{_UPDATE}({places})", (doc, at, *keys)).rowcount == len(keys)


def _portions(rows: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    return (rows[start : start + most] for start in range(0, len(rows), most))


def _as_they_come(connection: Connection, question: Select[Any]) -> Sequence[tuple[Any, ...]]:
    """The driver's own rows: a hundred thousand are read at every start and audit, and bytes need no translation."""
    cursor = connection.execute(question).cursor
    assert cursor is not None
    try:
        return cursor.fetchall()
    except connection.dialect.loaded_dbapi.Error as error:  # SQLite reads its file only now, past SQLAlchemy's eyes
        raise DatabaseAway(str(error)) from error


def _aware(at: datetime | str) -> datetime:
    """SQLite has times as text, without their zone; all that are written are UTC."""
    return datetime.fromisoformat(at).replace(tzinfo=UTC) if isinstance(at, str) else at


def _region_of(key: bytes, doc: bytes) -> str:
    if REGION_LABEL.encode() not in doc:
        return ""  # nearly always, and without decoding
    host = HOST.decode(key, doc)
    return "" if isinstance(host, Bad) else host.metadata.labels.get(REGION_LABEL, "")
