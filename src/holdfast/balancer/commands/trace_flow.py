"""`holdfast explain flow`: which VIP a flow meets, which bucket it falls into, who has it, and why that one.

A flow that is established belongs to whom connection tracking says, whatever the table is by now; a new one goes where
its bucket leads. Both are read from the dataplane, not from what is wanted of it.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from holdfast.balancer.dataplane.api import Client, FlowPath, FlowTracer
from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.reconciler import VipReconciler
from holdfast.balancer.services.resolved import ResolvedFrontend
from holdfast.balancer.vip import PROTOCOLS, BackendEntry, Vip, VipKey, VipSettings, shown
from holdfast.runtime.control import Declined

_PLACE = re.compile(
    r"(?:\[(?P<six>[^]]+)\]|(?P<four>[^:/]+))(?::(?P<port>\d{1,5}|\*))?(?:/(?P<protocol>\w+))?"
).fullmatch


async def trace(keeper: VipReconciler, source: str, to: str) -> dict[str, Any]:
    """What `explain flow` shows. Raises `Declined` with a sentence for what cannot be told."""
    dataplane = keeper.dataplane
    if not isinstance(dataplane, FlowTracer):
        raise Declined(f"the dataplane {dataplane.describe().name} cannot tell the course of a flow")
    frontend, vip, protocol, to_port = _met(keeper, to)
    address, port, _ = _place(source)
    if address.version != vip.family:
        raise Declined(f"{address} is not of the family of {vip}")
    if not port and protocol and not _is_sticky(keeper, vip):
        raise Declined(f"flows to {vip} are spread by their source port, too: write {source}:PORT")
    course = await dataplane.course(vip, Client(address.version, int(address), port, protocol, to_port))
    if course is None:
        raise Declined(f"{vip} is not programmed: holdfast explain frontend {frontend.name} says why")
    return _told(keeper, frontend, vip, course, sticky=_is_sticky(keeper, vip), port=port)


def _told(
    keeper: VipReconciler, frontend: ResolvedFrontend, vip: Vip, course: FlowPath, *, sticky: bool, port: int
) -> dict[str, Any]:
    entry = None if course.backend is None else keeper.target.held.get(VipKey(vip, course.backend))
    return {
        "frontend": frontend.name,
        "vip": str(vip),
        "hashed": "source address" if sticky or not port else "source address and port",
        "bucket": course.bucket,
        "buckets": keeper.dataplane.describe().table_size,
        "backend": _named(keeper, course.backend),
        "weight": entry.weight if isinstance(entry, BackendEntry) else None,
        "share": course.share,
        "established": _named(keeper, course.established),
    }


def _met(keeper: VipReconciler, to: str) -> tuple[ResolvedFrontend, Vip, int, int]:
    """The frontend of that name, or the one that the dataplane would pick for this address, port and protocol."""
    frontends = keeper.balancer.roster.frontends
    if to in frontends:
        vip = frontends[to].vip
        return frontends[to], vip, vip.protocol, vip.port
    address, port, protocol = _place(to)
    number = PROTOCOLS.get(protocol or "tcp")
    if number is None:
        raise Declined(f"{protocol} is not a protocol that a VIP can have: write tcp, udp or any")
    at = keeper.balancer.roster.at
    for narrow in ((number, port), (number, 0), (0, 0)):
        vip = Vip(address.version, int(address), *narrow)
        if vip in at:
            return at[vip], vip, number, port
    raise Declined(f"no frontend has {to}: holdfast balancer status shows them all")


def _place(text: str) -> tuple[IPv4Address | IPv6Address, int, str | None]:
    """ADDRESS, ADDRESS:PORT or ADDRESS:PORT/PROTOCOL; IPv6 with a port in brackets."""
    found = _PLACE(text)
    try:
        if found is None:
            return ip_address(text), 0, None
        port = 0 if found["port"] in (None, "*") else int(found["port"])
        if port > 65_535:
            raise ValueError
        return ip_address(found["six"] or found["four"]), port, found["protocol"]
    except ValueError as error:
        raise Declined(
            f"{text!r} is not ADDRESS:PORT; an IPv6 address stands in brackets: [2001:db8::1]:443"
        ) from error


def _is_sticky(keeper: VipReconciler, vip: Vip) -> bool:
    held = keeper.target.held.get(VipKey(vip))
    return isinstance(held, VipSettings) and held.sticky


def _named(keeper: VipReconciler, backend: BackendId | None) -> str | None:
    if backend is None:
        return None
    names = [name for name, one in keeper.balancer.roster.backends.items() if one.identity == backend]
    return f"{names[0]} ({shown(backend)})" if names else shown(backend)
