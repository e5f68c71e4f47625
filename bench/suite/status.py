"""Status: what agents' reports cost on their way into the inventory, and how fast a new leader is up to date.

The shipped workers on SQLite and an etcd in memory, in this process. `snapshot` is both workers, from nothing to "all
is compared, nothing differs", the least of five: it is over in a moment, and what the machine does for others in that
moment is not ours. Events are endpoints that go up and down: single puts at 2,500 per second, then fenced
transactions of as many as fit; the cost is counted to the last write into the inventory, and from the moment when the
list of the start has been looked at. `bare` is a program that watches the same single puts in the same seconds, decodes
what it reads and drops it (bench/bare.py): what the wire alone costs here and now. `takeover` is a leader with warm
mirrors whose predecessor died with 1 % not written, on a database that takes 5 ms for every call.
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
from sqlalchemy import Engine, insert

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
from holdfast.inventory.sql.schema import OBJECTS
from holdfast.inventory.sql.thread import DatabaseThread
from holdfast.model.base.time import Duration, seconds
from holdfast.model.calico.agent_status import AGENT_STATUS, AgentStatus
from holdfast.model.calico.endpoint_status import ENDPOINT_STATUS, EndpointState, EndpointStatus
from holdfast.model.control.leader import LEADER
from holdfast.model.fleet.observed import EndpointSeen, ObservedState
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.daemon.board import Cell
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.daemon.vitals import Vitals
from holdfast.runtime.decision_log import DecisionLog
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.server.election.leadership import Leadership, LeadershipCell, TermEnded
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
    """What a writer writes: every endpoint in turn, so many changes in all; in an odd round they go down."""

    endpoint: str
    endpoints: int
    changes: int
    first_round: int


class Done(msgspec.Struct, frozen=True):
    per_s: float = 0.0


class _Slot(Cell[T]):
    """A cell of a board that is not shared with anybody."""

    def __init__(self, value: T | None = None) -> None:
        self._value = value

    def write(self, value: T) -> None:
        self._value = value

    def read(self) -> T | None:
        return self._value


class _Deaf:
    async def wait(self, most: Duration) -> None:
        await asyncio.sleep(most.total_seconds())

    async def close(self) -> None:
        return None


class _Slow(DatabaseThread):
    """A database that takes its time for every call."""

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
        _fill(engine, options.endpoints)
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
        """Everything is reported, and the inventory says so already."""
        self._term = await self.store.put(LEADER_KEY, b"{}")
        fenced = FencedStore(self.store, LEADER_KEY, self._term)
        status = AGENT_STATUS.encode(AgentStatus.of(CLOCK.wall(), 1.0))
        puts = [Put(AGENT_STATUS.key(REGION, _host(n)), status) for n in range(self._hosts)]
        puts += [Put(key, _value(0)) for key in _keys(self._options.endpoints)]
        results = await fenced.bulk([FencedWrite((put,)) for put in puts])
        if any(result.error for result in results):
            raise Unmeasurable("etcd did not take the reports; run it again on a quieter machine")
        for topic in self._topics():
            async with self._reign(topic) as reign:
                await reign.reconciler.turn()

    @property
    def _hosts(self) -> int:
        return max(self._options.hosts, -(-self._options.endpoints // PER_HOST))

    async def snapshot(self) -> tuple[float, float]:
        gc.collect()
        watch = Stopwatch()
        for topic in self._topics():
            async with self._reign(topic) as reign:
                await reign.reconciler.turn()
                if reign.target.writes:
                    raise Unmeasurable(f"{reign.target.writes} rows differed after all was written: this is a bug")
        return watch.wall_s, watch.cpu_s

    async def live(self, writer: Callable[[Work], AsyncIterator[Done]], changes: int, *, first_round: int) -> _Live:
        topic = self._endpoints()
        async with self._reign(topic) as reign:
            await reign.reconciler.turn()
            stopping = asyncio.Event()
            running = asyncio.create_task(reign.run(stopping))
            try:
                await self._caught_up(reign)  # before there is a writer: it does not wait for us
                *_, last = _changes(self._options.endpoints, changes, first_round)
                async with started(writer, Work(self.etcd, self._options.endpoints, changes, first_round)) as part:
                    await part.report()
                    gc.collect()
                    watch, reign.peak = Stopwatch(), 0
                    written = await part.report()
                    await self._arrived(reign, *last)
                    cost = _Live(changes, watch.wall_s, watch.cpu_s, reign.peak)
                self._check(reign, changes, first_round)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
        if writer is single_writer and written.per_s < 0.9 * SINGLE_PER_S:
            print(f"note: single puts came at {written.per_s:.0f}/s, not at {SINGLE_PER_S}/s", file=sys.stderr)
        await self._reset()
        return cost

    async def _reset(self) -> None:
        """All are up again, in the store and in the inventory."""
        fenced = FencedStore(self.store, LEADER_KEY, self._term)
        await fenced.bulk([FencedWrite((Put(key, _value(0)),)) for key in _keys(self._options.endpoints)])
        async with self._reign(self._endpoints()) as reign:
            await reign.reconciler.turn()

    async def _caught_up(self, reign: StatusTerm[Any, Any]) -> None:
        """Until the list of the start has been looked at: what that costs is `snapshot`, not the events'."""
        async with asyncio.timeout(PATIENCE.total_seconds()):
            while reign.backlog():  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def _arrived(self, reign: StatusTerm[Any, EndpointSeen], key: bytes, value: bytes) -> None:
        """Until all that was written has been seen and written on: the last of it is said once more, so that its
        revision is above all others."""
        last = await self.store.put(key, value)
        async with asyncio.timeout(PATIENCE.total_seconds()):
            while reign.mirror.mod_revision(key) < last or reign.backlog():  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    def _check(self, reign: StatusTerm[Any, EndpointSeen], changes: int, first_round: int) -> None:
        words = {_value(0): ObservedState.ACTIVE, _value(1): ObservedState.DOWN}
        wanted = dict(_changes(self._options.endpoints, changes, first_round))
        wrong = sum(reign.target.written[key].value.status is not words[value] for key, value in wanted.items())
        if wrong:
            raise Unmeasurable(f"{wrong} endpoints are not what was said of them last: this is a bug")

    async def takeover(self) -> tuple[float, int]:
        """A warm follower takes over what its predecessor left undone."""
        slow = _Slow("slow")
        topic = self._endpoints(slow)
        async with self._warm(topic):
            different = max(1, round(self._options.endpoints * DIFFERS))
            fenced = FencedStore(self.store, LEADER_KEY, self._term)
            some = _keys(self._options.endpoints)[:different]
            await fenced.bulk([FencedWrite((Put(key, _value(1)),)) for key in some])
            async with asyncio.timeout(PATIENCE.total_seconds()):
                while topic.mirror.objects[some[-1]].status is not EndpointState.DOWN:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            watch = Stopwatch()
            reign = self._made(topic)
            await reign.reconciler.turn()
            taken = watch.wall_s
        slow.close()
        return taken, reign.target.writes

    def _topics(self) -> Sequence[StatusKind[Any, Any]]:
        agents = kinds.agents(REGION, self.store, self._observed, DatabaseThread("agents"), CLOCK.now)
        return agents, self._endpoints()

    def _endpoints(self, aside: DatabaseThread | None = None) -> StatusKind[Any, EndpointSeen]:
        aside = aside or DatabaseThread("endpoints")
        return kinds.endpoints(REGION, self.store, self._observed, aside, CLOCK.now)

    @asynccontextmanager
    async def _warm(self, topic: StatusKind[Any, Any]) -> AsyncIterator[None]:
        following = asyncio.create_task(topic.mirror.run())
        try:
            await topic.mirror.wait_synced()
            yield
        finally:
            following.cancel()

    @asynccontextmanager
    async def _reign(self, topic: StatusKind[T, Any]) -> AsyncIterator[_MeasuredTerm[T]]:
        async with self._warm(topic):
            yield self._made(topic)

    def _made(self, topic: StatusKind[T, Any]) -> _MeasuredTerm[T]:
        until = CLOCK.now() + seconds(1e6)
        found = _Slot[TermEnded]()
        context = Context(CLOCK, Vitals(CLOCK), DecisionLog(self._state / "decisions", "bench"), WorkerMetrics())
        fence = Fence(REGION.segment, 1, self._term)
        self._inventory.raise_fence(fence)
        return _MeasuredTerm(
            context,
            topic,
            fence,
            waker=_Deaf(),
            leadership=Leadership(_Slot(LeadershipCell("leading", self._term, until, until)), found, [found], CLOCK),
            metrics=StatusMetrics(context.metrics.registry),
            staleness=Staleness(),
        )


