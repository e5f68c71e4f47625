"""Endpoints as the agent needs them: name, host, interface and prefixes. Pure.

An agent of a large fleet holds every endpoint of it. Labels, annotations and the rest of the value are neither decoded
nor kept, so an edit of them is no change for the agent, and nothing that is wrong in them makes a value unreadable.
"""

from __future__ import annotations

from sys import intern
from typing import Literal

import msgspec
from msgspec.structs import force_setattr, replace

from holdfast.agent.claims import ClaimKey, route
from holdfast.model.base.address import prefixes
from holdfast.model.base.bad import Bad
from holdfast.model.base.kind import Kind
from holdfast.model.base.name import NameRefused, join
from holdfast.model.calico.endpoint import ENDPOINT, EndpointName, Orchestrator, read_name


class SlimEndpoint(msgspec.Struct, frozen=True, gc=False):
    """Endpoint of a workload. `joined` is its name in one string, as in its key."""

    joined: str
    node: str
    interface: str
    prefixes: tuple[ClaimKey, ...]
    """Keys of the routes to it: the same objects as in the tables of claims, so that a prefix takes no memory of its
    own."""
    allowed: tuple[ClaimKey, ...] = ()
    """Further prefixes from which it may send, as the keys that routes to them would have."""

    @property
    def name(self) -> EndpointName:
        return read_name(self.joined)

    @property
    def individual(self) -> str:
        return without_host(self.joined, self.node)

    def at(self, target: EndpointName) -> SlimEndpoint:
        """Return the endpoint as it will stand at the target of its migration."""
        return replace(self, joined=join(target), node=target.node)


def without_host(name: str, host: str) -> str:
    """Strip the host from an endpoint's name, by its length: a start does this for every endpoint."""
    return name[len(host) + host.count("-") + 1 :]


def decode_endpoint(key: bytes, value: bytes) -> SlimEndpoint | Bad:
    """Decode the value of an endpoint; never raises."""
    decoded = _WIRE.decode(key, value)
    if isinstance(decoded, Bad):
        return decoded
    spec = decoded.spec
    name, node = decoded.metadata.name, intern(spec.node)
    networks, allowed = map(route, spec.ip_networks), map(route, spec.allowed_ips)
    return SlimEndpoint(name, node, spec.interface_name, tuple(networks), tuple(allowed))


class _Metadata(msgspec.Struct, frozen=True, gc=False):
    name: str
    namespace: str = ""


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    orchestrator: Orchestrator
    workload: str
    node: str
    endpoint: str
    interface_name: str = ""
    ip_networks: tuple[str, ...] = ()
    allowed_ips: tuple[str, ...] = msgspec.field(default=(), name="allowedIps")

    def __post_init__(self) -> None:
        if self.allowed_ips and (allowed := prefixes(self.allowed_ips)) is not self.allowed_ips:
            force_setattr(self, "allowed_ips", allowed)
        if (networks := prefixes(self.ip_networks)) is not self.ip_networks:
            force_setattr(self, "ip_networks", networks)


class _Wire(
    msgspec.Struct, frozen=True, gc=False, rename="camel", tag_field="kind", tag="WorkloadEndpoint", kw_only=True
):
    """The parts of a WorkloadEndpoint that are read."""

    api_version: Literal["projectcalico.org/v3"] = "projectcalico.org/v3"
    metadata: _Metadata
    spec: _Spec


def _tail(wire: _Wire) -> str:
    spec, metadata = wire.spec, wire.metadata
    if read_name(metadata.name) != (spec.node, spec.orchestrator, spec.workload, spec.endpoint):
        raise NameRefused("the name in metadata differs from the name in the spec")
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


_WIRE: Kind[_Wire, EndpointName] = Kind(
    name=ENDPOINT.name, plural=ENDPOINT.plural, struct=_Wire, place=ENDPOINT.place, columns=(), tail=_tail
)
