"""Security groups to policies: every kind of rule, as networking-calico writes it, and those that it writes wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.model.base.bad import BadReason
from holdfast.model.calico.policy import POLICY
from holdfast.openstack.rows import NeutronRows, SecurityRuleRow
from holdfast.openstack.translate.policy import translate_group
from tests.openstack.translate.build import DB, PARTNERS, ROWS, SETTINGS, WEB, group, rule

NAME = f"ossg.default.{WEB}"
KEY = f"/calico/resources/v3/projectcalico.org/networkpolicies/openstack/{NAME}".encode()
MEMBERS = f"has(sg.projectcalico.org/openstack-{WEB})"
ANY4 = {"nets": ["0.0.0.0/0"]}
TCP_22 = {"protocol": "tcp", "port_range_min": 22, "port_range_max": 22}


def stored(ingress: list[Any], egress: list[Any]) -> bytes:
    """The policy as networking-calico writes it."""
    document = {
        "kind": "NetworkPolicy",
        "apiVersion": "projectcalico.org/v3",
        "metadata": {
            "name": NAME,
            "namespace": "openstack",
            "creationTimestamp": "2026-11-15T07:07:06Z",
            "uid": "theirs",
        },
        "spec": {"ingress": ingress, "egress": egress, "selector": MEMBERS},
    }
    return json.dumps(document).encode()


def written(row: SecurityRuleRow, rows: NeutronRows = ROWS) -> dict[str, Any]:
    """The policy's spec of a group with one rule, which was not refused."""
    (translated,), bad = translate_group(group(row), rows, SETTINGS)
    assert bad == ()
    assert translated.key == KEY
    spec: dict[str, Any] = json.loads(translated.doc)["spec"]
    return spec


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({}, {}),
        ({"ethertype": "IPv6"}, {"ipVersion": 6}),
        ({"protocol": "any"}, {}),
        ({"protocol": "tcp"}, {"protocol": 6}),
        ({"protocol": "udp"}, {"protocol": 17}),
        ({"protocol": "sctp"}, {"protocol": 132}),
        ({"protocol": "udplite"}, {"protocol": 136}),
        ({"protocol": "gre"}, {"protocol": 47}),
        ({"protocol": "esp"}, {"protocol": 50}),
        ({"protocol": "vrrp"}, {"protocol": 112}),
        ({"protocol": "ah"}, {"protocol": 51}),
        ({"protocol": "dccp"}, {"protocol": 33}),
        ({"protocol": "egp"}, {"protocol": 8}),
        ({"protocol": "igmp"}, {"protocol": 2}),
        ({"protocol": "ipip"}, {"protocol": 4}),
        ({"protocol": "ospf"}, {"protocol": 89}),
        ({"protocol": "pgm"}, {"protocol": 113}),
        ({"protocol": "rsvp"}, {"protocol": 46}),
        ({"protocol": "ipv6-encap", "ethertype": "IPv6"}, {"protocol": 41, "ipVersion": 6}),
        ({"protocol": "ipv6-nonxt", "ethertype": "IPv6"}, {"protocol": 59, "ipVersion": 6}),
        ({"protocol": "ipv6-opts", "ethertype": "IPv6"}, {"protocol": 60, "ipVersion": 6}),
        ({"protocol": "ipv6-route", "ethertype": "IPv6"}, {"protocol": 43, "ipVersion": 6}),
        ({"protocol": "255"}, {"protocol": "255"}),
        ({"protocol": "ipv6-frag", "ethertype": "IPv6"}, {"protocol": 44, "ipVersion": 6}),
        ({"protocol": "hopopt", "ethertype": "IPv6"}, {"protocol": 0, "ipVersion": 6}),
        ({"protocol": "6"}, {"protocol": "6"}),
        ({"protocol": "112"}, {"protocol": "112"}),
        ({"protocol": "icmp"}, {"protocol": "ICMP"}),
        ({"protocol": "1"}, {"protocol": "1"}),
        ({"protocol": "icmp", "ethertype": "IPv6"}, {"protocol": "ICMPv6", "ipVersion": 6}),
        ({"protocol": "icmpv6", "ethertype": "IPv6"}, {"protocol": 58, "ipVersion": 6}),
        ({"protocol": "ipv6-icmp", "ethertype": "IPv6"}, {"protocol": "ICMPv6", "ipVersion": 6}),
        ({"protocol": "58", "ethertype": "IPv6"}, {"protocol": "58", "ipVersion": 6}),
        ({"protocol": "icmp", "port_range_min": 8}, {"protocol": "ICMP", "icmp": {"type": 8}}),
        (
            {"protocol": "icmp", "port_range_min": 3, "port_range_max": 4},
            {"protocol": "ICMP", "icmp": {"type": 3, "code": 4}},
        ),
        (
            {"protocol": "icmp", "port_range_min": 0, "port_range_max": 0},
            {"protocol": "ICMP", "icmp": {"type": 0, "code": 0}},
        ),
        ({"protocol": "icmp", "port_range_min": -1, "port_range_max": -1}, {"protocol": "ICMP"}),
        (
            {"protocol": "ipv6-icmp", "ethertype": "IPv6", "port_range_min": 128, "port_range_max": 0},
            {"protocol": "ICMPv6", "ipVersion": 6, "icmp": {"type": 128, "code": 0}},
        ),
        (
            {"protocol": "ipv6-icmp", "ethertype": "IPv6", "port_range_min": 135},
            {"protocol": "ICMPv6", "ipVersion": 6, "icmp": {"type": 135}},
        ),
        (TCP_22, {"protocol": 6, "destination": {"ports": [22]}}),
        ({**TCP_22, "ethertype": "IPv6"}, {"protocol": 6, "ipVersion": 6, "destination": {"ports": [22]}}),
        (
            {"protocol": "17", "port_range_min": 53, "port_range_max": 53},
            {"protocol": "17", "destination": {"ports": [53]}},
        ),
        (
            {"protocol": "sctp", "port_range_min": 2905, "port_range_max": 2906},
            {"protocol": 132, "destination": {"ports": ["2905:2906"]}},
        ),
        (
            {"protocol": "udp", "port_range_min": 5000, "port_range_max": 6000},
            {"protocol": 17, "destination": {"ports": ["5000:6000"]}},
        ),
        (
            {"protocol": "tcp", "port_range_min": 1, "port_range_max": 65535},
            {"protocol": 6, "destination": {"ports": ["1:65535"]}},
        ),
        ({"protocol": "tcp", "port_range_min": -1, "port_range_max": -1}, {"protocol": 6}),
        ({"remote_ip_prefix": "0.0.0.0/0"}, {"source": ANY4}),
        ({"remote_ip_prefix": "10.1.2.3/16"}, {"source": {"nets": ["10.1.2.3/16"]}}),
        ({"remote_ip_prefix": "10.1.2.3"}, {"source": {"nets": ["10.1.2.3"]}}),
        ({"remote_ip_prefix": "::/0", "ethertype": "IPv6"}, {"source": {"nets": ["::/0"]}, "ipVersion": 6}),
        (
            {"remote_ip_prefix": "2001:DB8::/32", "ethertype": "IPv6"},
            {"source": {"nets": ["2001:DB8::/32"]}, "ipVersion": 6},
        ),
        ({"remote_group_id": WEB}, {"source": {"selector": MEMBERS}}),
        ({"remote_group_id": WEB, "ethertype": "IPv6"}, {"source": {"selector": MEMBERS}, "ipVersion": 6}),
        (
            {**TCP_22, "remote_group_id": WEB},
            {"protocol": 6, "source": {"selector": MEMBERS}, "destination": {"ports": [22]}},
        ),
        ({"remote_group_id": DB}, {"source": {"selector": f"has(sg.projectcalico.org/openstack-{DB})"}}),
        (
            {**TCP_22, "remote_ip_prefix": "0.0.0.0/0"},
            {"protocol": 6, "source": ANY4, "destination": {"ports": [22]}},
        ),
    ],
    ids=lambda value: " ".join(f"{name}={text}" for name, text in value.items()) or "plain",
)
def test_a_rule_becomes_what_networking_calico_writes(columns: dict[str, Any], expected: dict[str, Any]) -> None:
    theirs = {"action": "Allow", "ipVersion": 4, **expected}
    outwards = {**theirs, "destination": {**theirs.get("source", {}), **theirs.get("destination", {})}}
    outwards.pop("source", None)
    if not outwards["destination"]:
        del outwards["destination"]
    for direction, value in (("ingress", stored([theirs], [])), ("egress", stored([], [outwards]))):
        (translated,), bad = translate_group(group(rule(direction=direction, **columns)), ROWS, SETTINGS)
        assert bad == ()
        assert translated.key == KEY
        assert POLICY.equals(KEY, value, translated.thing), translated.doc


