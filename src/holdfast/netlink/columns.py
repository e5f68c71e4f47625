"""Dumps as columns: reads messages of one shape at once, as arrays, not one by one. Pure.

A table of 20,000 routes is 20,000 messages of two or three shapes. `runs` cuts datagrams where the length or the type
of messages changes; `columns` cuts a run where the attributes differ in type, size or order, and gives for each shape
the fixed part and one array per attribute. It assumes nothing about the order of messages. It reads a few thousand
messages at a time: more at once would not be faster, and other tasks would wait longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from holdfast.netlink import wire

Octets = NDArray[np.uint8]
_LENGTH_AND_TYPE = 6
_AT_A_TIME = 16  # datagrams, of up to 32 KiB


@dataclass(frozen=True, slots=True)
class Columns:
    """Messages of one shape."""

    fixed: NDArray[Any]
    """Header and fixed part, as the requested record type."""
    attributes: Mapping[int, Octets]
    """Per attribute one row of octets for each message."""

    def __len__(self) -> int:
        return len(self.fixed)

    def number(self, kind: int, default: int = 0) -> NDArray[Any]:
        """Attribute as a number in this machine's byte order, or the default for all."""
        octets = self.attributes.get(kind)
        if octets is None:
            return np.full(len(self), default, np.int64)
        return octets.view(f"=u{octets.shape[1]}")[:, 0]

    def big_endian(self, kind: int) -> list[int]:
        """Attribute as a number in network byte order (an address, a MAC); 0 where these messages do not have it."""
        found = self.attributes.get(kind)
        if found is None:
            return [0] * len(self)
        padded = np.zeros((len(self), 8 if found.shape[1] <= 8 else 16), np.uint8)
        padded[:, padded.shape[1] - found.shape[1] :] = found
        words = padded.view(">u8")
        if words.shape[1] == 1:
            return cast("list[int]", words[:, 0].tolist())
        return [high << 64 | low for high, low in words.tolist()]

    def octets(self, kind: int) -> list[bytes]:
        """Attribute as it is; empty where these messages do not have it."""
        found = self.attributes.get(kind)
        if found is None or not found.shape[1]:
            return [b""] * len(self)
        size, flat = found.shape[1], found.tobytes()
        return [flat[at : at + size] for at in range(0, len(flat), size)]


def runs(datagram: bytes) -> Iterator[Octets]:
    """Messages of the datagram in order, cut where their length or type changes; each row is one message."""
    octets = np.frombuffer(datagram, np.uint8)
    at = 0
    while at + wire.HEADER_SIZE <= len(octets):
        length = int(octets[at : at + 4].view("=u4")[0])
        if length < wire.HEADER_SIZE:
            return
        stride = (length + 3) & ~3
        count = max(1, (len(octets) - at) // stride)
        if count == 1:
            yield octets[at : at + length].reshape(1, -1)
        else:
            rows = octets[at : at + count * stride].reshape(count, stride)
            differs = np.flatnonzero((rows[:, :_LENGTH_AND_TYPE] != rows[0, :_LENGTH_AND_TYPE]).any(axis=1))
            count = int(differs[0]) if len(differs) else count
            yield rows[:count]
        at += count * stride


def flags(run: Octets) -> int:
    """Union of the flags of the run's messages."""
    return int(np.bitwise_or.reduce(np.ascontiguousarray(run[:, 6:8]).view("=u2")[:, 0]))


def kind(run: Octets) -> int:
    """Type of the run's messages."""
    return int(np.ascontiguousarray(run[0, 4:6]).view("=u2")[0])


def columns(datagrams: Sequence[bytes], fixed: np.dtype[Any]) -> Iterator[Columns]:
    """Messages of a dump, some at a time, by shape; the end of the dump is left out."""
    for start in range(0, len(datagrams), _AT_A_TIME):
        yield from _columns(datagrams[start : start + _AT_A_TIME], fixed)


def _columns(datagrams: Sequence[bytes], fixed: np.dtype[Any]) -> Iterator[Columns]:
    by_length: dict[int, list[Octets]] = {}
    for datagram in datagrams:
        for run in runs(datagram):
            if kind(run) >= wire.FIRST_TYPE:
                by_length.setdefault(run.shape[1], []).append(run)
    for found in by_length.values():
        yield from _shapes(np.concatenate(found), fixed)


def _shapes(rows: Octets, fixed: np.dtype[Any]) -> Iterator[Columns]:
    while len(rows):
        places = _places(rows[0], fixed.itemsize)
        alike = np.ones(len(rows), bool)
        for at in (0, *(start for start, _ in places.values())):
            alike &= (rows[:, at : at + 4] == rows[0, at : at + 4]).all(axis=1)
        chosen = rows if alike.all() else rows[alike]
        head = np.ascontiguousarray(chosen[:, : fixed.itemsize]).view(fixed)[:, 0]
        values = {name: np.ascontiguousarray(chosen[:, at + 4 : end]) for name, (at, end) in places.items()}
        yield Columns(head, values)
        rows = rows[~alike]


def _places(row: Octets, fixed: int) -> dict[int, tuple[int, int]]:
    """Start of each attribute of a message, with its header, and its end."""
    found = {}
    length = int(row[:4].view("=u4")[0])
    at = fixed
    while at + 4 <= length:
        size, name = (int(number) for number in row[at : at + 4].view("=u2"))
        if size < 4:
            break
        found[name & wire.TYPE_BITS] = (at, at + size)
        at += (size + 3) & ~3
    return found
