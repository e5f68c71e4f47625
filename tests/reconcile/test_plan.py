"""The plan: deterministic order, one refusal per held change, nothing lost between two plans."""

import tracemalloc
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.base.time import Instant, seconds
from holdfast.reconcile import Change, Closed, Kinds, Ledger, Op, Outcome, Owned, Plan, Reason, alike, one_kind, plan

NOW = Instant(1_000_000_000_000)


class Shut(Reason):
    ODD = "odd keys are not let through"


@dataclass
class Odd:
    """A gate that holds odd keys while it is closed."""

    closed: bool = True

    def judge(self, change: Change[int, str], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        return Closed("odd", Shut.ODD, NOW, "the test") if self.closed and change.key % 2 else None


def change(op: Op, key: int, value: str = "a") -> Change[int, str]:
    owned = Owned(value, "s", 1)
    return Change(op, key, None if op is Op.CREATE else owned, None if op is Op.DELETE else owned)


ops = st.dictionaries(st.integers(0, 50), st.sampled_from(Op), max_size=30)
kinds: Kinds[int] = one_kind("thing")


@given(ops)
def test_every_change_is_either_ready_or_held_and_order_is_deletes_replaces_creates_by_key(wish: dict[int, Op]) -> None:
    made = plan([change(op, key) for key, op in sorted(wish.items())], [Odd()], {}, NOW, kinds)
    held = [held for held, _ in made.held]
    assert {c.key for c in made.ready} | {c.key for c in held} == set(wish)
    assert len(made.ready) + len(held) == len(wish)
    assert [(c.op, c.key) for c in made.ready] == sorted((op, key) for key, op in wish.items() if key % 2 == 0)
    assert [(c.op, c.key) for c in held] == sorted((op, key) for key, op in wish.items() if key % 2)


@dataclass
class Latched(Odd):
    """The same, and it can tell that it is open."""

    asked: int = 0

    def is_open(self, now: Instant) -> bool:
        return not self.closed

    def judge(self, change: Change[int, str], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        self.asked += 1
        return super().judge(change, tally, have, now)


def test_a_gate_that_is_open_for_all_is_not_asked_about_each_and_the_others_are() -> None:
    changes = [change(Op.CREATE, key) for key in range(4)]
    latched = Latched(closed=False)
    assert [c.key for c in plan(changes, [latched], {}, NOW, kinds).ready] == [0, 1, 2, 3]
    assert [c.key for c in plan(changes, [latched, Odd()], {}, NOW, kinds).ready] == [0, 2]
    assert latched.asked == 0
    latched.closed = True
    assert [c.key for c in plan(changes, [latched], {}, NOW, kinds).ready] == [0, 2]
    assert latched.asked == 4


def test_a_ledger_in_which_nothing_is_outstanding_keeps_no_memory_of_a_flood() -> None:
    ledger, flood = Ledger[int, str](kinds), [change(Op.CREATE, number) for number in range(20_000)]
    made = plan(flood, [ledger], {}, NOW, kinds)
    tracemalloc.start()
    try:
        ledger.note(made, NOW)
        held, _ = tracemalloc.get_traced_memory()
        ledger.note_outcomes([Outcome(one) for one in flood], NOW)
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (held > 1_000_000, left < 100_000) == (True, True)


def test_the_ledger_is_open_for_all_only_while_nothing_waits_for_its_retry() -> None:
    ledger = Ledger[int, str](kinds)
    ledger.note(plan([change(Op.CREATE, 1)], [ledger], {}, NOW, kinds), NOW)
    assert ledger.is_open(NOW)
    ledger.note(Outcome(change(Op.CREATE, 1), "no"), NOW)
    assert not ledger.is_open(NOW)
    assert plan([change(Op.CREATE, 1), change(Op.CREATE, 2)], [ledger], {}, NOW, kinds).held
    assert ledger.due(NOW + seconds(1)) == [1]
    assert ledger.is_open(NOW + seconds(1))


def test_changes_between_the_same_two_values_are_alike_whenever_they_were_written() -> None:
    up, down, value = Owned("up", "s", 1), Owned("down", "s", 1), "as it was"
    flood = [Change(Op.REPLACE, key, Owned(value, "s", 1), down) for key in range(3)]
    others = [Change(Op.REPLACE, 7, down, up), Change(Op.DELETE, 8, up, None), Change(Op.CREATE, 9, None, down)]
    found = alike([flood[0], others[0], flood[1], *others[1:], flood[2]])
    assert max(found, key=len) == flood
    assert sorted(some[0].key for some in found if len(some) == 1) == [7, 8, 9]


def test_dependencies_are_created_first_and_deleted_last() -> None:
    order: Kinds[str] = Kinds(of=lambda key: key[0], order=("p", "e"))
    wish = [Change(op, key + str(op), Owned("", "s", 1), None) for key in ("e", "p") for op in (Op.DELETE,)]
    wish += [Change(Op.CREATE, key + "2", None, Owned("", "s", 1)) for key in ("e", "p")]
    assert [c.key for c in plan(wish, [], {}, NOW, order).ready] == ["e0", "p0", "p2", "e2"]


@given(ops)
def test_held_changes_keep_their_place_and_their_age_until_the_gate_opens(wish: dict[int, Op]) -> None:
    gate, ledger = Odd(), Ledger[int, str](kinds)
    changes = [change(op, key) for key, op in sorted(wish.items())]
    first = plan(changes, [gate], {}, NOW, kinds)
    ledger.note(first, NOW)
    later = NOW + seconds(30)
    second = plan(changes, [gate], {}, later, kinds)
    assert [c for c, _ in second.held] == [c for c, _ in first.held]
    assert ledger.note(second, later) == []  # nothing new to say
    for held, _ in second.held:
        story = ledger.outstanding(held.key)
        assert story is not None
        assert story.since == NOW
    gate.closed = False
    assert {c.key for c in plan(changes, [gate], {}, later, kinds).ready} == set(wish)


def test_a_partial_comparison_leaves_the_others_in_the_ledger() -> None:
    ledger = Ledger[int, str](kinds)
    ledger.note(plan([change(Op.DELETE, 1), change(Op.DELETE, 3)], [Odd()], {}, NOW, kinds), NOW)
    ledger.note(Plan([], [], compared={1}), NOW)
    assert [story.change.key for story in ledger] == [3]
    assert ledger.tallies()["thing"][Op.DELETE] == 1
    assert ledger.counted(except_for={3})[0]["thing"][Op.DELETE] == 0


def of_ten(key: int) -> int:
    """Keys 3 and 13 are the same individual."""
    return key % 10


@pytest.mark.parametrize("held", [Op.DELETE, Op.CREATE])
def test_both_halves_of_a_move_are_held_with_the_same_reason(held: Op) -> None:
    wish = [change(Op.DELETE, 3), change(Op.CREATE, 13), change(Op.DELETE, 4), change(Op.CREATE, 14)]
    made = plan(wish, [OneOp(held)], {}, NOW, kinds, individual=of_ten)
    assert [(c.key, closed.gate) for c, closed in made.held] == [(3, "one"), (13, "one")]
    assert [c.key for c in made.ready] == [4, 14]


@dataclass
class OneOp:
    """A gate that holds this operation of the individual 3."""

    op: Op

    def judge(self, change: Change[int, str], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        mine = change.op is self.op and of_ten(change.key) == 3
        return Closed("one", Shut.ODD, NOW, "the test") if mine else None


def test_a_replace_passes_although_another_key_of_its_object_is_held() -> None:
    wish = [change(Op.DELETE, 3), change(Op.REPLACE, 13), change(Op.CREATE, 5)]
    made = plan(wish, [OneOp(Op.DELETE)], {}, NOW, kinds, individual=of_ten)
    assert [c.key for c in made.ready] == [13, 5]


@dataclass
class Counted:
    """A gate that records the counts that it was given, and lets everything through."""

    seen: list[tuple[int, int]] = field(default_factory=list)

    def judge(self, change: Change[int, str], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        self.seen.append((tally[Op.DELETE], have))
        return None


def test_a_gate_counts_neither_what_an_earlier_gate_holds_nor_what_is_no_loss() -> None:
    counted, wish = Counted(), [change(Op.DELETE, key) for key in range(10)]
    plan(wish, [Odd(), counted], {"thing": 50}, NOW, kinds, counts=lambda change: change.key != 4)
    assert set(counted.seen) == {(4, 45)}


def test_a_delete_that_only_waits_for_its_turn_counts() -> None:
    @dataclass
    class Turn(Odd):
        def judge(self, change: Change[int, str], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
            return Closed("turn", Shut.ODD, NOW, "", is_going=True) if change.key % 2 else None

    counted, ledger, wish = Counted(), Ledger[int, str](kinds), [change(Op.DELETE, key) for key in range(10)]
    ledger.note(plan(wish, [Turn(), counted], {"thing": 50}, NOW, kinds), NOW)
    assert set(counted.seen) == {(10, 50)}
    assert ledger.counted() == ({"thing": {Op.DELETE: 10}}, {})


def test_the_ledger_tells_apart_what_the_brake_does_not_count() -> None:
    ledger = Ledger[int, str](kinds, counts=lambda change: change.key != 4)
    wish = [change(Op.DELETE, key) for key in range(10)]
    ledger.note(plan(wish, [Odd()], {}, NOW, kinds), NOW)
    assert (ledger.counted()[0]["thing"][Op.DELETE], ledger.counted()[1]["thing"]) == (5, 5)
    assert ledger.counted(except_for={1, 2})[1]["thing"] == 4
    ledger.note_outcomes([Outcome(change(Op.DELETE, 4), "no"), Outcome(change(Op.DELETE, 6))], NOW)
    assert (ledger.counted()[0]["thing"][Op.DELETE], ledger.counted()[1]["thing"]) == (3, 6)
    ledger.note(plan(wish, [], {}, NOW, kinds), NOW)
    ledger.note_outcomes([Outcome(one) for one in wish], NOW)
    assert (len(ledger), ledger.counted()[0]["thing"].total(), ledger.counted()[1].total()) == (0, 0, 0)


def test_a_failed_change_is_retried_after_a_growing_pause_deletes_too() -> None:
    ledger = Ledger[int, str](kinds)
    failing = change(Op.DELETE, 4)
    now, pauses = NOW, []
    for _ in range(12):
        ledger.note(Outcome(failing, "device busy"), now)
        assert ledger.judge(failing, {}, 0, now) is not None
        due = ledger.next_due()
        assert due is not None
        pauses.append((due - now).total_seconds())
        assert ledger.due(due - seconds(0.001)) == []
        assert ledger.due(due) == [4]
        assert ledger.judge(failing, {}, 0, due) is None
        now = due
    assert pauses[:3] == [0.1, 0.2, 0.4]
    assert pauses[-1] == 60.0


def test_a_change_that_differs_does_not_wait_for_the_failure_of_the_old_one() -> None:
    ledger = Ledger[int, str](kinds)
    ledger.note(Outcome(change(Op.CREATE, 4, "bad mtu"), "invalid argument"), NOW)
    assert ledger.judge(change(Op.CREATE, 4, "bad mtu"), {}, 0, NOW) is not None
    assert ledger.judge(change(Op.CREATE, 4, "good mtu"), {}, 0, NOW) is None


@pytest.mark.parametrize("keys", [{4}, None])
def test_an_event_that_may_have_removed_the_cause_ends_the_wait_for_a_retry(keys: set[int] | None) -> None:
    ledger = Ledger[int, str](kinds)
    for _ in range(5):
        ledger.note_outcomes([Outcome(change(Op.CREATE, 4), "no carrier"), Outcome(change(Op.CREATE, 6), "no")], NOW)
    ledger.clear_backoff(keys)
    assert ledger.judge(change(Op.CREATE, 4), {}, 0, NOW) is None
    assert (ledger.judge(change(Op.CREATE, 6), {}, 0, NOW) is None) == (keys is None)
    ledger.note(Outcome(change(Op.CREATE, 4), "no carrier"), NOW)
    assert set(ledger.due(NOW + seconds(0.1))) == {4}


def test_a_success_removes_the_change_from_the_ledger() -> None:
    ledger = Ledger[int, str](kinds)
    ledger.note(Outcome(change(Op.CREATE, 4), "no"), NOW)
    ledger.note(Outcome(change(Op.CREATE, 4)), NOW)
    assert (ledger.outstanding(4), len(ledger), ledger.due(NOW + seconds(99))) == (None, 0, [])
