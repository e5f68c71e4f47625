"""Editing the inventory: every change, its outbox row and its history are one transaction.

All of one request happens or nothing of it, and requests happen one after the other: each sees all of those before it.
What breaks a rule is refused by name. Creating is told from changing and moving by what is there; asking for what is
there already changes nothing and wakes nobody.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, Engine, Row, delete, insert, select, text

from holdfast.inventory.changes import ChangeKind, Edit, EditRefused, PastChange, StoredObject, WantedObject
from holdfast.inventory.edit import live_migration as migrating
from holdfast.inventory.edit import rules
from holdfast.inventory.kinds import KINDS, REGION_LABEL, Thing, addresses_of, host_of, name_of, network_named
from holdfast.inventory.sql.engine import reading, writing
from holdfast.inventory.sql.objects import SqlInventory, called, portions
from holdfast.inventory.sql.schema import ADDRESSES, CHANGES, IDENTITY, OBJECTS, OUTBOX
from holdfast.inventory.sql.wake import CHANNEL
from holdfast.model.base.bad import Bad
from holdfast.model.base.kind import Kind
from holdfast.model.base.region import Region
from holdfast.model.base.timestamps import written
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint
from holdfast.model.calico.host import HOST
from holdfast.model.calico.migration import Migration

__all__ = ["ChangeKind", "Edit", "EditRefused", "Editor", "PastChange", "StoredObject", "WantedObject", "wanted"]

_EDITS = 0x686F6C6465646974
"""PostgreSQL's advisory lock of whoever edits. SQLite has one writer at a time anyway."""


def wanted(kind: Kind[Any, Any], region: Region, name: Any, thing: Thing) -> WantedObject:
    """An object as somebody asks for it; `name` is the one in its key. Raises NameRefused."""
    ours = _labelled(thing, region) if kind is HOST else thing
    return WantedObject(kind, name_of(name), ours, kind.key(region, name))


def _labelled(thing: Any, region: Region) -> Any:
    if not region.name:
        return thing
    labels = {**thing.metadata.labels, REGION_LABEL: region.name}
    return msgspec.structs.replace(thing, metadata=msgspec.structs.replace(thing.metadata, labels=labels))


