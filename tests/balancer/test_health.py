"""What probe results and an operator's word make of a backend."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.balancer import health as machine
from holdfast.balancer.health import (
    TRANSITIONS,
    Count,
    Event,
    Health,
    Impossible,
    Rules,
    Signal,
    State,
    fresh,
    rechecked,
    step,
)
from holdfast.balancer.probing.messages import Pace
from holdfast.model.base.time import Instant
from holdfast.testing.fault import fault

NOW = Instant(1_000)
RULES = Rules(rise=2, fall=3)


def after(health: Health, events: str, check: str = "web") -> Health:
    """`+` is a pass, `-` a failure, `~` a failure of a late prober."""
    words = {"+": Event.PASSED, "-": Event.FAILED, "~": Event.LATE}
    for event in events:
        health = step(health, Signal(words[event], "L4OK", check, RULES), NOW)
    return health


def asked(health: Health, event: Event) -> Health:
    return step(health, Signal(event, "an operator asked"), NOW)


UNKNOWN = fresh(["web"], NOW)
UP = after(UNKNOWN, "+")
DOWN = after(UNKNOWN, "-")


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ("", State.UNKNOWN),
        ("+", State.UP),
        ("-", State.DOWN),
        ("+--", State.UP),
        ("+---", State.DOWN),
        ("-+", State.DOWN),
        ("-++", State.UP),
        ("-+-+", State.DOWN),
        ("+---++", State.UP),
        ("~~~~", State.UNKNOWN),
    ],
)
def test_results_in_a_row_decide(events: str, state: State) -> None:
    assert after(UNKNOWN, events).state is state


def forgetless(count: Count, rules: Rules, *, passed: bool) -> Count:
    """A counter between 0 and rise + fall - 1 that steps by one: what others have, and what flaps."""
    top = rules.rise + rules.fall - 1
    level = top - count.against if count.verdict is State.UP else count.against
    if count.verdict is State.UNKNOWN:
        return Count(State.UP if passed else State.DOWN, rules.fall - 1 if passed else 0)
    level = min(top, level + 1) if passed else max(0, level - 1)
    up = level >= rules.rise
    return Count(State.UP, top - level) if up else Count(State.DOWN, level)


@fault("B7", without="holdfast.balancer.health:_counted", by="tests.balancer.test_health:forgetless")
def test_B7_a_freshly_risen_backend_does_not_fall_by_one_failure() -> None:
    risen = after(UNKNOWN, "-++")
    assert risen.state is State.UP
    assert after(risen, "--").state is State.UP
    assert after(risen, "---").state is State.DOWN


@given(st.integers(1, 50))
def test_alternating_results_never_flap(count: int) -> None:
    assert after(UP, "-+" * count).state is State.UP
    assert after(DOWN, "+-" * count).state is State.DOWN


@fault("B25", without="holdfast.balancer.health:fresh", by="tests.balancer.test_health:hasty")
def test_B25_one_lost_probe_does_not_cut_a_backend_that_was_found_serving() -> None:
    found = machine.fresh(["web"], NOW, serving=True)
    assert after(found, "-").state is State.UNKNOWN
    assert after(found, "-+").state is State.UP
    assert after(found, "---").state is State.DOWN


def hasty(checks: list[str], now: Instant, *, serving: bool = False) -> Health:
    return Health(State.UNKNOWN, {check: Count() for check in checks}, now)


def test_a_late_prober_proves_nothing() -> None:
    assert after(UP, "~" * 10) == UP


def test_all_checks_must_pass() -> None:
    two = fresh(["web", "ping"], NOW)
    assert after(two, "+", "web").state is State.UNKNOWN
    both = after(after(two, "+", "web"), "+", "ping")
    assert both.state is State.UP
    assert after(both, "---", "ping").state is State.DOWN


def test_a_backend_without_a_check_is_up() -> None:
    assert fresh([], NOW).state is State.UP


def test_a_changed_check_keeps_the_state_until_it_has_a_verdict() -> None:
    changed = rechecked(UP, ["web"], ["web"])
    assert changed.state is State.UP
    assert after(changed, "--").state is State.UP
    assert after(changed, "---").state is State.DOWN
    assert after(rechecked(DOWN, ["web"], ["web"]), "+").state is State.UP


def test_an_unchanged_check_keeps_its_count() -> None:
    degraded = after(UP, "--")
    assert rechecked(degraded, ["web", "ping"], ["ping"]).counts["web"] == degraded.counts["web"]


def test_resume_and_enable_begin_with_unknown() -> None:
    assert asked(asked(UP, Event.PAUSE), Event.RESUME).state is State.UNKNOWN
    assert asked(asked(UP, Event.DISABLE), Event.ENABLE).state is State.UNKNOWN


@pytest.mark.parametrize("event", [Event.PASSED, Event.FAILED, Event.LATE])
@pytest.mark.parametrize("hold", [Event.PAUSE, Event.DISABLE, Event.REMOVE])
def test_a_result_that_was_under_way_changes_nothing(hold: Event, event: Event) -> None:
    held = asked(UP, hold)
    assert step(held, Signal(event, "L4OK", "web", RULES), NOW) == held


def test_B10_a_disabled_backend_cannot_be_paused() -> None:
    disabled = asked(UP, Event.DISABLE)
    with pytest.raises(Impossible, match="a backend that is disabled cannot be paused"):
        asked(disabled, Event.PAUSE)


@pytest.mark.parametrize(("state", "event"), [pair for pair in product(State, Event) if pair not in TRANSITIONS])
def test_what_a_state_does_not_know_raises(state: State, event: Event) -> None:
    with pytest.raises(Impossible):
        asked(Health(state), event)


@pytest.mark.parametrize(
    ("events", "pace"),
    [("", Pace.FAST), ("+", Pace.NORMAL), ("+-", Pace.FAST), ("-", Pace.DOWN), ("-+", Pace.FAST), ("+-+", Pace.NORMAL)],
)
def test_probing_is_fast_while_undecided_and_slow_while_down(events: str, pace: Pace) -> None:
    assert after(UNKNOWN, events).counts["web"].pace is pace


def test_a_transition_says_when_and_why() -> None:
    down = step(UP, Signal(Event.FAILED, "L4CON", "web", Rules(fall=1)), Instant(7))
    assert (down.state, down.since, down.why) == (State.DOWN, Instant(7), "L4CON")
