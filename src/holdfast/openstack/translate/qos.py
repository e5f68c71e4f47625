"""QoS: limits of a policy's rules and of the configuration, in Calico's units and inside Calico's bounds.

Neutron counts thousands of bits and of packets, Calico bits and packets. 0 and NULL are no limit. A value outside the
bounds of Calico's API is set to the nearest bound, as networking-calico does: a packet rate never exceeds 10,000/s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from holdfast.model.calico.endpoint import QosControls
from holdfast.openstack.rows import NeutronRows, PortRow, QosPolicyRow
from holdfast.openstack.translate.outcome import MissingRow
from holdfast.openstack.translate.settings import BURST_BITS, BURST_PACKETS, TranslationSettings

_DIRECTIONS = ("ingress", "egress")
_FIELDS = frozenset(field.name for field in msgspec.structs.fields(QosControls))


class _Bounds(NamedTuple):
    low: int
    high: int

    def clamp(self, value: int) -> int:
        return min(max(value, self.low), self.high)


_BANDWIDTH = _Bounds(1_000, 10**15)
_BURST = _Bounds(1_000, 34_359_738_360)
_PEAK_RATE = _Bounds(1_010, 10**15 + 10**13)
_MIN_BURST = _Bounds(1_000, 10**8)
_PACKETS = _Bounds(1, 10**4)
_CONNECTIONS = _Bounds(1, 2**32 - 1)


def controls_of(port: PortRow, rows: NeutronRows, settings: TranslationSettings) -> QosControls | None:
    """The limits of a port: those of its own policy, or else of its network's. Raises MissingRow."""
    network = rows.networks.get(port.network_id)
    policy_id = port.qos_policy_id or (network.qos_policy_id if network else None)
    if not policy_id:
        return _controls({}, settings)
    policy = rows.qos.get(policy_id)
    if policy is None:
        raise MissingRow(f"QoS policy {policy_id} was not read")
    return _controls(_limits(policy), settings)


def _limits(policy: QosPolicyRow) -> dict[str, int]:
    limits: dict[str, int] = {}
    for bandwidth in policy.bandwidth:
        if bandwidth.max_kbps:
            limits[f"{bandwidth.direction}_bandwidth"] = _BANDWIDTH.clamp(bandwidth.max_kbps * 1_000)
        if bandwidth.max_burst_kbps:
            limits[f"{bandwidth.direction}_peakrate"] = _PEAK_RATE.clamp(bandwidth.max_burst_kbps * 1_000)
    for packets in policy.packet_rate:
        # `max_burst_kpps` has no place in Calico's API; networking-calico leaves it out, too.
        if packets.max_kpps:
            limits[f"{packets.direction}_packet_rate"] = _PACKETS.clamp(packets.max_kpps * 1_000)
    return limits


def _controls(limits: Mapping[str, int], settings: TranslationSettings) -> QosControls | None:
    found: dict[str, Any] = dict(limits)
    for way in _DIRECTIONS:
        if connections := getattr(settings, f"max_{way}_connections_per_port"):
            found[f"{way}_max_connections"] = _CONNECTIONS.clamp(connections)
        if f"{way}_bandwidth" in limits:
            found[f"{way}_burst"] = _BURST.clamp(getattr(settings, f"{way}_burst_bits") or BURST_BITS)
            if f"{way}_peakrate" in limits and (least := getattr(settings, f"{way}_minburst_bytes")):
                found[f"{way}_minburst"] = _MIN_BURST.clamp(least)
        if f"{way}_packet_rate" in limits:
            found[f"{way}_packet_burst"] = _PACKETS.clamp(getattr(settings, f"{way}_burst_packets") or BURST_PACKETS)
    known = {name: value for name, value in found.items() if name in _FIELDS}
    return QosControls(**known) if known else None
