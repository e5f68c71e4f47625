"""A migration that stands alone: the target programs the workload beside where it is, and its end opens no gap.

Our inventory has one row per endpoint. It writes a migration and leaves the endpoint where it is; when the operator
moves it, the new endpoint is written, the old one deleted, and the migration deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.agent.claims import LocalRoute, RemoteRoute
from holdfast.agent.commands.control import AgentCommands
from holdfast.agent.report.endpoints import EndpointReporter
from holdfast.agent.report.reporting_host import ReportingHost
from holdfast.model.calico.endpoint import EndpointName
from holdfast.model.calico.endpoint_status import ENDPOINT_STATUS, EndpointState, EndpointStatusName
from holdfast.testing import StoreWrite
from holdfast.testing.fault import fault
from tests.agent.desired.harness import (
    ELSEWHERE,
    HERE,
    PREFIX,
    THERE,
    begun,
    mute,
    seen,
    statuses,
    steps,
    under_way_to_b,
)
from tests.agent.harness import ME, REGION, HostHarness, another_store
from tests.agent.test_reconciler import P1, P2, on_a_site


def test_a_workload_that_only_its_migration_brings_is_programmed_where_it_goes(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        await begun(site)
        assert site.shapes[P1] == HERE
        assert site.running.sources.conflicts() == []
        assert statuses(site) == {"me-holdfast-w-eth0": EndpointState.UP}

    on_a_site(scene, tmp_path)


def test_until_its_interface_exists_packets_go_where_the_workload_is(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        site.kernel.interfaces = set()
        shapes = await begun(site)
        assert (site.shapes[P1], shapes) == (THERE, [])
        assert statuses(site) == {"me-holdfast-w-eth0": EndpointState.DOWN}

    on_a_site(scene, tmp_path)


def test_until_its_interface_exists_the_route_to_the_source_is_made_repaired_and_changed(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        site.kernel.interfaces = set()
        fleet.write(fleet.joins(ME, 7), fleet.joins("a", 1), fleet.runs("w", "a", PREFIX), fleet.migrates("w", "a", ME))
        site.start()
        await site.settled()
        assert site.shapes[P1] == THERE
        site.kernel.flush([P1])
        await asyncio.sleep(2)
        assert site.shapes[P1] == THERE
        fleet.write(fleet.runs("w", "a", PREFIX, "10.65.0.2/32"), fleet.joins("a", 3))
        await site.settled()
        assert site.shapes[P1] == site.shapes[P2] == RemoteRoute("10.99.0.3")

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("at_target", [False, True])
def test_an_interface_that_goes_and_comes_takes_the_route_with_it_and_brings_it_back(
    tmp_path: Path, at_target: bool
) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        site.kernel.interfaces = {"tap-w"}
        shapes = await begun(site)
        if at_target:
            fleet.write(fleet.runs("w", ME, PREFIX))
        await asyncio.sleep(5)
        site.kernel.disappear("tap-w")
        await asyncio.sleep(2)
        assert shapes == [None, THERE]
        assert statuses(site) == {"me-holdfast-w-eth0": EndpointState.DOWN}
        assert site.running.sources.conflicts() == []
        site.kernel.appear("tap-w")
        await asyncio.sleep(2)
        assert shapes == [None, THERE, HERE]

    on_a_site(scene, tmp_path)


def test_an_arriving_workload_takes_no_address_from_an_older_one_and_the_conflict_is_named(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.joins("b", 2), fleet.runs("v", "b", PREFIX))
        fleet.write(fleet.runs("w", "a", PREFIX))
        site.start()
        await site.settled()
        shapes = seen(site)
        [before] = site.running.sources.conflicts()
        fleet.write(fleet.migrates("w", "a", ME))
        await asyncio.sleep(2)
        assert (site.shapes[P1], shapes) == (ELSEWHERE, [])
        assert site.running.sources.conflicts() == [before]

    on_a_site(scene, tmp_path)


def test_every_other_host_routes_to_where_it_is_until_it_is_moved(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await begun(site, "b")
        await asyncio.sleep(30)
        assert (site.shapes[P1], shapes) == (THERE, [])
        for step in steps(fleet, "b"):
            fleet.write(step)
            await asyncio.sleep(5)
        assert shapes == [ELSEWHERE]

    on_a_site(scene, tmp_path)


def test_a_source_endpoint_that_is_rewritten_does_not_take_the_route_back_and_the_arrival_follows_it(
    tmp_path: Path,
) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await begun(site)
        fleet.write(fleet.runs("w", "a", PREFIX, "10.65.0.2/32"))
        await site.settled()
        assert shapes == []
        assert site.shapes[P2] == HERE
        fleet.write(fleet.runs("w", "a", "10.65.0.2/32"))
        await site.settled()
        assert shapes == [None]
        fleet.write(fleet.ends("w", "a"))
        await site.settled()
        assert P2 not in site.shapes

    on_a_site(scene, tmp_path)


def test_an_endpoint_at_the_target_counts_and_not_its_migration(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        await begun(site)
        fleet.write(fleet.runs("w", ME, PREFIX, interface="tap-other"))
        await site.settled()
        assert site.shapes[P1] == LocalRoute("tap-other")

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("to", [ME, "b"])
def test_a_move_that_is_seen_late_changes_a_route_once_at_most(tmp_path: Path, to: str) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await begun(site, to)
        mute(site)
        for step in steps(fleet, to):
            fleet.write(step)
            await asyncio.sleep(10)
        site.clients["region"].link.heal()
        await asyncio.sleep(30)
        assert shapes == ([] if to == ME else [ELSEWHERE])
        assert site.shapes[P1] == (HERE if to == ME else ELSEWHERE)

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("arrives", [True, False])
@fault(
    "N8",
    without="holdfast.agent.desired.ownership:local_place",
    by="tests.agent.without_protection:local_while_it_migrates",
    sees=(AssertionError, r"\(shapes, site.shapes\[P1\]\) == \(\[\], HERE\)"),
)
def test_N8_a_migration_that_goes_before_the_old_endpoint_takes_nothing_from_a_workload_that_has_arrived(
    tmp_path: Path, arrives: bool
) -> None:
    """With an endpoint at the target, as Calico's driver writes it; what is no longer needed is deleted afterwards."""

    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        await begun(site)
        fleet.write(fleet.runs("w", ME, PREFIX))
        await asyncio.sleep(5)
        shapes = seen(site)
        fleet.write(fleet.arrived("w", ME))
        await asyncio.sleep(10)
        assert (shapes, site.shapes[P1]) == ([], HERE)
        assert statuses(site) == {"me-holdfast-w-eth0": EndpointState.UP}
        fleet.write(fleet.ends("w", "a" if arrives else ME))
        await asyncio.sleep(10)
        assert (shapes, site.shapes[P1]) == (([], HERE) if arrives else ([THERE], THERE))

    on_a_site(scene, tmp_path)


