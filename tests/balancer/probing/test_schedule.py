"""Probe schedule in virtual time: probes with a given duration, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.balancer.probing import schedule as cadence
from holdfast.balancer.probing.messages import ProbeInterval
from holdfast.balancer.probing.schedule import (
    ProberStalls,
    brought_forward,
    first_start,
    interval,
    jittered,
    realigned,
    spread,
    tolerance,
)
from holdfast.config.sections.healthcheck import HealthCheck
from holdfast.model.base.time import seconds
from holdfast.testing.fault import fault

MS = 1_000_000
SECOND = 1_000 * MS
START = 1_000 * SECOND
TENTH = 100 * MS
durations = st.integers(0, SECOND)
intervals = st.integers(10 * MS, 10 * SECOND)


def starts(durations: Iterable[int], every: int, jitter: float = 0.0, roll: float = 0.0) -> Sequence[int]:
    """When the probes of one target start, when they take that long."""
    beat = due = START
    made = []
    for duration in durations:
        made.append(due)
        finished = due + duration
        beat = cadence.next_slot(beat, finished, every)
        due = jittered(beat, finished, every, jitter, roll)
        roll = -roll
    return made


def distances(instants: Sequence[int]) -> Sequence[int]:
    return [later - earlier for earlier, later in pairwise(instants)]


def finished_plus_interval(_beat: int, finished: int, every: int) -> int:
    """B3 as it was: the interval begins when the probe ends."""
    return finished + every


def every_missed_cycle(beat: int, _finished: int, every: int) -> int:
    """B4 as it was: what was missed is made up for."""
    return beat + every


@fault(
    "B3",
    without="holdfast.balancer.probing.schedule:next_slot",
    by=f"{__name__}:finished_plus_interval",
    sees=(AssertionError, r"set\(distances\(starts\(\[30 \* MS\] \* 50, TENTH\)\)\) == \{TENTH\}"),
)
def test_B3_100_ms_with_probes_of_30_ms_stay_100_ms() -> None:
    assert set(distances(starts([30 * MS] * 50, TENTH))) == {TENTH}


@fault(
    "B4",
    without="holdfast.balancer.probing.schedule:next_slot",
    by=f"{__name__}:every_missed_cycle",
    sees=(AssertionError, r"min\(after\) == TENTH"),
)
def test_B4_a_backend_that_was_slow_is_not_flooded_when_it_recovers() -> None:
    slow, quick = [SECOND] * 5, [1 * MS] * 20
    after = distances(starts([*slow, *quick], TENTH))[len(slow) :]
    assert min(after) == TENTH


def test_a_probe_that_overruns_is_followed_at_once() -> None:
    assert set(distances(starts([130 * MS] * 10, TENTH))) == {130 * MS}


@given(st.lists(durations, min_size=2, max_size=30), intervals)
def test_starts_are_an_interval_apart_or_the_probe_overran(taken: list[int], every: int) -> None:
    for distance, duration in zip(distances(starts(taken, every)), taken, strict=False):
        assert distance == max(every, duration)


@given(st.lists(durations, min_size=2, max_size=30), intervals, st.floats(-1, 1))
def test_jitter_never_makes_two_probes_of_a_target_overlap(taken: list[int], every: int, roll: float) -> None:
    for distance, duration in zip(distances(starts(taken, every, 0.1, roll)), taken, strict=False):
        assert distance >= duration


@given(intervals, st.floats(-1, 1))
def test_jitter_moves_starts_by_at_most_its_share_and_does_not_accumulate(every: int, roll: float) -> None:
    made = starts([0] * 41, every, 0.1, roll)
    slack = 2_000
    assert all(every * 0.9 - slack <= distance <= every * 1.1 + slack for distance in distances(made)[1:])
    assert abs((made[40] - made[0]) - 40 * every) <= every * 0.05 + slack


@pytest.mark.parametrize("count", [1, 2, 7, 100, 5_000])
def test_first_probes_are_spread_over_the_interval(count: int) -> None:
    begins = sorted(first_start(START, SECOND, 0, spread(index)) for index in range(count))
    assert begins[0] >= START
    assert begins[-1] < START + SECOND
    gaps = distances([*begins, begins[0] + SECOND])
    assert max(gaps) <= 3 * SECOND / count


def test_the_pace_chooses_the_interval() -> None:
    check = HealthCheck(type="tcp", interval=seconds(1), fast_interval=seconds(0.1), down_interval=seconds(5))
    assert [interval(check, chosen) for chosen in ProbeInterval] == [SECOND, TENTH, 5 * SECOND]
    assert {interval(HealthCheck(type="tcp"), chosen) for chosen in ProbeInterval} == {SECOND}


def test_a_faster_pace_does_not_wait_for_the_slow_one_to_come_round() -> None:
    beat, now = START + 5 * SECOND, START + 2 * SECOND
    assert brought_forward(beat, START, now, SECOND) == now
    assert brought_forward(beat, START, START, SECOND) == START + SECOND
    assert brought_forward(beat, START + 4500 * MS, START + 4600 * MS, SECOND) == beat


@given(st.integers(0, 10**11), intervals)
def test_after_a_stall_every_target_keeps_its_offset_in_the_interval(away: int, every: int) -> None:
    now = START + away
    beat = realigned(START, now, every)
    assert now <= beat
    assert beat - now <= every
    assert (beat - START) % every == 0


def test_a_prober_that_wakes_in_time_is_never_late() -> None:
    absences = ProberStalls()
    now = START
    for _ in range(100):
        assert absences.woke(now) == 0
        now = absences.sleeps(now, now + 70 * MS)
    assert not absences.late(START, START, MS)


def test_the_prober_wakes_often_enough_to_notice_its_own_stalls() -> None:
    absences = ProberStalls()
    absences.woke(START)
    assert absences.sleeps(START, None) - START <= TENTH
    assert absences.woke(START + 5 * SECOND) >= 4900 * MS


def test_B14_a_probe_running_during_a_stall_is_late_and_the_next_is_not() -> None:
    absences, bound = ProberStalls(), tolerance(SECOND)
    absences.woke(START)
    absences.sleeps(START, START + 10 * MS)
    back = START + 5 * SECOND
    absences.woke(back)
    assert absences.late(START, START, bound)
    after = back + 1 * MS
    assert not absences.late(after, after, bound)


def test_B14_a_probe_that_started_too_late_is_late() -> None:
    bound = tolerance(SECOND)
    assert ProberStalls().late(START, START + 2 * bound, bound)
    assert not ProberStalls().late(START, START + bound // 2, bound)


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 500)), max_size=40), st.integers(0, 10_000))
def test_dropping_short_stalls_misses_no_lateness(sleeps: list[tuple[int, int]], began: int) -> None:
    absences, every, bound = ProberStalls(), [], 100 * MS
    now = START
    absences.woke(now)
    for planned, over in sleeps:
        expected = absences.sleeps(now, now + planned * MS)
        now = expected + over * MS
        absences.woke(now)
        every.append((now, over * MS))
    started = START + began * MS
    assert absences.late(started, started, bound) == any(end >= started and over > bound for end, over in every)
