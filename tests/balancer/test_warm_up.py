"""Warm-up after a start in three phases; each frontend is released exactly once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.balancer.warm_up import Trigger, WarmUp, WarmUpPhase, WarmUpReason
from holdfast.model.base.time import Instant, seconds
from holdfast.reconcile import Reason
from holdfast.testing.fault import fault

START = Instant(5_000_000_000)


def at(second: float) -> Instant:
    return START + seconds(second)


def window(low: float = 5, high: float = 30) -> WarmUp:
    return WarmUp(START, seconds(low), seconds(high))


def reason(warm: WarmUp, frontend: str | None, second: float) -> Reason | None:
    closed = warm.judge(frontend, at(second))
    return None if closed is None else closed.reason


def test_before_min_delay_nothing_is_touched_however_much_is_known() -> None:
    warm, let = window().released_now({"web": True}, at(4.9))
    assert not let
    assert reason(warm, "web", 4.9) is WarmUpReason.MIN_DELAY
    assert reason(warm, None, 4.9) is WarmUpReason.MIN_DELAY


def test_between_the_delays_a_frontend_is_released_as_soon_as_it_is_known() -> None:
    warm, let = window().released_now({"web": True, "dns": False}, at(6))
    assert let == {"web": Trigger.KNOWN}
    assert reason(warm, "web", 6) is None
    assert reason(warm, "dns", 6) is WarmUpReason.BACKEND_UNKNOWN
    assert reason(warm, None, 6) is WarmUpReason.FULL_SYNC


def test_at_max_delay_the_rest_is_released_with_what_is_known() -> None:
    warm, let = window().released_now({"dns": False}, at(30))
    assert let == {"dns": Trigger.MAX_DELAY}
    assert warm.phase(at(30)) is WarmUpPhase.OVER
    assert reason(warm, None, 30) is None


def test_a_released_frontend_stays_released_although_a_backend_becomes_unknown_again() -> None:
    warm, _ = window().released_now({"web": True}, at(6))
    warm, let = warm.released_now({"web": False}, at(7))
    assert not let
    assert reason(warm, "web", 7) is None


def test_without_delays_there_is_no_warm_up() -> None:
    warm, let = window(0, 0).released_now({"web": False}, at(0))
    assert let == {"web": Trigger.MAX_DELAY}
    assert reason(warm, None, 0) is None


@given(st.lists(st.tuples(st.floats(0, 40), st.dictionaries(st.sampled_from("abc"), st.booleans())), max_size=20))
def test_each_frontend_is_released_at_most_once(looks: list[tuple[float, dict[str, bool]]]) -> None:
    warm, released = window(), list[str]()
    for second, known in sorted(looks, key=lambda look: look[0]):
        warm, let = warm.released_now(known, at(second))
        released += let
    assert len(released) == len(set(released))


def open_always(warm: WarmUp, frontend: str | None, now: Instant) -> None:
    return None


@fault(
    "B1",
    without="holdfast.balancer.warm_up:WarmUp.judge",
    by="tests.balancer.test_warm_up:open_always",
    sees=(AssertionError, r"reason\(window\(\)"),
)
def test_B1_an_unknown_backend_is_not_written_as_zero_after_a_start() -> None:
    assert reason(window(), "web", 1) is WarmUpReason.MIN_DELAY
    assert reason(window(), "web", 10) is WarmUpReason.BACKEND_UNKNOWN
