"""A whole fleet of real daemons on one machine, without root: servers and agents as an operator runs them.

    with real_fleet(cluster, database, servers=1, hosts=2) as fleet:
        fleet.change([host(1), host(2), endpoint(1, 7)])
        fleet.wait_settled()

Agents program files, which `fleet.kernels` names. All runtime folders are below `fleet.runtime`, where `holdfast`
commands find all daemons, as in a lab.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Engine

from holdfast.agent.claims import LocalRoute, RemoteRoute, Shape, route
from holdfast.inventory.changes import WantedObject, wanted
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.kinds import KINDS
from holdfast.inventory.sql.engine import database_url, open_engine
from holdfast.inventory.sql.migrate import migrate
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.inventory.sql.observed import SqlObserved
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointSpec
from holdfast.model.calico.endpoint_status import ENDPOINT_STATUS
from holdfast.model.calico.host import HOST, Bgp, Host, HostSpec
from holdfast.store.api import StoreAway
from holdfast.store.client import EtcdStore
from holdfast.store.transport.gateway import Connection
from holdfast.testing.real.daemon import HOLDFAST, PATIENCE
from holdfast.testing.real.etcd import EtcdCluster
from holdfast.testing.real.kernel_recorder import read_kernel
from holdfast.testing.real.processes import Process, folder, wait_until
from holdfast.testing.real.servers import QUICK, ServerGroup, ServerProcess

REGION = Region()
_ACTIVE = b'{"status":"ACTIVE"}'
_AGENT_SETTINGS = {"agent.report_interval": "1s", "agent.report_ttl": "60s", "agent.dataplane.kind": "memory"}


def host(number: int) -> WantedObject:
    """Return the host of that number, reached directly."""
    spec = HostSpec(bgp=Bgp(ipv4_address=f"{underlay(number)}/24"))
    return wanted(HOST, REGION, host_name(number), Host.of(host_name(number), spec))


def host_name(number: int) -> str:
    return f"h{number}"


def underlay(number: int) -> str:
    return f"192.0.2.{number}"


def endpoint(node: int, number: int, generation: int = 0) -> WantedObject:
    """Return the workload of that number on the host of the other. Its address follows from its number; another
    generation is another workload with the same address."""
    spec = EndpointSpec(
        orchestrator="holdfast",
        workload=f"w{number}g{generation}",
        node=host_name(node),
        endpoint="eth0",
        interface_name=_interface(number, generation),
        ip_networks=(address(number),),
    )
    return wanted(ENDPOINT, REGION, spec.name, Endpoint.of(REGION, spec))


def _interface(number: int, generation: int) -> str:
    return f"tap{number}g{generation}"


def address(number: int) -> str:
    return f"10.28.{number >> 8}.{number & 255}/32"


def deleted(one: WantedObject) -> WantedObject:
    """Return the edit that deletes this object."""
    return WantedObject(one.kind, one.name)


class Placed(NamedTuple):
    """The workload that has an address now: its host, and how many workloads had that address before it."""

    node: int
    generation: int = 0


class RealFleet(ServerGroup):
    """Servers and agents with their folders below `home`; agents are `agents`, by host."""

    def __init__(
        self,
        cluster: EtcdCluster,
        database: str,
        home: Path,
        *,
        servers: int,
        hosts: int,
        settings: Mapping[str, str] = {},
        program: Sequence[str] = HOLDFAST,
    ) -> None:
        """`settings` are for every daemon, and so is `program` until `restart_as`."""
        self.home, self.database, self._settings = home, database.replace("+psycopg", ""), settings
        self._program = program
        self.runtime = home / "run"
        self._endpoints = cluster.endpoints
        self._programs: dict[str, Sequence[str]] = {}
        self.kernels = {host_name(number): home / f"{host_name(number)}.kernel.json" for number in range(1, hosts + 1)}
        self.agents = {name: self._agent(name) for name in self.kernels}
        members = [self._server(f"s{number}") for number in range(1, servers + 1)]
        super().__init__(cluster, REGION, members)
        self.engine: Engine = open_engine(database_url(database))
        self.editor, self.inventory = Editor(self.engine, REGION), SqlInventory(self.engine)
        self.observed = SqlObserved(self.engine)
        self.live: dict[int, Placed] = {}
        """The workloads that the inventory has, as this fleet was told to change it."""

    def _server(self, name: str, **settings: str) -> ServerProcess:
        given = {"server.name": name, "inventory.database": self.database, "inventory.poll_every": "500ms", **QUICK}
        command = self.command("server", name, {**given, **settings})
        return ServerProcess(name, self.home / name, command, runtime=self.runtime / name)

    def _agent(self, name: str) -> Process:
        given = {"agent.host": name, "agent.dataplane.file": str(self.kernels[name]), **_AGENT_SETTINGS}
        return Process(self.command("agent", name, given), log=self.home / f"{name}.log")

    def command(self, role: str, name: str, settings: Mapping[str, str]) -> Sequence[str]:
        """Return the command of a daemon of this fleet."""
        own = {
            "paths.runtime": str(self.runtime / name),
            "paths.state": str(self.home / "state" / name),
            "store.endpoints": ",".join(self._endpoints),
            **self._settings,
            **settings,
        }
        program = self._programs.get(name, self._program)
        return [*program, role, *(word for field, value in own.items() for word in ("--set", f"{field}={value}"))]

    def restart_as(self, name: str, program: Sequence[str]) -> None:
        """Stop a server or an agent in order, and start it as another program: an upgrade, or a way back."""
        self._programs[name] = program
        if name in self.agents:
            self.agents[name].stop(within=PATIENCE)
            self.agents[name] = self._agent(name)
            self.agents[name].start()
            return
        server = next(one for one in self.members if one.name == name)
        server.process.stop(within=PATIENCE)
        server.process = self._server(name).process
        server.start()

    def change(self, objects: Sequence[WantedObject], why: str = "") -> None:
        """Edit the inventory as `holdfast apply` does."""
        self.editor.change(objects, who="drill", why=why)

    def place(self, workloads: Mapping[int, int | None]) -> None:
        """Create or move each of these workloads to a host; None deletes it."""
        edits = []
        for number, node in workloads.items():
            before = self.live.pop(number, Placed(0))
            if node is None:
                edits.append(deleted(endpoint(before.node, number, before.generation)))
            else:
                self.live[number] = Placed(node, before.generation)
                edits.append(endpoint(node, number, before.generation))
        self.change(edits)

    def reuse_addresses(self, workloads: Mapping[int, int]) -> None:
        """Delete each of these workloads, and give its address to a new one on that host."""
        old = {number: self.live[number] for number in workloads}
        self.place(dict.fromkeys(workloads))
        self.live |= {number: Placed(node, old[number].generation + 1) for number, node in workloads.items()}
        self.change([endpoint(node, number, self.live[number].generation) for number, node in workloads.items()])

    def wait_settled(self) -> None:
        """Wait until store and agents have what the inventory wants, and no more."""
        self._wait(lambda: self.inventory.waiting() == 0, "the outbox is empty")
        self._wait(lambda: self.stored() == self.wanted(), "the store has what is wanted")
        self._wait(lambda: not self.wrong_routes(), "the agents have what is wanted")
        self._wait(lambda: not self.not_active(), "every workload is reported ACTIVE")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait as long as no daemon has failed."""

        def met() -> bool:
            for daemon in (*(one.process for one in self.members), *self.agents.values()):
                if not daemon.alive or "is crash-looping" in daemon.output:
                    raise RuntimeError(f"a daemon has failed: {daemon.output[-4000:]}")
            return condition()

        wait_until(met, what, within=PATIENCE)

    def wrong_routes(self) -> list[str]:
        """Return the routes to workloads that an agent lacks, has too many, or has to the wrong place."""
        found = []
        for number, name in enumerate(self.kernels, 1):
            kernel = {
                key: shape
                for key, shape in read_kernel(self.kernels[name]).items()
                if isinstance(shape, LocalRoute | RemoteRoute) and key.text.startswith("10.28.")
            }
            right = {route(address(workload)): _shape(workload, at, number) for workload, at in self.live.items()}
            found += [f"{name}: {key}" for key in right.keys() | kernel.keys() if right.get(key) != kernel.get(key)]
        return found

    def not_active(self) -> list[bytes]:
        """Return the keys of the workloads that the inventory does not know to be up."""
        rows = self.observed.read("endpoint", ENDPOINT_STATUS.prefix(REGION), None, 1_000_000)
        down = [row.key for row in rows if row.doc != _ACTIVE]
        return down or [b"not reported"] * (len(self.live) - len(rows))

    def wanted(self) -> Mapping[bytes, bytes]:
        """Return the documents that the inventory wants in the store, by key."""
        snapshot = self.inventory.snapshot()
        try:
            return {row.key: row.doc for row in snapshot.read(None, 1_000_000)}
        finally:
            snapshot.close()

    def stored(self) -> Mapping[bytes, bytes]:
        """Return the objects of the inventory's kinds that the store has, by key."""
        return stored_objects(self.cluster)


