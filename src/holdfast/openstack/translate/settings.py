"""Settings of the translation: what networking-calico reads from neutron.conf, under the same names."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.model.base.region import Region

BURST_BITS = 4_294_967_296
BURST_PACKETS = 5


class TranslationSettings(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Region and limits that Neutron's tables do not hold. The numbers mean the same as in section `[calico]`."""

    region: Region = Region()
    dns_domain: str | None = None
    """`dns_domain` of neutron.conf; None where ML2's DNS extension is not loaded, and ports have no DNS assignment."""
    source_prefixes: bool = False
    """Let endpoints send from allowed address pairs that are prefixes. Needs `workloadSourceSpoofing: Any` in every
    Felix: one without it rejects the whole endpoint."""
    max_ingress_connections_per_port: int = 0
    max_egress_connections_per_port: int = 0
    ingress_burst_bits: int = BURST_BITS
    egress_burst_bits: int = BURST_BITS
    ingress_minburst_bytes: int = 0
    egress_minburst_bytes: int = 0
    ingress_burst_packets: int = BURST_PACKETS
    egress_burst_packets: int = BURST_PACKETS


_DNS_DRIVERS = frozenset({"dns", "dns_domain_ports", "subnet_dns_publish_fixed_ip", "dns_domain_keywords"})
"""ML2's extension drivers that assign DNS names to ports."""
_DEFAULT_DOMAIN = "openstacklocal"
_NUMBERS = tuple(field.name for field in msgspec.structs.fields(TranslationSettings) if field.type is int)


def settings_of(region: Region, options: Mapping[str, Mapping[str, str]]) -> TranslationSettings:
    """The settings in neutron.conf and ml2_conf.ini, by section and option, as text. Raises ValueError."""
    calico = options.get("calico", {})
    found: dict[str, int] = {}
    for name in _NUMBERS:
        text = calico.get(name, "").strip()
        if text and not text.removeprefix("-").isdecimal():
            raise ValueError(f"option {name} in section [calico] of neutron.conf is not a whole number; correct it")
        if text:
            found[name] = int(text)
    drivers = {each.strip() for each in options.get("ml2", {}).get("extension_drivers", "").split(",")}
    domain = options.get("DEFAULT", {}).get("dns_domain", _DEFAULT_DOMAIN)
    return TranslationSettings(
        region=region,
        dns_domain=domain if drivers & _DNS_DRIVERS else None,
        source_prefixes=calico.get("source_prefixes", "").strip().lower() in {"true", "1", "yes", "on"},
        **found,
    )
