"""Rolling upgrade and back: the version before and this one side by side, while the inventory changes and flows go on.

The version before is the last tag on an earlier commit, or the commit that HOLDFAST_UPGRADE_FROM names. Until there is
a tag, an earlier commit of 0.1.0 stands in for it. It runs with the packages of this version: only Holdfast differs.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.daemon import HOLDFAST, PATIENCE
from holdfast.testing.real.etcd import etcd_cluster
from holdfast.testing.real.fleet import RealFleet, real_fleet
from holdfast.testing.real.flows import run_clients
from holdfast.testing.real.hosts import address
from holdfast.testing.real.kernel_recorder import recorded
from holdfast.testing.real.netns import network
from holdfast.testing.real.pinger import Pinger
from holdfast.testing.real.processes import Process, wait_until
from tests.e2e.agent_harness import ExpectedKernel, fleet
from tests.e2e.balancer_harness import VIP, failures, stage, wait
from tests.e2e.inventory_hosts import HOSTS, PLACED
from tests.house import repository

BEFORE_THE_FIRST_TAG = "698ff3060e3c03f152ff27a309683c0c8c58803e"
SERVERS, AGENTS = 2, 3
STANDING = 6
"""Workloads that no change is about: nothing of them may be missed for a moment."""


def git(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *words], cwd=repository.ROOT, capture_output=True, check=False)


def commit_before() -> str:
    """Return the commit to upgrade from; skip where this tree has no history."""
    tag = git("describe", "--tags", "--abbrev=0", "HEAD^").stdout.decode().strip()  # a release is not its own N-1
    named = os.environ.get("HOLDFAST_UPGRADE_FROM") or tag or BEFORE_THE_FIRST_TAG
    if git("cat-file", "-e", f"{named}^{{commit}}").returncode:
        pytest.skip(f"needs the commit {named} of the repository")
    return named


NOW = ["env", f"PYTHONPATH={repository.ROOT}/src", *HOLDFAST]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    """The command `holdfast` of the version before."""
    folder = tmp_path_factory.mktemp("before")
    tree = git("archive", commit_before(), "src")
    subprocess.run(["tar", "--extract", "--directory", str(folder)], input=tree.stdout, check=True)
    return ["env", f"PYTHONPATH={folder}/src", *HOLDFAST]


def are_of(process: Process, program: Sequence[str]) -> bool:
    """Return True once a daemon has workers, and all of it runs that program's code."""
    place = b"\0" + next((one for one in program if one.startswith("PYTHONPATH=")), "").encode() + b"\0"
    try:
        environments = [b"\0" + Path(f"/proc/{pid}/environ").read_bytes() for pid in process.tree()]
    except OSError:  # one has just ended
        return False
    return len(environments) > 2 and all(place in one for one in environments)


class Upgrade:
    """A fleet on its way from one program to another. After each step it must carry out changes of every kind."""

    def __init__(self, fleet: RealFleet) -> None:
        self.fleet = fleet
        self._next = STANDING + 1

    def change(self) -> None:
        """Create, move and delete workloads; return once store, agents and inventory have all of it."""
        first, self._next = self._next, self._next + 3
        self.fleet.place({first: 1, first + 1: 2, first + 2: 3})
        self.fleet.wait_settled()
        self.fleet.place({first: 2, first + 1: 3, first + 2: None})
        self.fleet.wait_settled()

    def leader(self) -> str:
        return self.fleet.wait_led()[1].name

    def servers(self) -> list[str]:
        """Servers in the order of an upgrade: the leader last."""
        leader = self.leader()
        return sorted((one.name for one in self.fleet.members), key=lambda name: (name == leader, name))

    def restart_as(self, program: Sequence[str], *names: str) -> None:
        for name in names:
            self.fleet.restart_as(name, program)
        servers = {one.name: one.process for one in self.fleet.members}
        for name in names:
            runs = partial(are_of, servers.get(name) or self.fleet.agents[name], program)
            wait_until(runs, f"{name} runs {program}", within=PATIENCE)

    def restart_servers_as(self, program: Sequence[str]) -> None:
        """The leader last, after it has stepped down."""
        for name in self.servers():
            wait_until(partial(self.does_not_lead, name), f"{name} steps down", within=PATIENCE)
            self.restart_as(program, name)
            self.change()

    def does_not_lead(self, name: str) -> bool:
        """Ask a server that leads to step down."""
        _, leader = self.fleet.wait_led()
        if leader.name == name:
            leader.ask("elector", "step-down", reason="upgrade")
        return leader.name != name

    def restart_agents_as(self, program: Sequence[str]) -> None:
        """One first, then all others at once."""
        first, *others = self.fleet.agents
        for names in ([first], others):
            self.restart_as(program, *names)
            self.change()


def test_servers_and_agents_are_upgraded_one_by_one_and_back_while_nothing_else_is_touched(
    before: Sequence[str], tmp_path: Path
) -> None:
    database = f"sqlite:///{tmp_path}/inventory.db"
    create = [*before, "inventory", "init", "--set", f"inventory.database={database}"]
    done = subprocess.run(create, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with (
        or_skip(etcd_cluster(1)) as cluster,
        real_fleet(cluster, database, servers=SERVERS, hosts=AGENTS, program=before) as fleet,
    ):
        upgrade = Upgrade(fleet)
        fleet.place({number: 1 + number % AGENTS for number in range(1, STANDING + 1)})
        fleet.wait_settled()
        with recorded(fleet.kernels) as recorder:
            upgrade.change()
            upgrade.restart_servers_as(NOW)
            upgrade.restart_agents_as(NOW)
            upgrade.restart_agents_as(before)
            upgrade.restart_servers_as(before)
        assert recorder.faults() == []


def test_a_balancer_is_downgraded_and_upgraded_and_no_client_notices(before: Sequence[str]) -> None:
    with or_skip(network()) as net, stage(net, warm_up="200ms") as site:
        balancer = site.balancer
        with run_clients(site.client, VIP[4], 80) as clients:
            first = clients.after(50)
            for program in (before, NOW):
                balancer.restart_as(program)
                wait(partial(are_of, balancer.process, program), f"the balancer runs {program}")
                wait(balancer.is_released, "the balancer has come to rest")
                site.wait_served()
                assert failures(first, clients.after(100)) == []


def test_an_agent_is_downgraded_and_upgraded_on_the_kernel_and_no_packet_is_lost(before: Sequence[str]) -> None:
    with or_skip(network()) as net, fleet(net, "always") as stage:
        agent = stage.agents["h1"]
        kernel = ExpectedKernel(agent, HOSTS, PLACED, vxlan=True)
        kernel.wait_programmed()
        wait(lambda: stage.reaches(1, 3) and stage.reaches(2, 1, 6), "the workloads reach each other")
        with Pinger(stage.workloads[1], address(3)) as pings, Pinger(stage.workloads[2], address(1, 6)) as others:
            for program in (before, NOW):
                agent.restart_as(program)
                wait(partial(are_of, agent.process, program), f"the agent runs {program}")
                wait(agent.is_at_rest, "the agent has compared everything")
                assert kernel.is_there(), kernel.difference()
                sent = min(pings.answered, others.answered)
                wait(partial(have_answered, sent + 100, pings, others), "there is traffic")
        assert (pings.lost(), others.lost()) == ([], [])


def have_answered(count: int, *pings: Pinger) -> bool:
    return min(one.answered for one in pings) > count
