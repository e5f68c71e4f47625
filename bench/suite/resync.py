"""Resync: what bringing a store in line with the inventory costs, when all is missing, right, or 1 % wrong.

The shipped loop, source and target on SQLite and an etcd in memory; the inventory is filled beforehand.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from sqlalchemy import Engine, insert

from bench.benchmark import Benchmark, Unmeasurable
from bench.fleet import ENDPOINTS, endpoints
from bench.gauges import PeakMemory, Stopwatch
from bench.server import etcd_in_memory, scratch
from holdfast.inventory.api import Fence
from holdfast.inventory.sql.engine import database_url, open_engine
from holdfast.inventory.sql.migrate import migrate
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.inventory.sql.schema import IDENTITY, OBJECTS
from holdfast.inventory.sql.thread import DatabaseThread
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration, seconds
from holdfast.model.control.identity import IDENTITY as STORE_IDENTITY
from holdfast.model.control.identity import Identity
from holdfast.model.control.leader import LEADER
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.daemon.board import Cell
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.daemon.process import cpu_s
from holdfast.runtime.daemon.vitals import Vitals
from holdfast.runtime.decision_log import DecisionLog
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.server.election.leadership import Leadership, LeadershipCell, TermEnded
from holdfast.server.syncer.gates import FleetIdentityGate
from holdfast.server.syncer.term import Syncer, SyncerTerm
from holdfast.store.api import Put
from holdfast.store.client import EtcdStore
from holdfast.store.transport.gateway import Connection

T = TypeVar("T")
REGION = Region()
WRONG = 0.01
PORTION = 500


class Options(msgspec.Struct, frozen=True):
    endpoints: Annotated[int, msgspec.Meta(ge=100, description="endpoints in the inventory")] = 20_000


class Figures(msgspec.Struct, frozen=True):
    missing_s: float
    missing_cpu_s: float
    missing_round_trips: int
    right_s: float
    right_cpu_s: float
    wrong1pct_s: float
    wrong1pct_cpu_s: float
    rss_growth_mb: float
    missing_etcd_cpu_s: float


class _Slot(Cell[T]):
    """A cell of a board that is not shared with anybody."""

    def __init__(self, value: T | None = None) -> None:
        self._value = value

    def write(self, value: T) -> None:
        self._value = value

    def read(self) -> T | None:
        return self._value


class _Counting(EtcdStore):
    """Counts what is asked of the store."""

    calls = 0

    async def txn(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return await super().txn(*args, **kwargs)

    async def alarms(self) -> Any:
        self.calls += 1
        return await super().alarms()


class _Deaf:
    async def wait(self, most: Duration) -> None:
        await asyncio.sleep(most.total_seconds())

    async def close(self) -> None:
        return None


def measure(options: Options) -> Figures:
    return asyncio.run(_measure(options))


async def _measure(options: Options) -> Figures:
    with scratch() as folder, tempfile.TemporaryDirectory() as state:
        engine = open_engine(database_url(f"sqlite:///{folder}/inventory.db"))
        migrate(engine)
        _fill(engine, options.endpoints)
        async with etcd_in_memory() as etcd:
            store = _Counting(Connection((etcd.endpoint,)))
            reign = await _reign(store, SqlInventory(engine), Path(state))
            gc.collect()
            memory = PeakMemory()
            etcd_before = cpu_s(etcd.pid)
            missing = await _pass(reign)
            etcd_cpu = cpu_s(etcd.pid) - etcd_before
            round_trips = store.calls
            right = await _pass(reign)
            growth = memory.growth_mb
            await _spoil(store, options.endpoints)
            wrong = await _pass(reign)
            await _check(store, options.endpoints)
            await store.close()
        engine.dispose()
    return Figures(*missing, round_trips, *right, *wrong, growth, etcd_cpu)


def _fill(engine: Engine, count: int) -> None:
    """A portion at a time: memory that was taken here would not be seen to be taken later."""
    puts = enumerate(endpoints(count))
    with engine.begin() as connection:
        while portion := [_row(number, put) for number, put in itertools.islice(puts, PORTION)]:
            connection.execute(insert(OBJECTS), portion)
        connection.execute(insert(IDENTITY).values(only=1, fleet="bench"))


def _row(number: int, put: Put) -> dict[str, object]:
    name = f"e{number}"
    return {"key": put.key, "kind": "endpoint", "name": name, "doc": put.value, "revision": number + 1, "host": "h"}


async def _reign(store: EtcdStore, inventory: SqlInventory, state: Path) -> SyncerTerm:
    clock = SystemClock()
    term = await store.put(LEADER.key(REGION, "leader"), b"{}")
    await store.put(STORE_IDENTITY.key(REGION, "identity"), STORE_IDENTITY.encode(Identity("bench", 1)))
    until = clock.now() + seconds(1e6)
    found = _Slot[TermEnded]()
    syncer = Syncer(
        context=Context(clock, Vitals(clock), DecisionLog(state / "decisions", "bench"), WorkerMetrics()),
        store=store,
        region=REGION,
        inventory=inventory,
        run_in_thread=DatabaseThread("bench"),
        waker=_Deaf(),
        leadership=Leadership(_Slot(LeadershipCell("leading", term, until, until)), found, [found], clock),
        seen_store=lambda: None,
    )
    gate = FleetIdentityGate()
    fence = Fence(REGION.segment, await syncer.check_identity(gate), term)
    inventory.raise_fence(fence)
    return SyncerTerm(syncer, fence, gate)


async def _pass(reign: SyncerTerm) -> tuple[float, float]:
    """One full comparison, to the end of its writes: wall time and CPU."""
    reign.reconciler.dirty.mark_all()
    passes, watch = reign.reconciler.passes, Stopwatch()
    await reign.reconciler.turn()
    if reign.reconciler.passes == passes or len(reign.reconciler.ledger):
        raise Unmeasurable(f"the resync did not come to its end: {reign.syncer.context.vitals.state}")
    return watch.wall_s, watch.cpu_s


async def _spoil(store: EtcdStore, count: int) -> None:
    """1 % of the store is not as wanted: a third each missing, different, and too much."""
    dice, keys = random.Random(1), [put.key for put in endpoints(count)]
    chosen = dice.sample(keys, max(3, round(count * WRONG)))
    spoilers: list[Callable[[bytes], Any]] = [
        store.delete,
        lambda key: store.put(key, b"{}"),
        lambda key: store.put(key + b"x", b"{}"),
    ]
    for number, key in enumerate(chosen):
        await spoilers[number % 3](key)


async def _check(store: EtcdStore, count: int) -> None:
    wanted = {put.key: put.value for put in endpoints(count)}
    found = {entry.key: entry.value async for page in store.list(ENDPOINTS) for entry in page.entries}
    if found != wanted:
        raise Unmeasurable("the store is not what the inventory wants after a resync: this is a bug")


BENCHMARK = Benchmark(Options, measure)
