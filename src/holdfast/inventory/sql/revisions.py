"""Revisions of the inventory: a counter of one row, raised inside the transaction of an edit.

An edit that is rolled back leaves no gap, revisions grow in the order of commits, and a copy of the database carries
the counter along; a sequence promises none of the three. Editors of the last version take revisions from the outbox's
own ids, under the same lock: the counter follows theirs, and on PostgreSQL the sequence of the ids follows ours.
"""

from __future__ import annotations

from sqlalchemy import Connection, func, select, text, update

from holdfast.inventory.sql.schema import CHANGES, REVISIONS

_COUNTED = select(REVISIONS.c.newest)
_RECORDED = select(func.max(CHANGES.c.revision))
_FOLLOW = text("SELECT setval(pg_get_serial_sequence('outbox', 'id'), :newest)")


def newest_revision(connection: Connection) -> int:
    """The revision of the newest change, also when its history was pruned; 0 before the first."""
    counted: int = connection.execute(_COUNTED).scalar_one()
    recorded: int | None = connection.execute(_RECORDED).scalar_one()
    return max(counted, recorded or 0)


def next_revisions(connection: Connection, count: int) -> range:
    """Take that many revisions for the edit of this transaction."""
    connection.execute(_COUNTED.with_for_update())  # left out on SQLite, which has one writer at a time
    before = newest_revision(connection)
    connection.execute(update(REVISIONS).values(newest=before + count))
    if connection.dialect.name == "postgresql":
        connection.execute(_FOLLOW, {"newest": before + count})
    return range(before + 1, before + count + 1)
