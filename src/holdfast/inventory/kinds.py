"""Kinds of the inventory: the name of an object, the host it is on, and the addresses that it claims. Pure.

The name stays when an object moves: an endpoint on another host has another key and the same name, so a move is one
change of one object, not a delete and a create that could be separated. A migration has the name of the endpoint that
it moves, so an endpoint has at most one, and another target is a move of that migration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.config.sections.frontend import Backend, Frontend
from holdfast.config.sections.healthcheck import HealthCheck
from holdfast.model.balancing import BACKEND, FRONTEND, HEALTH_CHECK
from holdfast.model.base.kind import Kind
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointName
from holdfast.model.calico.host import HOST, Host, region_of
from holdfast.model.calico.migration import MIGRATION, Migration
from holdfast.model.calico.subnet import SUBNET, Subnet
from holdfast.model.fleet.network import NETWORK, Network, network_of

SERVING: tuple[Kind[Any, Any], ...] = (HEALTH_CHECK, BACKEND, FRONTEND)
"""Objects that balancers serve; they are validated together."""

KINDS: tuple[Kind[Any, Any], ...] = (HOST, NETWORK, SUBNET, ENDPOINT, MIGRATION, *SERVING)
"""Kinds that a SQL inventory holds; those that others depend on come first."""

Thing = Host | Network | Subnet | Endpoint | Migration | HealthCheck | Backend | Frontend


def name_of(name: Any) -> str:
    """The inventory's name of an object, from the name in its key."""
    return name.individual if isinstance(name, EndpointName) else str(name)


def host_of(thing: Thing) -> str:
    """The host that an endpoint is on, or that a migration goes to; other kinds have none."""
    match thing:
        case Endpoint():
            return thing.spec.node
        case Migration():
            return thing.target.node
    return ""


def network_named(thing: Thing | None) -> str:
    """The network that an endpoint is on; other kinds have none."""
    return network_of(thing.metadata.labels) if isinstance(thing, Endpoint) else ""


def addresses_of(thing: Thing) -> Sequence[str]:
    """The addresses that no other object may have, sorted and without duplicates."""
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


def belongs(kind: Kind[Any, Any], key: bytes, thing: Any, region: Region) -> bool:
    """Tell whether the object at a key belongs to the region. Hosts of all regions have the same keys."""
    mine = not isinstance(thing, Host) or region_of(thing.metadata.labels, region)
    return mine and key.startswith(kind.prefix(region))


def _plain(network: str) -> str:
    """The address of a host prefix: 10.0.0.7/32 and 10.0.0.7 are one claim."""
    address, _, length = network.partition("/")
    return address if length == ("128" if ":" in address else "32") else network
