"""Shipped parts run in the simulation as they are: handed a store and a clock, they keep their promises."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.model.base.bad import Bad
from holdfast.model.base.time import seconds
from holdfast.store.lease import LeaseKeeper
from holdfast.store.mirror.mirror import Mirror
from holdfast.testing import Node, World, simulate
from holdfast.testing.sim.faults import FAULTS, inject_faults, suspend

SEEDS = range(25)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_mirror_ends_with_exactly_what_the_store_holds_whatever_happened(seed: int) -> None:
    simulate(seed, mirrored)


async def mirrored(world: World) -> None:
    mirrors: dict[str, Mirror[bytes]] = {}

    def decode(_key: bytes, value: bytes) -> bytes | Bad:
        return value

    def start(node: Node) -> None:
        mirror = mirrors[node.name] = Mirror(node.store(), b"k/", decode, now=node.clock.now)
        node.run(mirror.run())

    async def write() -> None:
        store = world.connect("writer")
        for n in range(400):
            await asyncio.sleep(world.random.uniform(0, 0.5))
            key = b"k/%d" % world.random.randrange(20)
            await (store.delete(key) if world.random.random() < 0.3 else store.put(key, b"%d" % n))

    for name in ("a", "b"):
        start(world.node(name))
    writing = asyncio.create_task(write())
    await inject_faults(world, ["a", "b"], lasting=seconds(90), revive=start)
    await writing
    held = {entry.key: entry.value for entry in world.store.keys.range(b"k/", b"k0")}
    for mirror in mirrors.values():
        await world.until(lambda mirror=mirror: dict(mirror.objects) == held, within=seconds(300))  # type: ignore[misc]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lease_that_its_keeper_holds_is_never_gone_from_the_store(seed: int) -> None:
    simulate(seed, kept)


async def kept(world: World) -> None:
    keepers: dict[str, LeaseKeeper] = {}

    def start(node: Node) -> None:
        keeper = keepers[node.name] = LeaseKeeper(node.store(deadline=seconds(2)), seconds(6), now=node.clock.now)
        node.run(keeper.run())

    async def judge() -> None:
        while True:
            await asyncio.sleep(0.05)
            for name, keeper in keepers.items():
                node = world.node(name)
                lease = keeper.held() if node.alive and not node.paused else None
                assert lease is None or lease.id in world.store.leases, f"{name} believes in a lease that is gone"

    for name in ("a", "b"):
        start(world.node(name))
    world.node("judge").run(judge())
    # A machine that was suspended cannot know it: there the fence is the safety, not the lease.
    honest = [fault for fault in FAULTS.values() if fault is not suspend]
    await inject_faults(world, ["a", "b"], lasting=seconds(300), revive=start, faults=honest)
    await world.until(lambda: all(keeper.held() for keeper in keepers.values()), within=seconds(60))
