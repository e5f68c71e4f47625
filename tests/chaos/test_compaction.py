"""Compaction on a real etcd of its own: two leaders, one after the other, and somebody else who compacts as well."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from holdfast.config.compaction import Compaction
from holdfast.model.leader import LEADER
from holdfast.model.region import Region
from holdfast.model.time import Duration
from holdfast.runtime.clock import SystemClock
from holdfast.server.compaction import LAST, TRIGGER
from holdfast.server.compactor import Compactor
from holdfast.store.api import Compacted, Put
from holdfast.store.client import EtcdStore
from holdfast.store.fenced import FencedStore
from holdfast.store.gateway import Connection
from holdfast.testing.etcd import Cluster, etcd_cluster
from holdfast.testing.fixtures import or_skip

REGION = Region()
LEADER_KEY = LEADER.key(REGION, "leader")
PERIOD = Compaction(every=Duration(hours=1))


@pytest.fixture
def alone() -> Iterator[Cluster]:
    """History that nobody else reads."""
    with or_skip(etcd_cluster(1)) as cluster:
        yield cluster


class Leader:
    def __init__(self, store: EtcdStore, term: int) -> None:
        fenced = FencedStore(store, LEADER_KEY, term)
        self.compactor = Compactor(store, REGION, PERIOD, SystemClock(), CollectorRegistry(), lambda: fenced)


async def elected(store: EtcdStore) -> Leader:
    await store.delete(LEADER_KEY)
    return Leader(store, await store.put(LEADER_KEY, b"{}"))


async def write(store: EtcdStore, revisions: int) -> int:
    for first in range(0, revisions, 100):
        await asyncio.gather(*(store.put(b"/some", b"%d" % (first + one)) for one in range(100)))
    return (await store.txn([], [Put(b"/some", b"")])).revision


async def is_kept(store: EtcdStore, revision: int) -> bool:
    try:
        await store.get(b"/some", revision=revision)
    except Compacted:
        return False
    return True


def test_a_second_leader_compacts_what_the_first_one_noted(alone: Cluster) -> None:
    async def scenario() -> None:
        store = EtcdStore(Connection(tuple(alone.endpoints)))
        first = await elected(store)
        await write(store, 300)
        await first.compactor.look()
        noted = await store.get(LAST)
        assert noted is not None
        assert await is_kept(store, 10)
        await write(store, 1_100)
        second = await elected(store)
        await second.compactor.look()
        assert await is_kept(store, 10), "the first leader's period is not over"
        await store.delete(TRIGGER)  # now it is
        await second.compactor.look()
        assert not await is_kept(store, noted.mod_revision - 1)
        assert await is_kept(store, noted.mod_revision)
        again = await store.get(LAST)
        assert again is not None
        assert int(again.value) == noted.mod_revision
        await store.compact(again.mod_revision)
        await write(store, 1_100)
        await store.delete(TRIGGER)
        await second.compactor.look()
        assert await is_kept(store, again.mod_revision)
        await store.close()

    asyncio.run(scenario())
