"""One change to many watchers: CPU of etcd per delivery, delivery time, CPU of a re-list by all, memory of an agent.

There are as many hosts as watchers. With `--routing mesh` every watcher watches all hosts, as agents do, and each
change is delivered to all; with `bgp` each watches the keys of its own host, and a change of an endpoint is delivered
to one. Then a watcher is as an agent: connections of its own, the three streams of its worker, and a report every 30 s,
which all three deliver. All watchers run in one process, so the delivery time (from before the put until `Store.watch`
yields the event) is that of many agents sharing one core: an upper bound for agents on hosts of their own. etcd's CPU
is that of the whole process, including puts and background work. *etcd_rest_us_per_s* is measured before the changes,
for as long as they take: reports, their deliveries, checks of idle streams, and etcd itself. *etcd_cpu_us_per_change*
has this part in it; *etcd_cpu_us_per_change_alone* does not.

For the re-list the watchers are paused, etcd restarts, a host changes and the history is compacted: all come back at
once to a compacted revision, and list again (without the usual spread over 60 s).

*agent_rss_mb* is the resident memory of the largest process of one real agent, once it has programmed the endpoints of
`--endpoints` (0: not measured) in a network namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import resource
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

from bench import fleet, real_agent
from bench.benchmark import Benchmark
from bench.gauges import process_cpu_s
from bench.parts import Part, started
from bench.server import etcd_in_memory
from holdfast.agent.report.endpoints import statuses_of
from holdfast.model.base.time import Duration
from holdfast.model.control.intent import INTENT
from holdfast.model.fleet.agent_report import AGENT_REPORT
from holdfast.model.fleet.prefixes import FLEET_PREFIXES
from holdfast.runtime.daemon.process import cpu_s
from holdfast.store.api import Keys, OwnKey, Put, Snapshot, Store, StoreAway
from holdfast.store.boottime import boot_now
from holdfast.store.client import EtcdStore
from holdfast.store.embedded.server import EmbeddedEtcd
from holdfast.store.host_keys import keys_of
from holdfast.store.identity import identity_key
from holdfast.store.transport.gateway import Connection

CHANGES_PER_S = 10
PATIENCE = Duration(seconds=60)
SETTLE_S = 40.0
"""Time until each watcher has reported twice: until then its streams ask their member."""
CHECK_EVERY = Duration(seconds=10)
FILES_PER_WATCHER = 8
REPORT_EVERY = Duration(seconds=30)
REPORT = b"r" * 1_000


class Options(msgspec.Struct, frozen=True):
    watchers: Annotated[int, msgspec.Meta(ge=1, description="watchers, each of all hosts")] = 500
    changes: Annotated[int, msgspec.Meta(ge=1, description="changes of single hosts, at 10 per second")] = 200
    endpoints: Annotated[int, msgspec.Meta(ge=0, description="endpoints for the memory of an agent")] = 20_000
    routing: Annotated[Literal["mesh", "bgp"], msgspec.Meta(description="what is watched: mesh or bgp")] = "mesh"


class Figures(msgspec.Struct, frozen=True):
    etcd_cpu_us_per_delivery: float
    etcd_cpu_us_per_change: float
    etcd_cpu_us_per_change_alone: float
    etcd_rest_us_per_s: float
    delivery_p99_ms: float
    relist_etcd_cpu_s: float
    agents_supported: int | None
    """With `mesh`: at 10 changes per second, by one core of etcd."""
    agent_rss_mb: float | None


class Swarm(msgspec.Struct, frozen=True):
    """Job of the watchers. They report when all have their first lists, the first change, all changes, and the lists
    after the compaction."""

    endpoint: str
    watchers: int
    changes: int
    routing: str

    @property
    def readers(self) -> int:
        """Watchers that each change is delivered to."""
        return self.watchers if self.routing == "mesh" else 1

    @property
    def streams(self) -> int:
        """Streams of all watchers."""
        return sum(len(_watched(self.routing, number)) for number in range(self.watchers))


class Report(msgspec.Struct, frozen=True):
    """A stage that all watchers have reached, and the events they saw in it: revision and arrival time (ns)."""

    arrivals: list[tuple[int, int]] = []


def measure(options: Options) -> Figures:
    return asyncio.run(_measure(options))


async def _measure(options: Options) -> Figures:
    async with etcd_in_memory() as etcd:
        store = EtcdStore(etcd.connection(PATIENCE))
        try:
            await real_agent.write(store, [_put(options.routing, number, 0) for number in range(options.watchers)])
            job = Swarm(etcd.endpoint, options.watchers, options.changes, options.routing)
            async with started(watchers, job) as swarm:
                rest_s = await _rest(etcd, store, swarm, options)
                used_s, late_ms = await _deliver(etcd, store, swarm, options)
                relist_s = await _relist(etcd, store, swarm, options.routing)
        finally:
            await store.close()
    delivery_us = used_s / len(late_ms) * 1e6
    return Figures(
        etcd_cpu_us_per_delivery=delivery_us,
        etcd_cpu_us_per_change=used_s / options.changes * 1e6,
        etcd_cpu_us_per_change_alone=(used_s - rest_s) / options.changes * 1e6,
        etcd_rest_us_per_s=rest_s / (options.changes / CHANGES_PER_S) * 1e6,
        delivery_p99_ms=_quantile(late_ms, 0.99),
        relist_etcd_cpu_s=relist_s,
        agents_supported=int(1e6 / (delivery_us * CHANGES_PER_S)) if options.routing == "mesh" else None,
        agent_rss_mb=await _agent_mb(options) if options.endpoints else None,
    )


async def _agent_mb(options: Options) -> float:
    async with etcd_in_memory() as etcd:
        store = EtcdStore(etcd.connection(PATIENCE))
        try:
            return await real_agent.resident_mb(etcd, store, options.endpoints, options.routing)
        finally:
            await store.close()


async def _rest(etcd: EmbeddedEtcd, store: Store, swarm: Part[Report], options: Options) -> float:
    """Return etcd's CPU in seconds, for as long as the changes will take, once all watchers are there."""
    await swarm.report()
    await asyncio.sleep(SETTLE_S)
    before = process_cpu_s(etcd.pid)
    await asyncio.sleep(options.changes / CHANGES_PER_S)
    return process_cpu_s(etcd.pid) - before


