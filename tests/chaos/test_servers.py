"""Whole servers that die, freeze, stop or are told to: who leads then, and what the old leader can still do."""

from __future__ import annotations

import os
import re
import signal

import pytest

from holdfast.cli.common.terms import read_terms
from holdfast.lab.fleet.history_check import writes_after
from holdfast.lab.fleet.server import command
from holdfast.testing.real.etcd import EtcdCluster
from holdfast.testing.real.processes import wait_until
from holdfast.testing.real.servers import ServerGroup, ServerProcess, server_group
from tests.chaos.harness import SHIPPED_TIMINGS, STEADY, counts, history, servers, step_down, wait_working, why_ended

ASKED = "an operator asked it to step down"


def test_a_leader_that_was_killed_on_this_machine_is_succeeded_before_its_lease_runs_out(fleet: ServerGroup) -> None:
    term, old = wait_working(fleet)
    old.kill()
    newer, new = wait_working(fleet, after=term)
    assert new is not old
    assert why_ended(fleet, term, before=newer) == "its process died on this machine"


@pytest.mark.soak
def test_a_leader_that_was_killed_elsewhere_is_succeeded_when_its_lease_ran_out(cluster: EtcdCluster) -> None:
    with servers(cluster, 3, isolated=True) as fleet:
        term, old = wait_working(fleet)
        old.kill()
        newer, new = wait_working(fleet, after=term)
        assert new is not old
        assert why_ended(fleet, term, before=newer) == "its lease ran out, or its key was deleted"


def test_a_leader_that_was_frozen_past_its_lease_has_no_write_accepted_and_says_why(fleet: ServerGroup) -> None:
    term, old = wait_working(fleet)
    before = counts(old)
    old.freeze()
    newer, new = wait_working(fleet, after=term)
    assert new is not old
    (shown,) = read_terms(old.runtime).values()
    assert (shown.term, shown.stale_s > 0) == (term, True), "its board shows the term, and for how long it is stale"
    old.thaw()
    wait_until(lambda: counts(old).refused > before.refused, "the old leader's write is refused")
    assert counts(old).reason == f"term {term} is over: term {newer} leads now; nothing was written"
    assert writes_after(history(fleet), newer, old.name) == 0
    wait_until(lambda: lost(old, term), "the old leader logs that it lost its leadership")


def lost(server: ServerProcess, term: int) -> bool:
    """Whether the server has logged the end of its leadership in that term."""
    lines = [line for line in server.process.output.splitlines() if "leadership lost" in line]
    return any(re.search(rf'"term": {term}\b', line) and f'"server": "{server.name}"' in line for line in lines)


def test_a_leader_that_stops_hands_over(fleet: ServerGroup) -> None:
    term, old = wait_working(fleet)
    old.stop()
    newer, new = wait_working(fleet, after=term)
    assert new is not old
    assert why_ended(fleet, term, before=newer) == "it was stopped"


def test_a_leader_that_is_asked_to_steps_down_and_goes_on_as_a_follower(fleet: ServerGroup) -> None:
    term, old = wait_working(fleet)
    step_down(old)
    newer, new = wait_working(fleet, after=term)
    assert new is not old
    assert why_ended(fleet, term, before=newer) == ASKED
    wait_until(lambda: counts(old).assumed_term == 0, "the old leader's work has stopped")
    assert old.ask("elector", "step-down", reason="again").error.startswith(f"{old.name} does not lead")


def test_a_step_down_for_a_server_that_cannot_take_over_is_refused(fleet: ServerGroup) -> None:
    term, leader = wait_working(fleet)
    refused = leader.ask("elector", "step-down", reason="kernel update", to="nobody").error
    assert refused.startswith(f"{leader.name} keeps the leadership: no other server is called nobody; there are: ")
    assert not has_stepped_down(fleet, since=term)


def test_a_leader_does_not_step_down_without_a_reason(fleet: ServerGroup) -> None:
    term, leader = wait_working(fleet)
    assert "a reason is needed" in leader.ask("elector", "step-down").error
    assert not has_stepped_down(fleet, since=term)


def has_stepped_down(fleet: ServerGroup, since: int) -> bool:
    """Return True if a leader of that term or of a later one was asked to step down and did."""
    wait_until(lambda: fleet.leader_history()[-1].term >= since, f"term {since} is in the history")
    return any(one.why == ASKED for one in fleet.leader_history() if one.term >= since)


def test_a_second_server_of_the_same_name_is_refused_and_the_first_is_undisturbed(cluster: EtcdCluster) -> None:
    with servers(cluster, ["twin"], settings=SHIPPED_TIMINGS) as fleet:
        term, first = wait_working(fleet)
        with server_group(cluster, ["twin"], command=command, region=fleet.region) as others:
            (second,) = others.members
            wait_until(lambda: second.says("the name twin is taken by"), "the second is refused")
            accepted = counts(first).accepted
            wait_until(lambda: counts(first).accepted > accepted, "the first goes on")
            assert fleet.wait_led() == (term, first)
            wait_until(lambda: second.answers("writer"), "the second's writer answers")
            assert counts(second).accepted == 0


def test_C2_a_server_whose_board_says_leader_cannot_write_once_the_store_says_otherwise(cluster: EtcdCluster) -> None:
    # The board is believed for long enough that a busy writer has a write refused before its deadline ends its work.
    with servers(cluster, 2, settings=STEADY) as fleet:
        term, old = wait_working(fleet)
        os.kill(old.worker("elector"), signal.SIGSTOP)
        fleet.depose()
        newer, new = wait_working(fleet, after=term)
        assert new is not old
        wait_until(lambda: counts(old).assumed_term == 0, "the old leader's work has stopped")
        assert writes_after(history(fleet), newer, old.name) == 0
        assert counts(old).reason.startswith(f"term {term} is over: ")
