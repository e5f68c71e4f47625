"""Links: which devices there are, which of them are up; and VXLAN devices, made to measure.

A device of ours carries its maker's words as its alias: whoever looks with `ip link` sees whose it is.
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
    """A network device."""

    number: int
    name: str
    is_on: bool
    """Somebody switched it on: it may have routes."""
    is_up: bool
    """It is on, and has a carrier."""
    kind: str
    mac: bytes
    mtu: int
    alias: str
    vxlan: Vxlan | None


class Vxlan(NamedTuple):
    """What makes a VXLAN device this one and not another."""

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
    """The device that a message is about."""
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
    """Makes the device, up, on an underlay of IPv4 or IPv6, without learning: where a MAC is, only we say.

    It sends from any address: the underlay's routing chooses, and goes on choosing when this host's addresses change.
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
    kernel.ask(
        wire.request(
            NEW,
            MessageFlag.CREATE | MessageFlag.EXCLUSIVE | MessageFlag.ACK,
            _FIXED.pack(0, 0, 0, 0, 0, 0) + named + info,
        )
    )
    # The alias cannot be given at birth. Until the device has it, it is down and nobody's: made again, see `remove`.
    kernel.ask(
        wire.request(
            SET, MessageFlag.ACK, _FIXED.pack(0, 0, 0, 0, _UP, _UP) + named + attribute(_ALIAS, alias.encode())
        )
    )


def switch_on(kernel: Netlink, number: int, *, mtu: int) -> None:
    """Has the device on and with that MTU. One that is on stays so all the time."""
    sized = attribute(_MTU, _NUMBER.pack(mtu))
    kernel.ask(wire.request(SET, MessageFlag.ACK, _FIXED.pack(0, 0, 0, number, _UP, _UP) + sized))


def remove(kernel: Netlink, number: int) -> None:
    kernel.ask(wire.request(DELETE, MessageFlag.ACK, _FIXED.pack(0, 0, 0, number, 0, 0)))


def _vxlan(data: memoryview) -> Vxlan:
    found = wire.attributes(data, 0)
    return Vxlan(_NUMBER.unpack(found[_VNI])[0], struct.unpack(">H", found[_PORT])[0])


def _text(octets: memoryview | None) -> str:
    return "" if octets is None else bytes(octets).rstrip(b"\0").decode(errors="replace")
