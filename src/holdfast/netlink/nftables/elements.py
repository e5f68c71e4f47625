"""Elements of maps as netlink messages: buckets packed in bulk, all others one by one. Pure.

The kernel refuses to add an element that exists, so a change is a delete and an add in the same batch: the packet path
sees either the old or the new element. Messages are split so that the length fields suffice.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from holdfast.netlink import wire

Marks = NDArray[np.uint32]
"""Mark of the backend per bucket; 0 for a bucket without a backend."""

INET: Final = 1
_NFTABLES: Final = 10 << 8
NEW_ELEMENT: Final = _NFTABLES | 12
GET_ELEMENT: Final = _NFTABLES | 13
DELETE_ELEMENT: Final = _NFTABLES | 14
BATCH_BEGIN: Final = 16
BATCH_END: Final = 17

_NESTED: Final = 0x8000
_TABLE, _SET, _ELEMENTS = 1, 2, 3
_ELEMENT, _VALUE, _VERDICT = 1, 1, 2
_KEY, _DATA, _COMMENT, _KEY_END = 1, 2, 6, 10
_VERDICT_CODE, _VERDICT_CHAIN = 1, 2
_GOTO: Final = -4
_IN_ONE_MESSAGE: Final = 65_000  # bytes; the length of an attribute has sixteen bits

_HEAD = (("size", "=u2"), ("kind", "=u2"), ("key_size", "=u2"), ("key_kind", "=u2"), ("at_size", "=u2"), ("at", "=u2"))
_TAIL = (("data_size", "=u2"), ("data_kind", "=u2"), ("to_size", "=u2"), ("to", "=u2"), ("mark", "=u4"))
_BARE = np.dtype([*_HEAD, ("bucket", "=u4")])
_FULL = np.dtype([*_HEAD, ("bucket", "=u4"), *_TAIL])


@dataclass(frozen=True, slots=True)
class Element:
    """One element of a map. It has data, or the name of a chain to go to; elements of sets have neither."""

    key: bytes
    data: bytes = b""
    chain: str = ""
    comment: str = ""
    end: bytes = b""
    """Last key of a range, in a set of concatenated ranges."""

    def packed(self, *, key_only: bool = False) -> bytes:
        made = _nested(_KEY, wire.attribute(_VALUE, self.key))
        if self.end:
            made += _nested(_KEY_END, wire.attribute(_VALUE, self.end))
        if key_only:
            return _nested(_ELEMENT, made)
        if self.chain:
            verdict = wire.attribute(_VERDICT_CODE, struct.pack(">i", _GOTO))
            verdict += wire.attribute(_VERDICT_CHAIN, self.chain.encode() + b"\0")
            made += _nested(_DATA, _nested(_VERDICT, verdict))
        elif self.data:
            made += _nested(_DATA, wire.attribute(_VALUE, self.data))
        if self.comment:
            text = self.comment.encode() + b"\0"
            made += wire.attribute(_COMMENT, bytes([0, len(text)]) + text)
        return _nested(_ELEMENT, made)


class Transaction:
    """Changes of one table, all or nothing."""

    def __init__(self, table: str, *, exclusive: bool = True) -> None:
        """Without `exclusive`, adding an element of a set that is there already changes nothing."""
        self._table = table
        self._adding = wire.MessageFlag.CREATE | (wire.MessageFlag.EXCLUSIVE if exclusive else 0)
        self._requests: list[tuple[int, bytes]] = []

    def __bool__(self) -> bool:
        return bool(self._requests)

    def add(self, name: str, *elements: Element) -> None:
        self._request(NEW_ELEMENT, name, b"".join(element.packed() for element in elements))

    def delete(self, name: str, *elements: Element) -> None:
        self._request(DELETE_ELEMENT, name, b"".join(element.packed(key_only=True) for element in elements))

    def move(self, name: str, before: Marks, after: Marks) -> None:
        """Change a bucket map from one table to another; only buckets that differ are touched."""
        differs = np.flatnonzero(before != after)
        self._buckets(DELETE_ELEMENT, name, _bare(differs[before[differs] != 0]))
        gets = differs[after[differs] != 0]
        self._buckets(NEW_ELEMENT, name, _full(gets, after[gets]))

    def packed(self) -> bytes:
        """Encode the batch. Requests are numbered from 2; the last one, `last`, asks for an answer."""
        flags = {NEW_ELEMENT: self._adding, DELETE_ELEMENT: 0}
        made = [wire.request(BATCH_BEGIN, 0, _general(0, 10), 1)]
        for number, (kind, body) in enumerate(self._requests, 2):
            answer = wire.MessageFlag.ACK if number == self.last else 0
            made.append(wire.request(kind, flags[kind] | answer, body, number))
        made.append(wire.request(BATCH_END, 0, _general(0, 10), self.last + 1))
        return b"".join(made)

    @property
    def last(self) -> int:
        return len(self._requests) + 1

    def _request(self, kind: int, name: str, elements: bytes) -> None:
        self._requests.append((kind, _general(INET, 0) + _where(self._table, name) + _nested(_ELEMENTS, elements)))

    def _buckets(self, kind: int, name: str, packed: NDArray[Any]) -> None:
        each = _IN_ONE_MESSAGE // packed.dtype.itemsize
        for start in range(0, len(packed), each):
            self._request(kind, name, packed[start : start + each].tobytes())


def listing(table: str, name: str) -> bytes:
    """Request for all elements of a map."""
    return wire.request(GET_ELEMENT, wire.MessageFlag.DUMP, _general(INET, 0) + _where(table, name))


def elements(datagrams: list[bytes]) -> Iterator[dict[int, memoryview]]:
    """Attributes of each element in a dump."""
    for packed in _lists(datagrams):
        yield from _each(packed)


def key_of(element: dict[int, memoryview]) -> bytes:
    return bytes(wire.attributes(element[_KEY], 0)[_VALUE])


def end_of(element: dict[int, memoryview]) -> bytes:
    """Last key of a range; empty for a single element."""
    return bytes(wire.attributes(element[_KEY_END], 0)[_VALUE]) if _KEY_END in element else b""


def data_of(element: dict[int, memoryview]) -> bytes:
    """Data of an element; the name of the chain for a verdict."""
    data = wire.attributes(element[_DATA], 0)
    if _VERDICT in data:
        verdict = wire.attributes(data[_VERDICT], 0)
        return bytes(verdict.get(_VERDICT_CHAIN, b"")).rstrip(b"\0")
    return bytes(data[_VALUE])


def comment_of(element: dict[int, memoryview]) -> str:
    return comment_in(bytes(element.get(_COMMENT, b"")))


def comment_in(userdata: bytes) -> str:
    """Comment in the user data of an object, which is a list of type, length, text."""
    at = 0
    while at + 2 <= len(userdata):
        kind, length = userdata[at], userdata[at + 1]
        if kind == 0:
            return userdata[at + 2 : at + 2 + length].rstrip(b"\0").decode(errors="replace")
        at += 2 + length
    return ""


def empty(size: int) -> Marks:
    return np.zeros(size, np.uint32)


def buckets(datagrams: list[bytes], size: int) -> Marks:
    """Table in a bucket map. Elements that belong to no bucket are left out."""
    found = empty(size)
    for packed in _lists(datagrams):
        whole = len(packed) // _FULL.itemsize * _FULL.itemsize
        rows = np.frombuffer(packed[:whole], _FULL)
        if whole != len(packed) or not np.all(rows["size"] == _FULL.itemsize):
            rows = _one_by_one(packed)  # another program has added a comment to one of them
        rows = rows[rows["bucket"] < size]
        found[rows["bucket"]] = rows["mark"]
    return found


def _one_by_one(packed: memoryview) -> NDArray[Any]:
    pairs = [(key_of(one), data_of(one)) for one in _each(packed)]
    numbers = [struct.unpack("=II", key + data) for key, data in pairs if len(key) == len(data) == 4]
    found = np.zeros(len(numbers), _FULL)
    found["bucket"], found["mark"] = np.asarray(numbers, np.uint32).reshape(-1, 2).T
    return found


def _lists(datagrams: list[bytes]) -> Iterator[memoryview]:
    for datagram in datagrams:
        for message in wire.messages(datagram):
            if message.type == NEW_ELEMENT:
                packed = wire.attributes(message.body, 4).get(_ELEMENTS)
                if packed is not None:
                    yield packed


def _each(packed: memoryview) -> Iterator[dict[int, memoryview]]:
    at = 0
    while at + 4 <= len(packed):
        (length,) = struct.unpack_from("=H", packed, at)
        yield wire.attributes(packed[at + 4 : at + length], 0)
        at += (length + 3) & ~3


def _bare(numbers: NDArray[np.intp]) -> NDArray[Any]:
    made = np.zeros(len(numbers), _BARE)
    _fill_heads(made)
    made["bucket"] = numbers
    return made


def _full(numbers: NDArray[np.intp], marks: Marks) -> NDArray[Any]:
    made = np.zeros(len(numbers), _FULL)
    _fill_heads(made)
    made["bucket"] = numbers
    made["data_size"], made["data_kind"], made["to_size"], made["to"] = 12, _DATA | _NESTED, 8, _VALUE
    made["mark"] = marks
    return made


def _fill_heads(made: NDArray[Any]) -> None:
    made["size"], made["kind"] = made.dtype.itemsize, _ELEMENT | _NESTED
    made["key_size"], made["key_kind"], made["at_size"], made["at"] = 12, _KEY | _NESTED, 8, _VALUE


def _general(family: int, resource: int) -> bytes:
    return struct.pack(">BBH", family, 0, resource)


def _where(table: str, name: str) -> bytes:
    return wire.attribute(_TABLE, table.encode() + b"\0") + wire.attribute(_SET, name.encode() + b"\0")


def _nested(kind: int, value: bytes) -> bytes:
    return wire.attribute(kind | _NESTED, value)
