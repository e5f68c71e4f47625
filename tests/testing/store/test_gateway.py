"""The in-memory gateway under faults: what the shipped client notices of each, on real bytes and virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from holdfast.model.base.time import seconds
from holdfast.store.api import Events, Keys, OwnKey, Put, Snapshot, Store, StoreAway, StoreRefused, span
from holdfast.testing import Fate, World, simulate
from holdfast.testing.store.gateway.client import SimEtcdStore


def put(key: bytes) -> Put:
    return Put(key, b"new")


class Reader:
    """What a reader holds that trusts its watch, and the times at which it was told anything."""

    def __init__(self) -> None:
        self.held: dict[bytes, bytes] = {}
        self.revision = 0
        self.snapshots: list[Snapshot] = []
        self.batches: list[Events] = []

    async def follow(self, store: Store, *prefixes: Keys, own: OwnKey | None = None) -> None:
        async for news in store.watch(*prefixes, own=own):
            if isinstance(news, Snapshot):
                self.snapshots.append(news)
                self.held = {entry.key: entry.value for entry in news.items}
            else:
                self.batches.append(news)
                for event in news.batch:
                    if event.entry is None:
                        self.held.pop(event.key, None)
                    else:
                        self.held[event.key] = event.entry.value
            self.revision = max(self.revision, news.revision)


@contextlib.asynccontextmanager
async def reading(
    world: World, store: SimEtcdStore, *prefixes: Keys, own: OwnKey | None = None
) -> AsyncIterator[Reader]:
    reader = Reader()
    task = asyncio.create_task(reader.follow(store, *prefixes, own=own))
    await world.until(lambda: bool(reader.snapshots), within=seconds(60))
    await asyncio.sleep(1)  # the stream is open
    yield reader
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("fate", [Fate.REPLY_LOST, Fate.REPLY_CUT])
def test_a_write_whose_reply_is_lost_is_uncertain_and_applied_once(fate: Fate) -> None:
    async def scenario(world: World) -> int:
        store = world.node("a").etcd()
        store.link.next_calls(fate, of="put")
        with pytest.raises(StoreAway) as away:
            await store.put(b"k", b"1")
        assert away.value.uncertain
        found = await store.get(b"k")
        assert found is not None
        return found.version

    assert simulate(1, scenario).value == 1


def test_a_request_that_no_member_takes_is_certain_to_have_had_no_effect() -> None:
    async def scenario(world: World) -> None:
        store = world.node("a").etcd()
        for member in world.network.members:
            member.isolate()
        with pytest.raises(StoreAway) as away:
            await store.put(b"k", b"1")
        assert not away.value.uncertain
        for member in world.network.members:
            member.rejoin()
        assert await store.get(b"k") is None

    simulate(1, scenario)


def test_a_reply_in_pieces_of_any_size_is_read_whole() -> None:
    async def scenario(world: World) -> None:
        store = world.node("a").etcd()
        for number in range(200):
            await store.put(b"k/%d" % number, b"v" * number)
        found = [entry async for page in store.list(b"k/") for entry in page.entries]
        assert len(found) == 200

    simulate(3, scenario)


def test_a_partition_ends_idle_streams_as_tcp_does_and_they_resume_without_a_gap() -> None:
    async def scenario(world: World) -> tuple[list[int], int]:
        store, writer = world.node("reader").etcd(), world.node("writer").etcd()
        await writer.put(b"k/0", b"")
        async with reading(world, store, b"k/") as reader:
            store.link.cut()
            for number in range(1, 40):
                await writer.put(b"k/%d" % number, b"")
                await asyncio.sleep(1)
            assert len(reader.held) == 1
            store.link.heal()
            await world.until(lambda: len(reader.held) == 40, within=seconds(60))
            assert len(reader.snapshots) == 1, "it resumed where it was"
            return sorted(batch.revision for batch in reader.batches), world.store.revision

    revisions, last = simulate(1, scenario).value
    assert revisions[-1] == last


def test_a_flow_that_a_firewall_forgot_ends_within_20_seconds() -> None:
    async def scenario(world: World) -> float:
        store, writer = world.node("reader").etcd(), world.node("writer").etcd()
        async with reading(world, store, b"k/") as reader:
            store.link.drop_flows()
            began = world.time
            await writer.put(b"k/1", b"")
            await world.until(lambda: b"k/1" in reader.held, within=seconds(60))
            return world.time - began

    assert 15 < simulate(1, scenario).value < 25


def test_a_stream_that_is_silent_while_its_member_answers_is_left_by_an_own_write() -> None:
    async def scenario(world: World) -> None:
        store = world.node("reader").etcd()
        own = OwnKey(b"own/me", seconds(5))
        await store.put(b"own/me", b"0")
        async with reading(world, store, b"k/", own=own) as reader:
            store.link.mute_watches()
            await store.put(b"k/1", b"")
            await asyncio.sleep(30)
            assert not reader.held
            await store.put(b"own/me", b"1")
            await world.until(lambda: b"k/1" in reader.held, within=seconds(60))

    simulate(1, scenario)


def test_a_watch_that_was_away_longer_than_the_history_lists_again() -> None:
    async def scenario(world: World) -> int:
        store, writer = world.node("reader").etcd(), world.node("writer").etcd()
        await writer.put(b"k/1", b"")
        async with reading(world, store, b"k/") as reader:
            store.link.cut()
            await writer.delete(b"k/1")
            await writer.put(b"k/2", b"")
            world.store.compact()
            await asyncio.sleep(30)
            store.link.heal()
            await world.until(lambda: set(reader.held) == {b"k/2"}, within=seconds(60))
            return len(reader.snapshots)

    assert simulate(1, scenario).value == 2


def test_a_backlog_of_thousands_of_revisions_comes_in_lines_of_at_most_a_thousand() -> None:
    async def scenario(world: World) -> list[int]:
        store, writer = world.node("reader").etcd(), world.node("writer").etcd()
        async with reading(world, store, b"k/") as reader:
            store.link.hold_back(b"k/")
            for number in range(2_500):
                world.store.apply("bulk", (), [put(b"k/%04d" % number)])
            store.link.heal()
            await world.until(lambda: len(reader.held) == 2_500, within=seconds(60))
            assert await writer.get(b"k/2499")
            return [len(batch.batch) for batch in reader.batches]

    sizes = simulate(1, scenario).value
    assert sum(sizes) == 2_500
    assert max(sizes) <= 1_000


def test_watches_of_one_stream_drift_and_each_is_complete() -> None:
    async def scenario(world: World) -> bool:
        store, writer = world.node("reader").etcd(), world.node("writer").etcd()
        store.link.drift = 0.3
        async with reading(world, store, span(b"a/"), span(b"b/")) as reader:
            for number in range(100):
                await writer.put(b"%s/%d" % (b"ab"[number % 2 : number % 2 + 1], number), b"")
            await world.until(lambda: len(reader.held) == 100, within=seconds(60))
        order = [event.mod_revision for batch in reader.batches for event in batch.batch]
        return order != sorted(order)

    assert any(simulate(seed, scenario).value for seed in range(5)), "some revisions overtook others"


@pytest.mark.parametrize("how", ["stopped", "learner", "isolated"])
def test_a_member_that_cannot_serve_is_left_for_the_next(how: str) -> None:
    async def scenario(world: World) -> None:
        store = world.node("a").etcd()
        await store.put(b"k/0", b"")
        async with reading(world, store, b"k/") as reader:
            for member in world.network.members[:2]:
                if how == "stopped":
                    member.stop()
                elif how == "isolated":
                    member.isolate()
                else:
                    member.learner = True
                    member.reset_connections()
            await asyncio.sleep(0.1)
            await store.put(b"k/1", b"")
            await world.until(lambda: b"k/1" in reader.held, within=seconds(90))

    for seed in range(3):
        simulate(seed, scenario)


@pytest.mark.parametrize("how", ["wiped", "restored", "restored and written beyond"])
def test_a_reader_of_a_store_that_went_back_holds_what_it_has_now(how: str) -> None:
    async def scenario(world: World) -> bool:
        store, writer = world.node("reader").etcd(), world.node("writer").etcd()
        for number in range(10):
            await writer.put(b"k/%d" % number, b"old")
        backup = world.store.revision
        for number in range(5, 15):
            await writer.put(b"k/%d" % number, b"new")
        async with reading(world, store, b"k/") as reader:
            if how == "wiped":
                world.store.wipe()
            else:
                world.store.restore(backup)
            for number in range(20 if "beyond" in how else 2):
                world.store.apply("other", (), [put(b"k/%d" % (20 + number))])
            wanted = {entry.key: entry.value for entry in world.store.keys.range(b"k/", b"k0")}
            await world.until(lambda: reader.held == wanted, within=seconds(200))
            return reader.snapshots[-1].went_back

    for seed in range(3):
        assert simulate(seed, scenario).value


def test_tokens_that_a_member_forgot_are_renewed_also_for_a_watch() -> None:
    async def scenario(world: World) -> int:
        world.network.accounts.users["holdfast"] = "secret"
        node = world.node("a")
        store = SimEtcdStore(
            world.network, "a", now=node.clock.now, rng=node.random, user="holdfast", password="secret"
        )
        await store.put(b"k/0", b"")
        async with reading(world, store, b"k/") as reader:
            world.network.accounts.expire_tokens()
            world.network.reset()
            await asyncio.sleep(0.1)
            await store.put(b"k/1", b"")
            await world.until(lambda: b"k/1" in reader.held, within=seconds(60))
        return world.network.accounts.issued

    assert simulate(1, scenario).value == 2


def test_a_wrong_password_is_refused() -> None:
    async def scenario(world: World) -> None:
        world.network.accounts.users["holdfast"] = "secret"
        node = world.node("a")
        store = SimEtcdStore(world.network, "a", now=node.clock.now, rng=node.random, user="holdfast", password="guess")
        with pytest.raises(StoreRefused, match="refuses our password"):
            await store.get(b"k")

    simulate(1, scenario)


def test_the_same_seed_gives_the_same_trace_byte_for_byte() -> None:
    async def bustle(world: World) -> None:
        for name in ("a", "b", "c"):
            node = world.node(name)
            node.run(write(node.etcd(), name.encode()))
        store = world.node("reader").etcd()
        async with reading(world, store, b"a/", b"c/"):
            world.node("a").kill()
            world.node("b").pause()
            store.link.disconnect()
            await asyncio.sleep(5)
            world.node("b").resume()
            world.network.reset()
            await asyncio.sleep(5)

    async def write(store: SimEtcdStore, name: bytes) -> None:
        for number in range(30):
            with contextlib.suppress(StoreAway):
                await store.put(b"%s/%d" % (name, number), b"")
            await asyncio.sleep(0.3)

    first, second = simulate(5, bustle), simulate(5, bustle)
    assert first.trace.text == second.trace.text
    assert simulate(6, bustle).trace.text != first.trace.text
