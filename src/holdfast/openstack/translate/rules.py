"""Rules of a security group to rules of a policy.

Every rule allows; Felix drops what none allows. A rule is therefore left out, rather than widened, when a part of it
has no form in Calico. Felix drops the *whole* policy when one rule has ports with a protocol other than TCP, UDP and
SCTP, a port range that is no range, or an ICMP type of 255, and ignores a network that it cannot parse, which allows
everybody: none of these may be written. networking-calico writes all of them.
"""

from __future__ import annotations

from holdfast.model.base.address import AddressRefused, family, prefix, shown
from holdfast.model.calico.policy import IcmpMatch, Party, PolicyRule, Port, Protocol
from holdfast.openstack.rows import NeutronRows, SecurityRuleRow
from holdfast.openstack.translate.labels import GROUP
from holdfast.openstack.translate.outcome import MissingRow

_VERSIONS = {"IPv4": 4, "IPv6": 6}
_ANY = frozenset({"any", "ip", "-1", "0"})
"""Neutron's API documents 0 as any protocol. networking-calico writes it as a number, which iptables takes for any and
nftables does not."""
_ICMP, _ICMPV6 = 1, 58
_WITH_PORTS = frozenset({6, 17, 132})
_OCTET, _PORT = 255, 65_535
_NUMBERS = {
    "ah": 51,
    "dccp": 33,
    "egp": 8,
    "esp": 50,
    "gre": 47,
    "hopopt": 0,
    "icmp": _ICMP,
    "icmpv6": _ICMPV6,
    "igmp": 2,
    "ipip": 4,
    "ipv6-encap": 41,
    "ipv6-frag": 44,
    "ipv6-icmp": _ICMPV6,
    "ipv6-nonxt": 59,
    "ipv6-opts": 60,
    "ipv6-route": 43,
    "ospf": 89,
    "pgm": 113,
    "rsvp": 46,
    "sctp": 132,
    "tcp": 6,
    "udp": 17,
    "udplite": 136,
    "vrrp": 112,
}
"""Protocol names that Neutron accepts, by IANA's numbers."""


class RuleRefused(ValueError):
    """The rule has no form in Calico. The message is one sentence."""


def policy_rule(rule: SecurityRuleRow, rows: NeutronRows) -> PolicyRule | None:
    """The rule in Calico's form; None for one that matches nothing. Raises ValueError or MissingRow."""
    version = _VERSIONS.get(rule.ethertype or "")
    if version is None:
        raise RuleRefused(f"ethertype {shown(str(rule.ethertype))} is neither IPv4 nor IPv6")
    if rule.direction not in {"ingress", "egress"}:
        raise RuleRefused(f"direction {shown(rule.direction)} is neither ingress nor egress")
    nets = _networks(rule, version, rows)
    if nets == ():
        return None
    number = _number(rule.protocol, version)
    is_icmp = number in {_ICMP, _ICMPV6}
    ports = () if is_icmp else _ports(rule, number)
    remote = f"has({GROUP}{rule.remote_group_id})" if rule.remote_group_id is not None else ""
    source, destination = _parties(rule.direction, nets or (), remote, ports)
    return PolicyRule(
        "Allow",
        ip_version=4 if version == 4 else 6,
        protocol=_written(number),
        icmp=_icmp(rule) if is_icmp else None,
        source=source,
        destination=destination,
    )


def _parties(
    direction: str, nets: tuple[str, ...], selector: str, ports: tuple[Port, ...]
) -> tuple[Party | None, Party | None]:
    """Source and destination. Ports are those of the destination, whichever side that is."""
    if direction == "ingress":
        return _party(nets, selector, ()), _party((), "", ports)
    return None, _party(nets, selector, ports)


def _party(nets: tuple[str, ...], selector: str, ports: tuple[Port, ...]) -> Party | None:
    return Party(nets=nets, selector=selector, ports=ports) if nets or selector or ports else None


def _number(protocol: str | None, version: int) -> int | None:
    """The protocol's number; None for any. ICMP of an IPv6 rule is ICMPv6, as Neutron itself corrects it."""
    word = "any" if protocol is None else protocol.lower()
    if word in _ANY:
        return None
    number = _NUMBERS.get(word)
    if number is None and word.isascii() and word.isdigit() and len(word) <= len("255"):
        number = int(word)
    if number is None or number > _OCTET:
        raise RuleRefused(f"protocol {shown(word)} is unknown")
    return _ICMPV6 if number == _ICMP and version == 6 else number


def _written(number: int | None) -> Protocol | None:
    """ICMP by name, as Felix requires it beside types and codes, and all others by number, as networking-calico."""
    return {_ICMP: "ICMP", _ICMPV6: "ICMPv6"}.get(number, number) if number is not None else None


def _icmp(rule: SecurityRuleRow) -> IcmpMatch | None:
    """ICMP type and code, which Neutron keeps in the columns of a port range; -1 is any."""
    kind, code = (None if value in {None, -1} else value for value in (rule.port_range_min, rule.port_range_max))
    if kind is None and code is None:
        return None
    if kind is None:
        raise RuleRefused("it has an ICMP code without a type")
    if not 0 <= kind < _OCTET or not 0 <= (code or 0) <= _OCTET:
        raise RuleRefused(f"ICMP type {kind} or code {code} is out of range")
    return IcmpMatch(kind, code)


def _ports(rule: SecurityRuleRow, number: int | None) -> tuple[Port, ...]:
    low, high = rule.port_range_min, rule.port_range_max
    if low == -1 or (low is None and high is None):
        return ()
    if low is None or high is None or not 0 <= low <= high <= _PORT:
        raise RuleRefused(f"ports {low} to {high} are no range")
    if number not in _WITH_PORTS:
        raise RuleRefused("Felix matches ports of TCP, UDP and SCTP only")
    return (low,) if low == high else (f"{low}:{high}",)


def _networks(rule: SecurityRuleRow, version: int, rows: NeutronRows) -> tuple[str, ...] | None:
    """The remote networks: None for any, empty for an address group without an address of this family.

    networking-calico does not know address groups and allows everybody instead.
    """
    if rule.remote_ip_prefix is not None:
        network = prefix(rule.remote_ip_prefix, strict=False)
        if family(network) != version:
            raise AddressRefused(f"{network} is not {rule.ethertype}")
        return (network,)
    if rule.remote_address_group_id is None:
        return None
    group = rows.address_groups.get(rule.remote_address_group_id)
    if group is None:
        raise MissingRow(f"address group {rule.remote_address_group_id} was not read")
    networks = {prefix(text, strict=False) for text in group.addresses}
    return tuple(sorted(network for network in networks if family(network) == version))
