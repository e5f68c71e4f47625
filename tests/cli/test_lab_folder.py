"""`holdfast lab` in a folder that cannot be written."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli import main
from holdfast.cli.lab import command
from holdfast.lab.scenes.host import kernel_host
from holdfast.lab.scenes.stage import Lab


def test_an_unwritable_folder_is_one_sentence_and_no_traceback() -> None:
    Path("file").touch()  # root may write into every folder, but into no file

    ended = CliRunner().invoke(main, ["lab", "up", "--dir", "file/lab"])

    assert ended.exit_code == 1
    assert isinstance(ended.exception, SystemExit)
    assert "file/lab: Not a directory; name another folder with --dir" in ended.stderr


def test_a_runtime_folder_that_this_user_may_not_read_is_not_an_absent_daemon(tmp_path: Path) -> None:
    if os.getuid() == 0:
        pytest.skip("needs a normal user")
    folder = tmp_path / "run"
    folder.mkdir(mode=0o000)
    told = CliRunner().invoke(main, ["status", "--runtime", str(folder)])
    assert (told.exit_code, f"this user may not read {folder}: use sudo" in told.stderr) == (3, True)


def test_a_scene_without_a_lab_cannot_be_judged(tmp_path: Path) -> None:
    ended = CliRunner().invoke(main, ["lab", "break", "--dir", str(tmp_path), "leader-kill"])
    assert ended.exit_code == 3
    assert "no lab is running in" in ended.output


def test_a_scene_that_needs_another_lab_cannot_be_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def needs_the_kernel(*_: object) -> None:
        kernel_host(Lab(tmp_path))

    monkeypatch.setattr(command, "roles", lambda _: ["server"])
    monkeypatch.setattr(command, "play", needs_the_kernel)
    ended = CliRunner().invoke(main, ["lab", "break", "--dir", str(tmp_path), "kernel-flush"])
    assert (ended.exit_code, "this scene needs hosts on the kernel" in ended.stderr) == (3, True)


@pytest.mark.parametrize("words", [["status"], ["get", "workers"], ["lab", "break", "leader-kill"]])
def test_the_lab_of_another_user_is_named_and_not_called_absent(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(".holdfast", "run").mkdir(parents=True)
    owner = pwd.getpwuid(os.getuid()).pw_name
    monkeypatch.setattr(os, "getuid", lambda: 4_242)
    told = CliRunner().invoke(main, words)
    assert told.exit_code == 3
    assert f"belongs to {owner}, and only its owner can " in told.stderr
    assert f"run this as {owner}" in told.stderr
