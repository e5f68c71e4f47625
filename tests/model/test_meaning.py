"""Comparing by meaning: what readers treat alike is no reason to rewrite a stored value."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.model.base.bad import Bad
from holdfast.model.base.kind import Kind
from holdfast.model.base.region import Region
from holdfast.model.calico.cluster import (
    CLUSTER,
    FELIX_CONFIGURATION,
    ClusterInformation,
    ClusterSpec,
    FelixConfiguration,
    FelixSpec,
)
from holdfast.model.calico.endpoint import ENDPOINT, AddressPair, Endpoint, EndpointSpec
from holdfast.model.calico.policy import POLICY, Party, Policy, PolicyRule, PolicySpec
from holdfast.model.calico.resource import Metadata
from holdfast.model.calico.subnet import SUBNET, StaticRoute, Subnet

HERE = Region()
SPEC = EndpointSpec(
    orchestrator="openstack",
    workload="w",
    node="n",
    endpoint="e",
    ip_networks=("10.0.0.1/32", "fd5f::1/128"),
    ip_nats=(AddressPair("10.0.0.1", "192.0.2.1"), AddressPair("10.0.0.1", "192.0.2.2")),
)
TCP = PolicyRule("Allow", 4, 6)
ICMP = PolicyRule("Allow", 4, "ICMP")
DENY = PolicyRule("Deny")


def _stored(kind: Kind[Any, Any], name: Any, wanted: Any, stored: Any) -> bool:
    return kind.equals(kind.key(HERE, name), kind.encode(stored), wanted)


def test_endpoints_with_the_same_addresses_in_another_order_are_equal() -> None:
    other = replace(SPEC, ip_networks=SPEC.ip_networks[::-1], ip_nats=SPEC.ip_nats[::-1])
    endpoint = Endpoint.of(HERE, SPEC)
    assert _stored(ENDPOINT, endpoint.name, endpoint, Endpoint.of(HERE, other))
    assert not _stored(ENDPOINT, endpoint.name, endpoint, Endpoint.of(HERE, replace(SPEC, ip_nats=SPEC.ip_nats[:1])))


def _policy(*rules: PolicyRule) -> Policy:
    return Policy.of(HERE, "p", PolicySpec(ingress=rules))


@pytest.mark.parametrize(
    ("wanted", "stored", "equal"),
    [
        ((TCP, ICMP), (ICMP, TCP), True),
        ((TCP,), (replace(TCP, protocol="6"),), True),
        ((TCP,), (replace(TCP, protocol="TCP"),), True),
        ((ICMP,), (replace(ICMP, protocol=1),), True),
        ((TCP,), (replace(TCP, protocol=17),), False),
        ((TCP,), (TCP, TCP), False),
        ((TCP,), (replace(TCP, destination=Party(ports=(22,))),), False),
        ((TCP, DENY), (DENY, TCP), False),
    ],
)
def test_rules_that_allow_are_a_set_and_others_are_a_list(
    wanted: tuple[PolicyRule, ...], stored: tuple[PolicyRule, ...], equal: bool
) -> None:
    assert _stored(POLICY, "p", _policy(*wanted), _policy(*stored)) is equal


def test_the_order_of_routes_is_free_and_that_of_name_servers_is_not() -> None:
    routes = (StaticRoute("10.1.0.0/16", "10.0.0.2"), StaticRoute("10.2.0.0/16", "10.0.0.3"))
    subnet = Subnet(network_id="n", cidr="10.0.0.0/24", host_routes=routes, dns_servers=("192.0.2.1", "192.0.2.2"))
    assert _stored(SUBNET, "s", subnet, replace(subnet, host_routes=routes[::-1]))
    assert not _stored(SUBNET, "s", subnet, replace(subnet, dns_servers=("192.0.2.2", "192.0.2.1")))


OURS = ClusterInformation(metadata=Metadata("default"), spec=ClusterSpec("ours", "openstack", True))


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (ClusterSpec("theirs", "k8s", None), ClusterSpec("theirs", "k8s,openstack", True)),
        (ClusterSpec("theirs", "k8s,openstack", False), ClusterSpec("theirs", "k8s,openstack", False)),
        (ClusterSpec(), ClusterSpec("ours", "openstack", True)),
    ],
)
def test_cluster_information_of_others_is_completed_and_not_replaced(
    stored: ClusterSpec, expected: ClusterSpec
) -> None:
    metadata = Metadata("default", uid="1", labels={"by": "others"})
    value = CLUSTER.encode(ClusterInformation(metadata=metadata, spec=stored))
    key = CLUSTER.key(HERE, "default")
    found = CLUSTER.decode(key, CLUSTER.encode(OURS, over=value))
    assert not isinstance(found, Bad)
    assert (found.spec, found.metadata) == (expected, metadata)
    assert CLUSTER.equals(key, value, OURS) is (stored == expected)


@pytest.mark.parametrize(("stored", "expected"), [("", "tap"), ("cali", "cali,tap"), ("tap,cali", "tap,cali")])
def test_felix_settings_of_the_operator_stay(stored: str, expected: str) -> None:
    ours = FelixConfiguration(metadata=Metadata("default"), spec=FelixSpec(True, "tap"))
    document = {
        "kind": "FelixConfiguration",
        "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": "default"},
        "spec": {"interfacePrefix": stored, "bpfEnabled": True},
    }
    rewritten = FELIX_CONFIGURATION.encode(ours, over=msgspec.json.encode(document))
    assert msgspec.json.decode(rewritten)["spec"] == {
        "endpointReportingEnabled": True,
        "interfacePrefix": expected,
        "bpfEnabled": True,
    }
    assert FELIX_CONFIGURATION.equals(FELIX_CONFIGURATION.key(HERE, "default"), rewritten, ours)
