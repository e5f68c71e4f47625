"""Outcome of a translation: the objects that the store should hold, and the rows or parts of rows that were refused."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID, uuid5

from holdfast.model.base.address import AddressRefused
from holdfast.model.base.bad import Bad, BadReason, shortened
from holdfast.model.base.kind import Kind

_DETAIL_LIMIT = 160
"""Characters of a refusal's detail: it names up to two resources by their ids."""
_UIDS = UUID("6b0f5a52-6f0e-5d0c-9d53-0d6a3f1c4e57")


class Translated(NamedTuple):
    """One object that the store should hold."""

    kind: Kind[Any, Any]
    key: bytes
    thing: Any

    @property
    def doc(self) -> bytes:
        return self.kind.encode(self.thing)


class Translation(NamedTuple):
    """Everything that one row becomes. A Bad whose key is the key of no object stands for a whole row; a Bad with the
    key of an object stands for a part that was left out of it."""

    objects: tuple[Translated, ...] = ()
    bad: tuple[Bad, ...] = ()


class MissingRow(LookupError):
    """A row refers to another one that was not read: it is translated when both are there."""


def refused(key: bytes, error: Exception | str, what: str = "") -> Bad:
    """The refusal of a row or of a part of it. `what` names the part."""
    detail = f"{what}: {error}" if what else str(error)
    return Bad(key, _reason(error), shortened(detail, _DETAIL_LIMIT))


def _reason(error: Exception | str) -> BadReason:
    match error:
        case MissingRow():
            return BadReason.MISSING_ROW
        case AddressRefused():
            return BadReason.WRONG_ADDRESS
    return BadReason.NOT_IN_CALICO


def row_path(collection: str, row_id: str) -> bytes:
    """The name of a row in Neutron's API, `ports/8e80eb60-…`, in place of a key that cannot be built."""
    return f"{collection}/{ascii(row_id)[1:-1]}".encode()


def uid_of(key: bytes) -> str:
    """The uid that a new object gets. It depends on the key only, so that every server computes the same one; a uid
    that is in the store already is kept."""
    return str(uuid5(_UIDS, key.hex()))


def timestamp(created: datetime | None) -> str | None:
    """A creation time as Calico writes it; Neutron's are naive and in UTC."""
    return None if created is None else f"{created.replace(tzinfo=None).isoformat(timespec='seconds')}Z"
