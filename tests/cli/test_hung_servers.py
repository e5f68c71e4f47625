"""Commands on a machine with two servers, as in a lab, of which one hangs: the other one is asked; exit codes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast.cli import main
from holdfast.runtime.control import Declined, Handler, Request, Unanswered, Who
from tests.cli.control_sockets import control_sockets


def supervisor(name: str, *, hangs: bool) -> dict[str, Handler]:
    """Handlers of a supervisor whose elector leads, or hangs."""

    async def status(_request: Request, _who: Who) -> Any:
        return {"workers": [{"name": "elector", "phase": "running"}]}

    async def tell(request: Request, _who: Who) -> Any:
        if hangs:
            raise Unanswered("no answer within 2 s")
        if request.args["do"] == "about":
            return {"name": name, "phase": "leading", "leader": name}
        raise Declined(f"{name} keeps the leadership")

    return {"status": status, "tell": tell}


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Path]:
    """A runtime folder with the sockets of ctl-1, whose elector hangs, and of ctl-2, which leads."""
    servers = {name: supervisor(name, hangs=hangs) for name, hangs in (("ctl-1", True), ("ctl-2", False))}
    with control_sockets(tmp_path, servers) as folder:
        yield folder


def holdfast(runtime: Path, *words: str) -> Result:
    return CliRunner().invoke(main, [*words, "--runtime", str(runtime)])


def test_step_down_reaches_the_leader_beside_a_server_that_hangs_and_a_refusal_is_4(runtime: Path) -> None:
    told = holdfast(runtime, "step-down", "--reason", "kernel update")
    assert (told.exit_code, told.stderr) == (4, "Error: ctl-2 keeps the leadership\n")


def test_a_request_to_another_server_goes_by_the_one_that_answers(runtime: Path) -> None:
    told = holdfast(runtime, "restart", "worker", "syncer", "--server", "ctl-9", "--reason", "stuck")
    assert (told.exit_code, told.stderr) == (4, "Error: ctl-2 keeps the leadership\n")


def test_a_worker_that_does_not_answer_has_not_refused_and_is_3(runtime: Path) -> None:
    told = holdfast(runtime, "pause", "server", "ctl-1", "--reason", "kernel update")
    assert (told.exit_code, told.stderr) == (3, "Error: no answer within 2 s\n")


def test_an_unknown_kind_names_the_servers_too() -> None:
    told = CliRunner().invoke(main, ["get", "NOSUCH"])
    assert (told.exit_code, "frontends, servers, workers" in told.stderr) == (2, True)
