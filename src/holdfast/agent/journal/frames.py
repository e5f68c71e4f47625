"""Frames: the on-disk form of journal entries, and which bytes of a file can be trusted. Pure.

A frame is magic, version, kind, lengths, sequence, key, body, and a CRC-32C over all of it. `scan` takes any bytes and
yields the entries that are certainly ours, in order, and the ranges that are not: after damage it continues at the next
frame whose magic, lengths, checksum and sequence fit. It never raises for damage, only for a whole frame of a newer
version. `read_whole` does the same for a file that is nothing but frames, as nearly every file is, in a third of the
time.

The envelope (magic, version, lengths, position of the checksum) never changes, so that an older release can tell a
newer frame from a damaged one. A new kind or meaning is a new version; a release writes `WRITES`, which is never above
what the release before it reads, so that going one release back always works.

The magic begins with a byte that no UTF-8 text contains: a text body never contains a frame, even when it is searched
for one because the frame around it is damaged. So objects should be text (JSON).

The checksum is google-crc32c's: 0.4 µs per entry of 1.3 kB, where zlib's CRC-32, another polynomial, takes 1.4.
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
"""Newest version that this release understands."""
WRITES = 1
"""Version that it writes: the newest one that the release before it understands too."""
LONGEST_KEY = 1 << 12
LONGEST_BODY = 1 << 20

_HEAD = struct.Struct("<4sBBHIQ")  # magic, version, operation, length of key, length of body, sequence
_CHECKSUM = struct.Struct("<I")
_REST = struct.Struct("<BBHIQ")  # the head behind the magic
_START, _END = _REST.size, -_CHECKSUM.size
_AFTER_MAGIC = extend(0, MAGIC)
_RESIDUE = extend(0, _CHECKSUM.pack(extend(0, b"")))
"""CRC of any bytes followed by their own CRC; computed here for no bytes."""
OVERHEAD = _HEAD.size + _CHECKSUM.size
"""Bytes that a frame adds to its key and body."""
_SHORTEST = OVERHEAD - len(MAGIC)
_STRETCH = 1 << 16
"""Bytes that are checked together: few enough for a processor's cache."""


class EntryKind(IntEnum):
    ADD = 1
    """The object may be in the kernel from now on."""
    DELETING = 2
    """The object is being deleted; until DONE it may still be in the kernel."""
    DONE = 3
    """The kernel does not have it any more."""
    BEGIN = 4
    """Start of a file. The key is the boot id of the kernel whose state it describes."""
    END = 5
    """Everything known when the file was begun is above. The key is the boot id again."""


_KINDS = {int(kind): kind for kind in EntryKind}


class JournalEntry(NamedTuple):
    """Entry to write about one object."""

    op: EntryKind
    key: bytes
    body: bytes = b""


class FoundEntry(NamedTuple):
    """Entry as found in a file."""

    op: EntryKind
    key: bytes
    body: bytes
    sequence: int


class EntryColumns(NamedTuple):
    """Consecutive entries as columns: the fast form for fifty thousand hosts."""

    ops: Sequence[int]
    keys: Sequence[bytes]
    bodies: Sequence[bytes]


class Damage(NamedTuple):
    """Byte range that is not an entry of ours."""

    start: int
    end: int


class TooLong(ValueError):
    """The object does not fit into the journal, so it must not be put into the kernel. The message is one sentence."""


class NotWhole(Exception):
    """The bytes are not whole frames without a gap: use `scan`."""


class NewerFrame(Exception):
    """Whole frame that only a newer release understands."""

    def __init__(self, version: int) -> None:
        super().__init__(f"it is of version {version}, and this release reads up to {READS}")
        self.version = version


def pack(entries: Iterable[JournalEntry], sequence: int) -> bytes:
    """Frame these entries, the first with that sequence. Raises `TooLong`."""
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
    """Yield all of `data` as entries and damaged ranges, in order. Raises `NewerFrame`."""
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
    """Yield what `scan` yields, in runs, for bytes that are nothing but entries without a gap. Raises `NotWhole` where
    they are not, at any point."""
    at = last = 0
    while at < len(data):
        end = next_start(data, at + _STRETCH)
        run = _columns(data[at:end], last)
        yield run
        at, last = end, last + len(run.ops)


def _columns(stretch: bytes, last: int) -> EntryColumns:
    """Split at the magic, so that one cut finds all frames. A magic inside a frame leaves two pieces that are not
    intact."""
    first, *pieces = stretch.split(MAGIC)
    if first or not are_intact(pieces) or min(map(len, pieces)) < _SHORTEST:
        raise NotWhole
    versions, ops, keys, bodies, sequences = zip(*map(_REST.unpack_from, pieces), strict=True)
    if (
        max(versions) > READS
        or not _KINDS.keys() >= set(ops)
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
    """Return whether these last bytes of a file begin like a frame and then stop: an interrupted write."""
    if len(tail) < _HEAD.size:
        return tail[: len(MAGIC)] == MAGIC[: len(tail)]
    magic, _, _, key, body, _ = _HEAD.unpack_from(tail)
    return bool(magic == MAGIC and key <= LONGEST_KEY and body <= LONGEST_BODY and OVERHEAD + key + body > len(tail))


def next_start(data: bytes, at: int) -> int:
    """Position after `at` where a frame may begin; the end of the data if there is none."""
    found = data.find(MAGIC, at + 1)
    return len(data) if found < 0 else found


def intact(text: bytes, checksum: int) -> bool:
    # protection: N6: a truncated, zeroed or bit-flipped file is neither trusted nor dropped; each frame is checked.
    return bool(extend(0, text) == checksum)


def are_intact(pieces: Iterable[bytes]) -> bool:
    # N6, for many frames at once, each without its magic.
    return not set(map(extend, repeat(_AFTER_MAGIC), pieces)) - {_RESIDUE}


def _record_at(data: bytes, at: int, size: int, last: int) -> FoundEntry | None:
    """Return the entry that begins there, if there is one that may follow the sequence `last`."""
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
    if version > READS or op not in _KINDS:
        raise NewerFrame(version)
    if sequence <= last:
        return None  # a stale copy
    return FoundEntry(_KINDS[op], data[start:middle], data[middle:end], sequence)
