"""Edits of the inventory: a change, its outbox row and its history are written in one transaction.

A batch of requests is applied as a whole or not at all, and batches are applied one after the other: each sees all
those before it. A request that breaks a rule is refused by name. The stored object decides between created, changed,
moved and unchanged; an unchanged object wakes no syncer.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace
from sqlalchemy import Connection, Engine, Row, Table, delete, insert, select, text

from holdfast.inventory.changes import ChangeKind, Edit, EditRefused, PastChange, StoredObject, WantedObject
from holdfast.inventory.edit import live_migration, rules
from holdfast.inventory.edit.transaction import EditTimeouts, editing
from holdfast.inventory.kinds import KINDS, Thing, addresses_of, host_of, network_named
from holdfast.inventory.sql.engine import reading
from holdfast.inventory.sql.objects import SqlInventory, batches, rows_named
from holdfast.inventory.sql.revisions import next_revisions
from holdfast.inventory.sql.schema import ADDRESSES, CHANGES, OBJECTS, OUTBOX
from holdfast.inventory.sql.wake import CHANNEL
from holdfast.model.base.bad import Bad
from holdfast.model.base.kind import Kind
from holdfast.model.base.region import Region
from holdfast.model.base.time import rfc3339
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint
from holdfast.model.calico.host import HOST
from holdfast.model.calico.migration import Migration

_ANYWHERE = rules.Placement()
_PORTION = 1_000
"""Rows per INSERT."""


class Editor:
    """The operator's side of the SQL inventory."""

    def __init__(
        self,
        engine: Engine,
        region: Region,
        limits: EditTimeouts | None = None,
        prefixes: rules.PrefixRules | None = None,
    ) -> None:
        self._engine = engine
        self._prefixes = prefixes or rules.PrefixRules()
        self._region = region
        self._limits = limits or EditTimeouts()

    def change(
        self,
        requests: Sequence[WantedObject],
        *,
        who: str,
        why: str = "",
        dry_run: bool = False,
        placement: rules.Placement = _ANYWHERE,
    ) -> Sequence[Edit]:
        """Apply the requests. Edits that follow from them come after those that were requested.
        Raises `EditRefused`, or `EditTimedOut` among them; nothing was changed then."""
        rules.refuse_repetition(requests)
        with self._editing(dry_run=dry_run) as connection:
            return self._apply(connection, requests, who, why, dry_run, placement)

    def move(
        self,
        name: str,
        to: str,
        *,
        who: str,
        why: str = "",
        dry_run: bool = False,
        placement: rules.Placement = _ANYWHERE,
    ) -> Sequence[Edit]:
        """Move an endpoint to another host. Its other fields keep their current values, even if another operator has
        just changed them. Raises `EditRefused`."""
        with self._editing(dry_run=dry_run) as connection:
            moved = _moved(connection, name, to, self._region)
            return self._apply(connection, [moved], who, why, dry_run, placement)

    def _apply(
        self,
        connection: Connection,
        requests: Sequence[WantedObject],
        who: str,
        why: str,
        dry_run: bool,
        placement: rules.Placement,
    ) -> Sequence[Edit]:
        requests = live_migration.with_sources(connection, requests, self._region)
        stored = _stored(connection, requests)
        rules.refuse_foreign(requests, stored, self._region)
        now = datetime.now(UTC)
        edits = [_decide(request, stored.get((request.kind.name, request.name)), now) for request in requests]
        edits += live_migration.ended(connection, edits)
        changes = [edit for edit in edits if edit.did is not ChangeKind.UNCHANGED]
        rules.refuse(connection, changes, self._prefixes, placement)
        if dry_run or not changes:
            return edits
        revisions = _write(connection, changes, who, why, now)
        return [replace(edit, revision=revisions.get((edit.kind.name, edit.name), edit.revision)) for edit in edits]

    def _editing(self, *, dry_run: bool = False) -> AbstractContextManager[Connection]:
        return editing(self._engine, self._limits, dry_run=dry_run)

    def undo(
        self, kind: Kind[Any, Any], name: str, *, who: str, why: str = "", dry_run: bool = False
    ) -> Sequence[Edit]:
        """Restore the object as it was before its last change, under today's rules. Raises `EditRefused`."""
        past = self.history(kind, name, last=1)
        if not past:
            raise EditRefused(f"there is no recorded change of {kind.name} {name}, so there is nothing to undo")
        request = _previous(kind, name, past[0])
        return self.change([request], who=who, why=why or f"undo of revision {past[0].revision}", dry_run=dry_run)

    def objects(
        self, kind: Kind[Any, Any], name: str | None = None, network: str | None = None
    ) -> Sequence[StoredObject]:
        """List the objects of a kind in key order: all, the one of a name, or those on a network."""
        query = select(OBJECTS).where(OBJECTS.c.kind == kind.name).order_by(OBJECTS.c.key)
        if name is not None:
            query = query.where(OBJECTS.c.name == name)
        if network is not None:
            query = query.where(OBJECTS.c.network == network)
        with reading(self._engine) as connection:
            rows = connection.execute(query).all()
        return [StoredObject(row.kind, row.name, row.key, row.doc, row.revision) for row in rows]

    def history(self, kind: Kind[Any, Any], name: str, last: int = 20) -> Sequence[PastChange]:
        """The last changes of an object, newest first; also of a deleted one."""
        return SqlInventory(self._engine).history(kind, name, last)


