"""Frames: how one record of the journal stands on disk, and what can be believed of any bytes found there.

A frame is magic, version, operation, lengths, sequence, key, body, and a CRC-32C over all of it. `scan` takes any bytes
at all and yields the records that are certainly ours, in order, and the ranges that are not: after damage it goes on at
the next frame whose magic, lengths, checksum and sequence fit. It never raises for damage, only for a whole frame of a
newer version. `read_whole` tells the same of a file that is nothing but frames, as nearly every file is, in a third of
the time.

The envelope (magic, version, lengths, where the checksum is) is the same for ever, so that an older release can tell
a newer frame from a damaged one. A new operation or meaning is a new version; a release writes `WRITES`, which is never
above what the release before it reads, so that going one release back always works.

The magic begins with a byte that no UTF-8 text contains: a body of text never contains a frame, also when
it is searched for one because the frame around it is damaged. So objects should be text (JSON).

The checksum is google-crc32c's: 0.4 µs per record of 1.3 kB, where zlib's CRC-32, another polynomial, takes 1.4.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import repeat
from typing import NamedTuple

from google_crc32c import extend

MAGIC = b"\xf5HFJ"
READS = 1
"""The newest version that this release understands."""
WRITES = 1
"""The version that it writes: the newest one that the release before it understands too."""
LONGEST_KEY = 1 << 12
LONGEST_BODY = 1 << 20

_HEAD = struct.Struct("<4sBBHIQ")  # magic, version, operation, length of key, length of body, sequence
_CHECKSUM = struct.Struct("<I")
_REST = struct.Struct("<BBHIQ")  # the head behind the magic
_START, _END = _REST.size, -_CHECKSUM.size
_AFTER_MAGIC = extend(0, MAGIC)
_RESIDUE = extend(0, _CHECKSUM.pack(extend(0, b"")))
"""What the checksum comes to over any bytes with their own checksum behind them, none for example."""
OVERHEAD = _HEAD.size + _CHECKSUM.size
"""Bytes that a frame adds to its key and body."""
_SHORTEST = OVERHEAD - len(MAGIC)
_STRETCH = 1 << 16
"""Bytes that are looked at together: few enough for a processor's cache."""


class EntryKind(IntEnum):
    ADD = 1
    """The object may be in the kernel from now on."""
    INTENT = 2
    """The object is being removed; until it is done it may still be there."""
    DONE = 3
    """The kernel has let go of it."""
    BEGIN = 4
    """A file begins. The key is the boot id of the kernel whose state it tells."""
    END = 5
    """All that was known when the file was begun is above. The key is the boot id again."""


_OPS = {int(op): op for op in EntryKind}


class JournalEntry(NamedTuple):
    """What is written down about one object."""

    op: EntryKind
    key: bytes
    body: bytes = b""


class FoundEntry(NamedTuple):
    """An entry as it was found."""

    op: EntryKind
    key: bytes
    body: bytes
    sequence: int


class EntryColumns(NamedTuple):
    """Records one behind the other, as columns: fifty thousand hosts are read like this."""

    ops: Sequence[int]
    keys: Sequence[bytes]
    bodies: Sequence[bytes]


class Damage(NamedTuple):
    """Bytes that are no record of ours."""

    start: int
    end: int


class TooLong(ValueError):
    """The object cannot be written down, so it must not be put into the kernel. The message is one sentence."""


class NotWhole(Exception):
    """The bytes are not what `read_whole` is for: `scan` knows what to make of them."""


class NewerFrame(Exception):
    """A whole frame that only a newer release understands."""

    def __init__(self, version: int) -> None:
        super().__init__(f"it is of version {version}, and this release reads up to {READS}")
        self.version = version


def pack(entries: Iterable[JournalEntry], sequence: int) -> bytes:
    """The frames of these entries, the first with that sequence. Raises `TooLong`."""
    frames: list[bytes] = []
    for op, key, body in entries:
        if len(key) > LONGEST_KEY or len(body) > LONGEST_BODY:
            raise TooLong(
                f"an object of {len(body):,} bytes with a key of {len(key):,} is too long for the journal "
                f"(at most {LONGEST_BODY:,} and {LONGEST_KEY:,}): {key[:80]!r}"
            )
        text = _HEAD.pack(MAGIC, WRITES, op, len(key), len(body), sequence) + key + body
        frames += (text, _CHECKSUM.pack(extend(0, text)))
        sequence += 1
    return b"".join(frames)


