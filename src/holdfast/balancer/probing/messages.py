"""What the prober and the balancer say to each other: whom to probe and how often, and what was found.

Orders are level: an `Assignment` is the whole list, and what did not change in it keeps its cadence. A `ProbeReport`
comes
several times a second also when nothing was found, so that silence means that the prober is gone (gate `no_prober`).
A failed result that is `late` proves nothing about the backend: the prober itself was away (B14). Health must count
`ProbeResult.failed`, which knows that, and never `not passed`.
"""

from __future__ import annotations

from enum import Enum, StrEnum

import msgspec

from holdfast.config.sections.healthcheck import HealthCheck
from holdfast.model.base.time import Duration, Instant, seconds

REPORT_EVERY = seconds(0.25)
"""A prober that has something to say says it at once; with nothing to say it reports this often."""


class ProbeCode(StrEnum):
    """How far a probe came, in HAProxy's words: L3 is the network, L4 TCP, L6 TLS, L7 the application."""

    L3OK = "L3OK"
    L3TOUT = "L3TOUT"
    L3UNR = "L3UNR"
    L4OK = "L4OK"
    L4TOUT = "L4TOUT"
    L4CON = "L4CON"
    L6OK = "L6OK"
    L6TOUT = "L6TOUT"
    L6RSP = "L6RSP"
    L7OK = "L7OK"
    L7TOUT = "L7TOUT"
    L7STS = "L7STS"
    L7RSP = "L7RSP"
    SOCKERR = "SOCKERR"
    """The probe could not be sent from here (no descriptor, no such source address): says nothing of the backend."""


class ProbeInterval(Enum):
    """Which of a target's intervals applies; health decides."""

    NORMAL = "normal"
    FAST = "fast"
    DOWN = "down"


class TargetSpec(msgspec.Struct, frozen=True):
    """One target to probe. The balancer chooses the id: a backend, or a backend and one of its checks."""

    id: str
    address: str
    port: int = 0
    """Port to probe; `check.port` is already taken into account."""
    check: HealthCheck = HealthCheck(type="tcp")
    backend_header: str = ""
    """Response header that names the backend which answered; empty: none is read."""


class ProbeResult(msgspec.Struct, frozen=True, gc=False):
    """What one probe found."""

    target: str
    passed: bool
    code: ProbeCode
    latency: Duration
    """From the start to the verdict."""
    started: Instant
    late: bool = False
    """The prober was late when the probe started, or away while it ran."""
    detail: str = ""
    """One sentence for people; empty when the code says it all."""
    answered_by: str = ""
    """The value of the header that `TargetSpec.backend_header` names."""

    @property
    def failed(self) -> bool:
        """Whether this counts against the backend."""
        return not (self.passed or self.late or self.code is ProbeCode.SOCKERR)


class Assignment(msgspec.Struct, frozen=True, tag="assignment"):
    """All that is to be probed from now on, and from which network namespace (empty: the prober's own)."""

    targets: tuple[TargetSpec, ...]
    paces: dict[str, ProbeInterval] = {}
    """Targets that are not at their normal pace."""
    namespace: str = ""


class IntervalChange(msgspec.Struct, frozen=True, tag="paced"):
    """The pace of some targets has changed."""

    paces: dict[str, ProbeInterval]


Order = Assignment | IntervalChange


class ProbeReport(msgspec.Struct, frozen=True):
    """What was found since the last report, and how the prober itself is doing."""

    sent: Instant
    results: tuple[ProbeResult, ...] = ()
    targets: int = 0
    """How many targets it is probing: 0 right after its start, until it has its orders."""
    worst_lateness: Duration = Duration(0)
    """The latest start since the last report."""
    trouble: str = ""
    """Why it cannot probe as it was told, in one sentence; empty when it can."""
