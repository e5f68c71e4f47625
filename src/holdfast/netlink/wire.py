"""Netlink's wire format: the layout of request batches, and the kernel's answers. Pure.

A batch is a NumPy array of one record type: header, fixed part, attributes. Requests are numbered from 1 in the order
of the batch, so that a refusal, which carries the number of its request, names its object. Attributes of different
sizes do not fit into one array; such objects make two batches.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntFlag
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Batch = NDArray[Any]
"""Requests, one per element; its type begins with `HEADER`."""

NLMSG_ERROR = 2
NLMSG_DONE = 3
FIRST_TYPE = 16
"""Smaller message types are netlink's own: no objects."""

HEADER: Sequence[tuple[str, str]] = (
    ("length", "=u4"),
    ("type", "=u2"),
    ("flags", "=u2"),
    ("sequence", "=u4"),
    ("port", "=u4"),
)
HEADER_SIZE = 16

_HEADER = struct.Struct("=IHHII").unpack_from
_ATTRIBUTE = struct.Struct("=HH").unpack_from
_ERRNO = struct.Struct("=i").unpack_from
_ERROR_SIZE = HEADER_SIZE + 4 + HEADER_SIZE  # header, errno, the header of the request
_ERROR_TEXT = 1
TYPE_BITS = 0x3FFF  # the rest says "nested" and "network byte order"


class MessageFlag(IntFlag):
    """Flags of a message. The meaning of a bit depends on the direction and on the request."""

    REQUEST = 0x1
    ACK = 0x4
    DUMP_INTERRUPTED = 0x10
    REPLACE = 0x100
    EXCLUSIVE = 0x200
    CREATE = 0x400
    DUMP = 0x300
    CAPPED = 0x100
    EXPLAINED = 0x200


@dataclass(frozen=True, slots=True)
class Message:
    """One message from the kernel."""

    type: int
    flags: int
    sequence: int
    body: memoryview
    """Everything after the header: the fixed part, then the attributes."""
    port: int = 0
    """Port of the socket that caused an event; 0 for the kernel itself."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Request of a batch that the kernel refused."""

    index: int
    """Position in the batch."""
    errno: int
    text: str
    """The kernel's explanation beyond the number; often empty."""


class Attribute:
    """Place of one attribute in a record: its header, and its value of a fixed size, padded to four bytes."""

    def __init__(self, name: str, kind: int, value: DTypeLike) -> None:
        self.name = name
        self.kind = kind
        self.value = np.dtype(value)

    def fields(self) -> list[tuple[str, Any]]:
        padding = -self.value.itemsize % 4
        made: list[tuple[str, Any]] = [
            (f"{self.name}_size", "=u2"),
            (f"{self.name}_kind", "=u2"),
            (self.name, self.value),
        ]
        return [*made, (f"{self.name}_padding", f"V{padding}")] if padding else made


class RequestLayout:
    """Layout of one kind of request: the record type of a batch, and how an empty batch is created."""

    def __init__(self, fixed: Sequence[tuple[str, Any]], attributes: Sequence[Attribute]) -> None:
        self._attributes = attributes
        fields: list[tuple[str, Any]] = [*HEADER, *fixed]
        for attribute in attributes:
            fields += attribute.fields()
        self.dtype = np.dtype(fields)

    def batch(self, count: int, kind: int, flags: int) -> Batch:
        """Create that many requests, numbered, with the headers of their attributes; the values are zero."""
        made = np.zeros(count, self.dtype)
        made["length"] = self.dtype.itemsize
        made["type"] = kind
        made["flags"] = MessageFlag.REQUEST | flags
        made["sequence"] = np.arange(1, count + 1)
        for attribute in self._attributes:
            made[f"{attribute.name}_size"] = 4 + attribute.value.itemsize
            made[f"{attribute.name}_kind"] = attribute.kind
        return made


def messages(buffer: bytes | memoryview) -> Iterator[Message]:
    """Messages of one datagram."""
    view = memoryview(buffer)
    at = 0
    while at + HEADER_SIZE <= len(view):
        length, kind, flags, sequence, port = _HEADER(view, at)
        if length < HEADER_SIZE:
            return
        yield Message(kind, flags, sequence, view[at + HEADER_SIZE : at + length], port)
        at += (length + 3) & ~3


def attributes(body: memoryview, fixed: int) -> dict[int, memoryview]:
    """Attributes behind a fixed part of that size. Of several of one type the last is kept."""
    found = {}
    at, end = fixed, len(body)
    while at + 4 <= end:
        length, kind = _ATTRIBUTE(body, at)
        if length < 4:
            break
        found[kind & TYPE_BITS] = body[at + 4 : at + length]
        at += (length + 3) & ~3
    return found


def attribute(kind: int, value: bytes) -> bytes:
    """One attribute as it is sent."""
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def request(kind: int, flags: int, body: bytes, sequence: int = 1) -> bytes:
    """One request as it is sent."""
    return struct.pack("=IHHII", HEADER_SIZE + len(body), kind, MessageFlag.REQUEST | flags, sequence, 0) + body


def errno_of(message: Message) -> int:
    """Error number of an error message, positive; 0 is an acknowledgement."""
    number: int = -_ERRNO(message.body, 0)[0]
    return number


def error_text(message: Message) -> str:
    """Explanation of the kernel in an error message."""
    if not message.flags & MessageFlag.EXPLAINED:
        return ""
    at = _ERROR_SIZE - HEADER_SIZE
    if not message.flags & MessageFlag.CAPPED:
        at += _HEADER(message.body, 4)[0] - HEADER_SIZE
    text = attributes(message.body, at).get(_ERROR_TEXT)
    return "" if text is None else bytes(text).rstrip(b"\0").decode(errors="replace")
