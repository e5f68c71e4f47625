"""Maglev tables: even shares, the same on every machine, and few moves per change."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from itertools import islice
from random import Random
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.balancer.maglev import table as maglev
from holdfast.balancer.maglev.churn import Churn
from holdfast.balancer.maglev.churn import predicted as predicted_churn
from holdfast.balancer.maglev.table import QUANTUM, BackendId, in_full, walk
from holdfast.balancer.maglev.table import base_table as table
from holdfast.testing.fault import fault

identities = st.one_of(
    st.builds(BackendId, st.just(4), st.integers(0, 2**32 - 1), st.integers(0, 65535)),
    st.builds(BackendId, st.just(6), st.integers(0, 2**128 - 1), st.integers(0, 65535)),
)
backends = st.dictionaries(identities, st.integers(1, 100), min_size=1, max_size=20)


def fleet(count: int, weight: int = QUANTUM) -> dict[BackendId, int]:
    return {BackendId(4, 0x0A000001 + index, 80): weight for index in range(count)}


def predicted(before: Mapping[BackendId, int], after: Mapping[BackendId, int], size: int = 65537) -> Churn:
    return predicted_churn(in_full(before), in_full(after), size)


def textbook(weights: Mapping[BackendId, int], size: int) -> list[int]:
    """The definition, without any of the short cuts."""
    serving = sorted(weights.items())
    rounds = size * QUANTUM
    turns = ((r, i) for r in range(rounds) for i in range(len(serving)) for _ in range(_turns_in(r, serving[i][1])))
    walks = [walk(backend, size) for backend, _ in serving]
    out, steps = [-1] * size, [0] * len(serving)
    for _round, who in islice(turns, size):
        start, width = walks[who]
        while out[(start + steps[who] * width) % size] >= 0:
            steps[who] += 1
        out[(start + steps[who] * width) % size] = who
    return out


def _turns_in(round_: int, weight: int) -> int:
    """How many n have n × quantum // weight = round."""
    first = -(-round_ * weight // QUANTUM)
    after = -(-(round_ + 1) * weight // QUANTUM)
    return after - first


@settings(max_examples=30, deadline=None)
@given(backends)
def test_the_optimised_table_equals_the_definition(weights: dict[BackendId, int]) -> None:
    equal = table(weights, 251)[1].tolist() == textbook(weights, 251)
    assert equal


def owners(weights: Mapping[BackendId, int]) -> list[BackendId]:
    serving, built = table(weights, 1021)
    return [serving[place] for place in built.tolist()]


def as_they_come(weights: Mapping[BackendId, int]) -> tuple[tuple[BackendId, int], ...]:
    """What the order of a hash map makes of it."""
    return tuple((backend, weight) for backend, weight in weights.items() if weight > 0)


@fault(
    "B2",
    without="holdfast.balancer.maglev.table:_in_order",
    by="tests.balancer.maglev.test_table:as_they_come",
    sees=(AssertionError, r"\nassert equal"),
)
def test_B2_the_order_of_the_input_does_not_matter() -> None:
    for seed in range(5):
        shuffled = list(fleet(12).items())
        Random(seed).shuffle(shuffled)
        equal = owners(dict(shuffled)) == owners(fleet(12))
        assert equal  # a boolean: nobody reads the difference of a thousand buckets, and making it takes minutes


@pytest.mark.parametrize("count", [1, 2, 3, 7, 40, 99])
def test_backends_of_equal_weight_differ_by_one_bucket_at_most(count: int) -> None:
    for weight in (1, 30, QUANTUM):
        counts = np.bincount(table(fleet(count, weight), 4093)[1], minlength=count)
        assert counts.max() - counts.min() <= 1


@settings(max_examples=30, deadline=None)
@given(backends)
def test_buckets_are_shared_by_weight(weights: dict[BackendId, int]) -> None:
    serving, built = table(weights, 4093)
    counts = np.bincount(built, minlength=len(serving))
    for index, backend in enumerate(serving):
        fair = 4093 * weights[backend] / sum(weights.values())
        assert abs(counts[index] - fair) <= len(serving) + 1


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(identities, st.integers(1, 100), min_size=1, max_size=250))
def test_a_weight_above_zero_means_at_least_one_bucket(weights: dict[BackendId, int]) -> None:
    serving, built = table(weights, 251)
    assert set(built.tolist()) == set(range(len(serving)))


def test_a_weight_of_zero_means_none() -> None:
    away = BackendId(4, 1, 80)
    assert away not in table({**fleet(3), away: 0}, 251)[0]


def test_without_backends_the_table_is_empty() -> None:
    serving, built = table({}, 251)
    assert serving == ()
    assert set(built.tolist()) == {-1}


def test_more_backends_than_buckets_are_refused() -> None:
    with pytest.raises(maglev.TooManyBackends, match="252 backends do not fit a table of 251 buckets"):
        table(fleet(252), 251)


def innocent(weights: Mapping[BackendId, int]) -> list[float]:
    """For each backend the share of the others' buckets that move when it goes."""
    serving, built = table(weights, 65537)
    shares = []
    for place, gone in enumerate(serving):
        left = {backend: weight for backend, weight in weights.items() if backend != gone}
        own = int(np.count_nonzero(built == place))
        shares.append((predicted(weights, left).moved - own) / (len(built) - own))
    return shares


def test_removing_one_of_ten_moves_few_innocent_flows() -> None:
    sets = [
        {BackendId(4, 0x0A000001 + 1_000 * number + index, 80): QUANTUM for index in range(10)} for number in range(6)
    ]
    moved = [share for weights in sets for share in innocent(weights)]
    assert median(moved) <= 0.003
    assert max(moved) <= 0.008


def replicas(weights: list[int], size: int) -> list[int]:
    """A weight as that many replicas, all divided as soon as they do not fit the table any more."""
    scale = -(-sum(weights) // size)
    one_round = [who for who, weight in enumerate(weights) for _ in range(max(1, weight // scale))]
    return (one_round * (1 + size // len(one_round)))[:size]


@fault(
    "B12",
    without="holdfast.balancer.maglev.table:_turns",
    by="tests.balancer.maglev.test_table:replicas",
    sees=(AssertionError, "churn.share <= 0.05"),
)
def test_B12_a_changed_weight_moves_its_own_share_and_little_else() -> None:
    maglev.forget_tables()
    before = fleet(20, weight=51)
    churn = predicted(before, {**before, next(iter(before)): 53}, 1021)
    maglev.forget_tables()
    assert churn.share <= 0.05


def folded(backend: BackendId, size: int) -> tuple[int, int]:
    """An IPv6 address reduced to the exclusive or of its words, as others do."""
    word = backend.address
    xor = (word >> 96) ^ (word >> 64) ^ (word >> 32) ^ word
    low = xor & 0xFFFFFFFF
    return low % size, low % (size - 1) + 1


@fault(
    "B13",
    without="holdfast.balancer.maglev.table:walk",
    by="tests.balancer.maglev.test_table:folded",
    sees=(AssertionError, r"maglev.walk\(one, 65537\) != maglev.walk\(other, 65537\)"),
)
def test_B13_ipv6_addresses_that_fold_to_the_same_word_walk_differently() -> None:
    one = BackendId(6, (0x20010DB8 << 96) | 1, 80)
    other = BackendId(6, (1 << 96) | 0x20010DB8, 80)
    assert maglev.walk(one, 65537) != maglev.walk(other, 65537)


def test_every_process_builds_the_same_table() -> None:
    program = (
        "from tests.balancer.maglev.test_table import fleet, table; import hashlib\n"
        "print(hashlib.sha256(table(fleet(7), 65537)[1].astype('<i4').tobytes()).hexdigest())"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1


def test_churn_counts_moved_buckets_and_not_those_of_an_empty_table() -> None:
    one, two = fleet(2)
    assert predicted({}, {one: 100}, 251) == Churn(0, 251)
    assert predicted({one: 100}, {}, 251) == Churn(251, 251)
    assert predicted({one: 100, two: 100}, {one: 100, two: 100}, 251) == Churn(0, 251)
    assert predicted({one: 100, two: 100}, {one: 100}, 251) == Churn(125, 251)
