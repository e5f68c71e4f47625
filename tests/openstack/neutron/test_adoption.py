"""Moving from networking-calico: its etcd is left alone until it is adopted, and then only what is wrong is written.

What networking-calico wrote is here as recorded, or is written by a real one: see `networking_calico`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.testing.fault import fault
from holdfast.testing.real.etcd import EtcdCluster
from holdfast.testing.real.neutron import NeutronFleet
from tests.openstack.neutron import calico, networking_calico
from tests.openstack.neutron.felix import ENDPOINTS, MIGRATIONS, Cloud

_EVERYTHING = "/calico/"
_WITHOUT_OBJECTS = ("/calico/openstack/", "/calico/compaction/")
"""The leader's key, and where the store was compacted."""
_REASON = "--reason=we move from networking-calico"


class CalicoCloud(Cloud):
    """A Neutron that networking-calico served, with objects of every kind, and its etcd."""

    def __init__(self, fleet: NeutronFleet, fill: Callable[[NeutronFleet], None]) -> None:
        super().__init__(fleet, 1, agent=False)
        self.target = f"{self.host}-target"
        for host in (self.host, self.target):
            self.register_agent(host)
        v6 = {"cidr": "fd00::/64", "ip_version": 6, "network_id": self.network["id"]}
        modes = {"ipv6_ra_mode": "dhcpv6-stateful", "ipv6_address_mode": "dhcpv6-stateful"}
        fleet.post("subnets", {**v6, **modes})
        group = fleet.post("security-groups", {"name": "web"})["id"]
        for rule in (
            {"protocol": "tcp", "port_range_min": 80, "port_range_max": 88},
            {"protocol": "udp", "port_range_min": 53, "port_range_max": 53, "remote_ip_prefix": "192.0.2.0/24"},
            {"protocol": "icmp", "port_range_min": 8, "port_range_max": 0},
            {"remote_group_id": group},
        ):
            fleet.post("security-group-rules", {"security_group_id": group, "direction": "ingress", **rule})
        self.right = [self.port(security_groups=[group]) for _ in range(3)]
        self.right.append(self.port(allowed_address_pairs=[{"ip_address": "10.1.0.99"}]))
        self.right.append(self.port(port_security_enabled=False, security_groups=[], dns_name="vm1"))
        self.right.append(self._limited())
        self.right.append(self._floating())
        self.right.append(self._migrating())
        self.wrong = self.port()
        self.leaked = {**self.wrong, "id": "11111111-2222-3333-4444-555555555555"}
        fleet.keystone.projects["p"] = {"name": "demo", "parent_id": "default"}
        fill(fleet)
        stored = self.endpoint(self.wrong)
        self._put(self.wrong, {**stored, "spec": {**stored["spec"], "ipv4Gateway": "192.0.2.1"}})
        self._put(self.leaked, {**stored, "spec": {**stored["spec"], "endpoint": self.leaked["id"]}})

    def _limited(self) -> Any:
        policy = self.fleet.post("qos/policies", {"name": "slow"})
        self.fleet.post(f"qos/policies/{policy['id']}/bandwidth_limit_rules", calico.LIMIT)
        return self.port(qos_policy_id=policy["id"])

    def _floating(self) -> Any:
        port, outside = self.port(), self.outside()
        router = self.fleet.post("routers", {"name": "r", "external_gateway_info": {"network_id": outside["id"]}})
        self.fleet.put(f"routers/{router['id']}/add_router_interface", {"subnet_id": self.subnet["id"]})
        address = port["fixed_ips"][0]["ip_address"]
        body = {"floating_network_id": outside["id"], "port_id": port["id"], "fixed_ip_address": address}
        self.fleet.post("floatingips", body)
        return port

    def _migrating(self) -> Any:
        port = self.port()
        self.fleet.post(f"ports/{port['id']}/bindings", {"host": self.target})
        self.fleet.put(f"ports/{port['id']}", {"binding:profile": {"migrating_to": self.target}})
        return port

    def _put(self, port: Any, value: Any) -> None:
        key = self.endpoint_key(port)
        self.fleet.put_key(key, {**value, "metadata": {**value["metadata"], "name": key.rpartition("/")[2]}})

    def revisions(self) -> dict[str, int]:
        """The revisions at which the objects in Calico's part of etcd were written last."""
        found = self.fleet.revisions(_EVERYTHING)
        return {key: revision for key, revision in found.items() if not key.startswith(_WITHOUT_OBJECTS)}


@pytest.fixture
def calico_cloud(fleet: NeutronFleet, other_etcd: EtcdCluster) -> Iterator[CalicoCloud]:
    with fleet.empty(other_etcd):
        yield CalicoCloud(fleet, networking_calico.fill if networking_calico.PATH in os.environ else calico.fill)
        fleet.keystone.projects.clear()


@fault(
    "C41",
    without="holdfast.server.identity.judge:IdentityJudge._is_empty",
    by="tests.server.syncer.without_protection:always_empty",
    sees=(AssertionError, "nothing was written"),
)
def test_C41_an_etcd_of_networking_calico_is_left_alone_until_adopted_and_only_repaired_then(
    calico_cloud: CalicoCloud,
) -> None:
    cloud, fleet = calico_cloud, calico_cloud.fleet
    before = cloud.revisions()
    fleet.workers.start()

    noticed = "holdfast store adopt"
    cloud.eventually(
        lambda: noticed in fleet.operator("status")[1] or cloud.revisions() != before, "the store is judged"
    )
    code, shown = fleet.check()
    assert cloud.revisions() == before, "nothing was written"
    assert (code, "1 to replace, 1 to delete" in shown, "unwitnessed: 1" in shown) == (1, True, True), shown

    code, shown = fleet.operator("store", "adopt", "--yes", _REASON)
    assert code == 0, shown
    gateway = cloud.stored(cloud.right[0])["spec"]["ipv4Gateway"]
    cloud.eventually(lambda: cloud.stored(cloud.wrong)["spec"]["ipv4Gateway"] == gateway, "the drift is repaired")
    cloud.eventually(lambda: "unwitnessed: 1" in fleet.check()[1], "the leaked endpoint is held")
    after = cloud.revisions()
    rewritten = {key for key, revision in before.items() if after.get(key) != revision}
    assert rewritten == {cloud.endpoint_key(cloud.wrong)}
    for port in cloud.right:
        assert cloud.endpoint(port) is not None
    migrating = cloud.endpoint_key(cloud.right[-1], cloud.target)
    assert {migrating, migrating.replace(ENDPOINTS, MIGRATIONS)} <= before.keys()

    code, shown = fleet.operator("gate", "allow", "syncer/witness", "--once", "--yes", "--reason=it was leaked")
    assert code == 0, shown
    cloud.in_sync()
    assert cloud.endpoint(cloud.leaked) is None
    assert cloud.endpoint(cloud.wrong)["metadata"]["labels"]["projectcalico.org/openstack-project-name"] == "demo"
