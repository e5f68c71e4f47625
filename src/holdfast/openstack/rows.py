"""Rows of Neutron's tables, as the reader selects them and the translator takes them. No neutron import, no IO.

Columns keep Neutron's names and text: nothing is parsed or corrected here, so that a strange row reaches the
translator, which names it. Rows that exist only as part of another row (addresses, bindings, rules, routes) are inside
it; rows that many ports share (networks, subnets, groups, QoS policies, projects) are in `NeutronRows`, by id.

Lists are in the order of the primary key, as InnoDB returns them and as networking-calico therefore wrote them. Order
never decides whether a stored object is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

ACTIVE = "ACTIVE"
"""Status of the one binding that counts; a binding prepared for a live migration is INACTIVE."""


class FixedIpRow(msgspec.Struct, frozen=True, gc=False):
    """One row of `ipallocations`."""

    ip_address: str
    subnet_id: str


class BindingRow(msgspec.Struct, frozen=True, gc=False):
    """One row of `ml2_port_bindings`. `profile` is JSON text, empty for none."""

    host: str
    vif_type: str
    status: str = ACTIVE
    profile: str = ""
    vnic_type: str = "normal"


class AddressPairRow(msgspec.Struct, frozen=True, gc=False):
    """One row of `allowedaddresspairs`; the address may be a prefix."""

    ip_address: str
    mac_address: str = ""


class DhcpOptionRow(msgspec.Struct, frozen=True, gc=False):
    """One row of `extradhcpopts`."""

    opt_name: str
    opt_value: str
    ip_version: int = 4


class FloatingIpRow(msgspec.Struct, frozen=True, gc=False):
    """One row of `floatingips` that is associated with a port."""

    id: str
    floating_ip_address: str
    fixed_ip_address: str | None
    revision: int = 0


class PortDnsRow(msgspec.Struct, frozen=True, gc=False):
    """One row of `portdnses`."""

    dns_name: str
    current_dns_domain: str = ""


class PortRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One row of `ports`, with everything that belongs to this port only."""

    id: str
    network_id: str
    device_id: str
    device_owner: str
    mac_address: str
    project_id: str | None = None
    name: str | None = None
    status: str = ""
    admin_state_up: bool = True
    revision: int = 0
    created_at: datetime | None = None
    """From `standardattributes`: naive, in UTC."""
    port_security_enabled: bool | None = None
    """`portsecuritybindings`; None where the extension is not loaded, which means enabled."""
    qos_policy_id: str | None = None
    """`qos_port_policy_bindings`; the policy of the network is in its own row."""
    dns: PortDnsRow | None = None
    bindings: tuple[BindingRow, ...] = ()
    """All bindings, also inactive ones; at most one is ACTIVE."""
    fixed_ips: tuple[FixedIpRow, ...] = ()
    floating_ips: tuple[FloatingIpRow, ...] = ()
    address_pairs: tuple[AddressPairRow, ...] = ()
    dhcp_options: tuple[DhcpOptionRow, ...] = ()
    security_groups: tuple[str, ...] = ()
    """Ids, from `securitygroupportbindings`."""


class NetworkRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One row of `networks`, with its QoS policy."""

    id: str
    name: str | None = None
    project_id: str | None = None
    revision: int = 0
    qos_policy_id: str | None = None


class HostRouteRow(msgspec.Struct, frozen=True, gc=False):
    """One row of `subnetroutes`."""

    destination: str
    nexthop: str


class SubnetRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One row of `subnets`, with its routes and its name servers in their `order`."""

    id: str
    network_id: str
    cidr: str
    name: str | None = None
    project_id: str | None = None
    revision: int = 0
    ip_version: int = 4
    gateway_ip: str | None = None
    enable_dhcp: bool | None = True
    ipv6_ra_mode: str | None = None
    ipv6_address_mode: str | None = None
    host_routes: tuple[HostRouteRow, ...] = ()
    dns_nameservers: tuple[str, ...] = ()


class SecurityRuleRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One row of `securitygrouprules`. At most one of the three remote columns is set."""

    id: str
    direction: str
    ethertype: str | None
    protocol: str | None = None
    """A name or a number as text; NULL is any."""
    port_range_min: int | None = None
    """For ICMP: the type."""
    port_range_max: int | None = None
    """For ICMP: the code."""
    remote_group_id: str | None = None
    remote_ip_prefix: str | None = None
    remote_address_group_id: str | None = None


class SecurityGroupRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One row of `securitygroups`, with its rules."""

    id: str
    name: str | None = None
    project_id: str | None = None
    revision: int = 0
    created_at: datetime | None = None
    stateful: bool = True
    rules: tuple[SecurityRuleRow, ...] = ()


class AddressGroupRow(msgspec.Struct, frozen=True, gc=False):
    """One row of `address_groups`, with its addresses (prefixes)."""

    id: str
    addresses: tuple[str, ...] = ()
    revision: int = 0


class BandwidthRuleRow(msgspec.Struct, frozen=True, gc=False):
    """One row of `qos_bandwidth_limit_rules`; NULL and 0 are no limit."""

    max_kbps: int | None
    max_burst_kbps: int | None = None
    direction: str = "egress"


class PacketRateRuleRow(msgspec.Struct, frozen=True, gc=False):
    """One row of `qos_packet_rate_limit_rules`; NULL and 0 are no limit."""

    max_kpps: int | None
    max_burst_kpps: int | None = None
    direction: str = "egress"


class QosPolicyRow(msgspec.Struct, frozen=True, gc=False):
    """One row of `qos_policies`, with the rules that Felix can enforce."""

    id: str
    bandwidth: tuple[BandwidthRuleRow, ...] = ()
    packet_rate: tuple[PacketRateRuleRow, ...] = ()
    revision: int = 0


class ProjectRow(msgspec.Struct, frozen=True, gc=False):
    """A project as Keystone names it; Neutron's database has ids only."""

    id: str
    name: str
    parent_id: str | None = None


class NeutronRows(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The rows that ports and groups refer to, by id. A missing row is a missing row: the translator says so."""

    networks: Mapping[str, NetworkRow] = {}
    subnets: Mapping[str, SubnetRow] = {}
    groups: Mapping[str, SecurityGroupRow] = {}
    address_groups: Mapping[str, AddressGroupRow] = {}
    qos: Mapping[str, QosPolicyRow] = {}
    projects: Mapping[str, ProjectRow] = {}
