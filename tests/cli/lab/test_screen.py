"""`holdfast lab up` on a terminal: progress, then the state of the fleet; logs in a file; Ctrl-C ends all of it."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import sys
import time
from pathlib import Path

import pytest

from holdfast.cli.lab import screen
from holdfast.cli.lab.command import _guide, _typed, _welcome
from holdfast.cli.status.view import StatusView
from holdfast.lab.fleet import layout
from holdfast.runtime.daemon.process import descendants
from holdfast.runtime.daemon.report import DaemonReport
from holdfast.testing.real.processes import Unavailable, tool
from tests.runtime.daemon.harness import alive


def view(*daemons: str) -> StatusView:
    return StatusView([DaemonReport(name, "1", 1, 0.1, []) for name in daemons])


def test_a_start_shows_how_far_it_is_and_where_the_logs_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    layout.set_host_count(tmp_path / "lab" / "state", 2)
    nothing = screen.starting(None, tmp_path / "lab", 1.2)
    assert "0 of 6 daemons   1 s" in nothing
    assert "logs: lab/lab.log" in nothing
    half = screen.starting(view("lab", "ctl-1", "r1-02", "another"), tmp_path / "lab", 3)
    assert "████████████░░░░░░░░░░░░  3 of 6 daemons" in half
    assert "running: ctl-1, lab, r1-02" in half


def test_every_command_of_the_guide_fits_80_columns_and_can_be_typed() -> None:
    for command in ("holdfast", ".venv/bin/holdfast"):
        lines = "\n".join(_guide(command)).splitlines()
        assert max(map(len, lines)) <= 80
        assert sum(f"  {command} " in line for line in lines) == 10


def test_commands_name_a_lab_in_another_folder_and_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["holdfast"])
    monkeypatch.setattr("shutil.which", lambda _name: "holdfast")
    monkeypatch.delenv("SUDO_UID", raising=False)
    assert _typed(tmp_path / ".holdfast") == "holdfast"
    assert _typed(Path("/tmp/a lab")) == "holdfast --lab '/tmp/a lab'"
    monkeypatch.setenv("SUDO_UID", "1000")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert _typed(tmp_path / ".holdfast") == "sudo holdfast"


def test_the_welcome_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    _welcome("holdfast", "127.0.0.1:9620")
    shown = capsys.readouterr().err
    assert "Dashboard: http://127.0.0.1:9620/" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_up_on_a_terminal_shows_the_fleet_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    try:
        os.environ.setdefault("HOLDFAST_ETCD", tool("etcd"))
    except Unavailable:
        pytest.skip("etcd is not installed")
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm", "COLUMNS": "100", "LINES": "50"}
        words = [
            "-P",
            "-m",
            "holdfast.cli",
            "lab",
            "up",
            "--hosts",
            "2",
            "--dir",
            str(tmp_path / "lab"),
            "--dashboard",
            "off",
        ]
        os.execv(sys.executable, [sys.executable, *words])
    ended = False
    try:
        seen = read_until(terminal, r"NEEDS YOU  0.*LEADER +ctl-\d", within=400)
        assert re.search(r"Holdfast is starting .* of 6 daemons", seen)
        assert "lab break leader-freeze" in seen
        assert '"event"' not in seen, "logs belong into the file"
        members = descendants(pid)
        os.write(terminal, b"\x03")
        assert "the logs stay in" in read_until(terminal, "the logs stay in", within=60)
        drain(terminal)
        _, status = os.waitpid(pid, 0)
        ended = True
        assert os.waitstatus_to_exitcode(status) == 0
        assert [one for one in members if alive(one)] == []
        assert '"event"' in (tmp_path / "lab" / "lab.log").read_text()
    finally:
        if not ended:
            os.kill(pid, signal.SIGTERM)
            drain(terminal)
            os.waitpid(pid, 0)
        os.close(terminal)


def read_until(terminal: int, pattern: str, within: float) -> str:
    """Everything that the terminal has shown until the pattern appeared."""
    shown, deadline = "", time.monotonic() + within
    while not re.search(pattern, plain(shown), re.DOTALL):
        assert time.monotonic() < deadline, f"no {pattern} within {within} s in: {plain(shown)[-2000:]}"
        if select.select([terminal], [], [], 1)[0]:
            shown += os.read(terminal, 65_536).decode(errors="replace")
    return plain(shown)


def drain(terminal: int) -> None:
    """Read until the other end is closed, so that nothing blocks on a full terminal."""
    try:
        while os.read(terminal, 65_536):
            pass
    except OSError:
        return


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


LIVE = """
import sys, time
from pathlib import Path
from holdfast.cli.common.escaping import escaped_output
from holdfast.cli.lab import screen
from holdfast.cli.probe.screen import Screen
screen._REFRESH_S = 0.05
with escaped_output():
    screen.run(Path(sys.argv[1]), [sys.executable, "-c", "import time; time.sleep(1)"], lambda: None)
    with Screen(live=True) as probe:
        for _ in range(3):
            probe._drawn = 0.0
            probe.draw((), paused=False)
"""


def test_a_screen_that_is_redrawn_moves_the_cursor_and_shows_no_escape_sequence(tmp_path: Path) -> None:
    layout.set_host_count(tmp_path / "state", 2)
    pid, ours = pty.fork()
    if not pid:
        os.environ["TERM"] = "xterm"
        os.execv(sys.executable, [sys.executable, "-c", LIVE, str(tmp_path)])
    shown = b""
    with contextlib.suppress(OSError):  # the end of a pty
        while select.select([ours], [], [], 60)[0] and (part := os.read(ours, 65_536)):
            shown += part
    os.close(ours)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, shown
    text = shown.decode()
    assert "Holdfast is starting" in text
    assert "space pauses, q quits" in text
    assert "\x1b[1A" in text
    assert r"\x1b" not in text
