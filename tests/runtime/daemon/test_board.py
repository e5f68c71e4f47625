"""The board under real processes: no reader ever sees a torn value, whatever becomes of the writer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.base.time import Instant
from holdfast.runtime.daemon.board import Board, BoardError, Cell
from holdfast.runtime.daemon.pulse import Pulse
from holdfast.runtime.daemon.vitals import Vitals
from holdfast.testing.real.processes import wait_until
from tests.runtime.daemon.board_writer import Note, note, whole
from tests.runtime.harness import HandClock, patient

ROOT = Path(__file__).parents[3]
ROUNDS = 25


@contextmanager
def writer(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that writes at full speed, on from the last whole value."""
    process = subprocess.Popen([sys.executable, "-m", "tests.runtime.daemon.board_writer", str(path)], cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def advanced(cell: Cell[Note], beyond: int) -> bool:
    seen = cell.read()
    return seen is not None and seen.number > beyond


def test_readers_never_see_a_torn_value_of_a_writer_that_is_killed_again_and_again(tmp_path: Path) -> None:
    board = Board.create(tmp_path / "board", ["a", "b"])
    cell, random, seen, reads = board.cell("a", Note), Random(1), 0, 0
    for _ in range(ROUNDS):
        with writer(tmp_path / "board") as process:
            wait_until(lambda last=seen: advanced(cell, last), "the writer goes on")  # type: ignore[misc]
            until = time.monotonic() + random.uniform(0.005, 0.03)
            while time.monotonic() < until:
                found = whole(cell.read())
                assert found.number >= seen
                seen, reads = found.number, reads + 1
            process.kill()
        seen = whole(cell.read()).number
    assert reads > ROUNDS
    assert board.cell("b", Note).read() is None


def test_a_reader_that_was_lapped_looks_again_instead_of_going_back(tmp_path: Path) -> None:
    """It took the copy of note 4, then the writer went on to 6, and was in the middle of 7 when it took the other."""
    board = Board.create(tmp_path / "board", ["a"])
    cell, encode = board.cell("a", Note), msgspec.msgpack.encode
    looks = iter([[(4, encode(note(4)))], [(6, encode(note(6))), (7, encode(note(7)))]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cell, "_intact_copies", lambda: next(looks))
        assert cell.read() == note(7)


def test_a_cell_that_was_never_written_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell, looks = Board.create(tmp_path / "board", ["a"]).cell("a", Note), list[int]()
    look = cell._intact_copies

    def counted() -> list[tuple[int, bytes]]:
        looks.append(1)
        return look()

    monkeypatch.setattr(cell, "_intact_copies", counted)
    assert cell.read() is None
    assert len(looks) == 1
    cell.write(note(1))
    assert cell.read() == note(1)
    assert len(looks) == 2


def test_a_frozen_writer_leaves_a_whole_value_and_blocks_no_reader(tmp_path: Path) -> None:
    board = Board.create(tmp_path / "board", ["a"])
    cell = board.cell("a", Note)
    with writer(tmp_path / "board") as process:
        for _ in range(10):
            before = cell.read()
            last = before.number if before else 0
            wait_until(lambda last=last: advanced(cell, last), "the writer goes on")  # type: ignore[misc]
            process.send_signal(signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)
            frozen = whole(cell.read())
            assert cell.read() == frozen
            process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_a_writer_that_died_in_the_middle_of_a_value_leaves_the_one_before(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "board"
    cell = Board.create(path, ["a"]).cell("a", Note)
    cell.write(note(7))
    before = path.read_bytes()
    cell.write(note(8))
    after = path.read_bytes()
    places = [at for at, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    torn = bytearray(before)
    for at in places[: min(cut, len(places) - 1)]:
        torn[at] = after[at]
    path.write_bytes(torn)
    again = Board.open(path).cell("a", Note)
    assert again.read() == note(7)
    again.write(note(9))
    assert Board.open(path, read_only=True).cell("a", Note).read() == note(9)


def test_a_cell_is_empty_until_it_is_written(tmp_path: Path) -> None:
    assert Board.create(tmp_path / "board", ["a"]).cell("a", Note).read() is None


def test_a_board_that_is_opened_again_shows_the_last_value_and_can_be_written_on(tmp_path: Path) -> None:
    path = tmp_path / "board"
    Board.create(path, ["a", "b"]).cell("b", Note).write(note(3))
    again = Board.open(path).cell("b", Note)
    assert again.read() == note(3)
    for number in range(4, 9):
        again.write(note(number))
        assert Board.open(path, read_only=True).cell("b", Note).read() == note(number)


def test_a_new_board_in_place_of_an_old_one_is_empty_and_old_writers_write_into_the_void(tmp_path: Path) -> None:
    path = tmp_path / "board"
    old = Board.create(path, ["a"]).cell("a", Note)
    new = Board.create(path, ["a"]).cell("a", Note)
    old.write(note(5))
    assert new.read() is None


@patient
@given(st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=40, unique=True))
def test_cells_of_any_names_do_not_touch_one_another(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        board = Board.create(Path(folder) / "board", names)
        for number, name in enumerate(names):
            board.cell(name, Note).write(note(number))
        assert [board.cell(name, Note).read() for name in names] == [note(number) for number in range(len(names))]


def test_a_value_that_does_not_fit_is_refused_and_the_old_one_stays(tmp_path: Path) -> None:
    cell = Board.create(tmp_path / "board", ["a"]).cell("a", Note)
    cell.write(note(1))
    with pytest.raises(BoardError, match="does not fit"):
        cell.write(Note(2, "x" * 600))
    assert cell.read() == note(1)


def test_an_unknown_cell_is_named(tmp_path: Path) -> None:
    with pytest.raises(BoardError, match="no cell 'b'"):
        Board.create(tmp_path / "board", ["a"]).cell("b", Note)


@pytest.mark.parametrize(
    "content",
    [b"", b"HF", b"something else entirely, and long enough to be read", b"HFBOARD1\xff\xff\xff\xff", b"\0" * 4_096],
)
def test_a_foreign_file_is_no_board(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "board").write_bytes(content)
    with pytest.raises(BoardError, match="board"):
        Board.open(tmp_path / "board")


def test_a_board_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "board"
    Board.create(path, ["a", "b"])
    os.truncate(path, path.stat().st_size - 512)
    with pytest.raises(BoardError, match="truncated to 2560 bytes"):
        Board.open(path)


def test_a_missing_board_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BoardError, match="cannot read the board"):
        Board.open(tmp_path / "board", read_only=True)


def test_a_board_opened_for_reading_cannot_be_written(tmp_path: Path) -> None:
    Board.create(tmp_path / "board", ["a"])
    with pytest.raises(TypeError):
        Board.open(tmp_path / "board", read_only=True).cell("a", Note).write(note(1))


def test_the_largest_pulse_fits_a_cell(tmp_path: Path) -> None:
    clock = HandClock()
    vitals = Vitals(clock)
    vitals.state = "waiting: " + "größte Datenbank der Welt, " * 100
    vitals.attempted(success=True)
    vitals.duty = vitals.audit = Instant(2**62)
    cell = Board.create(tmp_path / "board", ["a"]).cell("a", Pulse)
    cell.write(vitals.pulse(2**22, clock.now()))
    shown = cell.read()
    assert shown is not None
    assert shown.state.startswith("waiting: größte Datenbank")
