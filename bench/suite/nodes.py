"""The agent's journal: cost of an event, longest stall during a compaction, and cost of a restart.

A node is another host, reached through the tunnel: a forwarding entry, a neighbour and a nexthop, each a record of its
own. *journal_us_per_event* is CPU per node that joins, each written by itself. *event_stall_max_ms* is the longest time
an event took while the journal was compacted, from its turn of the loop until it was written; time in which the kernel
ran other processes is not counted. To exclude stalls of the machine, each slice of a compaction counts with the
shortest of three waits.

The rest is measured in a fresh process. *restore_cpu_s* is from opening the journal until a plan can be made: indexed
by key, every record decoded and merged with what the kernel has, dependents counted. *open_cpu_s* is the part of it
until the records are indexed and still encoded. Reading the kernel itself is not included: see `routes`. *prune_cpu_s*
is for planning the deletion of a tenth of the nodes: diff, gates, plan. *journal_mb* is the compacted journal, *rss_mb*
the process after it has restored.
"""

from __future__ import annotations

import asyncio
import operator
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple
from uuid import UUID

import msgspec

from bench.benchmark import Benchmark, Unmeasurable
from bench.gauges import Stopwatch, resident_mb, waited_s
from bench.parts import started
from bench.server import scratch
from holdfast.agent.claims import KINDS, Claim, ClaimKey
from holdfast.agent.desired.peers import Encapsulation, LocalHost, peer
from holdfast.agent.gates.dependents import DependentsGate
from holdfast.agent.gates.precedence import PrecedenceGate
from holdfast.agent.gates.readiness import HandlerReadyGate, InterfaceGate
from holdfast.agent.gates.store_path import StorePathGate as PathGate
from holdfast.agent.journal import Journal, codec
from holdfast.agent.target import JournaledTarget
from holdfast.model.base.time import Instant
from holdfast.model.calico.host import Bgp, Host, HostSpec
from holdfast.reconcile import Brake, BrakeLimits, Gate, Op, Owned, Plan, Synced, SyncGate, diff, plan
from holdfast.testing.fakes.kernel import FakeKernel

BOOT = "bench"
SOURCE = "region"
COMPACTIONS = 3
CLAIMS = 4
"""Claims of each node."""
HERE = LocalHost("here", Encapsulation.ALWAYS)

Run = Sequence[tuple[ClaimKey, Owned[Claim]]]


class Options(msgspec.Struct, frozen=True):
    nodes: Annotated[int, msgspec.Meta(ge=10, description="peers to remember")] = 50_000


class Figures(msgspec.Struct, frozen=True):
    journal_us_per_event: float
    event_stall_max_ms: float
    restore_cpu_s: float
    open_cpu_s: float
    prune_cpu_s: float
    journal_mb: float
    rss_mb: float


class Waits(NamedTuple):
    """Waits of events during one compaction: one per slice, and the longest while it was synced and installed."""

    slices: Sequence[float]
    end: float


class Restart(msgspec.Struct, frozen=True):
    journal: str
    nodes: int


class Restarted(msgspec.Struct, frozen=True):
    restore_cpu_s: float
    open_cpu_s: float
    prune_cpu_s: float
    rss_mb: float


def measure(options: Options) -> Figures:
    return asyncio.run(_measure(options))


async def _measure(options: Options) -> Figures:
    with scratch() as folder:
        path = Path(folder) / "journal"
        journal = Journal.open(path, BOOT)
        per_event = _appended(journal, options.nodes)
        await asyncio.to_thread(int)  # as in an agent, the thread for syncs exists before the first event
        stall = longest([await _compacted(journal, options.nodes, number) for number in range(COMPACTIONS)])
        size = journal.size
        journal.close()
        async with started(restart, Restart(str(path), options.nodes)) as process:
            again = await process.report()
    return Figures(
        journal_us_per_event=per_event * 1e6,
        event_stall_max_ms=stall * 1e3,
        restore_cpu_s=again.restore_cpu_s,
        open_cpu_s=again.open_cpu_s,
        prune_cpu_s=again.prune_cpu_s,
        journal_mb=size / 1e6,
        rss_mb=again.rss_mb,
    )


def hosts(count: int, generation: int = 0) -> Iterator[Host]:
    for number in range(count):
        high, low = number >> 8 & 255, number & 255
        spec = HostSpec(
            bgp=Bgp(ipv4_address=f"192.{168 + (number >> 16)}.{high}.{low}/32"),
            tunnel_ipv4=f"10.{number >> 16}.{high}.{low}",
            tunnel_mac=f"66:00:00:{number >> 16:02x}:{high:02x}:{low:02x}",
        )
        yield Host.of(f"compute-{number:06}", spec, uid=str(UUID(int=number + (generation << 64))))


