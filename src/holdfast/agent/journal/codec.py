"""Records: a claim as the journal keeps it. Deterministic text, so that equal claims are equal bytes.

What this release cannot read stays in the journal as it is: it may be in the kernel, and the kernel's tags tell of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from sys import intern

import msgspec

from holdfast.agent.claims import NOBODY, Claim, ClaimKey, ClaimKind, Owner, Shape
from holdfast.reconcile import Owned


class JournalRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The object under one key of the journal. What a later release adds comes behind, and is not looked at here."""

    shape: Shape
    owner: Owner = NOBODY
    source: str = ""
    revision: int = 0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(JournalRecord).decode
_NAMES = {sort: sort.name.lower() for sort in ClaimKind}
_PLACES = {f"{name} {family}".encode(): (sort, family) for sort, name in _NAMES.items() for family in (4, 6)}
_LENGTHS = {b"%d" % number: number for number in range(129)}
"""Looked up, not parsed: a restart reads a hundred thousand keys."""


def write_key(key: ClaimKey) -> bytes:
    sort, family, number, length = key
    return f"{_NAMES[sort]} {family} {number:x} {length}".encode()


def read_key(text: bytes) -> ClaimKey | None:
    """None: not a key of this release."""
    try:
        place, number, length = text.rsplit(b" ", 2)
        return ClaimKey(*_PLACES[place], int(number, 16), _LENGTHS[length])
    except (KeyError, ValueError):
        return None


def read_keys(texts: Iterable[bytes]) -> list[ClaimKey | None]:
    """The same of many."""
    texts, new = list(texts), tuple.__new__  # a named tuple's own takes longer than all the rest of it
    try:
        return [
            new(ClaimKey, (*_PLACES[place], int(number, 16), _LENGTHS[length]))
            for place, number, length in map(bytes.rsplit, texts, repeat(b" "), repeat(2))
        ]
    except (KeyError, ValueError):
        return [read_key(text) for text in texts]


def write(owned: Owned[Claim]) -> bytes:
    """What is missing now is not worth remembering: that is found out again."""
    return _encode(JournalRecord(owned.value.shape, owned.value.owner, owned.source, owned.revision))


def read(body: bytes) -> Owned[Claim] | None:
    """None: not a claim of this release."""
    try:
        record = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return Owned(Claim(record.shape, record.owner), intern(record.source), record.revision)
