"""Marks: numbers that only grow, each made by one inventory, kept for a while."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from holdfast.inventory.api import Fence, InventoryMarks
from holdfast.inventory.sql import control
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.model.control.mark import Mark
from holdfast.store.api import Deposed
from holdfast.testing.fakes.inventory import fresh_engine

REGION = "no-region"
FENCE = Fence(REGION, 1, 7)


@pytest.fixture
def leading(inventory: SqlInventory) -> SqlInventory:
    inventory.raise_fence(FENCE)
    return inventory


def test_before_the_first_mark_all_numbers_are_zero(inventory: SqlInventory) -> None:
    assert inventory.marks(REGION) == InventoryMarks(0, 0, 0)
    assert not inventory.has_mark(REGION, Mark(1, "any"))


def test_numbers_grow_and_each_mark_is_known_by_number_and_nonce(leading: SqlInventory) -> None:
    made = [leading.mark(FENCE, stored) for stored in (0, 1, 2)]
    assert [one.number for one in made] == [1, 2, 3]
    assert len({one.nonce for one in made}) == 3
    assert leading.marks(REGION) == InventoryMarks(1, 3, 2)
    assert all(leading.has_mark(REGION, one) for one in made)
    assert not leading.has_mark(REGION, Mark(2, made[2].nonce))
    assert not leading.has_mark(REGION, Mark(4, made[2].nonce))


def test_a_mark_is_above_the_number_that_the_store_holds(leading: SqlInventory) -> None:
    leading.mark(FENCE, 0)
    assert leading.mark(FENCE, 50).number == 51
    assert leading.mark(FENCE, 51).number == 52
    assert leading.marks(REGION) == InventoryMarks(1, 52, 51)


def test_regions_have_marks_of_their_own(leading: SqlInventory) -> None:
    other = Fence("west", 1, 3)
    leading.raise_fence(other)
    made = leading.mark(FENCE, 0)
    leading.mark(other, 9)
    assert (leading.marks(REGION).newest, leading.marks("west").newest) == (1, 10)
    assert not leading.has_mark("west", made)


def test_a_term_that_is_over_makes_no_mark(leading: SqlInventory) -> None:
    leading.mark(FENCE, 0)
    leading.raise_fence(FENCE._replace(term=8))
    with pytest.raises(Deposed):
        leading.mark(FENCE, 1)
    assert leading.marks(REGION) == InventoryMarks(1, 1, 0)


def test_old_marks_are_pruned_and_the_stored_number_stays(
    leading: SqlInventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "MARKS_KEPT", 3)
    made = [leading.mark(FENCE, number) for number in range(6)]
    assert leading.marks(REGION) == InventoryMarks(4, 6, 5)
    assert [leading.has_mark(REGION, one) for one in made] == [False] * 3 + [True] * 3


def test_a_mark_is_one_transaction_of_four_statements(leading: SqlInventory, engine: Engine) -> None:
    """It runs before each batch: fence, newest number, insert, prune."""
    statements: list[str] = []
    leading.mark(FENCE, 0)
    event.listen(engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    begun: list[object] = []
    event.listen(engine, "begin", begun.append)
    leading.mark(FENCE, 1)
    words = [one.split()[0] for one in statements if not one.startswith("BEGIN")]
    assert (words, len(begun)) == (["SELECT", "SELECT", "INSERT", "DELETE"], 1)


def test_C70_marks_of_two_copies_of_one_file_differ(tmp_path: Path) -> None:
    """A copied SQLite file that serves two leaders in turn: each copy notices that the store holds the other's mark."""
    with fresh_engine(f"sqlite:///{tmp_path}/a.db") as engine:
        SqlInventory(engine).raise_fence(FENCE)
        before = SqlInventory(engine).mark(FENCE, 0)
    shutil.copy(tmp_path / "a.db", tmp_path / "b.db")  # closed above: nothing is left in the write-ahead log
    with fresh_engine(f"sqlite:///{tmp_path}/a.db") as one, fresh_engine(f"sqlite:///{tmp_path}/b.db") as two:
        first, second = SqlInventory(one), SqlInventory(two)
        second.raise_fence(FENCE._replace(term=8))
        by_first = first.mark(FENCE, before.number)
        by_second = second.mark(FENCE._replace(term=8), before.number)
        assert first.has_mark(REGION, before)
        assert second.has_mark(REGION, before)
        assert (by_first.number, by_first.nonce != by_second.nonce) == (by_second.number, True)
        assert not second.has_mark(REGION, by_first)
        assert not first.has_mark(REGION, by_second)
        later = first.mark(FENCE, by_first.number)
        assert later.number >= second.marks(REGION).oldest, "the other copy cannot take it for a pruned one"
        assert not second.has_mark(REGION, later)