class Editor:
    """The operator's side of the SQL inventory."""

    def __init__(self, engine: Engine, region: Region) -> None:
        self._engine = engine
        self._region = region

    def change(
        self, wishes: Sequence[WantedObject], *, who: str, why: str = "", dry_run: bool = False
    ) -> Sequence[Edit]:
        """Makes the inventory say this about these objects; what follows from it comes after what was asked for.
        Raises `EditRefused`, and then nothing was changed."""
        rules.refuse_repetition(wishes)
        with self._editing(dry_run) as connection:
            return self._made(connection, wishes, who, why, dry_run)

    def move(self, name: str, to: str, *, who: str, why: str = "", dry_run: bool = False) -> Sequence[Edit]:
        """Puts an endpoint on another host and leaves it as it is otherwise, also where somebody else has just changed
        it. Raises `EditRefused`."""
        with self._editing(dry_run) as connection:
            return self._made(connection, [_moved(connection, name, to, self._region)], who, why, dry_run)

    def _made(
        self, connection: Connection, wishes: Sequence[WantedObject], who: str, why: str, dry_run: bool
    ) -> Sequence[Edit]:
        wishes = migrating.begun(connection, wishes, self._region)
        there = _there(connection, wishes)
        rules.refuse_foreign(wishes, there, self._region)
        now = datetime.now(UTC)
        edits = [_decide(wish, there.get((wish.kind.name, wish.name)), now) for wish in wishes]
        edits += migrating.ended(connection, edits)
        changes = [edit for edit in edits if edit.did is not ChangeKind.UNCHANGED]
        rules.refuse(connection, changes)
        if dry_run or not changes:
            return edits
        revisions = _write(connection, changes, who, why, now)
        return [replace(edit, revision=revisions.get((edit.kind.name, edit.name), edit.revision)) for edit in edits]

    @contextlib.contextmanager
    def _editing(self, dry_run: bool) -> Iterator[Connection]:
        """A transaction in which nobody else edits. Locked rows would not do: a change that waited for another one does
        not see what that one made of its object, and a delete would pass it by."""
        if dry_run:
            with reading(self._engine) as connection:
                yield connection
            return
        with writing(self._engine) as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _EDITS})
            yield connection

    def undo(
        self, kind: Kind[Any, Any], name: str, *, who: str, why: str = "", dry_run: bool = False
    ) -> Sequence[Edit]:
        """Makes the object what it was before its last change, by the rules of today. Raises `EditRefused`."""
        past = self.history(kind, name, last=1)
        if not past:
            raise EditRefused(f"nothing is known of a change of {kind.name} {name}, so there is nothing to undo")
        wish = _as_it_was(kind, name, past[0])
        return self.change([wish], who=who, why=why or f"undo of revision {past[0].revision}", dry_run=dry_run)

    def objects(
        self, kind: Kind[Any, Any], name: str | None = None, network: str | None = None
    ) -> Sequence[StoredObject]:
        """The objects of a kind, in key order; or the one of that name, or those on a network."""
        question = select(OBJECTS).where(OBJECTS.c.kind == kind.name).order_by(OBJECTS.c.key)
        if name is not None:
            question = question.where(OBJECTS.c.name == name)
        if network is not None:
            question = question.where(OBJECTS.c.network == network)
        with reading(self._engine) as connection:
            rows = connection.execute(question).all()
        return [StoredObject(row.kind, row.name, row.key, row.doc, row.revision) for row in rows]

    def history(self, kind: Kind[Any, Any], name: str, last: int = 20) -> Sequence[PastChange]:
        """The last changes of an object, newest first; also of one that is gone."""
        return SqlInventory(self._engine).past(kind, name, last)

    def adopt(self, fleet: str) -> None:
        """An operator says that this inventory is that fleet's."""
        with writing(self._engine) as connection:
            connection.execute(delete(IDENTITY))
            connection.execute(insert(IDENTITY).values(only=1, fleet=fleet))


def _as_it_was(kind: Kind[Any, Any], name: str, past: PastChange) -> WantedObject:
    upon = 0 if past.new is None else past.revision
    if past.old is None or past.old_key is None:
        return WantedObject(kind, name, upon=upon)
    thing = kind.decode(past.old_key, past.old)
    if isinstance(thing, Bad):
        raise EditRefused(f"what {kind.name} {name} was before cannot be read any more: {thing}")
    return WantedObject(kind, name, thing, past.old_key, upon)


def _moved(connection: Connection, name: str, to: str, region: Region) -> WantedObject:
    row = next(called(connection, ENDPOINT, [name]), None)
    if row is None:
        raise EditRefused(f"there is no endpoint {name} in the inventory")
    endpoint = ENDPOINT.decode(row.key, row.doc)
    if isinstance(endpoint, Bad):
        raise EditRefused(f"endpoint {name} cannot be read by this version, so it cannot be moved: apply all of it")
    if next(called(connection, HOST, [to]), None) is None:
        raise EditRefused(
            f"host {to} is not in the inventory, so endpoint {name} cannot move there: apply that host first"
        )
    metadata, spec = endpoint.metadata, msgspec.structs.replace(endpoint.spec, node=to)
    moved = Endpoint.of(region, spec, labels=metadata.labels, annotations=metadata.annotations)
    return WantedObject(ENDPOINT, name, moved, ENDPOINT.key(region, moved.name))


def _there(connection: Connection, wishes: Sequence[WantedObject]) -> Mapping[tuple[str, str], Row[Any]]:
    found: dict[tuple[str, str], Row[Any]] = {}
    for kind in KINDS:
        names = [wish.name for wish in wishes if wish.kind is kind]
        found |= {(row.kind, row.name): row for row in called(connection, kind, names)}
    return found


