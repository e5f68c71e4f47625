"""Rekeying: both halves of a move stay in one batch, and are dropped together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.reconcile import Change, Op, Owned
from holdfast.runtime.reconciler.rekeying import Rekeying


def change(op: Op, key: int) -> Change[int, str]:
    owned = Owned("x", "s", 1)
    return Change(op, key, None if op is Op.CREATE else owned, None if op is Op.DELETE else owned)


def rekeying() -> Rekeying[int, str]:
    """Keys that end in the same two digits are one individual; those that end in 00 cannot move."""
    return Rekeying(lambda key: key % 100 or None)


WISHES = st.dictionaries(st.integers(0, 999), st.sampled_from(Op), max_size=60)


@given(WISHES, st.integers(2, 20))
def test_every_change_is_in_one_batch_and_so_are_all_changes_of_a_move(wish: dict[int, Op], size: int) -> None:
    ready = [change(op, key) for key, op in sorted(wish.items(), key=lambda item: (item[1], item[0]))]
    batches = [list(batch) for batch in rekeying().batches(ready, size)]
    assert sorted(c.key for batch in batches for c in batch) == sorted(wish)
    for individual in range(1, 100):
        ops = {op for key, op in wish.items() if key % 100 == individual} - {Op.REPLACE}
        if len(ops) == 2:
            holding = [
                batch for batch in batches if any(c.key % 100 == individual and c.op is not Op.REPLACE for c in batch)
            ]
            assert len(holding) == 1


def test_a_half_that_is_dropped_takes_the_other_half_along() -> None:
    batch = [change(Op.DELETE, 103), change(Op.DELETE, 104), change(Op.CREATE, 203), change(Op.REPLACE, 303)]
    rest, split = rekeying().without(batch, {103})
    assert ([c.key for c in rest], split) == ([104, 303], [203])


def test_what_cannot_move_is_dropped_alone() -> None:
    batch = [change(Op.DELETE, 100), change(Op.CREATE, 200)]
    rest, split = rekeying().without(batch, {100})
    assert ([c.key for c in rest], split) == ([200], [])
