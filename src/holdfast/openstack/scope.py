"""Scope of a comparison: one port, security group, subnet or network, and everything that belongs to it. Pure.

What Neutron has belongs by its rows, which were read before. What only etcd has belongs by what it says itself: the
label of a group, the id of its network, an address inside a subnet.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network

import msgspec

from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT, NETWORK_ANNOTATION, Endpoint
from holdfast.openstack.translate.keys import NeutronResource, kind_at, resource_at
from holdfast.openstack.translate.labels import GROUP


class CheckScope(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Resources that are compared. `network` and `cidr` limit endpoints of ports that Neutron does not have."""

    resources: frozenset[NeutronResource] = frozenset()
    group: str = ""
    network: str = ""
    cidr: str = ""

    @property
    def is_whole(self) -> bool:
        return not (self.resources or self.group or self.network)

    def has(self, key: bytes, values: Sequence[bytes], region: Region) -> bool:
        """Tell whether an object belongs; `values` is what Neutron wants there and what etcd has."""
        if self.is_whole or resource_at(key, region) in self.resources:
            return True
        if kind_at(key, region) is not ENDPOINT:
            return False
        found = (ENDPOINT.decode(key, value) for value in values)
        return any(self._has_endpoint(one) for one in found if not isinstance(one, Bad))

    def _has_endpoint(self, endpoint: Endpoint) -> bool:
        if self.group and GROUP + self.group in endpoint.metadata.labels:
            return True
        if not self.network or endpoint.metadata.annotations.get(NETWORK_ANNOTATION) != self.network:
            return False
        return not self.cidr or any(_is_inside(one, self.cidr) for one in endpoint.spec.ip_networks)


def _is_inside(prefix: str, cidr: str) -> bool:
    return ip_network(prefix).network_address in ip_network(cidr)
