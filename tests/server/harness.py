"""Syncer and status workers that a test steps: a store in memory, an inventory on SQLite, a clock that the test moves.

`syncer_harness` has a syncer, `status_harness` status workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
from sqlalchemy import Engine

from holdfast.inventory.api import Fence
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.kinds import KINDS
from holdfast.inventory.sql.engine import database_url, open_engine
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.inventory.sql.observed import SqlObserved
from holdfast.model.base.region import Region
from holdfast.model.base.time import NEVER, Duration, Instant, seconds
from holdfast.model.calico.agent_status import AGENT_STATUS, AgentStatus
from holdfast.model.calico.endpoint import EndpointName
from holdfast.model.calico.endpoint_status import ENDPOINT_STATUS, EndpointState, EndpointStatus, EndpointStatusName
from holdfast.model.control.leader import LEADER
from holdfast.model.fleet.observed import AgentSeen, EndpointSeen
from holdfast.runtime.clock import Clock
from holdfast.runtime.daemon.board import Cell
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.daemon.vitals import Vitals
from holdfast.runtime.decision_log import Decision, DecisionLog, history
from holdfast.runtime.intents.etcd import SYNCER, EtcdIntents, server_intents
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.server.election.leadership import Leadership, LeadershipCell, Leading, TermEnded
from holdfast.server.identity.gate import IdentityCell, StatusIdentityGate
from holdfast.server.status import kinds
from holdfast.server.status.kinds import StatusKind
from holdfast.server.status.metrics import StatusMetrics
from holdfast.server.status.rules.staleness import Staleness
from holdfast.server.status.term import StatusTerm
from holdfast.server.syncer.keys import RegionKeys
from holdfast.server.syncer.term import Syncer, SyncerTerm
from holdfast.store.api import Entry
from holdfast.store.identity import SeenStore
from holdfast.testing import FakeStore
from holdfast.testing.fakes.inventory import fresh_engine
from holdfast.testing.store.client import FakeClient
from tests.inventory.harness import REGION

T = TypeVar("T")
V = TypeVar("V", bound=msgspec.Struct)
A = TypeVar("A")
START = datetime(2026, 1, 1, tzinfo=UTC)


class HandClock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.passed = seconds(1_000)

    def now(self) -> Instant:
        return NEVER + self.passed

    def wall(self) -> datetime:
        return START + timedelta(seconds=self.passed.total_seconds())

    def advance(self, by: Duration) -> None:
        self.passed += by


class Slot(Cell[T]):
    """Cell of a board, without its page of shared memory."""

    def __init__(self, value: T | None = None) -> None:
        self._value = value

    def write(self, value: T) -> None:
        self._value = value

    def read(self) -> T | None:
        return self._value


async def at_once(call: Callable[[], T]) -> T:
    """Runs the call in the loop: nothing else runs here, so it may block."""
    return call()


class NoWaker:
    async def wait(self, most: Duration) -> None:
        raise AssertionError("stepped by the test, so nothing waits")

    async def close(self) -> None:
        return None


def leading(term: int, clock: Clock) -> tuple[Leadership, Leading]:
    """The leadership of a server that leads for longer than any test lasts."""
    until = clock.now() + seconds(1e6)
    ended = Slot[TermEnded]()
    shown = Slot(LeadershipCell("leading", term, until, until))
    return Leadership(shown, ended, [ended], clock), Leading(term, until, until)


class SyncerHarness:
    """One store and one inventory, and their leader's syncer."""

    def __init__(self, engine: Engine, folder: Path, region: Region = REGION) -> None:
        self.fake = FakeStore(now=lambda: 0.0)
        self.engine = engine
        self.region = region
        self.inventory = SqlInventory(engine)
        self.editor = Editor(engine, region)
        self.clock = HandClock()
        self.operator: FakeClient = self.fake.client("operator")
        self.seen_store: SeenStore | None = None
        self._folder = folder

    async def lead(self) -> SyncerTerm:
        """A new leader, with the inventory's fence raised; nothing is compared yet."""
        key = LEADER.key(self.region, "leader")
        await self.operator.delete(key)
        term = await self.operator.put(key, b"{}")
        leadership, said = leading(term, self.clock)
        decisions = DecisionLog(self._folder / "decisions", "server.syncer")
        store = self.fake.client(f"syncer {term}")
        syncer = Syncer(
            context=Context(self.clock, Vitals(self.clock), decisions, WorkerMetrics()),
            store=store,
            region=self.region,
            inventory=self.inventory,
            run_in_thread=at_once,
            waker=NoWaker(),
            leadership=leadership,
            seen_store=lambda: self.seen_store,
            intents=self.intents(store),
        )
        return await syncer.begin(said)

    def intents(self, store: FakeClient) -> EtcdIntents:
        """Intents of the syncer, as a server reads them through this client."""
        return server_intents(store, self.region, self.clock, self._folder, SYNCER, lambda: self.seen_store, at_once)

    async def settled(self) -> SyncerTerm:
        """A leader whose inventory and store carry the same id, after its first pass."""
        term = await self.lead()
        for _ in range(3):
            await term.check_identity()
            await term.reconciler.turn()
        assert not term.is_outdated
        assert term.identity_gate.verdict.closed is None
        return term

    async def compared(self, term: SyncerTerm) -> str:
        """Everything is compared again. Returns the state of the syncer then."""
        term.reconciler.dirty.mark_all()
        await term.reconciler.turn()
        return term.syncer.context.vitals.state

    async def allow_unwitnessed(self, term: SyncerTerm) -> str:
        """An operator allows every delete without a witness. Returns the state of the syncer after that."""
        term.witness.allow([one.change for one in term.reconciler.ledger])
        return await self.compared(term)

    def stored(self, prefix: bytes = b"/calico/") -> dict[bytes, bytes]:
        return {entry.key: entry.value for entry in self.entries(prefix)}

    def entries(self, prefix: bytes = b"/calico/") -> Sequence[Entry]:
        found = self.fake.keys.at(self.fake.revision)
        return [entry for entry in found.range(prefix, prefix + b"\xff") if entry.key.startswith(prefix)]

    def wanted(self) -> dict[bytes, bytes]:
        snapshot = self.inventory.snapshot()
        try:
            return {row.key: row.doc for row in snapshot.read(None, 1_000_000)}
        finally:
            snapshot.close()

    def decisions(self) -> list[str]:
        return [f"{one.op} {one.key}: {one.outcome}" for one in history(self._folder / "decisions", last=0)]


