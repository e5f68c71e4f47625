"""Resync: cost of comparing store and inventory when everything is missing, right, or 1 % wrong.

The shipped loop, source and target on SQLite and an etcd in memory. One edit fills the inventory, in a process of its
own, so that the outbox is full when the leader begins and memory that the edit freed does not hide growth.
"""

from __future__ import annotations

import asyncio
import gc
import random
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from sqlalchemy import Engine, func, insert, select

from bench import leader
from bench.benchmark import Benchmark, Unmeasurable
from bench.fleet import ENDPOINTS, endpoints
from bench.gauges import PeakMemory, Stopwatch
from bench.parts import started
from bench.server import etcd_in_memory, scratch
from holdfast.inventory.api import Inventory
from holdfast.inventory.changes import WantedObject
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.kinds import name_of
from holdfast.inventory.sql.engine import database_url, open_engine
from holdfast.inventory.sql.migrate import migrate
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.inventory.sql.schema import CHANGES, IDENTITY, OBJECTS
from holdfast.inventory.sql.thread import DatabaseThread
from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.control.identity import IDENTITY as STORE_IDENTITY
from holdfast.model.control.identity import Identity
from holdfast.model.control.leader import LEADER
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.daemon.process import cpu_s
from holdfast.runtime.intents.etcd import SYNCER, server_intents
from holdfast.server.election.leadership import Leading
from holdfast.server.syncer.term import Syncer, SyncerTerm
from holdfast.store.client import EtcdStore
from holdfast.store.transport.gateway import Connection

T = TypeVar("T")
REGION = Region()
WRONG = 0.01
PORTION = 500


class Options(msgspec.Struct, frozen=True):
    endpoints: Annotated[int, msgspec.Meta(ge=100, description="endpoints in the inventory")] = 20_000


class Figures(msgspec.Struct, frozen=True):
    apply_s: float
    apply_cpu_s: float
    missing_s: float
    missing_cpu_s: float
    missing_round_trips: int
    right_s: float
    right_cpu_s: float
    wrong1pct_s: float
    wrong1pct_cpu_s: float
    rss_growth_mb: float
    missing_etcd_cpu_s: float


