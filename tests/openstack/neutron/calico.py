"""The objects of an etcd that networking-calico filled, for what Neutron's API shows.

Written as networking-calico has them, not as we would: lists that are empty, project names from Keystone, uids of its
own, and JSON with spaces.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from holdfast.testing.real.neutron import NeutronFleet
from tests.openstack.neutron.felix import ENDPOINTS, MIGRATIONS, POLICIES, SUBNETS

RESOURCES = "/calico/resources/v3/projectcalico.org/"
_GROUP = "sg.projectcalico.org/openstack-"
_NUMBERS = {"tcp": 6, "udp": 17}
LIMIT = {"direction": "egress", "max_kbps": 1000, "max_burst_kbps": 2000}
"""The only QoS rule of the Neutron that is described here."""
QOS = {"egressBandwidth": 1_000_000, "egressBurst": 4_294_967_296, "egressPeakrate": 2_000_000}


def fill(fleet: NeutronFleet) -> None:
    """Write everything that networking-calico writes for the objects of this Neutron."""
    for key, value in _objects(fleet):
        fleet.put_key(key, value)


def _objects(fleet: NeutronFleet) -> Iterator[tuple[str, Any]]:
    cluster = {"clusterGUID": uuid.uuid4().hex, "clusterType": "openstack", "datastoreReady": True}
    yield f"{RESOURCES}clusterinformations/default", _resource("ClusterInformation", "default", cluster)
    felix = {"endpointReportingEnabled": True, "interfacePrefix": "tap"}
    yield f"{RESOURCES}felixconfigurations/default", _resource("FelixConfiguration", "default", felix)
    subnets = {each["id"]: each for each in fleet.get("subnets")}
    for subnet in subnets.values():
        yield SUBNETS + subnet["id"], _dhcp(subnet)
    groups = {each["id"]: each for each in fleet.get("security-groups")}
    for group in groups.values():
        name = f"ossg.default.{group['id']}"
        yield POLICIES + name, _resource("NetworkPolicy", name, _policy(group), namespace="openstack")
    networks = {each["id"]: each for each in fleet.get("networks")}
    floating = {each["port_id"]: each for each in fleet.get("floatingips")}
    for port in fleet.get("ports"):
        if port["device_owner"].startswith("compute:"):
            yield from _port(port, subnets, groups, networks[port["network_id"]], floating.get(port["id"]))


def _port(port: Any, subnets: Any, groups: Any, network: Any, floating: Any) -> Iterator[tuple[str, Any]]:
    """The endpoint of a port and, while it migrates, the migration and the endpoint at its target."""
    key, found = endpoint(port, subnets, groups, network)
    if floating:
        nat = {"internalIP": floating["fixed_ip_address"], "externalIP": floating["floating_ip_address"]}
        found["spec"]["ipNATs"] = [nat]
    if port["qos_policy_id"]:
        found["spec"]["qosControls"] |= QOS
    yield key, found
    if target := port["binding:profile"].get("migrating_to"):
        at_target = {**port, "binding:host_id": target}
        key, arriving = endpoint(at_target, subnets, groups, network)
        name = arriving["metadata"]["name"]
        yield MIGRATIONS + name, _resource("LiveMigration", name, _migration(port, at_target), namespace="openstack")
        yield key, arriving


def _migration(*places: Any) -> dict[str, Any]:
    """The two places of a migrating port."""
    found = {}
    for name, port in zip(("source", "target"), places, strict=True):
        ids = {"workloadID": f"openstack/{port['device_id']}", "endpointID": port["id"], "orchestratorID": "openstack"}
        found[name] = {"workloadEndpoint": {"hostname": port["binding:host_id"], **ids}}
    return found


def _resource(kind: str, name: str, spec: Any, **metadata: Any) -> dict[str, Any]:
    made = {"uid": str(uuid.uuid4()), "creationTimestamp": "2024-02-03T04:05:06Z"}
    meta = {"name": name, **made, **metadata}
    return {"apiVersion": "projectcalico.org/v3", "kind": kind, "metadata": meta, "spec": spec}


def _dhcp(subnet: Any) -> dict[str, Any]:
    found = {name: subnet[name] for name in ("network_id", "cidr", "host_routes", "gateway_ip")}
    if subnet["dns_nameservers"]:
        found["dns_servers"] = subnet["dns_nameservers"]
    if subnet["ipv6_ra_mode"]:
        found |= {name: subnet[name] for name in ("ipv6_ra_mode", "ipv6_address_mode")}
    return found


def _policy(group: Any) -> dict[str, Any]:
    rules: dict[str, list[Any]] = {"ingress": [], "egress": []}
    for rule in group["security_group_rules"]:
        rules[rule["direction"]].append(_rule(rule))
    return {**rules, "selector": f"has({_GROUP}{group['id']})"}


def _rule(rule: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"action": "Allow", "ipVersion": int(rule["ethertype"][-1])}
    low, high, ingress = rule["port_range_min"], rule["port_range_max"], rule["direction"] == "ingress"
    peer: dict[str, Any] = {}
    if rule["remote_group_id"]:
        peer["selector"] = f"has({_GROUP}{rule['remote_group_id']})"
    if rule["remote_ip_prefix"]:
        peer["nets"] = [rule["remote_ip_prefix"]]
    if rule["protocol"] == "icmp":
        found |= {"protocol": "ICMP", "icmp": {"type": low, "code": high}}
    elif rule["protocol"]:
        ports = [low] if low == high else [f"{low}:{high}"]
        found["protocol"] = _NUMBERS[rule["protocol"]]
        (found.setdefault("destination", {}) if ingress else peer)["ports"] = ports
    if peer:
        found["source" if ingress else "destination"] = peer
    return found


def endpoint(port: Any, subnets: Any, groups: Any, network: Any) -> tuple[str, Any]:
    """The key and value of a port's endpoint."""
    parts = (port["binding:host_id"], "openstack", port["device_id"], port["id"])
    name = "-".join(part.replace("-", "--") for part in parts)
    labels = {
        "projectcalico.org/namespace": "openstack",
        "projectcalico.org/orchestrator": "openstack",
        "projectcalico.org/openstack-project-id": port["project_id"],
        "projectcalico.org/openstack-project-name": "demo",
        "projectcalico.org/openstack-project-parent-id": "default",
        "projectcalico.org/openstack-network-name": network["name"],
    }
    for group in port["security_groups"]:
        labels[_GROUP + group] = groups[group]["name"]
        labels[f"sg-name.projectcalico.org/openstack-{groups[group]['name']}"] = group
    about = "openstack.projectcalico.org/"
    annotations = {f"{about}network-id": port["network_id"], f"{about}fqdn": port["dns_assignment"][0]["fqdn"]}
    metadata = {"namespace": "openstack", "labels": labels, "annotations": annotations}
    return ENDPOINTS + name, _resource("WorkloadEndpoint", name, _spec(port, subnets), **metadata)


def _spec(port: Any, subnets: Any) -> dict[str, Any]:
    pairs = [_prefix(each["ip_address"]) for each in port["allowed_address_pairs"]]
    found = {
        "orchestrator": "openstack",
        "workload": port["device_id"],
        "node": port["binding:host_id"],
        "endpoint": port["id"],
        "interfaceName": f"tap{port['id'][:11]}",
        "mac": port["mac_address"],
        "ipNetworks": [*(_prefix(each["ip_address"]) for each in port["fixed_ips"]), *pairs],
        "allowedIps": pairs,
        "qosControls": {"ingressMaxConnections": 4711},
    }
    for each in port["fixed_ips"]:
        family = 6 if ":" in each["ip_address"] else 4
        found[f"ipv{family}Gateway"] = subnets[each["subnet_id"]]["gateway_ip"]
    return found


def _prefix(address: str) -> str:
    return f"{address}/{128 if ':' in address else 32}"
