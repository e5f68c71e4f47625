"""`agent.routing: bgp` with real BIRD: hosts in namespaces, two routers between their subnets as route reflectors.

All tests share one site and leave it as they found it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pytest

from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.bgp_site import HOSTS, BgpSite, Bird, Frr
from holdfast.testing.real.daemon import HOLDFAST
from holdfast.testing.real.hosts import address, workload
from holdfast.testing.real.netns import Namespace, network
from holdfast.testing.real.pinger import Pinger, answers
from holdfast.testing.real.processes import Unavailable
from tests.e2e.agent_harness import Monitor, reports, wait
from tests.e2e.live_migration import begin, plug, switch_over

DOWN_S = 3.0
"""Time for which a killed BIRD stays away: less than the hold time, more than a restart takes."""

SHORT_GAP = 400
"""Packets of two seconds; without load about four are lost."""


@pytest.fixture(scope="module")
def site() -> Iterator[BgpSite]:
    with or_skip(network()) as net:
        try:
            made = BgpSite(net)
        except Unavailable as missing:
            pytest.skip(str(missing))
        try:
            made.start()
            converged(made)
            yield made
        finally:
            made.end()


def converged(site: BgpSite) -> None:
    for name, daemon in site.daemons.items():
        wait(partial(_has_both_sessions, daemon), f"{name} has both sessions")
    for one, other in itertools.permutations((1, 2, 3), 2):
        for family in (4, 6):
            wait(partial(site.fleet.reaches, one, other, family), f"w{one} reaches w{other} over IPv{family}")


def _has_both_sessions(daemon: Bird | Frr) -> bool:
    return daemon.established() == 2


@contextmanager
def undisturbed(site: BgpSite, route: Callable[[str], str] = str.strip) -> Iterator[None]:
    """Check that no packet is lost meanwhile, on the segment and across the routers, and that no route changes.

    A restarted BIRD writes the IPv6 routes that it finds again, exactly as they are: that is no change. `route` returns
    what counts of a line about a route; empty if it is about something else."""
    places = {**site.fleet.segment.hosts, **site.routers}
    there = {name: set(map(route, _main_table(place))) for name, place in places.items()}
    monitors = {name: Monitor(place, site.fleet.segment.net) for name, place in places.items()}
    pairs = [(1, address(2)), (1, address(3)), (2, address(3, 6)), (3, address(1, 6))]
    pings = [Pinger(site.fleet.workloads[source], to) for source, to in pairs]
    try:
        for one in pings:
            one.__enter__()
        yield
        answered = [one.answered for one in pings]
        wait(lambda: all(one.answered > before + 200 for one, before in zip(pings, answered, strict=True)), "traffic")
        for one in pings:
            one.__exit__(None, None, None)
        assert [one.lost() for one in pings] == [[]] * 4
        changes = [line for name, one in monitors.items() for line in one.changes() if route(line) not in there[name]]
        assert [line for line in changes if route(line)] == []
        assert {name: set(map(route, _main_table(place))) for name, place in places.items()} == there
    finally:
        for monitor in monitors.values():
            monitor.stop()


def _main_table(place: Namespace) -> set[str]:
    return {line.strip() for family in ("-4", "-6") for line in place.run("ip", family, "route").splitlines()}


def test_each_agent_programs_its_own_routes_and_bird_the_others_in_the_main_table(site: BgpSite) -> None:
    for number, name in enumerate(HOSTS, 1):
        agent = site.fleet.agents[name]
        for family, bits in ((4, 32), (6, 128)):
            assert agent.routes(family) == {address(number, family): f"tap{number}"}
            shown = agent.namespace.run("ip", f"-{family}", "route", "show", "proto", "bird")
            others = {address(other, family) for other in (1, 2, 3) if other != number}
            assert {line.split()[0].removesuffix(f"/{bits}") for line in shown.splitlines()} == others
        assert agent.nexthops() == {}
        assert "holdfast" not in agent.namespace.run("ip", "link")


def test_a_host_itself_reaches_workloads_with_its_underlay_address(site: BgpSite) -> None:
    shown = site.fleet.agents["h1"].namespace.run("ip", "route", "get", address(3))
    assert f"src {HOSTS['h1']}" in shown
    assert answers(site.fleet.agents["h1"].namespace, address(3))


def _restart_agent(site: BgpSite) -> None:
    agent = site.fleet.agents["h1"]
    agent.kill()
    agent.start()
    wait(agent.is_at_rest, "the agent has compared everything")


def _restart_bird(site: BgpSite) -> None:
    _restart(site, "h1", 2)


def _restart_reflector(site: BgpSite) -> None:
    for name in site.reflectors:
        _restart(site, name, 3)


def _restart(site: BgpSite, name: str, sessions: int) -> None:
    daemon = {**site.daemons, **site.reflectors}[name]
    daemon.kill()
    time.sleep(DOWN_S)
    daemon.start()
    wait(lambda: daemon.established() == sessions, f"BIRD of {name} has its sessions again")
    time.sleep(DOWN_S)  # stale routes would be deleted when the graceful restart is over


@pytest.mark.parametrize(
    "restart",
    [
        _restart_agent,
        pytest.param(_restart_bird, marks=pytest.mark.soak),  # each waits for a graceful restart to be over
        pytest.param(_restart_reflector, marks=pytest.mark.soak),
    ],
)
def test_killed_and_started_again_it_loses_no_packet_and_changes_no_route(
    site: BgpSite, restart: Callable[[BgpSite], None]
) -> None:
    with undisturbed(site):
        restart(site)


def test_a_rehearsal_finds_nothing_to_do(site: BgpSite) -> None:
    agent = site.fleet.agents["h2"]
    assert agent.namespace.run(*HOLDFAST, "agent", "--dry-run", "--config", str(agent.file)) == ""


@pytest.mark.soak  # its short version is test_bgp_frr's: the route moves with the inventory
def test_a_live_migration_is_announced_by_its_target_only_once_the_inventory_has_moved_it(site: BgpSite) -> None:
    stage = site.fleet
    prefix = f"{address(1)}/32"
    with Pinger(stage.workloads[3], address(1)) as pings, Pinger(stage.workloads[2], address(1, 6)) as others:
        begin(stage, 1, "h1", "h2")
        wait(lambda: reports(stage).get(("h2", "w1")) == "down", "h2 expects w1")
        plug(stage, 1, "h2", "eth1")
        wait(lambda: reports(stage).get(("h2", "w1")) == "up", "w1 is up on h2")
        assert "metric 4096" in stage.agents["h2"].namespace.run("ip", "route", "show", "table", "7500", prefix)
        assert announced(site) == ["h1"]
        stage.agents["h2"].kill()
        stage.agents["h2"].start()
        wait(stage.agents["h2"].is_at_rest, "h2's agent has compared everything")
        assert announced(site) == ["h1"]
        switch_over(stage, 1, "eth1")
        stage.change(workload("h2", 1))
        wait(lambda: announced(site) == ["h2"], "the route has moved")
        wait(lambda: ("h1", "w1") not in reports(stage), "h1 says nothing of w1 any more")
        wait(lambda: min(pings.answered, others.answered) > 200, "there was traffic all the time")
    # One host withdraws and the other one announces, each when it hears of the move.
    assert max(len(pings.lost()), len(others.lost())) < SHORT_GAP
    plug_back(site)


def announced(site: BgpSite) -> Sequence[str]:
    """Hosts that announce w1."""
    reflector = site.reflectors["rr1"]
    assert isinstance(reflector, Bird)
    return reflector.sources(f"{address(1)}/32")


def plug_back(site: BgpSite) -> None:
    stage = site.fleet
    stage.agents["h1"].namespace.run("ip", "link", "del", "tap1")
    begin(stage, 1, "h2", "h1")
    plug(stage, 1, "h1", "eth0")
    wait(lambda: reports(stage).get(("h1", "w1")) == "up", "w1 is up on h1")
    switch_over(stage, 1, "eth0")
    stage.change(workload("h1", 1))
    wait(lambda: announced(site) == ["h1"], "the route is back")
    stage.agents["h2"].namespace.run("ip", "link", "del", "tap1")
    converged(site)
