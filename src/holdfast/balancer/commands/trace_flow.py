"""`holdfast explain flow`: the VIP that a flow matches, its bucket, and the backend that gets it.

An established flow belongs to the backend in the connection tracking table, whatever the buckets are by now; a new flow
goes to the backend of its bucket. Both are read from the dataplane, not computed from the desired state. Where that
backend stands in for another one, the owner of the bucket in the base table is named too.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from holdfast.balancer.commands.buckets import base_owner
from holdfast.balancer.commands.shares import named, spread
from holdfast.balancer.dataplane.api import Client, FlowPath, FlowTracer, SharesBuckets
from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.reconciler import VipReconciler
from holdfast.balancer.services.resolved import ResolvedFrontend
from holdfast.balancer.vip import PROTOCOLS, BackendEntry, Vip, VipKey, VipSettings
from holdfast.runtime.control import Declined

_PLACE = re.compile(
    r"(?:\[(?P<six>[^]]+)\]|(?P<four>[^:/]+))(?::(?P<port>\d{1,5}|\*))?(?:/(?P<protocol>\w+))?"
).fullmatch


async def trace(reconciler: VipReconciler, source: str, to: str) -> dict[str, Any]:
    """Trace a flow for `explain flow`. Raises `Declined` when it cannot be traced."""
    dataplane = reconciler.dataplane
    if not isinstance(dataplane, FlowTracer | SharesBuckets):
        raise Declined(f"the dataplane {dataplane.describe().name} cannot trace flows")
    frontend, vip, protocol, to_port = _find_frontend(reconciler, to)
    if not isinstance(dataplane, FlowTracer):
        return await spread(reconciler, frontend)
    address, port, _ = _parse(source)
    if address.version != vip.family:
        raise Declined(f"{address} and {vip} are of different address families")
    if not port and protocol and not _is_sticky(reconciler, vip):
        raise Declined(f"flows to {vip} are also spread by source port: write {source}:PORT")
    path = await dataplane.flow_path(vip, Client(address.version, int(address), port, protocol, to_port))
    if path is None:
        raise Declined(f"{vip} is not programmed; run: holdfast explain frontend {frontend.name}")
    owner = await base_owner(reconciler.target, vip, path.bucket)
    view = _view(reconciler, frontend, vip, path, sticky=_is_sticky(reconciler, vip), port=port)
    return {**view, "stands_in_for": None if owner == path.backend else _owner(reconciler, frontend, owner)}


def _view(
    reconciler: VipReconciler, frontend: ResolvedFrontend, vip: Vip, path: FlowPath, *, sticky: bool, port: int
) -> dict[str, Any]:
    entry = None if path.backend is None else reconciler.target.held.get(VipKey(vip, path.backend))
    return {
        "frontend": frontend.name,
        "vip": str(vip),
        "hashed": "source address" if sticky or not port else "source address and port",
        "bucket": path.bucket,
        "buckets": path.buckets,
        "backend": _named(reconciler, frontend, path.backend),
        "weight": entry.weight if isinstance(entry, BackendEntry) else None,
        "share": path.share,
        "established": _named(reconciler, frontend, path.established),
    }


def _owner(reconciler: VipReconciler, frontend: ResolvedFrontend, owner: BackendId | None) -> dict[str, Any] | None:
    """Describe the owner of a bucket that another backend serves: its weight now, and in the base table."""
    entry = None if owner is None else reconciler.target.entries(frontend.vip).get(owner)
    if owner is None or entry is None:
        return None
    return {"backend": named(reconciler, frontend, owner), "weight": entry.weight, "base": entry.base}


def _find_frontend(reconciler: VipReconciler, to: str) -> tuple[ResolvedFrontend, Vip, int, int]:
    """Find a frontend by name, or as the dataplane does by address, port and protocol."""
    frontends = reconciler.balancer.services.frontends
    if to in frontends:
        vip = frontends[to].vip
        return frontends[to], vip, vip.protocol, vip.port
    address, port, protocol = _parse(to)
    number = PROTOCOLS.get(protocol or "tcp")
    if number is None:
        raise Declined(f"a VIP cannot have the protocol {protocol}: write tcp, udp or any")
    at = reconciler.balancer.services.at
    for narrow in ((number, port), (number, 0), (0, 0)):
        vip = Vip(address.version, int(address), *narrow)
        if vip in at:
            return at[vip], vip, number, port
    raise Declined(f"no frontend has {to}; holdfast balancer status lists all")


def _parse(text: str) -> tuple[IPv4Address | IPv6Address, int, str | None]:
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
        raise Declined(f"{text!r} is not ADDRESS:PORT; write an IPv6 address in brackets: [2001:db8::1]:443") from error


def _is_sticky(reconciler: VipReconciler, vip: Vip) -> bool:
    held = reconciler.target.held.get(VipKey(vip))
    return isinstance(held, VipSettings) and bool(held.sticky)


def _named(reconciler: VipReconciler, frontend: ResolvedFrontend, backend: BackendId | None) -> str | None:
    return None if backend is None else named(reconciler, frontend, backend)