def stored_objects(cluster: EtcdCluster) -> Mapping[bytes, bytes]:
    """Return the objects of the inventory's kinds that an etcd has, by key."""

    async def read() -> dict[bytes, bytes]:
        store = EtcdStore(Connection(tuple(cluster.endpoints)))
        try:
            pages = [page for kind in KINDS async for page in store.list(kind.prefix(REGION))]
        finally:
            await store.close()
        return {entry.key: entry.value for page in pages for entry in page.entries}

    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return asyncio.run(read())
        except StoreAway:  # an etcd that has just been restored on a busy machine
            if time.monotonic() > deadline:
                raise


def _shape(workload: int, at: Placed, here: int) -> Shape:
    return LocalRoute(_interface(workload, at.generation)) if at.node == here else RemoteRoute(underlay(at.node))


@contextlib.contextmanager
def real_fleet(
    cluster: EtcdCluster,
    database: str,
    *,
    servers: int = 1,
    hosts: int = 2,
    settings: Mapping[str, str] = {},
    program: Sequence[str] = HOLDFAST,
) -> Iterator[RealFleet]:
    """Run servers and agents on this etcd and this database until the block ends."""
    with folder() as home:
        fleet = RealFleet(cluster, database, home, servers=servers, hosts=hosts, settings=settings, program=program)
        try:
            migrate(fleet.engine)
            fleet.change([host(number) for number in range(1, hosts + 1)])
            for server in fleet.members:
                server.start()
            for agent in fleet.agents.values():
                agent.start()
            yield fleet
        finally:
            for server in fleet.members:
                if server.process.alive:
                    server.kill()
            for agent in fleet.agents.values():
                if agent.alive:
                    agent.kill_tree()
            fleet.engine.dispose()
