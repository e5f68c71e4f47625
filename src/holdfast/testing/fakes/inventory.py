"""A SQL inventory with its tables made, for a test or a lab. Gone from memory with its block; the database stays."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sqlalchemy import Engine

from holdfast.inventory.sql.engine import DatabaseTimeouts, database_url, open_engine
from holdfast.inventory.sql.migrate import migrate


@contextlib.contextmanager
def fresh_engine(address: str, limits: DatabaseTimeouts | None = None) -> Iterator[Engine]:
    """An engine of the database at that address, which has all tables from here on."""
    engine = open_engine(database_url(address), limits)
    try:
        migrate(engine)
        yield engine
    finally:
        engine.dispose()
