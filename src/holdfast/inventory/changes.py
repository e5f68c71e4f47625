"""Changes of the inventory as values: what somebody wants, what becomes of it, what is there, what was before. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from holdfast.inventory.kinds import Thing
from holdfast.model.base.kind import Kind


class EditRefused(Exception):
    """The change was not made. The message is one sentence: what is wrong, and what to do."""


class ChangeKind(Enum):
    CREATED = "created"
    CHANGED = "changed"
    MOVED = "moved"
    DELETED = "deleted"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class WantedObject:
    """One object as it should be; `thing` is None where it should not be."""

    kind: Kind[Any, Any]
    name: str
    thing: Thing | None = None
    key: bytes = b""
    upon: int | None = None
    """The revision that the wish was made upon, 0 for none; when it is another by now, the wish is refused."""


@dataclass(frozen=True, slots=True)
class Edit:
    """What becomes of one object."""

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
    """Why it is so, where nobody asked for it: it follows from another edit of the same request."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object as the inventory has it."""

    kind: str
    name: str
    key: bytes
    doc: bytes
    revision: int


@dataclass(frozen=True, slots=True)
class PastChange:
    """One change that was made."""

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
