"""What the syncer measures beside what every worker does."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge


class SyncerMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.outbox = Gauge(
            "holdfast_outbox_open", "Changes of the inventory that the store does not have yet.", registry=registry
        )
        self.conflicts = Gauge(
            "holdfast_sync_conflicts", "Writes of this term that found their object changed.", registry=registry
        )
        self.resyncs = Gauge("holdfast_resyncs", "Full comparisons finished in this term.", registry=registry)

    def show(self, conflicts: int, outbox: int, resyncs: int) -> None:
        self.conflicts.set(conflicts)
        self.outbox.set(outbox)
        self.resyncs.set(resyncs)
