"""Progress of long work: a bar on a terminal, nothing in a pipe."""

from __future__ import annotations

import os
import pty
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli import main
from holdfast.cli.common.progress import bar, progress

HOSTS = "".join(f"- kind: host\n  name: r{n}\n  spec: {{bgp: {{ipv4Address: 192.0.2.{n}/24}}}}\n" for n in range(1, 4))


def test_a_bar_is_as_full_as_the_work_is_done() -> None:
    assert bar(0, 4, "objects") == "░" * 24 + "  0 of 4 objects"
    assert bar(1_000, 4_000, "objects") == "█" * 6 + "░" * 18 + "  1,000 of 4,000 objects"
    assert bar(4, 4, "objects") == "█" * 24 + "  4 of 4 objects"
    assert bar(0, 0, "objects") == "█" * 24 + "  0 of 0 objects"


def test_a_pipe_gets_no_progress(capfd: pytest.CaptureFixture[str]) -> None:
    with progress("objects", 4) as show:
        show(2)
    assert capfd.readouterr() == ("", "")


def test_apply_shows_progress_on_a_terminal_and_data_on_stdout(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/inventory.db"
    settings = ["--set", f"inventory.database={url}"]
    assert CliRunner().invoke(main, ["inventory", "init", *settings]).exit_code == 0
    (tmp_path / "hosts.yaml").write_text(HOSTS)
    read_end, write_end = os.pipe()
    pid, terminal = pty.fork()
    if pid == 0:
        os.dup2(write_end, 1)
        words = ["-P", "-m", "holdfast.cli", "apply", "-f", str(tmp_path / "hosts.yaml"), "--reason", "x", *settings]
        os.execv(sys.executable, [sys.executable, *words])
    os.close(write_end)
    seen = b""
    try:
        while part := os.read(terminal, 65_536):
            seen += part
    except OSError:  # the other end is closed
        pass
    with os.fdopen(read_end) as data:
        stdout = data.read()
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0, seen.decode()
    assert "3 objects are compared and written" in seen.decode()
    assert stdout == "host r1 created\nhost r2 created\nhost r3 created\n"
