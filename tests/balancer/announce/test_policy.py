"""The announce policy fails static: only a frontend that is down or gone is withdrawn, after its delay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.balancer.announce.gates import AnnounceGate
from holdfast.balancer.announce.policy import AnnouncedAddress, AnnounceInput, AnnouncePolicy, FrontendStatus
from holdfast.balancer.health import HealthState
from holdfast.model.base.time import Duration, Instant, seconds
from holdfast.reconcile import Change, Closed, Op, Owned

START = Instant(1_000_000_000_000)
ADDRESS = AnnouncedAddress.of("192.0.2.80", "lo")
OURS = Owned(None, "", 0)


def status(
    state: HealthState = HealthState.UP, frontend: str = "www", delay: float = 10, **more: object
) -> FrontendStatus:
    given: dict[str, object] = {"programmed": True, **more}
    return FrontendStatus(frontend, "192.0.2.80", "lo", seconds(delay), state, **given)  # type: ignore[arg-type]


def an_input(*frontends: FrontendStatus, **more: object) -> AnnounceInput:
    return AnnounceInput(START, frontends, revision=1, **more)  # type: ignore[arg-type]


def after(*inputs: AnnounceInput, every: float = 1) -> tuple[AnnouncePolicy, Instant]:
    """The policy after these inputs, one per interval; and the time then."""
    policy, now = AnnouncePolicy(inputs[0]), START
    for received in inputs:
        now = now + seconds(every)
        policy.update(received, now)
    return policy, now


def adding(policy: AnnouncePolicy, now: Instant) -> Closed | None:
    return AnnounceGate(policy).judge(Change(Op.CREATE, ADDRESS, None, OURS), {}, 0, now)


def withdrawing(policy: AnnouncePolicy, now: Instant) -> Closed | None:
    return AnnounceGate(policy).judge(Change(Op.DELETE, ADDRESS, OURS, None), {}, 1, now)


def label(closed: Closed | None) -> str | None:
    return None if closed is None else closed.gate


def test_a_frontend_that_is_up_and_programmed_is_announced() -> None:
    policy, now = after(an_input(status()))
    assert policy.wanted() == [ADDRESS]
    assert adding(policy, now) is None


@pytest.mark.parametrize(
    ("received", "gate"),
    [
        (an_input(status(programmed=False)), "vip_programmed"),
        (an_input(status(released=False)), "warm_up"),
        (an_input(status(), prober_silent_since=START), "no_prober"),
        (an_input(status(paused="ada: “migration”")), "intent"),
    ],
)
def test_an_address_is_not_announced_while_a_gate_holds_it(received: AnnounceInput, gate: str) -> None:
    policy, now = after(received)
    assert label(adding(policy, now)) == gate


@pytest.mark.parametrize(
    ("received", "gate"),
    [
        (an_input(status(HealthState.UNKNOWN)), "no_health"),
        (an_input(status(HealthState.DOWN, released=False)), "warm_up"),
        (an_input(status(HealthState.DOWN), prober_silent_since=START), "no_prober"),
        (an_input(status(HealthState.DOWN, paused="ada: “migration”")), "intent"),
        (an_input(warming=True), "warm_up"),
        (an_input(kept_vips=("192.0.2.80",)), "vip_programmed"),
    ],
)
def test_an_address_stays_while_the_state_of_its_frontend_is_uncertain(received: AnnounceInput, gate: str) -> None:
    policy, now = after(received, received)
    assert policy.wanted() == []
    assert label(withdrawing(policy, now + Duration(days=1))) == gate


def test_a_frontend_that_is_down_loses_its_address_after_its_delay() -> None:
    policy, now = after(an_input(status()), an_input(status(HealthState.DOWN)))
    assert label(withdrawing(policy, now + seconds(9.9))) == "withdraw_delay"
    assert withdrawing(policy, now + seconds(10)) is None


def test_a_frontend_that_was_up_in_between_restarts_its_delay() -> None:
    policy, now = after(an_input(status(HealthState.DOWN)), an_input(status()), an_input(status(HealthState.DOWN)))
    assert label(withdrawing(policy, now + seconds(9.9))) == "withdraw_delay"


def test_a_frontend_that_is_gone_keeps_its_address_for_the_delay_it_had() -> None:
    policy, now = after(an_input(status(delay=5)), an_input())
    assert label(withdrawing(policy, now + seconds(4.9))) == "withdraw_delay"
    assert withdrawing(policy, now + seconds(5)) is None


def test_the_delay_of_a_frontend_that_is_gone_begins_when_its_vip_may_go() -> None:
    policy, now = after(an_input(status(delay=5)), an_input(kept_vips=("192.0.2.80",)), an_input(), every=2.5)
    assert label(withdrawing(policy, now + seconds(4.9))) == "withdraw_delay"


def test_after_a_gap_in_the_inputs_a_delay_starts_again() -> None:
    policy, now = after(an_input(status(HealthState.DOWN)), an_input(status(HealthState.DOWN)), every=60)
    assert label(withdrawing(policy, now + seconds(9.9))) == "withdraw_delay"
    assert withdrawing(policy, now + seconds(10)) is None


def test_a_frontend_held_by_an_operator_is_withdrawn_although_the_prober_is_silent() -> None:
    policy, now = after(an_input(status(HealthState.DOWN, by_operator=True), prober_silent_since=START))
    assert withdrawing(policy, now + seconds(10)) is None


def test_of_two_frontends_with_one_address_one_that_is_up_is_enough() -> None:
    policy, now = after(an_input(status(HealthState.DOWN), status(frontend="www-tls")))
    assert policy.wanted() == [ADDRESS]
    assert adding(policy, now) is None


def test_of_two_frontends_with_one_address_both_must_be_down_for_long() -> None:
    policy, now = after(an_input(status(HealthState.DOWN, delay=1), status(HealthState.DOWN, "www-tls", delay=20)))
    assert label(withdrawing(policy, now + seconds(19))) == "withdraw_delay"
    assert withdrawing(policy, now + seconds(20)) is None


statuses = st.builds(
    status,
    st.sampled_from([HealthState.UP, HealthState.DOWN, HealthState.UNKNOWN]),
    delay=st.sampled_from([0.0, 1.0, 10.0]),
    programmed=st.booleans(),
    released=st.booleans(),
    by_operator=st.booleans(),
    paused=st.sampled_from([None, "ada: “why”"]),
)
inputs = st.builds(
    lambda some, silent, warming: an_input(*some, prober_silent_since=START if silent else None, warming=warming),
    st.lists(statuses, max_size=2),
    st.booleans(),
    st.booleans(),
)


@given(st.lists(inputs, min_size=1, max_size=6))
def test_nothing_is_withdrawn_unless_it_has_been_down_or_gone_for_its_delay(past: list[AnnounceInput]) -> None:
    policy, now = after(*past)
    if policy.wanted() or withdrawing(policy, now) is not None:
        return
    last = past[-1]
    if not last.frontends:
        assert not last.warming
        return
    for one in last.frontends:
        assert one.state is HealthState.DOWN
        assert one.released
        assert one.paused is None
        assert last.prober_silent_since is None or one.by_operator
        assert one.delay < seconds(len(past))


def unverified(state: HealthState = HealthState.UP, **more: object) -> AnnounceInput:
    """The prober has been silent since the start."""
    found = status(state, "www", 10, withdraw_after=seconds(60), unverified_since=START, **more)
    return an_input(found, prober_silent_since=START)


@pytest.mark.parametrize("state", [HealthState.UP, HealthState.DOWN, HealthState.UNKNOWN])
def test_an_address_whose_health_is_not_verified_goes_after_its_time_and_not_before(state: HealthState) -> None:
    policy, now = after(*[unverified(state)] * 59)
    assert policy.wanted() == ([ADDRESS] if state is HealthState.UP else [])
    assert label(withdrawing(policy, now)) in ("no_prober", "no_health")
    policy, now = after(*[unverified(state)] * 60)
    assert policy.wanted() == []
    assert withdrawing(policy, now) is None
    assert adding(policy, now) is None, "nobody wants to add it"


def test_without_withdraw_after_an_unverified_address_stays_for_ever() -> None:
    policy, now = after(*[an_input(status(unverified_since=START), prober_silent_since=START)] * 10_000)
    assert policy.wanted() == [ADDRESS]
    assert label(withdrawing(policy, now)) == "no_prober"


def test_a_paused_frontend_keeps_its_address_also_unverified() -> None:
    policy, now = after(*[unverified(paused="ada: “migration”")] * 100)
    assert label(withdrawing(policy, now)) == "intent"


def test_an_address_comes_back_when_health_is_verified_again() -> None:
    policy, now = after(*[unverified()] * 100, an_input(status(withdraw_after=seconds(60))))
    assert policy.wanted() == [ADDRESS]
    assert adding(policy, now) is None
