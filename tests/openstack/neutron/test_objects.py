"""Everything that Felix and the DHCP agent read, made through Neutron's API, against what networking-calico writes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.openstack.neutron.felix import POLICIES, SUBNETS, Cloud


class Group:
    """A security group without rules, and the policy that etcd has for it."""

    def __init__(self, cloud: Cloud, name: str = "group") -> None:
        self._cloud = cloud
        self.id = cloud.fleet.post("security-groups", {"name": name})["id"]
        for rule in cloud.fleet.get(f"security-group-rules?security_group_id={self.id}"):
            cloud.fleet.delete(f"security-group-rules/{rule['id']}")

    def allow(self, direction: str, ethertype: str, **more: Any) -> None:
        rule = {"security_group_id": self.id, "direction": direction, "ethertype": ethertype, **more}
        self._cloud.fleet.post("security-group-rules", rule)

    def spec(self) -> Any:
        key = f"{POLICIES}ossg.default.{self.id}"
        return self._cloud.fleet.store(key).get(key, {}).get("spec", {})

    def stored(self, direction: str, count: int) -> list[dict[str, Any]]:
        """Wait for so many rules; returns them in the order of their text."""
        self._cloud.eventually(lambda: len(self.spec().get(direction, ())) == count, f"{count} {direction} rules")
        return sorted(self.spec()[direction], key=str)


def _sorted(*rules: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(({"action": "Allow", **rule} for rule in rules), key=str)


def _ports(*ports: Any) -> dict[str, Any]:
    return {"destination": {"ports": list(ports)}}


def test_rules_of_every_kind_are_written_as_networking_calico_writes_them(cloud: Cloud) -> None:
    group, remote = Group(cloud), Group(cloud, "remote")
    v4, v6 = ("ingress", "IPv4"), ("ingress", "IPv6")
    group.allow(*v4)
    group.allow(*v4, protocol="tcp", port_range_min=22, port_range_max=80)
    group.allow(*v4, protocol="udp", port_range_min=53, port_range_max=53, remote_ip_prefix="192.0.2.0/24")
    group.allow(*v4, protocol="sctp", port_range_min=5000, port_range_max=5001)
    group.allow(*v4, protocol="icmp", port_range_min=8, port_range_max=0)
    group.allow(*v4, protocol="icmp", port_range_min=3)
    group.allow(*v4, protocol="esp")
    group.allow(*v4, protocol="89")
    group.allow(*v4, remote_group_id=remote.id)
    group.allow(*v6, remote_group_id=group.id)
    group.allow(*v6, protocol="ipv6-icmp", port_range_min=128)
    group.allow(*v6, protocol="tcp", port_range_min=443, port_range_max=443, remote_ip_prefix="2001:db8::/32")
    group.allow(
        "egress", "IPv4", protocol="tcp", remote_ip_prefix="198.51.100.0/24", port_range_min=1, port_range_max=9
    )
    group.allow("egress", "IPv6")

    has = "has(sg.projectcalico.org/openstack-{})"
    assert group.stored("ingress", 12) == _sorted(
        {"ipVersion": 4},
        {"ipVersion": 4, "protocol": 6, **_ports("22:80")},
        {"ipVersion": 4, "protocol": 17, "source": {"nets": ["192.0.2.0/24"]}, **_ports(53)},
        {"ipVersion": 4, "protocol": 132, **_ports("5000:5001")},
        {"ipVersion": 4, "protocol": "ICMP", "icmp": {"type": 8, "code": 0}},
        {"ipVersion": 4, "protocol": "ICMP", "icmp": {"type": 3}},
        {"ipVersion": 4, "protocol": 50},
        {"ipVersion": 4, "protocol": 89},
        {"ipVersion": 4, "source": {"selector": has.format(remote.id)}},
        {"ipVersion": 6, "source": {"selector": has.format(group.id)}},
        {"ipVersion": 6, "protocol": "ICMPv6", "icmp": {"type": 128}},
        {"ipVersion": 6, "protocol": 6, "source": {"nets": ["2001:db8::/32"]}, **_ports(443)},
    )
    assert group.stored("egress", 2) == _sorted(
        {"ipVersion": 4, "protocol": 6, "destination": {"nets": ["198.51.100.0/24"], "ports": ["1:9"]}},
        {"ipVersion": 6},
    )
    assert group.spec()["selector"] == has.format(group.id)


def test_a_rule_with_an_address_group_allows_the_addresses_that_are_in_it(cloud: Cloud) -> None:
    group = Group(cloud)
    addresses = cloud.fleet.post("address-groups", {"name": "offices", "addresses": ["192.0.2.0/25"]})
    group.allow("ingress", "IPv4", remote_address_group_id=addresses["id"])
    path = f"address-groups/{addresses['id']}"

    def allowed() -> list[str]:
        return [network for rule in group.spec().get("ingress", ()) for network in rule["source"]["nets"]]

    cloud.eventually(lambda: allowed() == ["192.0.2.0/25"], "the rule is stored")
    cloud.fleet.put(f"{path}/add_addresses", {"addresses": ["203.0.113.0/24"]})
    cloud.eventually(lambda: allowed() == ["192.0.2.0/25", "203.0.113.0/24"], "the added address is allowed")
    cloud.fleet.put(f"{path}/remove_addresses", {"addresses": ["192.0.2.0/25"]})
    cloud.eventually(lambda: allowed() == ["203.0.113.0/24"], "the removed address is no longer allowed")


def test_a_deleted_security_group_leaves_etcd(cloud: Cloud) -> None:
    group = Group(cloud)
    cloud.eventually(lambda: bool(group.spec()), "the policy is stored")

    cloud.fleet.delete(f"security-groups/{group.id}")

    cloud.eventually(lambda: not group.spec(), "the policy is gone")


def test_a_deleted_group_takes_the_rules_of_other_groups_for_its_members_with_it(cloud: Cloud) -> None:
    group, remote = Group(cloud), Group(cloud, "remote")
    group.allow("ingress", "IPv4", remote_group_id=remote.id)
    group.allow("ingress", "IPv4", protocol="esp")
    group.stored("ingress", 2)

    cloud.fleet.delete(f"security-groups/{remote.id}")

    assert group.stored("ingress", 1) == _sorted({"ipVersion": 4, "protocol": 50})


@pytest.fixture
def two_families(cloud: Cloud) -> Any:
    """The cloud's network with a subnet of IPv6 as well."""
    body = {"network_id": cloud.network["id"], "ip_version": 6, "cidr": f"fd00:{cloud.number:x}::/64"}
    modes = {"ipv6_ra_mode": "dhcpv6-stateful", "ipv6_address_mode": "dhcpv6-stateful"}
    return cloud.fleet.post("subnets", {**body, **modes, "host_routes": [], "gateway_ip": f"fd00:{cloud.number:x}::1"})


