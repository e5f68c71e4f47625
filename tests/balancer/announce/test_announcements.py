"""Announcing fails static: only down, or gone, withdraws an address, after the delay; all else leaves it as found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.balancer.announce.policy import AnnouncedAddress, AnnounceInput, AnnouncePolicy, FrontendStatus
from holdfast.balancer.health import HealthState
from holdfast.model.base.time import Duration, Instant, seconds
from holdfast.reconcile import Change, Closed, Op, Owned

START = Instant(1_000_000_000_000)
SPOT = AnnouncedAddress.of("192.0.2.80", "lo")
OURS = Owned(None, "", 0)


def stand(
    state: HealthState = HealthState.UP, frontend: str = "www", delay: float = 10, **more: object
) -> FrontendStatus:
    given: dict[str, object] = {"programmed": True, **more}
    return FrontendStatus(frontend, "192.0.2.80", "lo", seconds(delay), state, **given)  # type: ignore[arg-type]


def told(*stands: FrontendStatus, **more: object) -> AnnounceInput:
    return AnnounceInput(START, stands, revision=1, **more)  # type: ignore[arg-type]


def heard(*outlooks: AnnounceInput, every: float = 1) -> tuple[AnnouncePolicy, Instant]:
    """What is known after these outlooks, one after the other; and when that is."""
    known, now = AnnouncePolicy(outlooks[0]), START
    for outlook in outlooks:
        now = now + seconds(every)
        known.hear(outlook, now)
    return known, now


def adding(known: AnnouncePolicy, now: Instant) -> Closed | None:
    return known.judge(Change(Op.CREATE, SPOT, None, OURS), {}, 0, now)


def withdrawing(known: AnnouncePolicy, now: Instant) -> Closed | None:
    return known.judge(Change(Op.DELETE, SPOT, OURS, None), {}, 1, now)


def label(closed: Closed | None) -> str | None:
    return None if closed is None else closed.gate


def test_a_frontend_that_is_up_and_programmed_is_announced() -> None:
    known, now = heard(told(stand()))
    assert known.wanted() == [SPOT]
    assert adding(known, now) is None


@pytest.mark.parametrize(
    ("outlook", "gate"),
    [
        (told(stand(programmed=False)), "vip"),
        (told(stand(released=False)), "warm_up"),
        (told(stand(), silent=START), "no_prober"),
        (told(stand(paused="ada: “migration”")), "intent"),
    ],
)
def test_an_address_does_not_come_before_its_time(outlook: AnnounceInput, gate: str) -> None:
    known, now = heard(outlook)
    assert label(adding(known, now)) == gate


@pytest.mark.parametrize(
    ("outlook", "gate"),
    [
        (told(stand(HealthState.UNKNOWN)), "no_health"),
        (told(stand(HealthState.DOWN, released=False)), "warm_up"),
        (told(stand(HealthState.DOWN), silent=START), "no_prober"),
        (told(stand(HealthState.DOWN, paused="ada: “migration”")), "intent"),
        (told(warming=True), "warm_up"),
        (told(staying=("192.0.2.80",)), "vip"),
    ],
)
def test_an_address_stays_however_long_nobody_can_tell(outlook: AnnounceInput, gate: str) -> None:
    known, now = heard(outlook, outlook)
    assert known.wanted() == []
    assert label(withdrawing(known, now + Duration(days=1))) == gate


def test_a_frontend_that_is_down_loses_its_address_after_its_delay() -> None:
    known, now = heard(told(stand()), told(stand(HealthState.DOWN)))
    assert label(withdrawing(known, now + seconds(9.9))) == "withdraw_delay"
    assert withdrawing(known, now + seconds(10)) is None


def test_a_frontend_that_was_up_in_between_starts_its_delay_anew() -> None:
    known, now = heard(told(stand(HealthState.DOWN)), told(stand()), told(stand(HealthState.DOWN)))
    assert label(withdrawing(known, now + seconds(9.9))) == "withdraw_delay"


def test_a_frontend_that_is_gone_keeps_its_address_for_the_delay_it_had() -> None:
    known, now = heard(told(stand(delay=5)), told())
    assert label(withdrawing(known, now + seconds(4.9))) == "withdraw_delay"
    assert withdrawing(known, now + seconds(5)) is None


def test_the_delay_of_a_frontend_that_is_gone_begins_when_its_vip_may_go() -> None:
    known, now = heard(told(stand(delay=5)), told(staying=("192.0.2.80",)), told(), every=2.5)
    assert label(withdrawing(known, now + seconds(4.9))) == "withdraw_delay"


def test_after_a_gap_in_the_news_a_delay_begins_anew() -> None:
    known, now = heard(told(stand(HealthState.DOWN)), told(stand(HealthState.DOWN)), every=60)
    assert label(withdrawing(known, now + seconds(9.9))) == "withdraw_delay"
    assert withdrawing(known, now + seconds(10)) is None


def test_what_an_operator_took_out_is_withdrawn_although_the_prober_is_silent() -> None:
    known, now = heard(told(stand(HealthState.DOWN, by_operator=True), silent=START))
    assert withdrawing(known, now + seconds(10)) is None


def test_of_two_frontends_with_one_address_one_that_is_up_is_enough() -> None:
    known, now = heard(told(stand(HealthState.DOWN), stand(frontend="www-tls")))
    assert known.wanted() == [SPOT]
    assert adding(known, now) is None


def test_of_two_frontends_with_one_address_both_must_be_down_for_long() -> None:
    known, now = heard(told(stand(HealthState.DOWN, delay=1), stand(HealthState.DOWN, "www-tls", delay=20)))
    assert label(withdrawing(known, now + seconds(19))) == "withdraw_delay"
    assert withdrawing(known, now + seconds(20)) is None


stands = st.builds(
    stand,
    st.sampled_from([HealthState.UP, HealthState.DOWN, HealthState.UNKNOWN]),
    delay=st.sampled_from([0.0, 1.0, 10.0]),
    programmed=st.booleans(),
    released=st.booleans(),
    by_operator=st.booleans(),
    paused=st.sampled_from([None, "ada: “why”"]),
)
outlooks = st.builds(
    lambda some, silent, warming: told(*some, silent=START if silent else None, warming=warming),
    st.lists(stands, max_size=2),
    st.booleans(),
    st.booleans(),
)


@given(st.lists(outlooks, min_size=1, max_size=6))
def test_nothing_is_withdrawn_unless_it_has_been_down_or_gone_for_its_delay(past: list[AnnounceInput]) -> None:
    known, now = heard(*past)
    if known.wanted() or withdrawing(known, now) is not None:
        return
    last = past[-1]
    if not last.stands:
        assert not last.warming
        return
    for one in last.stands:
        assert one.state is HealthState.DOWN
        assert one.released
        assert one.paused is None
        assert last.silent is None or one.by_operator
        assert one.delay < seconds(len(past))
