"""A SQL inventory with its tables created, for tests and the lab."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sqlalchemy import Engine

from holdfast.inventory.sql.engine import DatabaseTimeouts, database_url, open_engine
from holdfast.inventory.sql.migrate import migrate


@contextlib.contextmanager
def fresh_engine(address: str, limits: DatabaseTimeouts | None = None) -> Iterator[Engine]:
    """Open the database at that address, create its tables, and dispose of the engine with the block."""
    engine = open_engine(database_url(address), limits)
    try:
        migrate(engine)
        yield engine
    finally:
        engine.dispose()
