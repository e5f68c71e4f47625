"""What an object of the inventory is called, which host it is on, and which addresses it alone may have. Pure.

Its name is what stays when it moves: an endpoint on another host has another key and the same name, so a move is one
change of one object and not a delete and a create that could part. A migration is called like the endpoint that it
moves, so that an endpoint has one at most, and another target is a move of that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.model.balancing.backend import BACKEND, Backend
from holdfast.model.balancing.frontend import FRONTEND, Frontend
from holdfast.model.balancing.healthcheck import HEALTH_CHECK, HealthCheck
from holdfast.model.base.kind import Kind
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointName
from holdfast.model.calico.host import HOST, Host
from holdfast.model.calico.migration import MIGRATION, Migration
from holdfast.model.calico.subnet import SUBNET, Subnet
from holdfast.model.fleet.network import NETWORK, Network, network_of

SERVING: tuple[Kind[Any, Any], ...] = (HEALTH_CHECK, BACKEND, FRONTEND)
"""What balancers serve; these make sense together only."""

KINDS: tuple[Kind[Any, Any], ...] = (HOST, NETWORK, SUBNET, ENDPOINT, MIGRATION, *SERVING)
"""What a SQL inventory holds, the ones leaned upon first."""

REGION_LABEL = "holdfast/region"
"""Hosts of all regions stand side by side in the store; one of a named region says whose it is."""

Thing = Host | Network | Subnet | Endpoint | Migration | HealthCheck | Backend | Frontend


def name_of(name: Any) -> str:
    """What an object is called in the inventory, from the name in its key."""
    return name.individual if isinstance(name, EndpointName) else str(name)


def host_of(thing: Thing) -> str:
    """The host that an endpoint is on, or that a migration goes to; other things are on none."""
    match thing:
        case Endpoint():
            return thing.spec.node
        case Migration():
            return thing.target.node
    return ""


def network_named(thing: Thing | None) -> str:
    """The network that an endpoint is on; other things are on none."""
    return network_of(thing.metadata.labels) if isinstance(thing, Endpoint) else ""


def addresses_of(thing: Thing) -> Sequence[str]:
    """The addresses that no other object may have, without repetition, in order."""
    match thing:
        case Endpoint():
            found = [_plain(network) for network in thing.spec.ip_networks]
        case Host():
            spec = thing.spec
            bgp = [spec.bgp.ipv4_address, spec.bgp.ipv6_address] if spec.bgp else []
            given = [*(each.address for each in spec.addresses), *bgp]
            found = [text.partition("/")[0] for text in (*given, spec.tunnel_ipv4, spec.tunnel_ipv6) if text]
        case Frontend():
            # Frontends share an address as long as their ports differ.
            found = [f"{thing.address} {thing.protocol}/{thing.port or 'all'}"]
        case _:
            found = []
    return sorted(set(found))


def region_of(labels: Any, region: Region) -> bool:
    """Whether a host with these labels is one of this region's."""
    return bool(labels.get(REGION_LABEL, "") == region.name)


def belongs(kind: Kind[Any, Any], key: bytes, thing: Any, region: Region) -> bool:
    """Whether an object at that key is one of this region's. Hosts of all regions have the same keys."""
    mine = not isinstance(thing, Host) or region_of(thing.metadata.labels, region)
    return mine and key.startswith(kind.prefix(region))


def _plain(network: str) -> str:
    """A network of one as the address that it is: 10.0.0.7/32 and 10.0.0.7 are one claim."""
    address, _, length = network.partition("/")
    return address if length == ("128" if ":" in address else "32") else network
