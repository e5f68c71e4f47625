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


class CheckSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one target is checked. The fields from `path` on are for http and https only."""

    type: str = "tcp"
    interval: Duration = seconds(1)
    """Start to start."""
    fast_interval: Duration | None = None
    """While undecided or degraded; None: `interval`."""
    down_interval: Duration | None = None
    """While fully down; None: `interval`."""
    timeout: Duration = seconds(1)
    """For the whole probe, from its start to its verdict."""
    jitter: float = 0.1
    """Share of the interval by which each start is moved at random, to either side."""
    source: str = ""
    """Address to probe from; empty: the kernel chooses."""
    path: str = "/"
    host: str = ""
    """The Host header; empty: the address."""
    sni: str = ""
    """The name in the TLS handshake, and the one that the certificate must carry; empty: `host`, or the address."""
    statuses: tuple[tuple[int, int], ...] = ((200, 299),)
    """Ranges of accepted status codes, both ends included. A redirect is a status like any other, never followed."""
    body: str = ""
    """A regular expression that the first 64 KiB of the body must contain; empty: the body does not matter."""
    verify: bool = True
    """Whether the certificate must be valid for the name and signed by a known authority."""
    ca_file: str = ""
    """Authorities to trust; empty: those of this machine."""
    tally: str = ""
    """A response header whose value names who answered; empty: nobody asks."""


class TargetSpec(msgspec.Struct, frozen=True):
    """One thing to probe. The id is the balancer's: a backend, or a backend and one of its checks."""

    id: str
    address: str
    port: int = 0
    check: CheckSettings = CheckSettings()


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
    """The value of the header that `CheckSettings.tally` names."""

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