def test_a_new_group_s_default_rules_become_its_policy() -> None:
    """Egress is open for both families, ingress for members of the same group."""
    defaults = group(
        rule(id="r1", direction="egress"),
        rule(id="r2", direction="egress", ethertype="IPv6"),
        rule(id="r3", remote_group_id=WEB),
        rule(id="r4", ethertype="IPv6", remote_group_id=WEB),
    )
    (translated,), bad = translate_group(defaults, ROWS, SETTINGS)
    assert bad == ()
    document = json.loads(translated.doc)
    assert document["metadata"].keys() == {"name", "namespace", "uid"}
    assert document["spec"] == {
        "ingress": [
            {"action": "Allow", "ipVersion": 4, "source": {"selector": MEMBERS}},
            {"action": "Allow", "ipVersion": 6, "source": {"selector": MEMBERS}},
        ],
        "egress": [{"action": "Allow", "ipVersion": 4}, {"action": "Allow", "ipVersion": 6}],
        "selector": MEMBERS,
    }


def test_a_group_without_rules_allows_nothing_and_still_selects_its_members() -> None:
    (translated,), bad = translate_group(group(), ROWS, SETTINGS)
    assert bad == ()
    assert POLICY.equals(KEY, stored([], []), translated.thing)


def test_the_order_of_rows_does_not_change_what_is_written() -> None:
    rules = [rule(id="r2", protocol="tcp"), rule(id="r1"), rule(id="r3", direction="egress")]
    (one,), _ = translate_group(group(*rules), ROWS, SETTINGS)
    (other,), _ = translate_group(group(*rules[::-1]), ROWS, SETTINGS)
    assert one.doc == other.doc


