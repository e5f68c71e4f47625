"""Several processes on one simulated machine: one clock, lives of their own, and a hypervisor that stops them all."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.testing import Node, World, simulate


def ticking(world: World, node: Node) -> list[tuple[float, float]]:
    """A process that looks at its clock once a second: when it did, and for how long it thought it had run."""
    seen: list[tuple[float, float]] = []

    async def tick() -> None:
        begun = node.clock.now()
        while True:
            await asyncio.sleep(1)
            seen.append((world.time, (node.clock.now() - begun).total_seconds()))

    node.run(tick())
    return seen


def test_processes_of_a_machine_share_its_clocks() -> None:
    async def scenario(world: World) -> None:
        one = world.node("m", rate=1.01)
        other = one.beside("m/other")
        assert one.clock is other.clock

    simulate(1, scenario)


def test_a_kill_ends_one_process_and_leaves_its_neighbour() -> None:
    async def scenario(world: World) -> None:
        one = world.node("m")
        other = one.beside("m/other")
        ticks, others = ticking(world, one), ticking(world, other)
        await asyncio.sleep(2.5)
        one.kill()
        await asyncio.sleep(2)
        assert (len(ticks), len(others)) == (2, 4)
        assert other.alive
        assert not one.alive

    simulate(1, scenario)


def test_a_stop_signal_freezes_one_process() -> None:
    async def scenario(world: World) -> None:
        one = world.node("m")
        other = one.beside("m/other")
        ticks, others = ticking(world, one), ticking(world, other)
        one.pause()
        await asyncio.sleep(10.5)
        assert (len(ticks), len(others)) == (0, 10)
        assert one.paused
        assert not other.paused

    simulate(1, scenario)


def test_a_suspended_machine_stops_every_process_and_none_of_them_knows() -> None:
    async def scenario(world: World) -> None:
        one = world.node("m")
        other = one.beside("m/other")
        ticks, others = ticking(world, one), ticking(world, other)
        await asyncio.sleep(1.5)
        other.pause(clock_stops=True)
        await asyncio.sleep(20)
        assert one.paused
        one.resume()
        await asyncio.sleep(1)
        for seen in (ticks, others):
            assert seen == [pytest.approx((1, 1)), pytest.approx((22, 2))]

    simulate(1, scenario)


def test_a_process_that_starts_on_a_suspended_machine_waits() -> None:
    async def scenario(world: World) -> None:
        one = world.node("m")
        ticking(world, one)
        other = one.beside("m/other")
        one.pause(clock_stops=True)
        others = ticking(world, other)
        await asyncio.sleep(5)
        assert others == []
        one.resume()
        await asyncio.sleep(1.1)
        assert len(others) == 1

    simulate(1, scenario)


def test_a_stopped_process_stays_stopped_when_its_machine_goes_on() -> None:
    async def scenario(world: World) -> None:
        one = world.node("m")
        other = one.beside("m/other")
        ticks, others = ticking(world, one), ticking(world, other)
        one.pause()
        other.pause(clock_stops=True)
        await asyncio.sleep(5)
        other.resume()
        await asyncio.sleep(3.5)
        assert (len(ticks), len(others)) == (0, 3)

    simulate(1, scenario)
