"""The meter: what passes to each backend, how often the dataplane is written to, and how often somebody disturbs it.

Samples are of what the dataplane counts by itself, under the names that people gave. A dataplane that is away is not
counted, and its last figures stay until it is back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from holdfast.balancer.dataplane.api import Counters, VipDataplane
from holdfast.balancer.services.resolved import Services
from holdfast.balancer.vip import VipKey
from holdfast.reconcile import Away

log = structlog.get_logger(__name__)

Passed = Mapping[tuple[str, str], Counters]
"""By frontend and backend."""


@runtime_checkable
class CountsWrites(Protocol):
    """A dataplane that counts its writes."""

    @property
    def writes(self) -> int: ...


class TrafficMeter:
    """Registers itself; `disturbed` is the keeper's to count."""

    def __init__(self, dataplane: VipDataplane, registry: CollectorRegistry) -> None:
        self._dataplane = dataplane
        self.passed: Passed = {}
        """As of the last measurement."""
        self.disturbed = 0
        registry.register(self)

    async def measure(self, roster: Services) -> None:
        """Takes the figures of now."""
        try:
            counted = await self._dataplane.counters()
        except Away as away:
            log.debug(f"nothing is counted: {away}")
            return
        self.passed = named(counted, roster)

    def collect(self) -> Iterable[Metric]:
        labels = ["frontend", "backend"]
        packets = CounterMetricFamily("holdfast_backend_packets", "Packets to and from a backend.", labels=labels)
        octets = CounterMetricFamily("holdfast_backend_bytes", "Bytes to and from a backend.", labels=labels)
        flows = GaugeMetricFamily("holdfast_backend_flows", "Flows that a backend has now.", labels=labels)
        silent = "Flows of a backend now in which no reply has come by the balancer."
        unanswered = GaugeMetricFamily("holdfast_backend_flows_unanswered", silent, labels=labels)
        for place, passed in self.passed.items():
            packets.add_metric(place, passed.packets)
            octets.add_metric(place, passed.bytes)
            flows.add_metric(place, passed.flows)
            unanswered.add_metric(place, passed.unanswered)
        yield from (packets, octets, flows, unanswered)
        disturbed = "Times that what is programmed was changed, or lost, behind our back."
        yield CounterMetricFamily("holdfast_dataplane_disturbed", disturbed, value=self.disturbed)
        if isinstance(self._dataplane, CountsWrites):
            written = "Transactions that were committed to the dataplane."
            yield CounterMetricFamily("holdfast_dataplane_writes", written, value=self._dataplane.writes)


def named(counted: Mapping[VipKey, Counters], roster: Services) -> Passed:
    """The figures under the names that people know; what is not configured any more has none."""
    backends = {one.identity: name for name, one in roster.backends.items()}
    return {
        (roster.at[key.vip].name, backends[key.backend]): passed
        for key, passed in counted.items()
        if key.vip in roster.at and key.backend in backends
    }
