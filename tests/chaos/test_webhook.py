"""Live migrations on a whole server: begun with `holdfast apply`, and their arrival told to a real HTTP server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine, text

from holdfast.cli import main
from holdfast.inventory.edit.editor import Editor
from holdfast.model.base.bad import Bad
from holdfast.model.base.kind import Kind
from holdfast.model.base.region import Region
from holdfast.model.calico.agent_status import AGENT_STATUS, AgentStatus
from holdfast.model.calico.endpoint import ENDPOINT, EndpointName
from holdfast.model.calico.endpoint_status import ENDPOINT_STATUS, EndpointState, EndpointStatus, EndpointStatusName
from holdfast.model.calico.migration import MIGRATION
from holdfast.runtime.clock import SystemClock
from holdfast.testing.fakes.inventory import fresh_engine
from holdfast.testing.real.etcd import EtcdCluster
from holdfast.testing.real.processes import wait_until
from holdfast.testing.real.servers import ServerProcess
from tests.chaos.harness import answer, patient_store, servers
from tests.chaos.test_status import home, named
from tests.server.webhook_server import Hook


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.close()


def target(region: Region) -> str:
    """The host that the workload goes to."""
    return f"{region.name}-r2"


def fleet_file(region: Region, *, on: str, to: str | None = None) -> str:
    """Both hosts, one endpoint, and where it goes, as an operator writes it."""
    move = f"- {{kind: migration, name: holdfast-w1-eth0, spec: {{to: {to}}}}}\n" if to else ""
    return (
        f"- {{kind: host, name: {home(region)}, spec: {{bgp: {{ipv4Address: 192.0.2.1/24}}}}}}\n"
        f"- {{kind: host, name: {target(region)}, spec: {{bgp: {{ipv4Address: 192.0.2.2/24}}}}}}\n"
        "- kind: endpoint\n"
        f"  spec: {{node: {on}, workload: w1, endpoint: eth0, ipNetworks: [10.0.0.1]}}\n{move}"
    )


def apply(folder: Path, address: str, region: Region, wanted: str) -> list[str]:
    """Return the output of `holdfast apply`, once the store has the change."""
    file = folder / "fleet.yaml"
    file.write_text(wanted, encoding="utf-8")
    settings = ["--set", f"inventory.database={address}", "--set", f"store.region={region.name}"]
    told = CliRunner().invoke(main, ["apply", "-f", str(file), "--wait", *settings])
    assert told.exit_code == 0, told.output
    return told.stdout.splitlines()


def up_on(cluster: EtcdCluster, region: Region, host: str) -> None:
    """The agent of that host lives, and says that the endpoint is up there."""
    status = EndpointStatusName.of(region, named(region, 1)._replace(node=host))

    async def put() -> None:
        store = patient_store(cluster)
        await store.put(AGENT_STATUS.key(region, host), AGENT_STATUS.encode(AgentStatus.of(SystemClock().wall(), 1.0)))
        await store.put(ENDPOINT_STATUS.key(region, status), ENDPOINT_STATUS.encode(EndpointStatus(EndpointState.UP)))
        await store.close()

    asyncio.run(put())


def stored(cluster: EtcdCluster, kind: Kind[Any, EndpointName], region: Region) -> list[str]:
    """The hosts in the names of what the store has of a kind."""

    async def listed() -> list[str]:
        store = patient_store(cluster)
        keys = [entry.key async for page in store.list(kind.prefix(region)) for entry in page.entries]
        await store.close()
        names = [kind.parse(key, region) for key in keys]
        return [name.node for name in names if not isinstance(name, Bad)]

    return asyncio.run(listed())


def write_down_what_is_observed(engine: Engine) -> None:
    """Every status that is ever written stays in a table of its own, also one that lasts a moment only."""
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE ever (key BLOB, doc BLOB)"))
        for event in ("INSERT", "UPDATE"):
            noted = "INSERT INTO ever VALUES (new.key, new.doc);"
            where = "WHEN new.kind = 'endpoint'"
            connection.execute(text(f"CREATE TRIGGER ever_{event} AFTER {event} ON observed {where} BEGIN {noted} END"))


def ever_observed(engine: Engine) -> list[tuple[bytes, bytes]]:
    with engine.begin() as connection:
        return [(row.key, row.doc) for row in connection.execute(text("SELECT key, doc FROM ever"))]


def told(server: ServerProcess) -> tuple[int, int]:
    """Arrivals that were told, and that the webhook did not take, as `holdfast status` is answered."""
    migrations = answer(server, "endpoint-status", "about").get("migrations", {"notified": 0, "failing": 0})
    return migrations["notified"], migrations["failing"]


def test_an_arrival_reaches_the_webhook_once_also_when_it_refuses_at_first_and_the_leader_is_killed(
    cluster: EtcdCluster, tmp_path: Path, hook: Hook
) -> None:
    address = f"sqlite:///{tmp_path}/inventory.db"
    settings = {
        "inventory.database": address,
        "inventory.poll_every": "500ms",
        "status.webhook": hook.url,
    }
    hook.answers = [503]
    with fresh_engine(address), servers(cluster, 2, settings=settings) as fleet:
        region = fleet.region
        up_on(cluster, region, home(region))
        apply(tmp_path, address, region, fleet_file(region, on=home(region), to=target(region)))
        up_on(cluster, region, target(region))
        wait_until(lambda: told(fleet.leader()) == (1, 0), "the webhook has taken it and the server knows", within=60)
        term, leader = fleet.wait_led()
        leader.kill()
        fleet.wait_led(after=term)
        wait_until(lambda: told(fleet.leader()) == (1, 0), "the next leader knows that it was told", within=60)
        assert stored(cluster, MIGRATION, region) == [target(region)]
    keys, notices = zip(*hook.heard, strict=True)
    assert len(keys) == 2, "refused once, taken once, and not told again by the next leader"
    assert len(set(keys)) == 1, "one migration has one idempotency key"
    assert (notices[-1]["event"], notices[-1]["to"]) == ("live-migration-arrived", target(region))


def test_C24_C31_a_migration_from_apply_to_arrival_is_notified_once_and_its_endpoint_stays_active(
    cluster: EtcdCluster, tmp_path: Path, hook: Hook
) -> None:
    address = f"sqlite:///{tmp_path}/inventory.db"
    settings = {"inventory.database": address, "inventory.poll_every": "500ms", "status.webhook": hook.url}
    with fresh_engine(address) as engine, servers(cluster, 1, settings=settings) as fleet:
        region, editor = fleet.region, Editor(engine, fleet.region)
        here, there = home(region), target(region)
        write_down_what_is_observed(engine)
        up_on(cluster, region, here)
        apply(tmp_path, address, region, fleet_file(region, on=here))
        wait_until(lambda: len(ever_observed(engine)) == 1, "its status is known", within=60)
        assert apply(tmp_path, address, region, fleet_file(region, on=here, to=there)) == [
            "migration holdfast-w1-eth0 created"
        ]
        assert (stored(cluster, ENDPOINT, region), stored(cluster, MIGRATION, region)) == ([here], [there])
        up_on(cluster, region, there)
        wait_until(lambda: told(fleet.leader()) == (1, 0), "the webhook has taken it and the server knows", within=60)
        assert apply(tmp_path, address, region, fleet_file(region, on=there)) == [
            "endpoint holdfast-w1-eth0 moved",
            f"migration holdfast-w1-eth0 ended: the endpoint is on {there} now",
        ]
        assert (stored(cluster, ENDPOINT, region), stored(cluster, MIGRATION, region)) == ([there], [])
        assert editor.objects(MIGRATION) == []
        arrived = ENDPOINT_STATUS.key(region, EndpointStatusName.of(region, named(region, 1)._replace(node=there)))
        wait_until(lambda: ever_observed(engine)[-1][0] == arrived, "its status is that of the new host", within=60)
        assert {doc for _, doc in ever_observed(engine)} == {b'{"status":"ACTIVE"}'}
    ((_, notice),) = hook.heard
    assert (notice["endpoint"], notice["from"], notice["to"]) == ("holdfast-w1-eth0", here, there)
