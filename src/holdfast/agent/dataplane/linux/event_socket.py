"""Socket for kernel events: what other programs do to our objects and to devices, without our own changes.

A filter on the socket drops irrelevant events in the kernel: a host with a full routing table, or our own twenty
thousand routes, cost nothing here. Some changes have no event, such as the loss of IPv4 routes with their device; so a
device event triggers a re-read of every object on that device.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.netlink import neighbours, nexthops, routes
from holdfast.netlink.socket import Netlink
from holdfast.netlink.wire import Message

_GROUPS = {
    "link": 1,
    "neighbour": 3,
    "IPv4 address": 5,
    "IPv4 route": 7,
    "IPv4 rule": 8,
    "IPv6 address": 9,
    "IPv6 route": 11,
    "IPv6 rule": 19,
    "IPv4 settings": 24,
    "IPv6 settings": 25,
    "nexthop": 32,
}
_LOAD_BYTE, _LOAD_HALF, _LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x30, 0x28, 0x20, 0x15, 0x06
_TYPE_AT, _PORT_AT, _NEXTHOP_PROTOCOL_AT, _ROUTE_PROTOCOL_AT = 4, 12, 18, 21
_ALL, _NOTHING = 0xFFFF_FFFF, 0


class Overrun(Exception):
    """More happened than the socket could buffer: some events are lost."""


class _Step(NamedTuple):
    code: int
    yes: int
    no: int
    value: int


class EventSocket:
    def __init__(self, writer: Netlink, protocol: int) -> None:
        """`writer` is the socket of our own changes, whose events are filtered out."""
        self._netlink = Netlink(socket.NETLINK_ROUTE, tuple(_GROUPS.values()), is_blocking=False)
        self._netlink.filter(_program(writer.port, protocol))

    def fileno(self) -> int:
        return self._netlink.fileno()

    def close(self) -> None:
        self._netlink.close()

    def messages(self) -> Iterator[Message]:
        """Yield the events that have arrived. Raises `Overrun` when some were lost."""
        while True:
            try:
                yield from self._netlink.receive()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.ENOBUFS:
                    raise Overrun from error
                raise


def _program(port: int, protocol: int) -> bytes:
    """Build the socket's filter: nothing from our own port; of routes and nexthops only those with our protocol number.

    New neighbours are left out, because every host that talks creates them all the time; deleted ones pass.
    """
    steps = [
        _Step(_LOAD_WORD, 0, 0, _PORT_AT),
        _Step(_JUMP_IF_EQUAL, 0, 1, socket.htonl(port)),
        _Step(_RETURN, 0, 0, _NOTHING),
        _Step(_LOAD_HALF, 0, 0, _TYPE_AT),
        _Step(_JUMP_IF_EQUAL, 0, 1, socket.htons(neighbours.NEW)),
        _Step(_RETURN, 0, 0, _NOTHING),
    ]
    for kinds, at in (
        ((routes.NEW, routes.DELETE), _ROUTE_PROTOCOL_AT),
        ((nexthops.NEW, nexthops.DELETE), _NEXTHOP_PROTOCOL_AT),
    ):
        for kind in kinds:
            steps += [
                _Step(_JUMP_IF_EQUAL, 0, 4, socket.htons(kind)),
                _Step(_LOAD_BYTE, 0, 0, at),
                _Step(_JUMP_IF_EQUAL, 0, 1, protocol),
                _Step(_RETURN, 0, 0, _ALL),
                _Step(_RETURN, 0, 0, _NOTHING),
            ]
    steps.append(_Step(_RETURN, 0, 0, _ALL))
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