def _previous(kind: Kind[Any, Any], name: str, past: PastChange) -> WantedObject:
    based_on = 0 if past.new is None else past.revision
    if past.old is None or past.old_key is None:
        return WantedObject(kind, name, based_on=based_on)
    thing = kind.decode(past.old_key, past.old)
    if isinstance(thing, Bad):
        raise EditRefused(f"the previous version of {kind.name} {name} cannot be read: {thing}")
    return WantedObject(kind, name, thing, past.old_key, based_on)


def _moved(connection: Connection, name: str, to: str, region: Region) -> WantedObject:
    row = next(rows_named(connection, ENDPOINT, [name]), None)
    if row is None:
        raise EditRefused(f"there is no endpoint {name} in the inventory")
    endpoint = ENDPOINT.decode(row.key, row.doc)
    if isinstance(endpoint, Bad):
        raise EditRefused(f"endpoint {name} cannot be read by this version, so it cannot be moved: apply it as a whole")
    if next(rows_named(connection, HOST, [to]), None) is None:
        raise EditRefused(
            f"host {to} is not in the inventory, so endpoint {name} cannot move there: apply that host first"
        )
    metadata, spec = endpoint.metadata, msgspec.structs.replace(endpoint.spec, node=to)
    moved = Endpoint.of(region, spec, labels=metadata.labels, annotations=metadata.annotations)
    return WantedObject(ENDPOINT, name, moved, ENDPOINT.key(region, moved.name))


def _stored(connection: Connection, requests: Sequence[WantedObject]) -> Mapping[tuple[str, str], Row[Any]]:
    found: dict[tuple[str, str], Row[Any]] = {}
    for kind in KINDS:
        names = [request.name for request in requests if request.kind is kind]
        found |= {(row.kind, row.name): row for row in rows_named(connection, kind, names)}
    return found


def _decide(request: WantedObject, row: Row[Any] | None, now: datetime) -> Edit:
    old_key, old, revision = (None, None, 0) if row is None else (row.key, row.doc, row.revision)
    if request.based_on not in (None, revision):
        raise EditRefused(
            f"{request.kind.name} {request.name} was changed in the meantime: read it again and repeat the request"
        )
    if request.thing is None:
        did = ChangeKind.UNCHANGED if row is None else ChangeKind.DELETED
        return Edit(did, request.kind, request.name, old_key, old, old_key or b"", None, None)
    thing = _with_identity(request, row, now) if request.imported is None else request.thing
    new = request.kind.encode(thing, over=old if request.imported is None else request.imported)
    if row is None:
        did = ChangeKind.CREATED
    elif row.key != request.key:
        did = ChangeKind.MOVED
    else:
        did = ChangeKind.UNCHANGED if old == new else ChangeKind.CHANGED
    return Edit(did, request.kind, request.name, old_key, old, request.key, new, thing, revision)


