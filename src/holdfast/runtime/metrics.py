"""Metrics: each worker keeps a registry and serves it on its socket; whoever asks the daemon gets all of them as one.

Families of the same name are merged and every sample gets a `worker` label, so that Prometheus sees one target per
daemon. A worker that does not answer costs only its own samples, and is seen as `holdfast_worker_up 0`.
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from holdfast import __version__


class WorkerMetrics:
    """What every worker measures. Labels are bounded: gates and reasons are enums, never names of objects."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.backlog = Gauge("holdfast_backlog", "Objects that wait to be handled.", registry=self.registry)
        self.lag = Gauge("holdfast_lag_seconds", "Age of the oldest waiting change.", registry=self.registry)
        self.writes = Counter(
            "holdfast_changes", "Changes applied, by operation and outcome.", ["op", "outcome"], registry=self.registry
        )
        self.closed = Gauge(
            "holdfast_gate_closed", "Changes held, by gate and reason.", ["gate", "reason"], registry=self.registry
        )
        self.loop_lag = Gauge(
            "holdfast_event_loop_lag_seconds", "How late the event loop last woke.", registry=self.registry
        )
        self.decisions_lost = Gauge(
            "holdfast_decisions_lost", "Decisions that could not be written down.", registry=self.registry
        )
        build = Gauge("holdfast_build_info", "Version of this process.", ["version"], registry=self.registry)
        build.labels(version=__version__).set(1)

    def held(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Sets how many changes each (gate, reason) holds now; those that hold nothing any more disappear."""
        self.closed.clear()
        for (gate, reason), count in counts.items():
            self.closed.labels(gate=gate, reason=reason).set(count)

    def text(self) -> str:
        return generate_latest(self.registry).decode()
