"""Links: the devices and their state; creates VXLAN devices.

A device of ours carries its owner as its alias, which `ip link` shows.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from holdfast.netlink import wire
from holdfast.netlink.socket import Netlink
from holdfast.netlink.wire import MessageFlag, attribute

NEW, DELETE, GET, SET = 16, 17, 18, 19
_MAC, _NAME, _MTU, _LINK_INFO, _ALIAS = 1, 3, 4, 18, 20
_KIND, _DATA = 1, 2
_VNI, _LOCAL, _LEARNING, _PORT, _LOCAL6 = 1, 4, 7, 15, 17
_UP, _LOWER_UP = 0x1, 0x10000
FIXED_SIZE = 16
_FIXED = struct.Struct("=BBHiII")
_NUMBER = struct.Struct("=I")


class Link(NamedTuple):
    """Network device."""

    number: int
    name: str
    is_on: bool
    """Administratively up: it may have routes."""
    is_up: bool
    """On, and with a carrier."""
    kind: str
    mac: bytes
    mtu: int
    alias: str
    vxlan: Vxlan | None


class Vxlan(NamedTuple):
    """Identity of a VXLAN device."""

    vni: int
    port: int


def dump(kernel: Netlink) -> dict[str, Link]:
    """All devices by name."""
    found = {}
    for datagram in kernel.dump(wire.request(GET, MessageFlag.DUMP, _FIXED.pack(0, 0, 0, 0, 0, 0))):
        for message in wire.messages(datagram):
            if message.type >= wire.FIRST_TYPE:
                link = read(message)
                found[link.name] = link
    return found


def read(message: wire.Message) -> Link:
    """Device that a message is about."""
    _, _, _, number, state, _ = _FIXED.unpack_from(message.body)
    attributes = wire.attributes(message.body, FIXED_SIZE)
    info = wire.attributes(attributes[_LINK_INFO], 0) if _LINK_INFO in attributes else {}
    kind = _text(info.get(_KIND))
    return Link(
        number,
        _text(attributes.get(_NAME)),
        bool(state & _UP),
        bool(state & _UP and state & _LOWER_UP),
        kind,
        bytes(attributes.get(_MAC, b"")),
        _NUMBER.unpack(attributes[_MTU])[0] if _MTU in attributes else 0,
        _text(attributes.get(_ALIAS)),
        _vxlan(info[_DATA]) if kind == "vxlan" and _DATA in info else None,
    )


def add_vxlan(kernel: Netlink, name: str, vxlan: Vxlan, family: int, mac: bytes, *, mtu: int, alias: str) -> None:
    """Create the device, up, on an underlay of IPv4 or IPv6, without learning: only we add forwarding entries.

    It sends from any address: the underlay's routing chooses, and keeps choosing when this host's addresses change.
    """
    local = attribute(_LOCAL, bytes(4)) if family == 4 else attribute(_LOCAL6, bytes(16))
    data = (
        attribute(_VNI, _NUMBER.pack(vxlan.vni))
        + local
        + attribute(_LEARNING, b"\0")
        + attribute(_PORT, struct.pack(">H", vxlan.port))
    )
    info = attribute(_LINK_INFO, attribute(_KIND, b"vxlan") + attribute(_DATA, data))
    named = attribute(_NAME, name.encode() + b"\0") + attribute(_MAC, mac) + attribute(_MTU, _NUMBER.pack(mtu))
    kernel.send_request(
        wire.request(
            NEW,
            MessageFlag.CREATE | MessageFlag.EXCLUSIVE | MessageFlag.ACK,
            _FIXED.pack(0, 0, 0, 0, 0, 0) + named + info,
        )
    )
    # The alias cannot be set at creation. Until the device has it, it is down and has no owner: it is created again.
    kernel.send_request(
        wire.request(
            SET, MessageFlag.ACK, _FIXED.pack(0, 0, 0, 0, _UP, _UP) + named + attribute(_ALIAS, alias.encode())
        )
    )


def switch_on(kernel: Netlink, number: int, *, mtu: int) -> None:
    """Bring the device up with that MTU; a device that is up does not go down for it."""
    sized = attribute(_MTU, _NUMBER.pack(mtu))
    kernel.send_request(wire.request(SET, MessageFlag.ACK, _FIXED.pack(0, 0, 0, number, _UP, _UP) + sized))


def set_mac(kernel: Netlink, number: int, mac: bytes) -> None:
    """Change the MAC of the device, which stays up."""
    kernel.send_request(wire.request(SET, MessageFlag.ACK, _FIXED.pack(0, 0, 0, number, 0, 0) + attribute(_MAC, mac)))


def rename(kernel: Netlink, number: int, name: str) -> None:
    """Rename the device; a kernel before 6.2 refuses that while it is up."""
    named = attribute(_NAME, name.encode() + b"\0")
    kernel.send_request(wire.request(SET, MessageFlag.ACK, _FIXED.pack(0, 0, 0, number, 0, 0) + named))


def remove(kernel: Netlink, number: int) -> None:
    kernel.send_request(wire.request(DELETE, MessageFlag.ACK, _FIXED.pack(0, 0, 0, number, 0, 0)))


def _vxlan(data: memoryview) -> Vxlan:
    found = wire.attributes(data, 0)
    return Vxlan(_NUMBER.unpack(found[_VNI])[0], struct.unpack(">H", found[_PORT])[0])


def _text(octets: memoryview | None) -> str:
    return "" if octets is None else bytes(octets).rstrip(b"\0").decode(errors="replace")
