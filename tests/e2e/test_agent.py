"""The agent from end to end: hosts in namespaces, etcd and server between them, workloads that talk to each other.

All tests share one fleet, first without a tunnel and then with it, and leave it as they found it.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import time
from collections.abc import Iterator, Sequence
from functools import partial

import pytest

from holdfast.agent.tunnels import link_local, tunnel_mac
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.daemon import HOLDFAST
from holdfast.testing.real.hosts import AgentProcess, Fleet, address, gone, host, workload
from holdfast.testing.real.netns import network
from holdfast.testing.real.pinger import Pinger
from tests.e2e.agent_harness import ExpectedKernel, Monitor, fleet, reports, statuses, wait
from tests.e2e.inventory_hosts import HOSTS, PLACED, InventoryHosts
from tests.e2e.live_migration import begin, cancel, changes, migrate, plug


@pytest.fixture(scope="module")
def stage() -> Iterator[Fleet]:
    with or_skip(network()) as net, fleet(net, "never") as made:
        yield made


def wanted(stage: Fleet, name: str, *, vxlan: bool = True) -> ExpectedKernel:
    return ExpectedKernel(stage.agents[name], HOSTS, PLACED, vxlan=vxlan)


@pytest.mark.parametrize("family", [4, 6])
def test_workloads_reach_each_other_directly(stage: Fleet, family: int) -> None:
    for name in stage.agents:
        wanted(stage, name, vxlan=False).wait_programmed()
    for one, other in itertools.permutations((1, 2, 3), 2):
        wait(partial(stage.reaches, one, other, family), f"w{one} reaches w{other}")


@pytest.fixture
def here(stage: Fleet) -> Fleet:
    """The fleet, sending through the tunnel, with all of it as it began. The first to ask for it changes the mode."""
    for agent in stage.agents.values():
        if "never" in agent.file.read_text():
            agent.kill()
            agent.configure(encapsulation="always")
            agent.start()
    for name in stage.agents:
        wanted(stage, name).wait_programmed()
    for one, other in itertools.permutations((1, 2, 3), 2):
        for family in (4, 6):
            # Routes are not all: a host that was renamed for a while may still be about to take its MAC back.
            wait(partial(stage.reaches, one, other, family), f"w{one} reaches w{other}")
    return stage


@pytest.mark.parametrize("family", [4, 6])
def test_workloads_reach_each_other_through_the_tunnel(here: Fleet, family: int) -> None:
    for one, other in itertools.permutations((1, 2, 3), 2):
        wait(partial(here.reaches, one, other, family), f"w{one} reaches w{other}")


def test_an_agent_that_is_killed_and_started_again_changes_nothing_and_no_packet_is_lost(here: Fleet) -> None:
    agent = here.agents["h1"]
    before = agent.nexthops()
    monitor = Monitor(agent.namespace, here.segment.net)
    try:
        with Pinger(here.workloads[1], address(3)) as pings, Pinger(here.workloads[2], address(1, 6)) as others:
            agent.kill()
            agent.start()
            wait(agent.is_at_rest, "the agent has compared everything")
            wait(lambda: min(pings.answered, others.answered) > 200, "there was traffic all the time")
        assert (pings.lost(), others.lost(), monitor.changes()) == ([], [], [])
        assert agent.nexthops() == before
    finally:
        monitor.stop()


def test_another_size_of_the_underlay_changes_the_tunnels_in_place_and_no_packet_is_lost(here: Fleet) -> None:
    agent = here.agents["h1"]
    monitor = Monitor(agent.namespace, here.segment.net)
    try:
        with Pinger(here.workloads[1], address(3)) as pings, Pinger(here.workloads[2], address(1, 6)) as others:
            for size, linux in ((1450, "{underlay-mtu: 1450}"), (1500, "{}")):
                agent.kill()
                agent.configure(encapsulation="always", linux=linux)
                agent.start()
                wait(partial(_carries, agent, size), f"the tunnels are made for {size} bytes")
            wait(lambda: min(pings.answered, others.answered) > 200, "there was traffic all the time")
        assert (pings.lost(), others.lost(), monitor.changes()) == ([], [], [])
    finally:
        monitor.stop()


def _carries(agent: AgentProcess, underlay: int) -> bool:
    shown = [agent.namespace.run("ip", "link", "show", f"holdfast{family}") for family in (4, 6)]
    return f"mtu {underlay - 50} " in shown[0] and f"mtu {underlay - 70} " in shown[1]


def test_a_rehearsal_beside_the_agent_finds_nothing_to_do_and_does_nothing(here: Fleet) -> None:
    agent = here.agents["h2"]
    monitor = Monitor(agent.namespace, here.segment.net)
    try:
        assert agent.namespace.run(*HOLDFAST, "agent", "--dry-run", "--config", str(agent.file)) == ""
        assert monitor.changes() == []
    finally:
        monitor.stop()


def test_a_host_that_goes_while_the_agent_is_down_is_gone_and_who_has_its_address_now_is_not_disturbed(
    here: Fleet,
) -> None:
    """N1, N8: h3 is replaced by h4, with the same addresses and the workload of h3; its other workload is no more."""
    agent, left = here.agents["h1"], workload("h3", 30)
    here.change(left)
    wait(lambda: address(30) in agent.routes(), "h1 has the route that will be stale")
    agent.kill()
    here.change(gone(left), gone(workload("h3", 3)), gone(host("h3", 3)))
    here.change(host("h4", 3), workload("h4", 3))
    _rename(here, "h3", "h4")
    others, placed = {"h1": 1, "h2": 2, "h4": 3}, {1: "h1", 2: "h2", 3: "h4"}
    ExpectedKernel(here.agents["h2"], others, placed, vxlan=True).wait_programmed()
    wait(lambda: here.reaches(2, 3), "w2 reaches w3 on its new host")
    with Pinger(here.workloads[2], address(3)) as pings:
        agent.start()
        ExpectedKernel(agent, others, placed, vxlan=True).wait_programmed()
        wait(lambda: here.reaches(1, 3), "w1 reaches w3 on its new host")
    assert pings.lost() == []
    here.change(gone(workload("h4", 3)), gone(host("h4", 3)))
    here.change(host("h3", 3), workload("h3", 3))
    _rename(here, "h4", "h3")


def _rename(here: Fleet, old: str, new: str) -> None:
    """The machine is installed anew under another name, on the same addresses."""
    machine = here.agents["h3"]
    machine.kill()
    assert machine.name == old
    machine.name = new
    machine.configure(encapsulation="always")
    machine.start()


def test_what_others_delete_is_made_again_and_what_they_have_is_left_alone(here: Fleet) -> None:
    there = here.agents["h1"].namespace
    there.run("ip", "route", "add", "198.51.100.0/24", "via", "10.0.0.254", "proto", "static")
    there.run("ip", "route", "add", "198.51.100.0/25", "via", "10.0.0.254", "table", "7500", "proto", "static")
    for words in ("nexthop flush protocol 175", "rule del priority 20000", "link del holdfast4"):
        there.run("ip", *words.split())
        wait(lambda: wanted(here, "h1").nexthops() == set(here.agents["h1"].nexthops()), "nexthops are back")
    there.run("ip", "route", "del", "198.51.100.0/25", "table", "7500")  # it was still there
    there.run("ip", "route", "del", "198.51.100.0/24")
    wanted(here, "h1").wait_programmed()
    wait(lambda: here.reaches(1, 2), "w1 reaches w2 again")


def test_a_link_that_flaps_is_repaired(here: Fleet) -> None:
    there = here.agents["h1"].namespace
    there.batch(["link set holdfast4 down", "link set holdfast4 up"])
    wanted(here, "h1").wait_programmed()
    wait(lambda: here.reaches(1, 2), "w1 reaches w2 again")


def test_the_status_of_a_workload_follows_its_interface(here: Fleet) -> None:
    there, name = here.agents["h1"].namespace, "w1"
    wait(lambda: statuses(here).get(name) == "up", "w1 is up")
    there.run("ip", "link", "set", "tap1", "down")
    wait(lambda: statuses(here).get(name) == "down", "w1 is down")
    there.batch(["link set tap1 up"])
    wait(lambda: statuses(here).get(name) == "up", "w1 is up again")


def test_a_workload_migrates_there_and_back_under_traffic_and_no_packet_is_lost(here: Fleet) -> None:
    """w1, seen from behind a third host and from behind the one that it goes to, or comes from."""
    for source, target in (("h1", "h2"), ("h2", "h1")):
        monitors = {name: Monitor(agent.namespace, here.segment.net) for name, agent in here.agents.items()}
        ways = [(who, address(1, family)) for who in (2, 3) for family in (4, 6)]
        try:
            with contextlib.ExitStack() as pinging:
                pings = [pinging.enter_context(Pinger(here.workloads[who], to)) for who, to in ways]
                migrate(here, 1, source, target)
                wait(partial(_has_traffic, pings), "there was traffic all the time")
            assert [one.lost() for one in pings] == [[], [], [], []]
            heard = {name: changes(monitor, 1) for name, monitor in monitors.items()}
            assert heard == {"h1": 2, "h2": 2, "h3": 2}, "each route goes over once, in each family"
        finally:
            for monitor in monitors.values():
                monitor.stop()


def _has_traffic(pings: Sequence[Pinger]) -> bool:
    return min(one.answered for one in pings) > 200


def test_an_interface_that_goes_in_the_middle_of_a_migration_leaves_the_route_to_where_the_workload_is(
    here: Fleet,
) -> None:
    there = here.agents["h2"]
    begin(here, 1, "h1", "h2")
    plug(here, 1, "h2", "eth1")
    wait(lambda: reports(here).get(("h2", "w1")) == "up", "w1 is up on h2")
    there.namespace.run("ip", "link", "del", "tap1")
    wanted(here, "h2").wait_programmed()
    wait(partial(here.reaches, 2, 1), "w2 reaches w1 where it is")
    plug(here, 1, "h2", "eth1")
    wait(lambda: reports(here).get(("h2", "w1")) == "up", "w1 is up on h2 again")
    ExpectedKernel(there, HOSTS, {**PLACED, 1: "h2"}, vxlan=True).wait_programmed()
    cancel(here, 1, "h1", "h2")
    wanted(here, "h2").wait_programmed()
    there.namespace.run("ip", "link", "del", "tap1")


@pytest.mark.parametrize("rounds", [10, pytest.param(100, marks=pytest.mark.soak)])
def test_N1_after_every_kill_and_restart_the_kernel_is_what_the_inventory_says(here: Fleet, rounds: int) -> None:
    """The peers that come with it stay: no test after this one may ask for `here`."""
    chance = random.Random(rounds)
    agent, peers = here.agents["h1"], InventoryHosts(here, chance)
    ExpectedKernel(agent, peers.hosts, peers.placed, vxlan=True).wait_programmed()
    for _ in range(rounds):
        if chance.random() < 0.5:
            agent.kill()
        for _ in range(chance.randint(1, 4)):
            peers.change()
        time.sleep(chance.random())  # not for luck: the moment of the kill is what is tried
        if agent.process.alive:
            agent.kill()
        agent.start()
        if chance.random() < 0.3:
            time.sleep(2 * chance.random())  # likewise: while it starts
            agent.kill()
            agent.start()
        # The kernel may be as wanted before the agent has looked at it; after that it must still be so.
        wait(agent.is_at_rest, "the agent has compared everything")
        ExpectedKernel(agent, peers.hosts, peers.placed, vxlan=True).wait_programmed()


def test_a_host_with_one_family_is_reached_in_that_one_only(stage: Fleet) -> None:
    agent, six, its = stage.agents["h1"], host("six", 66, (6,)), workload("six", 66)
    stage.change(six, its)
    gateway = link_local(tunnel_mac("six", 6))
    wait(lambda: agent.routes(6).get(address(66, 6)) == gateway, "h1 reaches it by IPv6")
    assert address(66) not in agent.routes()
