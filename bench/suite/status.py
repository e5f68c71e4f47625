"""Status: cost of agents' reports on their way into the inventory, and time until a new leader is up to date.

The shipped workers on SQLite and an etcd in memory, in this process. `snapshot` is both workers, from nothing to
"everything compared, nothing differs", the least of five, because other load on the machine can only add to it. Events
are endpoints that go up and down: single puts at 2,500 per second, then fenced transactions of as many as fit; the cost
counts from the end of the initial comparison to the last write into the inventory. `bare` watches the same single puts
at the same time without our client, decodes and drops them (bench/bare.py): the cost of the wire alone. `takeover` is a
leader with warm mirrors whose predecessor died with 1 % not written, on a database that takes 5 ms for every call.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from sqlalchemy import Engine

from bench import leader
from bench.bare import Watched, bare_watcher
from bench.benchmark import Benchmark, Unmeasurable
from bench.fleet import PER_HOST, REGION, endpoints
from bench.gauges import Stopwatch
from bench.parts import started
from bench.server import etcd_in_memory, scratch
from holdfast.inventory.api import Fence
from holdfast.inventory.sql.engine import database_url, open_engine
from holdfast.inventory.sql.migrate import migrate
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.inventory.sql.observed import SqlObserved
from holdfast.inventory.sql.thread import DatabaseThread
from holdfast.model.base.time import Duration
from holdfast.model.calico.agent_status import AGENT_STATUS, AgentStatus
from holdfast.model.calico.endpoint_status import ENDPOINT_STATUS, EndpointState, EndpointStatus
from holdfast.model.control.leader import LEADER
from holdfast.model.fleet.observed import EndpointSeen, ObservedState
from holdfast.runtime.clock import SystemClock
from holdfast.server.status import kinds
from holdfast.server.status.kinds import StatusKind
from holdfast.server.status.metrics import StatusMetrics
from holdfast.server.status.rules.bindings import Bindings
from holdfast.server.status.rules.staleness import Backlog, Staleness
from holdfast.server.status.term import StatusTerm
from holdfast.store.api import Put
from holdfast.store.client import EtcdStore
from holdfast.store.fenced.packing import FencedWrite
from holdfast.store.fenced.store import FencedStore
from holdfast.store.transport.gateway import Connection

T = TypeVar("T")
LEADER_KEY = LEADER.key(REGION, "leader")
CLOCK = SystemClock()
PATIENCE = Duration(seconds=60)
PORTION = 500
SINGLE_PER_S = 2_500
SINGLE_MOST = 20_000
SNAPSHOTS = 5
ROUNDS = 3
"""Times that every endpoint changes in the batched run."""
DIFFERS = 0.01
DATABASE_S = 0.005


class Options(msgspec.Struct, frozen=True):
    hosts: Annotated[int, msgspec.Meta(ge=2, description="agents that report")] = 2_000
    endpoints: Annotated[int, msgspec.Meta(ge=100, description="endpoints that they report on")] = 20_000


class Figures(msgspec.Struct, frozen=True):
    snapshot_s: float
    snapshot_cpu_s: float
    events_per_s: float
    cpu_us_per_event: float
    cpu_us_per_event_batched: float
    bare_cpu_us_per_event: float
    takeover_drain_s: float
    takeover_writes: int
    backlog_peak: int


class Work(msgspec.Struct, frozen=True):
    """Job of a writer: changes every endpoint in turn, so many changes in all; in an odd round they go down."""

    endpoint: str
    endpoints: int
    changes: int
    first_round: int


class Done(msgspec.Struct, frozen=True):
    per_s: float = 0.0


class _Slow(DatabaseThread):
    """A database that takes 5 ms for every call."""

    async def __call__(self, call: Callable[[], T]) -> T:
        def slowly() -> T:
            time.sleep(DATABASE_S)
            return call()

        return await super().__call__(slowly)


def measure(options: Options) -> Figures:
    return asyncio.run(_measure(options))


async def _measure(options: Options) -> Figures:
    with scratch() as folder, tempfile.TemporaryDirectory() as state:
        engine = open_engine(database_url(f"sqlite:///{folder}/inventory.db"))
        migrate(engine)
        leader.fill_inventory(engine, options.endpoints)
        async with etcd_in_memory() as etcd:
            bench = _Bench(etcd.endpoint, engine, Path(state), options)
            await bench.prepare()
            snapshot = min([await bench.snapshot() for _ in range(SNAPSHOTS)], key=itemgetter(1))
            changes = min(SINGLE_MOST, 2 * options.endpoints)
            watched = Watched(etcd.endpoint, ENDPOINT_STATUS.prefix(REGION).decode(), changes)
            async with started(bare_watcher, watched) as bare:
                await bare.report()
                single = await bench.live(single_writer, changes, first_round=1)
                bare_single = await bare.report()
            batched = await bench.live(bulk_writer, ROUNDS * options.endpoints, first_round=1)
            takeover = await bench.takeover()
            await bench.store.close()
        engine.dispose()
    return Figures(
        snapshot_s=snapshot[0],
        snapshot_cpu_s=snapshot[1],
        events_per_s=batched.events / batched.wall_s,
        cpu_us_per_event=single.cpu_s / single.events * 1e6,
        cpu_us_per_event_batched=batched.cpu_s / batched.events * 1e6,
        bare_cpu_us_per_event=bare_single.cpu_us,
        takeover_drain_s=takeover[0],
        takeover_writes=takeover[1],
        backlog_peak=max(single.peak, batched.peak),
    )


class _Live(msgspec.Struct, frozen=True):
    events: int
    wall_s: float
    cpu_s: float
    peak: int


class _Bench:
    def __init__(self, etcd: str, engine: Engine, state: Path, options: Options) -> None:
        self.etcd = etcd
        self.store = EtcdStore(Connection((etcd,)))
        self._observed = SqlObserved(engine)
        self._inventory = SqlInventory(engine)
        self._state = state
        self._options = options
        self._term = 0

    async def prepare(self) -> None:
        """Store the reports of all hosts and endpoints, and bring the inventory up to date."""
        self._term = await self.store.put(LEADER_KEY, b"{}")
        fenced = FencedStore(self.store, LEADER_KEY, self._term)
        status = AGENT_STATUS.encode(AgentStatus.of(CLOCK.wall(), 1.0))
        puts = [Put(AGENT_STATUS.key(REGION, _host(n)), status) for n in range(self._hosts)]
        puts += [Put(key, _value(0)) for key in _keys(self._options.endpoints)]
        results = await fenced.bulk([FencedWrite((put,)) for put in puts])
        if any(result.error for result in results):
            raise Unmeasurable("etcd refused the reports; run it again on a quieter machine")
        for kind in self._kinds():
            async with self._leading(kind) as work:
                await work.reconciler.turn()

    @property
    def _hosts(self) -> int:
        return max(self._options.hosts, -(-self._options.endpoints // PER_HOST))

    async def snapshot(self) -> tuple[float, float]:
        gc.collect()
        watch = Stopwatch()
        for kind in self._kinds():
            async with self._leading(kind) as work:
                await work.reconciler.turn()
                if work.target.writes:
                    raise Unmeasurable(f"{work.target.writes} rows differed after all was written: this is a bug")
        return watch.wall_s, watch.cpu_s

    async def live(self, writer: Callable[[Work], AsyncIterator[Done]], changes: int, *, first_round: int) -> _Live:
        kind = self._endpoints()
        async with self._leading(kind) as work:
            await work.reconciler.turn()
            stopping = asyncio.Event()
            running = asyncio.create_task(work.run(stopping))
            try:
                await self._caught_up(work)  # before there is a writer: it does not wait for us
                *_, last = _changes(self._options.endpoints, changes, first_round)
                async with started(writer, Work(self.etcd, self._options.endpoints, changes, first_round)) as part:
                    await part.report()
                    gc.collect()
                    watch, work.peak = Stopwatch(), 0
                    written = await part.report()
                    await self._arrived(work, *last)
                    cost = _Live(changes, watch.wall_s, watch.cpu_s, work.peak)
                self._check(work, changes, first_round)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
        if writer is single_writer and written.per_s < 0.9 * SINGLE_PER_S:
            print(f"note: single puts came at {written.per_s:.0f}/s, not at {SINGLE_PER_S}/s", file=sys.stderr)
        await self._reset()
        return cost

    async def _reset(self) -> None:
        """Set all endpoints to up again, in the store and in the inventory."""
        fenced = FencedStore(self.store, LEADER_KEY, self._term)
        await fenced.bulk([FencedWrite((Put(key, _value(0)),)) for key in _keys(self._options.endpoints)])
        async with self._leading(self._endpoints()) as work:
            await work.reconciler.turn()

    async def _caught_up(self, work: StatusTerm[Any, Any]) -> None:
        """Wait for the initial comparison: its cost is measured by `snapshot`."""
        async with asyncio.timeout(PATIENCE.total_seconds()):
            while work.backlog():  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def _arrived(self, work: StatusTerm[Any, EndpointSeen], key: bytes, value: bytes) -> None:
        """Wait until every change is in the inventory: the last one is put once more, so that its revision is above
        all others."""
        last = await self.store.put(key, value)
        async with asyncio.timeout(PATIENCE.total_seconds()):
            while work.mirror.mod_revision(key) < last or work.backlog():  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    def _check(self, work: StatusTerm[Any, EndpointSeen], changes: int, first_round: int) -> None:
        words = {_value(0): ObservedState.ACTIVE, _value(1): ObservedState.DOWN}
        wanted = dict(_changes(self._options.endpoints, changes, first_round))
        wrong = sum(work.target.written[key].value.status is not words[value] for key, value in wanted.items())
        if wrong:
            raise Unmeasurable(f"{wrong} endpoints do not have their last reported state: this is a bug")

    async def takeover(self) -> tuple[float, int]:
        """Measure how long a warm follower takes to write what its predecessor left undone."""
        slow = _Slow("slow")
        kind = self._endpoints(slow)
        async with self._warm(kind):
            different = max(1, round(self._options.endpoints * DIFFERS))
            fenced = FencedStore(self.store, LEADER_KEY, self._term)
            some = _keys(self._options.endpoints)[:different]
            await fenced.bulk([FencedWrite((Put(key, _value(1)),)) for key in some])
            async with asyncio.timeout(PATIENCE.total_seconds()):
                while kind.mirror.objects[some[-1]].status is not EndpointState.DOWN:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            watch = Stopwatch()
            work = self._new_term(kind)
            await work.reconciler.turn()
            taken = watch.wall_s
        slow.close()
        return taken, work.target.writes

    def _kinds(self) -> Sequence[StatusKind[Any, Any]]:
        agents = kinds.agents(REGION, self.store, self._observed, DatabaseThread("agents"), CLOCK.now)
        return agents, self._endpoints()

    def _endpoints(self, thread: DatabaseThread | None = None) -> StatusKind[Any, EndpointSeen]:
        thread = thread or DatabaseThread("endpoints")
        return kinds.endpoints(REGION, self.store, self._observed, thread, CLOCK.now)

    @asynccontextmanager
    async def _warm(self, kind: StatusKind[Any, Any]) -> AsyncIterator[None]:
        following = asyncio.create_task(kind.mirror.run())
        try:
            await kind.mirror.wait_synced()
            yield
        finally:
            following.cancel()

    @asynccontextmanager
    async def _leading(self, kind: StatusKind[T, Any]) -> AsyncIterator[_MeasuredTerm[T]]:
        async with self._warm(kind):
            yield self._new_term(kind)

    def _new_term(self, kind: StatusKind[T, Any]) -> _MeasuredTerm[T]:
        context = leader.context(CLOCK, self._state)
        fence = Fence(REGION.segment, 1, self._term)
        self._inventory.raise_fence(fence)
        return _MeasuredTerm(
            context,
            kind,
            fence,
            waker=leader.NoWaker(),
            leadership=leader.leadership(self._term, CLOCK),
            metrics=StatusMetrics(context.metrics.registry),
            staleness=Staleness(),
        )


class _MeasuredTerm(StatusTerm[T, Any]):
    """Term that records its largest backlog."""

    peak = 0

    def behind(self) -> Backlog:
        behind = super().behind()
        self.peak = max(self.peak, behind.waiting)
        return behind


async def single_writer(work: Work) -> AsyncIterator[Done]:
    """Part: one put after the other, evenly spread over time, as thousands of agents would."""
    store = EtcdStore(Connection((work.endpoint,), deadline=PATIENCE))
    puts = [Put(*change) for change in _changes(work.endpoints, work.changes, work.first_round)]
    room = asyncio.Semaphore(32)

    async def write(put: Put) -> None:
        async with room:
            await store.put(put.key, put.value)

    yield Done()
    clock = asyncio.get_running_loop().time
    begin, watch = clock(), Stopwatch()
    async with asyncio.TaskGroup() as writes:
        for number, put in enumerate(puts):
            await asyncio.sleep(begin + number / SINGLE_PER_S - clock())
            writes.create_task(write(put))
    yield Done(len(puts) / watch.wall_s)
    await store.close()


async def bulk_writer(work: Work) -> AsyncIterator[Done]:
    """Part: one fenced plan per round."""
    store = EtcdStore(Connection((work.endpoint,), deadline=PATIENCE))
    leader = await store.get(LEADER_KEY)
    assert leader is not None
    fenced = FencedStore(store, LEADER_KEY, leader.create_revision)
    yield Done()
    watch, changes = Stopwatch(), iter(list(_changes(work.endpoints, work.changes, work.first_round)))
    while portion := list(itertools.islice(changes, work.endpoints)):
        await fenced.bulk([FencedWrite((Put(*change),)) for change in portion])
    yield Done(work.changes / watch.wall_s)
    await store.close()


def _changes(count: int, changes: int, first_round: int) -> Iterator[tuple[bytes, bytes]]:
    keys = _keys(count)
    return ((keys[n % count], _value(first_round + n // count)) for n in range(changes))


@cache
def _keys(count: int) -> Sequence[bytes]:
    name = Bindings(REGION).status_key
    return [key for put in endpoints(count) if (key := name(put.key)) is not None]


@cache
def _value(turn: int) -> bytes:
    return ENDPOINT_STATUS.encode(EndpointStatus(EndpointState.DOWN if turn % 2 else EndpointState.UP))


def _host(number: int) -> str:
    return f"compute-{number:05}"


BENCHMARK = Benchmark(Options, measure)
