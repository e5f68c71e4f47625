"""Subnets: data for Calico's DHCP agent. OpenStack only."""

from __future__ import annotations

import msgspec
from msgspec.structs import force_setattr, replace

from holdfast.model.base.address import address, prefix
from holdfast.model.base.keys import named
from holdfast.model.base.kind import Column, Kind


class StaticRoute(msgspec.Struct, frozen=True, gc=False):
    """A route that DHCP sends to endpoints."""

    destination: str
    nexthop: str

    def __post_init__(self) -> None:
        force_setattr(self, "destination", prefix(self.destination, strict=False))
        force_setattr(self, "nexthop", address(self.nexthop))


class Subnet(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A DHCP subnet. Readers need routes and gateway even if empty; other fields are written only when set."""

    network_id: str
    cidr: str
    host_routes: tuple[StaticRoute, ...] = ()
    gateway_ip: str | None = None
    dns_servers: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    ipv6_ra_mode: str | msgspec.UnsetType = msgspec.UNSET
    ipv6_address_mode: str | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        force_setattr(self, "cidr", prefix(self.cidr, strict=False))
        if self.gateway_ip is not None:
            force_setattr(self, "gateway_ip", address(self.gateway_ip))
        if self.dns_servers:
            force_setattr(self, "dns_servers", tuple([address(server) for server in self.dns_servers]))
        else:
            force_setattr(self, "dns_servers", msgspec.UNSET)


def _meaning(subnet: Subnet) -> Subnet:
    """Sort the routes; the order of name servers matters to clients and stays."""
    routes = sorted(subnet.host_routes, key=lambda route: (route.destination, route.nexthop))
    return replace(subnet, host_routes=tuple(routes))


SUBNET: Kind[Subnet, str] = Kind(
    name="subnet",
    plural="subnets",
    struct=Subnet,
    place=named(lambda region: f"/calico/dhcp/v2/{region.segment}/subnet/"),
    columns=(
        Column("SUBNET", lambda name, _: name),
        Column("CIDR", lambda _, subnet: subnet.cidr),
        Column("GATEWAY", lambda _, subnet: subnet.gateway_ip or ""),
        Column("DNS", lambda _, subnet: " ".join(subnet.dns_servers or ()), wide=True),
        Column("NETWORK", lambda _, subnet: subnet.network_id, wide=True),
    ),
    meaning=_meaning,
)