def scan(data: bytes) -> Iterator[FoundEntry | Damage]:
    """All of `data`, as records and bad ranges in order. Raises `NewerFrame`."""
    at = good_until = last = 0
    size = len(data)
    while at < size:
        record = _record_at(data, at, size, last)
        if record is None:
            at = next_start(data, at)
            continue
        if good_until < at:
            yield Damage(good_until, at)
        yield record
        _, key, body, last = record
        at = good_until = at + OVERHEAD + len(key) + len(body)
    if good_until < size:
        yield Damage(good_until, size)


def read_whole(data: bytes) -> Iterator[EntryColumns]:
    """What `scan` yields of bytes that are nothing but records without a gap, in runs. Raises `NotWhole` where they are
    not, at any point."""
    at = last = 0
    while at < len(data):
        end = next_start(data, at + _STRETCH)
        run = _run(data[at:end], last)
        yield run
        at, last = end, last + len(run.ops)


def _run(stretch: bytes, last: int) -> EntryColumns:
    """Everything stands between two magics, so that one cut finds all frames. A magic inside a frame leaves two pieces
    that are not intact."""
    first, *pieces = stretch.split(MAGIC)
    if first or not are_intact(pieces) or min(map(len, pieces)) < _SHORTEST:
        raise NotWhole
    versions, ops, keys, bodies, sequences = zip(*map(_REST.unpack_from, pieces), strict=True)
    if (
        max(versions) > READS
        or not _OPS.keys() >= set(ops)
        or max(keys) > LONGEST_KEY
        or max(bodies) > LONGEST_BODY
        or list(map(len, pieces)) != [_SHORTEST + key + body for key, body in zip(keys, bodies, strict=True)]
        or sequences != tuple(range(last + 1, last + 1 + len(pieces)))
    ):
        raise NotWhole
    middles = [_START + key for key in keys]
    return EntryColumns(
        ops,
        [piece[_START:middle] for piece, middle in zip(pieces, middles, strict=True)],
        [piece[middle:_END] for piece, middle in zip(pieces, middles, strict=True)],
    )


def cut_short(tail: bytes) -> bool:
    """Whether these last bytes of a file begin as a frame does and then just stop: a write that was interrupted."""
    if len(tail) < _HEAD.size:
        return tail[: len(MAGIC)] == MAGIC[: len(tail)]
    magic, _, _, key, body, _ = _HEAD.unpack_from(tail)
    return bool(magic == MAGIC and key <= LONGEST_KEY and body <= LONGEST_BODY and OVERHEAD + key + body > len(tail))


def next_start(data: bytes, at: int) -> int:
    """Where after `at` a frame may begin; the end of the data if nowhere."""
    found = data.find(MAGIC, at + 1)
    return len(data) if found < 0 else found


def intact(text: bytes, checksum: int) -> bool:
    # N6: a file that was cut, zeroed or flipped is neither believed nor thrown away; it is looked at frame by frame.
    return bool(extend(0, text) == checksum)


def are_intact(pieces: Iterable[bytes]) -> bool:
    # N6, of many frames at once, each without its magic.
    return not set(map(extend, repeat(_AFTER_MAGIC), pieces)) - {_RESIDUE}


def _record_at(data: bytes, at: int, size: int, last: int) -> FoundEntry | None:
    """The record that begins there, if one does that may follow the sequence `last`."""
    if size - at < OVERHEAD:
        return None
    magic, version, op, key, body, sequence = _HEAD.unpack_from(data, at)
    if magic != MAGIC or key > LONGEST_KEY or body > LONGEST_BODY:
        return None
    start = at + _HEAD.size
    middle = start + key
    end = middle + body
    if end + _CHECKSUM.size > size or not intact(data[at:end], _CHECKSUM.unpack_from(data, end)[0]):
        return None
    if version > READS or op not in _OPS:
        raise NewerFrame(version)
    if sequence <= last:
        return None  # a copy of what was true once
    return FoundEntry(_OPS[op], data[start:middle], data[middle:end], sequence)
