"""Reports to the inventory on real processes: the leader is killed, and its successor writes only what differs."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.inventory.changes import WantedObject, wanted
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.sql.observed import SqlObserved
from holdfast.model.base.region import Region
from holdfast.model.calico.agent_status import AGENT_STATUS, AgentStatus
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointName, EndpointSpec
from holdfast.model.calico.endpoint_status import ENDPOINT_STATUS, EndpointState, EndpointStatus, EndpointStatusName
from holdfast.model.calico.host import HOST, Bgp, Host, HostSpec
from holdfast.runtime.clock import SystemClock
from holdfast.testing.fakes.inventory import fresh_engine
from holdfast.testing.real.etcd import EtcdCluster
from holdfast.testing.real.postgres import Postgres
from holdfast.testing.real.processes import wait_until
from holdfast.testing.real.servers import ServerProcess
from tests.chaos.harness import SHIPPED_TIMINGS, answer, module_command, patient_store, servers, step_down

PORTION = 100
WORKERS = ("agent-status", "endpoint-status")


def home(region: Region) -> str:
    """The one host of a region. Hosts of all regions stand side by side in the store, and this one is its region's."""
    return f"{region.name}-r1"


def host(region: Region) -> WantedObject:
    name = home(region)
    return wanted(HOST, region, name, Host.of(name, HostSpec(bgp=Bgp(ipv4_address="192.0.2.1/24"))))


def endpoint(region: Region, number: int) -> WantedObject:
    name = named(region, number)
    spec = EndpointSpec(
        orchestrator="holdfast",
        workload=name.workload,
        node=name.node,
        endpoint=name.endpoint,
        ip_networks=(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}/32",),
    )
    return wanted(ENDPOINT, region, name, Endpoint.of(region, spec))


def named(region: Region, number: int) -> EndpointName:
    return EndpointName(home(region), "holdfast", f"w{number}", "eth0")


def say(cluster: EtcdCluster, region: Region, numbers: Sequence[int], state: EndpointState) -> None:
    """Write the reports of that host's agent: that it is alive, and the status of these endpoints."""
    value = ENDPOINT_STATUS.encode(EndpointStatus(state))
    keys = [ENDPOINT_STATUS.key(region, EndpointStatusName.of(region, named(region, number))) for number in numbers]

    async def put() -> None:
        store = patient_store(cluster)
        alive = AgentStatus.of(SystemClock().wall(), 1.0)
        await store.put(AGENT_STATUS.key(region, home(region)), AGENT_STATUS.encode(alive))
        for first in range(0, len(keys), PORTION):
            await asyncio.gather(*(store.put(key, value) for key in keys[first : first + PORTION]))
        await store.close()

    asyncio.run(put())


def words(observed: SqlObserved, region: Region) -> dict[bytes, bytes]:
    prefix = ENDPOINT_STATUS.prefix(region)
    return {seen.key: seen.doc for seen in observed.read("endpoint", prefix, None, 1_000_000)}


def written(server: ServerProcess, worker: str) -> int:
    """Return the number of rows that the worker has written since its start."""
    said = answer(server, worker, "metrics")
    found = re.findall(r'holdfast_changes_total\{op="\w+",outcome="applied"\} (\d+)', str(said))
    return sum(map(int, found))


@pytest.mark.parametrize("count", [300, pytest.param(20_000, marks=pytest.mark.soak)])
def test_C16_the_leader_is_killed_and_the_next_one_writes_only_what_differs(
    cluster: EtcdCluster, tmp_path: Path, count: int
) -> None:
    address = f"sqlite:///{tmp_path}/inventory.db"
    settings = {"inventory.database": address, "inventory.poll_every": "500ms", **SHIPPED_TIMINGS}
    with fresh_engine(address) as engine, servers(cluster, 2, settings=settings) as fleet:
        region, observed = fleet.region, SqlObserved(engine)
        Editor(engine, region).change([host(region), *(endpoint(region, n) for n in range(count))], who="chaos")
        say(cluster, region, range(count), EndpointState.UP)
        wait_until(
            lambda: list(words(observed, region).values()).count(b'{"status":"ACTIVE"}') == count,
            "every endpoint is ACTIVE",
            within=120,
        )
        term, old = fleet.wait_led()
        (heir,) = fleet.others(old)
        before = written(heir, "endpoint-status")
        old.kill()
        say(cluster, region, range(7), EndpointState.ERROR)
        fleet.wait_led(after=term)
        wait_until(
            lambda: list(words(observed, region).values()).count(b'{"status":"ERROR"}') == 7,
            "what changed while nobody led is known",
            within=60,
        )
        wait_until(lambda: written(heir, "endpoint-status") - before >= 7, "the worker has counted them", within=10)
        assert written(heir, "endpoint-status") - before == 7
        # The agents' worker is another one: nothing orders its first word before the endpoints'.
        wait_until(
            lambda: any(
                seen.key == AGENT_STATUS.key(region, home(region)) and b'"alive":true' in seen.doc
                for seen in observed.read("agent", AGENT_STATUS.prefix(region), None, 10)
            ),
            "the next leader says that the agent lives",
            within=30,
        )
        old.start()


