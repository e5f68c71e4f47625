"""What others do to the kernel: an ear that hears about our objects and about devices, and not about our own doing.

The kernel sorts out what is of interest before it wakes us (a filter on the socket): a host with a full routing table,
or our own twenty thousand routes, cost nothing here. Some changes are silent, such as the loss of IPv4 routes with
their device; news of a device therefore puts everything in question that leads through it.
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
    "nexthop": 32,
}
_LOAD_BYTE, _LOAD_HALF, _LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x30, 0x28, 0x20, 0x15, 0x06
_TYPE_AT, _PORT_AT, _NEXTHOP_PROTOCOL_AT, _ROUTE_PROTOCOL_AT = 4, 12, 18, 21
_ALL, _NOTHING = 0xFFFF_FFFF, 0


class Overrun(Exception):
    """More happened than the socket could keep: some of it is unknown."""


class _Step(NamedTuple):
    code: int
    yes: int
    no: int
    value: int


class EventSocket:
    """Listens for the changes that others make."""

    def __init__(self, own: Netlink, protocol: int) -> None:
        self._netlink = Netlink(socket.NETLINK_ROUTE, tuple(_GROUPS.values()), is_blocking=False)
        self._netlink.filter(_program(own.port, protocol))

    def fileno(self) -> int:
        return self._netlink.fileno()

    def close(self) -> None:
        self._netlink.close()

    def messages(self) -> Iterator[Message]:
        """What has been heard and not been told yet. Raises `Overrun` when something was missed."""
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
    """The socket's filter: nothing of our own port; of routes and nexthops only those with our protocol number.

    New neighbours are left out, because every host that talks makes them all the time; deleted ones are let through.
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
