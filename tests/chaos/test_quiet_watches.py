"""Restarts of etcd's members under watches of a prefix that nobody writes, with a compaction between."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from holdfast.model.base.time import Duration
from holdfast.store.api import OwnKey, StoreAway
from holdfast.store.client import EtcdStore
from holdfast.store.transport.gateway import Connection
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.etcd import EtcdCluster, EtcdMember, etcd_cluster
from tests.store.harness import Follower, until

HOSTS = 9
PREFIX = b"/quiet/hosts/"
REPORT_EVERY = Duration(milliseconds=100)
WITHIN_S = 1.0


class Agent:
    """The part of an agent that this is about: it watches the hosts, and writes its report."""

    def __init__(self, cluster: EtcdCluster, name: str) -> None:
        connection = Connection(tuple(cluster.endpoints), deadline=Duration(seconds=2))
        self.store = EtcdStore(replace(connection, host=name))
        self.own = OwnKey(b"/quiet/report/" + name.encode(), REPORT_EVERY)
        self.follower = Follower(self.store, PREFIX, self.own)

    async def report(self) -> None:
        while True:
            with contextlib.suppress(StoreAway):
                await self.store.put(self.own.key, b"alive")
            await asyncio.sleep(REPORT_EVERY.total_seconds())


async def compact_all_but_the_last(store: EtcdStore, reports: int) -> None:
    """Wait until that many revisions have come and the watches have seen some of them, then forget what is older."""
    begun = (await store.txn([], [])).revision
    revision = begun
    while revision < begun + reports:
        await asyncio.sleep(0.1)
        revision = (await store.txn([], [])).revision
    await store.compact(begun + HOSTS)


async def announce(store: EtcdStore, agents: list[Agent], name: str) -> float:
    """Write a host, and return the seconds until every agent knew it."""
    key, begun = PREFIX + name.encode(), time.monotonic()
    await store.put(key, b"")
    await until(lambda: all(key in one.follower.seen for one in agents))
    return time.monotonic() - begun


async def restart(member: EtcdMember) -> None:
    member.kill()
    member.start()  # not in a thread: the process would end with it
    await asyncio.to_thread(member.wait_ready)


@pytest.fixture
def members() -> Iterator[EtcdCluster]:
    """Members of its own: others read the whole history of theirs, which is compacted here."""
    with or_skip(etcd_cluster(3)) as cluster:
        yield cluster


def test_C52_a_new_host_reaches_every_agent_after_any_member_restart_without_a_list(members: EtcdCluster) -> None:
    async def main() -> None:
        agents = [Agent(members, f"compute-{number:02}") for number in range(HOSTS)]
        operator = EtcdStore(Connection(tuple(members.endpoints)))
        async with contextlib.AsyncExitStack() as stack:
            for agent in agents:
                await stack.enter_async_context(agent.follower)
            reporting = [asyncio.create_task(agent.report()) for agent in agents]
            took = {}
            for member in members.members:
                await compact_all_but_the_last(operator, 25 * HOSTS)  # 2.5 s: own writes have settled twice
                await restart(member)
                took[member.name] = await announce(operator, agents, member.name)
            for task in reporting:
                task.cancel()
        for agent in agents:
            await agent.store.close()
        await operator.close()
        assert [len(agent.follower.snapshots) for agent in agents] == [1] * HOSTS, "none listed again"
        assert max(took.values()) < WITHIN_S, took

    asyncio.run(main())
