"""Status workers turned by hand: a store in memory, an inventory on SQLite, and a clock that a test moves."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
from sqlalchemy import Engine

from holdfast.inventory.api import Fence
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.sql.engine import database_url, open_engine
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.inventory.sql.observed import SqlObserved
from holdfast.model.base.time import seconds
from holdfast.model.calico.agent_status import AGENT_STATUS, AgentStatus
from holdfast.model.calico.endpoint import EndpointName
from holdfast.model.calico.endpoint_status import ENDPOINT_STATUS, EndpointState, EndpointStatus, EndpointStatusName
from holdfast.model.control.leader import LEADER
from holdfast.model.fleet.observed import AgentSeen, EndpointSeen
from holdfast.runtime.daemon.vitals import Vitals
from holdfast.runtime.decision_log import Decision, DecisionLog, history
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.server.election.leadership import Leadership, LeadershipCell, TermEnded
from holdfast.server.status import topics as status_topics
from holdfast.server.status.term import Around, StatusKind, StatusTerm
from holdfast.testing import FakeStore
from holdfast.testing.fakes.inventory import fresh_engine
from holdfast.testing.store.client import FakeClient
from tests.inventory.harness import REGION
from tests.server.syncing import HandClock, NoWaker, Slot

T = TypeVar("T")
V = TypeVar("V", bound=msgspec.Struct)
A = TypeVar("A")


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
    """One reign that a test turns."""

    def __init__(self, reign: StatusTerm[T, V], client: FakeClient, calls: Calls) -> None:
        self.reign = reign
        self.client = client
        self.calls = calls

    async def turn(self) -> None:
        """Lets the mirror hear everything, then one turn of the loop."""
        await self.hear()
        await self.reign.reconciler.turn()
        self.reign.look()

    async def overhear(self) -> None:
        """Lets the mirror hear everything, and nobody asks it."""
        for _ in range(30):
            await asyncio.sleep(0)

    async def hear(self) -> None:
        await self.overhear()
        mirror = self.reign.topic.mirror
        with contextlib.suppress(TimeoutError):
            while mirror.backlog:
                behind = self.reign.behind()
                async with asyncio.timeout(0.01):
                    self.reign.feed.take(await mirror.take(), behind)

    @property
    def memory(self) -> dict[bytes, V]:
        return {key: row.value for key, row in self.reign.target.written.items()}


class Observatory:
    """One store and one inventory, and whoever leads them."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.fake = FakeStore(now=lambda: 0.0)
        self.engine = engine
        self.inventory = SqlInventory(engine)
        self.observed = SqlObserved(engine)
        self.editor = Editor(engine, REGION)
        self.clock = HandClock()
        self.world: FakeClient = self.fake.client("world")
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
        """The worker that is about agents; one that is `cut_off` has not got its first list yet."""
        calls = Calls()
        client = self.fake.client("agent-status")
        if cut_off:
            client.link.cut()
        topic = status_topics.agents(REGION, client, self.observed, calls, self.clock)
        async with self._led(topic, client, calls) as working:
            yield working

    @contextlib.asynccontextmanager
    async def endpoints(self) -> AsyncIterator[Working[Any, EndpointSeen]]:
        calls = Calls()
        client = self.fake.client("endpoint-status")
        topic = status_topics.endpoints(REGION, client, self.observed, calls, self.clock)
        async with self._led(topic, client, calls) as working:
            yield working

    @contextlib.asynccontextmanager
    async def _led(self, topic: StatusKind[T, V], client: FakeClient, calls: Calls) -> AsyncIterator[Working[T, V]]:
        """A new leader with a warm mirror, and the inventory's fence raised; nothing is compared yet."""
        mirror = asyncio.create_task(topic.mirror.run())
        synced = asyncio.create_task(topic.mirror.wait_synced() if client.link.up else asyncio.sleep(0))
        await asyncio.wait({mirror, synced}, return_when=asyncio.FIRST_COMPLETED)
        if mirror.done():
            synced.cancel()
            mirror.result()
        working = Working(await self._reign(topic, calls), client, calls)
        try:
            yield working
        finally:
            mirror.cancel()
            died = (await asyncio.gather(mirror, return_exceptions=True))[0]
        if not isinstance(died, asyncio.CancelledError):
            raise died if isinstance(died, BaseException) else AssertionError("the mirror ended by itself")

    async def _reign(self, topic: StatusKind[T, V], calls: Calls) -> StatusTerm[T, V]:
        key = LEADER.key(REGION, "leader")
        await self.world.delete(key)
        term = await self.world.put(key, b"{}")
        until = self.clock.now() + seconds(1e6)
        found = Slot[TermEnded]()
        around = Around(
            observed=self.observed,
            aside=calls,
            waker=NoWaker(),
            clock=self.clock,
            leadership=Leadership(Slot(LeadershipCell("leading", term, until, until)), found, [found], self.clock),
            vitals=Vitals(self.clock),
            metrics=WorkerMetrics(),
            decisions=DecisionLog(self._folder / "decisions", f"server.{topic.name}"),
        )
        fence = Fence(REGION.segment, 1, term)
        self.inventory.raise_fence(fence)
        return StatusTerm(around, topic, fence)

    def rows(self, kind: str) -> dict[bytes, bytes]:
        prefix = AGENT_STATUS.prefix(REGION)
        return {seen.key: seen.doc for seen in self.observed.read(kind, prefix, None, 1_000_000)}

    def decisions(self) -> list[str]:
        return [f"{one.op} {one.key}: {one.outcome}" for one in self.told()]

    def told(self) -> list[Decision]:
        return history(self._folder / "decisions", last=0)


@contextlib.contextmanager
def observatory(folder: Path) -> Iterator[Observatory]:
    """The tables are made once and copied: that takes a tenth of the time, and there are many tests."""
    (folder / "inventory.db").write_bytes(_tables())
    engine = open_engine(database_url(f"sqlite:///{folder}/inventory.db"))
    try:
        yield Observatory(engine, folder)
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
