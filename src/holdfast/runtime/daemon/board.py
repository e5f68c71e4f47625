"""Board: a small shared-memory page on which every process of a daemon publishes its state.

Each cell has one writer and any number of readers in other processes. A cell holds two copies, written in turn, each
with a sequence number and a checksum; a reader takes the newest intact copy. So readers never block and never see a
torn value, not even from a writer that was killed or frozen while writing.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from holdfast.runtime.paths import open_new

T = TypeVar("T")

_MAGIC = b"HFBOARD1"
_HEAD = struct.Struct("<8sI")
_COPY = struct.Struct("<QII")  # sequence, length, checksum over sequence and body
_CELL = 1_024
_HALF = _CELL // 2
_ROOM = _HALF - _COPY.size
_TRIES = 8


class BoardError(Exception):
    """The board cannot be used; the message is for the operator."""


class Cell(Generic[T]):
    """One value on the board, written by one process."""

    def __init__(self, page: mmap.mmap, offset: int, kind: type[T]) -> None:
        self._page = page
        self._offset = offset
        self._decode = msgspec.msgpack.Decoder(kind).decode
        self._encode = msgspec.msgpack.Encoder().encode
        self._sequence = max(self._intact_copies(), default=(0, b""))[0]

    def write(self, value: T) -> None:
        body = self._encode(value)
        if len(body) > _ROOM:
            raise BoardError(f"a value of {len(body)} bytes does not fit a cell of the board ({_ROOM})")
        self._sequence += 1
        at = self._offset + (self._sequence % 2) * _HALF
        head = _COPY.pack(self._sequence, len(body), _checksum(self._sequence, body))
        self._page[at : at + _COPY.size + len(body)] = head + body

    def read(self) -> T | None:
        """Return the newest intact value, never an older one than before; None when nothing was written yet."""
        best = (0, b"")
        for _ in range(_TRIES):
            copies = self._intact_copies()
            best = max(best, *copies) if copies else best
            # One torn copy: the writer died in it, or is writing it and may have overtaken this reader.
            if len(copies) == 2:
                break
        return self._decode(best[1]) if best[0] else None

    def _intact_copies(self) -> list[tuple[int, bytes]]:
        """Return the copies that are not torn; one that was never written has the sequence number 0."""
        copies = []
        for half in (0, _HALF):
            raw = self._page[self._offset + half : self._offset + half + _HALF]
            sequence, length, checksum = _COPY.unpack_from(raw)
            if not sequence and not length and not checksum:
                copies.append((0, b""))  # reading it again finds the same, until somebody writes
                continue
            body = raw[_COPY.size : _COPY.size + length]
            if sequence and length <= _ROOM and checksum == _checksum(sequence, body):
                copies.append((sequence, body))
        return copies


class Board:
    """A file in the runtime folder, mapped by every process of the daemon."""

    def __init__(self, page: mmap.mmap, places: Mapping[str, int]) -> None:
        self._page = page
        self._places = places

    @classmethod
    def create(cls, path: Path, cells: list[str]) -> Board:
        """Replace any old board with an empty one; writes of processes that still map the old one have no effect."""
        names = msgspec.msgpack.encode(cells)
        start = -(-(_HEAD.size + len(names)) // _CELL) * _CELL
        new = path.with_name(path.name + ".new")
        content = bytearray(start + _CELL * len(cells))
        content[: _HEAD.size + len(names)] = _HEAD.pack(_MAGIC, len(names)) + names
        fd = open_new(new, 0o640)
        try:
            os.write(fd, content)
        finally:
            os.close(fd)
        new.replace(path)
        return cls.open(path)

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False) -> Board:
        try:
            with path.open("rb" if read_only else "r+b") as file:
                access = mmap.ACCESS_READ if read_only else mmap.ACCESS_WRITE
                page = mmap.mmap(file.fileno(), 0, access=access)
            magic, length = _HEAD.unpack_from(page)
            if magic != _MAGIC:
                raise BoardError(f"{path} is not a board of this Holdfast version: restart the daemon")
            names = msgspec.msgpack.decode(page[_HEAD.size : _HEAD.size + length], type=list[str])
        except (OSError, ValueError, struct.error, msgspec.MsgspecError) as error:
            raise BoardError(f"cannot read the board {path}: {error}") from error
        start = -(-(_HEAD.size + length) // _CELL) * _CELL
        if len(page) < start + _CELL * len(names):
            raise BoardError(f"cannot read the board {path}: it is truncated to {len(page)} bytes")
        return cls(page, {name: start + _CELL * place for place, name in enumerate(names)})

    def cell(self, name: str, kind: type[T]) -> Cell[T]:
        if name not in self._places:
            raise BoardError(f"the board has no cell {name!r}")
        return Cell(self._page, self._places[name], kind)

    def cells(self) -> list[str]:
        return list(self._places)


def _checksum(sequence: int, body: bytes) -> int:
    return zlib.crc32(body, sequence & 0xFFFFFFFF)
