"""The heartbeat of a worker: when it takes its supervisor for hung."""

from __future__ import annotations

from pathlib import Path

from holdfast.config.root import Config
from holdfast.runtime.daemon.board import Board
from holdfast.runtime.daemon.pulse import Pulse
from holdfast.runtime.daemon.worker import Heartbeat, Spec, Worker
from holdfast.runtime.paths import RolePaths
from tests.runtime.harness import HandClock


def test_a_worker_that_was_away_before_its_first_look_gives_its_supervisor_the_time_again(tmp_path: Path) -> None:
    clock, silent_after = HandClock(), Config().runtime.supervisor_silent_after.total_seconds()
    board = Board.create(tmp_path / "lab.board", ["supervisor", "w"])
    board.cell("supervisor", Pulse).write(Pulse(pid=1, beat=clock.now()))
    worker = Worker(Spec("w", "tests:none"), "lab", RolePaths("lab", tmp_path, tmp_path), Config(), clock, board)
    heart = Heartbeat(worker)
    heart.beat()
    clock.move(2 * silent_after)
    assert not heart._abandoned(heart.beat())
    for _ in range(int(silent_after)):
        clock.move(1)
        assert not heart._abandoned(heart.beat())
    clock.move(1)
    assert heart._abandoned(heart.beat())
