"""`holdfast source forget`: the operator's command when a source will not come back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from holdfast.agent.claims import route
from holdfast.reconcile import BrakeLimits
from holdfast.testing import World, simulate
from tests.agent.harness import Fleet, HostHarness, another_store

P1, P2 = route("10.65.0.1/32"), route("10.65.0.2/32")


def play(scene: Callable[[HostHarness], Awaitable[None]], folder: Path) -> None:
    async def scenario(world: World) -> None:
        site = HostHarness(world, folder, stores={"region-a": world.store, "region-b": another_store()})
        try:
            await scene(site)
        finally:
            site.close()

    simulate(1, scenario)


async def two_sources_then_the_second_is_gone(site: HostHarness) -> None:
    """Two sources, each with a host and a workload; after a restart the second one is unreachable."""
    for number, name in enumerate(("region-a", "region-b"), 1):
        fleet: Fleet = site.fleet(name)
        fleet.name_it(name)
        fleet.write(fleet.joins(f"h{number}", number), fleet.runs("w", f"h{number}", f"10.65.0.{number}/32"))
    site.start()
    await site.settled()
    assert {P1, P2} <= site.shapes.keys()
    await site.stop()
    site.unreachable = {"region-b"}
    site.start()
    await asyncio.sleep(60)


def test_without_it_the_source_keeps_what_it_had_for_ever(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        await two_sources_then_the_second_is_gone(site)
        await asyncio.sleep(3_600)
        assert {P1, P2} <= site.shapes.keys()

    play(scene, tmp_path)


def test_what_only_a_forgotten_source_wanted_goes_and_the_rest_stays(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        await two_sources_then_the_second_is_gone(site)
        site.running.sync_gate.forget("region-b")
        site.running.loop.dirty.mark_all()
        await asyncio.sleep(60)
        assert P1 in site.shapes
        assert P2 not in site.shapes

    play(scene, tmp_path)


def test_a_forgotten_source_that_delivers_a_list_after_all_counts_again(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        await two_sources_then_the_second_is_gone(site)
        site.running.sync_gate.forget("region-b")
        site.running.loop.dirty.mark_all()
        await asyncio.sleep(60)
        assert "region-b" not in site.running.sync_gate.sources
        site.heal()
        await asyncio.sleep(60)
        assert P2 in site.shapes
        assert site.running.sync_gate.sources["region-b"].revision is not None

    play(scene, tmp_path)


def test_a_host_whose_only_source_was_forgotten_deletes_nothing_without_a_second_command(tmp_path: Path) -> None:
    """Less than half would stay: the brake needs an operator as well."""

    async def scenario(world: World) -> None:
        site = HostHarness(world, tmp_path, limits=BrakeLimits())
        fleet = site.fleet()
        fleet.name_it()
        fleet.write(*[fleet.joins(f"h{n}", n) for n in range(1, 6)])
        site.start()
        await site.settled()
        await site.stop()
        site.unreachable = {"region"}
        site.start()
        await asyncio.sleep(5)
        site.running.sync_gate.forget("region")
        site.running.loop.dirty.mark_all()
        await asyncio.sleep(600)
        assert len(site.shapes) == 20
        assert site.running.loop.held()["brake"] > 0
        site.close()

    simulate(1, scenario)
