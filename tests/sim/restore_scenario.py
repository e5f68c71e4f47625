"""The shipped syncer and its judge of stores, in a fleet whose store and database are restored and wiped.

Servers lead, die and come back as in the syncer's scenario, and remember the store as real ones do. At any moment the
store goes back to an earlier revision or is empty, or the database to an earlier copy; at some later moment an operator
runs the adoption that the verdict asks for. At rest, with nothing left to adopt, the store is the inventory.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.inventory.sql.migrate import migrate
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.model.base.time import seconds
from holdfast.runtime.control import Declined, Request, Who
from holdfast.runtime.store_guard import StoreGuard
from holdfast.runtime.store_memory import StoreMemory
from holdfast.server.identity.verdict import LATCHED
from holdfast.server.syncer.adopt import AdoptCommands
from holdfast.server.syncer.term import SyncerTerm
from holdfast.server.syncer.witness import unwitnessed
from holdfast.store.api import StoreAway, StoreError, prefix_end
from holdfast.store.identity import SeenStore
from holdfast.testing import Node, World
from holdfast.testing.real.processes import folder
from tests.server.harness import differing
from tests.sim.election_invariants import InvariantBroken
from tests.sim.election_scenario import timings
from tests.sim.operators import edit
from tests.sim.restore_invariants import INVENTORY, LAYOUT, STORE, RestoredElection, RestoreInvariants, wanted
from tests.sim.server_faults import Fleet, inject_server_faults
from tests.sim.servers import REGION, Host
from tests.sim.syncer_scenario import Database, SyncingServer

TROUBLE = 40.0
REST = seconds(150)
_GUARD_EVERY = 2.0
_OPERATOR = Who(0, 1, "ops")
_YOUNG = 15
"""Revisions that a young backup of the store is old."""
_COPIES = 6


async def inline(work: Callable[[], None]) -> None:
    work()


class GuardedServer(SyncingServer):
    """A server that remembers the store on disk, as its elector's guard has seen it."""

    resync_interval = seconds(20)

    @property
    def memory(self) -> StoreMemory:
        state = self.database.folder / self.name
        state.mkdir(exist_ok=True)
        return StoreMemory(state, "server")

    def remembered(self) -> SeenStore | None:
        return self.memory.load()

    def _start_electing(self, node: Node) -> None:
        super()._start_electing(node)
        node.run(self._guard(node))

    async def _guard(self, node: Node) -> None:
        guard = StoreGuard(node.store(), REGION, self.memory, inline)
        while True:
            try:
                await guard.check(self.clock.now())
            except (StoreAway, StoreError) as error:
                self.world.note(f"{self.name} cannot judge the store: {error}")
            await asyncio.sleep(_GUARD_EVERY)


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """Counts of one run."""

    restores: int
    verdicts: int
    adoptions: int
    changes: int
    deletes: int


@dataclass
class RestoredFleet:
    """Everything of one run."""

    fleet: Fleet
    servers: list[GuardedServer]
    database: Database
    inventory: SqlInventory
    judge: RestoreInvariants
    copies: list[Path] = field(default_factory=list)
    made: int = 0
    """Copies of the database so far."""
    restores: int = 0
    adoptions: int = 0
    calm: bool = False

    @property
    def world(self) -> World:
        return self.fleet.world

    def copy_database(self) -> None:
        """Keep a copy of the database; of several, any may be put back."""
        if self.inventory.fleet() is not None:
            self.made += 1
            path = self.database.folder / f"copy-{self.made}.db"
            _copied(self.database.folder / "inventory.db", path)
            self.copies = [*self.copies[1 - _COPIES :], path]

    def restore_store(self) -> None:
        store, random = self.world.store, self.world.random
        oldest = max(1, store.keys.compacted)
        if random.random() < 0.6:
            oldest = max(oldest, store.revision - _YOUNG)
        self._renew_members()
        revision = random.randint(oldest, store.revision)
        self.world.note(f"the store goes back from revision {store.revision} to {revision}")
        store.restore(revision)
        self.judge.store_replaced()

    def wipe_store(self) -> None:
        self.world.note("the store is wiped")
        self._renew_members()
        self.world.store.wipe()
        self.judge.store_replaced(wiped=True)

    def restore_database(self) -> None:
        if not self.copies:
            return
        before = wanted(self.inventory)
        copy = self.world.random.choice(self.copies)
        for snapshot in self.database.snapshots:
            snapshot.close()
        self.database.snapshots.clear()
        self.world.note(f"the database goes back from revision {self.inventory.revision()}")
        _copied(copy, self.database.folder / "inventory.db")
        self.copies = [copy]  # a later copy is not one of this database
        self.world.note(f"the database went back to revision {self.inventory.revision()}")
        self.judge.database_replaced(before)

    def _renew_members(self) -> None:
        """A restored cluster has new members: none of them is stale."""
        for server in self.servers:
            for node in server.processes:
                for client in node.clients:
                    client.go_fresh()

    def stored(self) -> dict[bytes, bytes]:
        found = (one for prefix in LAYOUT.prefixes for one in self.world.store.keys.range(prefix, prefix_end(prefix)))
        return {entry.key: entry.value for entry in found}

    def differing(self) -> list[bytes]:
        return differing(REGION, self.stored(), wanted(self.inventory))

    def is_at_rest(self) -> bool:
        if self.judge.latched or self.judge.filling or self.inventory.fleet() is None or self.inventory.waiting():
            return False
        return not self.differing()


