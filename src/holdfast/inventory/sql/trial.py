"""Trial of the database: a read, and a write that is rolled back.

The write goes to a table of its own, never to the fence row: a follower must not delay the leader's transactions.
"""

from __future__ import annotations

from sqlalchemy import Engine, insert, select

from holdfast.inventory.sql.engine import translated_errors
from holdfast.inventory.sql.schema import CONTROL, ControlTables


def try_database(engine: Engine, server: str, tables: ControlTables = CONTROL) -> None:
    """Raise `DatabaseAway` if the database cannot be read, or takes no writes."""
    with translated_errors(), engine.connect() as connection, connection.begin() as transaction:
        connection.execute(select(tables.identity.c.only).limit(1)).first()
        connection.execute(insert(tables.trials).values(server=server))
        transaction.rollback()
