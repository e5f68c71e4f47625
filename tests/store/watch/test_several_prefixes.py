"""One watch of several prefixes against a real etcd: one order, whole revisions, and nothing lost by skipping."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import groupby

from holdfast.store.api import Event, Put
from holdfast.store.client import EtcdStore
from holdfast.store.embedded.server import EmbeddedEtcd
from holdfast.store.mirror.mirror import Mirror
from tests.store.harness import Follower, opened, until
from tests.store.proxy import Proxy


def kinds(prefix: bytes) -> tuple[bytes, ...]:
    return tuple(prefix + kind for kind in (b"livemigrations/", b"nodes/", b"workloadendpoints/"))


async def write_moves(store: EtcdStore, prefix: bytes, count: int) -> int:
    """Write each object in all kinds at one revision, with a foreign one, and then one kind by itself."""
    last = 0
    for number in range(count):
        key = b"%d" % number
        both = [Put(kind + key, b"together") for kind in reversed(kinds(prefix))]
        await store.txn([], [*both, Put(prefix + b"networkpolicies/" + key, b"x" * 1_000)])
        last = await store.put(kinds(prefix)[number % 3] + key, b"alone")
    return last


def split(batches: Sequence[Sequence[Event]]) -> set[int]:
    """Revisions that are spread over several batches, or come more than once."""
    seen = [revision for batch in batches for revision, _ in groupby(batch, key=lambda event: event.mod_revision)]
    return {revision for revision in seen if seen.count(revision) > 1}


def test_kinds_arrive_in_the_order_of_their_revisions_each_revision_whole(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    async def main() -> None:
        async with (
            Proxy(etcd.endpoint) as proxy,
            opened(proxy.connection()) as store,
            opened(etcd.connection()) as other,
            Follower(store, kinds(prefix)) as follower,
        ):
            await until(lambda: bool(proxy.watches()))
            for _ in range(5):
                last = await write_moves(other, prefix, 40)
                proxy.reset()  # what was not delivered is caught up
            await until(lambda: follower.revision >= last)
            revisions = [revision for revision, _ in follower.history]
            assert revisions == sorted(revisions)
            assert len(revisions) == 5 * 40 * 4
            assert split([batch.batch for batch in follower.batches]) == set()
            assert len(follower.snapshots) == 1
            assert sum(batch.skipped for batch in follower.batches) == 5 * 40

    asyncio.run(main())


def test_skipped_changes_move_the_watch_on_so_that_a_compaction_after_them_needs_no_list(
    etcd: EmbeddedEtcd, prefix: bytes
) -> None:
    async def main() -> None:
        async with (
            Proxy(etcd.endpoint) as proxy,
            opened(proxy.connection()) as store,
            opened(etcd.connection()) as other,
        ):
            await other.put(prefix + b"nodes/a", b"")
            async with Follower(store, kinds(prefix)) as follower:
                await until(lambda: bool(proxy.watches()))
                for number in range(500):
                    last = await other.put(prefix + b"networkpolicies/%d" % (number % 7), b"%d" % number)
                await until(lambda: follower.revision >= last)
                await other.compact(last)
                proxy.reset()
                await other.put(prefix + b"workloadendpoints/b", b"")
                await until(lambda: prefix + b"workloadendpoints/b" in follower.seen)
                assert len(follower.snapshots) == 1
                assert sum(len(batch.batch) for batch in follower.batches) == 1

    asyncio.run(main())


def test_a_mirror_of_several_prefixes_lists_again_what_differs_and_nothing_between(
    etcd: EmbeddedEtcd, prefix: bytes
) -> None:
    async def main() -> None:
        async with (
            Proxy(etcd.endpoint) as proxy,
            opened(proxy.connection()) as store,
            opened(etcd.connection()) as other,
        ):
            await write_moves(other, prefix, 40)
            mirror: Mirror[bytes] = Mirror(store, kinds(prefix), lambda _, value: value)
            running = asyncio.create_task(mirror.run())
            await mirror.wait_synced()
            await until(lambda: bool(proxy.watches()))

            async def compacted() -> None:
                await other.delete(prefix + b"nodes/1")
                await other.put(prefix + b"networkpolicies/1", b"new")
                await other.compact(await other.put(prefix + b"livemigrations/new", b"new"))

            proxy.before_watch = compacted
            proxy.reset()
            await until(lambda: mirror.lists == 2)
            found = {e.key: e.value for kind in kinds(prefix) async for page in other.list(kind) for e in page.entries}
            assert dict(mirror.objects) == found
            assert len(found) == 3 * 40
            running.cancel()

    asyncio.run(main())
