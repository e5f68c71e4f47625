"""The shipped status workers in the simulated fleet: agents come and go, endpoints move, leaders die.

A server's second process keeps warm mirrors and, while it leads, both status terms, on one inventory that operators
edit. At rest the inventory must have the status of every agent and endpoint that follows from store and inventory;
meanwhile at most one item per object waits, and a takeover in a quiet fleet writes nothing.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from holdfast.inventory.api import DatabaseAway, Fence
from holdfast.inventory.changes import WantedObject, wanted
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.sql.migrate import migrate
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.inventory.sql.observed import SqlObserved
from holdfast.model.base import codec
from holdfast.model.base.time import seconds
from holdfast.model.calico.agent_status import AGENT_STATUS, AgentStatus
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointName, EndpointSpec
from holdfast.model.calico.endpoint_status import ENDPOINT_STATUS, EndpointState, EndpointStatus, EndpointStatusName
from holdfast.model.fleet.observed import AgentSeen, EndpointSeen, ObservedState
from holdfast.reconcile import Away
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.daemon.vitals import Vitals
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.runtime.tasks import until_first
from holdfast.server.election.leadership import Leadership, Leading
from holdfast.server.status import kinds
from holdfast.server.status.kinds import StatusKind
from holdfast.server.status.metrics import StatusMetrics
from holdfast.server.status.rules.staleness import Staleness
from holdfast.server.status.term import StatusTerm
from holdfast.store.api import Store, StoreAway, StoreError
from holdfast.testing import World
from holdfast.testing.store.client import FakeClient
from tests.sim.election_invariants import ElectionInvariants, InvariantBroken
from tests.sim.election_scenario import timings
from tests.sim.server_faults import Fleet, inject_server_faults
from tests.sim.servers import LEADER_KEY, REGION, Host, SimServer
from tests.sim.syncer_scenario import Database, SimWaker

T = TypeVar("T")
HOSTS = 4
OBJECTS = 15
PAGE = 4
"""Rows of a page, so that a pass has several also here."""
TROUBLE = 30.0
LOST = 0.2
"""Share of the calls to the database that are lost, half of them after they took effect."""
REST = seconds(120)
WORDS = {
    EndpointState.UP: ObservedState.ACTIVE,
    EndpointState.DOWN: ObservedState.DOWN,
    EndpointState.ERROR: ObservedState.ERROR,
}


@dataclass
class Counting:
    """Counts the writes of all leaders."""

    rows: int = 0
    peak: int = 0
    loses_answers: bool = True
    """The database now and then takes a call and loses the answer, or loses the call (C47)."""
    terms: list[StatusTerm[Any, Any]] = field(default_factory=list)


class CountingObserved(SqlObserved):
    counting: Counting

    def write(
        self, fence: Fence, kind: str, rows: Mapping[bytes, Sequence[bytes]], gone: Collection[bytes], at: datetime
    ) -> Mapping[bytes, str]:
        refused = super().write(fence, kind, rows, gone, at)
        self.counting.rows += sum(map(len, rows.values())) + len(gone)
        return refused


class ObservingServer(SimServer):
    """A server whose leader work is status; its mirrors are warm whether it leads or not."""

    database: Database
    world: World
    counting: Counting

    def _work(self, leadership: Leadership, store: Store) -> Callable[[Leading], Awaitable[None]]:
        engine = self.database.connect()
        observed, inventory = CountingObserved(engine), SqlInventory(engine)
        observed.counting = self.counting

        random = self.world.stream(f"database of {self.name}")

        async def aside(call: Callable[[], T]) -> T:
            await asyncio.sleep(self.world.usual_latency())
            lost = random.random() if self.counting.loses_answers else 1.0
            if lost < LOST / 2:
                raise DatabaseAway("the call was lost")
            answer = call()
            await asyncio.sleep(self.world.usual_latency())
            if lost < LOST:
                raise DatabaseAway("the answer was lost")
            return answer

        both: list[StatusKind[Any, Any]] = [
            kinds.agents(REGION, store, observed, aside, self.clock.now),
            kinds.endpoints(REGION, store, observed, aside, self.clock.now),
        ]
        for kind in both:
            self.writing.run(kind.mirror.run())

        async def work(said: Leading) -> None:
            try:
                confirmed = await leadership.confirm(store, LEADER_KEY)
                if not isinstance(confirmed, Leading) or confirmed.term != said.term:
                    return
                fence = Fence(REGION.segment, 1, said.term)
                await aside(lambda: inventory.raise_fence(fence))
            except (StoreAway, StoreError, Away):
                return
            terms = [self._term(kind, fence, leadership) for kind in both]
            for term in terms:
                term.target.page = PAGE
            self.counting.terms[:] = terms
            stopping = asyncio.Event()
            await until_first({term.rules.name: term.run(stopping) for term in terms} | {"watch": self._watch(terms)})

        return work

    async def _watch(self, terms: Sequence[StatusTerm[Any, Any]]) -> None:
        """Check rule 10: at most one item per object waits."""
        while True:
            self.counting.peak = max(self.counting.peak, *(term.backlog() for term in terms))
            await asyncio.sleep(0.2)

    def _term(self, kind: StatusKind[Any, Any], fence: Fence, leadership: Leadership) -> StatusTerm[Any, Any]:
        decisions = self.database.decisions(self.name, "status")
        context = Context(self.clock, Vitals(self.clock), decisions, WorkerMetrics())
        return StatusTerm(
            context,
            kind,
            fence,
            waker=SimWaker(self.writing),
            leadership=leadership,
            metrics=StatusMetrics(context.metrics.registry),
            staleness=Staleness(),
            audit_every=5 * REST,  # what was overlooked must not be mended by it
            poll_every=seconds(2),
        )


@dataclass(frozen=True, slots=True)
class StatusResult:
    """Counts of one run."""

    terms: int
    rows: int
    peak: int
    after_takeover: int


async def status_scenario(world: World) -> StatusResult:
    with tempfile.TemporaryDirectory(prefix="holdfast-sim-") as folder:
        database = Database(Path(folder))
        servers: list[ObservingServer] = []
        try:
            migrate(database.connect())
            return await _run_status(world, database, servers)
        finally:
            for server in servers:
                server.reboot()
            database.close()


async def _run_status(world: World, database: Database, servers: list[ObservingServer]) -> StatusResult:
    counting = Counting()
    _gather(world, database, counting, servers)
    fleet = Fleet(world, servers, ElectionInvariants(world, list(servers)))
    for server in servers:
        server.start()
    client = world.connect("agents")
    tasks = [asyncio.create_task(one) for one in (_report(world, client), _edit(world, database))]
    await inject_server_faults(fleet, lasting=TROUBLE)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    observed = SqlObserved(database.connect())
    world.note("the trouble is over; endpoints flap once more, and nothing changes any more")
    bound = map(_status_key_of, observed.wanted(ENDPOINT.prefix(REGION), None, 1_000))
    await asyncio.gather(*(_flap(client, world.stream(f"flapping {key!r}"), key) for key in bound))
    counting.loses_answers = False
    await _rest(world, observed, SqlInventory(observed.engine))
    rows = counting.rows
    await _take_over(world, fleet, counting)
    return StatusResult(len(fleet.judge.terms), rows, counting.peak, counting.rows - rows)


def _gather(world: World, database: Database, counting: Counting, servers: list[ObservingServer]) -> None:
    allowed = timings(world)
    for name in ["a", "b", "c"][: world.random.randint(2, 3)]:
        host = Host(world, f"host-{name}", wall_error=world.random.uniform(-500, 500))
        server = ObservingServer(world, name, host, "pid:host", allowed)
        server.database, server.world, server.counting = database, world, counting
        servers.append(server)


async def _report(world: World, client: FakeClient) -> None:
    """Agents that live, die, and report endpoints, also such that are not on their host."""
    random = world.stream("agents")
    while True:
        await asyncio.sleep(random.uniform(0.02, 0.5))
        host = f"h{random.randrange(HOSTS)}"
        key = _status_key(random.randrange(OBJECTS), host)
        try:
            match random.randrange(12):
                case 0:
                    await client.delete(AGENT_STATUS.key(REGION, host))
                case 1 | 2 | 3:
                    status = AgentStatus.of(world.node("host-a").clock.wall(), world.time)
                    await client.put(AGENT_STATUS.key(REGION, host), AGENT_STATUS.encode(status))
                case 4:
                    await client.delete(key)
                case 5:
                    await client.put(key, random.choice([b"[]", b'"up"', b"\xff"]))
                case 6 | 7:
                    await _flap(client, random, key)
                case _:
                    await client.put(key, ENDPOINT_STATUS.encode(EndpointStatus(random.choice(list(EndpointState)))))
        except (StoreAway, StoreError) as error:
            world.note(f"an agent cannot report: {error}")


async def _flap(client: FakeClient, random: Random, key: bytes) -> None:
    """Flap an endpoint faster than its status can be written."""
    for _ in range(random.randrange(3, 6)):
        await client.put(
            key, ENDPOINT_STATUS.encode(EndpointStatus(random.choice([EndpointState.UP, EndpointState.DOWN])))
        )
        await asyncio.sleep(random.uniform(0.0, 0.2))


async def _edit(world: World, database: Database) -> None:
    editor, random = Editor(database.connect(), REGION), world.stream("people")
    while True:
        await asyncio.sleep(random.uniform(0.05, 1.5))
        number = random.randrange(OBJECTS)
        gone = WantedObject(ENDPOINT, f"holdfast-w{number}-eth0")
        editor.change([gone if random.random() < 0.25 else _endpoint(number, random.randrange(HOSTS))], who="people")


def _endpoint(number: int, host: int) -> WantedObject:
    spec = EndpointSpec(
        orchestrator="holdfast",
        workload=f"w{number}",
        node=f"h{host}",
        endpoint="eth0",
        ip_networks=(f"10.0.0.{number}/32",),
    )
    return wanted(ENDPOINT, REGION, spec.name, Endpoint.of(REGION, spec))


def _status_key(number: int, host: str) -> bytes:
    name = EndpointName(host, "holdfast", f"w{number}", "eth0")
    return ENDPOINT_STATUS.key(REGION, EndpointStatusName.of(REGION, name))


async def _rest(world: World, observed: SqlObserved, inventory: SqlInventory) -> None:
    try:
        await world.until(lambda: not _wrong(world, observed, inventory), within=REST)
    except TimeoutError:
        raise InvariantBroken(f"status is wrong at rest: {_wrong(world, observed, inventory)[:3]}") from None


def _wrong(world: World, observed: SqlObserved, inventory: SqlInventory) -> list[str]:
    """Return the differences between the inventory's status and what follows from both sides."""
    prefix = AGENT_STATUS.prefix(REGION)
    stored = {entry.key: entry.value for entry in world.store.keys.range(prefix, prefix + b"\xff")}
    present = {key for key in stored if key.endswith(b"/status")}
    seen = {one.key: one.doc for one in observed.read("agent", prefix, None, 1_000)}
    found = [f"agent {key!r}" for key in seen.keys() ^ present]
    found += [f"report of {key!r}" for key in seen.keys() & present if seen[key] != _alive(key, stored[key])]
    rows = {one.key: one.doc for one in observed.read("endpoint", prefix, None, 1_000)}
    bound = set(map(_status_key_of, observed.wanted(ENDPOINT.prefix(REGION), None, 1_000)))
    found += [f"row of {key!r}" for key in rows.keys() ^ bound]
    for key in rows.keys() & bound:
        expected = _expected(key, stored, present)
        if rows[key] not in expected:
            found.append(f"{key!r} is {rows[key]!r}, not one of {expected!r}")
    return found


