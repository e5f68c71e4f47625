"""N18: the runtime folder is gone, and the journal with it; our objects are still found by their tags."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from holdfast.agent.claims import Claim, ClaimKey, RemoteRoute, route
from holdfast.agent.target import JournaledTarget
from holdfast.model.base.time import seconds
from holdfast.reconcile import Owned
from holdfast.testing import World, simulate
from holdfast.testing.fault import fault
from tests.agent.harness import HostHarness

P1, P2 = route("10.65.0.1/32"), route("10.65.0.2/32")
_read = JournaledTarget.read


async def what_the_journal_remembers(
    kernel: JournaledTarget, after: ClaimKey | None
) -> tuple[Sequence[tuple[ClaimKey, Owned[Claim]]], ClaimKey | None]:
    """Without the protection: an object that is known only by its tag counts as absent."""
    found, upto = await _read(kernel, after)
    return [(key, owned) for key, owned in found if owned.source], upto


def play(scene: Callable[[HostHarness], Awaitable[None]], folder: Path) -> None:
    async def scenario(world: World) -> None:
        site = HostHarness(world, folder)
        site.fleet().name_it()
        try:
            await scene(site)
        finally:
            site.close()

    simulate(1, scenario)


async def two_peers_then_a_stop(site: HostHarness) -> None:
    fleet = site.fleet()
    fleet.write(fleet.joins("a", 1), fleet.joins("b", 2))
    fleet.write(fleet.runs("w", "a", "10.65.0.1/32"), fleet.runs("v", "b", "10.65.0.2/32"))
    site.start()
    await site.settled()
    await site.stop()
    (site.folder / "journal").unlink()


@fault(
    "N18",
    without="holdfast.agent.target:JournaledTarget.read",
    by="tests.agent.test_lost_state_folder:what_the_journal_remembers",
    sees=(AssertionError, "P1 not in site.shapes"),
)
def test_N18_a_host_that_left_with_the_journal_goes_all_the_same(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        await two_peers_then_a_stop(site)
        fleet = site.fleet()
        fleet.write(fleet.leaves("a"), fleet.ends("w", "a"))
        site.start()
        await site.settled()
        await asyncio.sleep(5)
        assert P1 not in site.shapes
        assert P2 in site.shapes

    play(scene, tmp_path)


def test_N18_without_the_journal_nothing_that_is_wanted_is_touched(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        await two_peers_then_a_stop(site)
        made = len(site.kernel.calls)
        site.start()
        await site.settled()
        assert site.kernel.calls[made:] == []
        assert site.shapes[P1] == RemoteRoute("10.99.0.1")

    play(scene, tmp_path)


def test_N18_objects_known_only_by_their_tag_stay_until_every_source_is_complete(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        await two_peers_then_a_stop(site)
        site.unreachable = {"region"}
        site.start()
        await asyncio.sleep(seconds(600).total_seconds())
        assert {P1, P2} <= site.shapes.keys()

    play(scene, tmp_path)
