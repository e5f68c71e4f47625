"""Translates between our objects and the messages of VPP's lb plugin. Pure.

Requests are validated by `rules` before they are made. Details of application servers that VPP has not collected yet,
and of those whose VIP is gone, are skipped: their lowest flag is not set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import ip_address, ip_network
from typing import Any, Final

from holdfast.balancer.dataplane.vpp.connection import VppRequest
from holdfast.balancer.dataplane.vpp.rules import ALGORITHM
from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.vip import BackendEntry, Value, Vip, VipKey, VipSettings
from holdfast.config.sections.vpp import VppSettings
from holdfast.model.base.address import address_order

ANY_PROTOCOL: Final = 255
GRE4, GRE6, L3DSR = 0, 1, 2
_TUNNELS = {GRE4: "gre4", GRE6: "gre6", L3DSR: "l3dsr", 3: "nat4", 4: "nat6"}
"""Encapsulations as VPP names them."""
IN_USE: Final = 1
NO_SUCH_ENTRY: Final = -6
EXISTS: Final = -81
_SENTENCES = {
    NO_SUCH_ENTRY: "there is no such VIP or application server",
    -70: "the length of the table is not a power of two",
    -73: "another port of this address has another encapsulation",
    EXISTS: "it exists already",
    -97: "the address is of another family than the VIP",
}


def sentence(retval: int) -> str | None:
    """Explain a return value; None for success."""
    return None if retval == 0 else f"VPP refused: {_SENTENCES.get(retval, 'unknown reason')} ({retval})"


def place(vip: Vip) -> dict[str, Any]:
    """Fields that name a VIP."""
    protocol = vip.protocol if vip.port else ANY_PROTOCOL
    return {"pfx": str(ip_network(vip.host)), "protocol": protocol, "port": vip.port}


def add_vip(vip: Vip, settings: VipSettings) -> VppRequest:
    tunnel = {"encap": _encap(vip, settings), "dscp": settings.dscp}
    size = {"new_flows_table_length": settings.table_size, "src_ip_sticky": bool(settings.sticky)}
    return VppRequest("lb_add_del_vip_v2", place(vip) | tunnel | size)


def delete_vip(vip: Vip) -> VppRequest:
    return VppRequest("lb_add_del_vip_v2", place(vip) | {"is_del": True})


def add_server(key: VipKey, entry: BackendEntry) -> VppRequest:
    return VppRequest("lb_add_del_as_v2", _server(key) | {"weight": entry.weight})


def delete_server(key: VipKey) -> VppRequest:
    """A VIP that is deleted while it has flows is never collected, so its servers go first, with their flows."""
    return VppRequest("lb_add_del_as_v2", _server(key) | {"is_del": True, "is_flush": True})


def set_weight(key: VipKey, entry: BackendEntry) -> VppRequest:
    return VppRequest("lb_as_set_weight", _server(key) | {"weight": entry.weight, "is_flush": bool(entry.kill)})


def _server(key: VipKey) -> dict[str, Any]:
    backend = key.backend
    address = ip_address(backend.address.to_bytes(4 if backend.family == 4 else 16, "big"))
    return place(key.vip) | {"as_address": str(address)}


def _encap(vip: Vip, settings: VipSettings) -> int:
    if settings.encapsulation == "l3dsr":
        return L3DSR
    return GRE4 if vip.family == 4 else GRE6


def _tunnel(vip: Vip, encap: int) -> str:
    """Name an encapsulation as it is configured. One that cannot be configured has VPP's name, so that it differs from
    what is wanted: GRE to backends of the other family, which is rebuilt, and NAT (protection: B9)."""
    if encap == (GRE4 if vip.family == 4 else GRE6):
        return "gre"
    return _TUNNELS.get(encap, f"unknown ({encap})")


def route_to(vip: Vip) -> VppRequest:
    """Ask for the route to exactly that address, which has the number of its counter."""
    return VppRequest("ip_route_lookup", {"table_id": 0, "exact": 1, "prefix": str(ip_network(vip.host))})


def read(vips: Iterable[Any], servers: Iterable[Any]) -> dict[VipKey, Value]:
    """Objects that these details describe, foreign ones included. VPP tells neither stickiness nor ended flows."""
    found: dict[VipKey, Value] = {}
    for details in vips:
        if (vip := _vip(details.vip)) is not None:
            found[VipKey(vip)] = VipSettings(
                sticky=None,
                table_size=details.flow_table_length,
                algorithm=ALGORITHM,
                encapsulation=_tunnel(vip, int(details.encap)),
                dscp=int(details.dscp),
            )
    for key, details in _in_use(servers):
        if VipKey(key.vip) in found:
            found[key] = BackendEntry(details.weight, kill=None)
    return found


def buckets(vip: Vip, servers: Iterable[Any]) -> dict[BackendId, int]:
    """Buckets of each server of a VIP."""
    return {key.backend: int(details.num_buckets) for key, details in _in_use(servers) if key.vip == vip}


def _in_use(servers: Iterable[Any]) -> Iterator[tuple[VipKey, Any]]:
    for details in servers:
        vip = _vip(details.vip)
        if vip is not None and details.flags & IN_USE:
            yield VipKey(vip, BackendId(*address_order(str(details.app_srv)), vip.port)), details


def _vip(details: Any) -> Vip | None:
    """The VIP, or None for a prefix of several addresses and for a protocol that we do not make."""
    prefix = ip_network(str(details.pfx), strict=False)
    protocol = 0 if details.protocol == ANY_PROTOCOL else int(details.protocol)
    if prefix.num_addresses != 1 or protocol not in (0, 6, 17):
        return None
    return Vip(*address_order(str(prefix.network_address)), protocol, details.port)


def conf_change(now: Any, wanted: VppSettings) -> VppRequest | None:
    """Return the request that gives the plugin these settings; None if it has them. What is not set stays: the request
    overwrites everything, and another number of buckets drops all flows."""
    timeout = None if wanted.flow_timeout is None else int(wanted.flow_timeout.total_seconds())
    settings = {
        "ip4_src_address": wanted.source_ipv4,
        "ip6_src_address": wanted.source_ipv6,
        "sticky_buckets_per_core": wanted.sticky_buckets,
        "flow_timeout": timeout,
    }
    has = {name: _plain(getattr(now, name)) for name in settings}
    new = {name: has[name] if value is None else value for name, value in settings.items()}
    return None if new == has else VppRequest("lb_conf", new)


def _plain(value: Any) -> str | int:
    return value if isinstance(value, int) else str(value)
