"""Commands of an operator that concern servers on other machines: restart, get servers, step-down --to.

Each server of the fleet has a runtime folder of its own, as on a machine of its own.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from holdfast.cli import main
from holdfast.runtime.control import Request, ask
from holdfast.testing.real.etcd import EtcdCluster
from holdfast.testing.real.processes import wait_until
from holdfast.testing.real.servers import ServerGroup, ServerProcess
from tests.chaos.harness import answer, servers, wait_working, why_ended

PATIENCE = 120.0
WORKER = "writer"


@pytest.fixture(scope="module")
def fleet(started: EtcdCluster) -> Iterator[ServerGroup]:
    """Three servers, none of which loses its lease on a busy machine."""
    with servers(started, 3, settings={"server.ttl": "30s", "server.renew_deadline": "20s"}) as fleet:
        yield fleet


def holdfast(server: ServerProcess, *words: str) -> Result:
    """Run a command on the machine of this server."""
    return CliRunner().invoke(main, [*words, "--runtime", str(server.runtime)])


def restarts(server: ServerProcess, worker: str) -> int:
    """Failures of a worker that its supervisor has counted."""
    answer = asyncio.run(ask(server.runtime / "server.sock", Request("status")))
    return int(next(one["restarts"] for one in answer.result["workers"] if one["name"] == worker))


def test_a_worker_of_another_server_is_restarted_without_counting_as_failed(fleet: ServerGroup) -> None:
    _, leader = wait_working(fleet)
    other = fleet.others(leader)[0]
    before, counted = other.worker(WORKER), restarts(other, WORKER)
    asked = ["restart", "worker", WORKER, "--server", other.name, "--reason", "leaks memory"]
    # A refusal because etcd did not answer in time says that nothing was done.
    wait_until(lambda: holdfast(leader, *asked).exit_code == 0, "the request is stored", within=PATIENCE)
    wait_until(lambda: other.worker(WORKER) not in (0, before), "the worker has another pid", within=PATIENCE)
    wait_until(lambda: other.answers(WORKER), "the new worker answers", within=PATIENCE)
    assert restarts(other, WORKER) == counted


def test_a_worker_that_another_server_does_not_have_is_refused(fleet: ServerGroup) -> None:
    _, leader = wait_working(fleet)
    other = fleet.others(leader)[0]
    refused = holdfast(leader, "restart", "worker", "nonsense", "--server", other.name, "--reason", "a typo")
    assert refused.exit_code == 4, refused.output
    assert "nonsense" in refused.output


def test_a_leader_hands_over_to_the_server_that_the_operator_names(fleet: ServerGroup) -> None:
    term, leader = wait_working(fleet)
    wanted = fleet.others(leader)[-1]
    wait_until(lambda: _is_able(leader, wanted.name), f"{wanted.name} can lead", within=PATIENCE)
    counted = changes(leader)
    done = holdfast(leader, "step-down", "--to", wanted.name, "--reason", "kernel update")
    assert done.exit_code == 0, done.output
    newer, new = wait_working(fleet, after=term, within=PATIENCE)
    assert new is wanted
    asked = "an operator asked it to step down"
    assert why_ended(fleet, term, before=newer) == asked
    assert changes(leader) > counted
    lost = [line for line in leader.process.output.splitlines() if f'"term": {term}' in line and "lost" in line]
    assert [json.loads(line)["reason"] for line in lost] == [asked], "one line of the log, with its reason"
    sentence = f"{leader.name} no longer leads, term {term}: {asked}"
    wait_until(lambda: sentence in holdfast(new, "history", "-n", "0").stdout, "it is a line of history")


def changes(server: ServerProcess) -> float:
    """Changes of leadership that a server has counted."""
    found = re.search(r"holdfast_leader_transitions_total{.*} ([0-9.]+)", str(answer(server, "elector", "metrics")))
    assert found is not None
    return float(found[1])


def test_a_server_that_has_just_stepped_down_is_not_handed_the_leadership_back(fleet: ServerGroup) -> None:
    """Its entry is renewed every 10 s, its rest lasts a minute: the refusal comes from an entry written at once."""
    term, leader = wait_working(fleet)
    wait_until(lambda: any(_is_able(leader, one.name) for one in fleet.others(leader)), "one can lead", within=PATIENCE)
    asked = ["step-down", "--reason", "kernel update"]  # a refusal, with 4, says that nothing was done
    wait_until(lambda: holdfast(fleet.others(leader)[0], *asked).exit_code in (0, 1), "it is asked", within=PATIENCE)
    newer, new = fleet.wait_led(after=term)
    assert why_ended(fleet, term, before=newer) == "an operator asked it to step down"
    refused = holdfast(new, "step-down", "--to", leader.name, "--reason", "changed my mind")
    assert refused.exit_code == 4, refused.output
    assert f"{leader.name} cannot take over ({leader.name}: it rests for " in refused.output


def _is_able(server: ServerProcess, name: str) -> bool:
    shown = holdfast(server, "get", "servers", "-o", "json")
    return shown.exit_code == 0 and any(one["name"] == name and one["able"] for one in json.loads(shown.stdout))


def test_every_machine_and_etcd_itself_show_the_same_servers(fleet: ServerGroup) -> None:
    _, leader = wait_working(fleet)
    names = sorted(one.name for one in fleet.members)
    for server in fleet.members:
        shown = json.loads(holdfast(server, "get", "servers", "-o", "json").stdout)
        assert sorted(one["name"] for one in shown) == names
        assert [one["name"] for one in shown if one["role"] == "leader"] == [leader.name]
    direct = ["get", "servers", "-o", "json", "--endpoints", ",".join(fleet.cluster.endpoints)]
    shown = json.loads(CliRunner().invoke(main, [*direct, "--region", fleet.region.name]).stdout)
    assert sorted(one["name"] for one in shown) == names