def differing(region: Region, stored: Mapping[bytes, bytes], wanted: Mapping[bytes, bytes]) -> list[bytes]:
    """The keys at which the store does not say what is wanted. The uid may be that of an earlier individual."""
    same = RegionKeys(region, KINDS).same
    return [
        key
        for key in sorted({*stored, *wanted})
        if key not in stored or key not in wanted or not same(Entry(key, wanted[key]), Entry(key, stored[key]))
    ]


@contextlib.contextmanager
def syncer_harness(folder: Path, region: Region = REGION) -> Iterator[SyncerHarness]:
    with fresh_engine(f"sqlite:///{folder}/inventory.db") as engine:
        yield SyncerHarness(engine, folder, region)


def status_key(number: int, on: str = "r1") -> bytes:
    name = EndpointName(on, "holdfast", f"w{number}", "eth0")
    return ENDPOINT_STATUS.key(REGION, EndpointStatusName.of(REGION, name))


def agent_key(host: str) -> bytes:
    return AGENT_STATUS.key(REGION, host)


class Calls:
    """Counts the calls to the database."""

    def __init__(self) -> None:
        self.made = 0

    async def __call__(self, call: Callable[[], A]) -> A:
        self.made += 1
        return call()


class Working(Generic[T, V]):
    """One term of a status worker that a test steps."""

    def __init__(self, term: StatusTerm[T, V], client: FakeClient, calls: Calls) -> None:
        self.term = term
        self.client = client
        self.calls = calls

    async def turn(self) -> None:
        """Lets the mirror receive everything, then one turn of the loop."""
        await self.receive()
        await self.term.reconciler.turn()
        self.term.check()

    async def fill_mirror(self) -> None:
        """Lets the mirror receive everything, without taking it from there."""
        for _ in range(30):
            await asyncio.sleep(0)

    async def receive(self) -> None:
        await self.fill_mirror()
        mirror = self.term.mirror
        with contextlib.suppress(TimeoutError):
            while mirror.backlog:
                behind = self.term.behind()
                async with asyncio.timeout(0.01):
                    self.term.feed.take(await mirror.take(), behind)

    @property
    def memory(self) -> dict[bytes, V]:
        return {key: row.value for key, row in self.term.target.written.items()}


