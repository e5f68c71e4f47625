"""A server that an operator paused: it stays so, whatever happens to its processes."""

from __future__ import annotations

import os
import signal

from holdfast.testing.real.processes import wait_until
from holdfast.testing.real.servers import ServerGroup, ServerProcess
from tests.chaos.harness import answer, wait_working

PAUSE_OVER = "pause is over; taking part in elections again"


def test_a_paused_server_stays_paused_when_its_elector_is_killed_and_takes_part_again_when_resumed(
    fleet: ServerGroup,
) -> None:
    term, paused = wait_working(fleet)
    assert not paused.ask("elector", "pause", reason="disk swap").error
    _, other = wait_working(fleet, after=term)
    assert other is not paused
    pid = paused.worker("elector")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: paused.worker("elector") != pid and paused.answers("elector"), "the elector comes back")
    wait_until(lambda: phase(paused) == "resting", "it is paused still")
    assert answer(paused, "elector", "about")["paused"].endswith(": “disk swap”")
    assert not paused.ask("elector", "resume").error
    wait_until(lambda: phase(paused) == "following", "it takes part again")
    assert paused.ask("elector", "resume").error == f"server {paused.name} is not paused"


def test_of_two_pauses_the_later_one_counts_however_soon_the_first_would_have_ended(fleet: ServerGroup) -> None:
    _, leader = wait_working(fleet)
    paused, briefly = (server for server in fleet.members if server is not leader)
    assert not paused.ask("elector", "pause", reason="a look", **{"for": "1s"}).error
    assert not paused.ask("elector", "pause", reason="disk swap").error
    ended = briefly.process.output.count(PAUSE_OVER)
    assert not briefly.ask("elector", "pause", reason="a look", **{"for": "2s"}).error
    wait_until(lambda: briefly.process.output.count(PAUSE_OVER) > ended, "a pause that ran out is over")
    wait_until(lambda: phase(briefly) == "following", "the brief one takes part again")
    assert phase(paused) == "resting"
    would = {paused.name: False, briefly.name: True}
    wait_until(lambda: followers(leader) == would and followers(paused) == would, "both know who would lead")
    assert not paused.ask("elector", "resume").error


def phase(server: ServerProcess) -> object:
    return answer(server, "elector", "about")["phase"]


def followers(server: ServerProcess) -> object:
    return answer(server, "elector", "about")["followers"]
