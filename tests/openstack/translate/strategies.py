"""Any rows that the types allow, however strange, as hypothesis strategies."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from hypothesis import strategies as st

from holdfast.openstack.rows import (
    AddressGroupRow,
    AddressPairRow,
    BandwidthRuleRow,
    BindingRow,
    DhcpOptionRow,
    FixedIpRow,
    FloatingIpRow,
    HostRouteRow,
    NetworkRow,
    NeutronRows,
    PacketRateRuleRow,
    PortDnsRow,
    PortRow,
    ProjectRow,
    QosPolicyRow,
    SecurityGroupRow,
    SecurityRuleRow,
    SubnetRow,
)

texts = st.text(max_size=12)
"""Control characters, slashes and percent signs included."""
ids = st.sampled_from(("a", "b", "a-b", "-", "", "a--b", "a/b", "é", "x) || all(")) | texts
addresses = (
    st.ip_addresses().map(str)
    | st.builds("{}/{}".format, st.ip_addresses(), st.integers(-1, 130))
    | st.sampled_from(("0.0.0.0/0", "::ffff:10.0.0.1", "fe80::1%eth0", ""))
    | texts
)
numbers = st.none() | st.integers(-2, 300) | st.integers()
ways = st.sampled_from(("ingress", "egress", "both", ""))
profiles = (
    st.sampled_from(("", "{}", '{"migrating_to": "b"}', '{"migrating_to": "a/b"}', '{"migrating_to": ["x"]}'))
    | st.builds('{{"migrating_to": "{}"}}'.format, texts)
    | texts
)
owners = st.sampled_from(("compute:nova", "kuryr:container", "network:dhcp", "")) | texts
protocols = (
    st.none()
    | st.sampled_from(("tcp", "icmp", "ipv6-icmp", "any", "0", "1", "58", "256", "udplite", "TCP"))
    | st.integers(-1, 300).map(str)
    | texts
)


def several(items: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(items, max_size=most).map(tuple)


def maybe(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | items


ports = st.builds(
    PortRow,
    id=ids,
    network_id=ids,
    device_id=ids,
    device_owner=owners,
    mac_address=st.sampled_from(("fa:16:3e:00:00:01", "FA-16-3E-00-00-01")) | texts,
    project_id=maybe(ids),
    created_at=maybe(st.datetimes(datetime(1, 1, 1), datetime(9999, 1, 1))),  # noqa: DTZ001
    port_security_enabled=maybe(st.booleans()),
    qos_policy_id=maybe(ids),
    dns=maybe(st.builds(PortDnsRow, texts, texts)),
    bindings=several(st.builds(BindingRow, ids, st.sampled_from(("tap", "unbound")), st.just("ACTIVE"), profiles)),
    fixed_ips=several(st.builds(FixedIpRow, addresses, ids)),
    floating_ips=several(st.builds(FloatingIpRow, ids, addresses, maybe(addresses))),
    address_pairs=several(st.builds(AddressPairRow, addresses, texts)),
    dhcp_options=several(st.builds(DhcpOptionRow, texts, texts)),
    security_groups=several(ids),
)
rules = st.builds(
    SecurityRuleRow,
    id=ids,
    direction=ways,
    ethertype=maybe(st.sampled_from(("IPv4", "IPv6", "ARP"))),
    protocol=protocols,
    port_range_min=numbers,
    port_range_max=numbers,
    remote_group_id=maybe(ids),
    remote_ip_prefix=maybe(addresses),
    remote_address_group_id=maybe(ids),
)
groups = st.builds(SecurityGroupRow, id=ids, name=maybe(texts), rules=several(rules, 5))
subnets = st.builds(
    SubnetRow,
    id=ids,
    network_id=ids,
    cidr=addresses,
    gateway_ip=maybe(addresses),
    enable_dhcp=maybe(st.booleans()),
    ipv6_ra_mode=maybe(texts),
    ipv6_address_mode=maybe(texts),
    host_routes=several(st.builds(HostRouteRow, addresses, addresses)),
    dns_nameservers=several(addresses),
)
policies = st.builds(
    QosPolicyRow,
    ids,
    several(st.builds(BandwidthRuleRow, numbers, numbers, ways)),
    several(st.builds(PacketRateRuleRow, numbers, numbers, ways)),
)


def _by_id(items: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.lists(items, max_size=4).map(lambda rows: {row.id: row for row in rows})


neutron = st.builds(
    NeutronRows,
    networks=_by_id(st.builds(NetworkRow, id=ids, name=maybe(texts), qos_policy_id=maybe(ids))),
    subnets=_by_id(subnets),
    groups=_by_id(groups),
    address_groups=_by_id(st.builds(AddressGroupRow, ids, several(addresses))),
    qos=_by_id(policies),
    projects=_by_id(st.builds(ProjectRow, ids, texts, maybe(texts))),
)
