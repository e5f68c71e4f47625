"""A fresh list and a mirror agree, however busy the store is; a mirror that is behind is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from holdfast.model.base.bad import Bad
from holdfast.reconcile import Away
from holdfast.store.mirror.mirror import Mirror
from holdfast.store.mirror.verify import MOST, verify_mirror
from holdfast.testing import World, simulate
from holdfast.testing.store.client import FakeClient

PREFIX = b"/things/"


def text(_key: bytes, value: bytes) -> str | Bad:
    return value.decode()


def play(scene: Callable[[World, FakeClient, Mirror[str]], Awaitable[None]], keys: int = 300) -> None:
    async def scenario(world: World) -> None:
        writer, reader = world.connect("writer"), world.connect("reader")
        for number in range(keys):
            await writer.put(PREFIX + b"%d" % number, b"one")
        mirror: Mirror[str] = Mirror(reader, PREFIX, text)
        following = asyncio.create_task(mirror.run())
        await mirror.wait_synced()
        await scene(world, reader, mirror)
        following.cancel()

    simulate(1, scenario)


def test_a_quiet_store_agrees_at_once() -> None:
    async def scene(_world: World, reader: FakeClient, mirror: Mirror[str]) -> None:
        await verify_mirror(reader, mirror)
        assert len(mirror.objects) == 300

    play(scene)


def test_a_key_that_only_the_mirror_has_is_named() -> None:
    async def scene(world: World, reader: FakeClient, mirror: Mirror[str]) -> None:
        reader.link.mute_watches()
        await world.connect("another writer").delete(PREFIX + b"7")
        with pytest.raises(Away, match="the watch is behind a fresh list, for example at /things/7"):
            await verify_mirror(reader, mirror)

    play(scene)


def test_a_store_that_never_rests_agrees_all_the_same() -> None:
    async def scene(world: World, reader: FakeClient, mirror: Mirror[str]) -> None:
        writer = world.connect("another writer")

        async def change() -> None:
            for number in range(10_000):
                await writer.put(PREFIX + b"%d" % (number % 300), b"%d" % number)
                await writer.delete(PREFIX + b"%d" % ((number + 150) % 300))

        changing = asyncio.create_task(change())
        for _ in range(20):
            await verify_mirror(reader, mirror)
        assert not changing.done(), "nothing changed meanwhile: this proves nothing"
        changing.cancel()

    play(scene)


@pytest.mark.parametrize("missed", [1, MOST + 1])
def test_a_mirror_that_misses_something_does_not_agree(missed: int) -> None:
    async def scene(world: World, reader: FakeClient, mirror: Mirror[str]) -> None:
        reader.link.mute_watches()
        writer = world.connect("another writer")
        for number in range(missed):
            await writer.put(PREFIX + b"new %04d" % number, b"two")
        with pytest.raises(Away, match="the watch is behind a fresh list, for example at /things/new 0000"):
            await verify_mirror(reader, mirror)

    play(scene)


def test_a_store_that_does_not_answer_is_away() -> None:
    async def scene(_world: World, reader: FakeClient, mirror: Mirror[str]) -> None:
        reader.link.cut()
        with pytest.raises(Away):
            await verify_mirror(reader, mirror)

    play(scene)
