"""Care: what a supervisor does about one worker, from one look to the next.

Everything that moves a worker from phase to phase is in this file, as the table `TRANSITIONS`; a verdict that a phase
does not know raises. A worker that must go gets SIGTERM, then time, then SIGKILL; it comes back after a pause that
doubles from 0.5 s to 30 s and is short again once it has been healthy for a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from holdfast.config.sections.pulse import PulseSettings as Bounds
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.runtime.daemon.pulse import ACTIONS, Action, PulseVerdict

_REMEMBERED = 999  # restarts of the last day that are kept for counting


class WorkerPhase(Enum):
    """Where the care of one worker stands."""

    DUE = "due"
    RUNNING = "running"
    ENDING = "ending"
    KILLED = "killed"
    COMPLETED = "completed"


@dataclass(frozen=True, slots=True)
class LastFailure:
    """The last time that the worker had to be replaced."""

    verdict: PulseVerdict
    evidence: str
    at: Instant
    back: Instant | None = None


@dataclass(frozen=True, slots=True)
class RestartState:
    """One worker, seen by its supervisor."""

    phase: WorkerPhase = WorkerPhase.DUE
    start: Instant = NEVER
    """When it is to be started (phase DUE)."""
    kill: Instant = NEVER
    """When patience ends (phase ENDING)."""
    started: Instant = NEVER
    failures: int = 0
    """Restarts since it was last healthy for long; sets the backoff."""
    restarts: tuple[Instant, ...] = ()
    trouble: LastFailure | None = None

    def crash_looping(self, bounds: Bounds, now: Instant) -> bool:
        recent = [at for at in self.restarts if now - at < bounds.crash_loop_window]
        return len(recent) >= bounds.crash_loop_restarts


class Effect(Enum):
    START = "start"
    TERM = "SIGTERM"
    KILL = "SIGKILL"


@dataclass(frozen=True, slots=True)
class WorkerCheck:
    """One look at a worker: the verdict on its signs and what it rests on. `jitter` in [0, 1) spreads restarts."""

    verdict: PulseVerdict
    evidence: str
    now: Instant
    jitter: float = 0.5


Step = tuple[RestartState, Sequence[Effect]]


def step(care: RestartState, look: WorkerCheck, bounds: Bounds) -> Step:
    """Carries the care one look further. A verdict that a phase does not know raises: it would be a bug of ours."""
    return TRANSITIONS[care.phase, ACTIONS[look.verdict]](care, look, bounds)


def _start(care: RestartState, look: WorkerCheck, bounds: Bounds) -> Step:
    if look.now < care.start:
        return care, ()
    return replace(care, phase=WorkerPhase.RUNNING, started=look.now), (Effect.START,)


def _carry_on(care: RestartState, look: WorkerCheck, bounds: Bounds) -> Step:
    if look.verdict is PulseVerdict.STARTING:
        return care, ()
    if care.trouble and care.trouble.back is None:
        care = replace(care, trouble=replace(care.trouble, back=look.now))
    if care.failures and look.now - care.started >= bounds.healthy_after:
        care = replace(care, failures=0)
    return care, ()


def _end(care: RestartState, look: WorkerCheck, bounds: Bounds) -> Step:
    trouble = LastFailure(look.verdict, look.evidence, look.now)
    return replace(care, phase=WorkerPhase.ENDING, kill=look.now + bounds.term_grace, trouble=trouble), (Effect.TERM,)


def _kill_when_due(care: RestartState, look: WorkerCheck, bounds: Bounds) -> Step:
    if look.now < care.kill:
        return care, ()
    return replace(care, phase=WorkerPhase.KILLED), (Effect.KILL,)


def _replace(care: RestartState, look: WorkerCheck, bounds: Bounds) -> Step:
    ended_by_us = care.phase in (WorkerPhase.ENDING, WorkerPhase.KILLED)
    trouble = care.trouble if ended_by_us and care.trouble else LastFailure(look.verdict, look.evidence, look.now)
    failures = 0 if trouble.at - care.started >= bounds.healthy_after else care.failures
    pause = backoff(failures, look.jitter, bounds)
    day = tuple(at for at in care.restarts if look.now - at < Duration(hours=24))[-_REMEMBERED:]
    after = replace(
        care,
        phase=WorkerPhase.DUE,
        start=look.now + pause,
        failures=failures + 1,
        restarts=(*day, look.now),
        trouble=trouble,
    )
    return after, ()


def _retire(care: RestartState, look: WorkerCheck, bounds: Bounds) -> Step:
    return replace(care, phase=WorkerPhase.COMPLETED), ()


def _nothing(care: RestartState, look: WorkerCheck, bounds: Bounds) -> Step:
    return care, ()


def backoff(failures: int, jitter: float, bounds: Bounds) -> Duration:
    """0.5 s, doubling to 30 s, each between 75 % and 125 % of that."""
    whole = min(bounds.backoff_most, bounds.backoff_first * (1 << min(failures, 16)))
    return whole * (0.75 + jitter / 2)


TRANSITIONS: Mapping[tuple[WorkerPhase, Action], Callable[[RestartState, WorkerCheck, Bounds], Step]] = {
    (WorkerPhase.DUE, Action.NOTHING): _start,
    (WorkerPhase.RUNNING, Action.RETIRE): _retire,
    (WorkerPhase.RUNNING, Action.NOTHING): _carry_on,
    (WorkerPhase.RUNNING, Action.ALERT): _carry_on,
    (WorkerPhase.RUNNING, Action.END): _end,
    (WorkerPhase.RUNNING, Action.REPLACE): _replace,
    # A one-shot job that exits with 0 because we ended it has not finished: it gets another try.
    (WorkerPhase.ENDING, Action.RETIRE): _replace,
    (WorkerPhase.ENDING, Action.NOTHING): _kill_when_due,
    (WorkerPhase.ENDING, Action.ALERT): _kill_when_due,
    (WorkerPhase.ENDING, Action.END): _kill_when_due,
    (WorkerPhase.ENDING, Action.REPLACE): _replace,
    (WorkerPhase.KILLED, Action.RETIRE): _replace,
    (WorkerPhase.KILLED, Action.NOTHING): _nothing,
    (WorkerPhase.KILLED, Action.ALERT): _nothing,
    (WorkerPhase.KILLED, Action.END): _nothing,
    (WorkerPhase.KILLED, Action.REPLACE): _replace,
    (WorkerPhase.COMPLETED, Action.RETIRE): _nothing,
}
