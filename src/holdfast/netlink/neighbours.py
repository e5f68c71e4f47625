"""Permanent neighbours (the MAC of an address on a device) and forwarding entries (the host behind which a MAC is).

Both belong to one device. A neighbour carries a protocol number; a forwarding entry cannot, and is known by its device.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np

from holdfast.netlink import wire
from holdfast.netlink.addresses import FAMILIES, packed
from holdfast.netlink.columns import columns
from holdfast.netlink.socket import Netlink
from holdfast.netlink.wire import Attribute, Batch, MessageFlag, RequestLayout
from holdfast.runtime.cooperative import Steps

NEW, DELETE, GET = 28, 29, 30
ADDRESS, MAC, DEVICE, PROTOCOL = 1, 2, 8, 12
BRIDGE = 7
_PERMANENT, _NO_ARP = 0x80, 0x40
_SELF = 0x2

FIXED = (
    *(("family", "u1"), ("padding_1", "u1"), ("padding_2", "=u2"), ("device", "=i4")),
    *(("state", "=u2"), ("neighbour_flags", "u1"), ("kind", "u1")),
)
RECORD = np.dtype([*wire.HEADER, *FIXED])


def _layout(size: int, *more: Attribute) -> RequestLayout:
    return RequestLayout(FIXED, (Attribute("address", ADDRESS, f"V{size}"), Attribute("mac", MAC, "V6"), *more))


_NEIGHBOURS = {size: _layout(size, Attribute("protocol", PROTOCOL, "u1")) for size in (4, 16)}
_ENTRIES = {size: _layout(size) for size in (4, 16)}
_REMOVALS = {size: RequestLayout(FIXED, (Attribute("address", ADDRESS, f"V{size}"),)) for size in (4, 16)}


class Neighbour(NamedTuple):
    """Address on a device, and its MAC."""

    address: bytes
    mac: bytes


class Forward(NamedTuple):
    """MAC behind a tunnel, and the address of the host to which the tunnel carries it."""

    mac: bytes
    host: bytes


def neighbour_additions(wanted: Sequence[Neighbour], device: int, protocol: int) -> Batch:
    """Requests for permanent neighbours, all of one family."""
    size = len(wanted[0].address)
    made = _NEIGHBOURS[size].batch(len(wanted), NEW, MessageFlag.CREATE | MessageFlag.REPLACE)
    made["family"], made["device"], made["state"], made["protocol"] = FAMILIES[size], device, _PERMANENT, protocol
    made["address"] = packed([one.address for one in wanted])
    made["mac"] = packed([one.mac for one in wanted])
    return made


def neighbour_removals(gone: Sequence[bytes], device: int) -> Batch:
    """Requests that delete these addresses, all of one family."""
    size = len(gone[0])
    made = _REMOVALS[size].batch(len(gone), DELETE, 0)
    made["family"], made["device"] = FAMILIES[size], device
    made["address"] = packed(gone)
    return made


def forward_additions(wanted: Sequence[Forward], device: int) -> Batch:
    """Requests for forwarding entries, all to hosts of one family; an entry for the same MAC is replaced."""
    made = _forwards(wanted, device, NEW, MessageFlag.CREATE | MessageFlag.REPLACE)
    made["state"] = _PERMANENT | _NO_ARP
    return made


def forward_removals(gone: Sequence[Forward], device: int) -> Batch:
    """Requests that delete exactly these: a MAC that is behind another host by now stays there."""
    return _forwards(gone, device, DELETE, 0)


def _forwards(entries: Sequence[Forward], device: int, kind: int, flags: int) -> Batch:
    made = _ENTRIES[len(entries[0].host)].batch(len(entries), kind, flags)
    made["family"], made["device"], made["neighbour_flags"] = BRIDGE, device, _SELF
    made["address"] = packed([one.host for one in entries])
    made["mac"] = packed([one.mac for one in entries])
    return made


class Pairs(NamedTuple):
    """Neighbours (address, MAC) or forwarding entries (MAC, octets of the host's address) as columns, in no order."""

    keys: list[int]
    values: list[bytes]


def neighbours(kernel: Netlink, device: int, protocol: int, family: int) -> Steps[Pairs]:
    """Neighbours on a device that carry that protocol number."""
    found = Pairs([], [])
    datagrams = yield from _dump_steps(kernel, device, family)
    for shape in columns(datagrams, RECORD):
        yield
        ours = ((shape.number(PROTOCOL) == protocol) & (shape.fixed["family"] == family)).tolist()
        found.keys.extend(compress(shape.big_endian(ADDRESS), ours))
        found.values.extend(compress(shape.octets(MAC), ours))
    return found


def forwards(kernel: Netlink, device: int) -> Steps[Pairs]:
    """Forwarding entries of a device."""
    found = Pairs([], [])
    datagrams = yield from _dump_steps(kernel, device, BRIDGE)
    for shape in columns(datagrams, RECORD):
        yield
        if ADDRESS in shape.attributes:
            found.keys.extend(shape.big_endian(MAC))
            found.values.extend(shape.octets(ADDRESS))
    return found


def _dump_steps(kernel: Netlink, device: int, family: int) -> Steps[list[bytes]]:
    fixed = struct.pack("=BBHiHBB", family, 0, 0, device if family == BRIDGE else 0, 0, 0, 0)
    chosen = b"" if family == BRIDGE else wire.attribute(DEVICE, struct.pack("=I", device))
    return kernel.dump_steps(wire.request(GET, MessageFlag.DUMP, fixed + chosen))


IPV4, IPV6 = int(socket.AF_INET), int(socket.AF_INET6)
