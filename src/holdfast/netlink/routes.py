"""Routes, by the ID of a nexthop object or directly to a device, in one table and with one protocol number.

The kernel filters a dump, and in a delete it compares the protocol number again: a foreign route at the same place is
neither seen nor deleted (N14).
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from holdfast.netlink import wire
from holdfast.netlink.addresses import FAMILIES, packed
from holdfast.netlink.columns import columns
from holdfast.netlink.socket import Netlink, NetlinkError
from holdfast.netlink.wire import Attribute, Batch, MessageFlag, RequestLayout
from holdfast.runtime.cooperative import Steps, at_once

NEW, DELETE, GET = 24, 25, 26
DESTINATION, DEVICE, METRIC, SOURCE, TABLE, NEXTHOP = 1, 4, 6, 7, 15, 30
IPV6_METRIC = 1024
"""Metric that the kernel gives to an IPv6 route without one; here it counts as 0."""
_UNICAST, _SCOPE_LINK = 1, 253

FIXED = (
    *(("family", "u1"), ("length_bits", "u1"), ("source_bits", "u1"), ("tos", "u1")),
    *(("small_table", "u1"), ("protocol", "u1"), ("scope", "u1"), ("kind", "u1"), ("route_flags", "=u4")),
)
RECORD = np.dtype([*wire.HEADER, *FIXED])


def _key(size: int) -> tuple[Attribute, ...]:
    return Attribute("table", TABLE, "=u4"), Attribute("destination", DESTINATION, f"V{size}")


_METRIC = Attribute("metric", METRIC, "=u4")
_LAYOUTS = {
    (size, kind, has_source): RequestLayout(
        FIXED,
        (
            *_key(size),
            _METRIC,
            Attribute("hop", kind, "=u4"),
            *([Attribute("source", SOURCE, f"V{size}")] * has_source),
        ),
    )
    for size in (4, 16)
    for kind in (NEXTHOP, DEVICE)
    for has_source in (False, True)
}
_REMOVALS = {size: RequestLayout(FIXED, (*_key(size), _METRIC)) for size in (4, 16)}


class Route(NamedTuple):
    """One route: to a nexthop object, or, with nexthop 0, to a device."""

    destination: bytes
    length: int
    nexthop: int
    device: int = 0
    metric: int = 0
    source: bytes = b""
    """Preferred source of this host's own packets; empty if the kernel chooses."""


class RouteMark(NamedTuple):
    """Mark of our routes: their table, and the protocol number they carry."""

    table: int
    protocol: int


def additions(wanted: Sequence[Route], mark: RouteMark, *, replace: bool) -> Batch:
    """Requests that create these routes: all of one family, all by nexthop or all to devices,
    and all or none with a preferred source.

    Without `replace`, an existing route at the same place, of any program, refuses the new one.
    """
    # protection: N16: by nexthop object, not by gateway
    by_nexthop = bool(wanted[0].nexthop)
    has_source = bool(wanted[0].source)
    layout = _LAYOUTS[len(wanted[0].destination), NEXTHOP if by_nexthop else DEVICE, has_source]
    made = _batch(
        layout, wanted, mark, NEW, MessageFlag.CREATE | (MessageFlag.REPLACE if replace else MessageFlag.EXCLUSIVE)
    )
    made["kind"] = _UNICAST
    made["scope"] = 0 if by_nexthop else _SCOPE_LINK
    made["hop"] = [route.nexthop if by_nexthop else route.device for route in wanted]
    if has_source:
        made["source"] = packed([route.source for route in wanted])
    return made


def removals(gone: Sequence[Route], mark: RouteMark) -> Batch:
    """Requests that delete our routes to these destinations, wherever they lead; foreign ones stay. A metric of 0
    stands for that of an IPv6 route without one, and for the lowest of IPv4."""
    made = _batch(_REMOVALS[len(gone[0].destination)], gone, mark, DELETE, 0)
    made["scope"] = 255  # any
    return made


def _batch(layout: RequestLayout, routes: Sequence[Route], mark: RouteMark, kind: int, flags: int) -> Batch:
    made = layout.batch(len(routes), kind, flags)
    made["family"] = FAMILIES[len(routes[0].destination)]
    made["protocol"] = mark.protocol
    made["table"] = mark.table
    made["length_bits"] = [route.length for route in routes]
    made["destination"] = packed([route.destination for route in routes])
    default = IPV6_METRIC if len(routes[0].destination) == 16 else 0
    made["metric"] = [route.metric or default for route in routes]
    return made


class RouteColumns(NamedTuple):
    """Routes as columns, in no order: `nexthops` is 0 for those that lead directly to a device."""

    destinations: list[int]
    lengths: list[int]
    nexthops: list[int]
    devices: list[int]
    metrics: list[int]
    sources: list[int]
    """Preferred sources; 0 for none."""


def dump(kernel: Netlink, mark: RouteMark, size: int) -> RouteColumns:
    """Our routes to addresses of that many octets."""
    return at_once(dump_steps(kernel, mark, size))


def dump_steps(kernel: Netlink, mark: RouteMark, size: int) -> Steps[RouteColumns]:
    """The same in steps."""
    table = RouteColumns([], [], [], [], [], [])
    datagrams = yield from _datagrams(kernel, mark, size)
    for shape in columns(datagrams, RECORD):
        yield
        if (shape.fixed["family"] != FAMILIES[size]).any():
            continue  # a kernel without IPv6 returns all that it has instead
        table.destinations.extend(shape.big_endian(DESTINATION))
        table.lengths.extend(shape.fixed["length_bits"].tolist())
        table.nexthops.extend(shape.number(NEXTHOP).tolist())
        table.devices.extend(shape.number(DEVICE).tolist())
        metrics = shape.number(METRIC)
        table.metrics.extend(np.where((size == 16) & (metrics == IPV6_METRIC), 0, metrics).tolist())
        table.sources.extend(shape.big_endian(SOURCE))
    return table


def _datagrams(kernel: Netlink, mark: RouteMark, size: int) -> Steps[list[bytes]]:
    body = struct.pack("=8BI", FAMILIES[size], 0, 0, 0, 0, mark.protocol, 0, 0, 0)
    request = wire.request(GET, MessageFlag.DUMP, body + wire.attribute(TABLE, struct.pack("=I", mark.table)))
    try:
        return (yield from kernel.dump_steps(request))
    except NetlinkError as refused:
        if refused.errno == errno.ENOENT:  # a table exists from its first route on
            return []
        raise
