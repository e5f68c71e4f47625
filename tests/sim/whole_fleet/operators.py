"""People of the whole fleet: they edit workloads, hosts and frontends, pause and drain, look at what is held, and adopt
a store that was restored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random

from sqlalchemy import Engine

from holdfast.config.sections.frontend import Backend, Frontend, Pool, PoolMember
from holdfast.config.sections.healthcheck import HealthCheck
from holdfast.inventory.changes import EditRefused, WantedObject, wanted
from holdfast.inventory.edit.editor import Editor
from holdfast.model.balancing import BACKEND, FRONTEND, HEALTH_CHECK
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointSpec
from holdfast.model.calico.host import HOST, Bgp, Host, HostSpec
from holdfast.runtime.control import Answer, Request
from holdfast.testing import World
from holdfast.testing.sim.daemon import SimDaemon
from tests.sim.whole_fleet.fleet import REGION, SimFleet

WORKLOADS = 12
FRONTENDS = 3
BACKENDS = 4
"""Backends by address; b0 always answers. One more, `on-spare`, runs on a host that may be drained."""
SPARE, ON_SPARE = "h9", "on-spare"
"""A host without an agent."""
BRAKES = ("syncer", "peers", "vips")
"""Workers with a brake."""

Changes = Sequence[WantedObject]
Ask = Callable[[Path, Request], Awaitable[Answer]]


class Operators:
    """Edits until cancelled; `edits` counts what was accepted."""

    def __init__(self, world: World, engine: Engine, hosts: Sequence[str], ask: Ask, fleet: SimFleet) -> None:
        self._world = world
        self._ask = ask
        self._editor = Editor(engine, REGION)
        self._hosts = hosts
        self._fleet = fleet
        self._random = world.stream("people")
        self.edits = 0

    def begin(self) -> None:
        """Make the hosts, and something to look at."""
        for number, name in enumerate(self._hosts):
            self._change([_host(name, number)])
        for number in range(WORKLOADS // 2):
            self._change([self._workload(number)])
        self._change(self._frontend(self._random))

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._random.uniform(0.1, 3))
            draw: Callable[[Random], Changes] = self._random.choices(
                [self._moved, self._gone, self._readdressed, self._frontend, self._withdrawn], weights=[9, 3, 1, 2, 1]
            )[0]
            self._change(draw(self._random))

    async def operate(self) -> None:
        """Pause a worker or a server, drain a host, each for a time; or look at what is held and in doubt."""
        random = self._world.stream("operators")
        while True:
            await asyncio.sleep(random.uniform(3, 20))
            do: Callable[[Random], Awaitable[None]] = random.choice(
                [self._pause_a_worker, self._pause_a_server, self._drain, self._look_after]
            )
            await do(random)

    async def look_after(self) -> None:
        """Let the deletes through that brakes hold, as after a look at what they are: they are the people's own. Adopt
        a store that was restored. End what was paused and drained for a time: clocks that went back make it longer."""
        for daemon, worker in self._places():
            await self._request(daemon, worker, "allow", reason="these are the deletes that were asked for")
        for server in self._fleet.servers.values():
            await self._request(server, "syncer", "adopt", reason="this is our store", side="store")
            await self._request(server, "elector", "resume")
            await self._request(server, "elector", "undrain-host", host=SPARE)
        for daemon, worker in self._places():
            await self._request(daemon, worker, "resume")

    async def _look_after(self, _random: Random) -> None:
        await self.look_after()

    async def _pause_a_worker(self, random: Random) -> None:
        daemon, worker = random.choice(self._places())
        await self._request(daemon, worker, "pause", reason="a look", **_some_time(random))

    async def _pause_a_server(self, random: Random) -> None:
        await self._request(self._server(random), "elector", "pause", reason="a look", **_some_time(random))

    async def _drain(self, random: Random) -> None:
        server, lasts = self._server(random), _some_time(random)
        await self._request(server, "elector", "drain-host", reason="works", host=SPARE, **lasts)

    def _server(self, random: Random) -> SimDaemon:
        return random.choice(list(self._fleet.servers.values()))

    def _places(self) -> list[tuple[SimDaemon, str]]:
        return [(daemon, worker) for daemon in self._fleet.daemons for worker in BRAKES if worker in daemon.workers]

    async def _request(self, daemon: SimDaemon, worker: str, do: str, **args: object) -> None:
        answer = await self._ask(daemon.paths.socket(worker), Request(do, dict(args)))
        if not answer.error:
            self._world.note(f"people {do} at {daemon.machine.name}/{worker}: {answer.result}")

    def _change(self, changes: Changes) -> None:
        try:
            edits = self._editor.change(changes, who="people")
        except EditRefused as refusal:
            self._world.note(f"people are refused: {refusal}")
            return
        self._fleet.asked.note(edits)
        self.edits += 1
        self._world.note(f"people change {', '.join(f'{one.kind.name} {one.name}' for one in changes)}")

    def _moved(self, random: Random) -> Changes:
        return [self._workload(random.randrange(WORKLOADS))]

    def _gone(self, random: Random) -> Changes:
        return [WantedObject(ENDPOINT, f"holdfast-w{random.randrange(WORKLOADS)}-eth0")]

    def _readdressed(self, random: Random) -> Changes:
        number = random.randrange(len(self._hosts))
        return [_host(self._hosts[number], number, generation=random.randrange(5))]

    def _workload(self, number: int) -> WantedObject:
        spec = EndpointSpec(
            orchestrator="holdfast",
            workload=f"w{number}",
            node=self._random.choice(self._hosts),
            endpoint="eth0",
            interface_name=f"tap-w{number}",
            ip_networks=(f"10.65.0.{number}/32",),
        )
        return wanted(ENDPOINT, REGION, spec.name, Endpoint.of(REGION, spec))

    def _frontend(self, random: Random) -> Changes:
        numbers = [0, *random.sample(range(1, BACKENDS), random.randint(0, BACKENDS - 1))]
        names = [f"b{number}" for number in numbers] + [ON_SPARE] * random.randint(0, 1)
        port = random.randrange(FRONTENDS)
        pool = Pool(backends={name: PoolMember(weight=random.randint(1, 100)) for name in names})
        frontend = Frontend(address="203.0.113.1", port=80 + port, pools=(pool,), table_size=1021)
        check = wanted(HEALTH_CHECK, REGION, "http", HealthCheck(type="http"))
        on_spare = wanted(BACKEND, REGION, ON_SPARE, Backend(host=SPARE, port=80, healthcheck=("http",)))
        return [wanted(FRONTEND, REGION, f"f{port}", frontend), check, *map(_backend, numbers), on_spare]

    def _withdrawn(self, random: Random) -> Changes:
        return [WantedObject(FRONTEND, f"f{random.randrange(FRONTENDS)}")]


def _some_time(random: Random) -> dict[str, object]:
    return {"for": f"{random.randint(2, 20)}s"}


def _host(name: str, number: int, *, generation: int = 0) -> WantedObject:
    spec = HostSpec(
        bgp=Bgp(ipv4_address=f"192.0.2.{10 * number + generation + 1}/24"),
        tunnel_ipv4=f"10.99.0.{number + 1}",
        tunnel_mac=f"66:00:00:00:00:{number + 1:02x}",
    )
    return wanted(HOST, REGION, name, Host.of(name, spec))


def _backend(number: int) -> WantedObject:
    return wanted(
        BACKEND, REGION, f"b{number}", Backend(address=f"198.51.100.{number + 1}", port=80, healthcheck=("http",))
    )
