"""Stand-ins: no innocent bucket moves on any health change, and every machine agrees."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.balancer.maglev.stand_ins import FULL, keep_of, log2_24, mixed, with_stand_ins
from holdfast.balancer.maglev.table import BackendId, BucketWeight, Table, base_table, in_full, table
from tests.balancer.maglev.test_table import backends, fleet

SIZE = 1021
_G1, _G2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03)


def test_the_numbers_are_those_of_every_implementation() -> None:
    assert mixed(np.arange(1, 3, dtype=np.uint64) * _G1).tolist() == [16294208416658607535, 7960286522194355700]
    found = log2_24(np.array([1, 3, 2**31 + 12345, 2**32], np.uint64)).tolist()
    assert found == [0, 26591258, 520093835, 536870912]


@pytest.mark.parametrize(
    ("keep", "shares"),
    [
        ([0] + [FULL] * 6, [0, 174, 167, 173, 167, 168, 172]),
        ([0, 0, 6554, 0, 0, 0, 32768], [0, 0, 145, 0, 0, 0, 876]),
    ],
)
def test_the_tables_are_those_of_every_implementation(keep: list[int], shares: list[int]) -> None:
    base, seeds = np.arange(SIZE, dtype=np.int32) % 7, np.arange(1, 8, dtype=np.uint64) * _G2
    made = with_stand_ins(base, seeds, np.full(7, 100, np.uint64), np.asarray(keep, np.uint64))
    assert np.bincount(made, minlength=7).tolist() == shares


def served(weights: dict[BackendId, BucketWeight]) -> Table:
    return table(weights, SIZE)[1]


@settings(max_examples=30, deadline=None)
@given(backends, st.integers(0, 2**32), st.integers(5, 25))
def test_only_buckets_of_the_changed_backend_move_on_a_random_walk(
    weights: dict[BackendId, int], seed: int, steps: int
) -> None:
    choices, members, now = Random(seed), sorted(weights), in_full(weights)
    before = served(now)
    for _ in range(steps):
        place = choices.randrange(len(members))
        base, old = now[members[place]]
        new = choices.choice([0, base, choices.randint(0, base)])
        now[members[place]] = BucketWeight(base, new)
        after = served(now)
        if before.min() >= 0 and after.min() >= 0:
            side = before if new < old else after
            assert (side[before != after] == place).all()
        before = after


@settings(max_examples=30, deadline=None)
@given(backends, st.integers(0, 2**32))
def test_the_order_of_the_input_does_not_matter(weights: dict[BackendId, int], seed: int) -> None:
    choices = Random(seed)
    state = {one: BucketWeight(weight, choices.choice([0, weight])) for one, weight in weights.items()}
    items = list(state.items())
    choices.shuffle(items)
    assert np.array_equal(served(state), served(dict(items)))


def test_everybody_in_full_service_is_the_base_table() -> None:
    weights = fleet(7)
    assert np.array_equal(table(in_full(weights), SIZE)[1], base_table(weights, SIZE)[1])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(2, 60), st.sampled_from([0.1, 0.5, 0.9]), st.booleans(), st.integers(0, 2**32))
def test_orphaned_buckets_are_shared_out_by_weight(count: int, dead: float, is_mixed: bool, seed: int) -> None:
    """Within 4.5 standard deviations of a draw by the base shares of the living."""
    chance, size = Random(seed), 16381
    weights = {one: chance.randint(10, 100) if is_mixed else 100 for one in fleet(count)}
    out = {one for one in weights if chance.random() < dead}
    base, members = base_table(weights, size)[1], sorted(weights)
    state = {one: BucketWeight(weight, 0 if one in out else weight) for one, weight in weights.items()}
    made = table(state, size)[1]
    living = np.asarray([one not in out for one in members])
    if living.all() or not living.any():
        return
    orphans = int(np.count_nonzero(~living[base]))
    owned = np.bincount(base, minlength=count) * living
    share = owned / owned.sum()
    gained = np.bincount(made, minlength=count) - owned
    deviation = np.sqrt(orphans * share * (1 - share))
    assert (np.abs(gained - orphans * share) <= 4.5 * deviation + 1).all()


def test_the_last_backend_serves_everything_and_nobody_nothing() -> None:
    weights = fleet(40)
    last = max(weights)
    alone = {one: BucketWeight(100, 100 if one == last else 0) for one in weights}
    assert set(served(alone).tolist()) == {39}
    assert set(served(dict.fromkeys(weights, BucketWeight(100, 0))).tolist()) == {-1}


def test_a_thinned_backend_keeps_its_share_of_its_own_buckets_and_takes_no_others() -> None:
    size, weights = 65537, fleet(4)
    thin = {each: BucketWeight(100, 30 if each == min(weights) else 100) for each in weights}
    base, after = base_table(weights, size)[1], table(thin, size)[1]
    kept = np.count_nonzero((base == 0) & (after == 0)) / np.count_nonzero(base == 0)
    assert 0.28 < kept < 0.32
    assert not np.any((base != 0) & (base != after))


@pytest.mark.parametrize(("base", "effective", "keep"), [(100, 100, FULL), (100, 0, 0), (100, 1, 656), (3, 4, FULL)])
def test_what_is_kept_is_rounded_up(base: int, effective: int, keep: int) -> None:
    assert keep_of(base, effective) == keep
