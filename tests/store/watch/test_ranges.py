"""One stream with a watch for each of several ranges, against a real etcd: nothing between them is sent, nothing of
them is lost."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, replace

from holdfast.model.base.time import Duration
from holdfast.store.api import KeyRange, OwnKey, Put
from holdfast.store.client import EtcdStore
from holdfast.store.embedded.server import EmbeddedEtcd
from holdfast.store.mirror.mirror import Mirror
from holdfast.store.mirror.verify import verify_mirror
from holdfast.store.transport import wire
from holdfast.store.transport.http import MemberAddress, connect
from holdfast.store.watch.stream import WatchStream
from holdfast.testing import FakeStore
from holdfast.testing.fault import fault
from tests.store.harness import Follower, opened, until
from tests.store.proxy import Flow, Proxy


def ranges(prefix: bytes) -> tuple[KeyRange, ...]:
    """The keys of host h of two kinds, and one key."""
    ours = [KeyRange(prefix + kind + b"/h-.", prefix + kind + b"/h.") for kind in (b"migrations", b"workloads")]
    return (*ours, KeyRange(prefix + b"nodes/h", prefix + b"nodes/h\0"))


async def write(store: EtcdStore, prefix: bytes, count: int, first: int = 0) -> set[bytes]:
    """Write keys of this host and of others, in one transaction each; return the last values of ours."""
    for number in range(first, first + count):
        value = b"%d" % number
        ours = [Put(prefix + kind + b"/h-%d" % (number % 5), value) for kind in (b"migrations", b"workloads")]
        others = [Put(prefix + key, b"x" * 1_000) for key in (b"workloads/h--1-a", b"workloads/i-a", b"nodes/h2")]
        await store.txn([], [*ours, *others, Put(prefix + b"nodes/h", value)])
    return {b"%d" % number for number in range(first + count - 5, first + count)}


def test_each_range_delivers_all_its_changes_in_order_and_nothing_else_is_sent(
    etcd: EmbeddedEtcd, prefix: bytes
) -> None:
    async def main() -> None:
        async with (
            Proxy(etcd.endpoint) as proxy,
            opened(proxy.connection()) as store,
            opened(etcd.connection()) as other,
            Follower(store, ranges(prefix)) as follower,
        ):
            await until(lambda: bool(proxy.watches()))
            for begun in range(5):
                last = await write(other, prefix, 40, 40 * begun)
                proxy.reset()  # each watch goes on after its own last event
            await until(lambda: {value for _, value in follower.seen.values()} == last and len(follower.seen) == 11)
            for keys in ranges(prefix):
                revisions = [revision for revision, key in follower.history if key in keys]
                assert revisions == sorted(set(revisions))
                assert len(revisions) == 5 * 40
            assert len(follower.snapshots) == 1
            assert sum(batch.skipped for batch in follower.batches) == 0

    asyncio.run(main())


def test_C72_etcd_creates_every_watch_of_a_long_request(etcd: EmbeddedEtcd) -> None:
    member = MemberAddress.parse(etcd.endpoint)
    creates = [wire.CreateRequest(b"%d" % number + b"/" * 1_000, watch_id=number) for number in (1, 2, 3)]
    body = b"".join(wire.encode(wire.WatchRequest(create)) for create in creates)

    async def confirmed() -> int:
        stream = WatchStream(member, wire.WATCH, body, "")
        await connect(member, None, stream)
        found = 0
        try:
            async with asyncio.timeout(30):
                while found < len(creates):
                    found += (await stream.read()).count(b'"created":true')
        finally:
            stream.close()
        return found

    async def main() -> None:  # one in ten lacks a watch where etcd may drop the rest of the request
        assert await asyncio.gather(*(confirmed() for _ in range(60))) == [len(creates)] * 60

    asyncio.run(main())


@dataclass
class OneWatchOnly(Proxy):
    """Lets through the first watch of the first request, as a server that drops the rest of a request does."""

    dropped: int = 0

    def request(self, data: bytes) -> bytes:
        head, _, body = data.partition(b"\r\n\r\n")
        if self.dropped or b"/v3/watch" not in head:
            return data
        _, end = json.JSONDecoder().raw_decode(body.decode())
        self.dropped = len(body) - end
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length")]
        return b"\r\n".join([*lines, b"Content-Length: %d" % end]) + b"\r\n\r\n" + body[:end]


@fault(
    "C72",
    without="holdfast.store.watch.watch:Watch._check_confirmed",
    returns=None,
    sees=(TimeoutError, r"until\(lambda: len\(follower.seen\) == 11, within=15\)"),
)
def test_C72_a_range_that_the_member_does_not_watch_is_noticed(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    async def main() -> None:
        async with (
            OneWatchOnly(etcd.endpoint) as proxy,
            opened(replace(proxy.connection(), deadline=Duration(seconds=2))) as store,
            opened(etcd.connection()) as other,
            Follower(store, ranges(prefix)) as follower,
        ):
            await until(lambda: bool(proxy.dropped))
            await write(other, prefix, 5)
            await until(lambda: len(follower.seen) == 11, within=15)
            assert len(follower.snapshots) == 1

    asyncio.run(main())


@dataclass
class Stalling(Proxy):
    """Stops the whole process once: when all watches of a stream are confirmed, and the client has read nothing."""

    stalls_s: float = 0.0

    async def _down(self, reader: asyncio.StreamReader, flow: Flow) -> None:
        answer = await reader.read(1 << 16)
        if flow.is_watch and self.stalls_s:
            while answer.count(b'"created":true') < 3:
                answer += await reader.read(1 << 16)
            flow.client.write(answer)
            stalls_s, self.stalls_s = self.stalls_s, 0.0
            time.sleep(stalls_s)  # noqa: ASYNC251 -- as a machine that was suspended
        else:
            flow.client.write(answer)
        await super()._down(reader, flow)


def test_a_stream_is_kept_whose_confirmed_watches_a_stalled_process_has_not_read_yet(
    etcd: EmbeddedEtcd, prefix: bytes
) -> None:
    deadline_s = 3.0

    async def main() -> None:
        async with (
            Stalling(etcd.endpoint, stalls_s=deadline_s + 1) as proxy,
            opened(replace(proxy.connection(), deadline=Duration(seconds=deadline_s))) as store,
            opened(etcd.connection()) as other,
            Follower(store, ranges(prefix)) as follower,
        ):
            await until(lambda: not proxy.stalls_s)
            await write(other, prefix, 5)
            await until(lambda: len(follower.seen) == 11)
            assert sum(flow.is_watch for flow in proxy.flows) == 1

    asyncio.run(main())


def test_a_range_without_changes_does_not_fall_behind_a_compaction(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    async def main() -> None:
        own = OwnKey(prefix + b"own", Duration(milliseconds=200))
        async with (
            Proxy(etcd.endpoint) as proxy,
            opened(proxy.connection()) as store,
            opened(etcd.connection()) as other,
            Follower(store, ranges(prefix), own) as follower,
        ):
            await until(lambda: bool(proxy.watches()))
            written = []
            for _ in range(30):
                written.append(await store.put(own.key, b""))
                await asyncio.sleep(0.1)
            await other.compact(written[3])  # the watch began before it, and nothing was written since
            proxy.reset()
            key = prefix + b"workloads/h-new"
            await other.put(key, b"")
            await until(lambda: key in follower.seen)
            assert len(follower.snapshots) == 1

    asyncio.run(main())


def test_a_mirror_of_ranges_lists_again_after_a_compaction_and_is_verified_by_them(
    etcd: EmbeddedEtcd, prefix: bytes
) -> None:
    async def main() -> None:
        async with (
            Proxy(etcd.endpoint) as proxy,
            opened(proxy.connection()) as store,
            opened(etcd.connection()) as other,
        ):
            await write(other, prefix, 10)
            mirror: Mirror[bytes] = Mirror(store, ranges(prefix), lambda _, value: value)
            running = asyncio.create_task(mirror.run())
            await mirror.wait_synced()
            await until(lambda: bool(proxy.watches()))

            async def compacted() -> None:
                await other.delete(prefix + b"workloads/h-1")
                await other.compact(await other.put(prefix + b"migrations/h-new", b"new"))

            proxy.before_watch = compacted
            proxy.reset()
            await until(lambda: mirror.lists == 2)
            await verify_mirror(store, mirror)
            assert sorted(key.removeprefix(prefix) for key in mirror.objects) == [
                *[b"migrations/h-%d" % number for number in range(5)],
                b"migrations/h-new",
                b"nodes/h",
                *[b"workloads/h-%d" % number for number in (0, 2, 3, 4)],
            ]
            running.cancel()

    asyncio.run(main())


def test_the_fake_store_sends_what_etcd_sends() -> None:
    async def main() -> None:
        fake = FakeStore()
        store = fake.client("reader")
        async with Follower(store, ranges(b"/")) as follower:
            await store.put(b"/workloads/h--1-a", b"")
            await store.put(b"/workloads/h-a", b"1")
            await store.put(b"/nodes/h", b"2")
            await until(lambda: len(follower.seen) == 2)
            assert sum(batch.skipped for batch in follower.batches) == 0

    asyncio.run(main())
