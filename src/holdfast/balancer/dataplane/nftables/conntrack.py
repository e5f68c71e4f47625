"""Requests to connection tracking: count and end the flows of one mark, or of all our marks. Pure.

A flow that began while packets were not dispatched (the table was gone, the VIP did not exist yet) is not dispatched
later either: it is known, and only new flows are translated. A client that keeps sending from one port, as with UDP,
would be lost for as long as it sends. So flows without a mark and without a reply are ended when their VIP is created.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.balancer.dataplane.api import Client
from holdfast.balancer.dataplane.nftables.layout import MARK_MASK, MARKS
from holdfast.balancer.vip import PROTOCOLS, Vip
from holdfast.netlink import wire
from holdfast.netlink.columns import columns

_NEW, _GET, _DELETE = 1 << 8, 1 << 8 | 1, 1 << 8 | 2
AF_INET, AF_INET6 = 2, 10
_ORIGINAL = 1
_NESTED = 0x8000
_STATUS, _MARK, _ID, _MASK = 3, 8, 12, 21
_SEEN_REPLY = 2
_WHOLE = 0xFFFF_FFFF
_FIXED = np.dtype([*wire.HEADER, ("family", "u1"), ("version", "u1"), ("resource", ">u2")])


def ending(mark: int) -> bytes:
    """Request that ends every flow of this mark, and no other."""
    return wire.request(_DELETE, wire.MessageFlag.ACK, _any_family() + _marked(mark, _WHOLE))


def listing(mark: int | None = None) -> bytes:
    """Request for the flows of this mark, or of all our marks."""
    filtered = _marked(MARKS, MARK_MASK) if mark is None else _marked(mark, _WHOLE)
    return wire.request(_GET, wire.MessageFlag.DUMP, _any_family() + filtered)


class Flows(NamedTuple):
    """Number of flows of a mark, and of those without a reply."""

    all: int = 0
    unanswered: int = 0


def by_mark(datagrams: list[bytes]) -> Mapping[int, Flows]:
    """Count the flows of each mark."""
    total: Counter[int] = Counter()
    unanswered: Counter[int] = Counter()
    for alike in columns(datagrams, _FIXED):
        if _MARK in alike.attributes and _STATUS in alike.attributes:
            marks, states = (alike.attributes[kind].view(">u4")[:, 0] for kind in (_MARK, _STATUS))
            _tally(total, marks)
            _tally(unanswered, marks[states & _SEEN_REPLY == 0])
    return {mark: Flows(count, unanswered[mark]) for mark, count in total.items()}


def _tally(into: Counter[int], marks: NDArray[Any]) -> None:
    each, counts = np.unique(marks, return_counts=True)
    into.update(dict(zip(each.tolist(), counts.tolist(), strict=True)))


def ending_undispatched(datagrams: list[bytes], vips: Set[Vip]) -> Iterator[bytes]:
    """Requests that end flows without a mark and without a reply to one of these VIPs, one request per flow."""
    for alike in columns(datagrams, _FIXED):
        if not {_ORIGINAL, _STATUS, _ID} <= alike.attributes.keys():
            continue
        states = alike.attributes[_STATUS].view(">u4")[:, 0]
        for row in np.flatnonzero(states & _SEEN_REPLY == 0).tolist():
            original, number = (alike.attributes[kind][row].tobytes() for kind in (_ORIGINAL, _ID))
            if any(vip in vips for vip in _possible_vips(original)):
                family = struct.pack(">BBH", alike.fixed["family"][row], 0, 0)
                which = wire.attribute(_ORIGINAL | _NESTED, original) + wire.attribute(_ID, number)
                yield wire.request(_DELETE, wire.MessageFlag.ACK, family + which)


def _possible_vips(original: bytes) -> Iterator[Vip]:
    """VIPs that a flow with these addresses and ports may belong to."""
    parts = wire.attributes(memoryview(original), 0)
    addresses, ports = wire.attributes(parts[1], 0), wire.attributes(parts[2], 0)
    family, to = (4, addresses[2]) if 2 in addresses else (6, addresses[4])
    protocol, port = ports[1][0], int.from_bytes(ports.get(3, b""), "big")
    for narrow in ((protocol, port), (protocol, 0), (PROTOCOLS["any"], 0)):
        yield Vip(family, int.from_bytes(to, "big"), *narrow)


def finding(vip: Vip, client: Client) -> bytes:
    """Request for the flow of this client to the VIP."""
    four = vip.family == 4
    width, source, to = (4, 1, 2) if four else (16, 3, 4)
    addresses = wire.attribute(source, client.address.to_bytes(width, "big"))
    addresses += wire.attribute(to, vip.address.to_bytes(width, "big"))
    ports = wire.attribute(1, bytes([client.protocol]))
    ports += wire.attribute(2, struct.pack(">H", client.port)) + wire.attribute(3, struct.pack(">H", client.to_port))
    flow = wire.attribute(1 | _NESTED, addresses) + wire.attribute(2 | _NESTED, ports)
    family = struct.pack(">BBH", AF_INET if four else AF_INET6, 0, 0)
    return wire.request(_GET, wire.MessageFlag.ACK, family + wire.attribute(_ORIGINAL | _NESTED, flow))


def mark_in(messages: Iterable[wire.Message]) -> int | None:
    """Mark of the flow in the answer; None without a flow."""
    for message in messages:
        if message.type == _NEW and (found := wire.attributes(message.body, 4).get(_MARK)) is not None:
            mark: int = struct.unpack(">I", found)[0]
            return mark
    return None


def _any_family() -> bytes:
    return struct.pack(">BBH", 0, 0, 0)


def _marked(mark: int, mask: int) -> bytes:
    return wire.attribute(_MARK, struct.pack(">I", mark)) + wire.attribute(_MASK, struct.pack(">I", mask))