class _MeasuredTerm(StatusTerm[T, Any]):
    """Remembers the largest backlog that was there when it was asked for."""

    peak = 0

    def behind(self) -> Backlog:
        behind = super().behind()
        self.peak = max(self.peak, behind.waiting)
        return behind


async def single_writer(work: Work) -> AsyncIterator[Done]:
    """A part: one put after the other, evenly spread over time, as thousands of agents would."""
    store = EtcdStore(Connection((work.endpoint,), deadline=PATIENCE))
    puts = [Put(*change) for change in _changes(work.endpoints, work.changes, work.first_round)]
    room = asyncio.Semaphore(32)

    async def write(put: Put) -> None:
        async with room:
            await store.put(put.key, put.value)

    yield Done()
    clock = asyncio.get_running_loop().time
    begin, watch = clock(), Stopwatch()
    async with asyncio.TaskGroup() as flying:
        for number, put in enumerate(puts):
            await asyncio.sleep(begin + number / SINGLE_PER_S - clock())
            flying.create_task(write(put))
    yield Done(len(puts) / watch.wall_s)
    await store.close()


async def bulk_writer(work: Work) -> AsyncIterator[Done]:
    """A part: round after round, each as one fenced plan."""
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


def _fill(engine: Engine, count: int) -> None:
    puts = enumerate(endpoints(count))
    with engine.begin() as connection:
        while portion := [_row(number, put) for number, put in itertools.islice(puts, PORTION)]:
            connection.execute(insert(OBJECTS), portion)


def _row(number: int, put: Put) -> dict[str, object]:
    name = f"e{number}"
    return {"key": put.key, "kind": "endpoint", "name": name, "doc": put.value, "revision": number + 1, "host": "h"}


BENCHMARK = Benchmark(Options, measure)
