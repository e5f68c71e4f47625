"""Terms on the boards of this machine, read while no elector and no etcd answers."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from holdfast.cli.common.terms import last_known, read_terms, term_on_board
from holdfast.model.base.time import Duration, Instant, seconds
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.daemon.board import Board
from holdfast.server.election.leadership import LEADERSHIP_CELL, LeadershipCell

NOW = Instant(1_000_000_000_000)


def shows(runtime: Path, role: str, *cells: LeadershipCell) -> None:
    """Make a daemon with a board, whose process does not answer."""
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(runtime / f"{role}.sock"))
    board = Board.create(runtime / f"{role}.board", [LEADERSHIP_CELL] if cells else ["peers"])
    for cell in cells:
        board.cell(LEADERSHIP_CELL, LeadershipCell).write(cell)


@pytest.mark.parametrize(
    ("late", "sentence"),
    [
        (seconds(-4), "ctl-1 leads, term 7, and has to renew it within 4.0 s"),
        (seconds(75), "ctl-1 led last, term 7 stale for 1m15s"),
    ],
)
def test_a_term_has_its_age(late: Duration, sentence: str) -> None:
    term = term_on_board("server", LeadershipCell("leading", 7, until=NOW, leader="ctl-1"), NOW + late)
    assert term is not None
    assert term.sentence == sentence


def test_a_follower_has_no_term() -> None:
    assert term_on_board("server", LeadershipCell("following", leader="ctl-2"), NOW) is None


def test_boards_are_read_without_any_answer(tmp_path: Path) -> None:
    deadline = SystemClock().now() - seconds(30)
    shows(tmp_path, "server", LeadershipCell("leading", 7, until=deadline, leader="ctl-1"))
    shows(tmp_path, "agent")
    (tmp_path / "balancer.sock").touch()  # without a board
    assert list(read_terms(tmp_path)) == ["server"]
    assert last_known(tmp_path)[0].startswith("ctl-1 led last, term 7 stale for 30")
