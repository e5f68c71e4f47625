"""Observation: what probes from outside say about one address, while they come in.

Latencies are those of the last hundred answers; counts are since the start. A probe that failed while the prober
itself was late proves nothing and is only counted as late.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from holdfast.balancer.results import Result
from holdfast.model.base.time import Duration

WINDOW = 100
_MILLISECOND = Duration(milliseconds=1)
QUANTILES = (0.5, 0.95, 0.99)


@dataclass(slots=True)
class Observation:
    """All that is known of one target."""

    name: str
    probes: int = 0
    passed: int = 0
    late: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    """Failures by code."""
    answered_by: Counter[str] = field(default_factory=Counter)
    last_error: str = ""
    _latencies: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def note(self, result: Result) -> None:
        self.probes += 1
        if result.passed:
            self.passed += 1
            self._latencies.append(result.latency / _MILLISECOND)
            if result.answered_by:
                self.answered_by[result.answered_by] += 1
        elif result.late:
            self.late += 1
        else:
            self.errors[result.code.value] += 1
            self.last_error = f"{result.code.value} {result.detail}".rstrip()

    @property
    def failed(self) -> int:
        return self.errors.total()

    @property
    def success(self) -> float:
        """The share of probes with a meaning that passed, from 0 to 1."""
        known = self.passed + self.failed
        return self.passed / known if known else 0.0

    def latencies(self) -> dict[str, float]:
        """p50, p95, p99 and max of the last answers, in milliseconds; nothing without an answer."""
        ordered = sorted(self._latencies)
        if not ordered:
            return {}
        at = {f"p{quantile * 100:g}": min(len(ordered) - 1, int(len(ordered) * quantile)) for quantile in QUANTILES}
        return {**{name: ordered[index] for name, index in at.items()}, "max": ordered[-1]}

    def summary(self) -> dict[str, Any]:
        return {
            "target": self.name,
            "probes": self.probes,
            "passed": self.passed,
            "failed": self.failed,
            "late": self.late,
            "latency_ms": {name: round(value, 3) for name, value in self.latencies().items()},
            "errors": dict(self.errors.most_common()),
            "answered_by": dict(self.answered_by.most_common()),
            "last_error": self.last_error,
        }
