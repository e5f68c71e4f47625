"""Changes of the inventory as values: a request, the edit that follows from it, and past changes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

import msgspec

from holdfast.inventory.kinds import Thing, name_of
from holdfast.model.base.kind import Kind
from holdfast.model.base.region import Region
from holdfast.model.calico.host import HOST, REGION_LABEL


class EditRefused(Exception):
    """The request was refused and nothing was changed. The message has a sentence for each problem, with its fix, on a
    line of its own."""


class ChangeKind(Enum):
    CREATED = "created"
    CHANGED = "changed"
    MOVED = "moved"
    DELETED = "deleted"
    UNCHANGED = "unchanged"


class WantedObject(msgspec.Struct, frozen=True, gc=False):
    """A request: one object as it should be; `thing` is None to delete it.

    Requests and edits are not looked at by Python's garbage collector (`gc`): a large edit has hundreds of thousands.
    """

    kind: Kind[Any, Any]
    name: str
    thing: Thing | None = None
    key: bytes = b""
    based_on: int | None = None
    """The revision that the request is based on, 0 for none; if it has changed since, the request is refused."""
    imported: bytes | None = None
    """The value in the store that `thing` was decoded from. It is kept as it is: with its uid, or without one, and with
    the fields that our model does not know."""


def wanted(kind: Kind[Any, Any], region: Region, name: Any, thing: Thing) -> WantedObject:
    """Make the request for an object; `name` is the name in its key. Raises NameRefused."""
    labelled = _with_region(thing, region) if kind is HOST else thing
    return WantedObject(kind, name_of(name), labelled, kind.key(region, name))


def _with_region(thing: Any, region: Region) -> Any:
    if not region.name:
        return thing
    labels = {**thing.metadata.labels, REGION_LABEL: region.name}
    return msgspec.structs.replace(thing, metadata=msgspec.structs.replace(thing.metadata, labels=labels))


class Edit(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a request for one object."""

    did: ChangeKind
    kind: Kind[Any, Any]
    name: str
    old_key: bytes | None
    old: bytes | None
    key: bytes
    new: bytes | None
    thing: Thing | None
    revision: int = 0
    because: str = ""
    """The reason of an edit that was not requested: it follows from another edit of the same batch."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object as the inventory stores it."""

    kind: str
    name: str
    key: bytes
    doc: bytes
    revision: int


@dataclass(frozen=True, slots=True)
class PastChange:
    """One change from the history."""

    revision: int
    old_key: bytes | None
    old: bytes | None
    new: bytes | None
    who: str
    why: str
    at: datetime

    @property
    def did(self) -> ChangeKind:
        if self.new is None:
            return ChangeKind.DELETED
        return ChangeKind.CREATED if self.old is None else ChangeKind.CHANGED
