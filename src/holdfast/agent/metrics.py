"""Metrics of the agent beyond those of every worker."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge

from holdfast.reconcile import Synced


class AgentMetrics:
    """Labels are bounded: states and kinds are enums, sources come from the configuration."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.peers = Gauge("holdfast_agent_peers", "Other hosts, by state.", ["state"], registry=registry)
        self.claims = Gauge(
            "holdfast_agent_claims", "Objects that may be in the kernel, by kind.", ["kind"], registry=registry
        )
        self.journal_bytes = Gauge("holdfast_agent_journal_bytes", "Bytes of the journal on disk.", registry=registry)
        self.pending_deletes = Gauge(
            "holdfast_agent_pending_deletes",
            "Deletes that not every handler has acknowledged.",
            registry=registry,
        )
        self.oldest_delete = Gauge(
            "holdfast_agent_oldest_delete_seconds", "Age of the oldest pending delete.", registry=registry
        )
        self.source_synced = Gauge(
            "holdfast_agent_source_synced",
            "Whether the source has delivered a complete list.",
            ["source"],
            registry=registry,
        )
        self.unreadable = Gauge(
            "holdfast_agent_source_unreadable",
            "Unreadable values of the source, without an earlier readable version.",
            ["source"],
            registry=registry,
        )
        self.disturbed = Counter(
            "holdfast_agent_kernel_disturbed_total",
            "Times that much of the programmed state may have been removed by another program, or with a device.",
            registry=registry,
        )
        self.conflicts = Gauge(
            "holdfast_agent_conflicts", "Keys that several live owners claim, and refused hosts.", registry=registry
        )

    def show_sources(self, sources: Mapping[str, Synced]) -> None:
        """Sources that are no longer configured disappear."""
        self.source_synced.clear()
        self.unreadable.clear()
        for name, synced in sources.items():
            self.source_synced.labels(source=name).set(synced.revision is not None)
            self.unreadable.labels(source=name).set(len(synced.unreadable))
