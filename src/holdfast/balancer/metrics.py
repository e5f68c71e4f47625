"""What the balancer measures. Labels are bounded by what is configured."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge

from holdfast.balancer.health import HealthState
from holdfast.balancer.peers.digest import Digests


class BalancerMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.transitions = Counter(
            "holdfast_backend_transitions",
            "Changes of state of backends, by the new one.",
            ["state"],
            registry=registry,
        )
        self.moved = Counter("holdfast_buckets_moved", "Buckets that were given to another backend.", registry=registry)
        self.backends = Gauge("holdfast_backends", "Backends, by state.", ["state"], registry=registry)
        self.frontend_up = Gauge(
            "holdfast_frontend_up", "Whether the frontend has a backend that serves.", ["frontend"], registry=registry
        )
        self.frontend_panic = Gauge(
            "holdfast_frontend_panic", "Whether it serves with all its backends.", ["frontend"], registry=registry
        )
        self.digest = Gauge(
            "holdfast_balancer_digest_info",
            "Digest of what is programmed, and of what it was made from; equal on equal peers.",
            ["table", "configuration", "health", "intents"],
            registry=registry,
        )
        self.peers = Gauge(
            "holdfast_peers_differing",
            "Peers with another table, by the input that differs.",
            ["input"],
            registry=registry,
        )

    def show(
        self, backends: Mapping[HealthState, int], frontends: Mapping[str, tuple[bool, bool]], digests: Digests
    ) -> None:
        """Frontends are up, and in panic, or not. What is gone disappears."""
        for state in HealthState:
            self.backends.labels(state=state.value).set(backends.get(state, 0))
        self.frontend_up.clear()
        self.frontend_panic.clear()
        for name, (up, panic) in frontends.items():
            self.frontend_up.labels(frontend=name).set(up)
            self.frontend_panic.labels(frontend=name).set(panic)
        self.digest.clear()
        self.digest.labels(digests.table, digests.configuration, digests.health, digests.intents).set(1)
