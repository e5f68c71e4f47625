"""Metrics: each worker keeps a registry and serves it on its socket; whoever asks the daemon gets all of them as one.

Families of the same name are merged and every sample gets a `worker` label, so that Prometheus sees one target per
daemon. A worker that does not answer costs only its own samples, and is seen as `holdfast_worker_up 0`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from holdfast import __version__
from holdfast.runtime.daemon.report import WorkerReport


class _Fixed:
    """Hands ready-made families to the text encoder."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


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


def gather(texts: Mapping[str, str | None]) -> str:
    """One exposition of all workers' expositions; None stands for a worker that did not answer."""
    families: dict[str, Metric] = {}
    up = GaugeMetricFamily("holdfast_worker_up", "Whether the worker answered when asked.", labels=["worker"])
    for worker, text in texts.items():
        parsed = _families(text)
        up.add_metric([worker], 0 if parsed is None else 1)
        for family in parsed or ():
            merged = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            merged.samples.extend(_labelled(sample, worker) for sample in family.samples)
    return _exposition([*families.values(), up])


def of_report(workers: Iterable[WorkerReport]) -> str:
    """What the supervisor knows of its workers, as an exposition of its own: it answers also when none of them does."""
    restarts = GaugeMetricFamily("holdfast_worker_restarts", "Restarts in the last 24 hours.", labels=["worker"])
    looping = GaugeMetricFamily("holdfast_worker_crash_looping", "Whether it is crash-looping.", labels=["worker"])
    overdue = GaugeMetricFamily("holdfast_resync_overdue", "Whether its audit is overdue.", labels=["worker"])
    for worker in workers:
        restarts.add_metric([worker.name], worker.restarts)
        looping.add_metric([worker.name], worker.crash_looping)
        overdue.add_metric([worker.name], worker.verdict == "overdue")
    return _exposition([restarts, looping, overdue])


def _exposition(families: Iterable[Metric]) -> str:
    registry = CollectorRegistry()
    registry.register(_Fixed(families))
    return generate_latest(registry).decode()


def _families(text: str | None) -> list[Metric] | None:
    """None: no answer, or one that makes no sense."""
    if text is None:
        return None
    try:
        return list(text_string_to_metric_families(text))
    except ValueError:
        return None


def _labelled(sample: Sample, worker: str) -> Sample:
    return Sample(sample.name, {**sample.labels, "worker": worker}, sample.value, sample.timestamp, sample.exemplar)