def test_a_port_on_subnets_of_both_families_has_addresses_and_gateways_of_both(cloud: Cloud, two_families: Any) -> None:
    key = SUBNETS + two_families["id"]
    port = cloud.port()

    spec = cloud.stored(port)["spec"]
    addresses = [each["ip_address"] for each in port["fixed_ips"]]
    assert len(addresses) == 2
    assert sorted(spec["ipNetworks"]) == sorted(f"{one}/{128 if ':' in one else 32}" for one in addresses)
    assert (spec["ipv4Gateway"], spec["ipv6Gateway"]) == (f"10.{cloud.number}.0.1", f"fd00:{cloud.number:x}::1")
    cloud.eventually(lambda: key in cloud.fleet.store(key), "the subnet is stored")
    stored = cloud.fleet.store(key)[key]
    assert stored["cidr"] == f"fd00:{cloud.number:x}::/64"
    assert (stored["ipv6_ra_mode"], stored["ipv6_address_mode"]) == ("dhcpv6-stateful", "dhcpv6-stateful")


def test_address_pairs_of_both_families_are_allowed_and_a_prefix_is_left_out(cloud: Cloud, two_families: Any) -> None:
    pairs = (f"10.{cloud.number}.0.99", f"fd00:{cloud.number:x}::99", "10.0.0.0/8")
    port = cloud.port(allowed_address_pairs=[{"ip_address": each} for each in pairs])

    spec = cloud.stored(port)["spec"]
    assert sorted(spec["allowedIps"]) == [f"{pairs[0]}/32", f"{pairs[1]}/128"]
    cloud.fleet.put(f"ports/{port['id']}", {"allowed_address_pairs": []})
    cloud.eventually(lambda: not cloud.stored(port)["spec"].get("allowedIps"), "the pairs are gone")


@pytest.mark.parametrize("name", [{}, {"dns_name": "vm1"}], ids=["unnamed", "named"])
def test_the_name_that_neutron_assigns_to_a_port_is_an_annotation(
    cloud: Cloud, two_families: Any, name: dict[str, str]
) -> None:
    port = cloud.port(**name)

    annotations = cloud.stored(port)["metadata"]["annotations"]
    assert annotations["openstack.projectcalico.org/fqdn"] == cloud.show(port)["dns_assignment"][0]["fqdn"]


def test_a_port_without_port_security_has_no_group(cloud: Cloud) -> None:
    port = cloud.port(port_security_enabled=False, security_groups=[])

    labels = cloud.stored(port)["metadata"]["labels"]
    assert not [name for name in labels if name.startswith("sg.projectcalico.org/")]


