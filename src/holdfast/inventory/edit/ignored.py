"""Ignored keys: objects of the store that the inventory does not want, and that the syncer leaves alone for good.

An operator adds a key with a reason, and ends that again. A key of an object of the inventory is refused: what is
wanted is kept as it is wanted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from sqlalchemy import Connection, Engine, Table, delete, insert, select

from holdfast.inventory.api import Row
from holdfast.inventory.changes import EditRefused
from holdfast.inventory.sql.engine import in_utc, reading, writing
from holdfast.inventory.sql.schema import ControlTables


class IgnoredKey(NamedTuple):
    """One key, and who decided to leave it alone."""

    key: bytes
    who: str
    why: str
    at: datetime


class Ignoring(Protocol):
    """An inventory in a SQL database, of whatever objects."""

    engine: Engine
    tables: ControlTables

    def read_keys(self, keys: Collection[bytes]) -> Sequence[Row]: ...


class IgnoredEditor:
    """The operator's side of the table of ignored keys."""

    def __init__(self, inventory: Ignoring) -> None:
        self._inventory = inventory
        self._engine = inventory.engine
        self._table = inventory.tables.ignored

    def listed(self) -> Sequence[IgnoredKey]:
        with reading(self._engine) as connection:
            return _rows(connection, self._table)

    def add(self, key: bytes, *, who: str, why: str) -> None:
        """Leave the object at a key alone. Raises `EditRefused`."""
        if self._inventory.read_keys([key]):
            raise EditRefused(f"{_text(key)} is in the inventory, so it cannot be ignored")
        with writing(self._engine) as connection:
            if any(one.key == key for one in _rows(connection, self._table)):
                raise EditRefused(f"{_text(key)} is ignored already: see holdfast ignore --list")
            connection.execute(insert(self._table).values(key=key, who=who, why=why, at=datetime.now(UTC)))

    def end(self, key: bytes) -> None:
        """Ignore a key no longer. Raises `EditRefused`."""
        with writing(self._engine) as connection:
            if not connection.execute(delete(self._table).where(self._table.c.key == key)).rowcount:
                raise EditRefused(f"{_text(key)} is not ignored: see holdfast ignore --list")


def _rows(connection: Connection, table: Table) -> Sequence[IgnoredKey]:
    rows = connection.execute(select(table).order_by(table.c.key))
    return [IgnoredKey(row.key, row.who, row.why, in_utc(row.at)) for row in rows]


def _text(key: bytes) -> str:
    return key.decode(errors="backslashreplace")
