"""Traffic meter: packets, bytes and flows per backend, writes to the dataplane, changes by other programs, and the
fill of the kernel's table of connections.

The dataplane counts; the meter adds the configured names. While the dataplane is unreachable, the last figures stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from holdfast.balancer.dataplane.api import Counters, TrackedFlows, TracksFlows, VipDataplane
from holdfast.balancer.services.resolved import Services
from holdfast.balancer.vip import VipKey
from holdfast.model.base.time import Instant
from holdfast.reconcile import Away

log = structlog.get_logger(__name__)

Passed = Mapping[tuple[str, str], Counters]
"""By frontend and backend."""


@runtime_checkable
class CountsWrites(Protocol):
    """A dataplane that counts its writes."""

    @property
    def writes(self) -> int: ...


@runtime_checkable
class CountsTotals(Protocol):
    """A dataplane that counts packets by what it did with them, over all VIPs."""

    @property
    def totals(self) -> Mapping[str, int]: ...


class TrafficMeter:
    """Registers itself as a collector. The reconciler increments `disturbances`."""

    def __init__(self, dataplane: VipDataplane, registry: CollectorRegistry) -> None:
        self._dataplane = dataplane
        self.passed: Passed = {}
        """Figures of the last measurement."""
        self.measured: Instant | None = None
        """Start of the last measurement."""
        self.disturbances = 0
        registry.register(self)

    def tracked(self) -> TrackedFlows | None:
        """Fill of the kernel's table of connections; None where the dataplane uses none."""
        return self._dataplane.tracked() if isinstance(self._dataplane, TracksFlows) else None

    @property
    def counts_flows(self) -> bool:
        """True if the dataplane knows the current flows of a backend."""
        return isinstance(self._dataplane, TracksFlows)

    async def measure(self, services: Services, now: Instant) -> None:
        """Read the current figures."""
        try:
            counted = await self._dataplane.counters()
        except Away as away:
            log.debug("cannot measure traffic; retrying", error=str(away))
            return
        self.passed, self.measured = named(counted, services), now

    def collect(self) -> Iterable[Metric]:
        labels = ["frontend", "backend"]
        opened = CounterMetricFamily("holdfast_backend_flows_opened", "Flows opened to a backend.", labels=labels)
        packets = CounterMetricFamily("holdfast_backend_packets", "Packets to and from a backend.", labels=labels)
        octets = CounterMetricFamily("holdfast_backend_bytes", "Bytes to and from a backend.", labels=labels)
        flows = GaugeMetricFamily("holdfast_backend_flows", "Current flows of a backend.", labels=labels)
        help_text = "Current flows of a backend without a reply through the balancer."
        unanswered = GaugeMetricFamily("holdfast_backend_flows_unanswered", help_text, labels=labels)
        are_packets = any(passed.packets for passed in self.passed.values())
        for place, passed in self.passed.items():
            if are_packets:
                packets.add_metric(place, passed.packets)
                octets.add_metric(place, passed.bytes)
            else:
                opened.add_metric(place, passed.opened)
            flows.add_metric(place, passed.flows)
            unanswered.add_metric(place, passed.unanswered)
        yield from (opened, packets, octets, flows, unanswered)
        yield from self._fill()
        if isinstance(self._dataplane, CountsTotals):
            did = "Packets to all VIPs in VPP: of established or new flows, untracked, or without a server (dropped)."
            totals = CounterMetricFamily("holdfast_vpp_packets", did, labels=["result"])
            for result, count in self._dataplane.totals.items():
                totals.add_metric([result], count)
            yield totals
        disturbed = "Times that another program changed what is programmed, or VPP restarted."
        yield CounterMetricFamily("holdfast_dataplane_disturbed", disturbed, value=self.disturbances)
        if isinstance(self._dataplane, CountsWrites):
            written = "Transactions committed to the dataplane."
            yield CounterMetricFamily("holdfast_dataplane_writes", written, value=self._dataplane.writes)

    def _fill(self) -> Iterable[Metric]:
        flows = GaugeMetricFamily("holdfast_conntrack_flows", "Connections that the kernel tracks.")
        most = GaugeMetricFamily("holdfast_conntrack_flows_max", "Connections that the kernel can track.")
        if (tracked := self.tracked()) is not None:
            flows.add_metric([], tracked.flows)
            most.add_metric([], tracked.most)
        yield from (flows, most)


def named(counted: Mapping[VipKey, Counters], services: Services) -> Passed:
    """Figures by configured names; what is no longer configured is left out."""
    names = {  # by frontend, because two of them may name one address differently
        vip: {services.backends[name].identity: name for name in frontend.backends()}
        for vip, frontend in services.at.items()
    }
    return {
        (services.at[key.vip].name, names[key.vip][key.backend]): passed
        for key, passed in counted.items()
        if key.backend in names.get(key.vip, ())
    }
