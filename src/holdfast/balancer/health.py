"""Health: the state machine of one backend, driven by probe results and operator commands.

Everything that moves a backend from state to state is in this file, as the table `TRANSITIONS`; an event that a state
does not know raises `InvalidEvent`. Results are counted in a row and snap back (B7): `fall` failures in a row take a
backend down, and one pass among them restarts the count; `rise` works the same way. From unknown one result decides,
but a backend that was serving when the dataplane was read at the start, or that was up when its check changed, needs
`fall` failures (B25). A failure reported by a late prober does not count (B14).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from holdfast.balancer.probing.messages import ProbeInterval
from holdfast.model.base.time import NEVER, Instant


class HealthState(Enum):
    """State of a backend. `UNKNOWN` is not a real state: no result has decided it yet."""

    UNKNOWN = "unknown"
    UP = "up"
    DOWN = "down"
    PAUSED = "paused"
    DISABLED = "disabled"
    REMOVED = "removed"


class HealthEvent(Enum):
    """Events of a backend."""

    PASSED = "passed"
    FAILED = "failed"
    LATE = "prober_late"
    PAUSE = "pause"
    RESUME = "resume"
    DISABLE = "disable"
    ENABLE = "enable"
    REMOVE = "remove"


class InvalidEvent(ValueError):
    """The event is not valid in this state; the message is one sentence for the operator."""


@dataclass(frozen=True, slots=True)
class HealthThresholds:
    """Number of results in a row that change a verdict."""

    rise: int = 2
    fall: int = 3


@dataclass(frozen=True, slots=True)
class CheckCount:
    """One check of a backend: its verdict (unknown, up or down) and the number of results in a row against it."""

    verdict: HealthState = HealthState.UNKNOWN
    against: int = 0
    careful: bool = False
    """One failure must not turn an unknown verdict into down, because the backend may be serving traffic (B25)."""

    @property
    def interval(self) -> ProbeInterval:
        """Normal when fully up, slow when fully down, fast while undecided or degraded."""
        if self.against or self.verdict is HealthState.UNKNOWN:
            return ProbeInterval.FAST
        return ProbeInterval.NORMAL if self.verdict is HealthState.UP else ProbeInterval.DOWN


@dataclass(frozen=True, slots=True)
class Health:
    """One backend. `counts` has one entry per configured check; a backend without any is up."""

    state: HealthState = HealthState.UNKNOWN
    counts: Mapping[str, CheckCount] = field(default_factory=dict)
    since: Instant = NEVER
    why: str = "not probed yet"
    probed: bool = False
    """True once a result has counted, also if an operator's hold has made the state unknown again."""

    @property
    def is_newcomer(self) -> bool:
        """True for a backend that was never probed, and is not known to serve already (B30)."""
        return not self.is_known and not self.probed and not any(count.careful for count in self.counts.values())

    @property
    def is_known(self) -> bool:
        return self.state is not HealthState.UNKNOWN


@dataclass(frozen=True, slots=True)
class Signal:
    """An event with its reason, and for a probe result with the check and its thresholds."""

    event: HealthEvent
    why: str
    check: str = ""
    rules: HealthThresholds = HealthThresholds()


def fresh(checks: Iterable[str], now: Instant, *, serving: bool = False) -> Health:
    """Health of a backend that has not been probed. `serving`: the dataplane sends it new flows (protection: B25)."""
    counts = {check: CheckCount(careful=serving) for check in checks}
    if not counts:
        return Health(HealthState.UP, counts, now, "it has no health check")
    return Health(HealthState.UNKNOWN, counts, now)


def rechecked(health: Health, checks: Iterable[str], changed: Iterable[str], now: Instant) -> Health:
    """Health after a change of the checks: the state stays until the new checks have a verdict (B5).

    Without any check left the backend is up, whatever the old ones said (B32).
    """
    restarted, names = set(changed), list(checks)
    if not names and health.state in (HealthState.UNKNOWN, HealthState.DOWN):  # protection: B32
        return replace(fresh((), now), probed=health.probed)
    careful = health.state is HealthState.UP
    kept = {check: count for check, count in health.counts.items() if check not in restarted}
    return replace(health, counts={check: kept.get(check, CheckCount(careful=careful)) for check in names})


