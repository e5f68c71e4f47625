"""A value that shows when it is torn, and a process that writes such values to a board as fast as it can.

python -m tests.runtime.daemon.board_writer BOARD
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from holdfast.runtime.daemon.board import Board


class Note(msgspec.Struct, frozen=True):
    """`text` is made of `number` alone, so that a mixture of two notes is recognised."""

    number: int
    text: str


def note(number: int) -> Note:
    return Note(number, f"{number}," * (number % 60))


def whole(found: Note | None) -> Note:
    assert found is not None
    assert found == note(found.number)
    return found


if __name__ == "__main__":
    cell = Board.open(Path(sys.argv[1])).cell("a", Note)
    last = cell.read()
    number = last.number if last else 0
    while True:
        number += 1
        cell.write(note(number))
