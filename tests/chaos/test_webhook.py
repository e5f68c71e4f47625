"""Live migrations on a whole server: it hears of an arrival from etcd, and tells it to a real HTTP server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.inventory.edit import Editor
from holdfast.model.endpoint_status import ENDPOINT_STATUS, EndpointStatus, EndpointStatusName, State
from holdfast.model.migration import MIGRATION, Migration
from holdfast.model.region import Region
from holdfast.store.client import EtcdStore
from holdfast.store.gateway import Connection
from holdfast.testing.etcd import Cluster
from holdfast.testing.inventory import fresh_engine
from holdfast.testing.processes import wait_until
from holdfast.testing.servers import Controller
from tests.chaos.fleet import servers
from tests.chaos.test_status import endpoint, host, named, say
from tests.server.test_migration import Hook


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.close()


def arrive(cluster: Cluster, region: Region, number: int, on: str) -> None:
    """The workload is on its way to that host, and its agent there says that it is up."""
    migration = Migration.of(region, named(region, number), on)
    status = ENDPOINT_STATUS.key(region, EndpointStatusName.of(region, migration.target))

    async def put() -> None:
        store = EtcdStore(Connection(tuple(cluster.endpoints)))
        await store.put(MIGRATION.key(region, migration.target), MIGRATION.encode(migration))
        await store.put(status, ENDPOINT_STATUS.encode(EndpointStatus(State.UP)))
        await store.close()

    asyncio.run(put())


def told(server: Controller) -> tuple[int, int]:
    """Arrivals that were told, and that the webhook did not take, as `holdfast status` is answered."""
    said = server.ask("endpoint-status", "about")
    assert not said.error, said.error
    migrations = said.result.get("migrations", {"told": 0, "failing": 0})
    return migrations["told"], migrations["failing"]


def test_an_arrival_reaches_the_webhook_once_also_when_it_refuses_at_first_and_the_leader_is_killed(
    cluster: Cluster, tmp_path: Path, hook: Hook
) -> None:
    address = f"sqlite:///{tmp_path}/inventory.db"
    settings = {
        "inventory.database": address,
        "inventory.poll_every": "500ms",
        "status.webhook": hook.url,
    }
    hook.answers = [503]
    with fresh_engine(address) as engine, servers(cluster, 2, settings=settings) as fleet:
        region = fleet.region
        Editor(engine, region).change([host(region), endpoint(region, 1)], who="chaos")
        say(cluster, region, [1], State.UP)
        term, leader = fleet.wait_led()
        arrive(cluster, region, 1, "r2")
        wait_until(lambda: told(leader) == (1, 0), "the webhook has taken it and the server knows", within=60)
        leader.kill()
        _, heir = fleet.wait_led(after=term)
        wait_until(lambda: told(heir) == (1, 0), "the next leader knows that it was told", within=60)
    keys, notices = zip(*hook.heard, strict=True)
    assert len(keys) == 2, "refused once, taken once, and not told again by the next leader"
    assert len(set(keys)) == 1, "one migration has one idempotency key"
    assert (notices[-1]["event"], notices[-1]["to"]) == ("live-migration-arrived", "r2")
