"""Endpoints: network interfaces of workloads, as Calico's WorkloadEndpoint.

The name of an endpoint consists of node, orchestrator, workload and endpoint, so a move to another host changes its
key. Endpoints of OpenStack and of Holdfast differ in the orchestrator only.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import force_setattr, replace

from holdfast.model.base.address import address, mac, prefixes, shown
from holdfast.model.base.codec import Natural
from holdfast.model.base.keys import KeySpace, namespaced
from holdfast.model.base.kind import Column, Kind
from holdfast.model.base.name import NameRefused, join, split
from holdfast.model.base.region import Region
from holdfast.model.calico.resource import Metadata, Resource, carry_identity, full_name

Orchestrator = Literal["openstack", "holdfast"]

_gateway = lru_cache(maxsize=1_024)(address)
"""Thousands of endpoints share one gateway: it is parsed once, and all hold the same string."""

NETWORK_ANNOTATION = "openstack.projectcalico.org/network-id"
PROJECT_ID = "projectcalico.org/openstack-project-id"
PROJECT_NAME = "projectcalico.org/openstack-project-name"
PROJECT_PARENT = "projectcalico.org/openstack-project-parent-id"

_ORCHESTRATORS: dict[str, Orchestrator] = {"openstack": "openstack", "holdfast": "holdfast"}


class EndpointName(NamedTuple):
    """The four parts of an endpoint's name."""

    node: str
    orchestrator: Orchestrator
    workload: str
    endpoint: str

    def __str__(self) -> str:
        return _write_name(self)

    @property
    def individual(self) -> str:
        """The name without the host, which stays when the endpoint moves."""
        return join((self.orchestrator, self.workload, self.endpoint))


class AddressPair(
    msgspec.Struct,
    frozen=True,
    gc=False,
    rename={"internal": "internalIP", "external": "externalIP"},
):
    """A floating address and the endpoint's own address that it maps to."""

    internal: str
    external: str

    def __post_init__(self) -> None:
        force_setattr(self, "internal", address(self.internal))
        force_setattr(self, "external", address(self.external))


class QosControls(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, rename="camel"):
    """Limits on an endpoint's traffic: bits and packets per second, burst sizes, connections. None is no limit."""

    ingress_bandwidth: Natural | None = None
    egress_bandwidth: Natural | None = None
    ingress_burst: Natural | None = None
    egress_burst: Natural | None = None
    ingress_peakrate: Natural | None = None
    egress_peakrate: Natural | None = None
    ingress_packet_rate: Natural | None = None
    egress_packet_rate: Natural | None = None
    ingress_max_connections: Natural | None = None
    egress_max_connections: Natural | None = None
    ingress_minburst: Natural | None = None
    egress_minburst: Natural | None = None
    ingress_packet_burst: Natural | None = None
    egress_packet_burst: Natural | None = None


class EndpointSpec(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, rename="camel", kw_only=True):
    """Identity and addresses of an endpoint. Lists keep their order."""

    orchestrator: Orchestrator
    workload: str
    node: str
    endpoint: str
    interface_name: str = ""
    mac: str = ""
    ipv4_gateway: str = ""
    ipv6_gateway: str = ""
    ip_networks: tuple[str, ...] = ()
    allowed_ips: tuple[str, ...] = ()
    ip_nats: tuple[AddressPair, ...] = msgspec.field(default=(), name="ipNATs")
    qos_controls: QosControls | None = None
    allow_spoofed_source_prefixes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # Identity, not equality: canonical text comes back as the same object, and this runs for every value read.
        if self.mac and (canonical := mac(self.mac)) is not self.mac:
            force_setattr(self, "mac", canonical)
        if self.ipv4_gateway and (canonical := _gateway(self.ipv4_gateway)) is not self.ipv4_gateway:
            force_setattr(self, "ipv4_gateway", canonical)
        if self.ipv6_gateway and (canonical := _gateway(self.ipv6_gateway)) is not self.ipv6_gateway:
            force_setattr(self, "ipv6_gateway", canonical)
        if (networks := prefixes(self.ip_networks)) is not self.ip_networks:
            force_setattr(self, "ip_networks", networks)
        if self.allowed_ips and (networks := prefixes(self.allowed_ips)) is not self.allowed_ips:
            force_setattr(self, "allowed_ips", networks)
        if self.allow_spoofed_source_prefixes:
            force_setattr(self, "allow_spoofed_source_prefixes", prefixes(self.allow_spoofed_source_prefixes))

    @property
    def name(self) -> EndpointName:
        return EndpointName(self.node, self.orchestrator, self.workload, self.endpoint)


