"""Restart state machine: what a supervisor does about one worker, from one check to the next.

The table `TRANSITIONS` holds everything that moves a worker from phase to phase; a verdict that a phase does not know
raises. A worker that must end gets SIGTERM, then time, then SIGKILL. It restarts after a backoff that doubles from
0.5 s to 30 s and is short again once the worker has been healthy for a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from holdfast.config.sections.pulse import PulseSettings
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.runtime.daemon.pulse import ACTIONS, Action, PulseVerdict

_REMEMBERED = 999  # restarts of the last day kept for counting


class WorkerPhase(Enum):
    """Phase of one supervised worker."""

    DUE = "due"
    RUNNING = "running"
    ENDING = "ending"
    KILLED = "killed"
    COMPLETED = "completed"


@dataclass(frozen=True, slots=True)
class LastFailure:
    """The last failure that made the supervisor replace the worker."""

    verdict: PulseVerdict
    evidence: str
    at: Instant
    back: Instant | None = None


@dataclass(frozen=True, slots=True)
class RestartState:
    """Restart state of one worker."""

    phase: WorkerPhase = WorkerPhase.DUE
    start: Instant = NEVER
    """When to start it (phase DUE)."""
    kill: Instant = NEVER
    """When to send SIGKILL (phase ENDING)."""
    started: Instant = NEVER
    failures: int = 0
    """Restarts since it was last healthy for a minute; sets the backoff."""
    restarts: tuple[Instant, ...] = ()
    reasons: Mapping[PulseVerdict, int] = field(default_factory=dict)
    """Restarts since the supervisor began, by reason."""
    trouble: LastFailure | None = None
    asked: bool = False
    """It ends because an operator asked for a restart, not because of a failure."""

    def crash_looping(self, bounds: PulseSettings, now: Instant) -> bool:
        recent = [at for at in self.restarts if now - at < bounds.crash_loop_window]
        return len(recent) >= bounds.crash_loop_restarts


class Effect(Enum):
    START = "start"
    TERM = "SIGTERM"
    KILL = "SIGKILL"


@dataclass(frozen=True, slots=True)
class WorkerCheck:
    """One check of a worker: the verdict and its evidence. `jitter` in [0, 1) spreads restarts."""

    verdict: PulseVerdict
    evidence: str
    now: Instant
    jitter: float = 0.5


Step = tuple[RestartState, Sequence[Effect]]


def step(state: RestartState, check: WorkerCheck, bounds: PulseSettings) -> Step:
    """Advance the state by one check. A verdict that a phase does not know raises KeyError: it is a bug."""
    return TRANSITIONS[state.phase, ACTIONS[check.verdict]](state, check, bounds)


def request_restart(state: RestartState, now: Instant, bounds: PulseSettings) -> Step:
    """End a running worker because an operator asked for it; one that ends or starts already does so."""
    if state.phase is WorkerPhase.RUNNING:
        return replace(state, phase=WorkerPhase.ENDING, kill=now + bounds.term_grace, asked=True), (Effect.TERM,)
    return (replace(state, start=now), ()) if state.phase is WorkerPhase.DUE else (state, ())


def _start(state: RestartState, check: WorkerCheck, bounds: PulseSettings) -> Step:
    if check.now < state.start:
        return state, ()
    return replace(state, phase=WorkerPhase.RUNNING, started=check.now), (Effect.START,)


def _keep_running(state: RestartState, check: WorkerCheck, bounds: PulseSettings) -> Step:
    if check.verdict is PulseVerdict.STARTING:
        return state, ()
    if state.trouble and state.trouble.back is None:
        state = replace(state, trouble=replace(state.trouble, back=check.now))
    if state.failures and check.now - state.started >= bounds.healthy_after:
        state = replace(state, failures=0)
    return state, ()


def _end(state: RestartState, check: WorkerCheck, bounds: PulseSettings) -> Step:
    trouble = LastFailure(check.verdict, check.evidence, check.now)
    return replace(state, phase=WorkerPhase.ENDING, kill=check.now + bounds.term_grace, trouble=trouble), (Effect.TERM,)


def _kill_when_due(state: RestartState, check: WorkerCheck, bounds: PulseSettings) -> Step:
    if check.now < state.kill:
        return state, ()
    return replace(state, phase=WorkerPhase.KILLED), (Effect.KILL,)


def _replace(state: RestartState, check: WorkerCheck, bounds: PulseSettings) -> Step:
    if state.asked:  # neither counted nor delayed
        return replace(state, phase=WorkerPhase.DUE, start=check.now, asked=False), ()
    ended_by_us = state.phase in (WorkerPhase.ENDING, WorkerPhase.KILLED)
    trouble = state.trouble if ended_by_us and state.trouble else LastFailure(check.verdict, check.evidence, check.now)
    failures = 0 if trouble.at - state.started >= bounds.healthy_after else state.failures
    pause = backoff(failures, check.jitter, bounds)
    day = tuple(at for at in state.restarts if check.now - at < Duration(hours=24))[-_REMEMBERED:]
    after = replace(
        state,
        phase=WorkerPhase.DUE,
        start=check.now + pause,
        failures=failures + 1,
        restarts=(*day, check.now),
        reasons={**state.reasons, trouble.verdict: state.reasons.get(trouble.verdict, 0) + 1},
        trouble=trouble,
    )
    return after, ()


def _retire(state: RestartState, check: WorkerCheck, bounds: PulseSettings) -> Step:
    return replace(state, phase=WorkerPhase.COMPLETED), ()


def _nothing(state: RestartState, check: WorkerCheck, bounds: PulseSettings) -> Step:
    return state, ()


def backoff(failures: int, jitter: float, bounds: PulseSettings) -> Duration:
    """Return the backoff: 0.5 s, doubling to 30 s, each with a jitter of ±25 %."""
    whole = min(bounds.backoff_most, bounds.backoff_first * (1 << min(failures, 16)))
    return whole * (0.75 + jitter / 2)


TRANSITIONS: Mapping[tuple[WorkerPhase, Action], Callable[[RestartState, WorkerCheck, PulseSettings], Step]] = {
    (WorkerPhase.DUE, Action.NOTHING): _start,
    (WorkerPhase.RUNNING, Action.RETIRE): _retire,
    (WorkerPhase.RUNNING, Action.NOTHING): _keep_running,
    (WorkerPhase.RUNNING, Action.ALERT): _keep_running,
    (WorkerPhase.RUNNING, Action.END): _end,
    (WorkerPhase.RUNNING, Action.REPLACE): _replace,
    # A one-shot job that exits with 0 because it was ended has not completed: it is restarted.
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
