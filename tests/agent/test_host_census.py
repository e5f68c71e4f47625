"""An agent that sees its own host only asks the leader for a census of it, which opens its brake."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import msgspec
import pytest

from holdfast.agent.claims import Owner
from holdfast.agent.commands.control import AgentCommands
from holdfast.agent.desired.census import CensusComparison
from holdfast.agent.desired.peers import Routing
from holdfast.inventory.changes import wanted
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.model.calico.host import HOST, Host, HostSpec
from holdfast.model.control.leader import LEADER
from holdfast.model.fleet.agent_report import AGENT_REPORT, AgentReport
from holdfast.model.fleet.census import CENSUS, HOST_CENSUS, Census, KeySum
from holdfast.reconcile import BrakeLimits
from holdfast.runtime.control import Request, Who
from holdfast.server.syncer.host_census import HostCensusPublisher
from holdfast.store.api import Put
from holdfast.store.fenced.store import FencedStore
from holdfast.testing.fakes.inventory import fresh_engine
from holdfast.testing.fault import fault
from tests.agent.harness import BOOT, ME, REGION, HostHarness
from tests.agent.test_census import MINUTES
from tests.agent.test_reconciler import on_a_site
from tests.inventory.harness import endpoint
from tests.server.harness import at_once

ALL, LEFT = range(1, 41), range(25, 41)


def has_routes(site: HostHarness, numbers: Iterable[int]) -> bool:
    routes = {str(key) for key in site.shapes if str(key).startswith("route 10.65.")}
    return routes == {f"route 10.65.1.{n}/32" for n in numbers}


async def away_while_most_of_its_workloads_left(site: HostHarness) -> None:
    fleet = site.fleet()
    fleet.write(fleet.joins(ME, 1), *[fleet.runs(f"w{n}", ME, f"10.65.1.{n}/32") for n in ALL])
    site.start()
    await site.settled()
    assert has_routes(site, ALL)
    site.node.kill()
    fleet.write(*[fleet.ends(f"w{n}", ME) for n in ALL if n not in LEFT])
    site.start()
    await asyncio.sleep(2 * MINUTES)
    assert site.running.loop.held()["brake"] > 0
    assert has_routes(site, ALL)


@contextlib.asynccontextmanager
async def leader(site: HostHarness, folder: Path, numbers: Iterable[int]) -> AsyncIterator[None]:
    """A leader whose inventory has these endpoints here, and the reporter of this host."""
    with fresh_engine(f"sqlite:///{folder}/inventory.db") as engine:
        Editor(engine, REGION).change(
            [wanted(HOST, REGION, ME, Host.of(ME, HostSpec())), *[endpoint(n, on=ME) for n in numbers]], who="alice"
        )
        store = site.world.store.client("leader")
        fenced = FencedStore(store, LEADER.key(REGION, "leader"), await store.put(LEADER.key(REGION, "leader"), b"{}"))
        publisher = HostCensusPublisher(
            SqlInventory(engine), at_once, fenced, REGION, site.node.clock.now, lambda: "settled"
        )

        async def work() -> None:
            while True:
                await store.put(AGENT_REPORT.key(REGION, ME), AGENT_REPORT.encode(await reported(site)))
                await publisher.keep()
                await asyncio.sleep(5)

        task = asyncio.create_task(work())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def reported(site: HostHarness) -> AgentReport:
    handlers = AgentCommands(site.running, ME, BOOT, site.node.clock).handlers()
    answer = await handlers["report"](Request("report"), Who(0, 1, "reporter"))
    return msgspec.convert(answer, AgentReport)


@fault(
    "N28",
    without="holdfast.agent.desired.census:equals",
    returns=False,
    sees=(AssertionError, r'has_routes\(site, LEFT\), f"\{site.running.loop.held\(\)\} still'),
)
def test_N28_a_host_with_bgp_that_was_away_while_most_of_its_workloads_left_needs_no_operator(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        await away_while_most_of_its_workloads_left(site)
        async with leader(site, tmp_path, LEFT):
            await asyncio.sleep(3 * MINUTES)
            assert has_routes(site, LEFT), f"{site.running.loop.held()} still wait for an operator"
            assert "brake" not in site.running.loop.held()
            assert not (await reported(site)).asks_census
            await asyncio.sleep(2 * MINUTES)
            assert await site.world.store.client("operator").get(HOST_CENSUS.key(REGION, ME)) is None

    on_a_site(scene, tmp_path, limits=BrakeLimits(), routing=Routing.BGP)


def test_a_census_with_what_the_store_lost_does_not_open_the_brake(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        await away_while_most_of_its_workloads_left(site)
        assert (await reported(site)).asks_census
        async with leader(site, tmp_path, ALL):
            await asyncio.sleep(3 * MINUTES)
            assert await site.world.store.client("operator").get(HOST_CENSUS.key(REGION, ME)) is not None
            assert has_routes(site, ALL)

    on_a_site(scene, tmp_path, limits=BrakeLimits(), routing=Routing.BGP)


@pytest.mark.parametrize(("routing", "asks"), [(Routing.BGP, True), (Routing.MESH, False)])
def test_an_agent_asks_only_if_the_census_of_the_fleet_cannot_help(
    tmp_path: Path, routing: Routing, *, asks: bool
) -> None:
    async def scene(site: HostHarness) -> None:
        await away_while_most_of_its_workloads_left(site)
        assert (await reported(site)).asks_census is asks

    on_a_site(scene, tmp_path, limits=BrakeLimits(), routing=routing)


def test_the_census_of_the_fleet_says_nothing_about_keys_that_are_not_listed(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        here, there = Owner(ME, "", f"{ME}-holdfast-w1-eth0"), Owner("h1", "uid-h1", "h1-holdfast-w2-eth0")
        comparison = CensusComparison(site.node.store(), REGION, ME, is_own=True)
        counted = Census(fleet.store.revision, KeySum(), KeySum(), KeySum())

        async def nothing_happens() -> None:
            return

        fleet.write(Put(CENSUS.key(REGION, "census"), CENSUS.encode(counted)))
        assert not await comparison.compare([here, there], nothing_happens)
        fleet.write(Put(HOST_CENSUS.key(REGION, ME), HOST_CENSUS.encode(counted)))
        assert await comparison.compare([here, there], nothing_happens)
        assert (comparison.is_gone(here), comparison.is_gone(there)) == (True, False)

    on_a_site(scene, tmp_path)
