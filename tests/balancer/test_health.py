"""Health of a backend: probe results and operator commands."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.balancer import health as machine
from holdfast.balancer.health import (
    TRANSITIONS,
    CheckCount,
    Health,
    HealthEvent,
    HealthState,
    HealthThresholds,
    InvalidEvent,
    Signal,
    fresh,
    rechecked,
    step,
)
from holdfast.balancer.probing.messages import ProbeInterval
from holdfast.model.base.time import Instant
from holdfast.testing.fault import fault

NOW = Instant(1_000)
RULES = HealthThresholds(rise=2, fall=3)


def after(health: Health, events: str, check: str = "web") -> Health:
    """`+` is a pass, `-` a failure, `~` a failure of a late prober."""
    words = {"+": HealthEvent.PASSED, "-": HealthEvent.FAILED, "~": HealthEvent.LATE}
    for event in events:
        health = step(health, Signal(words[event], "L4OK", check, RULES), NOW)
    return health


def asked(health: Health, event: HealthEvent) -> Health:
    return step(health, Signal(event, "an operator asked"), NOW)


UNKNOWN = fresh(["web"], NOW)
UP = after(UNKNOWN, "+")
DOWN = after(UNKNOWN, "-")


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ("", HealthState.UNKNOWN),
        ("+", HealthState.UP),
        ("-", HealthState.DOWN),
        ("+--", HealthState.UP),
        ("+---", HealthState.DOWN),
        ("-+", HealthState.DOWN),
        ("-++", HealthState.UP),
        ("-+-+", HealthState.DOWN),
        ("+---++", HealthState.UP),
        ("~~~~", HealthState.UNKNOWN),
    ],
)
def test_results_in_a_row_decide(events: str, state: HealthState) -> None:
    assert after(UNKNOWN, events).state is state


def forgetless(count: CheckCount, rules: HealthThresholds, *, passed: bool) -> CheckCount:
    """A counter between 0 and rise + fall - 1 that steps by one: what others have, and what flaps."""
    top = rules.rise + rules.fall - 1
    level = top - count.against if count.verdict is HealthState.UP else count.against
    if count.verdict is HealthState.UNKNOWN:
        return CheckCount(HealthState.UP if passed else HealthState.DOWN, rules.fall - 1 if passed else 0)
    level = min(top, level + 1) if passed else max(0, level - 1)
    up = level >= rules.rise
    return CheckCount(HealthState.UP, top - level) if up else CheckCount(HealthState.DOWN, level)


@fault(
    "B7",
    without="holdfast.balancer.health:_counted",
    by="tests.balancer.test_health:forgetless",
    sees=(AssertionError, r"after\(risen"),
)
def test_B7_a_freshly_risen_backend_does_not_fall_by_one_failure() -> None:
    risen = after(UNKNOWN, "-++")
    assert risen.state is HealthState.UP
    assert after(risen, "--").state is HealthState.UP
    assert after(risen, "---").state is HealthState.DOWN


@given(st.integers(1, 50))
def test_alternating_results_never_flap(count: int) -> None:
    assert after(UP, "-+" * count).state is HealthState.UP
    assert after(DOWN, "+-" * count).state is HealthState.DOWN


@fault(
    "B25",
    without="holdfast.balancer.health:fresh",
    by="tests.balancer.test_health:hasty",
    sees=(AssertionError, r"after\(found"),
)
def test_B25_one_lost_probe_does_not_cut_a_backend_that_was_found_serving() -> None:
    found = machine.fresh(["web"], NOW, serving=True)
    assert after(found, "-").state is HealthState.UNKNOWN
    assert after(found, "-+").state is HealthState.UP
    assert after(found, "---").state is HealthState.DOWN


def hasty(checks: list[str], now: Instant, *, serving: bool = False) -> Health:
    return Health(HealthState.UNKNOWN, {check: CheckCount() for check in checks}, now)


def test_a_late_prober_proves_nothing() -> None:
    assert after(UP, "~" * 10) == UP


def test_all_checks_must_pass() -> None:
    two = fresh(["web", "ping"], NOW)
    assert after(two, "+", "web").state is HealthState.UNKNOWN
    both = after(after(two, "+", "web"), "+", "ping")
    assert both.state is HealthState.UP
    assert after(both, "---", "ping").state is HealthState.DOWN


def test_a_backend_without_a_check_is_up() -> None:
    assert fresh([], NOW).state is HealthState.UP


def test_a_changed_check_keeps_the_state_until_it_has_a_verdict() -> None:
    changed = rechecked(UP, ["web"], ["web"], NOW)
    assert changed.state is HealthState.UP
    assert after(changed, "--").state is HealthState.UP
    assert after(changed, "---").state is HealthState.DOWN
    assert after(rechecked(DOWN, ["web"], ["web"], NOW), "+").state is HealthState.UP


def test_an_unchanged_check_keeps_its_count() -> None:
    degraded = after(UP, "--")
    assert rechecked(degraded, ["web", "ping"], ["ping"], NOW).counts["web"] == degraded.counts["web"]


def test_resume_and_enable_begin_with_unknown() -> None:
    assert asked(asked(UP, HealthEvent.PAUSE), HealthEvent.RESUME).state is HealthState.UNKNOWN
    assert asked(asked(UP, HealthEvent.DISABLE), HealthEvent.ENABLE).state is HealthState.UNKNOWN


@pytest.mark.parametrize("event", [HealthEvent.PASSED, HealthEvent.FAILED, HealthEvent.LATE])
@pytest.mark.parametrize("hold", [HealthEvent.PAUSE, HealthEvent.DISABLE, HealthEvent.REMOVE])
def test_a_result_that_was_under_way_changes_nothing(hold: HealthEvent, event: HealthEvent) -> None:
    held = asked(UP, hold)
    assert step(held, Signal(event, "L4OK", "web", RULES), NOW) == held


def test_B10_a_disabled_backend_cannot_be_paused() -> None:
    disabled = asked(UP, HealthEvent.DISABLE)
    with pytest.raises(InvalidEvent, match="a backend that is disabled cannot be paused"):
        asked(disabled, HealthEvent.PAUSE)


@pytest.mark.parametrize(
    ("state", "event"), [pair for pair in product(HealthState, HealthEvent) if pair not in TRANSITIONS]
)
def test_an_event_that_a_state_does_not_know_raises(state: HealthState, event: HealthEvent) -> None:
    with pytest.raises(InvalidEvent):
        asked(Health(state), event)


@pytest.mark.parametrize(
    ("events", "interval"),
    [
        ("", ProbeInterval.FAST),
        ("+", ProbeInterval.NORMAL),
        ("+-", ProbeInterval.FAST),
        ("-", ProbeInterval.DOWN),
        ("-+", ProbeInterval.FAST),
        ("+-+", ProbeInterval.NORMAL),
    ],
)
def test_probing_is_fast_while_undecided_and_slow_while_down(events: str, interval: ProbeInterval) -> None:
    assert after(UNKNOWN, events).counts["web"].interval is interval


def test_a_transition_says_when_and_why() -> None:
    down = step(UP, Signal(HealthEvent.FAILED, "L4CON", "web", HealthThresholds(fall=1)), Instant(7))
    assert (down.state, down.since, down.why) == (HealthState.DOWN, Instant(7), "L4CON")
