"""Files of a daemon under attack: links and files that somebody left, folders of others; deletes of the last hour."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.agent.journal.files import Files
from holdfast.model.control.decision import Decision
from holdfast.runtime.daemon.board import Board
from holdfast.runtime.decision_log import DecisionLog
from holdfast.runtime.paths import FolderError, RolePaths, write_atomically
from holdfast.runtime.recent_deletes import recent_deletes

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file outside, which a link must not lead to."""
    file = tmp_path / "victim"
    file.write_text("precious")
    (tmp_path / "state").mkdir()
    return file


def test_a_link_under_the_temporary_name_is_replaced_not_followed(tmp_path: Path, victim: Path) -> None:
    target = tmp_path / "state" / "epoch"
    target.with_name("epoch.new").symlink_to(victim)
    write_atomically(target, b"mine")
    assert (victim.read_text(), target.read_bytes(), target.is_symlink()) == ("precious", b"mine", False)


def test_a_file_that_somebody_left_open_is_not_written_to(tmp_path: Path) -> None:
    left = tmp_path / "epoch.new"
    left.touch()
    with left.open("rb") as kept:
        write_atomically(tmp_path / "epoch", b"secret")
        assert kept.read() == b""


def test_what_is_written_is_for_its_owner(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_atomically(tmp_path / "epoch", b"x")
        with_log = DecisionLog(tmp_path / "decisions", "syncer")
        with_log.write([decision(NOW)])
        with_log.close()
    finally:
        os.umask(before)
    written = [tmp_path / "epoch", *(tmp_path / "decisions").iterdir()]
    assert {stat.S_IMODE(one.stat().st_mode) for one in written} == {0o600}
    assert stat.S_IMODE((tmp_path / "decisions").stat().st_mode) == 0o700


def test_board_and_journal_do_not_follow_links(tmp_path: Path, victim: Path) -> None:
    (tmp_path / "state" / "lab.board.new").symlink_to(victim)
    Board.create(tmp_path / "state" / "lab.board", ["one"])
    (tmp_path / "state" / "journal").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic link"):
        Files().append_to(tmp_path / "state" / "journal")
    os.close(Files().create(tmp_path / "state" / "journal"))
    assert victim.read_text() == "precious"


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    paths = RolePaths("agent", tmp_path / "run", tmp_path / "state")
    paths.prepare()
    paths.state.chmod(0o777)
    with pytest.raises(FolderError, match=r"every user may write to .*/state: run chmod go-w"):
        paths.prepare()


def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to give a folder to another user")
    paths = RolePaths("agent", tmp_path / "run", tmp_path / "state")
    paths.prepare()
    os.chown(paths.state, 65534, 65534)
    with pytest.raises(FolderError, match=r"/state belongs to nobody, who could replace what is read from it"):
        paths.prepare()


def test_sockets_that_check_their_callers_can_be_reached_by_all(tmp_path: Path) -> None:
    paths = RolePaths("agent", tmp_path / "run", tmp_path / "state")
    paths.prepare(shared=True)
    assert [stat.S_IMODE(one.stat().st_mode) for one in (paths.runtime, paths.state)] == [0o755, 0o750]


def decision(at: datetime, op: str = "delete", kind: str = "endpoints", outcome: str = "applied") -> Decision:
    return Decision(time=at, worker="syncer", op=op, key="k", kind=kind, outcome=outcome, sentence="x")


def test_deletes_of_the_last_hour_are_counted_by_kind_in_all_files(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path, "server.syncer", ring=32_768)
    old = [decision(NOW - timedelta(hours=2, seconds=-n)) for n in range(20)]
    new = [decision(NOW - timedelta(minutes=59, seconds=-n)) for n in range(50)]
    log.write(old)
    for one in new:
        log.write([one])
    log.write([decision(NOW, kind="hosts"), decision(NOW, op="create"), decision(NOW, outcome="held")])
    log.close()
    assert recent_deletes(tmp_path, NOW) == {"endpoints": 50, "hosts": 1}


def test_deletes_of_another_daemon_of_the_host_are_not_counted(tmp_path: Path) -> None:
    DecisionLog(tmp_path, "server.syncer").write([decision(NOW)])
    DecisionLog(tmp_path, "agent.peers").write([decision(NOW, kind="hosts")])
    assert recent_deletes(tmp_path, NOW, "server") == {"endpoints": 1}
    assert recent_deletes(tmp_path, NOW, "agent") == {"hosts": 1}


@pytest.mark.parametrize("new", range(4))
def test_the_period_begins_at_the_right_record(tmp_path: Path, new: int) -> None:
    log = DecisionLog(tmp_path, "server.syncer")
    log.write([decision(NOW - timedelta(hours=3)) for _ in range(3)])
    log.write([decision(NOW - timedelta(minutes=1)) for _ in range(new)])
    log.close()
    assert recent_deletes(tmp_path, NOW).get("endpoints", 0) == new


def test_no_log_is_no_delete(tmp_path: Path) -> None:
    (tmp_path / "server.syncer.00000001.jsonl").touch()
    assert recent_deletes(tmp_path, NOW) == {}
    assert recent_deletes(tmp_path / "none", NOW) == {}
