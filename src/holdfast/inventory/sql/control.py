"""`SqlControl`: identity, fence, marks and ignored keys of an inventory in a SQL database, whatever its objects are."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Collection

from sqlalchemy import Connection, Engine, bindparam, delete, func, insert, select, update

from holdfast.inventory.api import Fence, InventoryMarks, MarkUnknown
from holdfast.inventory.sql.engine import reading, writing
from holdfast.inventory.sql.fence import current, fenced, raise_fence
from holdfast.inventory.sql.schema import ControlTables
from holdfast.model.control.mark import Mark

MARKS_KEPT = 1_000
"""Marks kept per region. A store with an older one was restored from a backup."""


class SqlControl(ABC):
    """The parts that `SqlInventory` and the inventory on Neutron's database have in common."""

    def __init__(self, engine: Engine, tables: ControlTables) -> None:
        self.engine = engine
        self.tables = tables
        # Built once: every batch of a leader makes a mark before its first write.
        marks = tables.marks
        of_region = marks.c.region == bindparam("of")
        self._newest_mark = select(marks.c.number).where(of_region).order_by(marks.c.number.desc()).limit(1)
        self._nonce = select(marks.c.nonce).where(of_region, marks.c.number == bindparam("number"))
        self._insert_mark = insert(marks)
        made = of_region, marks.c.number == bindparam("reached"), marks.c.nonce == bindparam("made")
        self._note_stored = update(marks).where(*made).values(stored=bindparam("reached"))
        self._prune_marks = delete(marks).where(of_region, marks.c.number <= bindparam("upto"))

    def fleet(self) -> str | None:
        with reading(self.engine) as connection:
            return connection.execute(select(self.tables.identity.c.fleet)).scalar_one_or_none()

    def name_fleet(self, fence: Fence, fleet: str) -> None:
        identity = self.tables.identity
        with fenced(self.engine, fence, self.tables.fence) as connection:
            if connection.execute(select(identity.c.fleet)).scalar_one_or_none() is None:
                connection.execute(insert(identity).values(only=1, fleet=fleet))

    def assign(self, fleet: str) -> None:
        """Assign this inventory to a fleet, on an operator's request. Deletes recorded for another fleet were not meant
        for this one's store, so they are no witnesses any more."""
        identity, newest = self.tables.identity, self.revision()
        with writing(self.engine) as connection:
            before = connection.execute(select(identity.c.fleet)).scalar_one_or_none()
            if before is None:
                connection.execute(insert(identity).values(only=1, fleet=fleet))
            elif before != fleet:
                connection.execute(update(identity).values(fleet=fleet))
                self.void(connection, newest)

    @abstractmethod
    def revision(self) -> int: ...

    @abstractmethod
    def void(self, connection: Connection, upto: int) -> None:
        """Let no change up to that revision count as a witness."""

    def ignored(self) -> Collection[bytes]:
        with reading(self.engine) as connection:
            return set(connection.execute(select(self.tables.ignored.c.key)).scalars())

    def mark(self, fence: Fence, stored: int, nonce: str = "") -> Mark:
        with fenced(self.engine, fence, self.tables.fence) as connection:
            if nonce and connection.execute(self._nonce, {"of": fence.region, "number": stored}).scalar() != nonce:
                raise MarkUnknown(stored)  # protection: C40
            newest = connection.execute(self._newest_mark, {"of": fence.region}).scalar_one_or_none() or 0
            made = Mark(max(newest, stored) + 1, uuid.uuid4().hex)
            values = {"region": fence.region, "number": made.number, "nonce": made.nonce, "stored": stored}
            connection.execute(self._insert_mark, values)
            connection.execute(self._prune_marks, {"of": fence.region, "upto": made.number - MARKS_KEPT})
        return made

    def note_stored(self, connection: Connection, fence: Fence, mark: Mark) -> None:
        """Note in a fenced transaction that a mark of this inventory has reached the store."""
        connection.execute(self._note_stored, {"of": fence.region, "reached": mark.number, "made": mark.nonce})

    def marks(self, region: str) -> InventoryMarks:
        with reading(self.engine) as connection:
            return self._marks(connection, region)

    def has_mark(self, region: str, mark: Mark) -> bool:
        marks = self.tables.marks
        query = select(marks.c.nonce).where(marks.c.region == region, marks.c.number == mark.number)
        with reading(self.engine) as connection:
            return connection.execute(query).scalar_one_or_none() == mark.nonce

    def fence(self, region: str) -> Fence:
        return current(self.engine, region, self.tables.fence)

    def regions(self) -> Collection[str]:
        fence = self.tables.fence
        with reading(self.engine) as connection:
            return set(connection.execute(select(fence.c.region).where(fence.c.epoch > 0)).scalars())

    def raise_fence(self, fence: Fence) -> None:
        raise_fence(self.engine, fence, self.tables.fence)

    def close(self) -> None:
        self.engine.dispose()

    def _marks(self, connection: Connection, region: str) -> InventoryMarks:
        marks = self.tables.marks
        query = select(func.min(marks.c.number), func.max(marks.c.number), func.max(marks.c.stored))
        row = connection.execute(query.where(marks.c.region == region)).one()
        return InventoryMarks(*(number or 0 for number in row))
