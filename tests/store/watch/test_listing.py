"""Lists: ascending, complete, and of one moment."""

from __future__ import annotations

import asyncio
import itertools

import msgspec

from holdfast.store.api import Put, Snapshot
from holdfast.store.client import EtcdStore
from holdfast.store.embedded.server import EmbeddedEtcd
from holdfast.store.transport import wire
from holdfast.store.transport.gateway import Gateway, GatewayCall
from holdfast.testing.fault import fault
from tests.store.harness import opened

_RANGE = wire.decoder(wire.RangeReply)


async def unpinned(gateway: Gateway, request: wire.RangeRequest) -> wire.RangeReply:
    """Stands in for the reading of a page: each page of its own moment."""
    body = wire.encode(msgspec.structs.replace(request, revision=0))
    return await gateway.call(GatewayCall(wire.RANGE, body, _RANGE))


@fault("C17", without="holdfast.store.watch.listing:read_range", by="tests.store.watch.test_listing:unpinned")
def test_C17_a_snapshot_in_ascending_pages_is_of_one_moment(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    """Writers keep all values equal by one transaction each; a list of two moments would see two values."""
    names = [prefix + b"%04d" % i for i in range(0, 2_400, 100)]

    written = itertools.count()

    async def keep_equal(store: EtcdStore) -> None:
        while True:
            value = b"%d" % next(written)
            await store.txn([], [Put(name, value) for name in names])

    async def main() -> None:
        async with opened(etcd.connection()) as writer, opened(etcd.connection()) as store:
            for start in range(0, 2_400, 100):
                await writer.txn([], [Put(prefix + b"%04d" % i, b"fixed" * 200) for i in range(start, start + 100)])
            writing = asyncio.create_task(keep_equal(writer))
            for looks in itertools.count(1):
                snapshot = await anext(store.watch(prefix))
                assert isinstance(snapshot, Snapshot)
                seen = [entry.key for entry in snapshot.items]
                assert seen == [prefix + b"%04d" % i for i in range(2_400)]
                assert len({entry.value for entry in snapshot.items if entry.key in names}) == 1
                if looks >= 8 and next(written) >= 100:  # where the disk is slow, few writes fall into a list
                    break
            writing.cancel()

    asyncio.run(main())