def _with_identity(request: WantedObject, row: Row[Any] | None, now: datetime) -> Any:
    """The object with its existing uid and creation time, or with new ones."""
    thing: Any = request.thing
    old = request.kind.decode(row.key, row.doc) if row is not None else None
    if old is not None and not isinstance(old, Bad) and not _is_another_migration(thing, old):
        return request.kind.carried(thing, old)
    metadata = getattr(thing, "metadata", None)
    if metadata is None or metadata.uid:
        return thing
    born = msgspec.structs.replace(metadata, uid=str(uuid.uuid4()), creation_timestamp=rfc3339(now))
    return msgspec.structs.replace(thing, metadata=born)


def _is_another_migration(new: Thing, old: Thing) -> bool:
    """Tell whether source or target differ. A new migration gets a new uid, so that its arrival is notified, too."""
    return isinstance(new, Migration) and isinstance(old, Migration) and new.spec != old.spec


def _write(
    connection: Connection, changes: Sequence[Edit], who: str, why: str, now: datetime
) -> Mapping[tuple[str, str], int]:
    numbered = list(zip(changes, next_revisions(connection, len(changes)), strict=True))
    for batch in batches([edit.old_key for edit in changes if edit.old_key is not None]):
        connection.execute(delete(OBJECTS).where(OBJECTS.c.key.in_(batch)))
    for kind in KINDS:
        for names in batches([edit.name for edit in changes if edit.kind is kind and edit.old is not None]):
            connection.execute(delete(ADDRESSES).where(ADDRESSES.c.kind == kind.name, ADDRESSES.c.name.in_(names)))
    past = {"who": who, "at": now}
    _insert(connection, OUTBOX, (_outbox_row(edit, number) for edit, number in numbered))
    _insert(connection, OBJECTS, (_object(edit, number) for edit, number in numbered if edit.thing is not None))
    _insert(connection, ADDRESSES, (row for edit in changes for row in _addresses(edit)))
    _insert(connection, CHANGES, (_past(edit, number, why) | past for edit, number in numbered))
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"NOTIFY {CHANNEL}"))
    return {(edit.kind.name, edit.name): number for edit, number in numbered}


def _insert(connection: Connection, table: Table, rows: Iterable[dict[str, Any]]) -> None:
    """Insert rows in portions: with all rows of a large edit in memory, each portion would take longer than the last,
    because Python's garbage collector looks at all of them again and again."""
    while portion := list(itertools.islice(rows := iter(rows), _PORTION)):
        connection.execute(insert(table), portion)


def _outbox_row(edit: Edit, revision: int) -> dict[str, Any]:
    return {"id": revision, "key": edit.key, "before": edit.old_key if edit.did is ChangeKind.MOVED else None}


def _object(edit: Edit, revision: int) -> dict[str, Any]:
    assert edit.thing is not None
    return {
        "key": edit.key,
        "kind": edit.kind.name,
        "name": edit.name,
        "doc": edit.new,
        "revision": revision,
        "host": host_of(edit.thing),
        "network": network_named(edit.thing),
    }


def _addresses(edit: Edit) -> Iterable[dict[str, Any]]:
    if edit.thing is not None:
        for address in addresses_of(edit.thing):
            yield {"address": address, "kind": edit.kind.name, "name": edit.name}


def _past(edit: Edit, revision: int, why: str) -> dict[str, Any]:
    return {
        "revision": revision,
        "kind": edit.kind.name,
        "name": edit.name,
        "old_key": edit.old_key,
        "new_key": None if edit.new is None else edit.key,
        "old": edit.old,
        "new": edit.new,
        "why": "; ".join(filter(None, (edit.because, why))),
    }
