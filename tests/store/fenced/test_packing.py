"""Packing: which writes go together, in which order, and how many."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.base.time import Duration
from holdfast.store.api import Aspect, Compare, Delete, Put
from holdfast.store.fenced.packing import FEWEST_OPERATIONS, MOST_BYTES, MOST_OPERATIONS, FencedWrite, Packing, Window

QUICK, SLOW = Duration(milliseconds=5), Duration(milliseconds=150)


def put(name: int | str, size: int = 10) -> FencedWrite:
    return FencedWrite([Put(str(name).encode(), b"x" * size)])


def everything(packing: Packing) -> list[Sequence[int]]:
    """All transactions of a plan, each finished before the next is asked for."""
    packs = []
    while pack := packing.next():
        packs.append(pack)
        packing.done(pack)
    return packs


def test_a_transaction_takes_127_writes() -> None:
    assert [len(pack) for pack in everything(Packing([put(i) for i in range(300)]))] == [127, 127, 46]


def test_a_transaction_takes_a_megabyte() -> None:
    packs = everything(Packing([put(i, 300_000) for i in range(7)]))
    assert [len(pack) for pack in packs] == [3, 3, 1]


def test_a_write_above_a_megabyte_goes_alone() -> None:
    assert everything(Packing([put(0), put(1, MOST_BYTES + 1), put(2)])) == [[0], [1], [2]]


def test_comparisons_count_like_operations() -> None:
    compares = [Compare(b"k", Aspect.VERSION, 1)] * 100
    writes = [FencedWrite([Put(b"%d" % i, b"")], compares) for i in range(2)]
    assert [len(pack) for pack in everything(Packing(writes))] == [1, 1]


def test_a_move_is_never_split() -> None:
    moves = [FencedWrite([Delete(b"old%d" % i), Put(b"new%d" % i, b"")]) for i in range(100)]
    assert [len(pack) for pack in everything(Packing(moves))] == [63, 37]


def test_a_key_under_way_waits_and_keeps_its_order() -> None:
    packing = Packing([put("a"), put("b"), put("a"), put("a"), put("c")])
    first = packing.next()
    assert first == [0, 1, 4]
    assert packing.next() == []
    packing.done(first)
    assert packing.next() == [2]


def test_a_failed_write_goes_again_before_the_others_and_alone_on_request() -> None:
    packing = Packing([put(i) for i in range(4)])
    pack = packing.next()
    packing.done(pack)
    packing.again([1, 2], alone=True)
    assert everything(packing) == [[1], [2]]


def test_nothing_is_sent_after_the_rest_was_taken_back() -> None:
    packing = Packing([put(i) for i in range(300)])
    packing.next()
    assert packing.rest() == list(range(127, 300))
    assert packing.next() == []


@pytest.mark.parametrize(
    "write",
    [
        FencedWrite([]),
        FencedWrite([Delete(b"a", b"z")]),
        FencedWrite([Put(b"%d" % i, b"") for i in range(MOST_OPERATIONS + 1)]),
    ],
)
def test_a_write_that_no_transaction_could_carry_is_refused(write: FencedWrite) -> None:
    with pytest.raises(ValueError, match=r"one object takes|deletes keys, not ranges"):
        Packing([write])


def test_a_slow_transaction_halves_the_next_and_a_run_of_quick_ones_doubles_it() -> None:
    window = Window()
    window.took(SLOW)
    window.took(SLOW)
    assert window.operations == 31
    for _ in range(8):
        window.took(QUICK)
    assert window.operations == 62


def test_the_window_stays_within_its_bounds() -> None:
    window = Window()
    for _ in range(20):
        window.took(SLOW)
    assert window.operations == FEWEST_OPERATIONS
    for _ in range(200):
        window.took(QUICK)
    assert window.operations == MOST_OPERATIONS


@given(st.lists(st.sampled_from("abcdefgh"), max_size=60), st.integers(1, 5), st.integers())
def test_every_write_is_sent_once_in_the_order_of_its_key_and_never_beside_another_of_it(
    names: list[str], window: int, seed: int
) -> None:
    rng = random.Random(seed)
    packing = Packing([put(name) for name in names], Window(window))
    flying: list[Sequence[int]] = []
    sent: list[int] = []
    while True:
        pack = packing.next() if len(flying) < 3 else []
        if pack:
            flying.append(pack)
            sent += pack
            keys = [names[n] for under_way in flying for n in under_way]
            assert len(keys) == len(set(keys))
        elif flying:
            packing.done(flying.pop(rng.randrange(len(flying))))
        else:
            break
    assert sorted(sent) == list(range(len(names)))
    for name in set(names):
        numbers = [n for n in sent if names[n] == name]
        assert numbers == sorted(numbers)