async def _deliver(
    etcd: EmbeddedEtcd, store: Store, swarm: Part[Report], options: Options
) -> tuple[float, Sequence[float]]:
    """Return etcd's CPU in seconds, and how many ms after its put each event arrived."""
    for number in range(1 if options.routing == "mesh" else options.watchers):
        await _change(store, options.routing, number, 1)
    await swarm.report()  # every stream has shown an event: from here on deliveries count
    before = process_cpu_s(etcd.pid)
    clock = asyncio.get_running_loop().time
    begin, sent = clock(), {}
    for number in range(options.changes):
        await asyncio.sleep(begin + number / CHANGES_PER_S - clock())
        moment = boot_now().ns
        generation = 2 + number // options.watchers
        sent[await _change(store, options.routing, number % options.watchers, generation)] = moment
    arrivals = (await swarm.report()).arrivals
    return process_cpu_s(etcd.pid) - before, [(arrived - sent[revision]) / 1e6 for revision, arrived in arrivals]


async def _relist(etcd: EmbeddedEtcd, store: Store, swarm: Part[Report], routing: str) -> float:
    """Return etcd's CPU in seconds until all watchers have come back and have listed again."""
    swarm.pause()
    await etcd.stop()
    await etcd.start()
    await _change(store, routing, 0, 0)
    # The revision compacted at is the oldest kept: one before is gone.
    await store.compact(await _change(store, routing, 0, 1))
    before = cpu_s(etcd.pid)
    swarm.resume()
    await swarm.report()
    return cpu_s(etcd.pid) - before


def _put(routing: str, number: int, generation: int) -> Put:
    """Change of a host; with `bgp`, of the endpoint on it."""
    return fleet.host(number, generation=generation) if routing == "mesh" else fleet.endpoint(number, generation)


async def _change(store: Store, routing: str, number: int, generation: int) -> int:
    put = _put(routing, number, generation)
    return await store.put(put.key, put.value)


@dataclass(slots=True)
class Watchers:
    """All watchers together, and the events they have seen."""

    snapshots: int = 0
    arrivals: list[tuple[int, int]] = field(default_factory=list)
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    async def watch(self, store: Store, keys: Sequence[Keys], own: OwnKey | None) -> None:
        """Run one stream; it remembers keys and revisions, as a Mirror does."""
        held: dict[bytes, int] = {}
        async for seen in store.watch(*keys, own=own, held=held):
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
    is_mesh = swarm.routing == "mesh"
    stores = [_store(swarm) for _ in range(1 if is_mesh else swarm.watchers)]
    all_of_them = Watchers()
    tasks = []
    for number in range(swarm.watchers):
        store, own = stores[number % len(stores)], None if is_mesh else _own_key(number)
        watched = _watched(swarm.routing, number)
        tasks += [asyncio.create_task(all_of_them.watch(store, keys, own)) for keys in watched]
        if own is not None:
            tasks.append(asyncio.create_task(_report(store, own, number / swarm.watchers)))
    yield await all_of_them.until(lambda: all_of_them.snapshots == swarm.streams)
    yield await all_of_them.until(lambda: len(all_of_them.arrivals) == swarm.watchers)
    yield await all_of_them.until(lambda: len(all_of_them.arrivals) == swarm.readers * swarm.changes)
    yield await all_of_them.until(lambda: all_of_them.snapshots == 2 * swarm.streams)
    for task in tasks:
        task.cancel()
    for store in stores:
        await store.close()


def _store(swarm: Swarm) -> EtcdStore:
    return EtcdStore(Connection((swarm.endpoint,), deadline=PATIENCE), relist_spread=Duration(0))


def _own_key(number: int) -> OwnKey:
    key = AGENT_REPORT.key(fleet.REGION, fleet.host_name(number))
    return OwnKey(key, CHECK_EVERY, REPORT_EVERY)


async def _report(store: Store, own: OwnKey, offset: float) -> None:
    """Report as an agent does, from the start on, each watcher at its own part of the interval from then on."""
    pause = offset * REPORT_EVERY.total_seconds()
    while True:
        with contextlib.suppress(StoreAway):  # etcd is restarted
            await store.put(own.key, REPORT)
        await asyncio.sleep(pause)
        pause = REPORT_EVERY.total_seconds()


def _watched(routing: str, number: int) -> Sequence[Sequence[Keys]]:
    """Return the keys of each stream of a watcher."""
    if routing == "mesh":
        return [[fleet.HOSTS]]
    name = fleet.host_name(number)
    intents = [FLEET_PREFIXES.prefix(fleet.REGION), identity_key(fleet.REGION), INTENT.prefix(fleet.REGION)]
    return [keys_of(name, fleet.REGION), intents, [statuses_of(fleet.REGION, name)]]


def _files(count: int) -> tuple[int, int]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, FILES_PER_WATCHER * count + 100)
    return (min(wanted, hard) if hard != resource.RLIM_INFINITY else wanted), hard


def _quantile(values: Sequence[float], part: float) -> float:
    return sorted(values)[math.ceil(part * len(values)) - 1]


BENCHMARK = Benchmark(Options, measure)
