"""Nexthop objects: a gateway on a device under an ID, to which any number of routes point.

Routes with distinct gateways on one device cost the kernel a search through all of them (N16); routes by ID do not. An
object carries the protocol number of the program that created it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from holdfast.netlink import wire
from holdfast.netlink.addresses import FAMILIES, packed
from holdfast.netlink.columns import columns
from holdfast.netlink.socket import Netlink
from holdfast.netlink.wire import Attribute, Batch, MessageFlag, RequestLayout
from holdfast.runtime.cooperative import Steps, at_once

NEW, DELETE, GET = 104, 105, 106
ID, DEVICE, GATEWAY = 1, 5, 6
_ONLINK = 4

FIXED = (("family", "u1"), ("scope", "u1"), ("protocol", "u1"), ("reserved", "u1"), ("nexthop_flags", "=u4"))
RECORD = np.dtype([*wire.HEADER, *FIXED])
_NUMBERS = (Attribute("id", ID, "=u4"), Attribute("device", DEVICE, "=u4"))
_LAYOUTS = {size: RequestLayout(FIXED, (*_NUMBERS, Attribute("gateway", GATEWAY, f"V{size}"))) for size in (4, 16)}
_REMOVAL = RequestLayout(FIXED, (Attribute("id", ID, "=u4"),))


class Nexthop(NamedTuple):
    """One nexthop object. `gateway` is as on the wire: 4 or 16 octets; a group or a blackhole has none."""

    id: int
    gateway: bytes
    device: int
    protocol: int


def additions(wanted: Sequence[Nexthop], *, replace: bool) -> Batch:
    """Requests that create these objects; all gateways are of one family.

    The gateway need not be in a network of the device: on a tunnel it is in none.
    """
    size = len(wanted[0].gateway)
    made = _LAYOUTS[size].batch(
        len(wanted), NEW, MessageFlag.CREATE | (MessageFlag.REPLACE if replace else MessageFlag.EXCLUSIVE)
    )
    made["family"] = FAMILIES[size]
    made["nexthop_flags"] = _ONLINK
    made["protocol"] = [one.protocol for one in wanted]
    made["id"] = [one.id for one in wanted]
    made["device"] = [one.device for one in wanted]
    made["gateway"] = packed([one.gateway for one in wanted])
    return made


def removals(ids: Sequence[int]) -> Batch:
    """Requests that delete these objects. The kernel deletes the routes that point to one with it."""
    made = _REMOVAL.batch(len(ids), DELETE, 0)
    made["id"] = ids
    return made


def dump(kernel: Netlink) -> list[Nexthop]:
    """All nexthop objects, of any program: the kernel cannot filter them, and a used ID is used."""
    return at_once(dump_steps(kernel))


def dump_steps(kernel: Netlink) -> Steps[list[Nexthop]]:
    """The same in steps."""
    found: list[Nexthop] = []
    datagrams = yield from kernel.dump_steps(wire.request(GET, MessageFlag.DUMP, bytes(8)))
    for shape in columns(datagrams, RECORD):
        yield
        ids, devices = shape.number(ID).tolist(), shape.number(DEVICE).tolist()
        found += map(Nexthop, ids, shape.octets(GATEWAY), devices, shape.fixed["protocol"].tolist())
    return found
