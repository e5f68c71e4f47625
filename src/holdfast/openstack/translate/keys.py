"""Keys of Neutron's resources in the store, both ways, without translating: for paging, mirror rows and moves."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from holdfast.model.base.bad import Bad, BadReason
from holdfast.model.base.kind import Kind
from holdfast.model.base.name import NameRefused, split
from holdfast.model.base.region import Region
from holdfast.model.calico.cluster import CLUSTER, FELIX_CONFIGURATION
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.migration import MIGRATION
from holdfast.model.calico.policy import POLICY
from holdfast.model.calico.subnet import SUBNET
from holdfast.openstack.rows import PortRow, SecurityGroupRow, SubnetRow
from holdfast.openstack.translate.places import places
from holdfast.openstack.translate.policy import POLICY_NAME, policy_name

KINDS: tuple[Kind[Any, Any], ...] = (CLUSTER, FELIX_CONFIGURATION, SUBNET, POLICY, MIGRATION, ENDPOINT)
"""Kinds that Neutron is the inventory of; those that others depend on come first: a policy before the endpoints that it
protects, a migration before the endpoint at its target."""

ResourceType = Literal["port", "security-group", "subnet", "fleet"]


class NeutronResource(NamedTuple):
    """The resource in Neutron that an object in the store comes from."""

    type: ResourceType
    id: str


class ResourceKey(NamedTuple):
    """A key that a resource should have in the store."""

    kind: Kind[Any, Any]
    key: bytes


def keys_of(row: PortRow | SecurityGroupRow | SubnetRow, region: Region) -> tuple[ResourceKey, ...]:
    """The keys that a row should have now. None for one whose name is refused: translating it says why."""
    try:
        match row:
            case PortRow():
                return _port_keys(row, region)
            case SecurityGroupRow():
                return (ResourceKey(POLICY, POLICY.key(region, policy_name(row.id))),)
            case SubnetRow():
                return (ResourceKey(SUBNET, SUBNET.key(region, row.id)),) if row.enable_dhcp else ()
    except NameRefused:
        return ()


def _port_keys(port: PortRow, region: Region) -> tuple[ResourceKey, ...]:
    source, target = places(port)
    if source is None:
        return ()
    found = [ResourceKey(ENDPOINT, ENDPOINT.key(region, source))]
    if target is not None:
        found.append(ResourceKey(MIGRATION, MIGRATION.key(region, target)))
        found.append(ResourceKey(ENDPOINT, ENDPOINT.key(region, target)))
    return tuple(found)


def kind_at(key: bytes, region: Region) -> Kind[Any, Any] | None:
    """The kind that a key belongs to."""
    return next((kind for kind in KINDS if key.startswith(kind.prefix(region))), None)


def resource_at(key: bytes, region: Region) -> NeutronResource | Bad:
    """The resource that a key in the store belongs to, from the key alone.

    Policies that no security group made, and endpoints of another orchestrator, belong to others.
    """
    kind = kind_at(key, region)
    if kind is None:
        return Bad(key, BadReason.OTHER_KIND, "it is under none of the prefixes of OpenStack")
    name = kind.parse(key, region)
    if isinstance(name, Bad):
        return name
    if kind is ENDPOINT or kind is MIGRATION:
        if name.orchestrator != "openstack":
            return Bad(key, BadReason.OTHER_KIND, f"it belongs to orchestrator {name.orchestrator}")
        return NeutronResource("port", name.endpoint)
    if kind is POLICY:
        if not name.startswith(POLICY_NAME) or name == POLICY_NAME:
            return Bad(key, BadReason.OTHER_KIND, f"names of security groups' policies begin with {POLICY_NAME}")
        return NeutronResource("security-group", name.removeprefix(POLICY_NAME))
    return NeutronResource("subnet" if kind is SUBNET else "fleet", name)


def named_resource(kind: Kind[Any, Any], name: str) -> NeutronResource | None:
    """The resource that an operator means: by the name of its object, or by its id alone."""
    if kind is ENDPOINT or kind is MIGRATION:
        return NeutronResource("port", _port_in(name))
    if kind is POLICY:
        return NeutronResource("security-group", name.removeprefix(POLICY_NAME))
    return NeutronResource("subnet", name) if kind is SUBNET else None


def named_key(kind: Kind[Any, Any], name: str, region: Region) -> bytes | None:
    """The key of an object that cannot move; None for a name that no object can have."""
    try:
        return kind.key(region, policy_name(name.removeprefix(POLICY_NAME)) if kind is POLICY else name)
    except NameRefused:
        return None


def _port_in(name: str) -> str:
    try:
        return split(name, 3)[2]
    except NameRefused:
        return name


def wanted_now(key: bytes, port: PortRow | None, region: Region) -> bytes | None:
    """The key where the object at a key is wanted now: the key itself, another one that it moved to, or None.

    `port` is the current row of the port that the key names; None if there is none. An endpoint moves to the host of
    its port, also when the port was attached to another workload and the key differs in the device; a migration moves
    to the port's present target.
    """
    if port is None:
        return None
    kind = kind_at(key, region)
    found = [each.key for each in keys_of(port, region) if each.kind is kind]
    if key in found:
        return key
    return found[0] if found else None