def test_renamed_networks_and_subnets_and_their_routes_reach_etcd(cloud: Cloud) -> None:
    port, key = cloud.port(), SUBNETS + cloud.subnet["id"]
    cloud.stored(port)

    cloud.fleet.put(f"networks/{cloud.network['id']}", {"name": "renamed net"})
    route = {"destination": "192.0.2.0/24", "nexthop": f"10.{cloud.number}.0.9"}
    cloud.fleet.put(f"subnets/{cloud.subnet['id']}", {"host_routes": [route]})

    label = "projectcalico.org/openstack-network-name"
    cloud.eventually(lambda: cloud.stored(port)["metadata"]["labels"][label] == "renamed_net", "the label is stored")
    cloud.eventually(lambda: cloud.fleet.store(key)[key]["host_routes"] == [route], "the route is stored")


def test_a_floating_ip_is_mapped_to_the_address_that_it_is_associated_with(cloud: Cloud) -> None:
    fleet, outside = cloud.fleet, cloud.outside()
    router = fleet.post("routers", {"name": "r", "external_gateway_info": {"network_id": outside["id"]}})
    fleet.put(f"routers/{router['id']}/add_router_interface", {"subnet_id": cloud.subnet["id"]})
    first, second = cloud.port(), cloud.port()

    def nats(port: Any) -> list[tuple[str, str]]:
        found = cloud.stored(port)["spec"].get("ipNATs", ())
        return [(each["internalIP"], each["externalIP"]) for each in found]

    def mapped(port: Any) -> list[tuple[str, str]]:
        return [(port["fixed_ips"][0]["ip_address"], floating["floating_ip_address"])]

    floating = fleet.post("floatingips", {"floating_network_id": outside["id"], "port_id": first["id"]})
    cloud.eventually(lambda: nats(first) == mapped(first), "the address is mapped")
    fleet.put(f"floatingips/{floating['id']}", {"port_id": second["id"]})
    cloud.eventually(lambda: nats(second) == mapped(second), "the address is mapped to the second port")
    cloud.eventually(lambda: nats(first) == [], "the address left the first port")
    fleet.delete(f"floatingips/{floating['id']}")
    cloud.eventually(lambda: nats(second) == [], "the address is gone")


def test_qos_rules_of_ports_and_networks_limit_endpoints(cloud: Cloud) -> None:
    fleet = cloud.fleet
    policy, whole = (fleet.post("qos/policies", {"name": name}) for name in ("port", "network"))
    rules = f"qos/policies/{policy['id']}"
    egress = {"direction": "egress", "max_kbps": 1000, "max_burst_kbps": 2000}
    limit = fleet.post(f"{rules}/bandwidth_limit_rules", egress)
    fleet.post(f"{rules}/packet_rate_limit_rules", {"direction": "ingress", "max_kpps": 2})
    ingress = {"direction": "ingress", "max_kbps": 3000}
    fleet.post(f"qos/policies/{whole['id']}/bandwidth_limit_rules", ingress)
    limited, other = cloud.port(qos_policy_id=policy["id"]), cloud.port()

    def controls(port: Any) -> dict[str, int]:
        found: dict[str, int] = dict(cloud.stored(port)["spec"].get("qosControls", {}))
        found.pop("ingressMaxConnections", None)
        return found

    expected = {"egressBandwidth": 1_000_000, "egressBurst": 4_294_967_296, "egressPeakrate": 2_000_000}
    packets = {"ingressPacketRate": 2_000, "ingressPacketBurst": 5}
    cloud.eventually(lambda: controls(limited) == {**expected, **packets}, "the port is limited")
    assert controls(other) == {}

    fleet.put(f"networks/{cloud.network['id']}", {"qos_policy_id": whole["id"]})
    network = {"ingressBandwidth": 3_000_000, "ingressBurst": 4_294_967_296}
    cloud.eventually(lambda: controls(other) == network, "ports of the network are limited")
    assert controls(limited) == {**expected, **packets}

    fleet.put(f"{rules}/bandwidth_limit_rules/{limit['id']}", {"max_kbps": 500, "max_burst_kbps": 0})
    slower = {"egressBandwidth": 500_000, "egressBurst": 4_294_967_296}
    cloud.eventually(lambda: controls(limited) == {**slower, **packets}, "a changed rule reaches its ports")
    fleet.delete(f"{rules}/bandwidth_limit_rules/{limit['id']}")
    cloud.eventually(lambda: controls(limited) == packets, "a deleted rule leaves its ports")
    fleet.put(f"ports/{limited['id']}", {"qos_policy_id": None})
    cloud.eventually(lambda: controls(limited) == network, "the network's policy counts again")
