"""Networks, subnets, groups and ports through Neutron's API to etcd, and status back."""

from __future__ import annotations

from tests.openstack.neutron.felix import ENDPOINTS, POLICIES, SUBNETS, Cloud


def test_a_reporting_felix_is_an_agent_that_is_alive(cloud: Cloud) -> None:
    agent = cloud.agent(cloud.host)

    assert agent["agent_type"] == "Calico per-host agent (felix)"
    assert agent["binary"] == "calico-felix"


def test_a_port_is_bound_as_a_tap_and_stored_as_an_endpoint(cloud: Cloud) -> None:
    port = cloud.port()

    shown = cloud.show(port)
    assert shown["binding:vif_type"] == "tap"
    assert shown["binding:vif_details"]["mac_address"] == "fe" + shown["mac_address"][2:]
    spec = cloud.stored(port)["spec"]
    assert spec["interfaceName"] == f"tap{port['id'][:11]}"
    assert spec["ipNetworks"] == [f"{port['fixed_ips'][0]['ip_address']}/32"]
    assert spec["ipv4Gateway"] == f"10.{cloud.number}.0.1"


def test_options_of_networking_calico_limit_a_port(cloud: Cloud) -> None:
    port = cloud.port()

    assert cloud.stored(port)["spec"]["qosControls"] == {"ingressMaxConnections": 4711}


def test_a_port_that_felix_reports_up_is_active(cloud: Cloud) -> None:
    port = cloud.port()
    assert cloud.show(port)["status"] == "DOWN"

    cloud.up(port)

    cloud.eventually(lambda: cloud.show(port)["status"] == "ACTIVE", "the port is ACTIVE")
    cloud.eventually(lambda: "network-vif-plugged" in cloud.fleet.nova.names(port["id"]), "Nova is told")


def test_an_up_that_came_before_the_binding_counts_once_the_binding_is_there(cloud: Cloud) -> None:
    port = cloud.fleet.post(
        "ports", {"network_id": cloud.network["id"], "device_id": "d" * 8, "device_owner": "compute:nova"}
    )
    cloud.up(port)

    cloud.fleet.put(f"ports/{port['id']}", {"binding:host_id": cloud.host})

    cloud.eventually(lambda: cloud.show(port)["status"] == "ACTIVE", "the port is ACTIVE")


def test_an_endpoint_stays_while_neutron_binds_its_port_again(cloud: Cloud) -> None:
    port = cloud.port()
    cloud.stored(port)
    key, before = cloud.endpoint_key(port), cloud.fleet.revision()

    for number in range(5):
        cloud.fleet.put(f"ports/{port['id']}", {"binding:profile": {"number": number}})
    # The state between the two transactions of the last one, for as long as the syncer needs to see it.
    binding = f"ml2_port_bindings SET vif_type = '{{}}' WHERE port_id = '{port['id']}'"
    cloud.fleet.sql(f"UPDATE {binding.format('unbound')}")
    cloud.handled(port)
    cloud.fleet.sql(f"UPDATE {binding.format('tap')}")
    cloud.handled(port)

    assert cloud.fleet.gone_at(key, before) is None


def test_a_port_that_is_bound_to_another_host_moves_in_one_transaction(cloud: Cloud) -> None:
    other = f"{cloud.host}-other"
    cloud.boot(other)
    port = cloud.port()
    cloud.stored(port)
    before = cloud.fleet.revision()

    cloud.fleet.put(f"ports/{port['id']}", {"binding:host_id": other})
    cloud.stored(port, other)
    cloud.eventually(lambda: cloud.endpoint(port) is None, "the endpoint has left its old host")

    moved_at = cloud.fleet.revisions(ENDPOINTS)[cloud.endpoint_key(port, other)]
    assert cloud.fleet.gone_at(cloud.endpoint_key(port), before) == moved_at


def test_a_deleted_port_leaves_etcd(cloud: Cloud) -> None:
    port, other = cloud.port(), cloud.port()
    cloud.stored(port)
    cloud.stored(other)

    cloud.fleet.delete(f"ports/{port['id']}")

    cloud.eventually(lambda: cloud.endpoint(port) is None, "the endpoint is gone")
    assert cloud.endpoint(other) is not None


def test_a_changed_address_pair_changes_the_endpoint(cloud: Cloud) -> None:
    port = cloud.port()
    cloud.stored(port)
    allowed = f"10.{cloud.number}.0.200"

    cloud.fleet.put(f"ports/{port['id']}", {"allowed_address_pairs": [{"ip_address": allowed}]})

    cloud.eventually(lambda: cloud.stored(port)["spec"].get("allowedIps") == [f"{allowed}/32"], "the pair is stored")


def test_a_subnet_is_stored_for_the_dhcp_agent_and_goes_with_it(cloud: Cloud) -> None:
    key = SUBNETS + cloud.subnet["id"]
    cloud.eventually(lambda: key in cloud.fleet.store(SUBNETS), "the subnet is stored")
    assert cloud.fleet.store(key)[key]["dns_servers"] == ["192.0.2.53"]

    cloud.fleet.delete(f"subnets/{cloud.subnet['id']}")

    cloud.eventually(lambda: key not in cloud.fleet.store(SUBNETS), "the subnet is gone")


def test_rules_of_a_group_become_its_policy_and_its_name_the_labels_of_its_ports(cloud: Cloud) -> None:
    group = cloud.fleet.post("security-groups", {"name": "web"})
    port = cloud.port(security_groups=[group["id"]])
    key = f"{POLICIES}ossg.default.{group['id']}"
    cloud.eventually(lambda: key in cloud.fleet.store(key), "the policy is stored")

    rule = {"security_group_id": group["id"], "direction": "ingress", "protocol": "tcp", "ethertype": "IPv4"}
    made = cloud.fleet.post("security-group-rules", {**rule, "port_range_min": 80, "port_range_max": 80})
    cloud.eventually(lambda: len(cloud.fleet.store(key)[key]["spec"].get("ingress", ())) == 1, "the rule is stored")
    cloud.fleet.put(f"security-groups/{group['id']}", {"name": "renamed"})
    label = f"sg.projectcalico.org/openstack-{group['id']}"
    cloud.eventually(lambda: cloud.stored(port)["metadata"]["labels"][label] == "renamed", "the label is stored")

    cloud.fleet.delete(f"security-group-rules/{made['id']}")
    cloud.eventually(lambda: not cloud.fleet.store(key)[key]["spec"].get("ingress"), "the rule is gone")


def test_a_port_on_a_host_without_felix_is_not_bound(cloud: Cloud) -> None:
    port = cloud.port("nowhere")

    assert cloud.show(port)["binding:vif_type"] == "binding_failed"
