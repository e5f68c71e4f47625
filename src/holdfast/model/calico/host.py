"""Hosts: the machines of the fleet, as Calico's Node. Only the inventory creates them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import force_setattr

from holdfast.model.base.address import address, family, interface, mac
from holdfast.model.base.keys import calico, named
from holdfast.model.base.kind import Column, Kind
from holdfast.model.base.name import segment
from holdfast.model.base.region import Region
from holdfast.model.calico.resource import Metadata, Resource, carry_identity, full_name

REGION_LABEL = "holdfast/region"
"""Hosts of all regions share one prefix in the store; this label names the region of a host, if it has one."""


class HostAddress(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An address of the host, with or without a prefix length."""

    address: str
    type: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "address", interface(self.address))


class Bgp(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, rename="camel"):
    """Addresses of the host for other hosts. The name is Calico's; they need no BGP."""

    ipv4_address: str = ""
    ipv6_address: str = ""

    def __post_init__(self) -> None:
        if self.ipv4_address:
            force_setattr(self, "ipv4_address", interface(self.ipv4_address))
        if self.ipv6_address:
            force_setattr(self, "ipv6_address", interface(self.ipv6_address))


class HostSpec(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Addresses of the host: direct ones, and those of its VXLAN tunnel."""

    addresses: tuple[HostAddress, ...] = ()
    bgp: Bgp | None = None
    tunnel_ipv4: str = msgspec.field(default="", name="ipv4VXLANTunnelAddr")
    tunnel_ipv6: str = msgspec.field(default="", name="ipv6VXLANTunnelAddr")
    tunnel_mac: str = msgspec.field(default="", name="vxlanTunnelMACAddr")
    tunnel_mac_v6: str = msgspec.field(default="", name="vxlanTunnelMACAddrV6")

    def __post_init__(self) -> None:
        for name in ("tunnel_ipv4", "tunnel_ipv6"):
            if text := getattr(self, name):
                force_setattr(self, name, address(text))
        for name in ("tunnel_mac", "tunnel_mac_v6"):
            if text := getattr(self, name):
                force_setattr(self, name, mac(text))


class Host(Resource[HostSpec], frozen=True, gc=False, tag="Node"):
    """A Node."""

    @classmethod
    def of(
        cls,
        name: str,
        spec: HostSpec,
        *,
        labels: Mapping[str, str] | None = None,
        uid: str = "",
        created: str | None = None,
    ) -> Host:
        """A host of that name. Raises NameRefused when the name cannot be part of a key."""
        return cls(metadata=Metadata(segment(name), "", created, uid, {}, labels or {}), spec=spec)

    def underlay(self, version: int) -> str | None:
        """The underlay address of a family, without its prefix length."""
        bgp = self.spec.bgp or Bgp()
        known = (bgp.ipv4_address, bgp.ipv6_address, *(each.address for each in self.spec.addresses))
        return next((text.partition("/")[0] for text in known if text and family(text) == version), None)


def region_of(labels: Mapping[str, str], region: Region) -> bool:
    """Tell whether a host with these labels belongs to the region."""
    return labels.get(REGION_LABEL, "") == region.name


def _addresses(host: Host) -> str:
    return " ".join(found for version in (4, 6) if (found := host.underlay(version)))


HOST: Kind[Host, str] = Kind(
    name="host",
    plural="hosts",
    struct=Host,
    place=named(calico("nodes")),
    columns=(
        Column("HOST", lambda name, _: name),
        Column("ADDRESSES", lambda _, host: _addresses(host)),
        Column("TUNNEL", lambda _, host: " ".join(filter(None, (host.spec.tunnel_ipv4, host.spec.tunnel_ipv6)))),
        Column("TUNNEL MAC", lambda _, host: host.spec.tunnel_mac, wide=True),
        Column("UID", lambda _, host: host.metadata.uid, wide=True),
    ),
    tail=full_name,
    carry=carry_identity,
)
