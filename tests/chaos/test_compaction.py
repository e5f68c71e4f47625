"""Compaction on a real etcd of its own: two leaders, somebody else who compacts as well, and an etcd that is full."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from structlog.testing import capture_logs

from holdfast.config.sections.compaction import CompactionSettings
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.control.leader import LEADER
from holdfast.runtime.clock import SystemClock
from holdfast.server.compaction.compactor import Compactor
from holdfast.server.compaction.policy import LAST, TRIGGER
from holdfast.store.api import Compacted, NoSpace, Put
from holdfast.store.client import EtcdStore
from holdfast.store.fenced.store import FencedStore
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.etcd import EtcdCluster, etcd_cluster
from holdfast.testing.real.processes import wait_until
from tests.chaos.harness import patient_store
from tests.server.harness import HandClock

REGION = Region()
LEADER_KEY = LEADER.key(REGION, "leader")
PERIOD = CompactionSettings(every=Duration(hours=1))
QUOTA = 16 << 20
FAT = 256 << 10


@pytest.fixture
def alone() -> Iterator[EtcdCluster]:
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


def test_a_second_leader_compacts_what_the_first_one_noted(alone: EtcdCluster) -> None:
    async def scenario() -> None:
        store = patient_store(alone)
        first = await elected(store)
        await write(store, 300)
        await first.compactor.check()
        noted = await store.get(LAST)
        assert noted is not None
        assert await is_kept(store, 10)
        await write(store, 1_100)
        second = await elected(store)
        await second.compactor.check()
        assert await is_kept(store, 10), "the first leader's period is not over"
        await store.delete(TRIGGER)  # now it is
        await second.compactor.check()
        assert not await is_kept(store, noted.mod_revision - 1)
        assert await is_kept(store, noted.mod_revision)
        again = await store.get(LAST)
        assert again is not None
        assert int(again.value) == noted.mod_revision
        await store.compact(again.mod_revision)
        await write(store, 1_100)
        await store.delete(TRIGGER)
        await second.compactor.check()
        assert await is_kept(store, again.mod_revision)
        await store.close()

    asyncio.run(scenario())


@pytest.fixture
def small() -> Iterator[EtcdCluster]:
    """One that is full after 16 MB."""
    with or_skip(etcd_cluster(1, options=[f"--quota-backend-bytes={QUOTA}"])) as cluster:
        yield cluster


async def fill(store: EtcdStore) -> None:
    """Until nothing more fits."""
    for _ in range(2 * QUOTA // FAT):
        try:
            await store.put(b"/fat", b"x" * FAT)
        except NoSpace:
            return
    raise AssertionError("etcd is not full after twice its quota")


def make_room(cluster: EtcdCluster) -> bool:
    """Defragment and disarm, as an operator does after a compaction; return True if etcd accepts writes again."""
    (member,) = cluster.members
    member.ask("/v3/maintenance/defragment", {})
    for alarm in member.ask("/v3/maintenance/alarm", {"action": "GET"}).get("alarms", []):
        member.ask("/v3/maintenance/alarm", {"action": "DEACTIVATE", **alarm})
    return "header" in member.ask("/v3/kv/put", {"key": "YQ==", "value": "YQ=="})


def test_a_full_etcd_is_compacted_without_a_put_and_has_room_once_it_is_defragmented(small: EtcdCluster) -> None:
    clock, registry = HandClock(), CollectorRegistry()

    async def scenario() -> None:
        store = patient_store(small)
        fenced = FencedStore(store, LEADER_KEY, await store.put(LEADER_KEY, b"{}"))
        config = CompactionSettings(every=PERIOD.every, quota=QUOTA)
        compactor = Compactor(store, REGION, config, clock, registry, lambda: fenced)
        for _ in range(QUOTA // FAT // 2):
            await store.put(b"/fat", b"x" * FAT)
        await compactor.check()
        noted = await store.get(LAST)
        assert noted is not None
        await write(store, 1_100)
        await fill(store)
        await store.delete(TRIGGER)  # the period is over
        clock.advance(PERIOD.every)
        before = (await store.txn([], [])).revision
        await compactor.check()
        assert not await is_kept(store, noted.mod_revision - 1)
        assert (await store.txn([], [])).revision == before, "nothing was written"
        await store.close()

    with capture_logs() as logs:
        asyncio.run(scenario())
    said = [str(one["event"]) for one in logs]
    assert any(one["event"] == "store is full" and one["action"] == "defragment it" for one in logs)
    assert any("store history compacted" in one for one in said)
    assert b"holdfast_store_full 1.0" in generate_latest(registry)
    wait_until(lambda: make_room(small), "etcd takes writes again", within=30)
