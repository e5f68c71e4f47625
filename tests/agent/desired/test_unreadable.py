"""Values that are unreadable after a start: their claims in the journal count until they are fixed or gone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.store.api import Put
from holdfast.testing.fault import fault
from tests.agent.desired.harness import (
    ELSEWHERE,
    HERE,
    PREFIX,
    ROTTEN,
    SECOND,
    THERE,
    begun,
    restarted_among,
    seen,
    statuses,
    steps,
    under_way_to_b,
)
from tests.agent.harness import ME, HostHarness, Ids
from tests.agent.test_reconciler import P1, P2, on_a_site

rotten_ones = pytest.mark.parametrize("rotten", [("source",), ("source", "migration")], ids=" and ".join)


def test_a_migration_that_is_unreadable_after_a_start_takes_nothing_from_the_arriving_workload(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await begun(site)
        site.node.kill()
        fleet.write(Put(fleet.migrates("w", "a", ME).key, ROTTEN))
        site.start()
        await site.settled()
        await asyncio.sleep(10)
        assert shapes == []
        for step in steps(fleet):
            fleet.write(step)
            await asyncio.sleep(5)
        assert (shapes, site.shapes[P1]) == ([], HERE)

    on_a_site(scene, tmp_path)


def test_a_start_restores_the_owner_of_what_is_programmed_and_not_another_place_of_the_same_workload(
    tmp_path: Path,
) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.runs("w", "0", "10.65.0.2/32"), fleet.joins("0", 4))
        shapes = await begun(site)
        site.node.kill()
        fleet.write(Put(fleet.migrates("w", "a", ME).key, ROTTEN))
        site.start()
        await asyncio.sleep(10)
        site.kernel.flush([P1])
        await asyncio.sleep(5)
        assert shapes == [None, HERE]

    on_a_site(scene, tmp_path)


@rotten_ones
def test_an_arriving_workload_stays_programmed_while_its_source_is_unreadable(
    tmp_path: Path, rotten: Sequence[str]
) -> None:
    async def scene(site: HostHarness) -> None:
        shapes = await begun(site)
        await restarted_among(site, rotten, ME)
        assert shapes == []

    on_a_site(scene, tmp_path)


@rotten_ones
@fault(
    "C39",
    without="holdfast.agent.desired.source_claims:SourceClaims._restore_endpoint",
    returns=[],
    sees=(AssertionError, r"shapes == \[\]"),
)
def test_C39_no_route_moves_to_where_a_workload_is_only_expected_because_its_place_is_unreadable(
    tmp_path: Path, rotten: Sequence[str]
) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await begun(site, "b")
        fleet.write(fleet.runs("w", "b", PREFIX))
        await asyncio.sleep(5)
        await restarted_among(site, rotten, "b")
        assert shapes == []

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("to", ["b", ME])
def test_what_cannot_be_read_after_a_start_has_what_it_had_until_it_is_gone(tmp_path: Path, to: str) -> None:
    """Another endpoint of it is elsewhere."""

    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        site.kernel.interfaces = set()
        fleet.write(fleet.joins("a", 1), fleet.joins("b", 2), fleet.runs("w", "a", PREFIX))
        fleet.write(fleet.runs("w", to, PREFIX))
        site.start()
        await asyncio.sleep(10)
        assert site.shapes[P1] == THERE
        shapes = seen(site)
        await restarted_among(site, ["source"], "b")
        assert shapes == []
        fleet.write(fleet.ends("w", "a"))
        site.kernel.appear("tap-w")
        await asyncio.sleep(10)
        assert shapes[-1] == (HERE if to == ME else ELSEWHERE)

    on_a_site(scene, tmp_path)


def test_what_cannot_be_read_and_is_deleted_leaves_nothing_behind(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.runs("w", "a", PREFIX))
        site.start()
        await site.settled()
        await restarted_among(site, ["source"], "b")
        assert site.shapes[P1] == THERE
        fleet.write(fleet.ends("w", "a"))
        await asyncio.sleep(10)
        assert P1 not in site.shapes

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("who", ["u", "w"])
def test_an_unreadable_object_is_as_old_as_its_claims_in_the_journal(tmp_path: Path, who: str) -> None:
    """While the agent is down the address moves, and its old owner becomes unreadable."""

    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.joins("b", 2), fleet.runs("w", "a", PREFIX))
        site.start()
        await site.settled()
        site.node.kill()
        fleet.write(fleet.ends("w", "a"), fleet.runs(who, "b", PREFIX))
        await restarted_among(site, ["source"], "b")
        assert site.shapes[P1] == ELSEWHERE

    on_a_site(scene, tmp_path)


def test_an_object_that_is_unreadable_after_a_start_and_then_fixed_counts_as_fixed(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.runs("w", "a", PREFIX))
        site.start()
        await site.settled()
        site.node.kill()
        fleet.write(Put(fleet.runs("w", "a", PREFIX).key, ROTTEN))
        site.start()
        await asyncio.sleep(10)
        assert site.shapes[P1] == THERE
        fleet.write(fleet.runs("w", "a", "10.65.0.2/32"))
        await site.settled()
        assert (site.shapes.get(P1), site.shapes[P2]) == (None, THERE)

    on_a_site(scene, tmp_path)


def test_what_came_back_unreadable_where_a_workload_left_takes_nothing_from_where_it_is(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        await under_way_to_b(site, "a")
        fleet.write(fleet.ends("w", "a"))
        await asyncio.sleep(5)
        assert site.shapes[P1] == ELSEWHERE
        shapes = seen(site)
        await restarted_among(site, ["source"], "b")
        assert shapes == []

    on_a_site(scene, tmp_path)


def test_an_arriving_workload_stays_programmed_when_only_its_source_is_readable_again(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await begun(site)
        await restarted_among(site, ["source", "migration"], ME)
        fleet.write(fleet.runs("w", "a", PREFIX))
        await asyncio.sleep(10)
        assert shapes == []
        for step in steps(fleet):
            fleet.write(step)
            await asyncio.sleep(5)
        assert (shapes, site.shapes[P1]) == ([], HERE)

    on_a_site(scene, tmp_path)


def test_a_workload_from_an_unreadable_place_stays_here_when_it_is_also_expected_elsewhere(
    tmp_path: Path,
) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await begun(site)
        fleet.write(fleet.migrates("w", "a", "b"), fleet.runs("w", "b", PREFIX))
        await asyncio.sleep(5)
        await restarted_among(site, ["source"], ME)
        assert shapes == []

    on_a_site(scene, tmp_path)


def test_what_a_start_kept_for_a_migration_is_forgotten_with_it(tmp_path: Path) -> None:
    """Much later an unrelated value becomes unreadable."""

    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        await begun(site)
        await restarted_among(site, ["migration"], ME)
        fleet.write(fleet.migrates("w", "a", ME))
        await asyncio.sleep(5)
        fleet.write(fleet.arrived("w", ME))
        await asyncio.sleep(40)
        fleet.write(fleet.runs("w", "b", PREFIX), fleet.ends("w", "a"))
        await asyncio.sleep(60)
        assert site.shapes[P1] == ELSEWHERE
        shapes = seen(site)
        fleet.write(Put(fleet.runs("x", "a", "10.65.9.9/32").key, ROTTEN))
        await asyncio.sleep(60)
        assert (shapes, statuses(site)) == ([], {})

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("left", [(), (PREFIX,)], ids=["all", "one address"])
def test_an_object_that_was_being_deleted_is_not_restored(tmp_path: Path, left: Sequence[str]) -> None:
    """A handler has not acknowledged the delete when the agent restarts and cannot read the owner."""
    clinging = Ids()
    clinging.refuse = lambda change: "no" if change.new is None else None

    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.runs("w", "a", PREFIX, SECOND))
        site.start()
        await site.settled()
        fleet.write(fleet.runs("w", "a", *left) if left else fleet.ends("w", "a"))
        await asyncio.sleep(10)
        assert P2 not in site.shapes
        await restarted_among(site, ["source"], "b")
        assert (P1 in site.shapes, P2 in site.shapes) == (bool(left), False)

    on_a_site(scene, tmp_path, others=(clinging,))
