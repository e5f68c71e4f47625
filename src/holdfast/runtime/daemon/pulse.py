"""Pulse: decides whether a worker is alive and doing its job.

A worker writes its pulse to the board; the supervisor checks it once a second. `worker_verdict` returns the verdict of
the first rule in `RULES` that fits; `ACTIONS` maps it to an action, which `holdfast.runtime.daemon.restart` takes.

A process that exited, hangs, or does not consume its queue is replaced. One that waits for a dependency, or has
completed a one-shot job, is left alone. A supervisor that was suspended itself never takes that for dead workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

from holdfast.config.sections.pulse import PulseSettings
from holdfast.model.base.time import NEVER, Duration, Instant

START_WITHIN = Duration(seconds=30)
"""Time until the first heartbeat, for a fresh interpreter on a busy machine. It starts over whenever the process has
used the CPU: a process that is ended because the machine gave it no time would be restarted for ever."""
START_CPU_S = 60.0
"""CPU time within which every start is complete; a process that uses more is looping, not starting."""


class Pulse(msgspec.Struct, frozen=True):
    """State that a worker writes to the board twice a second, from its own event loop."""

    pid: int
    beat: Instant
    attempt: Instant = NEVER
    """When its last attempt ended, successful or not."""
    success: Instant = NEVER
    backlog: int | None = None
    """Waiting objects; None for a worker without a queue."""
    pending: Instant = NEVER
    """Since when the backlog has been non-empty without a break; NEVER while it is empty."""
    oldest: Instant = NEVER
    """When the oldest waiting change arrived."""
    state: str = "starting"
    duty: Instant = NEVER
    """Deadline of its next periodic duty (for an elector: to renew, or to read the leader key)."""
    warm: bool = True
    """True when it could take over at once, for example because its mirror is complete."""
    audit: Instant = NEVER
    """Deadline of the next resync or audit."""
    waiting: Instant = NEVER
    """Since when a dependency has been unreachable without a break."""
    config: int = 0
    """Digest of the configuration that it runs with."""


class PulseVerdict(Enum):
    """Verdict on a worker. The value completes a sentence that begins with its name."""

    COMPLETED = "completed its job"
    DEAD = "exited"
    HUNG = "hung"
    STALLED = "stalled"
    NEGLECTS = "missed its deadline"
    WAITING = "waits"
    OVERDUE = "is overdue with its audit"
    STARTING = "is starting"
    HEALTHY = "is healthy"


class Action(Enum):
    REPLACE = "restart it"
    END = "end it and restart it"
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
RESTART_REASONS: Sequence[str] = [
    verdict.value for verdict, action in ACTIONS.items() if action in (Action.REPLACE, Action.END)
]


@dataclass(frozen=True, slots=True)
class WorkerSigns:
    """Input of a verdict."""

    started: Instant
    pulse: Pulse | None = None
    """None until this process has written one."""
    exit: int | None = None
    once: bool = False
    """A one-shot job, which exits with 0 when it is complete."""
    resumed: Instant = NEVER
    """When the supervisor itself last resumed after a suspend or stall. No age counts from before it."""
    moved: Instant = NEVER
    """When a process without a pulse was last seen to have used the CPU."""


def was_suspended(last: Instant, now: Instant, bounds: PulseSettings) -> bool:
    """True when this process itself did not run since `last` (the VM was suspended, the machine stalled)."""
    # protection: C26
    return bool(last) and now - last > bounds.grace_after


def is_completed(signs: WorkerSigns) -> bool:
    """True for a one-shot job that has exited with 0: it is not dead."""
    # protection: C5
    return signs.once and signs.exit == 0


def has_exited(signs: WorkerSigns) -> bool:
    # protection: C3
    return signs.exit is not None


def is_starting(signs: WorkerSigns, now: Instant) -> bool:
    return signs.pulse is None and now - max(signs.started, signs.resumed, signs.moved) <= START_WITHIN


def is_hung(signs: WorkerSigns, bounds: PulseSettings, now: Instant) -> bool:
    beat = signs.pulse.beat if signs.pulse else signs.started
    return now - max(beat, signs.resumed) > bounds.heartbeat_after


def last_sign_of_consuming(pulse: Pulse) -> Instant:
    """Return the last attempt, not the last success: one that failed because a dependency is unreachable counts."""
    # protection: C25
    return pulse.attempt


def is_stalled(signs: WorkerSigns, bounds: PulseSettings, now: Instant) -> bool:
    """True for a process that is alive but does not consume its queue."""
    # protection: C4
    pulse = signs.pulse
    if pulse is None or not pulse.backlog:
        return False
    since = max(last_sign_of_consuming(pulse), pulse.pending, signs.started, signs.resumed)
    return now - since > bounds.stalled_after


def neglects_duty(signs: WorkerSigns, bounds: PulseSettings, now: Instant) -> bool:
    pulse = signs.pulse
    if pulse is None or not pulse.duty:
        return False
    return now > pulse.duty and not _just_resumed(signs, bounds, now)


def is_waiting(signs: WorkerSigns) -> bool:
    return signs.pulse is not None and signs.pulse.state.startswith("waiting")


def is_overdue(signs: WorkerSigns, bounds: PulseSettings, now: Instant) -> bool:
    pulse = signs.pulse
    if pulse is None or not pulse.audit:
        return False
    return now > pulse.audit and not _just_resumed(signs, bounds, now)


def _just_resumed(signs: WorkerSigns, bounds: PulseSettings, now: Instant) -> bool:
    """Grant deadlines that passed during a suspend the time of one heartbeat."""
    return bool(signs.resumed) and now - signs.resumed <= bounds.heartbeat_after


Rule = Callable[[WorkerSigns, PulseSettings, Instant], bool]

RULES: Sequence[tuple[PulseVerdict, Rule]] = (
    (PulseVerdict.COMPLETED, lambda signs, _bounds, _now: is_completed(signs)),
    (PulseVerdict.DEAD, lambda signs, _bounds, _now: has_exited(signs)),
    (PulseVerdict.STARTING, lambda signs, _bounds, now: is_starting(signs, now)),
    (PulseVerdict.HUNG, lambda signs, bounds, now: is_hung(signs, bounds, now)),
    (PulseVerdict.STALLED, lambda signs, bounds, now: is_stalled(signs, bounds, now)),
    (PulseVerdict.NEGLECTS, lambda signs, bounds, now: neglects_duty(signs, bounds, now)),
    # Before WAITING, which its state shows anyway: an unreachable database must not hide an overdue audit.
    (PulseVerdict.OVERDUE, lambda signs, bounds, now: is_overdue(signs, bounds, now)),
    (PulseVerdict.WAITING, lambda signs, _bounds, _now: is_waiting(signs)),
    (PulseVerdict.HEALTHY, lambda _signs, _bounds, _now: True),
)


def worker_verdict(signs: WorkerSigns, bounds: PulseSettings, now: Instant) -> PulseVerdict:
    return next(verdict for verdict, fits in RULES if fits(signs, bounds, now))


def evidence(verdict: PulseVerdict, signs: WorkerSigns, now: Instant) -> str:
    """Return the facts behind a verdict, for the parentheses of a sentence."""
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
