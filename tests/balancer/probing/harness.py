"""A prober that a test turns itself, until it has as many results as wanted."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from holdfast.balancer.probing.messages import ProbeInterval, ProbeResult, TargetSpec
from holdfast.balancer.probing.prober import Prober
from holdfast.config.sections.healthcheck import HealthCheck
from holdfast.model.base.time import Duration, Instant, nanoseconds, seconds
from holdfast.runtime.clock import SystemClock
from holdfast.testing.real.processes import wait_until

PATIENT = seconds(20)
"""A timeout that no loaded machine reaches by accident."""
NOW = SystemClock().now


class ManualProber:
    """Turns a prober, and collects its results."""

    def __init__(self, now: Callable[[], Instant] = NOW, networks: Sequence[str] = ()) -> None:
        self.results: list[ProbeResult] = []
        self.lateness: list[int] = []
        self.prober = Prober(
            lambda: now().ns, lambda: 0.0, self.results.append, self.lateness.append, networks=networks
        )

    def assign(
        self,
        *targets: TargetSpec,
        intervals: Mapping[str, ProbeInterval] | None = None,
        first_within: Duration = Duration(0),
    ) -> None:
        self.prober.assign(targets, intervals or {}, nanoseconds(first_within))

    def turn(self, most: float = 0.02) -> None:
        """One turn, and a short wait for whatever comes next."""
        self.prober.turn()
        select.select([self.prober], [], [], most)
        self.prober.turn()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        def turned() -> bool:
            self.turn()
            return condition()

        wait_until(turned, what)

    def collect(self, count: int) -> Sequence[ProbeResult]:
        """The next so many results."""
        before = len(self.results)
        self.until(lambda: len(self.results) >= before + count, f"{count} results")
        return self.results[before : before + count]


@contextmanager
def manual_prober(now: Callable[[], Instant] = NOW, networks: Sequence[str] = ()) -> Iterator[ManualProber]:
    made = ManualProber(now, networks)
    try:
        yield made
    finally:
        made.prober.close()


def probe(address: str, port: int, *, backend_header: str = "", **settings: object) -> ProbeResult:
    """One probe of one target."""
    check = HealthCheck(**{"type": "tcp", "timeout": PATIENT, "interval": Duration(milliseconds=1), **settings})  # type: ignore[arg-type]
    with manual_prober() as prober:
        prober.assign(TargetSpec("backend", address, port, check, backend_header))
        (result,) = prober.collect(1)
    return result
