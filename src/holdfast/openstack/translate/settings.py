"""Settings of the translation: what networking-calico reads from neutron.conf, under the same names."""

from __future__ import annotations

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
