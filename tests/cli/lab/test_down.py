"""`holdfast lab down`: stops a running lab of the caller, and nothing else."""

from __future__ import annotations

import os
import pwd
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli import main
from holdfast.cli.lab import down as command
from holdfast.runtime.daemon.process import descendants
from tests.runtime.daemon.harness import daemon


def down(folder: Path) -> Result:
    return CliRunner().invoke(main, ["lab", "down", "--dir", str(folder)])


def test_all_processes_of_a_lab_are_gone_afterwards_and_its_files_stay(tmp_path: Path) -> None:
    with daemon(tmp_path, ["steady", ("other", "steady")]) as running:
        pids = [running.pid, *descendants(running.pid)]
        assert len(pids) == 3
        result = down(tmp_path)
        assert result.exit_code == 0, result.output
        assert f"stopped the lab in {tmp_path}: 3 processes, in " in result.stderr
        assert running.wait() == 0
        assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    assert (tmp_path / "run" / "lab.board").exists()
    again = down(tmp_path)
    assert (again.exit_code, again.stderr) == (0, f"no lab is running in {tmp_path}\n")


def test_the_lab_that_the_command_itself_names_is_stopped(tmp_path: Path) -> None:
    with daemon(tmp_path, ["steady"]) as running:
        result = CliRunner().invoke(main, ["--lab", str(tmp_path), "lab", "down"])
        assert result.exit_code == 0, result.output
        assert running.wait() == 0


def test_a_process_that_does_not_end_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_WITHIN_S", 0.3)
    with daemon(tmp_path, ["steady"]) as running:
        os.kill(running.pid, signal.SIGSTOP)
        try:
            result = down(tmp_path)
        finally:
            os.kill(running.pid, signal.SIGCONT)
        assert result.exit_code == 1
        assert f"have not ended in 0.3 s: kill -9 {running.pid}" in result.stderr


def test_where_no_lab_has_ever_been_nothing_is_to_do(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    result = down(absent)
    assert (result.exit_code, result.stderr) == (0, f"no lab is running in {absent}\n")
    assert not absent.exists()


def test_the_lab_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    owner = pwd.getpwuid(os.getuid()).pw_name
    monkeypatch.setattr(os, "getuid", lambda: 4_242)
    result = down(tmp_path)
    assert result.exit_code == 4
    assert f"belongs to {owner}, and only its owner can stop it: run this as {owner}" in result.stderr


def test_a_link_is_refused_although_a_lab_of_the_caller_is_behind_it(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    with daemon(tmp_path / "lab", ["steady"]) as running:
        (tmp_path / "link").symlink_to(tmp_path / "lab")
        result = down(tmp_path / "link")
        assert (result.exit_code, "is a link or a file" in result.stderr) == (4, True)
        assert running.ask("status").error == ""


def test_an_id_in_the_lock_file_of_a_lab_that_has_ended_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "lab.lock").write_text(f"{os.getpid()}\n")  # ours: the signal would end the test
    result = down(tmp_path)
    assert (result.exit_code, result.stderr) == (0, f"no lab is running in {tmp_path}\n")
