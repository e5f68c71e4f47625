"""A syncer turned by hand: a store in memory, an inventory on SQLite, and a clock that a test moves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Engine

from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.kinds import KINDS
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.model.base.region import Region
from holdfast.model.base.time import NEVER, Duration, Instant, seconds
from holdfast.model.control.leader import LEADER
from holdfast.runtime.daemon.board import Cell
from holdfast.runtime.daemon.vitals import Vitals
from holdfast.runtime.decision_log import DecisionLog, history
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.server.election.leadership import Leadership, LeadershipCell, Leading, TermEnded
from holdfast.server.syncer.keys import RegionKeys
from holdfast.server.syncer.term import Surroundings, SyncerTerm, begin, look
from holdfast.store.api import Entry
from holdfast.store.identity import SeenStore
from holdfast.testing import FakeStore
from holdfast.testing.fakes.inventory import fresh_engine
from holdfast.testing.store.client import FakeClient
from tests.inventory.harness import REGION

T = TypeVar("T")
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
    """A cell of a board, without the page of shared memory under it."""

    def __init__(self, value: T | None = None) -> None:
        self._value = value

    def write(self, value: T) -> None:
        self._value = value

    def read(self) -> T | None:
        return self._value


async def at_once(call: Callable[[], T]) -> T:
    """Nothing else runs here, so a call may block."""
    return call()


class NoWaker:
    async def wait(self, most: Duration) -> None:
        raise AssertionError("turned by hand, nobody listens")

    async def close(self) -> None:
        return None


class Realm:
    """One store and one inventory, and whoever leads them."""

    def __init__(self, engine: Engine, folder: Path, region: Region = REGION) -> None:
        self.fake = FakeStore(now=lambda: 0.0)
        self.engine = engine
        self.region = region
        self.inventory = SqlInventory(engine)
        self.editor = Editor(engine, region)
        self.clock = HandClock()
        self.operator: FakeClient = self.fake.client("operator")
        self.remembered: SeenStore | None = None
        self._folder = folder

    async def lead(self) -> SyncerTerm:
        """A new leader, with the inventory's fence raised; nothing is compared yet."""
        key = LEADER.key(self.region, "leader")
        await self.operator.delete(key)
        term = await self.operator.put(key, b"{}")
        until = self.clock.now() + seconds(1e6)
        shown = Slot(LeadershipCell("leading", term, until, until))
        found = Slot[TermEnded]()
        around = Surroundings(
            store=self.fake.client(f"syncer {term}"),
            inventory=self.inventory,
            aside=at_once,
            waker=NoWaker(),
            clock=self.clock,
            region=self.region,
            leadership=Leadership(shown, found, [found], self.clock),
            vitals=Vitals(self.clock),
            metrics=WorkerMetrics(),
            decisions=DecisionLog(self._folder / "decisions", "server.syncer"),
            remembered=lambda: self.remembered,
        )
        return await begin(around, Leading(term, until, until))

    async def settled(self) -> SyncerTerm:
        """A leader whose inventory and store carry the same id, after its first pass."""
        reign = await self.lead()
        for _ in range(3):
            await reign.reconciler.turn()
            await look(reign.around, reign.belonging)
            await reign.name()
        await reign.reconciler.turn()
        assert reign.belonging.standing.closed is None
        return reign

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
def realm(folder: Path, region: Region = REGION) -> Iterator[Realm]:
    with fresh_engine(f"sqlite:///{folder}/inventory.db") as engine:
        yield Realm(engine, folder, region)