def test_a_migration_that_is_cancelled_goes_back_to_where_the_workload_is(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await begun(site)
        fleet.write(fleet.arrived("w", ME))
        await asyncio.sleep(2)
        assert shapes == [THERE]
        assert statuses(site) == {}

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("late", [False, True])
def test_an_arriving_workload_is_reported_up_once_and_stays_up_when_it_has_arrived(tmp_path: Path, late: bool) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        await begun(site)
        async with reported(site) as written:
            if late:
                mute(site)
            for step in steps(fleet):
                fleet.write(step)
                await asyncio.sleep(5)
            site.clients["region"].link.heal()
            await asyncio.sleep(10)
        assert written == [b'{"status":"up"}']

    on_a_site(scene, tmp_path)


def test_of_a_migration_that_is_cancelled_no_status_stays(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        await begun(site)
        async with reported(site) as written:
            fleet.write(fleet.arrived("w", ME))
            await asyncio.sleep(5)
        assert written == [b'{"status":"up"}', None]

    on_a_site(scene, tmp_path)


@contextlib.asynccontextmanager
async def reported(site: HostHarness) -> AsyncIterator[list[bytes | None]]:
    """Record the workload's statuses that the endpoint reporter writes beside the agent."""
    key = ENDPOINT_STATUS.key(REGION, EndpointStatusName.of(REGION, EndpointName(ME, "holdfast", "w", "eth0")))
    written: list[bytes | None] = []

    def note(write: StoreWrite) -> None:
        entries = [event.entry for event in write.events if event.key == key]
        written.extend(None if entry is None else entry.value for entry in entries)

    site.world.store.observers.append(note)
    commands = AgentCommands(site.running, ME, "boot-1", site.node.clock)
    host = ReportingHost(REGION, ME, "boot-1")
    reporter = EndpointReporter(site.world.store.client("reporter"), host, commands.endpoints)
    running = asyncio.create_task(reporter.run())
    await site.world.until(lambda: bool(written))
    yield written
    running.cancel()


@pytest.mark.parametrize("source", ["a", ME])
def test_a_migration_that_turns_back_takes_nothing_from_where_its_workload_stays(tmp_path: Path, source: str) -> None:
    """With an endpoint at the target, as Calico's driver writes it, that is deleted afterwards."""

    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await under_way_to_b(site, source)
        fleet.write(fleet.arrived("w", "b"))
        await asyncio.sleep(10)
        fleet.write(fleet.ends("w", "b"))
        await asyncio.sleep(10)
        assert shapes == []

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("source", ["a", ME])
def test_the_cancellation_of_a_migration_may_arrive_late(tmp_path: Path, source: str) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await under_way_to_b(site, source)
        mute(site)
        fleet.write(fleet.ends("w", "b"), fleet.arrived("w", "b"))
        await asyncio.sleep(30)
        site.clients["region"].link.heal()
        await asyncio.sleep(10)
        assert shapes == []

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("source", ["a", ME])
@pytest.mark.parametrize("pause", [0.05, 10])
@pytest.mark.parametrize("succeeds", [True, False])
def test_a_migration_that_goes_before_the_endpoint_that_is_not_needed_any_more_is_not_over_before_that_goes(
    tmp_path: Path, source: str, pause: float, succeeds: bool
) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await under_way_to_b(site, source)
        fleet.write(fleet.arrived("w", "b"))
        await asyncio.sleep(pause)
        assert shapes == []
        fleet.write(fleet.ends("w", source if succeeds else "b"))
        await asyncio.sleep(1)
        assert shapes == ([ELSEWHERE] if succeeds else [])

    on_a_site(scene, tmp_path)


def test_a_workload_that_stays_on_two_hosts_after_its_migration_is_on_the_older_one_and_that_is_named(
    tmp_path: Path,
) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await under_way_to_b(site, "a")
        assert site.running.sources.conflicts() == []
        fleet.write(fleet.arrived("w", "b"))
        await asyncio.sleep(45)
        assert shapes == []
        [dispute] = site.running.sources.conflicts()
        assert "claimed by endpoint a-holdfast-w-eth0 on a and also by endpoint b-holdfast-w-eth0 on b" in dispute

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("onward", ["a", "c"])
def test_a_workload_that_migrates_on_is_routed_to_where_it_arrived_even_when_every_event_is_late(
    tmp_path: Path, onward: str
) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("c", 3))
        shapes = await begun(site, "b")
        mute(site)
        for step in steps(fleet, "b"):
            fleet.write(step)
            await asyncio.sleep(5)
        fleet.write(fleet.migrates("w", "b", onward), fleet.runs("w", onward, PREFIX))
        await asyncio.sleep(10)
        site.clients["region"].link.heal()
        await asyncio.sleep(10)
        assert shapes == [ELSEWHERE]

    on_a_site(scene, tmp_path)


def test_a_migration_that_is_cancelled_and_restarted_is_in_progress(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        await begun(site)
        fleet.write(fleet.arrived("w", ME))
        await asyncio.sleep(2)
        fleet.write(fleet.migrates("w", "a", ME))
        await asyncio.sleep(2)
        assert site.shapes[P1] == HERE

    on_a_site(scene, tmp_path)


def test_a_workload_that_is_moved_to_a_third_host_is_routed_there(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await begun(site)
        fleet.write(fleet.runs("w", "b", PREFIX), fleet.ends("w", "a"))
        await asyncio.sleep(2)
        fleet.write(fleet.arrived("w", ME))
        await asyncio.sleep(2)
        assert shapes == [ELSEWHERE]

    on_a_site(scene, tmp_path)


def test_an_agent_that_restarts_during_a_migration_changes_nothing(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        shapes = await begun(site)
        site.node.kill()
        site.start()
        await site.settled()
        await asyncio.sleep(10)
        assert shapes == []

    on_a_site(scene, tmp_path)


def test_a_start_restores_nothing_that_another_source_programmed(tmp_path: Path) -> None:
    """Both sources have a workload of that name: the other's is here, this one's is elsewhere."""

    async def scene(site: HostHarness) -> None:
        site.stores = {"other": another_store(), **site.stores}
        other, fleet = site.fleet("other"), site.fleet()
        other.name_it()
        other.write(other.runs("w", ME, "10.65.0.2/32"))
        fleet.write(fleet.joins("a", 1), fleet.runs("w", "a", PREFIX))
        site.start()
        await site.settled()
        assert (site.shapes[P1], site.shapes[P2]) == (THERE, HERE)
        shapes = seen(site)
        site.node.kill()
        site.start()
        await asyncio.sleep(20)
        assert shapes == []

    on_a_site(scene, tmp_path)
