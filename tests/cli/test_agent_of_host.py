"""An operator who names a host or a daemon reaches that one, and never one that happens to run here."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli import main
from holdfast.cli.daemons import agent


@pytest.fixture
def r1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with one agent, that of r1."""
    (tmp_path / "agent.sock").touch()
    monkeypatch.setattr(
        agent, "send_command", lambda _runtime, worker, do: {(agent.WORKER, "about"): {"host": "r1"}}[worker, do]
    )
    return tmp_path


def test_the_agent_of_this_host_is_found_by_its_name(r1: Path) -> None:
    assert [agent.worker_of(r1, name) for name in (None, "r1")] == ["peers", "peers"]


@pytest.mark.parametrize("action", [["pause", "--reason", "disk swap"], ["resume"]])
def test_the_name_of_another_host_does_not_reach_this_one(r1: Path, action: list[str]) -> None:
    command, *flags = action
    asked = CliRunner().invoke(main, [command, "host", "r2", *flags, "--runtime", str(r1)])
    assert (asked.exit_code, asked.output) == (
        1,
        "Error: no agent of r2 is running here; running: r1. Run this on r2.\n",
    )


def test_a_daemon_that_does_not_run_here_is_named_with_those_that_do(r1: Path) -> None:
    asked = CliRunner().invoke(main, ["config", "reload", "r2", "--runtime", str(r1)])
    assert (asked.exit_code, asked.output) == (1, "Error: no daemon 'r2' here: name one of agent\n")
