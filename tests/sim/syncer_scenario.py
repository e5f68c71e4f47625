"""The shipped syncer in the simulated fleet: servers lead, die and come back, on one inventory that operators edit.

The inventory is SQLite; a call to it takes virtual time before and after, so that a process can be killed with its
change committed and its answer not received. At rest the store must hold exactly what the inventory has, whatever
happened; meanwhile only the server whose term it is writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Engine

from holdfast.config.sections.server import ServerSettings
from holdfast.inventory.kinds import KINDS
from holdfast.inventory.sql.engine import database_url, open_engine
from holdfast.inventory.sql.migrate import migrate
from holdfast.inventory.sql.objects import SqlInventory, SqlSnapshot
from holdfast.model.base.time import Duration, seconds
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.daemon.vitals import Vitals
from holdfast.runtime.decision_log import DecisionLog
from holdfast.runtime.intents.etcd import SYNCER, server_intents
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.server.election.leadership import Leadership, Leading
from holdfast.server.syncer.keys import RegionKeys
from holdfast.server.syncer.term import Syncer, SyncerTerm
from holdfast.store.api import Store, StoreAway, StoreError, prefix_end
from holdfast.store.identity import SeenStore
from holdfast.testing import Node, StoreWrite, World
from holdfast.testing.real.processes import folder
from tests.server.harness import differing
from tests.sim.election_invariants import ElectionInvariants, InvariantBroken
from tests.sim.election_scenario import timings
from tests.sim.operators import edit
from tests.sim.server_faults import Fleet, inject_server_faults
from tests.sim.servers import LEADER_KEY, REGION, Host, SimServer

T = TypeVar("T")
TROUBLE = 40.0
REST = seconds(60)
POLL = seconds(2)


class SimInventory(SqlInventory):
    """Closes at the end the connections that killed processes left open."""

    def __init__(self, engine: Engine, opened: list[SqlSnapshot]) -> None:
        super().__init__(engine)
        self._opened = opened

    def snapshot(self) -> SqlSnapshot:
        made = super().snapshot()
        self._opened.append(made)
        return made


@dataclass
class Database:
    """The one inventory of a simulated fleet."""

    folder: Path
    engines: list[Engine] = field(default_factory=list)
    snapshots: list[SqlSnapshot] = field(default_factory=list)
    logs: list[DecisionLog] = field(default_factory=list)

    def decisions(self, server: str, worker: str) -> DecisionLog:
        self.logs.append(made := DecisionLog(self.folder / server, worker))
        return made

    def connect(self) -> Engine:
        engine = open_engine(database_url(f"sqlite:///{self.folder}/inventory.db"))
        self.engines.append(engine)
        return engine

    def close(self) -> None:
        for snapshot in self.snapshots:
            snapshot.close()
        for log in self.logs:
            log.close()
        for engine in self.engines:
            engine.dispose()


class SimWaker:
    """Reports a change sometimes at once, sometimes not at all."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def wait(self, most: Duration) -> None:
        await asyncio.sleep(self._node.random.choice([0.05, most.total_seconds()]))

    async def close(self) -> None:
        return None


class SyncingServer(SimServer):
    """A server whose leader work is the syncer."""

    database: Database
    world: World
    term: SyncerTerm | None = None
    """The term that its writer begun last."""
    resync_interval = seconds(0)

    def remembered(self) -> SeenStore | None:
        """What this server remembers of the store."""
        return None

    def _work(self, leadership: Leadership, store: Store) -> Callable[[Leading], Awaitable[None]]:
        inventory = SimInventory(self.database.connect(), self.database.snapshots)

        async def aside(call: Callable[[], T]) -> T:
            await asyncio.sleep(self.world.usual_latency())
            answer = call()
            await asyncio.sleep(self.world.usual_latency())
            return answer

        async def work(said: Leading) -> None:
            try:
                confirmed = await leadership.confirm(store, LEADER_KEY)
            except (StoreAway, StoreError):
                return
            if not isinstance(confirmed, Leading) or confirmed.term != said.term:
                return
            self.term = term = await self._syncer(store, inventory, aside, leadership).begin(confirmed)
            brake = term.reconciler.place.brake
            assert brake is not None
            brake.allow(until=self.clock.now() + seconds(1e6))  # few objects, many deletes: not what is asked here
            await term.run(asyncio.Event())

        return work

    def _syncer(self, store: Store, inventory: SqlInventory, aside: object, leadership: Leadership) -> Syncer:
        decisions = self.database.decisions(self.name, "syncer")
        return Syncer(
            context=Context(self.clock, Vitals(self.clock), decisions, WorkerMetrics()),
            store=store,
            region=REGION,
            inventory=inventory,
            run_in_thread=aside,  # type: ignore[arg-type]
            waker=SimWaker(self.writing),
            leadership=leadership,
            seen_store=self.remembered,
            intents=server_intents(store, REGION, self.clock, self.database.folder / self.name, SYNCER),
            poll_every=POLL,
            resync_interval=self.resync_interval,
        )


