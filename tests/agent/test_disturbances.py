"""A kernel that another program keeps changing: repairs are immediate, and a fight has a bounded cost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from holdfast.agent.claims import ClaimKey, Shape, nexthop, route
from holdfast.model.base.time import seconds
from holdfast.testing import World, simulate
from tests.agent.harness import HostHarness

PREFIX = route("10.65.0.1/32")
FIGHT_S = 10


def on_a_site(scene: Callable[[HostHarness], Awaitable[None]], folder: Path) -> None:
    async def scenario(world: World) -> None:
        site = HostHarness(world, folder, audit=seconds(3_600))
        fleet = site.fleet()
        fleet.name_it()
        fleet.write(fleet.joins("a", 1), fleet.runs("w", "a", "10.65.0.1/32"))
        try:
            site.start()
            await site.settled()
            await scene(site)
        finally:
            site.close()

    simulate(1, scenario)


def test_an_object_that_another_program_removes_is_back_at_once_not_at_the_next_verification(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        site.kernel.flush([PREFIX])
        await asyncio.sleep(0.1)
        assert PREFIX in site.shapes

    on_a_site(scene, tmp_path)


def test_a_program_that_removes_a_route_again_and_again_gets_ten_repairs_a_second(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        await _fight(site, [PREFIX])
        repairs = len(site.kernel.calls)
        assert 9 * FIGHT_S <= repairs <= 10 * FIGHT_S + 1

    on_a_site(scene, tmp_path)


def test_a_program_that_flushes_nexthops_without_end_gets_ten_comparisons_a_second(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        passes = site.running.loop.passes
        await _fight(site, None)
        assert 5 * FIGHT_S <= site.running.loop.passes - passes <= 10 * FIGHT_S + 1

    on_a_site(scene, tmp_path)


async def _fight(site: HostHarness, keys: list[ClaimKey] | None) -> None:
    """For a while, delete these objects (None: everything through the links) whenever the route is created."""
    site.kernel.calls.clear()
    loop = asyncio.get_running_loop()

    def again(key: ClaimKey, shape: Shape | None) -> None:
        if key == PREFIX and shape is not None:
            loop.call_soon(site.kernel.flap if keys is None else lambda: site.kernel.flush(keys))

    site.kernel.observers.append(again)
    site.kernel.flush([PREFIX if keys is None else keys[0]])
    await asyncio.sleep(FIGHT_S)
    site.kernel.observers.remove(again)
    await site.settled()
    assert {PREFIX, nexthop("10.99.0.1")} <= set(site.shapes)
