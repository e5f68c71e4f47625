"""Addresses on devices: what is there, and who put it there, as far as the kernel knows (IFA_PROTO, Linux 5.18)."""

from __future__ import annotations

import struct
from typing import NamedTuple

from holdfast.netlink import wire
from holdfast.netlink.addresses import FAMILIES
from holdfast.netlink.socket import Netlink
from holdfast.netlink.wire import MessageFlag, attribute

NEW, DELETE, GET = 20, 21, 22
GROUPS = (5, 9)
"""Tell of every change, of IPv4 and of IPv6 addresses."""
_ADDRESS, _LOCAL, _PROTOCOL = 1, 2, 11
_FIXED = struct.Struct("=BBBBI")
_NO_DAD = 0x02
_UNIVERSE = 0


class InterfaceAddress(NamedTuple):
    """One address on one device."""

    link: int
    """The number of the device."""
    address: bytes
    length: int
    protocol: int
    """Who put it there; 0 when nobody said so, or on a kernel that keeps no such thing."""


def dump(kernel: Netlink) -> list[InterfaceAddress]:
    """Every address of the namespace."""
    datagrams = kernel.dump(wire.request(GET, MessageFlag.DUMP, _FIXED.pack(0, 0, 0, 0, 0)))
    told = [message for datagram in datagrams for message in wire.messages(datagram)]
    return [_read(message) for message in told if message.type == NEW]


def add(kernel: Netlink, held: InterfaceAddress) -> None:
    """Puts it there; refused with EEXIST when it is there already, by whomever."""
    kernel.ask(wire.request(NEW, MessageFlag.CREATE | MessageFlag.EXCLUSIVE | MessageFlag.ACK, _body(held)))


def remove(kernel: Netlink, held: InterfaceAddress) -> None:
    kernel.ask(wire.request(DELETE, MessageFlag.ACK, _body(held)))


def _body(held: InterfaceAddress) -> bytes:
    # Nobody else may have a VIP's address for detection to find, and until it is over the address would be unusable.
    flags = _NO_DAD if len(held.address) == 16 else 0
    fixed = _FIXED.pack(FAMILIES[len(held.address)], held.length, flags, _UNIVERSE, held.link)
    made = fixed + attribute(_LOCAL, held.address) + attribute(_ADDRESS, held.address)
    return made + attribute(_PROTOCOL, bytes([held.protocol])) if held.protocol else made


def _read(message: wire.Message) -> InterfaceAddress:
    _, length, _, _, link = _FIXED.unpack_from(message.body)
    attributes = wire.attributes(message.body, _FIXED.size)
    address = attributes.get(_LOCAL, attributes.get(_ADDRESS))
    protocol = attributes.get(_PROTOCOL)
    return InterfaceAddress(link, bytes(address or b""), length, 0 if protocol is None else protocol[0])
