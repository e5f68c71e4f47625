"""Reads Neutron's tables in bulk: a few column selects per kind, whatever the number of rows.

Neutron's own plugin takes 31 ms per port; this takes 60 µs. It leans on Neutron's schema, and only this file does:
`holdfast openstack check` and the tests run it against the real migrations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Column, Connection, Select, Table, select

from holdfast.inventory.sql.objects import batches
from holdfast.openstack import tables as t
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
    QosPolicyRow,
    SecurityGroupRow,
    SecurityRuleRow,
    SubnetRow,
)

Ids = Collection[str] | None
"""Ids of rows; None is all of them."""

S = TypeVar("S", bound=msgspec.Struct)


def binding_ports(connection: Connection, ids: Ids = None) -> list[PortRow]:
    """Read what decides the keys of ports, and nothing else."""
    bindings = _by(connection, t.BINDINGS, "port_id", ids, _binding)
    columns = t.PORTS.c
    wanted = columns.id, columns.network_id, columns.device_id, columns.device_owner, columns.mac_address
    query = select(*wanted, columns.status, t.STANDARD.c.revision_number).join(
        t.STANDARD, columns.standard_attr_id == t.STANDARD.c.id
    )
    return [
        PortRow(
            id=row[0],
            network_id=row[1],
            device_id=row[2],
            device_owner=row[3],
            mac_address=row[4],
            status=row[5],
            revision=row[6],
            bindings=bindings[row[0]],
        )
        for row in _rows(connection, query, columns.id, ids)
    ]


def ports(connection: Connection, ids: Ids = None) -> list[PortRow]:
    """Read ports with everything that belongs to them."""
    bindings = _by(connection, t.BINDINGS, "port_id", ids, _binding)
    fixed = _by(connection, t.FIXED_IPS, "port_id", ids, lambda row: FixedIpRow(row.ip_address, row.subnet_id))
    floating = _floating_ips(connection, ids)
    pairs = _by(
        connection, t.ADDRESS_PAIRS, "port_id", ids, lambda row: AddressPairRow(row.ip_address, row.mac_address)
    )
    options = _by(
        connection,
        t.DHCP_OPTIONS,
        "port_id",
        ids,
        lambda row: DhcpOptionRow(row.opt_name, row.opt_value, row.ip_version),
    )
    groups = _by(connection, t.PORT_GROUPS, "port_id", ids, lambda row: str(row.security_group_id))
    return [
        PortRow(
            id=row.id,
            network_id=row.network_id,
            device_id=row.device_id,
            device_owner=row.device_owner,
            mac_address=row.mac_address,
            project_id=row.project_id,
            name=row.name,
            status=row.status,
            admin_state_up=bool(row.admin_state_up),
            revision=row.revision_number,
            created_at=row.created_at,
            port_security_enabled=None if row.port_security_enabled is None else bool(row.port_security_enabled),
            qos_policy_id=row.policy_id,
            dns=None if row.dns_name is None else PortDnsRow(row.dns_name, row.current_dns_domain or ""),
            bindings=bindings[row.id],
            fixed_ips=fixed[row.id],
            floating_ips=floating[row.id],
            address_pairs=pairs[row.id],
            dhcp_options=options[row.id],
            security_groups=groups[row.id],
        )
        for row in _rows(connection, _PORTS, t.PORTS.c.id, ids)
    ]


_PORTS = (
    select(
        t.PORTS,
        t.STANDARD.c.revision_number,
        t.STANDARD.c.created_at,
        t.PORT_SECURITY.c.port_security_enabled,
        t.PORT_QOS.c.policy_id,
        t.PORT_DNS.c.dns_name,
        t.PORT_DNS.c.current_dns_domain,
    )
    .join(t.STANDARD, t.PORTS.c.standard_attr_id == t.STANDARD.c.id)
    .outerjoin(t.PORT_SECURITY, t.PORT_SECURITY.c.port_id == t.PORTS.c.id)
    .outerjoin(t.PORT_QOS, t.PORT_QOS.c.port_id == t.PORTS.c.id)
    .outerjoin(t.PORT_DNS, t.PORT_DNS.c.port_id == t.PORTS.c.id)
)


def rows_of_ports(connection: Connection, found: Iterable[PortRow]) -> NeutronRows:
    """Read the rows that these ports refer to. Groups come without their rules: ports need only their names."""
    found = list(found)
    all_networks = networks(connection, {port.network_id for port in found})
    policies = {port.qos_policy_id for port in found} | {each.qos_policy_id for each in all_networks}
    return NeutronRows(
        networks={each.id: each for each in all_networks},
        subnets={
            each.id: each for each in subnets(connection, {ip.subnet_id for port in found for ip in port.fixed_ips})
        },
        groups={
            each.id: each
            for each in groups(connection, {one for port in found for one in port.security_groups}, rules=False)
        },
        qos={each.id: each for each in qos_policies(connection, policies - {None})},  # type: ignore[arg-type]
    )


def rows_of_groups(connection: Connection, found: Iterable[SecurityGroupRow]) -> NeutronRows:
    """Read the rows that the rules of these groups refer to."""
    remote = {rule.remote_address_group_id for group in found for rule in group.rules} - {None}
    return NeutronRows(
        groups={group.id: group for group in found},
        address_groups={each.id: each for each in address_groups(connection, remote)},  # type: ignore[arg-type]
    )


def networks(connection: Connection, ids: Ids = None) -> list[NetworkRow]:
    query = _with_revision(t.NETWORKS, t.NETWORK_QOS.c.policy_id).outerjoin(
        t.NETWORK_QOS, t.NETWORK_QOS.c.network_id == t.NETWORKS.c.id
    )
    return [
        NetworkRow(
            id=row.id,
            name=row.name,
            project_id=row.project_id,
            revision=row.revision_number,
            qos_policy_id=row.policy_id,
        )
        for row in _rows(connection, query, t.NETWORKS.c.id, ids)
    ]


def subnets(connection: Connection, ids: Ids = None) -> list[SubnetRow]:
    routes = _by(connection, t.HOST_ROUTES, "subnet_id", ids, lambda row: HostRouteRow(row.destination, row.nexthop))
    servers = _by(connection, t.NAME_SERVERS, "subnet_id", ids, lambda row: (row.order or 0, str(row.address)))
    query = _with_revision(t.SUBNETS)
    return [
        SubnetRow(
            id=row.id,
            network_id=row.network_id,
            cidr=row.cidr,
            name=row.name,
            project_id=row.project_id,
            revision=row.revision_number,
            ip_version=row.ip_version,
            gateway_ip=row.gateway_ip,
            enable_dhcp=None if row.enable_dhcp is None else bool(row.enable_dhcp),
            ipv6_ra_mode=row.ipv6_ra_mode,
            ipv6_address_mode=row.ipv6_address_mode,
            host_routes=routes[row.id],
            dns_nameservers=tuple(address for _, address in sorted(servers[row.id])),
        )
        for row in _rows(connection, query, t.SUBNETS.c.id, ids)
    ]


def groups(connection: Connection, ids: Ids = None, *, rules: bool = True) -> list[SecurityGroupRow]:
    found = _by(connection, t.RULES, "security_group_id", ids, _rule) if rules else defaultdict(tuple)
    query = _with_revision(t.GROUPS, t.STANDARD.c.created_at)
    return [
        SecurityGroupRow(
            id=row.id,
            name=row.name,
            project_id=row.project_id,
            revision=row.revision_number,
            created_at=row.created_at,
            stateful=row.stateful is None or bool(row.stateful),
            rules=found[row.id],
        )
        for row in _rows(connection, query, t.GROUPS.c.id, ids)
    ]


def address_groups(connection: Connection, ids: Ids = None) -> list[AddressGroupRow]:
    addresses = _by(connection, t.GROUP_ADDRESSES, "address_group_id", ids, lambda row: str(row.address))
    query = _with_revision(t.ADDRESS_GROUPS)
    return [
        AddressGroupRow(row.id, addresses[row.id], row.revision_number)
        for row in _rows(connection, query, t.ADDRESS_GROUPS.c.id, ids)
    ]


def qos_policies(connection: Connection, ids: Ids = None) -> list[QosPolicyRow]:
    bandwidth = _by(
        connection,
        t.BANDWIDTH_RULES,
        "qos_policy_id",
        ids,
        lambda row: BandwidthRuleRow(row.max_kbps, row.max_burst_kbps, row.direction),
    )
    packets = _by(
        connection,
        t.PACKET_RATE_RULES,
        "qos_policy_id",
        ids,
        lambda row: PacketRateRuleRow(row.max_kpps, row.max_burst_kpps, row.direction),
    )
    query = _with_revision(t.QOS_POLICIES)
    return [
        QosPolicyRow(row.id, bandwidth[row.id], packets[row.id], row.revision_number)
        for row in _rows(connection, query, t.QOS_POLICIES.c.id, ids)
    ]


def address_owners(connection: Connection, addresses: Ids) -> dict[str, str]:
    """Read the ports that have these addresses."""
    columns = t.FIXED_IPS.c
    query = select(columns.ip_address, columns.port_id).where(columns.port_id.is_not(None))
    return {row[0]: row[1] for row in _rows(connection, query, columns.ip_address, addresses)}


def ids_where(connection: Connection, member: Column[Any], owner: Column[Any], one: str) -> set[str]:
    """Read the ids in the column `member` of rows that have `one` in the column `owner`."""
    return set(connection.execute(select(member).where(owner == one)).scalars())


def _binding(row: Any) -> BindingRow:
    return BindingRow(row.host, row.vif_type, row.status, row.profile or "", row.vnic_type)


def _floating_ips(connection: Connection, ids: Ids) -> defaultdict[str, tuple[FloatingIpRow, ...]]:
    query = _with_revision(t.FLOATING_IPS)
    query = query.where(t.FLOATING_IPS.c.fixed_port_id.is_not(None))
    found: defaultdict[str, tuple[FloatingIpRow, ...]] = defaultdict(tuple)
    for row in _rows(connection, query, t.FLOATING_IPS.c.fixed_port_id, ids):
        one = FloatingIpRow(row.id, row.floating_ip_address, row.fixed_ip_address, row.revision_number)
        found[row.fixed_port_id] += (one,)
    return found


def _rule(row: Any) -> SecurityRuleRow:
    return SecurityRuleRow(
        id=row.id,
        direction=row.direction,
        ethertype=row.ethertype,
        protocol=row.protocol,
        port_range_min=row.port_range_min,
        port_range_max=row.port_range_max,
        remote_group_id=row.remote_group_id,
        remote_ip_prefix=row.remote_ip_prefix,
        remote_address_group_id=row.remote_address_group_id,
    )


T = TypeVar("T")


def _by(
    connection: Connection, table: Table, owner: str, ids: Ids, make: Callable[[Any], T]
) -> defaultdict[str, tuple[T, ...]]:
    """Read the rows of a table by the id in its column `owner`."""
    found: defaultdict[str, list[T]] = defaultdict(list)
    for row in _rows(connection, select(table), table.c[owner], ids):
        found[getattr(row, owner)].append(make(row))
    return defaultdict(tuple, {key: tuple(rows) for key, rows in found.items()})


def _with_revision(table: Table, *more: Column[Any]) -> Select[Any]:
    """Select the columns of a table, the revision of each row, and further columns."""
    query = select(table, t.STANDARD.c.revision_number, *more)
    return query.join(t.STANDARD, table.c.standard_attr_id == t.STANDARD.c.id)


def _rows(connection: Connection, query: Select[Any], key: Any, ids: Ids) -> Iterator[Any]:
    if ids is None:
        yield from connection.execute(query)
        return
    ordered: Sequence[str] = sorted(ids)
    for batch in batches(ordered):
        yield from connection.execute(query.where(key.in_(batch)))
