"""The sync, brake and pause gates: what closes them, what they answer, what releases."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.base.time import Instant, seconds
from holdfast.reconcile import (
    Brake,
    BrakeReason,
    Change,
    Closed,
    Kinds,
    Op,
    Outcome,
    Owned,
    PauseGate,
    Plan,
    Synced,
    SyncGate,
    SyncReason,
    one_kind,
    plan,
)
from holdfast.testing.fault import fault
from tests.reconcile.pauses import a_pause

T0 = Instant(5_000_000_000_000)
kinds: Kinds[int] = one_kind("routes")


def delete(key: int, source: str = "a") -> Change[int, str]:
    return Change(Op.DELETE, key, Owned("x", source, 1), None)


def create(key: int) -> Change[int, str]:
    return Change(Op.CREATE, key, None, Owned("x", "a", 1))


def braked(brake: Brake[int, str], keys: range, have: int, now: Instant) -> Plan[int, str]:
    made = plan([delete(key) for key in keys], [brake], {"routes": have}, now, kinds)
    brake.note(made, now)
    for change in made.ready:
        brake.note(Outcome(change), now)
    return made


def new_brake() -> Brake[int, str]:
    return Brake("agent/brake", kinds)


def first(made: Plan[int, str]) -> Closed:
    return made.held[0][1]


def test_nothing_is_pruned_before_its_source_delivered_a_complete_list() -> None:
    sync = SyncGate({"a": Synced(T0)})
    closed = sync.judge(delete(1), {}, 9, T0)
    assert closed is not None
    assert closed.reason is SyncReason.UNSYNCED
    assert closed.opens == "a complete list from a"
    sync.note_source("a", Synced(T0, revision=7))
    assert sync.judge(delete(1), {}, 9, T0) is None


def test_to_give_a_source_up_is_no_advice_while_it_may_be_starting() -> None:
    sync = SyncGate({"a": Synced(T0)})
    early, late = (sync.judge(delete(1), {}, 9, T0 + seconds(s)) for s in (59, 61))
    assert early is not None
    assert late is not None
    assert "forget" not in early.opens
    assert late.opens == "a complete list from a, or: holdfast source forget a --reason …"


def test_the_source_of_a_fleet_without_regions_is_called_the_store() -> None:
    closed = SyncGate({"no-region": Synced(T0)}).judge(delete(1, "no-region"), {}, 9, T0)
    assert closed is not None
    assert closed.opens == "a complete list from the store"
    assert closed.sentence.startswith("the store: its source has not delivered")


def test_an_unsynced_source_only_adds_and_keeps() -> None:
    assert SyncGate({"a": Synced(T0)}).judge(create(1), {}, 9, T0) is None


def test_time_never_opens_the_sync_gate() -> None:
    assert SyncGate({"a": Synced(T0)}).judge(delete(1), {}, 9, T0 + seconds(1e6)) is not None


def test_an_object_known_only_from_its_tag_waits_for_all_sources() -> None:
    sync = SyncGate({"a": Synced(T0, 7), "b": Synced(T0)})
    assert sync.judge(delete(1, "a"), {}, 9, T0) is None
    closed = sync.judge(delete(1, ""), {}, 9, T0)
    assert closed is not None
    assert closed.reason is SyncReason.SOURCES_UNSYNCED
    sync.forget("b")
    assert sync.judge(delete(1, ""), {}, 9, T0) is None


def test_a_value_that_was_never_readable_holds_the_deletes_of_its_source_and_is_named() -> None:
    sync = SyncGate({"a": Synced(T0, 7, unreadable=("/calico/…/r7",)), "b": Synced(T0, 3)})
    closed = sync.judge(delete(1, "a"), {}, 9, T0)
    assert closed is not None
    assert (closed.reason, "/calico/…/r7" in closed.opens) == (SyncReason.UNREADABLE, True)
    assert sync.judge(delete(1, "b"), {}, 9, T0) is None


def test_twenty_deletes_of_a_thousand_pass_and_so_do_a_hundred_of_a_thousand() -> None:
    assert len(braked(new_brake(), range(20), 1_000, T0).ready) == 20
    assert len(braked(new_brake(), range(100), 1_000, T0).ready) == 100


def test_a_hundred_and_one_of_a_thousand_are_all_held_and_the_sentence_counts_them() -> None:
    made = braked(new_brake(), range(101), 1_000, T0)
    assert (len(made.ready), len(made.held)) == (0, 101)
    assert first(made).detail == "would delete 101 of 1,000 routes (10.1%)"
    assert first(made).reason is BrakeReason.TOO_MANY


def test_of_four_objects_two_may_go_but_not_three() -> None:
    assert len(braked(new_brake(), range(2), 4, T0).ready) == 2
    made = braked(new_brake(), range(3), 4, T0)
    assert first(made).reason is BrakeReason.ALMOST_ALL
    assert len(braked(new_brake(), range(3), 3, T0).ready) == 3


def test_many_plans_of_one_delete_are_counted_together() -> None:
    brake, now, flowed = new_brake(), T0, 0
    for key in range(60):
        flowed += len(braked(brake, range(key, key + 1), 100 - flowed, now).ready)
        now += seconds(0.5)
    assert flowed == 20


def test_a_slow_trickle_never_meets_the_brake() -> None:
    brake, now = new_brake(), T0
    for key in range(90):
        assert len(braked(brake, range(key, key + 1), 1_000 - key, now).ready) == 1
        now += seconds(10)


def test_creates_and_replaces_pass_while_the_brake_is_closed() -> None:
    brake = new_brake()
    wish = [delete(key) for key in range(50)] + [create(key) for key in range(100, 900)]
    made = plan(wish, [brake], {"routes": 100}, T0, kinds)
    assert (len(made.ready), len(made.held)) == (800, 50)


def test_a_fresh_list_a_minute_later_opens_it_when_few_enough_go() -> None:
    brake = new_brake()
    assert braked(brake, range(29), 100, T0).ready == []
    assert not brake.wants_list(T0 + seconds(59))
    assert brake.wants_list(T0 + seconds(60))
    brake.listed(asked=T0 + seconds(59))  # asked for too early to prove anything
    assert braked(brake, range(29), 100, T0 + seconds(61)).ready == []
    brake.listed(asked=T0 + seconds(60))
    assert len(braked(brake, range(29), 100, T0 + seconds(62)).ready) == 29


def test_a_delete_that_came_later_waits_for_a_list_of_its_own() -> None:
    brake = new_brake()
    braked(brake, range(25), 100, T0)
    braked(brake, range(26), 100, T0 + seconds(50))
    brake.listed(asked=T0 + seconds(60))
    made = braked(brake, range(26), 100, T0 + seconds(61))
    assert ([c.key for c in made.ready], [c.key for c, _ in made.held]) == (list(range(25)), [25])


def test_a_delete_that_was_withdrawn_meanwhile_starts_its_minute_again() -> None:
    brake = new_brake()
    braked(brake, range(25), 100, T0)
    braked(brake, range(0), 100, T0 + seconds(30))  # the list agreed with us again
    braked(brake, range(25), 100, T0 + seconds(50))
    brake.listed(asked=T0 + seconds(61))
    assert braked(brake, range(25), 100, T0 + seconds(62)).ready == []


def test_at_thirty_percent_no_list_opens_it_only_an_operator() -> None:
    brake = new_brake()
    made = braked(brake, range(30), 100, T0)
    assert first(made).opens == "holdfast gate allow agent/brake --once --reason …"
    brake.listed(asked=T0 + seconds(3600))
    assert braked(brake, range(30), 100, T0 + seconds(3601)).ready == []
    assert brake.allow() == 30
    made = braked(brake, range(31), 100, T0 + seconds(3602))
    assert len(made.ready) == 30  # exactly what was shown
    assert [c.key for c, _ in made.held] == [30]


def test_allowed_for_a_time_lets_everything_through_until_then() -> None:
    brake = new_brake()
    brake.allow(until=T0 + seconds(1800))
    assert len(braked(brake, range(90), 100, T0 + seconds(1799)).ready) == 90
    assert braked(new_brake(), range(90), 100, T0 + seconds(1801)).ready == []


@pytest.mark.parametrize("until", [None, T0 + seconds(30)])
def test_what_an_operator_allowed_leaves_the_limit_of_later_deletes_as_it_was(until: Instant | None) -> None:
    brake = new_brake()
    braked(brake, range(30), 100, T0)
    brake.allow(until)
    assert len(braked(brake, range(30), 100, T0 + seconds(1)).ready) == 30
    assert len(braked(brake, range(30, 45), 70, T0 + seconds(31)).ready) == 15
    assert braked(brake, range(45, 60), 55, T0 + seconds(32)).ready == [], "those 15 count"


@fault(
    "C63",
    without="holdfast.reconcile.brake:Brake._promise",
    sees=(IndexError, r"\(later.ready, first\(later\).detail\) == \(\[\], first\(held\).detail\)"),
)
def test_C63_what_is_held_stays_held_when_earlier_deletes_leave_the_window() -> None:
    brake = new_brake()
    assert len(braked(brake, range(20), 100, T0).ready) == 20
    held = braked(brake, range(20, 28), 80, T0 + seconds(40))
    assert first(held).opens.startswith("a fresh list 60 s later that agrees")
    later = braked(brake, range(20, 28), 80, T0 + seconds(62))
    assert (later.ready, first(later).detail) == ([], first(held).detail)
    brake.listed(asked=T0 + seconds(99))  # less than a minute after it was held
    assert braked(brake, range(20, 28), 80, T0 + seconds(99)).ready == []
    brake.listed(asked=T0 + seconds(100))
    assert len(braked(brake, range(20, 28), 80, T0 + seconds(101)).ready) == 8


@fault(
    "C63",
    without="holdfast.reconcile.brake:Brake._promise",
    sees=(AssertionError, r"braked\(brake, range\(20, 35\), 80, T0 \+ seconds\(3_601\)\).ready =="),
)
def test_C63_what_was_left_to_an_operator_is_not_released_by_a_list_when_the_window_has_passed() -> None:
    brake = new_brake()
    braked(brake, range(20), 100, T0)
    held = braked(brake, range(20, 35), 80, T0 + seconds(30))
    assert first(held).opens == "holdfast gate allow agent/brake --once --reason …"
    brake.listed(asked=T0 + seconds(3_600))
    assert braked(brake, range(20, 35), 80, T0 + seconds(3_601)).ready == []
    assert brake.allow() == 15
    assert len(braked(brake, range(20, 35), 80, T0 + seconds(3_602)).ready) == 15


def test_what_is_left_after_most_was_withdrawn_needs_a_list_and_no_operator() -> None:
    brake = new_brake()
    braked(brake, range(100), 100, T0)
    made = braked(brake, range(5), 100, T0 + seconds(10))
    assert [change.key for change, _ in made.held] == [0, 1, 2, 3, 4]
    assert first(made).opens.startswith("a fresh list")
    brake.listed(asked=T0 + seconds(60))
    assert len(braked(brake, range(5), 100, T0 + seconds(61)).ready) == 5


@fault(
    "C63",
    without="holdfast.reconcile.brake:Brake._promise",
    sees=(AssertionError, r"braked\(brake, range\(20, 28\), 80, T0 \+ seconds\(65\)\).ready == \[\]"),
)
def test_C63_a_pause_in_between_does_not_release_what_the_brake_held() -> None:
    brake, intent = new_brake(), PauseGate[int](pauses=(a_pause("bob", "x", T0),))
    braked(brake, range(20), 100, T0)
    braked(brake, range(20, 28), 80, T0 + seconds(10))
    paused = plan([delete(key) for key in range(20, 28)], [intent, brake], {"routes": 80}, T0 + seconds(20), kinds)
    brake.note(paused, T0 + seconds(20))
    assert brake.allow() == 0, "an operator who looks now is shown the pause, not the brake"
    assert braked(brake, range(20, 28), 80, T0 + seconds(65)).ready == []


def test_a_released_delete_that_fails_does_not_wait_for_another_list() -> None:
    brake = new_brake()
    braked(brake, range(29), 100, T0)
    brake.listed(asked=T0 + seconds(60))
    for after in (61, 62):
        made = plan([delete(key) for key in range(29)], [brake], {"routes": 100}, T0 + seconds(after), kinds)
        brake.note(made, T0 + seconds(after))
        assert len(made.ready) == 29
        for change in made.ready:
            brake.note(Outcome(change, "device busy"), T0 + seconds(after))


def test_since_is_when_the_brake_closed_not_when_it_was_last_asked() -> None:
    brake = new_brake()
    braked(brake, range(50), 100, T0)
    assert first(braked(brake, range(50), 100, T0 + seconds(200))).since == T0


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 5)), max_size=60), st.integers(25, 300))
def test_in_any_minute_no_more_goes_than_the_limits_say(steps: list[tuple[int, int]], population: int) -> None:
    brake, now, have, key = new_brake(), T0, population, 0
    gone: list[Instant] = []
    for count, pause in steps:
        count = min(count, have)
        made = braked(brake, range(key, key + count), have, now)
        gone += [now] * len(made.ready)
        have -= len(made.ready)
        key += count
        window = [at for at in gone if now - at < seconds(60)]
        assert len(window) <= max(20, 0.10 * (have + len(window)))
        now += seconds(pause)


def test_a_pause_holds_everything_says_who_and_why_and_runs_out() -> None:
    intent = PauseGate[int](pauses=(a_pause("alice", "maintenance", T0, until=T0 + seconds(60)),))
    closed = intent.judge(create(1), {}, 0, T0)
    assert closed is not None
    assert closed.detail == "alice until 00:01:00Z: “maintenance”"
    assert closed.opens == "holdfast resume worker routes, or the end of the pause"
    assert intent.judge(create(1), {}, 0, T0 + seconds(60)) is None


def test_a_pause_covers_only_what_it_is_about() -> None:
    intent = PauseGate[int](lambda _scope, key: key == 1, (a_pause("bob", "x", T0),))
    assert intent.judge(delete(1), {}, 0, T0) is not None
    assert intent.judge(delete(2), {}, 0, T0) is None
