"""A long list is taken over in steps, so that heartbeats go on meanwhile, and still as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

from holdfast.agent.claims import route
from holdfast.agent.desired.peers import Encapsulation, LocalHost
from holdfast.agent.desired.watcher import SourceWatcher
from holdfast.store.api import Put
from holdfast.testing import World, simulate
from tests.agent.harness import ME, REGION, Fleet

MANY = 1_000
LONGEST_STEP = 100
NEW = "10.66.0.1/32"


async def no_intents() -> None:
    return


def on_a_list(scene: Callable[[World, Fleet, SourceWatcher], Awaitable[None]]) -> None:
    """Run the scene once a list of many endpoints has arrived, and before any of it is taken over."""

    async def scenario(world: World) -> None:
        fleet, machine = Fleet(world.store), world.node(ME)
        fleet.write(fleet.joins("a", 1))
        puts: list[Put] = [fleet.runs(f"w{n}", "a", f"10.65.{n >> 8}.{n & 255}/32") for n in range(MANY)]
        for start in range(0, MANY, 100):
            fleet.write(*puts[start : start + 100])
        here = LocalHost(ME, Encapsulation.ALWAYS)
        source = SourceWatcher("region", machine.store(), REGION, here, machine.clock)
        task = asyncio.create_task(source.run(lambda: None, no_intents))
        await asyncio.sleep(5)
        await scene(world, fleet, source)
        task.cancel()

    simulate(1, scenario)


def test_other_tasks_run_while_a_long_list_is_taken_over() -> None:
    async def scene(_world: World, _fleet: Fleet, source: SourceWatcher) -> None:
        sizes = [len(source.claims)]
        assert sizes == [0]
        taking = asyncio.create_task(source.catch_up())
        while not taking.done():
            await asyncio.sleep(0)
            sizes.append(len(source.claims))
        assert sizes[-1] >= MANY
        assert max(after - before for before, after in pairwise(sizes)) <= 2 * LONGEST_STEP

    on_a_list(scene)


def test_a_second_look_waits_for_the_whole() -> None:
    async def scene(_world: World, _fleet: Fleet, source: SourceWatcher) -> None:
        first, second = asyncio.create_task(source.catch_up()), asyncio.create_task(source.catch_up())
        while not len(source.claims):  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert source.synced.revision is None, "a half was recorded as complete"
        assert await second == set()
        assert first.done()
        assert len(source.claims) >= MANY

    on_a_list(scene)


def test_a_change_that_arrives_meanwhile_counts_with_the_next_look() -> None:
    async def scene(world: World, fleet: Fleet, source: SourceWatcher) -> None:
        known = source.objects.revision
        taking = asyncio.create_task(source.catch_up())
        while not len(source.claims):  # noqa: ASYNC110
            await asyncio.sleep(0)
        fleet.write(fleet.runs("new", "a", NEW))
        await taking
        assert source.synced.revision == known
        assert source.claims.wanted(route(NEW)) is None
        await world.until(lambda: source.objects.revision > known)
        assert route(NEW) in await source.catch_up()
        assert source.claims.wanted(route(NEW)) is not None

    on_a_list(scene)