def _decide(wish: WantedObject, row: Row[Any] | None, now: datetime) -> Edit:
    old_key, old, revision = (None, None, 0) if row is None else (row.key, row.doc, row.revision)
    if wish.upon not in (None, revision):
        raise EditRefused(f"{wish.kind.name} {wish.name} was changed meanwhile: look at it again")
    if wish.thing is None:
        did = ChangeKind.UNCHANGED if row is None else ChangeKind.DELETED
        return Edit(did, wish.kind, wish.name, old_key, old, old_key or b"", None, None)
    thing = _same_individual(wish, row, now)
    new = wish.kind.encode(thing, over=old)
    if row is None:
        did = ChangeKind.CREATED
    elif row.key != wish.key:
        did = ChangeKind.MOVED
    else:
        did = ChangeKind.UNCHANGED if old == new else ChangeKind.CHANGED
    return Edit(did, wish.kind, wish.name, old_key, old, wish.key, new, thing, revision)


def _same_individual(wish: WantedObject, row: Row[Any] | None, now: datetime) -> Any:
    """The thing with the uid and creation time that it has already, or gets now."""
    thing: Any = wish.thing
    old = wish.kind.decode(row.key, row.doc) if row is not None else None
    if old is not None and not isinstance(old, Bad) and not _is_another_migration(thing, old):
        return wish.kind.carried(thing, old)
    metadata = getattr(thing, "metadata", None)
    if metadata is None or metadata.uid:
        return thing
    born = msgspec.structs.replace(metadata, uid=str(uuid.uuid4()), creation_timestamp=written(now))
    return msgspec.structs.replace(thing, metadata=born)


def _is_another_migration(new: Thing, old: Thing) -> bool:
    """From or to somewhere else is another one: whoever heard that the first has arrived hears of it, too."""
    return isinstance(new, Migration) and isinstance(old, Migration) and new.spec != old.spec


def _write(
    connection: Connection, changes: Sequence[Edit], who: str, why: str, now: datetime
) -> Mapping[tuple[str, str], int]:
    outbox = insert(OUTBOX).returning(OUTBOX.c.id, sort_by_parameter_order=True)
    rows = [{"key": edit.key, "before": edit.old_key if edit.did is ChangeKind.MOVED else None} for edit in changes]
    ids: list[int] = list(connection.execute(outbox, rows).scalars())
    for some in portions([edit.old_key for edit in changes if edit.old_key is not None]):
        connection.execute(delete(OBJECTS).where(OBJECTS.c.key.in_(some)))
    for kind in KINDS:
        for names in portions([edit.name for edit in changes if edit.kind is kind and edit.old is not None]):
            connection.execute(delete(ADDRESSES).where(ADDRESSES.c.kind == kind.name, ADDRESSES.c.name.in_(names)))
    _insert(connection, OBJECTS, (_object(edit, number) for edit, number in zip(changes, ids, strict=True)))
    _insert(connection, ADDRESSES, (row for edit in changes for row in _addresses(edit)))
    past = {"who": who, "at": now}
    _insert(connection, CHANGES, (_past(edit, number, why) | past for edit, number in zip(changes, ids, strict=True)))
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"NOTIFY {CHANNEL}"))
    return {(edit.kind.name, edit.name): number for edit, number in zip(changes, ids, strict=True)}


def _insert(connection: Connection, table: Any, rows: Iterable[dict[str, Any] | None]) -> None:
    found = [row for row in rows if row is not None]
    if found:
        connection.execute(insert(table), found)


def _object(edit: Edit, revision: int) -> dict[str, Any] | None:
    if edit.thing is None:
        return None
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
        "old": edit.old,
        "new": edit.new,
        "why": "; ".join(filter(None, (edit.because, why))),
    }
