"""Networks and frontends: from the inventory through the syncer to what a balancer serves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest

from holdfast.balancer.services.store_watcher import ServicesUpdate, ServicesWatcher
from holdfast.config.sections.balancer import BalancerSettings
from holdfast.inventory.changes import WantedObject
from holdfast.inventory.manifest.read import read
from holdfast.model.balancing import BACKEND, FRONTEND
from holdfast.runtime.clock import SystemClock
from tests.inventory.harness import REGION
from tests.server.harness import SyncerHarness, syncer_harness

SITE = """
- {kind: host, name: r2, spec: {bgp: {ipv4Address: 192.0.2.2/24}}}
- {kind: network, name: red, spec: {prefixes: [10.28.0.0/16]}}
- kind: endpoint
  network: red
  spec: {node: r1, workload: web, endpoint: eth0, ipNetworks: [10.28.0.7]}
- {kind: health-check, name: http, spec: {type: http}}
- {kind: backend, name: web-1, spec: {endpoint: holdfast-web-eth0, port: 80, healthcheck: http}}
- {kind: backend, name: web-2, spec: {host: r2, port: 80, healthcheck: http}}
- {kind: backend, name: web-3, spec: {address: 10.28.0.9, port: 80, healthcheck: http}}
- kind: frontend
  name: web
  spec:
    address: 203.0.113.10
    port: 80
    pools: [{backends: {web-1: {}, web-2: {weight: 50}}}, {backends: {web-3: {}}}]
"""
OURS = b"/holdfast/v1/no-region/"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[SyncerHarness]:
    with syncer_harness(tmp_path) as made:
        made.editor.change(read(SITE, "site.yaml", REGION), who="alice")
        yield made


async def served(here: SyncerHarness, folder: Path) -> ServicesUpdate:
    """What a balancer that follows the store takes from it first."""
    told: asyncio.Future[ServicesUpdate] = asyncio.get_running_loop().create_future()
    follower = ServicesWatcher(here.fake.client("lb-1"), REGION, folder, SystemClock(), BalancerSettings(source="etcd"))

    def tell(news: ServicesUpdate) -> None:
        if not told.done():
            told.set_result(news)

    following = asyncio.create_task(follower.run(tell))
    try:
        async with asyncio.timeout(30):
            return await told
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def test_a_balancer_understands_what_arrives(here: SyncerHarness, tmp_path: Path) -> None:
    async def scenario() -> ServicesUpdate:
        await here.settled()
        return await served(here, tmp_path)

    news = asyncio.run(scenario())
    assert news.unreadable == ()
    assert {name: str(ip_address(one.identity.address)) for name, one in news.services.backends.items()} == {
        "web-1": "10.28.0.7",
        "web-2": "192.0.2.2",
        "web-3": "10.28.0.9",
    }
    assert news.services.frontends["web"].pools == ((("web-1", 100), ("web-2", 50)), (("web-3", 100),))


def test_a_backend_that_goes_leaves_its_frontend_first(here: SyncerHarness) -> None:
    async def scenario() -> list[bytes]:
        term = await here.settled()
        seen = here.fake.revision
        here.editor.change(
            [WantedObject(FRONTEND, "web"), *(WantedObject(BACKEND, f"web-{n}") for n in (1, 2, 3))], who="alice"
        )
        await term.reconciler.turn()
        return [e.key for w in here.fake.history if w.revision > seen for e in w.events if e.entry is None]

    gone = [key.removeprefix(OURS + b"balancing/") for key in asyncio.run(scenario())]
    assert gone == [b"frontends/web", b"backends/web-1", b"backends/web-2", b"backends/web-3"]


def test_the_network_arrives_beside_its_endpoint(here: SyncerHarness) -> None:
    asyncio.run(here.settled())
    assert here.stored(OURS + b"networks/") == {OURS + b"networks/red": b'{"prefixes":["10.28.0.0/16"]}'}
    (endpoint,) = here.stored(b"/calico/resources/v3/projectcalico.org/workloadendpoints/").values()
    assert b'"labels":{"holdfast/network":"red"}' in endpoint
