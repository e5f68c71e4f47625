"""Codec of journal records: claims as deterministic text, so that equal claims are equal bytes. Pure.

A record that this release cannot read stays in the journal as it is: its object may be in the kernel, where our tag
shows it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from operator import attrgetter
from sys import intern

import msgspec

from holdfast.agent.claims import NO_OWNER, Claim, ClaimKey, ClaimKind, Owner, Shape
from holdfast.reconcile import Owned


class JournalRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Object under one key of the journal. A later release appends fields, which this one ignores."""

    shape: Shape
    owner: Owner = NO_OWNER
    source: str = ""
    revision: int = 0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(JournalRecord).decode
_NAMES = {kind: kind.name.lower() for kind in ClaimKind}
_PREFIXES = {f"{name} {family}".encode(): (kind, family) for kind, name in _NAMES.items() for family in (4, 6)}
_LENGTHS = {b"%d" % number: number for number in range(129)}
"""Looked up, not parsed: a restart reads a hundred thousand keys."""


def write_key(key: ClaimKey) -> bytes:
    kind, family, number, length = key
    return f"{_NAMES[kind]} {family} {number:x} {length}".encode()


def read_key(text: bytes) -> ClaimKey | None:
    """None: not a key of this release."""
    try:
        prefix, number, length = text.rsplit(b" ", 2)
        return ClaimKey(*_PREFIXES[prefix], int(number, 16), _LENGTHS[length])
    except (KeyError, ValueError):
        return None


def read_keys(texts: Iterable[bytes]) -> list[ClaimKey | None]:
    """Read many keys at once."""
    texts, new = list(texts), tuple.__new__  # a named tuple's own constructor takes longer than all the rest
    try:
        return [
            new(ClaimKey, (*_PREFIXES[prefix], int(number, 16), _LENGTHS[length]))
            for prefix, number, length in map(bytes.rsplit, texts, repeat(b" "), repeat(2))
        ]
    except (KeyError, ValueError):
        return [read_key(text) for text in texts]


def write(owned: Owned[Claim]) -> bytes:
    """`missing` is left out: it is found out again."""
    return _encode(JournalRecord(owned.value.shape, owned.value.owner, owned.source, owned.revision))


def read(body: bytes) -> Owned[Claim] | None:
    """None: not a claim of this release."""
    try:
        record = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return Owned(Claim(record.shape, record.owner), intern(record.source), record.revision)


def read_all(bodies: Iterable[bytes]) -> list[Owned[Claim]] | None:
    """Read many claims at once. None: one of them is not of this release."""
    try:
        records = list(map(_decode, bodies))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    claims = map(Claim, map(_SHAPE, records), map(_OWNER, records))
    return list(map(Owned, claims, map(intern, map(_SOURCE, records)), map(_REVISION, records)))


_SHAPE, _OWNER, _SOURCE, _REVISION = map(attrgetter, ("shape", "owner", "source", "revision"))
