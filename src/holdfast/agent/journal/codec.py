"""Codec of journal records: claims as deterministic text, so that equal claims are equal bytes. Pure.

A record that this release cannot read stays in the journal as it is: its object may be in the kernel, where our tag
shows it. So keys and objects of the journal are claims, or bytes that are not decoded yet or cannot be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from sys import intern
from typing import NamedTuple

import msgspec

from holdfast.agent.claims import NO_OWNER, Claim, ClaimKey, ClaimKind, Owner, Shape
from holdfast.agent.journal.frames import EntryKind, JournalEntry
from holdfast.reconcile import Owned

Key = ClaimKey | bytes
Body = Owned[Claim] | bytes


class ClaimEntry(NamedTuple):
    """Entry about one object, before it is encoded."""

    op: EntryKind
    key: Key
    body: Body = b""


Entry = ClaimEntry | JournalEntry


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


def read_keys(texts: Sequence[bytes]) -> list[Key]:
    """Read many keys at once; those that are not of this release stay bytes."""
    new = tuple.__new__  # a named tuple's own constructor takes longer than all the rest
    try:
        return [
            new(ClaimKey, (*_PREFIXES[prefix], int(number, 16), _LENGTHS[length]))
            for prefix, number, length in map(bytes.rsplit, texts, repeat(b" "), repeat(2))
        ]
    except (KeyError, ValueError):
        return [text if (key := read_key(text)) is None else key for text in texts]


def write(owned: Owned[Claim]) -> bytes:
    """`missing` is left out: it is found out again."""
    return _encode(JournalRecord(owned.value.shape, owned.value.owner, owned.source, owned.revision))


def encoded(entry: Entry) -> JournalEntry:
    op, key, body = entry
    return JournalEntry(op, encoded_key(key), encoded_body(body))


def encoded_key(key: Key) -> bytes:
    return key if isinstance(key, bytes) else write_key(key)


def encoded_body(body: Body) -> bytes:
    return body if isinstance(body, bytes) else write(body)


def read(body: bytes) -> Owned[Claim] | None:
    """None: not a claim of this release."""
    found = read_all([body])
    return None if found is None else found[0]


def read_all(bodies: Iterable[bytes]) -> list[Owned[Claim]] | None:
    """Read many claims at once. None: one of them is not of this release."""
    try:
        return [
            Owned(Claim(record.shape, record.owner), intern(record.source), record.revision)
            for record in map(_decode, bodies)
        ]
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
