"""`SqlInventory`: the leader's side of the SQL inventory, on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy
from sqlalchemy import Connection, Engine, delete, func, select, text, update

from holdfast.inventory.api import Fence, OutboxRow, Row, Witness
from holdfast.inventory.changes import PastChange
from holdfast.inventory.kinds import KINDS
from holdfast.inventory.sql.control import SqlControl
from holdfast.inventory.sql.engine import (
    DatabaseTimeouts,
    in_utc,
    is_postgres,
    reading,
    snapshot_options,
)
from holdfast.inventory.sql.fence import fenced
from holdfast.inventory.sql.history import pruned
from holdfast.inventory.sql.revisions import newest_revision
from holdfast.inventory.sql.schema import CHANGES, CONTROL, IDENTITY, OBJECTS, OUTBOX
from holdfast.inventory.sql.snapshot import OpenTransaction
from holdfast.model.base.kind import Kind
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.control.mark import Mark

KEYS_PER_QUERY = 500

_NAMED = CHANGES.c.old_key, CHANGES.c.new_key
_ROWS = select(OBJECTS.c.key, OBJECTS.c.doc, OBJECTS.c.revision)


class SqlSnapshot(OpenTransaction):
    """All objects at one moment. Holds no lock that a writer could wait for."""

    def __init__(self, engine: Engine, limits: DatabaseTimeouts) -> None:
        super().__init__()
        with self.closed_on_error():
            isolation: dict[str, Any] = {"isolation_level": "REPEATABLE READ"} if is_postgres(engine) else {}
            self._connection = self.begin(engine, **isolation)
            if is_postgres(engine):
                self._connection.execute(text(snapshot_options(limits)))
            self._revision = newest_revision(self._connection)

    def read(self, after: bytes | None, most: int) -> Sequence[Row]:
        query = _ROWS.order_by(OBJECTS.c.key).limit(most)
        if after is not None:
            query = query.where(OBJECTS.c.key > after)
        with self.closed_on_error():
            return [Row(*row) for row in self._connection.execute(query)]

    def revision(self) -> int:
        return self._revision


class SqlInventory(SqlControl):
    """The `Inventory` of a fleet without OpenStack. Editors share its `engine`."""

    def __init__(self, engine: Engine, limits: DatabaseTimeouts | None = None) -> None:
        super().__init__(engine, CONTROL)
        self._limits = limits or DatabaseTimeouts()

    @property
    def kinds(self) -> Sequence[Kind[Any, Any]]:
        return KINDS

    @property
    def is_editable(self) -> bool:
        return True

    def snapshot(self) -> SqlSnapshot:
        return SqlSnapshot(self.engine, self._limits)

    def read_keys(self, keys: Collection[bytes]) -> Sequence[Row]:
        found: list[Row] = []
        with reading(self.engine) as connection:
            for batch in batches(sorted(keys)):
                found += [Row(*row) for row in connection.execute(_ROWS.where(OBJECTS.c.key.in_(batch)))]
        return found

    def find(self, kind: Kind[Any, Any], name: str) -> Row | None:
        return next(iter(self.find_all(kind, [name])), None)

    def find_all(self, kind: Kind[Any, Any], names: Collection[str]) -> Sequence[Row]:
        with reading(self.engine) as connection:
            return [Row(row.key, row.doc, row.revision) for row in rows_named(connection, kind, sorted(names))]

    def history(self, kind: Kind[Any, Any], name: str, last: int) -> Sequence[PastChange]:
        same = (CHANGES.c.kind == kind.name) & (CHANGES.c.name == name)
        query = select(CHANGES).where(same).order_by(CHANGES.c.revision.desc()).limit(last)
        with reading(self.engine) as connection:
            rows = connection.execute(query).all()
        return [PastChange(row.revision, row.old_key, row.old, row.new, row.who, row.why, row.at) for row in rows]

    def changed_at(self, revision: int) -> datetime | None:
        """The time of a change; None when its history was pruned."""
        query = select(CHANGES.c.at).where(CHANGES.c.revision == revision)
        with reading(self.engine) as connection:
            at = connection.execute(query).scalar_one_or_none()
        return None if at is None else in_utc(at)

    def networks(self) -> Mapping[str, int]:
        query = select(OBJECTS.c.network, func.count()).where(OBJECTS.c.kind == ENDPOINT.name)
        with reading(self.engine) as connection:
            return {row[0]: row[1] for row in connection.execute(query.group_by(OBJECTS.c.network))}

    def outbox(self, most: int, after: int = 0) -> Sequence[OutboxRow]:
        query = select(OUTBOX.c.id, OUTBOX.c.key, OUTBOX.c.before).where(OUTBOX.c.id > after)
        with reading(self.engine) as connection:
            return [OutboxRow(*row) for row in connection.execute(query.order_by(OUTBOX.c.id).limit(most))]

    def waiting(self) -> int:
        """Count the rows of the outbox."""
        with reading(self.engine) as connection:
            return connection.execute(select(func.count()).select_from(OUTBOX)).scalar_one()

    def unsettled(self, ids: Collection[int]) -> Collection[int]:
        """Those of these rows that are still in the outbox."""
        query = select(OUTBOX.c.id)
        with reading(self.engine) as connection:
            queries = (query.where(OUTBOX.c.id.in_(batch)) for batch in batches(sorted(ids)))
            return [number for one in queries for number in connection.execute(one).scalars()]

    def settle(self, fence: Fence, ids: Sequence[int], mark: Mark | None = None) -> None:
        with fenced(self.engine, fence) as connection:
            if mark is not None:
                self.note_stored(connection, fence, mark)
            for batch in batches(ids):
                connection.execute(delete(OUTBOX).where(OUTBOX.c.id.in_(batch)))

    def expect(self, fence: Fence, keys: Collection[bytes]) -> None:
        """The history names every key already."""

    def witness(self, keys: Collection[bytes]) -> Mapping[bytes, Witness]:
        found: dict[bytes, Witness] = {}
        with reading(self.engine) as connection:
            after = connection.execute(select(IDENTITY.c.witness_after)).scalar_one_or_none() or 0
            for batch in batches(sorted(keys)):
                found |= _newest_witnesses(connection, batch, after)
        return found

    def void_witnesses(self, fence: Fence, upto: int | None = None) -> None:
        with fenced(self.engine, fence) as connection:
            self.void(connection, newest_revision(connection) if upto is None else upto)

    def void(self, connection: Connection, upto: int) -> None:
        connection.execute(update(IDENTITY).where(IDENTITY.c.witness_after < upto).values(witness_after=upto))

    def revision(self) -> int:
        with reading(self.engine) as connection:
            return newest_revision(connection)

    def prune_history(self, fence: Fence, before: datetime, held: Collection[bytes] = ()) -> Iterator[int]:
        return pruned(self.engine, fence, before, held)


def _newest_witnesses(connection: Connection, keys: Sequence[bytes], after: int) -> dict[bytes, Witness]:
    """The newest change that names each key, as the key before or after it, where the key was given up."""
    deletes = CHANGES.c.new.is_(None).label("deletes")
    columns = CHANGES.c.revision, CHANGES.c.new_key, CHANGES.c.who, CHANGES.c.at, deletes
    newest: dict[bytes, Any] = {}
    for column in _NAMED:
        named = select(column, func.max(CHANGES.c.revision).label("newest")).where(column.in_(keys)).group_by(column)
        last = named.subquery()
        joined = select(last.c[0].label("named"), *columns).join(CHANGES, CHANGES.c.revision == last.c.newest)
        for row in connection.execute(joined):
            if row.named not in newest or newest[row.named].revision < row.revision:
                newest[row.named] = row
    return {
        key: Witness(row.revision, row.who, row.new_key, in_utc(row.at))
        for key, row in newest.items()
        if row.revision > after and (row.deletes or row.new_key not in (None, key))
    }


def rows_named(connection: Connection, kind: Kind[Any, Any], names: Sequence[str]) -> Iterator[sqlalchemy.Row[Any]]:
    """The stored objects of a kind with these names."""
    for batch in batches(names):
        yield from connection.execute(select(OBJECTS).where(OBJECTS.c.kind == kind.name, OBJECTS.c.name.in_(batch)))


def batches(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Split items into batches: databases limit the parameters of a statement."""
    for start in range(0, len(items), KEYS_PER_QUERY):
        yield items[start : start + KEYS_PER_QUERY]
