"""Rows of one small cloud, for the translator's tests."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from holdfast.openstack.rows import (
    AddressGroupRow,
    BandwidthRuleRow,
    BindingRow,
    FixedIpRow,
    NetworkRow,
    NeutronRows,
    PacketRateRuleRow,
    PortRow,
    ProjectRow,
    QosPolicyRow,
    SecurityGroupRow,
    SecurityRuleRow,
    SubnetRow,
)
from holdfast.openstack.translate.settings import TranslationSettings

PORT = "8e80eb60-cae1-4b7e-8a3d-3f6b1c2d4e5f"
DEVICE = "843c1d87-a5c8-4d2e-9d0c-0c1a5d1e9b11"
NETWORK = "0b9a2c9e-3b1f-4f9b-8a52-5f7b6a3b1c11"
SUBNET4 = "4d0e6d3c-6d1c-4d43-a5ae-6ad3a4e1c0a4"
SUBNET6 = "6d0e6d3c-6d1c-4d43-a5ae-6ad3a4e1c0a6"
WEB = "11111111-5c2f-4e55-9d6c-000000000001"
DB = "22222222-5c2f-4e55-9d6c-000000000002"
PROJECT = "5a1b2c3d4e5f60718293a4b5c6d7e8f9"
QOS = "99999999-5c2f-4e55-9d6c-000000000009"
PARTNERS = "77777777-5c2f-4e55-9d6c-000000000007"

SETTINGS = TranslationSettings()
ROWS = NeutronRows(
    networks={NETWORK: NetworkRow(id=NETWORK, name="private")},
    subnets={
        SUBNET4: SubnetRow(id=SUBNET4, network_id=NETWORK, cidr="10.28.0.0/24", gateway_ip="10.28.0.1"),
        SUBNET6: SubnetRow(id=SUBNET6, network_id=NETWORK, cidr="fd5f::/64", gateway_ip="fd5f::1", ip_version=6),
    },
    groups={WEB: SecurityGroupRow(id=WEB, name="web"), DB: SecurityGroupRow(id=DB, name="data base!")},
    address_groups={PARTNERS: AddressGroupRow(PARTNERS, ("192.0.2.0/24", "198.51.100.7/32", "2001:db8::/32"))},
    qos={
        QOS: QosPolicyRow(
            QOS,
            bandwidth=(BandwidthRuleRow(1_000, 2_000), BandwidthRuleRow(500, 0, "ingress")),
            packet_rate=(PacketRateRuleRow(3),),
        )
    },
    projects={PROJECT: ProjectRow(PROJECT, "demo", "default")},
)


def bound(host: str = "compute-1", profile: str = "", vif_type: str = "tap") -> BindingRow:
    return BindingRow(host, vif_type, profile=profile)


PLAIN = PortRow(
    id=PORT,
    network_id=NETWORK,
    device_id=DEVICE,
    device_owner="compute:nova",
    mac_address="fa:16:3e:00:00:07",
    project_id=PROJECT,
    created_at=datetime(2026, 11, 15, 7, 7, 6, 123),  # noqa: DTZ001
    bindings=(bound(),),
    fixed_ips=(FixedIpRow("10.28.0.7", SUBNET4), FixedIpRow("fd5f::8", SUBNET6)),
    security_groups=(WEB,),
)


def port(**changes: Any) -> PortRow:
    return replace(PLAIN, **changes)


def rule(**columns: Any) -> SecurityRuleRow:
    given = {"id": "r1", "direction": "ingress", "ethertype": "IPv4", **columns}
    return SecurityRuleRow(**given)


def group(*rules: SecurityRuleRow, id: str = WEB) -> SecurityGroupRow:  # noqa: A002
    return SecurityGroupRow(id=id, name="web", rules=rules)