@dataclass(frozen=True, slots=True)
class SyncerResult:
    """Counts of one run."""

    terms: int
    changes: int
    writes: int


async def syncer_scenario(world: World) -> SyncerResult:
    with folder() as home:  # in memory: a disk would take most of the time
        database = Database(home)
        try:
            migrate(database.connect())
            return await _run_syncers(world, database)
        finally:
            for server in _servers.pop(id(world), ()):
                server.reboot()
            database.close()


_servers: dict[int, list[SyncingServer]] = {}


async def _run_syncers(world: World, database: Database) -> SyncerResult:
    servers = _gather(world, timings(world), database)
    fleet = Fleet(world, servers, ElectionInvariants(world, list(servers)))
    writes = _check_writes(world, fleet)
    for server in servers:
        server.start()
    people = asyncio.create_task(edit(world, database.connect()))
    await inject_server_faults(fleet, lasting=TROUBLE)
    people.cancel()
    world.note("the trouble is over, and nobody edits any more")
    inventory = SqlInventory(database.connect())
    try:
        await world.until(lambda: _at_rest(world, inventory), within=servers[0].timings.ttl + REST)
    except TimeoutError:
        raise InvariantBroken(_difference(world, inventory)) from None
    return SyncerResult(len(fleet.judge.terms), _newest(inventory), len(writes))


def _gather(world: World, allowed: ServerSettings, database: Database) -> list[SyncingServer]:
    servers = []
    for name in ["a", "b", "c"][: world.random.randint(2, 3)]:
        host = Host(world, f"host-{name}", wall_error=world.random.uniform(-500, 500))
        server = SyncingServer(world, name, host, "pid:host", allowed)
        server.database, server.world = database, world
        servers.append(server)
    _servers[id(world)] = servers
    return servers


def _check_writes(world: World, fleet: Fleet) -> list[StoreWrite]:
    """Check that only the server whose term it is writes, and that no write leaves an object under two keys."""
    seen: list[StoreWrite] = []

    layout = RegionKeys(REGION, KINDS)

    def judge(write: StoreWrite) -> None:
        if not any(layout.has(event.key) for event in write.events):
            return
        seen.append(write)
        led = fleet.judge.led
        if led is None or not write.client.startswith(f"{led.server.name}/"):
            world.fail("the judge", InvariantBroken(f"{write.client} wrote without leading"))
        touched = {layout.individual(event.key) for event in write.events} - {None}
        keys = [key for key in _stored(world) if layout.individual(key) in touched] if touched else []
        if len(keys) > len({layout.individual(key) for key in keys}):
            world.fail("the judge", InvariantBroken(f"{write.client} left an object under two keys: {keys}"))

    world.store.observers.append(judge)
    return seen


def _wanted(inventory: SqlInventory) -> dict[bytes, bytes]:
    snapshot = inventory.snapshot()
    rows = snapshot.read(None, 10_000)
    snapshot.close()
    return {row.key: row.doc for row in rows}


def _stored(world: World) -> dict[bytes, bytes]:
    prefixes = RegionKeys(REGION, KINDS).prefixes
    found = (entry for prefix in prefixes for entry in world.store.keys.range(prefix, prefix_end(prefix)))
    return {entry.key: entry.value for entry in found}


def _at_rest(world: World, inventory: SqlInventory) -> bool:
    return inventory.waiting() == 0 and inventory.fleet() is not None and not _differing(world, inventory)


def _differing(world: World, inventory: SqlInventory) -> list[bytes]:
    return differing(REGION, _stored(world), _wanted(inventory))


def _difference(world: World, inventory: SqlInventory) -> str:
    differ = _differing(world, inventory)
    return f"{inventory.waiting()} changes wait and {len(differ)} objects differ at rest, such as {differ[:3]}"


def _newest(inventory: SqlInventory) -> int:
    snapshot = inventory.snapshot()
    newest = snapshot.revision()
    snapshot.close()
    return newest