def test_the_protocol_0_is_any_protocol() -> None:
    assert written(rule(protocol="0"))["ingress"] == [{"action": "Allow", "ipVersion": 4}]


@pytest.mark.parametrize(("protocol", "ethertype"), [("1", "IPv4"), ("58", "IPv6"), ("icmpv6", "IPv6")])
def test_icmp_by_number_has_types_and_not_ports(protocol: str, ethertype: str) -> None:
    """networking-calico writes ports, which no Felix can parse: the policy of the whole group is lost."""
    (found,) = written(rule(protocol=protocol, ethertype=ethertype, port_range_min=8))["ingress"]
    assert found["icmp"] == {"type": 8}
    assert found["protocol"] in {"ICMP", "ICMPv6"}
    assert "destination" not in found


@pytest.mark.parametrize(
    ("ethertype", "nets"),
    [("IPv4", ["192.0.2.0/24", "198.51.100.7/32"]), ("IPv6", ["2001:db8::/32"])],
)
def test_an_address_group_is_the_networks_of_its_family(ethertype: str, nets: list[str]) -> None:
    """networking-calico allows everybody instead."""
    (found,) = written(rule(ethertype=ethertype, remote_address_group_id=PARTNERS))["ingress"]
    assert found["source"] == {"nets": nets}


def test_an_empty_address_group_allows_nobody() -> None:
    rows = NeutronRows(address_groups={PARTNERS: type(ROWS.address_groups[PARTNERS])(PARTNERS)})
    assert "ingress" not in written(rule(remote_address_group_id=PARTNERS), rows)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"protocol": "nonsense"}, BadReason.NOT_IN_CALICO),
        ({"protocol": "256"}, BadReason.NOT_IN_CALICO),
        ({"protocol": "²"}, BadReason.NOT_IN_CALICO),
        ({"protocol": "udplite", "port_range_min": 1, "port_range_max": 2}, BadReason.NOT_IN_CALICO),
        ({"protocol": "dccp", "port_range_min": 1, "port_range_max": 2}, BadReason.NOT_IN_CALICO),
        ({"port_range_min": 1, "port_range_max": 2}, BadReason.NOT_IN_CALICO),
        ({"protocol": "tcp", "port_range_min": 80, "port_range_max": 22}, BadReason.NOT_IN_CALICO),
        ({"protocol": "tcp", "port_range_min": 80}, BadReason.NOT_IN_CALICO),
        ({"protocol": "tcp", "port_range_min": 1, "port_range_max": 65536}, BadReason.NOT_IN_CALICO),
        ({"protocol": "icmp", "port_range_max": 0}, BadReason.NOT_IN_CALICO),
        ({"protocol": "icmp", "port_range_min": 255}, BadReason.NOT_IN_CALICO),
        ({"protocol": "icmp", "port_range_min": 8, "port_range_max": 256}, BadReason.NOT_IN_CALICO),
        ({"ethertype": None}, BadReason.NOT_IN_CALICO),
        ({"ethertype": "ARP"}, BadReason.NOT_IN_CALICO),
        ({"direction": "sideways"}, BadReason.NOT_IN_CALICO),
        ({"remote_ip_prefix": "nonsense"}, BadReason.WRONG_ADDRESS),
        ({"remote_ip_prefix": "::/0"}, BadReason.WRONG_ADDRESS),
        ({"remote_group_id": "x) || all("}, BadReason.NOT_IN_CALICO),
        ({"remote_address_group_id": "gone"}, BadReason.MISSING_ROW),
    ],
    ids=str,
)
def test_a_rule_that_felix_would_misread_is_left_out_and_the_others_stay(
    columns: dict[str, Any], reason: BadReason
) -> None:
    good = rule(id="r0", **TCP_22)
    (translated,), (bad,) = translate_group(group(good, rule(**columns)), ROWS, SETTINGS)
    assert json.loads(translated.doc)["spec"] == written(good)
    assert (bad.key, bad.reason) == (KEY, reason)
    assert bad.detail.startswith("rule r1: ")


def test_a_group_whose_id_could_end_a_selector_is_refused() -> None:
    objects, (bad,) = translate_group(group(id="x) || all("), ROWS, SETTINGS)
    assert objects == ()
    assert bad.reason is BadReason.NOT_IN_CALICO
