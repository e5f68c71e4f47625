"""Metrics of the balancer. The configuration bounds the number of label values."""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge

from holdfast.balancer.health import HealthState
from holdfast.balancer.peers.digest import Digests


class BalancerMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.transitions = Counter(
            "holdfast_backend_transitions",
            "State changes of backends, by new state.",
            ["state"],
            registry=registry,
        )
        self.moved = Counter(
            "holdfast_maglev_buckets_moved", "Buckets that moved to another backend.", registry=registry
        )
        self.backends = Gauge("holdfast_backends", "Backends, by state.", ["state"], registry=registry)
        self.backend_state = Gauge(
            "holdfast_backend_state", "1 for the state that the backend is in.", ["backend", "state"], registry=registry
        )
        self.frontend_up = Gauge(
            "holdfast_frontend_up", "Whether the frontend has a backend that serves.", ["frontend"], registry=registry
        )
        self.frontend_panic = Gauge(
            "holdfast_frontend_panic",
            "Whether the frontend is in panic and serves with all its backends.",
            ["frontend"],
            registry=registry,
        )
        self.digest = Gauge(
            "holdfast_balancer_digest_info",
            "Digests of the programmed table and of its inputs; equal on equal peers.",
            ["table", "configuration", "health", "intents"],
            registry=registry,
        )
        self.peers = Gauge(
            "holdfast_peers_differing",
            "Peers with a different table, by the input that differs.",
            ["input"],
            registry=registry,
        )

    def show(
        self, backends: Mapping[str, HealthState], frontends: Mapping[str, tuple[bool, bool]], digests: Digests
    ) -> None:
        """Set all gauges. `frontends` has (up, panic) per frontend; what is gone from the configuration disappears."""
        counts = Counted(backends.values())
        for state in HealthState:
            self.backends.labels(state=state.value).set(counts[state])
        self.backend_state.clear()
        for name, is_in in backends.items():
            self.backend_state.labels(backend=name, state=is_in.value).set(1)
        self.frontend_up.clear()
        self.frontend_panic.clear()
        for name, (up, panic) in frontends.items():
            self.frontend_up.labels(frontend=name).set(up)
            self.frontend_panic.labels(frontend=name).set(panic)
        self.digest.clear()
        self.digest.labels(digests.table, digests.configuration, digests.health, digests.intents).set(1)
