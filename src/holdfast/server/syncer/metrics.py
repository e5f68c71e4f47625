"""Metrics of the syncer, besides those that every worker has."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge

UNWITNESSED = "unwitnessed"
"""State of objects that the store has and the inventory lacks, and whose delete no recorded change witnesses."""

REFUSED = "refused"
"""State of objects that the inventory has and the store cannot express: what the store has of them stays."""


class SyncerMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self.outbox = gauge("holdfast_outbox_open", "Changes of the inventory that the store does not have yet.")
        self.conflicts = counter("holdfast_sync_conflicts", "Writes whose object had been changed by another client.")
        self.resyncs = counter("holdfast_resyncs", "Completed resyncs.")
        self.resync_duration = gauge("holdfast_resync_duration_seconds", "Duration of the last resync.")
        self.objects = gauge("holdfast_objects", "Objects by kind and state.", ["kind", "state"])
        self.history_pruned = counter("holdfast_history_pruned", "Changes deleted from the inventory's history.")
        self.history_failures = counter("holdfast_history_prune_failures", "Failed attempts to prune the history.")
        self.history_failing = gauge("holdfast_history_prune_failing", "1 while the history cannot be pruned.")

    def clear(self) -> None:
        """Reset what only a leader knows."""
        self.outbox.set(0)
        self.objects.clear()
