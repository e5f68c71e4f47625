"""Metrics of the balancer and its prober, as they are scraped."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from holdfast.balancer.health import HealthState
from holdfast.balancer.metrics import BalancerMetrics
from holdfast.balancer.peers.digest import Digests
from holdfast.balancer.probing.worker import ProberMetrics

DIGESTS = Digests("t", "c", "h", "i")


def test_each_backend_shows_the_state_that_it_is_in_and_goes_with_its_configuration() -> None:
    registry = CollectorRegistry()
    metrics = BalancerMetrics(registry)

    def state(backend: str, state: str) -> float | None:
        return registry.get_sample_value("holdfast_backend_state", {"backend": backend, "state": state})

    metrics.show({"web-1": HealthState.UP, "web-2": HealthState.UP}, {}, DIGESTS)
    assert state("web-2", "up") == 1
    metrics.show({"web-2": HealthState.DOWN}, {}, DIGESTS)
    assert (state("web-1", "up"), state("web-2", "up"), state("web-2", "down")) == (None, None, 1)
    assert registry.get_sample_value("holdfast_backends", {"state": "down"}) == 1
    assert registry.get_sample_value("holdfast_backends", {"state": "up"}) == 0


def test_probe_times_are_those_of_the_targets_that_pass_now() -> None:
    registry, latest = CollectorRegistry(), {f"t{number}": number * 1_000_000 for number in range(1, 101)}
    ProberMetrics(registry, lambda: latest)

    def quantile(which: str) -> float | None:
        return registry.get_sample_value("holdfast_probe_seconds", {"quantile": which})

    assert (quantile("0.5"), quantile("1")) == (0.051, 0.1)
    latest = {"t1": 7_000_000, "t2": -1}
    assert quantile("1") == 0.007
    latest = {"t2": -1}
    assert quantile("0.5") == 0
