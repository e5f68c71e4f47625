"""The pulse policy, row by row: which signs give which verdict, and what follows from it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config.sections.pulse import PulseSettings
from holdfast.model.base.time import NEVER, Instant, seconds
from holdfast.runtime.daemon.pulse import (
    ACTIONS,
    START_WITHIN,
    Action,
    Pulse,
    PulseVerdict,
    WorkerSigns,
    evidence,
    was_suspended,
    worker_verdict,
)
from holdfast.runtime.daemon.vitals import Vitals
from tests.runtime.harness import HandClock, patient

BOUNDS = PulseSettings()
NOW = Instant(10**13)
LONG_AGO = NOW - seconds(5_000)


def ago(age: float) -> Instant:
    return NOW - seconds(age)


def signs(
    *,
    beat: float = 0.2,
    attempt: float = 1.0,
    backlog: int | None = None,
    pending: float | None = None,
    state: str = "ok",
    duty: Instant = NEVER,
    audit: Instant = NEVER,
    started: Instant = LONG_AGO,
    back: Instant = NEVER,
) -> WorkerSigns:
    """A worker that is well, but for what is said; times are ages in seconds."""
    pulse = Pulse(
        pid=7,
        beat=ago(beat),
        attempt=ago(attempt),
        backlog=backlog,
        pending=NEVER if pending is None else ago(pending),
        state=state,
        duty=duty,
        audit=audit,
    )
    return WorkerSigns(started, pulse, resumed=back)


def verdict(of: WorkerSigns) -> PulseVerdict:
    return worker_verdict(of, BOUNDS, NOW)


def test_a_worker_with_a_fresh_heartbeat_and_nothing_to_do_is_healthy() -> None:
    assert verdict(signs()) is PulseVerdict.HEALTHY


@pytest.mark.parametrize("code", [0, 1, 75, -9, -15])
def test_a_process_that_exited_is_dead_and_replaced_whatever_its_code(code: int) -> None:
    assert verdict(replace(signs(), exit=code)) is PulseVerdict.DEAD
    assert ACTIONS[PulseVerdict.DEAD] is Action.REPLACE


@pytest.mark.parametrize(("age", "expected"), [(9.9, PulseVerdict.HEALTHY), (10.1, PulseVerdict.HUNG)])
def test_a_heartbeat_older_than_ten_seconds_is_a_hang(age: float, expected: PulseVerdict) -> None:
    assert verdict(signs(beat=age)) is expected
    assert ACTIONS[PulseVerdict.HUNG] is Action.END


@pytest.mark.parametrize(("age", "expected"), [(59.0, PulseVerdict.HEALTHY), (61.0, PulseVerdict.STALLED)])
def test_a_backlog_without_a_finished_attempt_for_a_minute_is_a_stall(age: float, expected: PulseVerdict) -> None:
    assert verdict(signs(backlog=3, attempt=age, pending=300)) is expected
    assert ACTIONS[PulseVerdict.STALLED] is Action.END


@pytest.mark.parametrize("backlog", [None, 0])
def test_a_worker_with_nothing_to_do_is_never_stalled(backlog: int | None) -> None:
    assert verdict(signs(backlog=backlog, attempt=4_000)) is PulseVerdict.HEALTHY


def test_work_that_came_a_moment_ago_to_an_idle_worker_is_no_stall() -> None:
    assert verdict(signs(backlog=1, attempt=4_000, pending=0.5)) is PulseVerdict.HEALTHY


def test_a_process_that_has_just_started_with_a_backlog_is_not_stalled() -> None:
    assert verdict(signs(backlog=9, attempt=4_000, pending=4_000, started=ago(5))) is PulseVerdict.HEALTHY


@patient
@given(
    attempt=st.floats(0, 60),
    backlog=st.integers(0, 10**6) | st.none(),
    pending=st.floats(0, 10**4),
    started=st.floats(0, 10**4),
    state=st.sampled_from(["ok", "waiting: database", "held: brake", "failing: 3"]),
)
def test_a_worker_with_fresh_attempts_is_never_ended(
    attempt: float, backlog: int | None, pending: float, started: float, state: str
) -> None:
    seen = signs(attempt=attempt, backlog=backlog, pending=pending, started=ago(started), state=state)
    assert ACTIONS[verdict(seen)] is Action.NOTHING


def test_a_promised_duty_that_is_not_done_in_time_is_neglect() -> None:
    assert verdict(signs(duty=ago(0.1))) is PulseVerdict.NEGLECTS
    assert verdict(signs(duty=NOW + seconds(0.1))) is PulseVerdict.HEALTHY
    assert ACTIONS[PulseVerdict.NEGLECTS] is Action.END


def test_fresh_attempts_that_fail_for_a_dependency_are_waiting_and_nothing_is_done() -> None:
    assert verdict(signs(backlog=20_000, pending=3_600, state="waiting: database")) is PulseVerdict.WAITING
    assert ACTIONS[PulseVerdict.WAITING] is Action.NOTHING


def test_a_worker_that_says_it_waits_but_tries_no_more_is_stalled_all_the_same() -> None:
    assert verdict(signs(backlog=1, attempt=61, pending=70, state="waiting: database")) is PulseVerdict.STALLED


def test_a_one_shot_job_that_finished_is_completed_and_left_alone() -> None:
    assert verdict(replace(signs(), once=True, exit=0)) is PulseVerdict.COMPLETED
    assert ACTIONS[PulseVerdict.COMPLETED] is Action.RETIRE


@pytest.mark.parametrize("code", [1, 71, -9])
def test_a_one_shot_job_that_failed_is_dead(code: int) -> None:
    assert verdict(replace(signs(), once=True, exit=code)) is PulseVerdict.DEAD


def test_an_audit_that_did_not_finish_in_time_is_an_alert_and_nothing_else() -> None:
    assert verdict(signs(audit=ago(1))) is PulseVerdict.OVERDUE
    assert ACTIONS[PulseVerdict.OVERDUE] is Action.ALERT


def test_a_long_wait_for_the_database_does_not_hide_that_the_audit_is_overdue() -> None:
    assert verdict(signs(audit=ago(1), state="waiting: database", backlog=1, pending=900)) is PulseVerdict.OVERDUE


def test_a_process_without_a_pulse_is_starting_for_half_a_minute_then_hung() -> None:
    assert verdict(WorkerSigns(started=ago(START_WITHIN.total_seconds()))) is PulseVerdict.STARTING
    assert verdict(WorkerSigns(started=ago(START_WITHIN.total_seconds() + 1))) is PulseVerdict.HUNG


@pytest.mark.parametrize(
    ("moved", "expected"), [(0, PulseVerdict.STARTING), (30, PulseVerdict.STARTING), (31, PulseVerdict.HUNG)]
)
def test_a_start_that_gets_on_slowly_is_not_a_hung_one(moved: float, expected: PulseVerdict) -> None:
    assert verdict(WorkerSigns(started=ago(600), moved=ago(moved))) is expected


def test_having_moved_once_does_not_excuse_a_worker_that_has_shown_a_pulse_since() -> None:
    assert verdict(WorkerSigns(ago(600), Pulse(pid=1, beat=ago(60)), moved=ago(1))) is PulseVerdict.HUNG


@pytest.mark.parametrize(("age", "away"), [(4.9, False), (5.1, True)])
def test_a_last_look_over_five_seconds_ago_means_that_we_were_away(age: float, away: bool) -> None:
    assert was_suspended(ago(age), NOW, BOUNDS) is away


def test_the_first_look_of_all_is_not_a_return() -> None:
    assert not was_suspended(NEVER, NOW, BOUNDS)


@patient
@given(
    beat=st.floats(0, 10**4),
    attempt=st.floats(0, 10**4),
    backlog=st.integers(0, 10**6) | st.none(),
    pending=st.floats(0, 10**4),
    duty=st.floats(0.001, 10**4) | st.none(),
    audit=st.floats(0.001, 10**4) | st.none(),
    back=st.floats(0, 10),
)
def test_whatever_aged_while_we_were_away_ends_no_worker_before_a_heartbeat_could_have_come(
    beat: float,
    attempt: float,
    backlog: int | None,
    pending: float,
    duty: float | None,
    audit: float | None,
    back: float,
) -> None:
    seen = signs(
        beat=beat,
        attempt=attempt,
        backlog=backlog,
        pending=pending,
        duty=NEVER if duty is None else ago(duty),
        audit=NEVER if audit is None else ago(audit),
        back=ago(back),
    )
    assert verdict(seen) is PulseVerdict.HEALTHY


def test_a_worker_that_stays_silent_after_our_return_is_hung_in_the_end() -> None:
    assert verdict(signs(beat=500, back=ago(10.1))) is PulseVerdict.HUNG


@patient
@given(st.builds(WorkerSigns, started=st.just(LONG_AGO), exit=st.none() | st.integers(-64, 255), once=st.booleans()))
def test_every_verdict_has_an_action_and_is_found_for_any_signs(seen: WorkerSigns) -> None:
    assert verdict(seen) in ACTIONS


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (replace(signs(), exit=-9), "killed by signal 9"),
        (replace(signs(), exit=3), "exit code 3"),
        (signs(beat=12), "no heartbeat for 12.0 s"),
        (signs(backlog=34_812, attempt=70, pending=90), "34,812 waiting, no attempt finished for 70.0 s"),
        (signs(duty=ago(3)), "it was due 3.0 s ago"),
        (signs(audit=ago(4)), "it was due 4.0 s ago"),
        (signs(), ""),
    ],
)
def test_a_verdict_says_what_it_rests_on(seen: WorkerSigns, told: str) -> None:
    assert evidence(verdict(seen), seen, NOW) == told


def test_a_worker_that_could_not_be_started_is_reported_as_that() -> None:
    assert evidence(PulseVerdict.DEAD, WorkerSigns(started=NOW), NOW) == "it could not be started"


def test_a_pulse_survives_its_way_over_the_board() -> None:
    pulse = signs(backlog=3, state="waiting: größte Datenbank").pulse
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(pulse), type=Pulse) == pulse


def test_a_worker_that_has_not_done_anything_yet_is_starting_and_not_well() -> None:
    clock = HandClock()
    vitals = Vitals(clock)
    shown = [vitals.pulse(7, clock.now()).state]
    for success in (False, True):
        vitals.attempted(success=success)
        shown.append(vitals.pulse(7, clock.now()).state)
    assert shown == ["starting", "starting", "ok"]


def test_a_success_without_a_word_leaves_the_word_that_was_said() -> None:
    vitals = Vitals(HandClock())
    vitals.attempted(success=True, state="following")
    vitals.attempted(success=True)
    assert vitals.state == "following"


def test_how_long_a_worker_waits_counts_from_when_it_began_to() -> None:
    clock = HandClock()
    vitals = Vitals(clock)
    vitals.attempted(success=True, state="ok")
    clock.move(300)
    vitals.attempted(success=False, state="waiting: database")
    began = clock.now()
    assert vitals.pulse(1, began).waiting == began
    clock.move(90)
    vitals.attempted(success=True, state="waiting: a complete list")
    assert vitals.pulse(1, clock.now()).waiting == began
    vitals.attempted(success=True, state="ok")
    assert not vitals.pulse(1, clock.now()).waiting
