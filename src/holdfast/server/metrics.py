"""What the election measures."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from holdfast.model.time import Instant
from holdfast.server.leadership import Shown


class ElectionMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.leader = Gauge("holdfast_leader", "1 while this server leads.", registry=registry)
        self.known = Gauge("holdfast_leader_known", "1 while this server knows of a leader.", registry=registry)
        self.term = Gauge("holdfast_term", "The term this server leads in, else 0.", registry=registry)
        self.remaining = Gauge(
            "holdfast_lease_remaining_seconds", "For how long leadership may still be believed.", registry=registry
        )
        self.transitions = Counter(
            "holdfast_leader_transitions", "Leaderships that began or ended here.", registry=registry
        )

    def show(self, shown: Shown, now: Instant) -> None:
        leading = shown.phase == "leading" and now < shown.until
        self.leader.set(int(leading))
        self.known.set(int(bool(shown.leader)))
        self.term.set(shown.term if leading else 0)
        self.remaining.set(max(0.0, (shown.work_until - now).total_seconds()) if leading else 0)
