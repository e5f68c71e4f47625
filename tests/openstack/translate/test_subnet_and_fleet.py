"""DHCP subnets, cluster information and Felix configuration, as networking-calico writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.model.base.bad import BadReason
from holdfast.model.base.region import Region
from holdfast.model.calico.cluster import CLUSTER, FELIX_CONFIGURATION
from holdfast.model.calico.subnet import SUBNET
from holdfast.openstack.rows import HostRouteRow, SubnetRow
from holdfast.openstack.translate.fleet import fleet_objects
from holdfast.openstack.translate.settings import TranslationSettings
from holdfast.openstack.translate.subnet import translate_subnet
from tests.openstack.translate.build import NETWORK, SETTINGS, SUBNET4

KEY = f"/calico/dhcp/v2/no-region/subnet/{SUBNET4}".encode()
BARE: dict[str, Any] = {"network_id": NETWORK, "cidr": "10.28.0.0/24", "host_routes": [], "gateway_ip": None}


def subnet(**columns: Any) -> SubnetRow:
    given = {"id": SUBNET4, "network_id": NETWORK, "cidr": "10.28.0.0/24", **columns}
    return SubnetRow(**given)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({}, {}),
        ({"gateway_ip": "10.28.0.1"}, {"gateway_ip": "10.28.0.1"}),
        ({"dns_nameservers": ("192.0.2.2", "192.0.2.1")}, {"dns_servers": ["192.0.2.2", "192.0.2.1"]}),
        (
            {"host_routes": (HostRouteRow("10.9.0.0/16", "10.28.0.9"), HostRouteRow("10.8.0.0/16", "10.28.0.8"))},
            {
                "host_routes": [
                    {"destination": "10.9.0.0/16", "nexthop": "10.28.0.9"},
                    {"destination": "10.8.0.0/16", "nexthop": "10.28.0.8"},
                ]
            },
        ),
        (
            {"cidr": "fd5f::/64", "ip_version": 6, "ipv6_ra_mode": "slaac", "ipv6_address_mode": "slaac"},
            {"cidr": "fd5f::/64", "ipv6_ra_mode": "slaac", "ipv6_address_mode": "slaac"},
        ),
        ({"cidr": "fd5f::/64", "ip_version": 6, "ipv6_ra_mode": "slaac"}, {"cidr": "fd5f::/64"}),
    ],
    ids=str,
)
def test_a_subnet_becomes_what_networking_calico_writes(columns: dict[str, Any], expected: dict[str, Any]) -> None:
    (translated,), bad = translate_subnet(subnet(**columns), SETTINGS)
    assert bad == ()
    assert translated.key == KEY
    golden = {**BARE, **expected}
    assert SUBNET.equals(KEY, json.dumps(golden).encode(), translated.thing)
    assert json.loads(translated.doc).keys() == golden.keys()


@pytest.mark.parametrize("enabled", [False, None])
def test_a_subnet_without_dhcp_is_not_in_the_store(enabled: bool | None) -> None:
    assert translate_subnet(subnet(enable_dhcp=enabled), SETTINGS) == ((), ())


def test_the_key_of_a_subnet_names_the_region() -> None:
    (translated,), _ = translate_subnet(subnet(), TranslationSettings(region=Region("ams")))
    assert translated.key == KEY.replace(b"no-region", b"region-ams")


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"cidr": "nonsense"}, BadReason.WRONG_ADDRESS),
        ({"gateway_ip": "10.28.0"}, BadReason.WRONG_ADDRESS),
        ({"dns_nameservers": ("dns.example.org",)}, BadReason.WRONG_ADDRESS),
        ({"id": "a/b"}, BadReason.NOT_IN_CALICO),
    ],
    ids=str,
)
def test_a_subnet_that_no_agent_could_serve_is_refused(columns: dict[str, Any], reason: BadReason) -> None:
    objects, (bad,) = translate_subnet(subnet(**columns), SETTINGS)
    assert objects == ()
    assert bad.reason is reason


def test_felix_finds_a_ready_cluster_and_is_told_to_report_endpoints_of_taps() -> None:
    cluster, felix = fleet_objects(Region("ams"), "0af3")
    assert (cluster.kind, felix.kind) == (CLUSTER, FELIX_CONFIGURATION)
    assert cluster.key == b"/calico/resources/v3/projectcalico.org/clusterinformations/default"
    assert felix.key == b"/calico/resources/v3/projectcalico.org/felixconfigurations/default"
    assert json.loads(cluster.doc)["spec"] == {
        "clusterGUID": "0af3",
        "clusterType": "openstack",
        "datastoreReady": True,
    }
    assert json.loads(felix.doc)["spec"] == {"endpointReportingEnabled": True, "interfacePrefix": "tap"}


def test_what_networking_calico_left_there_is_right_already() -> None:
    cluster, felix = fleet_objects(Region(), "ours")
    metadata = {"name": "default", "creationTimestamp": "2026-11-15T07:07:06Z", "uid": "theirs"}
    theirs = {"clusterGUID": "theirs", "clusterType": "k8s,openstack", "datastoreReady": False, "calicoVersion": "v3"}
    settings = {"endpointReportingEnabled": True, "interfacePrefix": "cali,tap", "logSeverityScreen": "Info"}
    for wanted, kind, spec in ((cluster, "ClusterInformation", theirs), (felix, "FelixConfiguration", settings)):
        value = {"kind": kind, "apiVersion": "projectcalico.org/v3", "metadata": metadata, "spec": spec}
        assert wanted.kind.equals(wanted.key, json.dumps(value).encode(), wanted.thing)
