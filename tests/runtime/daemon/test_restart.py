"""Restart states: every transition of a worker under its supervisor, the backoff, and the mark of a crash loop."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config.sections.pulse import PulseSettings
from holdfast.model.base.time import Instant, seconds
from holdfast.runtime.daemon.pulse import ACTIONS, Action, PulseVerdict
from holdfast.runtime.daemon.restart import (
    TRANSITIONS,
    Effect,
    RestartState,
    WorkerCheck,
    WorkerPhase,
    backoff,
    request_restart,
    step,
)
from tests.runtime.harness import patient

BOUNDS = PulseSettings()
T0 = Instant(10**13)


def at(second: float) -> Instant:
    return T0 + seconds(second)


def check(
    state: RestartState, verdict: PulseVerdict, second: float, evidence: str = ""
) -> tuple[RestartState, Sequence[Effect]]:
    return step(state, WorkerCheck(verdict, evidence, at(second)), BOUNDS)


def running(since: float = 0.0) -> RestartState:
    state, effects = check(RestartState(), PulseVerdict.STARTING, since)
    assert list(effects) == [Effect.START]
    return state


def test_a_worker_that_is_due_is_started() -> None:
    assert (running().phase, running().started) == (WorkerPhase.RUNNING, at(0))


def test_a_worker_is_not_started_before_its_pause_is_over() -> None:
    dead, _ = check(running(), PulseVerdict.DEAD, 5)
    waiting, effects = check(dead, PulseVerdict.STARTING, 5.4)
    assert (waiting.phase, list(effects)) == (WorkerPhase.DUE, [])
    _, effects = check(waiting, PulseVerdict.STARTING, 5.6)
    assert list(effects) == [Effect.START]


@pytest.mark.parametrize("verdict", [PulseVerdict.HUNG, PulseVerdict.STALLED, PulseVerdict.NEGLECTS])
def test_what_must_go_gets_sigterm_then_five_seconds_then_sigkill_then_a_successor(verdict: PulseVerdict) -> None:
    state, effects = check(running(), verdict, 20, "why")
    assert (state.phase, list(effects)) == (WorkerPhase.ENDING, [Effect.TERM])
    state, effects = check(state, verdict, 24.9)
    assert (state.phase, list(effects)) == (WorkerPhase.ENDING, [])
    state, effects = check(state, verdict, 25)
    assert (state.phase, list(effects)) == (WorkerPhase.KILLED, [Effect.KILL])
    state, effects = check(state, verdict, 25.1)
    assert (state.phase, list(effects)) == (WorkerPhase.KILLED, [])
    state, effects = check(state, PulseVerdict.DEAD, 25.2, "killed by signal 9")
    assert (state.phase, list(effects)) == (WorkerPhase.DUE, [])
    assert state.trouble is not None
    assert (state.trouble.verdict, state.trouble.evidence, state.trouble.at) == (verdict, "why", at(20))


def test_a_worker_that_beats_again_after_sigterm_is_replaced_all_the_same() -> None:
    state, _ = check(running(), PulseVerdict.HUNG, 20)
    state, effects = check(state, PulseVerdict.HEALTHY, 25)
    assert (state.phase, list(effects)) == (WorkerPhase.KILLED, [Effect.KILL])


def test_a_finished_one_shot_job_is_retired_for_good() -> None:
    state, effects = check(running(), PulseVerdict.COMPLETED, 3)
    assert (state.phase, list(effects), state.restarts) == (WorkerPhase.COMPLETED, [], ())
    assert check(state, PulseVerdict.COMPLETED, 4_000) == (state, ())


@pytest.mark.parametrize("patience", [1.0, 6.0])
def test_a_one_shot_job_that_we_had_to_end_has_not_finished_whatever_its_exit_code(patience: float) -> None:
    state, _ = check(running(), PulseVerdict.HUNG, 20)
    state, _ = check(state, PulseVerdict.HUNG, 20 + patience)
    state, _ = check(state, PulseVerdict.COMPLETED, 30)
    assert state.phase is WorkerPhase.DUE


@pytest.mark.parametrize(
    "verdict", [PulseVerdict.HEALTHY, PulseVerdict.WAITING, PulseVerdict.OVERDUE, PulseVerdict.STARTING]
)
def test_a_worker_that_works_or_waits_is_left_alone(verdict: PulseVerdict) -> None:
    state = running()
    assert check(state, verdict, 4_000) == (state, ())


def test_a_worker_is_back_with_its_first_pulse_not_with_its_start() -> None:
    state, _ = check(running(), PulseVerdict.DEAD, 10)
    state, _ = check(state, PulseVerdict.STARTING, 11)
    state, _ = check(state, PulseVerdict.STARTING, 12)
    assert state.trouble is not None
    assert state.trouble.back is None
    state, _ = check(state, PulseVerdict.WAITING, 13)
    assert state.trouble is not None
    assert state.trouble.back == at(13)


UNKNOWN = sorted(set(product(WorkerPhase, Action)) - set(TRANSITIONS), key=str)


@pytest.mark.parametrize(("phase", "action"), UNKNOWN)
def test_a_verdict_that_a_phase_does_not_know_raises(phase: WorkerPhase, action: Action) -> None:
    verdict = next(verdict for verdict, follows in ACTIONS.items() if follows is action)
    with pytest.raises(KeyError):
        check(RestartState(phase=phase), verdict, 0)


def test_no_process_of_ours_can_lead_to_an_unknown_transition() -> None:
    """With a process (running, ending, killed) every action is known; without one only these are ever asked for."""
    with_process = {
        (phase, action) for phase in (WorkerPhase.RUNNING, WorkerPhase.ENDING, WorkerPhase.KILLED) for action in Action
    }
    without = {(WorkerPhase.DUE, Action.NOTHING), (WorkerPhase.COMPLETED, Action.RETIRE)}
    assert with_process | without == set(TRANSITIONS)


def test_the_pause_doubles_from_half_a_second_to_thirty() -> None:
    pauses = [backoff(failures, 0.5, BOUNDS).total_seconds() for failures in range(9)]
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


@patient
@given(failures=st.integers(0, 10**6), jitter=st.floats(0, 1, exclude_max=True))
def test_the_pause_is_jittered_by_a_quarter_at_most(failures: int, jitter: float) -> None:
    whole = backoff(failures, 0.5, BOUNDS)
    assert 0.75 * whole <= backoff(failures, jitter, BOUNDS) <= 1.25 * whole


def die(state: RestartState, after: float) -> RestartState:
    """Lives that long from its start, then exits."""
    state, effects = step(state, WorkerCheck(PulseVerdict.STARTING, "", state.start or T0), BOUNDS)
    assert list(effects) == [Effect.START]
    state, _ = step(state, WorkerCheck(PulseVerdict.DEAD, "exit code 1", state.started + seconds(after)), BOUNDS)
    return state


def pause_after(state: RestartState) -> float:
    assert state.restarts
    return (state.start - state.restarts[-1]).total_seconds()


def test_a_worker_that_keeps_dying_is_started_ever_more_slowly() -> None:
    state, pauses = RestartState(), []
    for _ in range(8):
        state = die(state, after=1)
        pauses.append(pause_after(state))
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_a_minute_of_health_makes_the_pause_short_again() -> None:
    state = RestartState()
    for _ in range(6):
        state = die(state, after=1)
    assert pause_after(die(state, after=59)) == 30
    assert pause_after(die(state, after=60)) == 0.5


def test_the_time_it_took_to_end_a_hung_worker_is_not_health() -> None:
    state = RestartState()
    for _ in range(6):
        state = die(state, after=1)
    state, _ = step(state, WorkerCheck(PulseVerdict.STARTING, "", state.start), BOUNDS)
    started = state.started
    for verdict, age in [(PulseVerdict.HUNG, 58), (PulseVerdict.HUNG, 63), (PulseVerdict.DEAD, 64)]:
        state, _ = step(state, WorkerCheck(verdict, "", started + seconds(age)), BOUNDS)
    assert pause_after(state) == 30


def test_the_fifth_restart_within_five_minutes_marks_a_crash_loop() -> None:
    state = RestartState()
    for _ in range(4):
        state = die(state, after=1)
    assert not state.crash_looping(BOUNDS, state.start)
    state = die(state, after=1)
    assert state.crash_looping(BOUNDS, state.start)


def test_a_crash_loop_is_over_when_five_minutes_have_fewer_than_five_restarts() -> None:
    state = RestartState()
    for _ in range(5):
        state = die(state, after=1)
    first = state.restarts[0]
    assert state.crash_looping(BOUNDS, first + seconds(299.9))
    assert not state.crash_looping(BOUNDS, first + seconds(300))


def test_restarts_that_are_far_apart_are_no_crash_loop_but_are_counted_for_a_day() -> None:
    state = RestartState()
    for _ in range(24):
        state = die(state, after=3_600)
    assert not state.crash_looping(BOUNDS, state.start)
    assert len(state.restarts) == 24
    state = die(state, after=30 * 3_600)
    assert len(state.restarts) == 1


@patient
@given(st.lists(st.tuples(st.sampled_from(list(PulseVerdict)), st.floats(0.05, 90)), max_size=60))
def test_any_course_of_events_is_known_and_starts_only_what_is_not_running(
    course: list[tuple[PulseVerdict, float]],
) -> None:
    """A walk as the supervisor makes it: without a process there is no verdict but starting or completed."""
    state, now, process = RestartState(), T0, False
    for drawn, pause in course:
        now += seconds(pause)
        verdict = drawn
        if not process:
            verdict = PulseVerdict.COMPLETED if state.phase is WorkerPhase.COMPLETED else PulseVerdict.STARTING
        state, effects = step(state, WorkerCheck(verdict, "", now), BOUNDS)
        assert (Effect.START in effects) <= (not process)
        assert all(process for effect in effects if effect is not Effect.START)
        process = (process or Effect.START in effects) and verdict not in (PulseVerdict.DEAD, PulseVerdict.COMPLETED)


def test_restarts_are_counted_by_their_reason() -> None:
    state, _ = check(running(), PulseVerdict.DEAD, 5)
    state, _ = check(state, PulseVerdict.STARTING, 20)
    state, _ = check(state, PulseVerdict.HUNG, 30)
    state, _ = check(state, PulseVerdict.DEAD, 31)
    state, _ = check(state, PulseVerdict.STARTING, 60)
    state, _ = check(state, PulseVerdict.DEAD, 61)
    assert state.reasons == {PulseVerdict.DEAD: 2, PulseVerdict.HUNG: 1}


def test_a_restart_that_was_asked_for_is_neither_counted_nor_delayed() -> None:
    state, effects = request_restart(running(), at(5), BOUNDS)
    assert (state.phase, list(effects)) == (WorkerPhase.ENDING, [Effect.TERM])
    state, _ = check(state, PulseVerdict.DEAD, 6)
    assert (state.phase, state.restarts, state.trouble, state.failures) == (WorkerPhase.DUE, (), None, 0)
    state, effects = check(state, PulseVerdict.STARTING, 6)
    assert (state.phase, list(effects)) == (WorkerPhase.RUNNING, [Effect.START])
    dead, _ = check(state, PulseVerdict.DEAD, 7)
    assert len(dead.restarts) == 1, "a crash after it counts"


def test_a_worker_that_does_not_end_when_asked_to_is_killed() -> None:
    state, _ = request_restart(running(), at(5), BOUNDS)
    state, effects = check(state, PulseVerdict.HEALTHY, 5 + BOUNDS.term_grace.total_seconds())
    assert list(effects) == [Effect.KILL]


def test_a_worker_in_its_backoff_starts_at_once_when_asked_to() -> None:
    dead, _ = check(running(), PulseVerdict.DEAD, 5)
    state, effects = request_restart(dead, at(5.1), BOUNDS)
    assert (state.start, list(effects)) == (at(5.1), [])
