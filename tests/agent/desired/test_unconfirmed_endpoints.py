"""The owner of an address keeps it until the store confirms that another place of its workload may take over."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.agent.claims import RemoteRoute, Shape
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.migration import MIGRATION
from holdfast.testing.store.link import Fate
from tests.agent.desired.harness import (
    ELSEWHERE,
    HERE,
    PREFIX,
    SECOND,
    THERE,
    THIRD,
    mute,
    on_a,
    seen,
    under_way_to_b,
)
from tests.agent.harness import ME, HostHarness
from tests.agent.test_reconciler import P1, P2, on_a_site


def test_of_two_migrations_of_one_workload_the_one_that_turns_back_takes_nothing_from_the_one_that_arrived(
    tmp_path: Path,
) -> None:
    """The source is gone, so only the first arrival can lose; the delete of the other one is seen late."""

    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.joins("b", 2), fleet.runs("w", "a", PREFIX))
        fleet.write(fleet.migrates("w", "a", ME), fleet.runs("w", ME, PREFIX))
        fleet.write(fleet.migrates("w", "a", "b"), fleet.runs("w", "b", PREFIX))
        site.start()
        await site.settled()
        fleet.write(fleet.ends("w", "a"), fleet.arrived("w", ME))
        await asyncio.sleep(10)
        assert site.shapes[P1] == HERE
        shapes = seen(site)
        mute(site, ENDPOINT)
        fleet.write(fleet.ends("w", "b"), fleet.arrived("w", "b"))
        await asyncio.sleep(30)
        assert shapes == []

    on_a_site(scene, tmp_path)


def test_a_local_workload_needs_no_confirmation_because_another_place_of_it_is_written_at_the_same_time(
    tmp_path: Path,
) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.runs("w", ME, PREFIX))
        site.start()
        await site.settled()
        shapes = seen(site)
        fleet.write(fleet.runs("w", ME, PREFIX, "10.65.0.2/32"), fleet.runs("w", "a", PREFIX))
        await asyncio.sleep(10)
        assert shapes == []

    on_a_site(scene, tmp_path)


def test_an_endpoint_that_got_its_key_needs_no_confirmation_when_another_place_of_its_workload_appears(
    tmp_path: Path,
) -> None:
    """None of these migrations is seen."""

    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await on_a(site)
        mute(site, MIGRATION)
        fleet.write(fleet.migrates("w", "a", "b"), fleet.runs("w", "b", PREFIX))
        await asyncio.sleep(5)
        fleet.write(fleet.ends("w", "a"))
        await asyncio.sleep(5)
        assert shapes == [ELSEWHERE]
        fleet.write(fleet.migrates("w", "b", "a"), fleet.runs("w", "a", PREFIX))
        await asyncio.sleep(10)
        assert shapes == [ELSEWHERE]

    on_a_site(scene, tmp_path)


async def only_expected_on_b(site: HostHarness, *more: str) -> list[Shape | None]:
    """w is on a, on its way to b, with more addresses there; of the migration nothing is heard. What becomes of its
    route from now on."""
    fleet = site.fleet()
    fleet.write(fleet.joins("a", 1), fleet.joins("b", 2), fleet.joins("c", 3), fleet.runs("w", "a", PREFIX))
    site.start()
    await site.settled()
    shapes = seen(site)
    mute(site, MIGRATION)
    fleet.write(fleet.migrates("w", "a", "b"), fleet.runs("w", "b", PREFIX, *more))
    await asyncio.sleep(5)
    assert shapes == []
    return shapes


@pytest.mark.parametrize("claimed_by", ["w", "v"])
def test_an_endpoint_that_owns_one_address_needs_confirmation_for_the_others(tmp_path: Path, claimed_by: str) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await only_expected_on_b(site, SECOND)
        assert site.shapes[P2] == ELSEWHERE
        written = fleet.runs("w", "b", PREFIX, SECOND, THIRD) if claimed_by == "w" else fleet.runs("v", "c", SECOND)
        fleet.write(written)
        await asyncio.sleep(700)  # an audit, too
        assert shapes == []

    on_a_site(scene, tmp_path)


def test_a_host_that_leaves_and_comes_back_has_its_workloads_again(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await only_expected_on_b(site)
        fleet.write(fleet.leaves("a"))
        await asyncio.sleep(2)
        fleet.write(fleet.joins("a", 1))
        await asyncio.sleep(20)
        assert (shapes[-1], site.shapes[P1]) == (THERE, THERE)

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("anew", [True, False])
def test_a_confirmed_endpoint_that_lost_since_is_queried_again(tmp_path: Path, anew: bool) -> None:
    """An endpoint of w is left on b; then w migrates there again, and the migration is not seen."""

    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await on_a(site)
        for host in "b", "a":
            fleet.write(fleet.runs("w", host, PREFIX))
            await asyncio.sleep(10)
        assert shapes == [ELSEWHERE, THERE]
        for kind in (ENDPOINT, MIGRATION) if anew else (MIGRATION,):
            mute(site, kind)
        if anew:
            fleet.write(fleet.ends("w", "b"))
        fleet.write(fleet.migrates("w", "a", "b"), fleet.runs("w", "b", PREFIX))
        await asyncio.sleep(1)
        site.clients["region"].link.heal()
        mute(site, MIGRATION)
        await asyncio.sleep(10)
        assert shapes == [ELSEWHERE, THERE]

    on_a_site(scene, tmp_path)


def test_a_local_workload_stays_here_while_its_arrival_is_queried_and_an_older_place_of_it_becomes_reachable(
    tmp_path: Path,
) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.runs("w", "b", PREFIX))
        fleet.write(fleet.runs("w", "a", PREFIX))
        site.start()
        await site.settled()
        shapes = seen(site)
        fleet.write(fleet.runs("w", ME, PREFIX))
        await asyncio.sleep(0.2)
        fleet.write(fleet.joins("b", 2))
        await asyncio.sleep(10)
        assert shapes == [HERE]

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("why", ["restart", "join"])
def test_an_endpoint_unconfirmed_for_one_address_keeps_the_others(tmp_path: Path, why: str) -> None:
    """w is on b, and an older endpoint with one more address is left on a. Then w gets that address on b as well."""

    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("b", 2), fleet.runs("w", "a", PREFIX, SECOND))
        fleet.write(fleet.runs("w", "b", PREFIX), *([fleet.joins("a", 1)] if why == "restart" else []))
        site.start()
        await asyncio.sleep(10)
        if why == "restart":
            site.node.kill()
            site.start()
        else:
            fleet.write(fleet.joins("a", 1))
        await asyncio.sleep(10)
        assert (site.shapes[P1], site.shapes[P2]) == (ELSEWHERE, THERE)
        shapes = seen(site)
        fleet.write(fleet.runs("w", "b", PREFIX, SECOND))
        await asyncio.sleep(10)
        assert (site.shapes[P2], shapes) == (ELSEWHERE, [])

    on_a_site(scene, tmp_path)


def test_an_endpoint_unconfirmed_because_another_workload_released_an_address_keeps_the_others(tmp_path: Path) -> None:
    """And the store is unreachable."""

    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("b", 2), fleet.joins("c", 3), fleet.runs("w", "a", PREFIX, SECOND))
        fleet.write(fleet.runs("w", "b", PREFIX, SECOND))
        fleet.write(fleet.runs("v", "c", SECOND))
        site.start()
        await asyncio.sleep(10)
        fleet.write(fleet.joins("a", 1))
        await asyncio.sleep(10)
        assert (site.shapes[P1], site.shapes[P2]) == (ELSEWHERE, RemoteRoute("10.99.0.3"))
        shapes = seen(site)
        site.clients["region"].link.next_calls(Fate.REQUEST_LOST, count=500, of="txn")
        fleet.write(fleet.ends("v", "c"))
        await asyncio.sleep(700)  # an audit, too
        assert shapes == []

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("how", ["called off", "host left"])
def test_a_confirmed_endpoint_that_lost_without_a_query_is_queried_when_it_comes_back(tmp_path: Path, how: str) -> None:
    """An endpoint of w is left on b; its new migration there is not seen."""

    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await under_way_to_b(site, "a")
        fleet.write(fleet.arrived("w", "b"))
        if how == "host left":
            await asyncio.sleep(40)
            assert shapes == [ELSEWHERE]
            fleet.write(fleet.leaves("b"))
        fleet.write(fleet.runs("w", "a", PREFIX))
        await asyncio.sleep(100)
        fleet.write(fleet.joins("b", 2))
        await asyncio.sleep(100)
        assert site.shapes[P1] == THERE
        shapes.clear()
        mute(site, MIGRATION)
        fleet.write(fleet.migrates("w", "a", "b"), fleet.runs("w", "b", PREFIX))
        await asyncio.sleep(10)
        assert shapes == []

    on_a_site(scene, tmp_path)


def test_a_start_takes_nothing_from_a_local_workload_because_an_older_place_of_it_and_another_workload_claim_it(
    tmp_path: Path,
) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        for host, who in (("a", "w"), ("b", "v"), (ME, "w")):
            fleet.write(fleet.runs(who, host, PREFIX))
        fleet.write(fleet.joins("a", 1), fleet.joins("b", 2))
        site.start()
        await asyncio.sleep(10)
        assert site.shapes[P1] == HERE
        shapes = seen(site)
        site.node.kill()
        site.start()
        await asyncio.sleep(60)
        assert shapes == []

    on_a_site(scene, tmp_path)