def _alive(key: bytes, value: bytes) -> bytes:
    status = AGENT_STATUS.decode(key, value)
    assert isinstance(status, AgentStatus)
    return codec.encode(AgentSeen(True, status.time or "", status.uptime))


def _expected(key: bytes, stored: dict[bytes, bytes], present: set[bytes]) -> Collection[bytes]:
    """Return the allowed statuses: one, except where the last status is kept."""
    start = len(AGENT_STATUS.prefix(REGION))
    host = key[: key.index(b"/", start)]
    if host + b"/status" not in present:
        return [codec.encode(EndpointSeen(word, known=False)) for word in ObservedState]
    if key not in stored:
        return [codec.encode(EndpointSeen(ObservedState.DOWN))]
    said = ENDPOINT_STATUS.decode(key, stored[key])
    if not isinstance(said, EndpointStatus):
        return [codec.encode(EndpointSeen(word)) for word in ObservedState]
    return [codec.encode(EndpointSeen(WORDS[said.status]))]


def _status_key_of(key: bytes) -> bytes:
    name = ENDPOINT.parse(key, REGION)
    assert isinstance(name, EndpointName)
    return _status_key(int(name.workload[1:]), name.node)


async def _take_over(world: World, fleet: Fleet, counting: Counting) -> None:
    """Kill the leader in a quiet fleet, and let another server take over."""
    await world.until(lambda: fleet.leader is not None, within=REST)
    leader = fleet.leader
    assert leader is not None
    before = list(counting.terms)
    leader.reboot()
    world.note(f"{leader.name} falls over")

    def taken_over() -> bool:
        return counting.terms[0] not in before and all(term.reconciler.passes for term in counting.terms)

    await world.until(taken_over, within=REST)
    await asyncio.sleep(30)
