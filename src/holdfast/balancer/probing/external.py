"""Probing from outside, for `holdfast probe`: targets from URLs or frontends, and statistics per target.

Latencies are those of the last hundred answers; counts are since the start. A failure of a late prober proves nothing
and counts only as late.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import msgspec

from holdfast.balancer.probing.checks import registry
from holdfast.balancer.probing.messages import ProbeResult, TargetSpec
from holdfast.config.sections.frontend import Frontend
from holdfast.config.sections.healthcheck import HealthCheck
from holdfast.model.base.time import Duration

WINDOW = 100
_MILLISECOND = Duration(milliseconds=1)
QUANTILES = (0.5, 0.95, 0.99)


@dataclass(slots=True)
class Observation:
    """Statistics of one target."""

    name: str
    probes: int = 0
    passed: int = 0
    late: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    """Failures by code."""
    answered_by: Counter[str] = field(default_factory=Counter)
    last_error: str = ""
    _latencies: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def note(self, result: ProbeResult) -> None:
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
        """Share of passed probes among those that count, from 0 to 1."""
        known = self.passed + self.failed
        return self.passed / known if known else 0.0

    def latencies(self) -> dict[str, float]:
        """p50, p95, p99 and max of the last answers, in milliseconds; empty without an answer."""
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


_PORTS = {"http": 80, "https": 443}


class NotAUrl(Exception):
    """The text is not a URL that can be probed; the message is one sentence for the user."""


class Url(msgspec.Struct, frozen=True):
    """A parsed URL: the host to resolve, and the check."""

    text: str
    host: str
    port: int
    check: HealthCheck

    @classmethod
    def parse(cls, text: str, like: HealthCheck) -> Url:
        """Parse a URL. `like` has the interval, timeout and all other settings that a URL does not have."""
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError as error:
            raise NotAUrl(f"{text!r} is not a URL: {error}") from error
        if parts.scheme not in registry() or not parts.hostname:
            kinds = ", ".join(f"{name}://" for name in registry())
            raise NotAUrl(f"{text!r} cannot be probed: write one of {kinds} with a host, such as tcp://192.0.2.1:53")
        port = port or _PORTS.get(parts.scheme)
        if port is None and parts.scheme != "icmp":
            raise NotAUrl(f"{text!r} has no port: write {parts.scheme}://{parts.hostname}:PORT")
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        host = like.host or parts.netloc.rpartition("@")[2]
        check = msgspec.structs.replace(like, type=parts.scheme, path=path, host=host)
        return cls(text, parts.hostname, port or 0, check)

    def at(self, address: str, *, only: bool, backend_header: str = "") -> TargetSpec:
        """Target at one of the host's addresses."""
        name = self.text if only else f"{self.text} [{address}]"
        return TargetSpec(name, address, self.port, self.check, backend_header)


def of_frontends(
    frontends: Mapping[str, Frontend], check: HealthCheck, backend_header: str = ""
) -> tuple[list[TargetSpec], list[str]]:
    """Targets for the frontends that this check can probe, and a sentence for each of the others."""
    targets, left_out = [], []
    for name, frontend in frontends.items():
        if check.type != "icmp" and (frontend.protocol == "udp" or not frontend.port):
            what = "uses udp" if frontend.protocol == "udp" else "has no single port"
            left_out.append(f"frontend {name} {what}: probe it with --type icmp, or by a --url")
        else:
            targets.append(TargetSpec(name, frontend.address, frontend.port, check, backend_header))
    return targets, left_out
