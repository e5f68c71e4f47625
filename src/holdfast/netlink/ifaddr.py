"""Addresses on devices, with the program that added them (IFA_PROTO, Linux 5.18), and the networks that they
connect."""

from __future__ import annotations

import errno
import struct
from collections.abc import Collection
from typing import NamedTuple

from holdfast.netlink import wire
from holdfast.netlink.addresses import FAMILIES
from holdfast.netlink.socket import Netlink
from holdfast.netlink.wire import MessageFlag, attribute

NEW, DELETE, GET = 20, 21, 22
NOT_THERE = errno.EADDRNOTAVAIL
"""Error of a delete of an address that is not there."""
GROUPS = (5, 9)
"""Multicast groups for changes of IPv4 and of IPv6 addresses."""
_ADDRESS, _LOCAL, _PROTOCOL = 1, 2, 11
_FIXED = struct.Struct("=BBBBI")
_NO_DAD = 0x02
_UNIVERSE = 0


class InterfaceAddress(NamedTuple):
    """One address on one device."""

    link: int
    """Number of the device."""
    address: bytes
    length: int
    protocol: int
    """Program that added it; 0 if it did not say so, or on a kernel without IFA_PROTO."""


class ConnectedNetwork(NamedTuple):
    """Address of this host, and the network around it."""

    address: bytes
    length: int
    device: int

    def contains(self, other: bytes) -> bool:
        spare = 8 * len(other) - self.length
        return len(self.address) == len(other) and _as_number(self.address) >> spare == _as_number(other) >> spare


def dump(kernel: Netlink) -> list[InterfaceAddress]:
    """Every address of the namespace."""
    datagrams = kernel.dump(wire.request(GET, MessageFlag.DUMP, _FIXED.pack(0, 0, 0, 0, 0)))
    received = [message for datagram in datagrams for message in wire.messages(datagram)]
    return [read(message) for message in received if message.type == NEW]


def add(kernel: Netlink, one: InterfaceAddress, *, replace: bool = False) -> None:
    """Add the address. When it is there already, whoever added it, `replace` takes it over; otherwise EEXIST refuses
    it."""
    there = MessageFlag.REPLACE if replace else MessageFlag.EXCLUSIVE
    kernel.send_request(wire.request(NEW, MessageFlag.CREATE | there | MessageFlag.ACK, _body(one)))


def remove(kernel: Netlink, one: InterfaceAddress) -> None:
    kernel.send_request(wire.request(DELETE, MessageFlag.ACK, _body(one)))


def read(message: wire.Message) -> InterfaceAddress:
    """Address that a message is about."""
    _, length, _, _, link = _FIXED.unpack_from(message.body)
    attributes = wire.attributes(message.body, _FIXED.size)
    address = attributes.get(_LOCAL, attributes.get(_ADDRESS))
    protocol = attributes.get(_PROTOCOL)
    return InterfaceAddress(link, bytes(address or b""), length, 0 if protocol is None else protocol[0])


def _body(one: InterfaceAddress) -> bytes:
    # Duplicate address detection is useless for a VIP, and the address would be unusable until it is over.
    flags = _NO_DAD if len(one.address) == 16 else 0
    fixed = _FIXED.pack(FAMILIES[len(one.address)], one.length, flags, _UNIVERSE, one.link)
    made = fixed + attribute(_LOCAL, one.address) + attribute(_ADDRESS, one.address)
    return made + attribute(_PROTOCOL, bytes([one.protocol])) if one.protocol else made


def connected_networks(kernel: Netlink) -> list[ConnectedNetwork]:
    """All connected networks except link-local ones, which are the same on every device."""
    datagrams = kernel.dump(wire.request(GET, MessageFlag.DUMP, _FIXED.pack(0, 0, 0, 0, 0)))
    received = [message for datagram in datagrams for message in wire.messages(datagram)]
    networks = [_read_network(message) for message in received if message.type >= wire.FIRST_TYPE]
    return [one for one in networks if one is not None and not one.address.startswith(b"\xfe\x80")]


def device_towards(address: bytes, networks: Collection[ConnectedNetwork]) -> int | None:
    """Device on whose network that address is: by the longest match, and of two equal ones the lower number."""
    around = [network for network in networks if network.contains(address) and network.address != address]
    return max(around, key=lambda network: (network.length, -network.device)).device if around else None


def _read_network(message: wire.Message) -> ConnectedNetwork | None:
    _, length, _, _, device = _FIXED.unpack_from(message.body)
    attributes = wire.attributes(message.body, _FIXED.size)
    # On a point-to-point device this is the address of the other end, which is the one that can be reached.
    address = attributes.get(_ADDRESS)
    return None if address is None else ConnectedNetwork(bytes(address), length, device)


def _as_number(address: bytes) -> int:
    return int.from_bytes(address, "big")
