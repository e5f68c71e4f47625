"""`agent.routing: bgp` with real FRR: the agent's routes are in the main table, where FRR can see them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from functools import partial

import pytest

from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.bgp_site import HOSTS, KEPT_S, BgpSite, Frr
from holdfast.testing.real.hosts import address, workload
from holdfast.testing.real.netns import network
from holdfast.testing.real.pinger import Pinger
from holdfast.testing.real.processes import Unavailable
from tests.e2e.agent_harness import Monitor, reports, wait
from tests.e2e.live_migration import begin, plug, switch_over
from tests.e2e.test_bgp import DOWN_S, SHORT_GAP, converged, undisturbed


@pytest.fixture(scope="module")
def site() -> Iterator[BgpSite]:
    with or_skip(network()) as net:
        try:
            made = BgpSite(net, frr=True)
        except Unavailable as missing:
            pytest.skip(str(missing))
        try:
            made.start()
            converged(made)
            yield made
        finally:
            made.end()


def ours(site: BgpSite, name: str, family: int = 4) -> Mapping[str, str]:
    """Routes of the agent in the main table: per prefix its device."""
    shown = site.fleet.agents[name].namespace.run("ip", f"-{family}", "route", "show", "proto", "175")
    found = {line.split()[0]: line.split()[2] for line in shown.splitlines()}
    return {prefix: device for prefix, device in found.items() if device != "lo"}  # that of the workloads' gateway


def test_each_agent_programs_its_own_routes_in_the_main_table_without_a_rule(site: BgpSite) -> None:
    for number, name in enumerate(HOSTS, 1):
        for family in (4, 6):
            assert ours(site, name, family) == {address(number, family): f"tap{number}"}
            assert "7500" not in site.fleet.agents[name].namespace.run("ip", f"-{family}", "rule")


def test_an_agent_that_is_killed_and_started_again_loses_no_packet_and_changes_no_route(site: BgpSite) -> None:
    agent, workloads = site.fleet.agents["h1"], site.fleet.workloads
    monitor = Monitor(agent.namespace, site.fleet.segment.net)
    try:
        with Pinger(workloads[3], address(1)) as pings, Pinger(workloads[2], address(1, 6)) as others:
            agent.kill()
            agent.start()
            wait(agent.is_at_rest, "the agent has compared everything")
            wait(lambda: min(pings.answered, others.answered) > 200, "there was traffic all the time")
        routes = [line for line in monitor.changes() if not ("id " in line and "proto zebra" in line)]
        assert (pings.lost(), others.lost(), routes) == ([], [], [])  # zebra keeps nexthop objects of its own
    finally:
        monitor.stop()


def way(line: str) -> str:
    """Return a route without the id of its nexthop object, which each zebra numbers anew; empty for anything else.

    To give an IPv6 route another nexthop object, zebra deletes it and adds it at once: the delete counts as the route.
    """
    changed = line.strip().removeprefix("Deleted ")
    return "" if changed.startswith("id ") else re.sub(r"nhid \d+ ", "", changed)


@pytest.mark.soak  # each waits until zebra would have deleted the routes that it found
@pytest.mark.parametrize(("names", "sessions"), [(["h1"], 2), (["rr1", "rr2"], 3)], ids=["host", "reflectors"])
def test_frr_that_is_killed_and_started_again_loses_no_packet_and_changes_only_ids_of_nexthop_objects(
    site: BgpSite, names: list[str], sessions: int
) -> None:
    daemons = {**site.daemons, **site.reflectors}
    with undisturbed(site, way):
        for name in names:
            daemon = daemons[name]
            assert isinstance(daemon, Frr)
            daemon.kill()
            time.sleep(DOWN_S)
            daemon.start()
            wait(partial(_has_sessions, daemon, sessions), f"FRR of {name} has its sessions again")
            time.sleep(KEPT_S + DOWN_S)


def _has_sessions(daemon: Frr, count: int) -> bool:
    return daemon.established() == count


def test_a_migrating_workload_is_programmed_only_once_the_inventory_has_moved_it(site: BgpSite) -> None:
    stage = site.fleet
    with Pinger(stage.workloads[3], address(1)) as pings:
        begin(stage, 1, "h1", "h2")
        plug(stage, 1, "h2", "eth1")
        wait(lambda: reports(stage).get(("h2", "w1")) == "down", "h2 expects w1")
        assert ours(site, "h2") == {address(2): "tap2"}
        switch_over(stage, 1, "eth1")
        stage.change(workload("h2", 1))
        wait(lambda: ours(site, "h2") == {address(1): "tap1", address(2): "tap2"}, "h2 has the route")
        wait(lambda: reports(stage).get(("h2", "w1")) == "up", "w1 is up on h2")
        before = pings.answered
        wait(lambda: pings.answered > before + 200, "w1 is reached on h2")
        wait(lambda: ours(site, "h1") == {}, "h1 has heard of the move, too")
    assert len(pings.lost()) < SHORT_GAP
