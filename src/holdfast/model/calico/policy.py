"""Policies: traffic that endpoints may send and receive, as Calico's NetworkPolicy. Holdfast writes, Felix enforces.

Policies come from OpenStack's security groups and are named `ossg.default.<group>`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec.structs import force_setattr, replace

from holdfast.model.base.address import prefixes
from holdfast.model.base.keys import named, namespaced
from holdfast.model.base.kind import Column, Kind
from holdfast.model.base.name import segment
from holdfast.model.base.region import Region
from holdfast.model.calico.resource import Metadata, Resource, carry_metadata, full_name

Protocol = Annotated[int, msgspec.Meta(ge=0, le=255)] | str
Octet = Annotated[int, msgspec.Meta(ge=0, le=255)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)] | str

_NUMBERS = {"icmp": 1, "tcp": 6, "udp": 17, "icmpv6": 58, "sctp": 132, "udplite": 136}
"""The protocol names that Calico knows, in any case; readers treat name and number alike."""


class IcmpMatch(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """ICMP type and code; None is any."""

    type: Octet | None = None
    code: Octet | None = None


class ServiceAccounts(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Kubernetes identities: Holdfast never writes them, but keeps those of others."""

    names: tuple[str, ...] = ()
    selector: str = ""


class HttpMatch(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Methods and paths; each path is an `exact` or a `prefix`."""

    methods: tuple[str, ...] = ()
    paths: tuple[Mapping[str, str], ...] = ()


class RuleMetadata(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Annotations of one rule."""

    annotations: Mapping[str, str] = {}


class Party(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, rename="camel"):
    """One side of a rule: endpoints by selector or network, and ports."""

    nets: tuple[str, ...] = ()
    not_nets: tuple[str, ...] = ()
    selector: str = ""
    not_selector: str = ""
    namespace_selector: str = ""
    ports: tuple[Port, ...] = ()
    not_ports: tuple[Port, ...] = ()
    service_accounts: ServiceAccounts | None = None
    services: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if self.nets:
            force_setattr(self, "nets", prefixes(self.nets))
        if self.not_nets:
            force_setattr(self, "not_nets", prefixes(self.not_nets))


class PolicyRule(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, rename="camel"):
    """One rule. A list of rules is replaced as a whole, so all of Calico's fields are declared and none is lost."""

    action: Literal["Allow", "Deny", "Log", "Pass"]
    ip_version: Literal[4, 6] | None = None
    protocol: Protocol | None = None
    icmp: IcmpMatch | None = None
    not_protocol: Protocol | None = None
    not_icmp: IcmpMatch | None = msgspec.field(default=None, name="notICMP")
    destination: Party | None = None
    source: Party | None = None
    http: HttpMatch | None = None
    metadata: RuleMetadata | None = None


class PolicySpec(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, rename="camel"):
    """Rules in order, and the endpoints that they apply to."""

    ingress: tuple[PolicyRule, ...] = ()
    egress: tuple[PolicyRule, ...] = ()
    selector: str = ""
    order: float | None = None
    tier: str = ""
    types: tuple[str, ...] = ()


def _meaning(policy: Policy) -> Policy:
    """Write protocols as numbers, and sort the rules where order cannot matter: where all of them allow."""
    spec = policy.spec
    return replace(policy, spec=replace(spec, ingress=_rules(spec.ingress), egress=_rules(spec.egress)))


def _rules(rules: tuple[PolicyRule, ...]) -> tuple[PolicyRule, ...]:
    plain = [replace(rule, protocol=_number(rule.protocol), not_protocol=_number(rule.not_protocol)) for rule in rules]
    if any(rule.action != "Allow" for rule in plain):
        return tuple(plain)
    return tuple(sorted(plain, key=msgspec.json.encode))


def _number(protocol: Protocol | None) -> Protocol | None:
    if not isinstance(protocol, str):
        return protocol
    if protocol.isascii() and protocol.isdigit() and len(protocol) <= len("255"):
        return int(protocol)
    return _NUMBERS.get(protocol.lower(), protocol)


class Policy(Resource[PolicySpec], frozen=True, gc=False, tag="NetworkPolicy"):
    """A NetworkPolicy."""

    @classmethod
    def of(cls, region: Region, name: str, spec: PolicySpec) -> Policy:
        """A policy of a region."""
        return cls(metadata=Metadata(segment(name), region.namespace), spec=spec)


POLICY: Kind[Policy, str] = Kind(
    name="policy",
    plural="policies",
    struct=Policy,
    place=named(namespaced("networkpolicies")),
    columns=(
        Column("POLICY", lambda name, _: name),
        Column("INGRESS", lambda _, policy: str(len(policy.spec.ingress))),
        Column("EGRESS", lambda _, policy: str(len(policy.spec.egress))),
        Column("SELECTOR", lambda _, policy: policy.spec.selector, wide=True),
    ),
    tail=full_name,
    carry=carry_metadata,
    meaning=_meaning,
)
