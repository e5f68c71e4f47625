"""A server that an operator paused: it stays so, whatever happens to its processes."""

from __future__ import annotations

import os
import signal

from holdfast.testing.processes import wait_until
from holdfast.testing.servers import Controllers
from tests.chaos.fleet import wait_working


def test_a_paused_server_stays_paused_when_its_elector_is_killed_and_takes_part_again_when_resumed(
    fleet: Controllers,
) -> None:
    term, paused = wait_working(fleet)
    assert not paused.ask("elector", "pause", reason="disk swap").error
    _, other = wait_working(fleet, after=term)
    assert other is not paused
    pid = paused.worker("elector")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: paused.worker("elector") != pid and paused.answers("elector"), "the elector comes back")
    wait_until(lambda: paused.ask("elector", "about").result["phase"] == "resting", "it is paused still")
    assert not paused.ask("elector", "resume").error
    wait_until(lambda: paused.ask("elector", "about").result["phase"] == "following", "it takes part again")
    assert paused.ask("elector", "resume").error == f"{paused.name} is not paused"
