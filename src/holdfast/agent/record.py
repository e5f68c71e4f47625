"""Records: a claim as the journal keeps it. Deterministic text, so that equal claims are equal bytes.

What this release cannot read stays in the journal as it is: it may be in the kernel, and the kernel's tags tell of it.
"""

from __future__ import annotations

import msgspec

from holdfast.agent.claims import NOBODY, Claim, Key, Owner, Shape, Sort
from holdfast.reconcile import Owned


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The object under one key of the journal. What a later release adds comes behind, and is not looked at here."""

    shape: Shape
    owner: Owner = NOBODY
    source: str = ""
    revision: int = 0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Record).decode
_SORTS = {sort.name.lower().encode(): sort for sort in Sort}
_NAMES = {sort: name.decode() for name, sort in _SORTS.items()}
_SMALL = {b"%d" % number: number for number in range(129)}
"""Families and lengths: a restart reads a hundred thousand keys."""


def write_key(key: Key) -> bytes:
    sort, family, number, length = key
    return f"{_NAMES[sort]} {family} {number:x} {length}".encode()


def read_key(text: bytes) -> Key | None:
    """None: not a key of this release."""
    try:
        sort, family, number, length = text.split()
        return Key(_SORTS[sort], _SMALL[family], int(number, 16), _SMALL[length])
    except (KeyError, ValueError):
        return None


def write(owned: Owned[Claim]) -> bytes:
    """What is missing now is not worth remembering: that is found out again."""
    return _encode(Record(owned.value.shape, owned.value.owner, owned.source, owned.revision))


def read(body: bytes) -> Owned[Claim] | None:
    """None: not a claim of this release."""
    try:
        record = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return Owned(Claim(record.shape, record.owner), record.source, record.revision)
