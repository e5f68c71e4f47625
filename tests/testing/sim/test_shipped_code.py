"""Shipped parts run in the simulation as they are: handed a store and a clock, they keep their promises."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress

import pytest

from holdfast.model.base.bad import Bad
from holdfast.model.base.time import Instant, seconds
from holdfast.store.api import StoreAway, StoreError
from holdfast.store.lease import LeasedKey
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
def test_a_leased_key_is_there_for_its_ttl_after_every_write_and_ends_with_its_writer(seed: int) -> None:
    simulate(seed, leased)


async def leased(world: World) -> None:
    ttl, keys = seconds(6), itertools.count()
    certain: dict[str, tuple[bytes, Instant]] = {}
    """Key of each node, of its last process that wrote one, and until when it is certainly there."""

    def is_there(name: str) -> bool:
        return name in certain and world.store.keys.get(certain[name][0]) is not None

    async def write(node: Node) -> None:
        key = LeasedKey(node.store(deadline=seconds(2)), b"%d" % next(keys), ttl)
        while True:
            until = node.clock.now() + ttl  # counted from before the send: the reply may be late
            with suppress(StoreAway, StoreError):
                await key.write(b"")
                certain[node.name] = key.key, until
            await asyncio.sleep(1)

    def start(node: Node) -> None:
        node.run(write(node))

    async def judge() -> None:
        while True:
            await asyncio.sleep(0.05)
            for name, (_, until) in certain.items():
                assert world.node(name).clock.now() >= until or is_there(name), f"the key of {name} is gone too early"

    for name in ("a", "b"):
        start(world.node(name))
    world.node("judge").run(judge())
    # The clock of a suspended machine stands still, while the lease expires.
    honest = [fault for fault in FAULTS.values() if fault is not suspend]
    await inject_faults(world, ["a", "b"], lasting=seconds(300), revive=start, faults=honest)
    await world.until(lambda: is_there("a") and is_there("b"), within=seconds(60))
    world.node("a").kill()
    await asyncio.sleep(10)
    assert (is_there("a"), is_there("b")) == (False, True)
