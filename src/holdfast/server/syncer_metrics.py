"""What the syncer measures beside what every worker does."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class SyncerMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.outbox = Gauge(
            "holdfast_outbox_open", "Changes of the inventory that the store does not have yet.", registry=registry
        )
        self.conflicts = Counter(
            "holdfast_sync_conflicts", "Writes that found their object changed by somebody else.", registry=registry
        )
        self.resyncs = Counter("holdfast_resyncs", "Full comparisons that were finished.", registry=registry)
