"""Holdfast's tables in Neutron's database, and the columns of Neutron's own tables that the reader selects.

`outbox` names what changed, in the transaction of the change. `mirror` has a row per key in the store with a foreign
key to its port, group or subnet: the database sets it to NULL when that row is deleted, by whomever, and so witnesses
the delete. All other tables are those of every inventory. The alembic branch in `migrations/` makes them.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, DateTime, Integer, MetaData, String, Table

from holdfast.inventory.sql.schema import KEY_COLUMN, control_tables

METADATA = MetaData()
CONTROL = control_tables(METADATA, "holdfast_")

OUTBOX = Table(
    "holdfast_outbox",
    METADATA,
    Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True),
    Column("kind", String(32), nullable=False),
    Column("resource", String(64), nullable=False),
)

MIRROR = Table(
    "holdfast_mirror",
    METADATA,
    Column("key", KEY_COLUMN, primary_key=True),
    Column("resource", String(64), nullable=False, index=True),
    Column("revision", BigInteger, nullable=False),
    Column("gone_at", DateTime(timezone=True)),
    Column("port_id", String(36)),
    Column("group_id", String(36)),
    Column("subnet_id", String(36)),
)
"""`resource` is the id that the row was made for; it stays when the foreign key is gone. `revision` is that of the
inventory when the key was last recorded. `gone_at` is when a leader first saw the foreign key gone."""

SETTLED = Table(
    "holdfast_identity", MetaData(), Column("only", Integer, primary_key=True), Column("settled", BigInteger)
)
"""Further column of the identity: the highest id of a settled row, so that revisions never go back."""


def _table(name: str, *columns: str) -> Table:
    return Table(name, MetaData(), *(Column(each) for each in columns))


STANDARD = _table("standardattributes", "id", "resource_type", "revision_number", "created_at")
PORTS = _table(
    "ports",
    "id",
    "network_id",
    "device_id",
    "device_owner",
    "mac_address",
    "project_id",
    "name",
    "status",
    "admin_state_up",
    "standard_attr_id",
)
BINDINGS = _table("ml2_port_bindings", "port_id", "host", "vif_type", "status", "profile", "vnic_type")
FIXED_IPS = _table("ipallocations", "port_id", "ip_address", "subnet_id")
FLOATING_IPS = _table(
    "floatingips",
    "id",
    "floating_ip_address",
    "fixed_ip_address",
    "fixed_port_id",
    "floating_port_id",
    "standard_attr_id",
)
ADDRESS_PAIRS = _table("allowedaddresspairs", "port_id", "ip_address", "mac_address")
DHCP_OPTIONS = _table("extradhcpopts", "port_id", "opt_name", "opt_value", "ip_version", "id")
PORT_GROUPS = _table("securitygroupportbindings", "port_id", "security_group_id")
PORT_SECURITY = _table("portsecuritybindings", "port_id", "port_security_enabled")
PORT_QOS = _table("qos_port_policy_bindings", "port_id", "policy_id")
PORT_DNS = _table("portdnses", "port_id", "dns_name", "current_dns_domain")
NETWORKS = _table("networks", "id", "name", "project_id", "standard_attr_id")
NETWORK_QOS = _table("qos_network_policy_bindings", "network_id", "policy_id")
SUBNETS = _table(
    "subnets",
    "id",
    "network_id",
    "cidr",
    "name",
    "project_id",
    "ip_version",
    "gateway_ip",
    "enable_dhcp",
    "ipv6_ra_mode",
    "ipv6_address_mode",
    "standard_attr_id",
)
HOST_ROUTES = _table("subnetroutes", "subnet_id", "destination", "nexthop")
NAME_SERVERS = _table("dnsnameservers", "subnet_id", "address", "order")
GROUPS = _table("securitygroups", "id", "name", "project_id", "stateful", "standard_attr_id")
RULES = _table(
    "securitygrouprules",
    "security_group_id",
    "id",
    "direction",
    "ethertype",
    "protocol",
    "port_range_min",
    "port_range_max",
    "remote_group_id",
    "remote_ip_prefix",
    "remote_address_group_id",
)
ADDRESS_GROUPS = _table("address_groups", "id", "standard_attr_id")
GROUP_ADDRESSES = _table("address_associations", "address_group_id", "address")
QOS_POLICIES = _table("qos_policies", "id", "standard_attr_id")
BANDWIDTH_RULES = _table("qos_bandwidth_limit_rules", "qos_policy_id", "max_kbps", "max_burst_kbps", "direction")
PACKET_RATE_RULES = _table("qos_packet_rate_limit_rules", "qos_policy_id", "max_kpps", "max_burst_kpps", "direction")
AGENTS = _table("agents", "id", "agent_type", "host", "heartbeat_timestamp")
