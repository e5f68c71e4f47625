"""Ignored keys: objects of the store that the inventory does not want, and that the syncer leaves alone for good.

An operator adds a key with a reason, and ends that again. A key of an object of the inventory is refused: what is
wanted is kept as it is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from sqlalchemy import Connection, Engine, delete, insert, select

from holdfast.inventory.changes import EditRefused
from holdfast.inventory.sql.engine import in_utc, reading, writing
from holdfast.inventory.sql.schema import IGNORED, OBJECTS


class IgnoredKey(NamedTuple):
    """One key, and who decided to leave it alone."""

    key: bytes
    who: str
    why: str
    at: datetime


class IgnoredEditor:
    """The operator's side of the table `ignored`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def listed(self) -> Sequence[IgnoredKey]:
        with reading(self._engine) as connection:
            return _rows(connection)

    def add(self, key: bytes, *, who: str, why: str) -> None:
        """Leave the object at a key alone. Raises `EditRefused`."""
        with writing(self._engine) as connection:
            wanted = connection.execute(select(OBJECTS.c.kind, OBJECTS.c.name).where(OBJECTS.c.key == key)).first()
            if wanted is not None:
                name = f"{wanted.kind} {wanted.name}"
                raise EditRefused(
                    f"{name} is in the inventory, so it cannot be ignored: see holdfast get {wanted.kind}"
                )
            if any(one.key == key for one in _rows(connection)):
                raise EditRefused(f"{_text(key)} is ignored already: see holdfast ignore --list")
            connection.execute(insert(IGNORED).values(key=key, who=who, why=why, at=datetime.now(UTC)))

    def end(self, key: bytes) -> None:
        """Ignore a key no longer. Raises `EditRefused`."""
        with writing(self._engine) as connection:
            if not connection.execute(delete(IGNORED).where(IGNORED.c.key == key)).rowcount:
                raise EditRefused(f"{_text(key)} is not ignored: see holdfast ignore --list")


def _rows(connection: Connection) -> Sequence[IgnoredKey]:
    rows = connection.execute(select(IGNORED).order_by(IGNORED.c.key))
    return [IgnoredKey(row.key, row.who, row.why, in_utc(row.at)) for row in rows]


def _text(key: bytes) -> str:
    return key.decode(errors="backslashreplace")
