"""Settings of the translation, from the text of neutron.conf."""

from __future__ import annotations

import pytest

from holdfast.model.base.region import Region
from holdfast.openstack.translate.settings import TranslationSettings, settings_of

AMS = Region("ams")


def test_an_empty_file_gives_the_defaults_of_networking_calico() -> None:
    assert settings_of(AMS, {}) == TranslationSettings(region=AMS)


def test_every_option_is_read() -> None:
    calico = {
        "max_ingress_connections_per_port": "1",
        "max_egress_connections_per_port": "2",
        "ingress_burst_bits": "3",
        "egress_burst_bits": "4",
        "ingress_minburst_bytes": "5",
        "egress_minburst_bytes": "6",
        "ingress_burst_packets": "7",
        "egress_burst_packets": " 0 ",
        "source_prefixes": "True",
    }
    assert settings_of(AMS, {"calico": calico}) == TranslationSettings(
        region=AMS,
        source_prefixes=True,
        max_ingress_connections_per_port=1,
        max_egress_connections_per_port=2,
        ingress_burst_bits=3,
        egress_burst_bits=4,
        ingress_minburst_bytes=5,
        egress_minburst_bytes=6,
        ingress_burst_packets=7,
        egress_burst_packets=0,
    )


@pytest.mark.parametrize(
    ("drivers", "domain", "expected"),
    [
        ("port_security", "example.org", None),
        ("port_security, dns", "example.org", "example.org"),
        ("dns_domain_ports", None, "openstacklocal"),
        ("dns", "", ""),
    ],
)
def test_ports_have_dns_names_only_where_ml2_assigns_them(
    drivers: str, domain: str | None, expected: str | None
) -> None:
    options = {"ml2": {"extension_drivers": drivers}, "DEFAULT": {} if domain is None else {"dns_domain": domain}}
    assert settings_of(AMS, options).dns_domain == expected


def test_a_number_that_is_none_is_refused_by_its_name() -> None:
    with pytest.raises(ValueError, match="egress_burst_bits in section"):
        settings_of(AMS, {"calico": {"egress_burst_bits": "many"}})