def test_a_pause_follows_a_takeover_and_is_ended_at_any_server(cluster: EtcdCluster, tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/inventory.db"
    settings = {"inventory.database": address, "inventory.poll_every": "500ms", **SHIPPED_TIMINGS}
    with fresh_engine(address) as engine, servers(cluster, 2, settings=settings) as fleet:
        region, observed = fleet.region, SqlObserved(engine)
        Editor(engine, region).change([host(region), endpoint(region, 1)], who="chaos")
        say(cluster, region, [1], EndpointState.UP)
        wait_until(lambda: b'{"status":"ACTIVE"}' in words(observed, region).values(), "it is ACTIVE", within=60)
        term, old = fleet.wait_led()
        (heir,) = fleet.others(old)
        assert not old.ask("endpoint-status", "pause", reason="looking at it").error
        say(cluster, region, [1], EndpointState.ERROR)
        wait_until(lambda: held(old) == {"intent": 1}, "the leader has heard of it")
        step_down(old)
        fleet.wait_led(after=term)
        wait_until(lambda: held(heir) == {"intent": 1}, "its successor obeys")
        assert not heir.says("watch has not caught up with the beginning of the term")
        assert list(words(observed, region).values()) == [b'{"status":"ACTIVE"}']
        assert not old.ask("endpoint-status", "resume").error
        wait_until(lambda: b'{"status":"ERROR"}' in words(observed, region).values(), "it goes on", within=30)
        assert "is not paused" in heir.ask("endpoint-status", "resume").error


def held(server: ServerProcess) -> Any:
    """Return the gates that hold changes of the server's endpoint-status, with counts."""
    return (server.ask("endpoint-status", "held").result or {}).get("gates")


def test_C25_postgresql_frozen_under_a_leader_is_waited_for_and_nothing_restarts(
    cluster: EtcdCluster, postgres: Postgres
) -> None:
    address = postgres.create_database()
    settings = {
        "inventory.database": address.replace("postgresql+psycopg:", "postgresql:"),
        "inventory.poll_every": "500ms",
        **SHIPPED_TIMINGS,
    }
    impatient = partial(module_command, module="tests.chaos.short_silence")
    with fresh_engine(address) as engine, servers(cluster, 1, settings=settings, command=impatient) as fleet:
        region, observed = fleet.region, SqlObserved(engine)
        Editor(engine, region).change([host(region), endpoint(region, 1)], who="chaos")
        say(cluster, region, [1], EndpointState.UP)
        wait_until(lambda: b'{"status":"ACTIVE"}' in words(observed, region).values(), "it is ACTIVE", within=60)
        term, server = fleet.wait_led()
        before = {name: server.worker(name) for name in WORKERS}
        postgres.process.signal_tree(signal.SIGSTOP)
        try:
            say(cluster, region, [1], EndpointState.ERROR)
            wait_until(
                lambda: {server.state(name) for name in WORKERS} == {"waiting: database"},
                "both status workers wait for the database",
                within=30,
            )
        finally:
            postgres.process.signal_tree(signal.SIGCONT)
        wait_until(lambda: b'{"status":"ERROR"}' in words(observed, region).values(), "it is ERROR", within=30)
        wait_until(lambda: {server.state(name) for name in WORKERS} == {"ok"}, "both work again", within=30)
        assert {name: server.worker(name) for name in WORKERS} == before
        assert fleet.wait_led()[0] == term
