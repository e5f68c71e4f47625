"""Metrics that every worker keeps and serves on its control socket.

The supervisor merges those of all workers into one exposition (`holdfast.runtime.daemon.commands`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from holdfast import __version__
from holdfast.store.boottime import Now, boot_now
from holdfast.store.contact import StoreContact, WatchRestart


class StoreMetrics:
    """Collector: time since the store answered, and how often watches began again, computed when it is scraped."""

    def __init__(self, contact: StoreContact, now: Now) -> None:
        self._contact, self._now = contact, now

    def collect(self) -> Iterator[Metric]:
        since = max(0.0, (self._now() - self._contact.last).total_seconds())
        yield GaugeMetricFamily(
            "holdfast_store_last_contact_seconds", "Time since the last answer or event of the store.", value=since
        )
        restarts = CounterMetricFamily(
            "holdfast_watch_restarts", "Watches of the store that began again, by reason.", labels=["reason"]
        )
        for reason in WatchRestart:
            restarts.add_metric([reason.value], self._contact.restarts[reason])
        yield restarts


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

    def follow(self, contact: StoreContact, now: Now = boot_now) -> None:
        """Show the contact with the store of this worker."""
        self.registry.register(StoreMetrics(contact, now))

    def text(self) -> str:
        return generate_latest(self.registry).decode()
