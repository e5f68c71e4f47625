"""Pruning of the history: changes are deleted in portions, oldest first, each in a transaction of its own.

A change that names a kept key stays, and so does every later change of the same keys: without those, an old delete
would be the newest change again, and the witness of a delete that a later change revoked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime

from sqlalchemy import Connection, Engine, delete, select

from holdfast.inventory.api import Fence
from holdfast.inventory.sql.engine import in_utc, reading
from holdfast.inventory.sql.fence import fenced
from holdfast.inventory.sql.schema import CHANGES, OUTBOX

PORTION = 500
"""Changes per transaction: a new leader waits for an open one (C34)."""


def pruned(engine: Engine, fence: Fence, before: datetime, held: Collection[bytes]) -> Iterator[int]:
    """Delete changes older than that, except for those of keys in the outbox or in `held`. Yields the number deleted
    after each portion. Raises `Deposed`."""
    kept, after = {*held, *_announced(engine)}, 0
    columns = CHANGES.c.revision, CHANGES.c.at, CHANGES.c.old_key, CHANGES.c.new_key
    while True:
        with fenced(engine, fence) as connection:
            query = select(*columns).where(CHANGES.c.revision > after).order_by(CHANGES.c.revision).limit(PORTION)
            rows = connection.execute(query).all()
            doomed: list[int] = []
            is_any_old = False
            for revision, at, *keys in rows:
                is_old = in_utc(at) < before
                is_any_old |= is_old
                if is_old and kept.isdisjoint(keys):
                    doomed.append(revision)
                else:
                    kept.update(key for key in keys if key is not None)
            _delete(connection, doomed)
        yield len(doomed)
        if not is_any_old or len(rows) < PORTION:
            return
        after = rows[-1].revision


def _announced(engine: Engine) -> Iterator[bytes]:
    """Keys in the outbox. A row that is added later comes with a change that is not old."""
    with reading(engine) as connection:
        for row in connection.execute(select(OUTBOX.c.key, OUTBOX.c.before)):
            yield from (key for key in row if key is not None)


def _delete(connection: Connection, revisions: Collection[int]) -> None:
    if revisions:
        connection.execute(delete(CHANGES).where(CHANGES.c.revision.in_(revisions)))
