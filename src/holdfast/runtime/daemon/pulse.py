"""Pulse: whether a worker is alive and doing its job, and what follows from that.

A worker shows its pulse on the board; the supervisor looks once a second. `judge` reads the signs and gives a verdict:
the first rule of `RULES` that fits; `ACTIONS` says what follows from it, and `holdfast.runtime.daemon.restart` does it.

Promises: a process that exited, hangs, or does not consume is replaced; one that waits for a dependency, or has
finished a one-shot job, is left alone; being away ourselves is never taken for the death of everybody else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

from holdfast.config.sections.pulse import PulseSettings as Bounds
from holdfast.model.base.time import NEVER, Duration, Instant

START_WITHIN = Duration(seconds=30)
"""A fresh interpreter on a busy machine may need long before its first beat. It has as long again whenever it is seen
to get on: one that is ended because the machine gave it no time would be started again and again."""
START_CPU_S = 60.0
"""CPU in which every start is over: one that uses more is not starting, but going round in circles."""


class Pulse(msgspec.Struct, frozen=True):
    """What a worker shows on the board, twice a second, from its own event loop."""

    pid: int
    beat: Instant
    attempt: Instant = NEVER
    """When it last finished trying, with or without success."""
    success: Instant = NEVER
    backlog: int | None = None
    """Objects that wait; None for a worker that has no queue."""
    pending: Instant = NEVER
    """Since when something has been waiting without a break; never, when nothing is."""
    oldest: Instant = NEVER
    """When the oldest waiting change came."""
    state: str = "starting"
    duty: Instant = NEVER
    """By when it promised to have done its duty again (an elector: to have renewed, or looked)."""
    warm: bool = True
    """Whether what it would need to take over at once is at hand, such as a complete mirror."""
    audit: Instant = NEVER
    """By when a resync or audit should have finished again."""
    waiting: Instant = NEVER
    """Since when something that it needs has been away without a break."""


class PulseVerdict(Enum):
    """What the signs mean. The value is how a sentence about the worker goes on."""

    COMPLETED = "has finished its job"
    DEAD = "exited"
    HUNG = "hung"
    STALLED = "stalled"
    NEGLECTS = "neglected its duty"
    WAITING = "waits"
    OVERDUE = "is overdue with its audit"
    STARTING = "is starting"
    HEALTHY = "is healthy"


class Action(Enum):
    REPLACE = "start it again"
    END = "end it and start it again"
    RETIRE = "leave it ended"
    ALERT = "raise an alert"
    NOTHING = "nothing"


ACTIONS: Mapping[PulseVerdict, Action] = {
    PulseVerdict.COMPLETED: Action.RETIRE,
    PulseVerdict.DEAD: Action.REPLACE,
    PulseVerdict.HUNG: Action.END,
    PulseVerdict.STALLED: Action.END,
    PulseVerdict.NEGLECTS: Action.END,
    PulseVerdict.WAITING: Action.NOTHING,
    PulseVerdict.OVERDUE: Action.ALERT,
    PulseVerdict.STARTING: Action.NOTHING,
    PulseVerdict.HEALTHY: Action.NOTHING,
}


@dataclass(frozen=True, slots=True)
class WorkerSigns:
    """All that a verdict is made of."""

    started: Instant
    pulse: Pulse | None = None
    """None until this process has shown one."""
    exit: int | None = None
    once: bool = False
    """A one-shot job: exiting with 0 is what it is for."""
    back: Instant = NEVER
    """When the supervisor itself last came back from having been away. No age is counted from before it."""
    moved: Instant = NEVER
    """When a process that has not shown a pulse was last seen to have used the CPU."""


def came_back(last: Instant, now: Instant, bounds: Bounds) -> bool:
    """Whether the supervisor itself was away since its last look (C26: VM resumed, machine stalled)."""
    return bool(last) and now - last > bounds.grace_after


def is_completed(signs: WorkerSigns) -> bool:
    """C5: a one-shot job that has finished is not dead."""
    return signs.once and signs.exit == 0


def has_exited(signs: WorkerSigns) -> bool:
    return signs.exit is not None


def is_starting(signs: WorkerSigns, now: Instant) -> bool:
    return signs.pulse is None and now - max(signs.started, signs.back, signs.moved) <= START_WITHIN


def is_hung(signs: WorkerSigns, bounds: Bounds, now: Instant) -> bool:
    beat = signs.pulse.beat if signs.pulse else signs.started
    return now - max(beat, signs.back) > bounds.heartbeat_after


def last_sign_of_consuming(pulse: Pulse) -> Instant:
    """C25: an attempt that failed because a dependency is away is a sign of life; only success would be too strict."""
    return pulse.attempt


def is_stalled(signs: WorkerSigns, bounds: Bounds, now: Instant) -> bool:
    """C4: alive, but not consuming its queue."""
    pulse = signs.pulse
    if pulse is None or not pulse.backlog:
        return False
    since = max(last_sign_of_consuming(pulse), pulse.pending, signs.started, signs.back)
    return now - since > bounds.stalled_after


def neglects_duty(signs: WorkerSigns, bounds: Bounds, now: Instant) -> bool:
    pulse = signs.pulse
    if pulse is None or not pulse.duty:
        return False
    return now > pulse.duty and not _just_back(signs, bounds, now)


def is_waiting(signs: WorkerSigns) -> bool:
    return signs.pulse is not None and signs.pulse.state.startswith("waiting")


def is_overdue(signs: WorkerSigns, bounds: Bounds, now: Instant) -> bool:
    pulse = signs.pulse
    if pulse is None or not pulse.audit:
        return False
    return now > pulse.audit and not _just_back(signs, bounds, now)


def _just_back(signs: WorkerSigns, bounds: Bounds, now: Instant) -> bool:
    """Promises that ran out while everybody was away get the time of a heartbeat to be kept."""
    return bool(signs.back) and now - signs.back <= bounds.heartbeat_after


Rule = Callable[[WorkerSigns, Bounds, Instant], bool]

RULES: Sequence[tuple[PulseVerdict, Rule]] = (
    (PulseVerdict.COMPLETED, lambda signs, _bounds, _now: is_completed(signs)),
    (PulseVerdict.DEAD, lambda signs, _bounds, _now: has_exited(signs)),
    (PulseVerdict.STARTING, lambda signs, _bounds, now: is_starting(signs, now)),
    (PulseVerdict.HUNG, lambda signs, bounds, now: is_hung(signs, bounds, now)),
    (PulseVerdict.STALLED, lambda signs, bounds, now: is_stalled(signs, bounds, now)),
    (PulseVerdict.NEGLECTS, lambda signs, bounds, now: neglects_duty(signs, bounds, now)),
    # Before waiting, which its state tells anyway: that a database is away for long is no reason to keep quiet.
    (PulseVerdict.OVERDUE, lambda signs, bounds, now: is_overdue(signs, bounds, now)),
    (PulseVerdict.WAITING, lambda signs, _bounds, _now: is_waiting(signs)),
    (PulseVerdict.HEALTHY, lambda _signs, _bounds, _now: True),
)


def judge(signs: WorkerSigns, bounds: Bounds, now: Instant) -> PulseVerdict:
    return next(verdict for verdict, fits in RULES if fits(signs, bounds, now))


def evidence(verdict: PulseVerdict, signs: WorkerSigns, now: Instant) -> str:
    """What the verdict rests on, as the second half of a sentence."""
    pulse = signs.pulse
    if verdict is PulseVerdict.DEAD:
        return _end(signs.exit)
    if verdict is PulseVerdict.HUNG:
        beat = pulse.beat if pulse else signs.started
        return f"no heartbeat for {_age(beat, now)}"
    if verdict is PulseVerdict.STALLED and pulse:
        return f"{pulse.backlog:,} waiting, no attempt finished for {_age(max(pulse.attempt, pulse.pending), now)}"
    if verdict is PulseVerdict.NEGLECTS and pulse:
        return f"it was due {_age(pulse.duty, now)} ago"
    if verdict is PulseVerdict.OVERDUE and pulse:
        return f"it was due {_age(pulse.audit, now)} ago"
    return ""


def _end(code: int | None) -> str:
    if code is None:
        return "it could not be started"
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def _age(since: Instant, now: Instant) -> str:
    return f"{(now - since).total_seconds():.1f} s"
