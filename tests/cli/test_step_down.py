"""`holdfast step-down` on the machine of a server that does not lead."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast.cli import leader, main
from holdfast.runtime.control import Handler, Request, Who
from tests.cli.control_sockets import control_sockets

TOLD = "a is asked to step down; b takes over"


class Follower:
    """Server b. Its leader is a, until it was asked to step down if it does so."""

    def __init__(self) -> None:
        self.steps_down = True
        self.asked: list[dict[str, Any]] = []

    def handlers(self) -> dict[str, Handler]:
        return {"status": self._status, "tell": self._tell}

    async def _status(self, _request: Request, _who: Who) -> Any:
        return {"workers": [{"name": "elector", "phase": "running"}]}

    async def _tell(self, request: Request, _who: Who) -> Any:
        if request.args["do"] == "step-down-elsewhere":
            self.asked.append(request.args["args"])
            return TOLD
        assert request.args["do"] == "about"
        return {"name": "b", "phase": "following", "leader": "b" if self.asked and self.steps_down else "a"}


@pytest.fixture
def follower() -> Follower:
    return Follower()


@pytest.fixture
def runtime(tmp_path: Path, follower: Follower) -> Iterator[Path]:
    with control_sockets(tmp_path, {"b": follower.handlers()}) as folder:
        yield folder


def step_down(runtime: Path, *words: str) -> Result:
    asked = ["step-down", "--reason", "kernel update", *words, "--runtime", str(runtime)]
    return CliRunner().invoke(main, asked)


def test_the_leader_elsewhere_is_asked_and_its_successor_named(runtime: Path, follower: Follower) -> None:
    told = step_down(runtime, "--to", "b")
    assert follower.asked == [{"reason": "kernel update", "to": "b"}]
    assert told.exit_code == 0
    assert told.stderr.startswith(f"{TOLD}\nb leads, ")


def test_a_leader_that_does_not_step_down_is_no_success(
    runtime: Path, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader, "_TAKEN_OVER_WITHIN", 0.3)
    follower.steps_down = False
    told = step_down(runtime)
    assert told.exit_code == 1
    assert told.stderr == f"{TOLD}\nError: no other server leads after 0.3 s: see holdfast get servers\n"


def test_a_machine_without_a_server_says_where_to_go(tmp_path: Path) -> None:
    async def status(_request: Request, _who: Who) -> Any:
        return {"workers": [{"name": "peers", "phase": "running"}]}

    with control_sockets(tmp_path, {"host": {"status": status}}) as folder:
        told = step_down(folder)
    assert (told.exit_code, told.stderr) == (
        4,
        "Error: no server runs on this machine: run this where one runs (holdfast get servers)\n",
    )
