"""Commands of an operator that concern servers on other machines: restart, get servers, step-down --to.

Each server of the fleet has a runtime folder of its own, as on a machine of its own.
"""

from __future__ import annotations

import asyncio
import json

from click.testing import CliRunner, Result

from holdfast.cli import main
from holdfast.runtime.control import Request, ask
from holdfast.testing.real.processes import wait_until
from holdfast.testing.real.servers import ServerGroup, ServerProcess
from tests.chaos.harness import wait_working, why_ended

PATIENCE = 120.0
WORKER = "writer"


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
    done = holdfast(leader, "restart", WORKER, "--server", other.name, "--reason", "leaks memory")
    assert done.exit_code == 0, done.output
    wait_until(lambda: other.worker(WORKER) not in (0, before), "the worker has another pid", within=PATIENCE)
    wait_until(lambda: other.answers(WORKER), "the new worker answers", within=PATIENCE)
    assert restarts(other, WORKER) == counted


def test_a_worker_that_another_server_does_not_have_is_refused(fleet: ServerGroup) -> None:
    _, leader = wait_working(fleet)
    other = fleet.others(leader)[0]
    refused = holdfast(leader, "restart", "nonsense", "--server", other.name, "--reason", "a typo")
    assert refused.exit_code == 4, refused.output
    assert "nonsense" in refused.output


def test_a_leader_hands_over_to_the_server_that_the_operator_names(fleet: ServerGroup) -> None:
    term, leader = wait_working(fleet)
    wanted = fleet.others(leader)[-1]
    wait_until(lambda: _is_able(leader, wanted.name), f"{wanted.name} can lead", within=PATIENCE)
    done = holdfast(leader, "step-down", "--to", wanted.name, "--reason", "kernel update")
    assert done.exit_code == 0, done.output
    newer, new = wait_working(fleet, after=term, within=PATIENCE)
    assert new is wanted
    assert why_ended(fleet, term, before=newer) == "an operator asked it to step down"


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
