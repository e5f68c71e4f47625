"""Diff: two sorted runs in, the changes between them out, in key order."""

import operator
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.reconcile import Change, Kept, Op, OutOfOrder, Owned, changed, diff

Run = list[tuple[int, Owned[str]]]

worlds = st.dictionaries(st.integers(0, 60), st.sampled_from("abc"), max_size=40)


def run(world: dict[int, str], source: str = "s") -> Run:
    return [(key, Owned(value, source, 1)) for key, value in sorted(world.items())]


def applied(world: dict[int, str], changes: list[Change[int, str]]) -> dict[int, str]:
    after = dict(world)
    for change in changes:
        if change.new is None:
            del after[change.key]
        else:
            after[change.key] = change.new.value
    return after


def changes(want: Run, have: Run) -> list[Change[int, str]]:
    return list(diff(want, have, operator.eq))


@given(worlds, worlds)
def test_applying_the_changes_turns_actual_into_desired_state(want: dict[int, str], have: dict[int, str]) -> None:
    assert applied(have, changes(run(want), run(have))) == want


@given(worlds, worlds)
def test_changes_come_in_key_order_and_at_most_one_per_key(want: dict[int, str], have: dict[int, str]) -> None:
    keys = [change.key for change in changes(run(want), run(have))]
    assert keys == sorted(set(keys))


@given(worlds, worlds)
def test_equal_objects_give_no_change(want: dict[int, str], have: dict[int, str]) -> None:
    touched = {change.key for change in changes(run(want), run(have))}
    assert not touched & {key for key in want if have.get(key) == want[key]}


@given(worlds, worlds)
def test_a_second_diff_is_empty(want: dict[int, str], have: dict[int, str]) -> None:
    after = applied(have, changes(run(want), run(have)))
    assert changes(run(want), run(after)) == []


@given(worlds, worlds, st.integers(0, 60))
def test_two_pages_of_a_range_give_the_changes_of_the_whole(
    want: dict[int, str], have: dict[int, str], cut: int
) -> None:
    w, h = run(want), run(have)
    low = changes([i for i in w if i[0] <= cut], [i for i in h if i[0] <= cut])
    high = changes([i for i in w if i[0] > cut], [i for i in h if i[0] > cut])
    assert low + high == changes(w, h)


@given(worlds, worlds)
def test_equal_values_may_be_the_same_object(want: dict[int, str], have: dict[int, str]) -> None:
    """As in a flood: one object for all that say the same; then two are compared once, and that counts for the rest."""
    new, old = ({value: Owned(value, source, 1) for value in "abc"} for source in "wh")
    w, h = [(key, new[v]) for key, v in sorted(want.items())], [(key, old[v]) for key, v in sorted(have.items())]
    found = changes(w, h)
    assert applied(have, found) == want
    assert list(changed(sorted(want.keys() | have.keys()), dict(w), dict(h), operator.eq)) == found
    assert not {change.key for change in found} & {key for key in want if have.get(key) == want[key]}


def test_an_address_that_changes_owner_is_one_replace_that_knows_both() -> None:
    old, new = Owned("via r1", "region-a", 7), Owned("via r2", "region-b", 9)
    assert changes([(5, new)], [(5, old)]) == [Change(Op.REPLACE, 5, old, new)]


def test_a_synthesized_delete_carries_the_whole_object() -> None:
    old = Owned("route of a host that is gone", "region-a", 3)
    (change,) = changes([], [(5, old)])
    assert (change.op, change.old, change.owner) == (Op.DELETE, old, old)


@given(st.lists(st.integers(0, 9), min_size=2, max_size=8), st.booleans())
def test_a_run_that_is_not_strictly_increasing_is_refused(keys: list[int], on_wanted: bool) -> None:
    bad = [(key, Owned("a", "s", 1)) for key in keys]
    good = run(dict.fromkeys(range(10), "a"))
    sides = (bad, good) if on_wanted else (good, bad)
    if keys == sorted(set(keys)):
        assert all(change.op is not Op.REPLACE for change in changes(*sides))
    else:
        with pytest.raises(OutOfOrder, match="not sorted"):
            changes(*sides)


def test_twenty_thousand_equal_objects_cost_little_more_than_to_compare_them() -> None:
    """About 1.6 times as much. CPU time, one right after the other: what a busy machine adds, it adds to both."""
    want = [(b"/calico/%06d" % i, Owned(b"%d" % i, "s", i)) for i in range(20_000)]
    have = [(b"/calico/%06d" % i, Owned(b"%d" % i, "s", i)) for i in range(20_000)]
    ratios = []
    for _ in range(10):
        begun = time.process_time()
        assert list(diff(want, have, operator.eq)) == []
        diffed = time.process_time()
        assert all(a == b and one.value == other.value for (a, one), (b, other) in zip(want, have, strict=True))
        ratios.append((diffed - begun) / (time.process_time() - diffed))
    assert min(ratios) < 3


@given(worlds, worlds)
def test_what_the_source_cannot_express_stays_as_it_is(want: dict[int, str], have: dict[int, str]) -> None:
    """Rule 9: such an object is present, so it is neither deleted, nor replaced, nor created."""
    kept: Run = [(key, Kept("", "s", 1)) for key in sorted(want)]
    left = {key: value for key, value in have.items() if key in want}
    assert applied(have, changes(kept, run(have))) == left
    every = sorted({*want, *have})
    assert applied(have, list(changed(every, dict(kept), dict(run(have)), operator.eq))) == left
