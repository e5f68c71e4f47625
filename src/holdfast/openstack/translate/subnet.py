"""Subnets to the data of Calico's DHCP agent; without DHCP there is none."""

from __future__ import annotations

import msgspec

from holdfast.model.calico.subnet import SUBNET, StaticRoute, Subnet
from holdfast.openstack.rows import SubnetRow
from holdfast.openstack.translate.outcome import Translated, Translation, refused, row_path
from holdfast.openstack.translate.settings import TranslationSettings


def translate_subnet(subnet: SubnetRow, settings: TranslationSettings) -> Translation:
    """The DHCP data of a subnet."""
    if not subnet.enable_dhcp:
        return Translation()
    key = row_path("subnets", subnet.id)
    try:
        key = SUBNET.key(settings.region, subnet.id)
        return Translation((Translated(SUBNET, key, _data(subnet)),))
    except ValueError as error:
        return Translation(bad=(refused(key, error, f"subnet {subnet.id}"),))


def _data(subnet: SubnetRow) -> Subnet:
    routes = sorted(subnet.host_routes, key=lambda route: (route.destination, route.nexthop))
    modes = subnet.ipv6_ra_mode and subnet.ipv6_address_mode
    return Subnet(
        network_id=subnet.network_id,
        cidr=subnet.cidr,
        host_routes=tuple(StaticRoute(route.destination, route.nexthop) for route in routes),
        gateway_ip=subnet.gateway_ip,
        dns_servers=subnet.dns_nameservers or msgspec.UNSET,
        # The agent needs both or none.
        ipv6_ra_mode=(subnet.ipv6_ra_mode if modes else None) or msgspec.UNSET,
        ipv6_address_mode=(subnet.ipv6_address_mode if modes else None) or msgspec.UNSET,
    )
