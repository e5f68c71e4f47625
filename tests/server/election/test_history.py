"""History of leadership: one entry per period, with its end and the reason, bounded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.model.base.region import Region
from holdfast.model.control.leader_history import KEPT, LEADERSHIP, LeaderHistory, LeaderPeriod

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(minutes: int) -> datetime:
    return START + timedelta(minutes=minutes)


def test_a_period_without_an_end_is_ended_by_the_next_leader() -> None:
    history = LeaderHistory().begin(LeaderPeriod("a", "h1", 5, at(0)), "nobody led")
    history = history.begin(LeaderPeriod("b", "h2", 9, at(3)), "its lease ran out")
    assert [(one.name, one.ended, one.why) for one in history.periods] == [
        ("a", at(3), "its lease ran out"),
        ("b", None, ""),
    ]


def test_a_recorded_reason_for_the_end_is_kept() -> None:
    history = (
        LeaderHistory().begin(LeaderPeriod("a", "h1", 5, at(0)), "").end(at(1), "an operator asked it to step down")
    )
    history = history.begin(LeaderPeriod("b", "h2", 9, at(3)), "its lease ran out")
    assert history.periods[0].ended == at(1)
    assert history.periods[0].why == "an operator asked it to step down"


def test_ending_an_empty_history_changes_nothing() -> None:
    assert LeaderHistory().end(at(0), "why") == LeaderHistory()


def test_only_the_last_terms_are_kept() -> None:
    history = LeaderHistory()
    for term in range(1, KEPT + 11):
        history = history.begin(LeaderPeriod("a", "h1", term, at(term)), "")
    assert [one.term for one in history.periods] == list(range(11, KEPT + 11))


def test_it_survives_the_store() -> None:
    history = LeaderHistory().begin(LeaderPeriod("a", "h1", 5, at(0)), "").begin(LeaderPeriod("b", "h2", 9, at(3)), "x")
    key = LEADERSHIP.key(Region("r"), "leadership")
    assert LEADERSHIP.decode(key, LEADERSHIP.encode(history)) == history
