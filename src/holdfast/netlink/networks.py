"""The networks that this host sits in: to which device a neighbour of ours is connected, without a router between."""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import NamedTuple

from holdfast.netlink import wire
from holdfast.netlink.socket import Netlink
from holdfast.netlink.wire import MessageFlag

NEW, DELETE, GET = 20, 21, 22
_ADDRESS = 1
_FIXED = struct.Struct("=BBBBI")


class ConnectedNetwork(NamedTuple):
    """An address of this host, and the network around it."""

    address: bytes
    length: int
    device: int

    def holds(self, other: bytes) -> bool:
        spare = 8 * len(other) - self.length
        return len(self.address) == len(other) and _number(self.address) >> spare == _number(other) >> spare


def dump(kernel: Netlink) -> list[ConnectedNetwork]:
    """All of them but link-local ones, which are the same on every device."""
    datagrams = kernel.dump(wire.request(GET, MessageFlag.DUMP, _FIXED.pack(0, 0, 0, 0, 0)))
    told = [message for datagram in datagrams for message in wire.messages(datagram)]
    networks = [_read(message) for message in told if message.type >= wire.FIRST_TYPE]
    return [one for one in networks if one is not None and not one.address.startswith(b"\xfe\x80")]


def device_towards(address: bytes, networks: Collection[ConnectedNetwork]) -> int | None:
    """The device on whose network that address is: by the longest match, and of two alike the lower number."""
    around = [network for network in networks if network.holds(address) and network.address != address]
    return max(around, key=lambda network: (network.length, -network.device)).device if around else None


def _read(message: wire.Message) -> ConnectedNetwork | None:
    _, length, _, _, device = _FIXED.unpack_from(message.body)
    attributes = wire.attributes(message.body, _FIXED.size)
    # On a point-to-point device this is the address of the other end: what can be reached, which is what counts here.
    address = attributes.get(_ADDRESS)
    return None if address is None else ConnectedNetwork(bytes(address), length, device)


def _number(address: bytes) -> int:
    return int.from_bytes(address, "big")
