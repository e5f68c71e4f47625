"""The etcd store: listing, decoding into a Mirror, fenced bulk writes, and the cost of a watch per event.

The keys are endpoints (bench/fleet.py). Writers run in processes of their own, so that memory and CPU of the reader are
the reader's. Ranges and decoding are the median of three rounds, memory and blocked loop the worst.

- range: `Store.list`, every page dropped as it arrives; memory is the peak above what the process had before.
- decode: from an empty Mirror to one that holds every endpoint decoded, as a worker has it after its start, including
  the transfer. The blocked loop is measured in rounds of its own, because that measurement costs time.
- write: one plan through `FencedStore.bulk`, every transaction comparing the term.
- watch, batched: events of such a plan as `Store.watch` delivers them, from when its writer begins.
- watch, single: the same for single puts at 2,500/s.
- bare: listing, and writing a fifth as many keys, without our client (bench/bare.py): the speed of etcd itself.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Annotated

import msgspec

from bench import fleet
from bench.bare import bare_reader, bare_writer
from bench.benchmark import Benchmark, Unmeasurable
from bench.cost import Cost, Work
from bench.gauges import LoopBlock, PeakMemory, Stopwatch
from bench.parts import started
from bench.server import etcd_in_memory
from holdfast.model.base.time import Duration
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.store.api import Events, Put, Snapshot, Store
from holdfast.store.client import EtcdStore
from holdfast.store.fenced.packing import FencedWrite
from holdfast.store.fenced.store import FencedStore
from holdfast.store.mirror.mirror import Mirror
from holdfast.store.transport.gateway import Connection

ROUNDS = 3
SINGLE_PUTS = 10_000
SINGLE_PER_S = 2_500
SINGLE_IN_FLIGHT = 64
LEADER_KEY = b"/holdfast/v1/no-region/leader"
PATIENCE = Duration(seconds=60)


class Options(msgspec.Struct, frozen=True):
    keys: Annotated[int, msgspec.Meta(ge=1, description="keys in the store")] = 100_000


class Figures(msgspec.Struct, frozen=True):
    range_keys_per_s: float
    range_rss_growth_mb: float
    decode_keys_per_s: float
    decode_cpu_us_per_key: float
    loop_block_max_ms: float
    write_keys_per_s: float
    write_cpu_us_per_key: float
    watch_events_per_s: float
    watch_batched_cpu_us_per_event: float
    watch_single_cpu_us_per_event: float
    bare_range_keys_per_s: float
    bare_write_keys_per_s: float


def measure(options: Options) -> Figures:
    return asyncio.run(_measure(options.keys))


async def _measure(keys: int) -> Figures:
    async with etcd_in_memory() as etcd:
        written = await _written(Work(etcd.endpoint, keys))
        store = EtcdStore(etcd.connection(PATIENCE))
        try:
            ranged, growth_mb = await _range(store, keys)
            mirrored, block_s = await _mirrored(store, keys), await _blocked(store, keys)
            batched = await _watched(store, bulk_writer, Work(etcd.endpoint, keys, 1))
            bare_read = await _bare(bare_reader, Work(etcd.endpoint, keys))
            single = await _watched(store, single_writer, Work(etcd.endpoint, min(keys, SINGLE_PUTS), 2))
            bare_written = await _bare(bare_writer, Work(etcd.endpoint, max(1, keys // 5), 3))
        finally:
            await store.close()
    return Figures(
        range_keys_per_s=ranged.per_s,
        range_rss_growth_mb=growth_mb,
        decode_keys_per_s=mirrored.per_s,
        decode_cpu_us_per_key=mirrored.cpu_us,
        loop_block_max_ms=block_s * 1e3,
        write_keys_per_s=written.per_s,
        write_cpu_us_per_key=written.cpu_us,
        watch_events_per_s=batched.per_s,
        watch_batched_cpu_us_per_event=batched.cpu_us,
        watch_single_cpu_us_per_event=single.cpu_us,
        bare_range_keys_per_s=bare_read.per_s,
        bare_write_keys_per_s=bare_written.per_s,
    )


async def _written(work: Work) -> Cost:
    async with started(bulk_writer, work) as writer:
        await writer.report()
        return await writer.report()


async def _bare(part: Callable[[Work], AsyncIterator[Cost]], work: Work) -> Cost:
    async with started(part, work) as running:
        cost = await running.report()
    _expect(cost.items, work.keys, "keys without our client")
    return cost


async def _range(store: Store, keys: int) -> tuple[Cost, float]:
    await store.get(LEADER_KEY)  # connections and code are loaded; only the list grows from now on
    memory = PeakMemory()

    costs = []
    for _ in range(ROUNDS):
        found, watch = 0, Stopwatch()
        async for page in store.list(fleet.ENDPOINTS):
            found += len(page.entries)
        costs.append(Cost(keys, watch.wall_s, watch.cpu_s))
        _expect(found, keys, "keys listed")
    return _median(costs), memory.growth_mb


async def _mirrored(store: Store, keys: int) -> Cost:
    costs = []
    for _ in range(ROUNDS):
        watch = Stopwatch()
        async with _mirror(store, keys):
            costs.append(Cost(keys, watch.wall_s, watch.cpu_s))  # before the mirror is freed: a real one never is
    return _median(costs)


async def _blocked(store: Store, keys: int) -> float:
    blocks = []
    for _ in range(ROUNDS):
        async with LoopBlock.watched() as block, _mirror(store, keys):
            blocks.append(block.max_s)
    return max(blocks)


@asynccontextmanager
async def _mirror(store: Store, keys: int) -> AsyncIterator[None]:
    """Run a mirror, and enter the block once it has its first list."""
    mirror = Mirror(store, fleet.ENDPOINTS, ENDPOINT.decode)
    running = asyncio.create_task(mirror.run())
    try:
        await mirror.wait_synced()
        yield
    finally:
        running.cancel()
    _expect(len(mirror.objects), keys, "endpoints decoded")


def _median(costs: Sequence[Cost]) -> Cost:
    wall_s, cpu_s = (statistics.median(each) for each in zip(*((c.wall_s, c.cpu_s) for c in costs), strict=True))
    return Cost(costs[0].items, wall_s, cpu_s)


async def _watched(store: Store, writer: Callable[[Work], AsyncIterator[Cost]], work: Work) -> Cost:
    """Measure the cost of watching that work being written."""
    seen = store.watch(fleet.ENDPOINTS)
    assert isinstance(seen, AsyncGenerator)
    async with aclosing(seen), asyncio.timeout(2 * PATIENCE.total_seconds()):
        await anext(seen)  # the snapshot; from here on the stream is open while the writer prepares
        arriving = asyncio.create_task(_arrived(seen, work.keys))
        async with started(writer, work) as running:
            await running.report()
            watch = Stopwatch()
            await arriving
            cost = Cost(work.keys, watch.wall_s, watch.cpu_s)
            written = await running.report()
    if writer is single_writer and written.per_s < 0.9 * SINGLE_PER_S:
        print(f"note: single puts came at {written.per_s:.0f}/s, not at {SINGLE_PER_S}/s", file=sys.stderr)
    return cost


async def _arrived(seen: AsyncIterator[Snapshot | Events], wanted: int) -> None:
    count = 0
    while count < wanted:
        events = await anext(seen)
        if isinstance(events, Snapshot):
            raise Unmeasurable("the watch lost its continuity; run it again on a quieter machine")
        count += len(events.batch)


async def bulk_writer(work: Work) -> AsyncIterator[Cost]:
    """Part: store the endpoints as one fenced plan."""
    store = EtcdStore(Connection((work.endpoint,), deadline=PATIENCE))
    writes = [FencedWrite((put,)) for put in fleet.endpoints(work.keys, generation=work.generation)]
    leader = await store.get(LEADER_KEY)
    term = leader.create_revision if leader else await store.put(LEADER_KEY, b"{}")
    fenced = FencedStore(store, LEADER_KEY, term)
    yield Cost()
    watch = Stopwatch()
    results = await fenced.bulk(writes)
    cost = Cost(len(results), watch.wall_s, watch.cpu_s)
    _expect(sum(result.error is None for result in results), work.keys, "keys written")
    yield cost
    await store.close()


async def single_writer(work: Work) -> AsyncIterator[Cost]:
    """Part: store the endpoints one by one, evenly spread over time, as thousands of agents would."""
    store = EtcdStore(Connection((work.endpoint,), deadline=PATIENCE))
    puts = list(fleet.endpoints(work.keys, generation=work.generation))
    room = asyncio.Semaphore(SINGLE_IN_FLIGHT)

    async def write(put: Put) -> None:
        async with room:
            await store.put(put.key, put.value)

    yield Cost()
    clock = asyncio.get_running_loop().time
    begin, watch = clock(), Stopwatch()
    async with asyncio.TaskGroup() as writes:
        for number, put in enumerate(puts):
            await asyncio.sleep(begin + number / SINGLE_PER_S - clock())
            writes.create_task(write(put))
    yield Cost(len(puts), watch.wall_s, watch.cpu_s)
    await store.close()


def _expect(found: int, wanted: int, what: str) -> None:
    if found != wanted:
        raise Unmeasurable(f"{found:,} of {wanted:,} {what}: the figures would be wrong")


BENCHMARK = Benchmark(Options, measure)
