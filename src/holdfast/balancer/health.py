"""Health: what probe results and an operator's word make of one backend.

Everything that moves a backend from state to state is in this file, as the table `TRANSITIONS`; an event that a state
does not know raises `Impossible`. Results are counted in a row and snap back (B7): `fall` failures in a row take a
backend down, one pass among them starts the count anew, and so for `rise`. From unknown one result decides, but a
backend that the dataplane was found serving with, or that was up when its check changed, needs `fall` failures (B25).
A late prober's failure is no failure (B14).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from holdfast.balancer.probing.messages import Pace
from holdfast.model.base.time import NEVER, Instant


class State(Enum):
    """What a backend is. `UNKNOWN` is not a real state: it says that nobody knows yet."""

    UNKNOWN = "unknown"
    UP = "up"
    DOWN = "down"
    PAUSED = "paused"
    DISABLED = "disabled"
    REMOVED = "removed"


class Event(Enum):
    """What can happen to a backend."""

    PASSED = "passed"
    FAILED = "failed"
    LATE = "prober_late"
    PAUSE = "pause"
    RESUME = "resume"
    DISABLE = "disable"
    ENABLE = "enable"
    REMOVE = "remove"


class Impossible(ValueError):
    """The event makes no sense in this state; the message is one sentence for the person who asked."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How many results in a row change a verdict."""

    rise: int = 2
    fall: int = 3


@dataclass(frozen=True, slots=True)
class Count:
    """One check of a backend: its verdict (unknown, up or down) and how many results in a row speak against it."""

    verdict: State = State.UNKNOWN
    against: int = 0
    careful: bool = False
    """An unknown verdict that one failure must not turn into down: traffic is being served (B25)."""

    @property
    def pace(self) -> Pace:
        """Normal when fully up, slow when fully down, fast while undecided or degraded."""
        if self.against or self.verdict is State.UNKNOWN:
            return Pace.FAST
        return Pace.NORMAL if self.verdict is State.UP else Pace.DOWN


@dataclass(frozen=True, slots=True)
class Health:
    """One backend. `counts` has one entry per configured check; a backend without any is up."""

    state: State = State.UNKNOWN
    counts: Mapping[str, Count] = field(default_factory=dict)
    since: Instant = NEVER
    why: str = "not probed yet"

    @property
    def is_known(self) -> bool:
        return self.state is not State.UNKNOWN


@dataclass(frozen=True, slots=True)
class Signal:
    """An event with its circumstances: which check found it and by which rules it counts, or who asked and why."""

    event: Event
    why: str
    check: str = ""
    rules: Rules = Rules()


def fresh(checks: Iterable[str], now: Instant, *, serving: bool = False) -> Health:
    """A backend of which nothing is known; `serving`: the dataplane was found sending it new flows."""
    counts = {check: Count(careful=serving) for check in checks}
    if not counts:
        return Health(State.UP, counts, now, "it has no health check")
    return Health(State.UNKNOWN, counts, now)


def rechecked(health: Health, checks: Iterable[str], changed: Iterable[str]) -> Health:
    """The same backend with other checks: its state stays until the new ones have a verdict (B5)."""
    anew = set(changed)
    careful = health.state is State.UP
    kept = {check: count for check, count in health.counts.items() if check not in anew}
    return replace(health, counts={check: kept.get(check, Count(careful=careful)) for check in checks})


def step(health: Health, signal: Signal, now: Instant) -> Health:
    """Carries a backend one event further. Raises `Impossible` for what its state does not know."""
    move = TRANSITIONS.get((health.state, signal.event))
    if move is None:
        raise Impossible(f"a backend that is {health.state.value} cannot {_VERBS[signal.event]}")
    return move(health, signal, now)


def _probed(health: Health, signal: Signal, now: Instant) -> Health:
    before = health.counts.get(signal.check)
    if before is None:  # a result of a check that a reload has taken away meanwhile
        return health
    passed = signal.event is Event.PASSED
    counts = {**health.counts, signal.check: _counted(before, signal.rules, passed=passed)}
    verdict = _combined(counts.values())
    if verdict in (State.UNKNOWN, health.state):
        return replace(health, counts=counts)
    return Health(verdict, counts, now, signal.why)


def _counted(count: Count, rules: Rules, *, passed: bool) -> Count:
    """B7: consecutive, and snapping: what agrees with the verdict forgets all that spoke against it."""
    if count.verdict is State.UNKNOWN:
        if passed:
            return Count(State.UP)
        enough = not count.careful or count.against + 1 >= rules.fall
        return Count(State.DOWN) if enough else replace(count, against=count.against + 1)
    agrees = passed == (count.verdict is State.UP)
    if agrees:
        return Count(count.verdict)
    against = count.against + 1
    if against < (rules.rise if passed else rules.fall):
        return replace(count, against=against)
    return Count(State.UP if passed else State.DOWN)


def _combined(counts: Iterable[Count]) -> State:
    """All checks must pass; until each has a verdict, only a failed one decides."""
    verdicts = {count.verdict for count in counts}
    if State.DOWN in verdicts:
        return State.DOWN
    return State.UP if verdicts == {State.UP} else State.UNKNOWN


def _nothing(health: Health, signal: Signal, now: Instant) -> Health:
    return health


def _to(state: State) -> Callable[[Health, Signal, Instant], Health]:
    return lambda health, signal, now: Health(state, health.counts, now, signal.why)


def _anew(health: Health, signal: Signal, now: Instant) -> Health:
    """Back from an operator's hold: what was known before it is too old to count."""
    return fresh(health.counts, now)


_IN_FLIGHT = (Event.PASSED, Event.FAILED, Event.LATE)
"""A probe that was under way when the backend was paused, disabled or removed still comes home."""

TRANSITIONS: Mapping[tuple[State, Event], Callable[[Health, Signal, Instant], Health]] = {
    **{(state, Event.PASSED): _probed for state in (State.UNKNOWN, State.UP, State.DOWN)},
    **{(state, Event.FAILED): _probed for state in (State.UNKNOWN, State.UP, State.DOWN)},
    **{(state, Event.LATE): _nothing for state in (State.UNKNOWN, State.UP, State.DOWN)},
    **{(state, Event.PAUSE): _to(State.PAUSED) for state in (State.UNKNOWN, State.UP, State.DOWN)},
    **{(state, Event.DISABLE): _to(State.DISABLED) for state in (State.UNKNOWN, State.UP, State.DOWN, State.PAUSED)},
    (State.PAUSED, Event.RESUME): _anew,
    (State.DISABLED, Event.ENABLE): _anew,
    **{(state, Event.REMOVE): _to(State.REMOVED) for state in State if state is not State.REMOVED},
    **{(state, event): _nothing for state in (State.PAUSED, State.DISABLED, State.REMOVED) for event in _IN_FLIGHT},
}

_VERBS: Mapping[Event, str] = {
    Event.PASSED: "pass a check",
    Event.FAILED: "fail a check",
    Event.LATE: "be probed late",
    Event.PAUSE: "be paused",
    Event.RESUME: "be resumed",
    Event.DISABLE: "be disabled",
    Event.ENABLE: "be enabled",
    Event.REMOVE: "be removed",
}
