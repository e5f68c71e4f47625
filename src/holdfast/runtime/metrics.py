"""Metrics that every worker keeps and serves on its control socket.

The supervisor merges those of all workers into one exposition (`holdfast.runtime.daemon.commands`).
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from holdfast import __version__


class WorkerMetrics:
    """Metrics common to all workers. Labels are bounded: gates and reasons are enums, never names of objects."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.backlog = Gauge("holdfast_backlog", "Objects waiting to be handled.", registry=self.registry)
        self.lag = Gauge("holdfast_lag_seconds", "Age of the oldest waiting change.", registry=self.registry)
        self.writes = Counter(
            "holdfast_changes", "Changes applied, by operation and outcome.", ["op", "outcome"], registry=self.registry
        )
        self.closed = Gauge(
            "holdfast_gate_closed", "Changes held, by gate and reason.", ["gate", "reason"], registry=self.registry
        )
        self.loop_lag = Gauge(
            "holdfast_event_loop_lag_seconds", "Delay of the last event loop wake-up.", registry=self.registry
        )
        self.decisions_lost = Gauge(
            "holdfast_decisions_lost",
            "Decisions that could not be written to the decision log.",
            registry=self.registry,
        )
        build = Gauge("holdfast_build_info", "Version of this process.", ["version"], registry=self.registry)
        build.labels(version=__version__).set(1)

    def held(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Set the number of changes that each (gate, reason) holds now; the other series disappear."""
        self.closed.clear()
        for (gate, reason), count in counts.items():
            self.closed.labels(gate=gate, reason=reason).set(count)

    def text(self) -> str:
        return generate_latest(self.registry).decode()
