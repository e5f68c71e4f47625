"""`routing: bgp`: the agent watches and programs its own host only, and no workload is announced that is not here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.claims import ARRIVAL_METRIC, LocalRoute
from holdfast.agent.desired.peers import Routing
from holdfast.model.base.kind import Kind
from holdfast.model.base.time import seconds
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.endpoint_status import EndpointState
from holdfast.model.calico.migration import MIGRATION
from tests.agent.desired.harness import PREFIX, SECOND, seen, statuses, steps
from tests.agent.harness import ME, REGION, HostHarness
from tests.agent.test_reconciler import P1, P2, on_a_site

HERE, ARRIVING = LocalRoute("tap-w"), LocalRoute("tap-w", ARRIVAL_METRIC)
UP, DOWN = EndpointState.UP, EndpointState.DOWN


def on_a_bgp_site(scene: Callable[[HostHarness], Awaitable[None]], folder: Path, metric: int | None = 4096) -> None:
    on_a_site(scene, folder, routing=Routing.BGP, arrival_metric=metric)


def test_only_the_own_endpoints_are_watched_and_programmed(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.joins(ME, 7), fleet.joins(f"{ME}-2", 8))
        site.start()
        await site.settled()
        fleet.write(
            fleet.runs("w", ME, PREFIX), fleet.runs("v", "a", SECOND), fleet.runs("u", f"{ME}-2", "10.65.0.3/32")
        )
        await site.settled()
        [watcher] = site.running.watchers
        assert site.shapes == {P1: HERE}
        assert statuses(site) == {"me-holdfast-w-eth0": UP}
        assert (len(watcher.objects.objects), watcher.objects.skipped, watcher.has_host(ME)) == (2, 0, True)

    on_a_bgp_site(scene, tmp_path)


def test_what_is_gone_from_the_store_is_deleted_after_a_restart(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins(ME, 7), fleet.runs("w", ME, PREFIX), fleet.runs("v", ME, SECOND))
        site.start()
        await site.settled()
        site.node.kill()
        fleet.write(fleet.ends("v", ME))
        shapes = seen(site)
        site.start()
        await site.settled()
        assert (site.shapes, shapes) == ({P1: HERE}, [])

    on_a_bgp_site(scene, tmp_path)


def test_a_workload_that_its_migration_brings_is_not_announced_before_the_inventory_has_moved_it(
    tmp_path: Path,
) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins(ME, 7), fleet.runs("w", "a", PREFIX))
        site.start()
        await site.settled()
        shapes = seen(site)
        fleet.write(fleet.migrates("w", "a", ME))
        await asyncio.sleep(5)
        assert statuses(site) == {"me-holdfast-w-eth0": UP}
        for step in steps(fleet):
            fleet.write(step)
            await asyncio.sleep(3)
        assert shapes == [ARRIVING, HERE]

    on_a_bgp_site(scene, tmp_path)


def test_moved_in_one_write_its_route_is_replaced_once(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins(ME, 7), fleet.runs("w", "a", PREFIX), fleet.migrates("w", "a", ME))
        site.start()
        await site.settled()
        shapes = seen(site)
        fleet.write(*steps(fleet))
        await site.settled()
        assert shapes == [HERE]

    on_a_bgp_site(scene, tmp_path)


@pytest.mark.parametrize("late", [MIGRATION, ENDPOINT])
def test_an_endpoint_that_comes_before_its_migration_is_not_announced(tmp_path: Path, late: Kind[Any, Any]) -> None:
    """Neutron's way: an endpoint at the target as well. The two watches are out of step."""

    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins(ME, 7), fleet.runs("w", "a", PREFIX))
        site.start()
        await site.settled()
        shapes = seen(site)
        site.clients["region"].link.hold_back(late.prefix(REGION))
        fleet.write(fleet.migrates("w", "a", ME))
        fleet.write(fleet.runs("w", ME, PREFIX))
        await asyncio.sleep(3)
        assert HERE not in shapes
        site.clients["region"].link.heal()
        await asyncio.sleep(3)
        assert shapes == [ARRIVING]
        fleet.write(fleet.ends("w", "a"), fleet.arrived("w", ME))
        await site.settled(seconds(10))
        assert shapes == [ARRIVING, HERE]

    on_a_bgp_site(scene, tmp_path)


@pytest.mark.parametrize("late", [MIGRATION, ENDPOINT])
def test_a_migration_that_is_cancelled_was_never_announced(tmp_path: Path, late: Kind[Any, Any]) -> None:
    """The driver deletes the migration first, and the endpoint that is no longer needed a moment later."""

    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins(ME, 7), fleet.runs("w", "a", PREFIX), fleet.migrates("w", "a", ME))
        fleet.write(fleet.runs("w", ME, PREFIX))
        site.start()
        await site.settled()
        shapes = seen(site)
        site.clients["region"].link.hold_back(late.prefix(REGION))
        fleet.write(fleet.arrived("w", ME))
        await asyncio.sleep(3)
        fleet.write(fleet.ends("w", ME))
        site.clients["region"].link.heal()
        await asyncio.sleep(3)
        assert shapes == [None]
        assert site.shapes == {}

    on_a_bgp_site(scene, tmp_path)


def test_a_restart_during_a_migration_changes_nothing(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins(ME, 7), fleet.runs("w", "a", PREFIX), fleet.migrates("w", "a", ME))
        site.start()
        await site.settled()
        site.node.kill()
        shapes = seen(site)
        site.start()
        await site.settled()
        assert (site.shapes, shapes) == ({P1: ARRIVING}, [])

    on_a_bgp_site(scene, tmp_path)


def test_a_source_that_is_away_changes_nothing_and_is_asked_again(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins(ME, 7), fleet.runs("w", ME, PREFIX))
        site.start()
        await site.settled()
        shapes = seen(site)
        site.clients["region"].link.cut()
        fleet.write(fleet.runs("v", ME, SECOND))
        await asyncio.sleep(30)
        assert (site.shapes, shapes) == ({P1: HERE}, [])
        site.clients["region"].link.heal()
        await asyncio.sleep(10)
        assert site.shapes == {P1: HERE, P2: LocalRoute("tap-v")}

    on_a_bgp_site(scene, tmp_path)


def test_without_a_metric_a_workload_is_programmed_only_once_it_is_here(tmp_path: Path) -> None:
    """FRR announces whatever is in the main table."""

    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins(ME, 7), fleet.runs("w", "a", PREFIX), fleet.migrates("w", "a", ME))
        site.start()
        await site.settled()
        shapes = seen(site)
        assert (site.shapes, statuses(site)) == ({}, {"me-holdfast-w-eth0": DOWN})
        fleet.write(*steps(fleet))
        await site.settled()
        assert shapes == [HERE]

    on_a_bgp_site(scene, tmp_path, metric=None)
