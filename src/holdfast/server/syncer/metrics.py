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
        self.resync_duration = Gauge(
            "holdfast_resync_duration_seconds", "How long the last full comparison took.", registry=registry
        )
        self.objects = Gauge(
            "holdfast_objects",
            "Objects by kind and state.",
            ["kind", "state"],
            registry=registry,
        )
