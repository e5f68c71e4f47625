"""Replacements for protections that fault tests remove."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select

from holdfast.inventory.api import OutboxRow
from holdfast.inventory.sql.engine import DatabaseTimeouts, reading
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.inventory.sql.schema import OUTBOX

_read_up_to: dict[int, int] = {}


def outbox_by_position(inventory: SqlInventory, most: int, _after: int = 0) -> Sequence[OutboxRow]:
    """Reads on from the highest id that was seen."""
    after = _read_up_to.get(id(inventory), 0)
    question = select(OUTBOX.c.id, OUTBOX.c.key, OUTBOX.c.before).where(OUTBOX.c.id > after).order_by(OUTBOX.c.id)
    with reading(inventory.engine) as connection:
        found = [OutboxRow(*row) for row in connection.execute(question.limit(most))]
    _read_up_to[id(inventory)] = max([after, *(one.id for one in found)])
    return found


def sessions_that_may_idle(_limits: DatabaseTimeouts) -> str:
    return "-c lock_timeout=2000"