class StatusHarness:
    """One store and one inventory, and their leader's status workers."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.fake = FakeStore(now=lambda: 0.0)
        self.engine = engine
        self.inventory = SqlInventory(engine)
        self.observed = SqlObserved(engine)
        self.editor = Editor(engine, REGION)
        self.clock = HandClock()
        self.world: FakeClient = self.fake.client("world")
        self.identity = Slot[IdentityCell]()
        self._folder = folder

    async def report(self, host: str, *, ago: float = 0.0) -> None:
        status = AgentStatus.of(self.clock.wall() - seconds(ago), 12.0)
        await self.world.put(agent_key(host), AGENT_STATUS.encode(status))

    async def silence(self, host: str) -> None:
        await self.world.delete(agent_key(host))

    async def say(self, number: int, state: EndpointState, on: str = "r1") -> None:
        await self.world.put(status_key(number, on), ENDPOINT_STATUS.encode(EndpointStatus(state)))

    @contextlib.asynccontextmanager
    async def agents(self, *, cut_off: bool = False) -> AsyncIterator[Working[Any, AgentSeen]]:
        """The agents' worker; one that is `cut_off` has not received its first list yet."""
        calls = Calls()
        client = self.fake.client("agent-status")
        if cut_off:
            client.link.cut()
        kind = kinds.agents(REGION, client, self.observed, calls, self.clock.now)
        async with self._led(kind, client, calls) as working:
            yield working

    @contextlib.asynccontextmanager
    async def endpoints(self) -> AsyncIterator[Working[Any, EndpointSeen]]:
        calls = Calls()
        client = self.fake.client("endpoint-status")
        kind = kinds.endpoints(REGION, client, self.observed, calls, self.clock.now)
        async with self._led(kind, client, calls) as working:
            yield working

    @contextlib.asynccontextmanager
    async def _led(self, kind: StatusKind[T, V], client: FakeClient, calls: Calls) -> AsyncIterator[Working[T, V]]:
        """A new leader with a warm mirror, and the inventory's fence raised; nothing is compared yet."""
        mirror = asyncio.create_task(kind.mirror.run())
        synced = asyncio.create_task(kind.mirror.wait_synced() if client.link.up else asyncio.sleep(0))
        await asyncio.wait({mirror, synced}, return_when=asyncio.FIRST_COMPLETED)
        if mirror.done():
            synced.cancel()
            mirror.result()
        working = Working(await self._term(kind), client, calls)
        try:
            yield working
        finally:
            mirror.cancel()
            died = (await asyncio.gather(mirror, return_exceptions=True))[0]
        if not isinstance(died, asyncio.CancelledError):
            raise died if isinstance(died, BaseException) else AssertionError("the mirror ended by itself")

    async def _term(self, kind: StatusKind[T, V]) -> StatusTerm[T, V]:
        key = LEADER.key(REGION, "leader")
        await self.world.delete(key)
        term = await self.world.put(key, b"{}")
        self.leadership, _ = leading(term, self.clock)
        fence = Fence(REGION.segment, 1, term)
        self.inventory.raise_fence(fence)
        self.identity.write(IdentityCell(term, 1))
        return self.begin(kind, fence, Staleness())

    def begin(self, kind: StatusKind[T, V], fence: Fence, staleness: Staleness) -> StatusTerm[T, V]:
        decisions = DecisionLog(self._folder / "decisions", f"server.{kind.rules.name}")
        context = Context(self.clock, Vitals(self.clock), decisions, WorkerMetrics())
        metrics = StatusMetrics(context.metrics.registry)
        return StatusTerm(
            context,
            kind,
            fence,
            waker=NoWaker(),
            leadership=self.leadership,
            metrics=metrics,
            staleness=staleness,
            identity=StatusIdentityGate(self.identity, fence),
        )

    def rows(self, kind: str) -> dict[bytes, bytes]:
        prefix = AGENT_STATUS.prefix(REGION)
        return {seen.key: seen.doc for seen in self.observed.read(kind, prefix, None, 1_000_000)}

    def decisions(self) -> list[str]:
        return [f"{one.op} {one.key}: {one.outcome}" for one in self.decision_records()]

    def decision_records(self) -> list[Decision]:
        return history(self._folder / "decisions", last=0)


@contextlib.contextmanager
def status_harness(folder: Path) -> Iterator[StatusHarness]:
    """Copies a database that was made once: that takes a tenth of the time, and there are many tests."""
    (folder / "inventory.db").write_bytes(_tables())
    engine = open_engine(database_url(f"sqlite:///{folder}/inventory.db"))
    try:
        yield StatusHarness(engine, folder)
    finally:
        engine.dispose()


@functools.cache
def _tables() -> bytes:
    """A database with all tables and nothing in them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "inventory.db"
        with fresh_engine(f"sqlite:///{path}"):
            pass
        return path.read_bytes()
