"""A watch over very many changes, through everything that can happen to it, ends with exactly the store's state."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

import pytest

from holdfast.model.time import Duration
from holdfast.store.api import Delete, Put, StoreAway
from holdfast.store.client import EtcdStore
from holdfast.store.gateway import Connection
from holdfast.testing.etcd import Cluster, Unavailable, etcd_cluster
from tests.store.following import Follower, opened, until
from tests.store.proxy import Proxy

CHANGES = 100_000
PER_TXN = 100
KEYS = 3_000


async def insist(call: Callable[[], Awaitable[object]]) -> None:
    """Repeats an idempotent call until the store takes it."""
    while True:
        try:
            await call()
        except StoreAway:
            await asyncio.sleep(0.05)
        else:
            return


async def write(store: EtcdStore, rng: random.Random) -> dict[tuple[int, bytes], None]:
    """Makes `CHANGES` changes; gives those that certainly were made, by revision and key."""
    history: dict[tuple[int, bytes], None] = {}
    for number in range(CHANGES // PER_TXN):
        keys = [b"/watched/%05d" % key for key in rng.sample(range(KEYS), PER_TXN)]
        puts = [Put(key, b"%d" % number) for key in keys[: PER_TXN * 9 // 10]]
        deletes = [Delete(key) for key in keys[PER_TXN * 9 // 10 :]]
        try:
            result = await store.txn([], [*puts, *deletes])
        except StoreAway:
            await asyncio.sleep(0.05)
            continue
        history |= dict.fromkeys((result.revision, put.key) for put in puts)
    return history


async def break_things(cluster: Cluster, proxies: list[Proxy], store: EtcdStore) -> None:
    """Kills each member once, with resets of all streams and a compaction in between, while changes go on."""
    for member in cluster.members:
        await asyncio.sleep(1)
        for proxy in proxies:
            proxy.reset()
        await asyncio.to_thread(member.kill)
        await asyncio.sleep(0.5)
        status = await store.status()
        await insist(lambda: store.compact(max(s.revision for s in status)))  # noqa: B023 -- awaited here
        await asyncio.to_thread(member.restart)


def test_a_watch_over_many_changes_through_kills_resets_and_compaction() -> None:
    async def main(cluster: Cluster) -> None:
        async with contextlib.AsyncExitStack() as stack:
            proxies = [await stack.enter_async_context(Proxy(url)) for url in cluster.endpoints]
            behind = Connection([proxy.url for proxy in proxies], deadline=Duration(seconds=3))
            watcher = await stack.enter_async_context(opened(behind))
            writer = await stack.enter_async_context(opened(Connection(cluster.endpoints, deadline=behind.deadline)))
            follower = await stack.enter_async_context(Follower(watcher, b"/watched/"))
            breaking = asyncio.create_task(break_things(cluster, proxies, writer))
            history = await write(writer, random.Random(7))
            await breaking
            await insist(lambda: writer.put(b"/watched/end", b""))
            await until(lambda: b"/watched/end" in follower.seen)
            final = {e.key: (e.mod_revision, e.value) async for p in writer.list(b"/watched/") for e in p.entries}
            assert follower.seen == final
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