def _copied(from_file: Path, to_file: Path) -> None:
    source, target = sqlite3.connect(from_file), sqlite3.connect(to_file)
    try:
        source.backup(target)
    finally:
        source.close()
        target.close()


async def restore_scenario(world: World) -> RestoreResult:
    with folder() as home:
        database, servers = Database(home), list[GuardedServer]()
        try:
            migrate(database.connect())
            return await _run(world, database, servers)
        finally:
            for server in servers:
                server.reboot()
            database.close()


async def _run(world: World, database: Database, servers: list[GuardedServer]) -> RestoreResult:
    allowed = timings(world)
    for name in ["a", "b", "c"][: world.random.randint(2, 3)]:
        host = Host(world, f"host-{name}", wall_error=world.random.uniform(-500, 500))
        server = GuardedServer(world, name, host, "pid:host", allowed)
        server.database, server.world = database, world
        servers.append(server)
    fleet = Fleet(world, servers, RestoredElection(world, list(servers)))
    inventory = SqlInventory(database.connect())
    names = [server.name for server in servers]
    judge = RestoreInvariants(world, inventory, names, allowed.ttl.total_seconds() + 10)
    run = RestoredFleet(fleet, servers, database, inventory, judge)
    for server in servers:
        server.start()
    people = asyncio.create_task(edit(world, database.connect(), judge.told))
    others = [asyncio.create_task(work) for work in (_copy(run), _operate(run))]
    trouble = asyncio.create_task(_go_back(run))
    await inject_server_faults(fleet, lasting=TROUBLE)
    await trouble
    people.cancel()
    run.calm = True
    world.note("the trouble is over, and nobody edits any more")
    try:
        await world.until(run.is_at_rest, within=allowed.ttl + REST)
    except TimeoutError:
        raise InvariantBroken(_difference(run)) from None
    for task in others:
        task.cancel()
    return RestoreResult(run.restores, judge.verdicts, run.adoptions, inventory.revision(), judge.deletes)


def _difference(run: RestoredFleet) -> str:
    differ, judge = run.differing(), run.judge
    return (
        f"at rest {len(differ)} objects differ, such as {differ[:3]}; {run.inventory.waiting()} changes wait; verdict "
        f"{judge.latched!r}, {'filling' if judge.filling else 'full'}"
    )


async def _copy(run: RestoredFleet) -> None:
    while True:
        await asyncio.sleep(run.world.random.uniform(1, 8))
        run.copy_database()


async def _go_back(run: RestoredFleet) -> None:
    """Restore and wipe, up to three times; in some runs nothing, and then no verdict may be reached."""
    random = run.world.random
    for _ in range(random.choice([0, 1, 1, 1, 2, 2, 3])):
        await asyncio.sleep(random.uniform(2, 25))
        random.choice(
            [run.restore_store, run.restore_store, run.wipe_store, run.restore_database, run.restore_database]
        )()
        run.restores += 1


async def _operate(run: RestoredFleet) -> None:
    """Every now and then an operator looks at the status, and runs the adoption that it asks for."""
    random = run.world.stream("operator")
    while True:
        await asyncio.sleep(random.uniform(2, 10 if run.calm else 25))
        leader = run.fleet.leader
        server = next((one for one in run.servers if one is leader), None)
        if server is None or server.term is None or not server.writing.alive or server.writing.paused:
            continue
        closed = server.term.identity_gate.verdict.closed
        if closed is not None and closed in LATCHED:
            server.writing.run(_adopt(run, server.term, LATCHED[closed].value))
        elif run.calm and closed is None:
            _allow(run, server.term)


async def _adopt(run: RestoredFleet, term: SyncerTerm, verdict: str) -> None:
    side = {STORE: "store", INVENTORY: "inventory"}[verdict]
    try:
        await AdoptCommands(term).answer(
            Request("adopt", {"reason": "drill", "side": side, "keep": "inventory"}), _OPERATOR
        )
    except Declined as declined:
        run.world.note(f"the operator is declined: {declined}")
        return
    run.judge.asked[verdict] = True
    run.adoptions += 1
    run.world.note(f"the operator adopts the {side}")


def _allow(run: RestoredFleet, term: SyncerTerm) -> None:
    """Allow deletes without a witness: it may have been voided by an adoption, or lost with a copy of the database."""
    live = wanted(run.inventory)
    held = [change for change in unwitnessed(term.reconciler.ledger) if change.key not in live]
    if held:
        run.world.note(f"the operator allows {len(held)} deletes")
        term.witness.allow(held)
        term.reconciler.dirty.mark_all()
