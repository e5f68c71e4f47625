"""A watch over very many changes, through everything that can happen to it, ends with exactly the store's state."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import Awaitable, Callable

import pytest

from holdfast.model.base.time import Duration
from holdfast.store.api import Compacted, Delete, Put, StoreAway
from holdfast.store.client import EtcdStore
from holdfast.store.transport.gateway import Connection
from holdfast.testing.real.etcd import EtcdCluster, etcd_cluster
from holdfast.testing.real.processes import Unavailable
from tests.store.harness import Follower, opened, until
from tests.store.proxy import Proxy

CHANGES = 100_000
PER_TXN = 100
KEYS = 3_000
NOWHERE = "http://127.0.0.1:1"


async def insist(call: Callable[[], Awaitable[object]]) -> None:
    """Repeats an idempotent call until the store takes it."""
    while True:
        try:
            await call()
        except StoreAway:
            await asyncio.sleep(0.05)
        else:
            return


async def write(store: EtcdStore, rng: random.Random, breaking: asyncio.Task[None]) -> dict[tuple[int, bytes], None]:
    """Makes changes, `CHANGES` at least, until all that breaks is over; gives the puts that certainly were made, by
    revision and key."""
    history: dict[tuple[int, bytes], None] = {}
    made = 0
    for number in itertools.count():
        if made >= CHANGES and breaking.done():
            break
        keys = [b"/watched/%05d" % key for key in rng.sample(range(KEYS), PER_TXN)]
        puts = [Put(key, b"%d" % number) for key in keys[: PER_TXN * 9 // 10]]
        deletes = [Delete(key) for key in keys[PER_TXN * 9 // 10 :]]
        try:
            result = await store.txn([], [*puts, *deletes])
        except StoreAway:
            await asyncio.sleep(0.05)
            continue
        made += PER_TXN
        history |= dict.fromkeys((result.revision, put.key) for put in puts)
    return history


async def break_things(cluster: EtcdCluster, proxies: list[Proxy], store: EtcdStore) -> None:
    """Kills each member once while changes go on, with resets of all streams and a compaction each time. The second
    time the watch is cut off until the history that it would have to catch up with is gone."""
    for number, member in enumerate(cluster.members):
        await asyncio.sleep(1)
        targets = [proxy.target for proxy in proxies]
        for proxy in proxies:
            proxy.target = NOWHERE if number == 1 else proxy.target
            proxy.reset()
        await asyncio.to_thread(member.kill)
        await asyncio.sleep(0.5)
        await insist(lambda: revisions_later(store, 20))
        await insist(lambda: compact(store))
        for proxy, target in zip(proxies, targets, strict=True):
            proxy.target = target
        await asyncio.to_thread(member.restart)


async def compact(store: EtcdStore) -> None:
    with contextlib.suppress(Compacted):  # by a call before this one, whose reply was lost
        await store.compact(await head(store))


async def head(store: EtcdStore) -> int:
    return max(status.revision for status in await store.status())


async def revisions_later(store: EtcdStore, count: int) -> None:
    wanted = await head(store) + count
    while await head(store) < wanted:  # noqa: ASYNC110 -- what is waited for happens in other processes
        await asyncio.sleep(0.05)


def test_a_watch_over_many_changes_through_kills_resets_and_compaction() -> None:
    async def main(cluster: EtcdCluster) -> None:
        async with contextlib.AsyncExitStack() as stack:
            proxies = [await stack.enter_async_context(Proxy(url)) for url in cluster.endpoints]
            behind = Connection([proxy.url for proxy in proxies], deadline=Duration(seconds=3))
            watcher = await stack.enter_async_context(opened(behind))
            writer = await stack.enter_async_context(opened(Connection(cluster.endpoints, deadline=behind.deadline)))
            follower = await stack.enter_async_context(Follower(watcher, b"/watched/"))
            breaking = asyncio.create_task(break_things(cluster, proxies, writer))
            history = await write(writer, random.Random(7), breaking)
            await breaking
            await insist(lambda: writer.put(b"/watched/end", b""))
            await until(lambda: b"/watched/end" in follower.seen)
            final = {e.key: (e.mod_revision, e.value) async for p in writer.list(b"/watched/") for e in p.entries}
            assert follower.seen == final
            assert len(follower.snapshots) > 1, "the compaction cost the watch its continuity"
            assert_no_gap(follower, history)
            assert len(follower.history) == len(set(follower.history)), "nothing came twice"

    try:
        with etcd_cluster(3) as cluster:
            asyncio.run(main(cluster))
    except Unavailable as missing:
        pytest.skip(str(missing))


def assert_no_gap(follower: Follower, history: dict[tuple[int, bytes], None]) -> None:
    """Every change was shown as an event, or lies before a snapshot that was announced as such."""
    shown = set(follower.history)
    missing = sorted(change for change in history if change not in shown)
    snapshots = sorted(snapshot.revision for snapshot in follower.snapshots)
    last_listed = snapshots[-1]
    assert [change for change in missing if change[0] > last_listed] == []
    events_after: dict[int, int] = {}
    for revision, _ in follower.history:
        at = max((s for s in snapshots if s < revision), default=0)
        events_after[at] = max(events_after.get(at, 0), revision)
    for revision, key in missing:
        before = max((s for s in snapshots if s < revision), default=0)
        assert revision > events_after.get(before, 0), f"{key!r} at {revision} was passed over silently"
