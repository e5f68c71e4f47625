"""Records what a real networking-calico writes for objects of every kind, and the rows of Neutron that it read.

    TEST_NETWORKING_CALICO=/tmp/calico/networking-calico:/tmp/etcd3gw TEST_OPENSTACK_VENV=$PWD/build/openstack/venv \
        .venv/bin/python -m tests.openstack.neutron.record tests/openstack/recorded/networking-calico.json

`tests/openstack/test_recorded.py` adopts the recording without a Neutron. Objects whose name begins with `differs` are
those that Holdfast rewrites, as docs/openstack.md says.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from sqlalchemy import Table

from holdfast.openstack import tables
from holdfast.openstack.neutron_conf import options_of
from holdfast.testing.real.etcd import etcd_cluster
from holdfast.testing.real.neutron import NeutronFleet, neutron
from tests.openstack.neutron import networking_calico
from tests.openstack.neutron.felix import Cloud

_LEFT_OUT = ("agents",)
"""Tables of which the translation reads nothing."""
_V4: dict[str, Any] = {"direction": "ingress", "ethertype": "IPv4"}
_V6: dict[str, Any] = {"direction": "ingress", "ethertype": "IPv6"}
_RULES: tuple[dict[str, Any], ...] = (
    _V4,
    {**_V4, "protocol": "tcp", "port_range_min": 22, "port_range_max": 80},
    {**_V4, "protocol": "udp", "port_range_min": 53, "port_range_max": 53, "remote_ip_prefix": "192.0.2.0/24"},
    {**_V4, "protocol": "sctp", "port_range_min": 5000, "port_range_max": 5001},
    {**_V4, "protocol": "icmp"},
    {**_V4, "protocol": "icmp", "port_range_min": 8, "port_range_max": 0},
    {**_V4, "protocol": "icmp", "port_range_min": 3},
    *({**_V4, "protocol": each} for each in ("esp", "gre", "vrrp", "89", "tcp")),
    {**_V6, "protocol": "ipv6-icmp", "port_range_min": 128},
    {**_V6, "protocol": "icmpv6"},
    {**_V6, "protocol": "tcp", "port_range_min": 443, "port_range_max": 443, "remote_ip_prefix": "2001:db8::/32"},
    {**_V4, "direction": "egress", "protocol": "tcp", "remote_ip_prefix": "198.51.100.0/24"},
    {**_V4, "direction": "egress", "protocol": "udp", "port_range_min": 1, "port_range_max": 9},
)
_DIFFERENT_RULES: tuple[dict[str, Any], ...] = (
    {**_V4, "protocol": "1", "port_range_min": 8},
    {**_V4, "protocol": "udplite", "port_range_min": 1, "port_range_max": 2},
    {**_V4, "protocol": "0"},
)


class RecordedCloud(Cloud):
    """A Neutron with objects of every kind, and no server."""

    def __init__(self, fleet: NeutronFleet) -> None:
        super().__init__(fleet, 1, agent=False)
        self._target = f"{self.host}-target"
        for host in (self.host, self._target):
            self.register_agent(host)
        fleet.keystone.projects["p"] = {"name": "demo project", "parent_id": "default"}
        self._add_subnets()
        self._web, self._db = self._group("web"), self._group("data base (2nd)")
        self._add_rules()
        self._add_ports()
        self._add_floating_ip()
        self._add_limits()

    def _group(self, name: str) -> str:
        return str(self.fleet.post("security-groups", {"name": name})["id"])

    def _allow(self, group: str, **rule: Any) -> None:
        self.fleet.post("security-group-rules", {"security_group_id": group, **rule})

    def _add_subnets(self) -> None:
        v6 = {"cidr": "fd00::/64", "ip_version": 6, "network_id": self.network["id"]}
        modes = {"ipv6_ra_mode": "dhcpv6-stateful", "ipv6_address_mode": "dhcpv6-stateful"}
        self.fleet.post("subnets", {**v6, **modes})
        route = {"destination": "192.0.2.0/24", "nexthop": "10.1.0.9"}
        self.fleet.put(f"subnets/{self.subnet['id']}", {"host_routes": [route]})
        self.plain = self.fleet.post("networks", {"name": "network of another project"})
        for more in ({"cidr": "10.2.0.0/24", "gateway_ip": None}, {"cidr": "10.3.0.0/24", "enable_dhcp": False}):
            self.fleet.post("subnets", {"ip_version": 4, "network_id": self.plain["id"], **more})

    def _add_rules(self) -> None:
        for rule in _RULES:
            self._allow(self._web, **rule)
        for remote in (self._web, self._db):
            self._allow(self._db, **_V4, remote_group_id=remote)
            self._allow(self._db, **_V6, remote_group_id=remote, protocol="tcp")
        for number, rule in enumerate(_DIFFERENT_RULES):
            self._allow(self._group(f"differs {number}"), **rule)
        addresses = self.fleet.post("address-groups", {"name": "offices", "addresses": ["192.0.2.0/25"]})
        self._allow(self._group("differs in its remote"), **_V4, remote_address_group_id=addresses["id"])

    def _add_ports(self) -> None:
        fleet, pair = self.fleet, {"ip_address": "10.1.0.99"}
        self.port(security_groups=[self._web], name="one group")
        self.port(security_groups=[self._web, self._db], name="two groups")
        self.port(allowed_address_pairs=[pair, {"ip_address": "fd00::99"}], name="pairs")
        self.port(port_security_enabled=False, security_groups=[], name="no port security")
        self.port(dns_name="vm1", name="named")
        self.port(admin_state_up=False, name="down")
        self.port(network_id=self.plain["id"], project_id="q", name="another project")
        self.port(device_owner="kuryr:container", name="a container")
        self.port(device_owner="network:dhcp", name="no workload")
        self.port(allowed_address_pairs=[{"ip_address": "10.1.0.128/25"}], name="differs in its pair")
        body = {"network_id": self.network["id"], "device_id": "unbound", "device_owner": "compute:nova"}
        fleet.post("ports", {**body, "name": "differs: unbound"})
        migrating = self.port(name="migrating", security_groups=[self._web])
        fleet.post(f"ports/{migrating['id']}/bindings", {"host": self._target})
        fleet.put(f"ports/{migrating['id']}", {"binding:profile": {"migrating_to": self._target}})

    def _add_floating_ip(self) -> None:
        port, outside = self.port(name="floating"), self.outside()
        router = self.fleet.post("routers", {"name": "r", "external_gateway_info": {"network_id": outside["id"]}})
        self.fleet.put(f"routers/{router['id']}/add_router_interface", {"subnet_id": self.subnet["id"]})
        address = next(each["ip_address"] for each in port["fixed_ips"] if ":" not in each["ip_address"])
        body = {"floating_network_id": outside["id"], "port_id": port["id"], "fixed_ip_address": address}
        self.fleet.post("floatingips", body)

    def _add_limits(self) -> None:
        egress = {"direction": "egress", "max_kbps": 1000, "max_burst_kbps": 2000}
        policies = {}
        for name, kind, rule in (
            ("bandwidth", "bandwidth_limit_rules", egress),
            ("packets", "packet_rate_limit_rules", {"direction": "ingress", "max_kpps": 20}),
            ("network", "bandwidth_limit_rules", {"direction": "ingress", "max_kbps": 3000}),
        ):
            policies[name] = self.fleet.post("qos/policies", {"name": name})["id"]
            self.fleet.post(f"qos/policies/{policies[name]}/{kind}", rule)
        self.port(qos_policy_id=policies["bandwidth"], name="bandwidth")
        self.port(qos_policy_id=policies["packets"], name="packets")
        self.fleet.put(f"networks/{self.plain['id']}", {"qos_policy_id": policies["network"]})


def _rows(fleet: NeutronFleet, table: Table) -> list[dict[str, Any]]:
    """The columns that are read. Times are left out: each object has its own in etcd."""
    names = [column.name for column in table.columns if not column.name.endswith("_at")]
    found = fleet.sql(f"SELECT {', '.join(f'`{name}`' for name in names)} FROM {table.name}")
    return sorted((dict(zip(names, row, strict=True)) for row in found), key=str)


def _recording(fleet: NeutronFleet) -> dict[str, Any]:
    wanted = [each for each in vars(tables).values() if isinstance(each, Table)]
    options = options_of([str(fleet.home / "neutron.conf")])
    neutrons = [each for each in wanted if not each.name.startswith("holdfast_") and each.name not in _LEFT_OUT]
    return {
        "neutron": {each.name: _rows(fleet, each) for each in neutrons},
        "keystone": fleet.keystone.projects,
        "options": {
            "DEFAULT": {"dns_domain": options["DEFAULT"]["dns_domain"]},
            "ml2": {"extension_drivers": options["ml2"]["extension_drivers"]},
            "calico": {"max_ingress_connections_per_port": options["calico"]["max_ingress_connections_per_port"]},
        },
        "etcd": fleet.store("/calico/"),
    }


def main() -> None:
    with etcd_cluster(1) as cluster, neutron(lambda: cluster) as fleet:
        fleet.workers.kill_tree()  # nothing of Holdfast may be in what is recorded
        for prefix in ("/calico/", "/holdfast/"):
            for key in fleet.store(prefix):
                fleet.delete_key(key)
        RecordedCloud(fleet)
        networking_calico.fill(fleet)
        Path(sys.argv[1]).write_text(json.dumps(_recording(fleet), indent=1) + "\n")


if __name__ == "__main__":
    main()
