"""Slow start: the weight grows in steps, and a restart continues it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.balancer.desired import slow_start
from holdfast.model.base.time import Instant, seconds

BEGAN = Instant(9_000_000_000)
LENGTH = seconds(60)


@pytest.mark.parametrize(
    ("second", "weight"), [(0, 10), (5.9, 10), (6, 20), (30, 60), (54, 100), (60, 100), (999, 100)]
)
def test_the_weight_grows_in_ten_steps(second: float, weight: int) -> None:
    assert slow_start.weight(100, BEGAN, LENGTH, BEGAN + seconds(second)) == weight


def test_without_a_length_or_a_start_there_is_no_slow_start() -> None:
    assert slow_start.weight(100, BEGAN, seconds(0), BEGAN) == 100
    assert slow_start.weight(100, slow_start.DONE, LENGTH, BEGAN) == 100


def test_the_next_step_is_when_the_weight_changes() -> None:
    now = BEGAN + seconds(13)
    due = slow_start.next_step(BEGAN, LENGTH, now)
    assert due == BEGAN + seconds(18)
    assert slow_start.weight(100, BEGAN, LENGTH, due) > slow_start.weight(100, BEGAN, LENGTH, now)
    assert slow_start.next_step(BEGAN, LENGTH, BEGAN + LENGTH) is None


@given(st.integers(1, 100), st.floats(0, 120), st.integers(1, 3_600))
def test_a_restart_meets_exactly_the_weight_that_was_programmed(full: int, second: float, length: int) -> None:
    now = BEGAN + seconds(second)
    programmed = slow_start.weight(full, BEGAN, seconds(length), now)
    restarted = now + seconds(2)
    began = slow_start.resumed(slow_start.weights(full), programmed, seconds(length), restarted)
    assert slow_start.weight(full, began, seconds(length), restarted) == programmed


@given(st.integers(0, 100), st.integers(1, 100))
def test_a_resumed_slow_start_ends_whatever_weight_is_found(found: int, full: int) -> None:
    began = slow_start.resumed(slow_start.weights(full), found, LENGTH, BEGAN)
    assert slow_start.weight(full, began, LENGTH, BEGAN + LENGTH) == full
