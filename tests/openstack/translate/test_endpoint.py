"""Ports to endpoints: golden objects as networking-calico writes them for the same rows."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.model.base.bad import BadReason
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.openstack.rows import (
    AddressPairRow,
    BindingRow,
    DhcpOptionRow,
    FloatingIpRow,
    NetworkRow,
    NeutronRows,
    PortDnsRow,
    PortRow,
    ProjectRow,
    SecurityGroupRow,
)
from holdfast.openstack.translate.endpoint import translate_port
from holdfast.openstack.translate.settings import TranslationSettings
from tests.openstack.translate.build import (
    DB,
    DEVICE,
    NETWORK,
    PORT,
    PROJECT,
    QOS,
    ROWS,
    SETTINGS,
    SUBNET4,
    WEB,
    bound,
    port,
)

NAME = "compute--1-openstack-843c1d87--a5c8--4d2e--9d0c--0c1a5d1e9b11-8e80eb60--cae1--4b7e--8a3d--3f6b1c2d4e5f"
KEY = f"/calico/resources/v3/projectcalico.org/workloadendpoints/openstack/{NAME}".encode()
GOLDEN: dict[str, Any] = {
    "kind": "WorkloadEndpoint",
    "apiVersion": "projectcalico.org/v3",
    "metadata": {
        "name": NAME,
        "namespace": "openstack",
        "creationTimestamp": "2026-11-15T07:07:06Z",
        "uid": "any",
        "annotations": {"openstack.projectcalico.org/network-id": NETWORK},
        "labels": {
            f"sg.projectcalico.org/openstack-{WEB}": "web",
            "sg-name.projectcalico.org/openstack-web": WEB,
            "projectcalico.org/namespace": "openstack",
            "projectcalico.org/orchestrator": "openstack",
            "projectcalico.org/openstack-project-id": PROJECT,
            "projectcalico.org/openstack-project-name": "demo",
            "projectcalico.org/openstack-project-parent-id": "default",
            "projectcalico.org/openstack-network-name": "private",
        },
    },
    "spec": {
        "orchestrator": "openstack",
        "workload": DEVICE,
        "node": "compute-1",
        "endpoint": PORT,
        "interfaceName": "tap8e80eb60-ca",
        "mac": "fa:16:3e:00:00:07",
        "ipv4Gateway": "10.28.0.1",
        "ipv6Gateway": "fd5f::1",
        "ipNetworks": ["10.28.0.7/32", "fd5f::8/128"],
        "allowedIps": [],
    },
}


def only(row: PortRow, rows: NeutronRows = ROWS, settings: TranslationSettings = SETTINGS) -> dict[str, Any]:
    """The one endpoint of a port, as JSON; nothing of it was refused."""
    (translated,), bad = translate_port(row, rows, settings)
    assert bad == ()
    document: dict[str, Any] = msgspec.json.decode(translated.doc)
    return document


def changed(**spec: Any) -> dict[str, Any]:
    """The golden spec with some fields changed; None removes one."""
    given = {**GOLDEN["spec"], **spec}
    given.pop("allowedIps") if not given["allowedIps"] else None
    return {name: value for name, value in given.items() if value is not None}


def test_a_port_becomes_what_networking_calico_writes() -> None:
    (translated,), bad = translate_port(port(), ROWS, SETTINGS)
    assert bad == ()
    assert translated.key == KEY
    assert ENDPOINT.equals(KEY, msgspec.json.encode(GOLDEN), translated.thing)
    document = msgspec.json.decode(translated.doc)
    document["metadata"]["uid"] = "any"
    assert document == {**GOLDEN, "spec": changed()}


def test_in_a_region_the_namespace_names_it() -> None:
    settings = TranslationSettings(region=Region("ams"))
    (translated,), _ = translate_port(port(), ROWS, settings)
    assert translated.key == KEY.replace(b"/openstack/", b"/openstack-region-ams/")
    assert translated.thing.metadata.labels["projectcalico.org/namespace"] == "openstack-region-ams"


def test_the_uid_depends_on_the_key_alone() -> None:
    here, again = (only(port(revision=revision))["metadata"]["uid"] for revision in (1, 2))
    there = only(port(bindings=(bound("compute-2"),)))["metadata"]["uid"]
    assert here == again != there


@pytest.mark.parametrize(
    ("changes", "spec"),
    [
        ({"fixed_ips": ()}, {"ipNetworks": None, "ipv4Gateway": None, "ipv6Gateway": None}),
        (
            {"address_pairs": (AddressPairRow("10.28.0.99"), AddressPairRow("fd5f::99", "fa:16:3e:00:00:99"))},
            {
                "ipNetworks": ["10.28.0.7/32", "fd5f::8/128", "10.28.0.99/32", "fd5f::99/128"],
                "allowedIps": ["10.28.0.99/32", "fd5f::99/128"],
            },
        ),
        (
            {"address_pairs": (AddressPairRow("10.28.0.7"), AddressPairRow("10.28.0.98/32"))},
            {
                "ipNetworks": ["10.28.0.7/32", "fd5f::8/128", "10.28.0.98/32"],
                "allowedIps": ["10.28.0.7/32", "10.28.0.98/32"],
            },
        ),
        (
            {"floating_ips": (FloatingIpRow("f1", "172.24.4.10", "10.28.0.7"),)},
            {"ipNATs": [{"internalIP": "10.28.0.7", "externalIP": "172.24.4.10"}]},
        ),
        (
            {
                "floating_ips": (
                    FloatingIpRow("f2", "172.24.4.11", "10.28.0.9"),
                    FloatingIpRow("f1", "172.24.4.10", "10.28.0.7"),
                )
            },
            {
                "ipNATs": [
                    {"internalIP": "10.28.0.7", "externalIP": "172.24.4.10"},
                    {"internalIP": "10.28.0.9", "externalIP": "172.24.4.11"},
                ]
            },
        ),
        (
            {"qos_policy_id": QOS},
            {
                "qosControls": {
                    "egressBandwidth": 1_000_000,
                    "egressBurst": 4_294_967_296,
                    "egressPeakrate": 2_000_000,
                    "egressPacketRate": 3_000,
                    "egressPacketBurst": 5,
                    "ingressBandwidth": 500_000,
                    "ingressBurst": 4_294_967_296,
                }
            },
        ),
        ({"admin_state_up": False, "status": "DOWN"}, {}),
        ({"dhcp_options": (DhcpOptionRow("mtu", "1400"),)}, {}),
        ({"mac_address": "FA:16:3E:00:00:07"}, {}),
        ({"bindings": (bound(vif_type="binding_failed"),)}, {}),
        ({"bindings": (BindingRow("compute-2", "tap", "INACTIVE"), bound())}, {}),
    ],
    ids=lambda value: next(iter(value), "unchanged") if isinstance(value, dict) else None,
)
def test_columns_of_a_port_reach_the_spec(changes: dict[str, Any], spec: dict[str, Any]) -> None:
    assert only(port(**changes))["spec"] == changed(**spec)


def test_the_network_s_qos_counts_only_without_one_of_the_port() -> None:
    rows = replace(ROWS, networks={NETWORK: NetworkRow(id=NETWORK, name="private", qos_policy_id=QOS)})
    assert only(port(), rows)["spec"]["qosControls"]["egressBandwidth"] == 1_000_000
    assert only(port(qos_policy_id=QOS), ROWS) == only(port(), rows)


def test_limits_from_the_configuration_hold_for_every_port() -> None:
    settings = TranslationSettings(
        max_ingress_connections_per_port=100,
        max_egress_connections_per_port=2**40,
        egress_minburst_bytes=1,
        egress_burst_bits=1,
        ingress_burst_bits=0,
    )
    connections = {"ingressMaxConnections": 100, "egressMaxConnections": 4_294_967_295}
    assert only(port(), settings=settings)["spec"]["qosControls"] == connections
    limited = only(port(qos_policy_id=QOS), settings=settings)["spec"]["qosControls"]
    assert (limited["egressBurst"], limited["ingressBurst"]) == (1_000, 4_294_967_296)
    assert limited["egressMinburst"] == 1_000
    assert "ingressMinburst" not in limited


def test_without_port_security_no_policy_selects_the_endpoint() -> None:
    labels = only(port(port_security_enabled=False, security_groups=()))["metadata"]["labels"]
    assert not [name for name in labels if name.startswith("sg")]


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("data base!", "data_base"),
        ("-_.x._-", "x"),
        ("Größe", "Gr__e"),
        ("x" * 99, "x" * (63 - len("sg-name.projectcalico.org/openstack-"))),
        ("***", ""),
        (None, ""),
    ],
)
def test_names_of_groups_become_labels(name: str | None, label: str) -> None:
    rows = replace(ROWS, groups={WEB: SecurityGroupRow(id=WEB, name=name)})
    labels = only(port(), rows)["metadata"]["labels"]
    assert labels[f"sg.projectcalico.org/openstack-{WEB}"] == label
    named = {key: value for key, value in labels.items() if key.startswith("sg-name.")}
    assert named == ({f"sg-name.projectcalico.org/openstack-{label}": WEB} if label else {})


def test_of_two_groups_with_one_name_the_higher_id_has_the_label() -> None:
    rows = replace(ROWS, groups={each: SecurityGroupRow(id=each, name="default") for each in (WEB, DB)})
    for groups in ((WEB, DB), (DB, WEB)):
        labels = only(port(security_groups=groups), rows)["metadata"]["labels"]
        assert labels["sg-name.projectcalico.org/openstack-default"] == DB


def test_without_keystone_the_project_has_an_id_only() -> None:
    labels = only(port(), replace(ROWS, projects={}))["metadata"]["labels"]
    found = [name for name in labels if "openstack-project" in name]
    assert found == ["projectcalico.org/openstack-project-id"]


def test_without_keystone_the_labels_that_the_store_has_stay() -> None:
    (unknown,), _ = translate_port(port(), replace(ROWS, projects={}), SETTINGS)
    assert ENDPOINT.equals(KEY, msgspec.json.encode(GOLDEN), unknown.thing)
    moved, _ = translate_port(port(project_id="other"), replace(ROWS, projects={}), SETTINGS)
    rewritten = msgspec.json.decode(ENDPOINT.encode(moved[0].thing, over=msgspec.json.encode(GOLDEN)))
    assert "projectcalico.org/openstack-project-name" not in rewritten["metadata"]["labels"]


def test_a_renamed_project_is_a_reason_to_rewrite() -> None:
    renamed = replace(ROWS, projects={PROJECT: ProjectRow(PROJECT, "new", "default")})
    (translated,), _ = translate_port(port(), renamed, SETTINGS)
    assert not ENDPOINT.equals(KEY, msgspec.json.encode(GOLDEN), translated.thing)


@pytest.mark.parametrize(
    ("domain", "dns", "expected"),
    [
        ("example.org", PortDnsRow("vm1"), "vm1.example.org."),
        ("example.org.", PortDnsRow("vm1", "sub.example.org."), "vm1.sub.example.org."),
        ("example.org", PortDnsRow("vm1.example.net."), "vm1.example.net."),
        ("example.org", None, "host-10-28-0-7.example.org."),
        ("openstacklocal", PortDnsRow("vm1"), "host-10-28-0-7.openstacklocal."),
        ("", None, "host-10-28-0-7"),
        (None, PortDnsRow("vm1"), None),
    ],
)
def test_the_name_that_neutron_assigns_is_an_annotation(
    domain: str | None, dns: PortDnsRow | None, expected: str | None
) -> None:
    annotations = only(port(dns=dns), settings=TranslationSettings(dns_domain=domain))["metadata"]["annotations"]
    assert annotations.get("openstack.projectcalico.org/fqdn") == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"device_owner": "network:dhcp"},
        {"device_owner": ""},
        {"bindings": ()},
        {"bindings": (bound(""),)},
        {"bindings": (bound("", vif_type="unbound"),)},
        {"bindings": (BindingRow("compute-1", "tap", "INACTIVE"),)},
    ],
    ids=str,
)
def test_ports_that_are_on_no_host_have_no_endpoint(changes: dict[str, Any]) -> None:
    assert translate_port(port(**changes), ROWS, SETTINGS) == ((), ())


def test_a_container_of_kuryr_is_a_workload() -> None:
    assert only(port(device_owner="kuryr:container"))["spec"]["endpoint"] == PORT


def test_a_prefix_among_the_address_pairs_is_no_route_and_needs_felix_to_allow_it() -> None:
    row = port(address_pairs=(AddressPairRow("0.0.0.0/0"), AddressPairRow("10.28.0.99")))
    (translated,), (bad,) = translate_port(row, ROWS, SETTINGS)
    assert translated.thing.spec.allowed_ips == ("10.28.0.99/32",)
    assert translated.thing.spec.allow_spoofed_source_prefixes == ()
    assert (bad.key, bad.reason) == (KEY, BadReason.NOT_IN_CALICO)
    assert "0.0.0.0/0" in bad.detail
    spec = only(row, settings=TranslationSettings(source_prefixes=True))["spec"]
    assert spec["allowSpoofedSourcePrefixes"] == ["0.0.0.0/0"]
    assert spec["ipNetworks"] == ["10.28.0.7/32", "fd5f::8/128", "10.28.0.99/32"]


def test_a_floating_ip_without_a_fixed_address_is_left_out() -> None:
    row = port(floating_ips=(FloatingIpRow("f1", "172.24.4.10", None),))
    (translated,), (bad,) = translate_port(row, ROWS, SETTINGS)
    assert translated.thing.spec.ip_nats == ()
    assert "f1" in bad.detail


@pytest.mark.parametrize(
    ("changes", "reason", "key"),
    [
        ({"mac_address": "nonsense"}, BadReason.WRONG_ADDRESS, KEY),
        ({"device_id": ""}, BadReason.NOT_IN_CALICO, f"ports/{PORT}".encode()),
        ({"bindings": (bound("a/b"),)}, BadReason.NOT_IN_CALICO, f"ports/{PORT}".encode()),
        ({"network_id": "gone"}, BadReason.MISSING_ROW, KEY),
        ({"security_groups": ("gone",)}, BadReason.MISSING_ROW, KEY),
        ({"qos_policy_id": "gone"}, BadReason.MISSING_ROW, KEY),
    ],
    ids=str,
)
def test_a_port_without_a_form_in_calico_is_refused_by_name(
    changes: dict[str, Any], reason: BadReason, key: bytes
) -> None:
    objects, (bad,) = translate_port(port(**changes), ROWS, SETTINGS)
    assert objects == ()
    assert (bad.reason, bad.key) == (reason, key)
    assert PORT in bad.detail


def test_an_address_of_an_unknown_subnet_would_lose_its_gateway() -> None:
    objects, (bad,) = translate_port(port(), replace(ROWS, subnets={}), SETTINGS)
    assert objects == ()
    assert bad.reason is BadReason.MISSING_ROW
    assert SUBNET4 in bad.detail
