"""One change to many watchers: CPU of etcd per delivery, delivery time, and CPU of a re-list by all of them.

There are as many hosts as watchers, and every watcher watches all of them, as agents do. All watchers run in one
process, so the delivery time (from before the put until `Store.watch` yields the event) is that of many agents sharing
one core: an upper bound for agents on hosts of their own. etcd's CPU is that of the whole process, including puts and
background work.

For the re-list the watchers are paused, etcd restarts, a host changes and the history is compacted: all come back at
once to a compacted revision, and list again (without the usual spread over 60 s).
"""

from __future__ import annotations

import asyncio
import math
import resource
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from bench import fleet
from bench.benchmark import Benchmark
from bench.gauges import CPU_STEP_S
from bench.parts import Part, started
from bench.server import etcd_in_memory
from holdfast.model.base.time import Duration
from holdfast.runtime.daemon.process import cpu_s
from holdfast.store.api import Snapshot, Store
from holdfast.store.boottime import boot_now
from holdfast.store.client import EtcdStore
from holdfast.store.embedded.server import EmbeddedEtcd
from holdfast.store.transport.gateway import Connection

CHANGES_PER_S = 10
PATIENCE = Duration(seconds=60)
FILES_PER_WATCHER = 4


class Options(msgspec.Struct, frozen=True):
    watchers: Annotated[int, msgspec.Meta(ge=1, description="watchers, each of all hosts")] = 500
    changes: Annotated[int, msgspec.Meta(ge=1, description="changes of single hosts, at 10 per second")] = 200


class Figures(msgspec.Struct, frozen=True):
    etcd_cpu_us_per_delivery: float
    delivery_p99_ms: float
    relist_etcd_cpu_s: float
    agents_supported: int


class Swarm(msgspec.Struct, frozen=True):
    """Job of the watchers. They report when all have their first list, the first change, all changes, and the list
    after the compaction."""

    endpoint: str
    watchers: int
    changes: int


class Report(msgspec.Struct, frozen=True):
    """A stage that all watchers have reached, and the events they saw in it: revision and arrival time (ns)."""

    arrivals: list[tuple[int, int]] = []


def measure(options: Options) -> Figures:
    return asyncio.run(_measure(options))


async def _measure(options: Options) -> Figures:
    async with etcd_in_memory() as etcd:
        store = EtcdStore(etcd.connection(PATIENCE))
        try:
            for number in range(options.watchers):
                await _change(store, number, 0)
            async with started(watchers, Swarm(etcd.endpoint, options.watchers, options.changes)) as swarm:
                delivery_us, late_ms = await _deliver(etcd, store, swarm, options)
                relist_s = await _relist(etcd, store, swarm)
        finally:
            await store.close()
    return Figures(
        etcd_cpu_us_per_delivery=delivery_us,
        delivery_p99_ms=_quantile(late_ms, 0.99),
        relist_etcd_cpu_s=relist_s,
        agents_supported=int(1e6 / (delivery_us * CHANGES_PER_S)),
    )


async def _deliver(
    etcd: EmbeddedEtcd, store: Store, swarm: Part[Report], options: Options
) -> tuple[float, Sequence[float]]:
    """Return etcd's CPU per delivery in µs, and how many ms after its put each event arrived."""
    await swarm.report()
    await _change(store, 0, 1)
    await swarm.report()  # every stream has shown an event: from here on deliveries count
    before = cpu_s(etcd.pid)
    clock = asyncio.get_running_loop().time
    begin, sent = clock(), {}
    for number in range(options.changes):
        await asyncio.sleep(begin + number / CHANGES_PER_S - clock())
        moment = boot_now().ns
        sent[await _change(store, number % options.watchers, 2 + number // options.watchers)] = moment
    arrivals = (await swarm.report()).arrivals
    used = max(cpu_s(etcd.pid) - before, CPU_STEP_S)
    return used / len(arrivals) * 1e6, [(arrived - sent[revision]) / 1e6 for revision, arrived in arrivals]


async def _relist(etcd: EmbeddedEtcd, store: Store, swarm: Part[Report]) -> float:
    """Return etcd's CPU in seconds until all watchers have come back and have listed again."""
    swarm.pause()
    await etcd.stop()
    await etcd.start()
    await _change(store, 0, 0)
    await store.compact(await _change(store, 0, 1))  # the revision compacted at is the oldest kept: one before is gone
    before = cpu_s(etcd.pid)
    swarm.resume()
    await swarm.report()
    return cpu_s(etcd.pid) - before


async def _change(store: Store, number: int, generation: int) -> int:
    put = fleet.host(number, generation=generation)
    return await store.put(put.key, put.value)


@dataclass(slots=True)
class Watchers:
    """All watchers together, and the events they have seen."""

    store: Store
    snapshots: int = 0
    arrivals: list[tuple[int, int]] = field(default_factory=list)
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    async def watch(self) -> None:
        """Run one watcher; it remembers keys and revisions, as a Mirror does."""
        held: dict[bytes, int] = {}
        async for seen in self.store.watch(fleet.HOSTS, held=held):
            if isinstance(seen, Snapshot):
                held.update((entry.key, entry.mod_revision) for entry in seen.items)
                self.snapshots += 1
            else:
                now = boot_now().ns
                self.arrivals += [(event.mod_revision, now) for event in seen.batch]
                held.update((event.key, event.mod_revision) for event in seen.batch)
            self._moved.set()

    async def until(self, reached: Callable[[], bool]) -> Report:
        """Wait for a stage, and return the events that arrived meanwhile."""
        while not reached():
            self._moved.clear()
            await self._moved.wait()
        report = Report(list(self.arrivals))
        self.arrivals.clear()
        return report


async def watchers(swarm: Swarm) -> AsyncIterator[Report]:
    """Part: all watchers."""
    resource.setrlimit(resource.RLIMIT_NOFILE, _files(swarm.watchers))
    store = EtcdStore(Connection((swarm.endpoint,), deadline=PATIENCE), relist_spread=Duration(0))
    all_of_them = Watchers(store)
    tasks = [asyncio.create_task(all_of_them.watch()) for _ in range(swarm.watchers)]
    yield await all_of_them.until(lambda: all_of_them.snapshots == swarm.watchers)
    yield await all_of_them.until(lambda: len(all_of_them.arrivals) == swarm.watchers)
    yield await all_of_them.until(lambda: len(all_of_them.arrivals) == swarm.watchers * swarm.changes)
    yield await all_of_them.until(lambda: all_of_them.snapshots == 2 * swarm.watchers)
    for task in tasks:
        task.cancel()
    await store.close()


def _files(count: int) -> tuple[int, int]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, FILES_PER_WATCHER * count + 100)
    return (min(wanted, hard) if hard != resource.RLIM_INFINITY else wanted), hard


def _quantile(values: Sequence[float], part: float) -> float:
    return sorted(values)[math.ceil(part * len(values)) - 1]


BENCHMARK = Benchmark(Options, measure)
