"""Messages between balancer and prober: what to probe and how often, and the results.

Orders are level-based: an `Assignment` is the whole list, and unchanged targets keep their schedule. A `ProbeReport` is
sent several times a second also without results, so that silence means that the prober is gone (gate `no_prober`). A
failed result that is `late` proves nothing about the backend: the prober itself stalled (B14). Health must therefore
count `ProbeResult.failed`, never `not passed`; a result without a route is judged beside the others (B27). Passes of
targets that are up and stay up are only counted: they are nearly all results, and change nothing.
"""

from __future__ import annotations

from enum import Enum, StrEnum

import msgspec

from holdfast.config.sections.healthcheck import HealthCheck
from holdfast.model.base.time import Duration, Instant, seconds

REPORT_EVERY = seconds(0.25)
"""Interval of reports without results; results are reported at once."""


class ProbeCode(StrEnum):
    """Result codes in HAProxy's terms: L3 is the network, L4 TCP, L6 TLS, L7 the application."""

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
    """The probe could not be sent (no descriptor, no such source address): says nothing about the backend."""
    NOROUTE = "NOROUTE"
    """This machine has no route to the backend. Counts against it only while backends elsewhere pass (B27)."""


class ProbeInterval(Enum):
    """The interval of a target that applies; health decides."""

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
    generation: int = 0
    """Number that results of this target carry, so that a late result of an earlier address or check is not taken for
    one of this target."""


class ProbeResult(msgspec.Struct, frozen=True, gc=False):
    """Result of one probe."""

    target: str
    passed: bool
    code: ProbeCode
    latency: Duration
    """Time from the start to the verdict."""
    started: Instant
    late: bool = False
    """The prober started the probe late, or stalled while it ran."""
    detail: str = ""
    """One sentence for people; empty when the code says everything."""
    answered_by: str = ""
    """The value of the header that `TargetSpec.backend_header` names."""
    generation: int = 0
    """Generation of the target that was probed."""

    @property
    def failed(self) -> bool:
        """True if the result counts against the backend."""
        return not (self.passed or self.late or self.code in (ProbeCode.SOCKERR, ProbeCode.NOROUTE))


class Assignment(msgspec.Struct, frozen=True, tag="assignment"):
    """All targets from now on, and the network namespace to probe from (empty: the prober's own)."""

    targets: tuple[TargetSpec, ...]
    intervals: dict[str, ProbeInterval] = {}
    """Targets that are not at their normal interval."""
    namespace: str = ""
    first_within: Duration = Duration(0)
    """Spread the first probes of new targets over this time where their interval is longer; 0 for the interval."""


class IntervalChange(msgspec.Struct, frozen=True, tag="intervals"):
    """Changes the interval of some targets."""

    intervals: dict[str, ProbeInterval]


Order = Assignment | IntervalChange


class ProbeReport(msgspec.Struct, frozen=True):
    """Results since the last report, and the condition of the prober itself."""

    sent: Instant
    results: tuple[ProbeResult, ...] = ()
    targets: int = 0
    """Number of targets; 0 after a start, until the first assignment."""
    trouble: str = ""
    """Reason why the prober cannot probe as assigned, in one sentence; empty when it can."""
    passed: int = 0
    """Passes that are counted here instead of being sent as results: of targets at their normal interval that had
    passed before. They change no health."""
    passing: tuple[str, ...] = ()
    """Targets of the newest such passes, at two addresses: they show that this machine has a network (B27)."""