class _Counting(EtcdStore):
    """Counts calls to the store."""

    calls = 0

    async def txn(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return await super().txn(*args, **kwargs)

    async def alarms(self) -> Any:
        self.calls += 1
        return await super().alarms()


class Applying(msgspec.Struct, frozen=True):
    """Database that is filled, and with how many endpoints."""

    database: str
    endpoints: int


class Applied(msgspec.Struct, frozen=True):
    wall_s: float
    cpu_s: float


async def applying(argument: Applying) -> AsyncIterator[Applied]:
    """Part: one edit creates all endpoints."""
    engine = open_engine(database_url(argument.database))
    wanted = [_requested(put.key, put.value) for put in endpoints(argument.endpoints)]
    watch = Stopwatch()
    Editor(engine, REGION).change(wanted, who="bench")
    yield Applied(watch.wall_s, watch.cpu_s)
    engine.dispose()


def _requested(key: bytes, value: bytes) -> WantedObject:
    thing = ENDPOINT.decode(key, value)
    assert not isinstance(thing, Bad)
    return WantedObject(ENDPOINT, name_of(thing.name), thing, key)


def measure(options: Options) -> Figures:
    return asyncio.run(_measure(options))


async def _measure(options: Options) -> Figures:
    with scratch() as folder, tempfile.TemporaryDirectory() as state:
        engine = open_engine(database_url(f"sqlite:///{folder}/inventory.db"))
        migrate(engine)
        async with started(applying, Applying(f"sqlite:///{folder}/inventory.db", options.endpoints)) as editor:
            applied = await editor.report()
        with engine.begin() as connection:
            connection.execute(insert(IDENTITY).values(only=1, fleet="bench"))
        async with etcd_in_memory() as etcd:
            store = _Counting(Connection((etcd.endpoint,)))
            running_term = await begun_term(store, SqlInventory(engine), Path(state))
            gc.collect()
            memory = PeakMemory()
            etcd_before = cpu_s(etcd.pid)
            missing = await full_pass(running_term)
            etcd_cpu = cpu_s(etcd.pid) - etcd_before
            round_trips = store.calls
            right = await full_pass(running_term)
            growth = memory.growth_mb
            await _spoil(store, engine)
            wrong = await full_pass(running_term)
            await _check(store, engine)
            await store.close()
        engine.dispose()
    return Figures(applied.wall_s, applied.cpu_s, *missing, round_trips, *right, *wrong, growth, etcd_cpu)


async def begun_term(store: EtcdStore, inventory: Inventory, state: Path) -> SyncerTerm:
    """A leader whose store carries the identity of fleet `bench`; nothing is compared yet."""
    clock = SystemClock()
    term = await store.put(LEADER.key(REGION, "leader"), b"{}")
    await store.put(STORE_IDENTITY.key(REGION, "identity"), STORE_IDENTITY.encode(Identity("bench", 1)))
    leadership = leader.leadership(term, clock)
    syncer = Syncer(
        context=leader.context(clock, state),
        store=store,
        region=REGION,
        inventory=inventory,
        run_in_thread=DatabaseThread("bench"),
        waker=leader.NoWaker(),
        leadership=leadership,
        seen_store=lambda: None,
        intents=server_intents(store, REGION, clock, state, SYNCER),
    )
    leading = leadership.check()
    assert isinstance(leading, Leading)
    return await syncer.begin(leading)


async def full_pass(running_term: SyncerTerm) -> tuple[float, float]:
    """Run one full comparison to the end of its writes, and settle the outbox; return wall time and CPU."""
    reconciler, watch = running_term.reconciler, Stopwatch()
    reconciler.dirty.mark_all()
    passes = reconciler.passes
    await reconciler.turn()
    while len(reconciler.dirty) or running_term.syncer.inventory.outbox(1):
        await reconciler.turn()
        if running_term.syncer.context.vitals.state != "ok":
            break
    if reconciler.passes == passes or len(reconciler.ledger) or len(running_term.outbox):
        raise Unmeasurable(f"the resync did not finish: {running_term.syncer.context.vitals.state}")
    return watch.wall_s, watch.cpu_s


async def _spoil(store: EtcdStore, engine: Engine) -> None:
    """Make 1 % of the store wrong: a third each missing, different, and superfluous with a recorded delete."""
    with engine.connect() as connection:
        keys = list(connection.execute(select(OBJECTS.c.key)).scalars())
        newest = connection.execute(select(func.max(CHANGES.c.revision))).scalar_one()
    chosen = random.Random(1).sample(keys, max(3, round(len(keys) * WRONG)))
    spoilers: list[Callable[[bytes], Any]] = [
        store.delete,
        lambda key: store.put(key, b"{}"),
        lambda key: store.put(key + b"x", b"{}"),
    ]
    for number, key in enumerate(chosen):
        await spoilers[number % 3](key)
    past = {"kind": "endpoint", "name": "gone", "old": b"{}", "who": "bench", "why": "", "at": SystemClock().wall()}
    with engine.begin() as connection:
        rows = [{"revision": number, "old_key": key + b"x", **past} for number, key in enumerate(chosen, newest + 1)]
        connection.execute(insert(CHANGES), rows)


async def _check(store: EtcdStore, engine: Engine) -> None:
    with engine.connect() as connection:
        wanted = {row.key: row.doc for row in connection.execute(select(OBJECTS.c.key, OBJECTS.c.doc))}
    found = {entry.key: entry.value async for page in store.list(ENDPOINTS) for entry in page.entries}
    if found != wanted:
        raise Unmeasurable("store and inventory differ after a resync: this is a bug")


BENCHMARK = Benchmark(Options, measure)