def step(health: Health, signal: Signal, now: Instant) -> Health:
    """Apply one event. Raises `InvalidEvent` when the state does not know it."""
    move = TRANSITIONS.get((health.state, signal.event))
    if move is None:
        raise InvalidEvent(f"a backend that is {health.state.value} cannot {_VERBS[signal.event]}")
    return move(health, signal, now)


def _probed(health: Health, signal: Signal, now: Instant) -> Health:
    before = health.counts.get(signal.check)
    if before is None:  # a late result of a check that a reload has removed
        return health
    passed = signal.event is HealthEvent.PASSED
    counts = {**health.counts, signal.check: _counted(before, signal.rules, passed=passed)}
    verdict = _combined(counts.values())
    if verdict in (HealthState.UNKNOWN, health.state):
        return replace(health, counts=counts, probed=True)
    return Health(verdict, counts, now, signal.why, probed=True)


def _counted(count: CheckCount, rules: HealthThresholds, *, passed: bool) -> CheckCount:
    """Count one result; one that agrees with the verdict resets the count (protection: B7)."""
    if count.verdict is HealthState.UNKNOWN:
        if passed:
            return CheckCount(HealthState.UP)
        enough = not count.careful or count.against + 1 >= rules.fall
        return CheckCount(HealthState.DOWN) if enough else replace(count, against=count.against + 1)
    agrees = passed == (count.verdict is HealthState.UP)
    if agrees:
        return CheckCount(count.verdict)
    against = count.against + 1
    if against < (rules.rise if passed else rules.fall):
        return replace(count, against=against)
    return CheckCount(HealthState.UP if passed else HealthState.DOWN)


def _combined(counts: Iterable[CheckCount]) -> HealthState:
    """Combine the checks: all must pass; until each has a verdict, only a failed one decides."""
    verdicts = {count.verdict for count in counts}
    if HealthState.DOWN in verdicts:
        return HealthState.DOWN
    return HealthState.UP if verdicts == {HealthState.UP} else HealthState.UNKNOWN


def _nothing(health: Health, signal: Signal, now: Instant) -> Health:
    return health


def _to(state: HealthState) -> Callable[[Health, Signal, Instant], Health]:
    return lambda health, signal, now: Health(state, health.counts, now, signal.why, health.probed)


def _restarted(health: Health, signal: Signal, now: Instant) -> Health:
    """End an operator's hold: the health from before it is too old to count."""
    return replace(fresh(health.counts, now), probed=health.probed)


_RESULTS = (HealthEvent.PASSED, HealthEvent.FAILED, HealthEvent.LATE)
"""Results that still arrive after the backend was paused, disabled or removed."""

TRANSITIONS: Mapping[tuple[HealthState, HealthEvent], Callable[[Health, Signal, Instant], Health]] = {
    **{(state, HealthEvent.PASSED): _probed for state in (HealthState.UNKNOWN, HealthState.UP, HealthState.DOWN)},
    **{(state, HealthEvent.FAILED): _probed for state in (HealthState.UNKNOWN, HealthState.UP, HealthState.DOWN)},
    **{(state, HealthEvent.LATE): _nothing for state in (HealthState.UNKNOWN, HealthState.UP, HealthState.DOWN)},
    **{
        (state, HealthEvent.PAUSE): _to(HealthState.PAUSED)
        for state in (HealthState.UNKNOWN, HealthState.UP, HealthState.DOWN)
    },
    **{
        (state, HealthEvent.DISABLE): _to(HealthState.DISABLED)
        for state in (HealthState.UNKNOWN, HealthState.UP, HealthState.DOWN, HealthState.PAUSED)
    },
    (HealthState.PAUSED, HealthEvent.RESUME): _restarted,
    (HealthState.DISABLED, HealthEvent.ENABLE): _restarted,
    **{
        (state, HealthEvent.REMOVE): _to(HealthState.REMOVED)
        for state in HealthState
        if state is not HealthState.REMOVED
    },
    **{
        (state, event): _nothing
        for state in (HealthState.PAUSED, HealthState.DISABLED, HealthState.REMOVED)
        for event in _RESULTS
    },
}

_VERBS: Mapping[HealthEvent, str] = {
    HealthEvent.PASSED: "pass a check",
    HealthEvent.FAILED: "fail a check",
    HealthEvent.LATE: "be probed late",
    HealthEvent.PAUSE: "be paused",
    HealthEvent.RESUME: "be resumed",
    HealthEvent.DISABLE: "be disabled",
    HealthEvent.ENABLE: "be enabled",
    HealthEvent.REMOVE: "be removed",
}
