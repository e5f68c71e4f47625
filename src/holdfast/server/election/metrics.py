"""Metrics of the election. Gauges are computed when they are scraped: a lease shrinks between renewals."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge

from holdfast.model.base.region import Region
from holdfast.model.base.time import Instant
from holdfast.server.election.leadership import LeadershipCell, is_fresh

Now = Callable[[], Instant]


class ElectionMetrics:
    """`region` distinguishes the fleets of one Prometheus; each has a leader of its own."""

    def __init__(self, registry: CollectorRegistry, now: Now, region: Region) -> None:
        self._now = now
        self._shown = LeadershipCell("following")
        self._registry, self._region = registry, region.name
        self._gauge("holdfast_leader", "1 while this server leads.", lambda: float(self._leads()))
        self._gauge(
            "holdfast_leader_known", "1 while this server knows of a leader.", lambda: float(bool(self._shown.leader))
        )
        self._gauge(
            "holdfast_term", "The term this server leads in, else 0.", lambda: self._shown.term if self._leads() else 0
        )
        self._gauge("holdfast_lease_remaining_seconds", "Remaining time of the leader's lease.", self._remaining)
        self.transitions = Counter(
            "holdfast_leader_transitions", "Leaderships begun or ended here.", ["region"], registry=registry
        ).labels(region.name)

    def show(self, shown: LeadershipCell) -> None:
        self._shown = shown

    def _gauge(self, name: str, what: str, read: Callable[[], float]) -> None:
        Gauge(name, what, ["region"], registry=self._registry).labels(self._region).set_function(read)

    def _leads(self) -> bool:
        return self._shown.phase == "leading" and is_fresh(self._shown, self._now())

    def _remaining(self) -> float:
        return max(0.0, (self._shown.work_until - self._now()).total_seconds()) if self._leads() else 0.0
