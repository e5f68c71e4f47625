"""Deliveries of a real etcd: with `routing: bgp` a change is delivered to the agent of its host, and to no other."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from holdfast.agent.desired.peers import LocalHost, Routing
from holdfast.agent.desired.watcher import SourceWatcher
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointSpec
from holdfast.model.calico.host import HOST, Host, HostSpec
from holdfast.model.control.intent import INTENT, Intent, IntentKind, IntentName
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.runtime.clock import SystemClock
from holdfast.store.api import Put, Store
from holdfast.store.client import EtcdStore
from holdfast.store.transport.gateway import Connection
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.etcd import EtcdCluster, etcd_cluster
from tests.store.harness import until

REGION = Region()
CHANGES = 20


def delivered(url: str) -> int:
    """Number of changes that etcd has delivered to watches so far."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as reply:
        found = re.search(r"^etcd_debugging_mvcc_events_total (\S+)$", reply.read().decode(), re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


def moved(number: int, host: str) -> Put:
    """The endpoint of a host, with another address each time."""
    spec = EndpointSpec(
        orchestrator="holdfast",
        workload="w",
        node=host,
        endpoint="eth0",
        interface_name="tap1",
        ip_networks=(f"10.28.0.{number}/32",),
    )
    return Put(ENDPOINT.key(REGION, spec.name), ENDPOINT.encode(Endpoint.of(REGION, spec)))


def node(host: str) -> Put:
    return Put(HOST.key(REGION, host), HOST.encode(Host.of(host, HostSpec())))


def pause(of: str) -> Put:
    """A pause of some host, which every agent hears of."""
    scope = Scope(ScopeKind.HOST, of)
    made = Intent(what=IntentKind.PAUSE, scope=scope, who="test", why="", since=datetime(2026, 1, 1, tzinfo=UTC))
    return Put(INTENT.key(REGION, made.name), INTENT.encode(made))


async def deliveries(store: Store, url: str, agents: int, routing: Routing) -> int:
    """Count what etcd delivers for a number of changes on one host."""
    clock, hosts = SystemClock(), [f"h{number}" for number in range(agents)]
    watchers = [SourceWatcher("region", store, REGION, LocalHost(host, routing=routing), clock) for host in hosts]

    async def nothing() -> None:
        return

    async def heard(name: str) -> None:
        await store.txn([], [pause(name)])
        intent = IntentName(IntentKind.PAUSE, Scope(ScopeKind.HOST, name))
        await until(lambda: all(one.stored_intent(intent) is not None for one in watchers))

    running = [asyncio.create_task(watcher.run(lambda: None, nothing)) for watcher in watchers]
    try:
        await until(lambda: all(one.objects.synced for one in watchers))
        await store.txn([], [node(host) for host in hosts])
        await until(lambda: all(one.has_host(host) for one, host in zip(watchers, hosts, strict=True)))
        await heard("before")
        before = delivered(url)
        for number in range(CHANGES):
            await store.txn([], [moved(number, "h0")])
        await until(lambda: delivered(url) - before >= CHANGES)
        await heard("after")
        return delivered(url) - before - agents
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@pytest.mark.parametrize(("routing", "expected"), [(Routing.BGP, CHANGES), (Routing.MESH, 12 * CHANGES)])
def test_etcd_delivers_each_change_once_however_many_agents_there_are(
    etcd_of_its_own: EtcdCluster, routing: Routing, expected: int
) -> None:
    async def main() -> list[int]:
        [url] = etcd_of_its_own.endpoints
        counts = []
        for agents in (1, 12):
            store = EtcdStore(Connection((url,)))
            counts.append(await deliveries(store, url, agents, routing))
            await store.delete(b"/", end=b"0")
            await store.close()
        return counts

    assert asyncio.run(main()) == [CHANGES, expected]


@pytest.fixture
def etcd_of_its_own() -> Iterator[EtcdCluster]:
    with or_skip(etcd_cluster(1)) as cluster:
        yield cluster
