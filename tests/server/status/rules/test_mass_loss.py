"""Mass-loss gate: when losses are held, for how long, and what ends the hold."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.base.time import NEVER, Instant, seconds
from holdfast.reconcile import Change, Closed, Op, Owned
from holdfast.server.status.rules.mass_loss import TRANSITIONS, Loss, LossEvent, LossState, MassLoss

START = NEVER + seconds(1_000)
Lost = Change[str, str]


def loss(host: str) -> Lost:
    return Change(Op.REPLACE, host, Owned("alive", "", 0), Owned("gone", "", 0))


def gate() -> MassLoss[str, str]:
    return MassLoss("agent-status", lambda change: change.key)


def judged(
    found: MassLoss[str, str], hosts: Iterable[str], reporting: int, now: Instant = START
) -> list[Closed | None]:
    hosts = list(hosts)
    found.vanished(hosts, reporting, now)
    return [found.judge(loss(host), {}, 0, now) for host in hosts]


def hosts(count: int, first: int = 0) -> list[str]:
    return [f"h{number}" for number in range(first, first + count)]


def test_five_hosts_are_down_at_once_even_when_they_are_all() -> None:
    assert judged(gate(), hosts(5), reporting=0) == [None] * 5


def test_six_of_a_hundred_are_down_at_once() -> None:
    assert judged(gate(), hosts(6), reporting=94) == [None] * 6


def test_a_fifth_is_not_more_than_a_fifth() -> None:
    assert judged(gate(), hosts(20), reporting=80) == [None] * 20


def test_more_than_a_fifth_and_more_than_five_are_held_with_their_number() -> None:
    held = judged(gate(), hosts(21), reporting=79)
    assert all(held)
    assert held[0] is not None
    assert held[0].sentence.startswith("21 of 100 agents: so many agents vanished at once")
    assert "holdfast gate allow agent-status/mass_loss --once" in held[0].opens


def test_losses_that_trickle_within_ten_seconds_are_counted_together() -> None:
    found = gate()
    assert judged(found, hosts(4), reporting=16) == [None] * 4
    later = START + seconds(9)
    assert all(judged(found, hosts(3, first=4), reporting=13, now=later))


def test_losses_of_more_than_ten_seconds_ago_do_not_count() -> None:
    found = gate()
    judged(found, hosts(4), reporting=16)
    assert judged(found, hosts(3, first=4), reporting=13, now=START + seconds(11)) == [None] * 3


def test_whatever_vanishes_while_losses_are_held_is_held_too() -> None:
    found = gate()
    judged(found, hosts(10), reporting=10)
    assert all(judged(found, ["late"], reporting=9, now=START + seconds(60)))


def test_the_hold_stays_while_no_agent_reports() -> None:
    found = gate()
    assert all(judged(found, hosts(10), reporting=10))
    assert all(judged(found, hosts(10), reporting=10, now=START + seconds(86_400)))


def test_thirty_seconds_and_a_fresh_report_of_another_agent_end_it() -> None:
    found = gate()
    judged(found, hosts(10), reporting=10)
    found.reported(["other"], START)
    assert all(judged(found, hosts(10), reporting=10, now=START + seconds(29)))
    assert judged(found, hosts(10), reporting=10, now=START + seconds(30)) == [None] * 10


def test_a_report_from_before_the_hold_proves_nothing() -> None:
    found = gate()
    found.reported(["other"], START)
    judged(found, hosts(10), reporting=10)
    assert all(judged(found, hosts(10), reporting=10, now=START + seconds(31)))


def test_what_proved_one_wave_proves_nothing_about_the_next() -> None:
    """A rack is lost, the others report; then the store breaks, and they are all gone."""
    found = gate()
    judged(found, hosts(10), reporting=30)
    found.reported(["h20"], START)
    later = START + seconds(29)
    assert all(judged(found, hosts(30, first=10), reporting=0, now=later))
    assert judged(found, hosts(10), reporting=0, now=START + seconds(30)) == [None] * 10
    assert all(judged(found, hosts(30, first=10), reporting=0, now=later + seconds(86_400)))


def test_a_held_host_that_reports_again_is_held_no_more() -> None:
    found = gate()
    judged(found, hosts(10), reporting=10)
    found.reported(hosts(10), START)
    assert not found.held
    assert not found.since


def test_an_operator_can_let_them_through_and_they_are_not_held_again() -> None:
    found = gate()
    judged(found, hosts(10), reporting=10)
    assert found.allow(START) == 10
    assert judged(found, hosts(10), reporting=10, now=START + seconds(1)) == [None] * 10


def test_what_is_no_loss_passes() -> None:
    found: MassLoss[str, str] = MassLoss("agent-status", lambda _change: None)
    assert judged(found, hosts(50), reporting=0) == [None] * 50


@given(st.integers(0, 200), st.integers(0, 200))
def test_one_batch_is_held_exactly_when_it_is_more_than_five_and_more_than_a_fifth(lost: int, reporting: int) -> None:
    found = judged(gate(), hosts(lost), reporting)
    assert all(found) is (lost == 0 or (lost > 5 and lost > 0.2 * (lost + reporting)))


def test_of_how_many_is_counted_anew_once_all_have_reported_again() -> None:
    found = gate()
    judged(found, hosts(50), reporting=150)
    found.reported(hosts(50), START)
    (again, *_) = judged(found, hosts(10), reporting=20)
    assert again is not None
    assert again.sentence.startswith("10 of 30 agents")


def test_a_hold_ends_when_due_even_if_no_change_of_its_host_is_judged() -> None:
    found = gate()
    judged(found, hosts(30), reporting=30)
    found.reported(["another"], START)
    found.release_due(START + seconds(29))
    assert len(found.held) == 30
    found.release_due(START + seconds(30))
    assert not found.held


def test_a_loss_that_is_announced_again_and_again_is_as_old_as_it_was() -> None:
    """The database is away: what was lost ten minutes ago is still to be written, and one more host vanishes."""
    found = gate()
    for minute in range(10):
        found.vanished(hosts(5), 15, START + seconds(60 * minute))
    assert judged(found, hosts(6), reporting=14, now=START + seconds(600)) == [None] * 6


def test_a_host_that_was_accepted_as_lost_and_is_back_is_held_with_the_next_wave() -> None:
    found = gate()
    judged(found, hosts(10), reporting=10)
    found.allow(START)
    found.back(hosts(10), START)
    assert all(judged(found, hosts(10), reporting=10, now=START + seconds(60)))


def test_a_host_that_a_list_shows_proves_nothing_about_the_others() -> None:
    found = gate()
    judged(found, hosts(20), reporting=0)
    found.back(hosts(1), START)
    assert len(found.held) == 19
    assert all(judged(found, hosts(19, first=1), reporting=1, now=START + seconds(60)))


def test_a_loss_that_was_written_and_comes_again_later_is_a_new_one() -> None:
    found = gate()
    for number in range(10):
        at = START + seconds(60 * number)
        assert judged(found, [f"h{number}"], reporting=20, now=at) == [None]
        found.settled([f"h{number}"], at + seconds(11))
    assert all(judged(found, hosts(10), reporting=10, now=START + seconds(3_600)))


def test_what_was_written_a_moment_ago_still_counts() -> None:
    found = gate()
    judged(found, hosts(4), reporting=16)
    found.settled(hosts(4), START + seconds(1))
    assert all(judged(found, hosts(3, first=4), reporting=13, now=START + seconds(9)))


P, L, H, V, A = LossState.PRESENT, LossState.LOST, LossState.HELD, LossState.PROVEN, LossState.ACCEPTED
NO = None
"""The event cannot come in this state."""


@pytest.mark.parametrize(
    ("event", "present", "lost", "held", "proven", "accepted"),
    [
        (LossEvent.VANISHED, L, L, H, V, A),
        (LossEvent.VANISHED_IN_MASS, NO, H, H, V, A),
        (LossEvent.OTHER_REPORTED, NO, NO, V, NO, NO),
        (LossEvent.DUE, NO, NO, NO, A, NO),
        (LossEvent.ALLOWED, NO, NO, A, A, NO),
        (LossEvent.WRITTEN, NO, P, H, V, A),
        (LossEvent.BACK, NO, P, P, P, P),
    ],
    ids=lambda value: value.name if isinstance(value, LossEvent) else "",
)
def test_a_host_moves_on_as_the_table_says_and_an_unknown_event_raises(
    event: LossEvent,
    present: LossState | None,
    lost: LossState | None,
    held: LossState | None,
    proven: LossState | None,
    accepted: LossState | None,
) -> None:
    for before, after in zip(LossState, (present, lost, held, proven, accepted), strict=True):
        found = gate()
        if before is not P:
            found._losses["h"] = Loss(START, before)
        if after is None:
            with pytest.raises(KeyError):
                found._apply(event, ["h"], START)
        else:
            found._apply(event, ["h"], START)
            assert found.state("h") is after


def test_every_state_and_event_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(LossState)
    assert {event for events in TRANSITIONS.values() for event in events} == set(LossEvent)


CALLS = st.sampled_from(["vanished", "reported", "back", "settled", "release_due", "allow"])
SOME = st.sets(st.sampled_from(hosts(12)))


@given(st.lists(st.tuples(CALLS, SOME, st.integers(0, 40)), max_size=30))
def test_whatever_happens_no_event_is_unknown_and_the_held_are_counted(
    story: list[tuple[str, set[str], int]],
) -> None:
    found, now = gate(), START
    for call, some, after in story:
        now += seconds(after)
        if call == "vanished":
            found.vanished(some, 12 - len(some), now)
        elif call in ("release_due", "allow"):
            getattr(found, call)(now)
        else:
            getattr(found, call)(some, now)
        held = [host for host in hosts(12) if found.judge(loss(host), {}, 0, now) is not None]
        assert sorted(found.held) == sorted(held)
        assert bool(found.since) is bool(held)