def _events(count: int, generation: int = 0) -> Iterator[list[tuple[bytes, bytes]]]:
    """Yield the journal entries of these nodes, all of a node at once."""
    for host in hosts(count, generation):
        claims = peer(host, HERE).claims()
        yield [(codec.write_key(key), codec.write(Owned(claim, SOURCE, 1))) for key, claim in claims]


def _appended(journal: Journal, count: int) -> float:
    """Return CPU seconds per event."""
    events = list(_events(count))
    watch = Stopwatch()
    for event in events:
        journal.add(event)
    return watch.cpu_s / count


async def _compacted(journal: Journal, count: int, generation: int) -> Waits:
    """Measure how long events took during a compaction of the whole journal."""
    events = _events(count, generation + 1)  # made one by one: a large list would keep the garbage collector busy
    waits: list[float] = []
    slices = 0

    async def in_thread(work: Callable[[], None]) -> None:
        nonlocal slices
        slices = slices or len(waits)
        await asyncio.to_thread(work)

    compaction = asyncio.create_task(journal.compact(in_thread))
    for event in events:
        if compaction.done():
            break
        watch, waited = Stopwatch(), waited_s()
        await asyncio.sleep(0)
        journal.add(event)
        waits.append(watch.wall_s - (waited_s() - waited))
    await compaction
    return Waits(waits[:slices], max(waits[slices:], default=0.0))


def longest(compactions: Sequence[Waits]) -> float:
    """Return the longest wait, where each slice and the end of a compaction count with their shortest."""
    slices: list[float] = [min(waits) for waits in zip(*(one.slices for one in compactions), strict=False)]
    return max([*slices, min(one.end for one in compactions)])


async def restart(job: Restart) -> AsyncIterator[Restarted]:
    """Part: a restarted agent."""
    dataplane = FakeKernel()
    dataplane.objects = {key: claim.shape for host in hosts(job.nodes) for key, claim in peer(host, HERE).claims()}
    watch = Stopwatch()
    journal = Journal.open(Path(job.journal), BOOT)
    kernel = JournaledTarget(journal, dataplane)
    opened = watch.cpu_s
    have = await _read(kernel)
    restore, resident = watch.cpu_s, resident_mb()
    known = len(journal.live)
    if known != CLAIMS * job.nodes:
        raise Unmeasurable(f"{known:,} objects of {job.nodes:,} nodes were restored: {journal.opened.sentence}")
    journal.close()
    yield Restarted(restore, opened, _pruned(kernel, have), resident)


async def _read(kernel: JournaledTarget) -> Run:
    """Read all pages."""
    page, upto = await kernel.read(None)
    have = list(page)
    while upto is not None:
        page, upto = await kernel.read(upto)
        have += page
    return have


def _pruned(kernel: JournaledTarget, have: Run) -> float:
    gates = _gates(kernel)
    counts = Counter(KINDS.of(key) for key, _ in have)
    want = _nine_of_ten(have)
    watch = Stopwatch()
    planned = plan(diff(want, have, operator.eq), gates, counts, Instant(2), KINDS)
    cpu = watch.cpu_s
    if _going(planned) != len(have) - len(want):
        raise Unmeasurable(f"{_going(planned):,} of {len(have) - len(want):,} deletes were planned: a gate is closed")
    return cpu


def _going(planned: Plan[ClaimKey, Claim]) -> int:
    """Count the deletes that are ready, or held only until nothing depends on the object."""
    held = [closed for _, closed in planned.held if closed.gate == "dependents"]
    return len(held) + sum(change.op is Op.DELETE for change in planned.ready)


def _gates(kernel: JournaledTarget) -> list[Gate[ClaimKey, Claim]]:
    """Return the agent's gates, with a brake that allows the delete of a tenth."""
    sync = SyncGate({SOURCE: Synced(Instant(1), 2)})
    return [
        sync,
        PrecedenceGate((SOURCE,), sync),
        HandlerReadyGate(kernel.handlers),
        InterfaceGate(kernel.dataplane),
        DependentsGate(kernel.present),
        PathGate(kernel.present, lambda: ("192.0.2.1",)),
        Brake("agent/brake", KINDS, BrakeLimits(share=0.2)),
    ]


def _nine_of_ten(have: Run) -> Run:
    """Return copies, so that nothing is equal because it is the same object."""
    return [
        (key, Owned(msgspec.convert(msgspec.to_builtins(owned.value), Claim), SOURCE, 2))
        for key, owned in have
        if key.number % 10
    ]


BENCHMARK = Benchmark(Options, measure)