class Endpoint(Resource[EndpointSpec], frozen=True, gc=False, tag="WorkloadEndpoint"):
    """A WorkloadEndpoint. `Endpoint.of` derives its name from the spec."""

    @property
    def name(self) -> EndpointName:
        return self.spec.name

    @classmethod
    def of(
        cls,
        region: Region,
        spec: EndpointSpec,
        *,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        uid: str = "",
        created: str | None = None,
    ) -> Endpoint:
        """An endpoint of a region. Raises NameRefused when a part of its name cannot be part of a key."""
        metadata = Metadata(join(spec.name), region.namespace, created, uid, annotations or {}, labels or {})
        return cls(metadata=metadata, spec=spec)


def _tail(endpoint: Endpoint) -> str:
    spec = endpoint.spec
    # Written out instead of `join`: this runs for every value, and parsing the key refuses what `join` would refuse.
    name = (
        f"{spec.node.replace('-', '--')}-{spec.orchestrator}-"
        f"{spec.workload.replace('-', '--')}-{spec.endpoint.replace('-', '--')}"
    )
    if name != endpoint.metadata.name:
        raise NameRefused("the name in metadata differs from the name in the spec")
    return full_name(endpoint)


def _carry(new: Endpoint, old: Endpoint) -> Endpoint:
    """Keep identity and, where the new endpoint does not know them, name and parent of the same project: they come from
    Keystone, and an endpoint must not lose labels that policies select because Keystone is away."""
    carried = carry_identity(new, old)
    ours, theirs = new.metadata.labels, old.metadata.labels
    if PROJECT_NAME in ours or PROJECT_NAME not in theirs or ours.get(PROJECT_ID) != theirs.get(PROJECT_ID):
        return carried
    known = {name: theirs[name] for name in (PROJECT_NAME, PROJECT_PARENT) if name in theirs}
    return replace(carried, metadata=replace(carried.metadata, labels={**ours, **known}))


def _meaning(endpoint: Endpoint) -> Endpoint:
    """Sort the addresses: Felix and our agent treat them as sets, and Neutron's database returns them in any order."""
    spec = endpoint.spec
    ordered = replace(
        spec,
        ip_networks=tuple(sorted(set(spec.ip_networks))),
        allowed_ips=tuple(sorted(set(spec.allowed_ips))),
        ip_nats=tuple(sorted(spec.ip_nats, key=lambda pair: (pair.internal, pair.external))),
        allow_spoofed_source_prefixes=tuple(sorted(spec.allow_spoofed_source_prefixes)),
    )
    return replace(endpoint, spec=ordered)


_NOWHERE = "-openstack-"
"""Beginning of the names that networking-calico's resync gives to ports without a host. They are read, so that such an
endpoint is deleted with its port or once that has a host; none is made here."""


def _write_name(name: EndpointName) -> str:
    is_nowhere = not name.node and name.orchestrator == "openstack"
    return f"-{name.individual}" if is_nowhere else join(name)


def _read_stored_name(text: str) -> EndpointName:
    if not text.startswith(_NOWHERE):
        return read_name(text)
    workload, endpoint = split(text.removeprefix(_NOWHERE), 2)
    return EndpointName("", "openstack", workload, endpoint)


def read_name(text: str) -> EndpointName:
    """Parse a joined name. Raises NameRefused."""
    node, word, workload, endpoint = split(text, 4)
    orchestrator = _ORCHESTRATORS.get(word)
    if orchestrator is None:
        raise NameRefused(f"{shown(word)} is not a known orchestrator: use openstack or holdfast")
    return EndpointName(node, orchestrator, workload, endpoint)


ENDPOINT: Kind[Endpoint, EndpointName] = Kind(
    name="endpoint",
    plural="endpoints",
    struct=Endpoint,
    place=KeySpace(namespaced("workloadendpoints"), _write_name, _read_stored_name),
    columns=(
        Column("NAME", lambda name, _: name.individual),
        Column("HOST", lambda name, _: name.node),
        Column("ADDRESSES", lambda _, endpoint: " ".join(endpoint.spec.ip_networks)),
        Column("INTERFACE", lambda _, endpoint: endpoint.spec.interface_name),
        Column("WORKLOAD", lambda name, _: name.workload, wide=True),
        Column("ENDPOINT", lambda name, _: name.endpoint, wide=True),
        Column("MAC", lambda _, endpoint: endpoint.spec.mac, wide=True),
        Column("ORCHESTRATOR", lambda name, _: name.orchestrator, wide=True),
        Column("UID", lambda _, endpoint: endpoint.metadata.uid, wide=True),
    ),
    tail=_tail,
    carry=_carry,
    meaning=_meaning,
)
