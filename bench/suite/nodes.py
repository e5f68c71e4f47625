"""The agent's memory: what an event costs in the journal, whether it waits for a compaction, and what a restart costs.

Peers are JSON of 1 kB. *journal_us_per_event* is CPU per event, each written by itself. *event_stall_max_ms* is the
longest that an event, one after another, took while the journal was compacted, from its turn of the loop until it was
written; what the kernel gave to others meanwhile is not counted. A machine that stands still for a moment is none of
the journal's doing: of three compactions, each slice counts with the shortest wait that it has caused.

The rest is of a fresh process. *restore_cpu_s* is for opening the journal and putting what it tells in order, ready to
be compared; peers stay encoded, since equal ones need not be looked into. *prune_cpu_s* is for planning the deletion of
a tenth of them: diff, gates, plan, and decoding each peer that goes, because handlers get the whole object.
*journal_mb* is the compacted journal, *rss_mb* that process once it has restored.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple
from uuid import UUID

import msgspec

from bench.benchmark import Benchmark, Unmeasurable
from bench.gauges import Stopwatch, resident_mb, waited_s
from bench.parts import started
from bench.server import scratch
from holdfast.agent.journal import Journal
from holdfast.model.time import Instant
from holdfast.reconcile import Brake, Gate, Kinds, Op, Owned, Sync, Synced, diff, one_kind, plan

BOOT = "bench"
SOURCE = "region"
COMPACTIONS = 3
LABELS = ("region", "zone", "room", "row", "rack", "unit", "switch", "power", "vendor", "model", "role", "owner")


Run = list[tuple[bytes, Owned[bytes]]]


class Options(msgspec.Struct, frozen=True):
    nodes: Annotated[int, msgspec.Meta(ge=10, description="peers to remember")] = 50_000


class Figures(msgspec.Struct, frozen=True):
    journal_us_per_event: float
    event_stall_max_ms: float
    restore_cpu_s: float
    prune_cpu_s: float
    journal_mb: float
    rss_mb: float


class Peer(msgspec.Struct, frozen=True, gc=False):
    """As large as another host is with what it occupies."""

    name: str
    uid: str
    addresses: tuple[str, ...]
    tunnel: str
    mac: str
    prefixes: tuple[str, ...]
    labels: dict[str, str]
    generation: int = 0


class Waits(NamedTuple):
    """Of the events of one compaction: one for each slice, and the longest while it was synced and installed."""

    slices: Sequence[float]
    end: float


class Restart(msgspec.Struct, frozen=True):
    journal: str
    nodes: int


class Restarted(msgspec.Struct, frozen=True):
    restore_cpu_s: float
    prune_cpu_s: float
    rss_mb: float


def measure(options: Options) -> Figures:
    return asyncio.run(_measure(options))


async def _measure(options: Options) -> Figures:
    with scratch() as folder:
        path = Path(folder) / "journal"
        journal = Journal.open(path, BOOT)
        per_event = _appended(journal, options.nodes)
        await asyncio.to_thread(int)  # as an agent does: the thread for syncs is there before the first event
        stall = longest([await _compacted(journal, options.nodes, number) for number in range(COMPACTIONS)])
        size = journal.size
        journal.close()
        async with started(restart, Restart(str(path), options.nodes)) as process:
            again = await process.report()
    return Figures(
        journal_us_per_event=per_event * 1e6,
        event_stall_max_ms=stall * 1e3,
        restore_cpu_s=again.restore_cpu_s,
        prune_cpu_s=again.prune_cpu_s,
        journal_mb=size / 1e6,
        rss_mb=again.rss_mb,
    )


def peers(count: int, generation: int = 0) -> Iterator[tuple[bytes, Peer]]:
    for number in range(count):
        high, low = number >> 8 & 255, number & 255
        name = f"compute-{number:06}"
        yield (
            name.encode(),
            Peer(
                name=name,
                uid=str(UUID(int=number)),
                addresses=(f"192.168.{high}.{low}", f"2001:db8::{number:x}"),
                tunnel=f"10.{number >> 16}.{high}.{low}",
                mac=f"66:00:00:{number >> 16:02x}:{high:02x}:{low:02x}",
                prefixes=tuple(f"10.{100 + each}.{high}.{low}/32" for each in range(8)),
                labels={f"topology.example.net/{each}": f"{each}-of-{name}" for each in LABELS},
                generation=generation,
            ),
        )


def _encoded(count: int, generation: int = 0) -> list[tuple[bytes, bytes]]:
    encode = msgspec.json.Encoder().encode
    return [(key, encode(peer)) for key, peer in peers(count, generation)]


def _appended(journal: Journal, count: int) -> float:
    """CPU seconds per event."""
    events = _encoded(count)
    watch = Stopwatch()
    for event in events:
        journal.add([event])
    return watch.cpu_s / count


async def _compacted(journal: Journal, count: int, generation: int) -> Waits:
    """How long events took during a compaction of all that is known."""
    events = _encoded(count, generation + 1)
    waits: list[float] = []
    slices = 0

    async def beside(work: Callable[[], None]) -> None:
        nonlocal slices
        slices = slices or len(waits)
        await asyncio.to_thread(work)

    compaction = asyncio.create_task(journal.compact(beside))
    for event in events:
        if compaction.done():
            break
        watch, waited = Stopwatch(), waited_s()
        await asyncio.sleep(0)
        journal.add([event])
        waits.append(watch.wall_s - (waited_s() - waited))
    await compaction
    return Waits(waits[:slices], max(waits[slices:], default=0.0))


def longest(compactions: Sequence[Waits]) -> float:
    """What the same slice did to an event each time, or the end of a compaction at its best."""
    slices: list[float] = [min(waits) for waits in zip(*(one.slices for one in compactions), strict=False)]
    return max([*slices, min(one.end for one in compactions)])


async def restart(told: Restart) -> AsyncIterator[Restarted]:
    """The next life of the agent."""
    watch = Stopwatch()
    journal = Journal.open(Path(told.journal), BOOT)
    have = sorted((key, Owned(body, SOURCE, 1)) for key, body in journal.live.items())
    restore = watch.cpu_s
    resident = resident_mb()
    if len(have) != told.nodes:
        raise Unmeasurable(f"{len(have):,} of {told.nodes:,} peers were remembered: {journal.opening.sentence}")
    journal.close()
    yield Restarted(restore, _pruned(have), resident)


def _pruned(have: Run) -> float:
    kinds: Kinds[bytes] = one_kind("peers")
    gates: list[Gate[bytes, bytes]] = [Sync({SOURCE: Synced(Instant(1), 2)}), Brake("peers", kinds)]
    decode = msgspec.json.Decoder(Peer).decode
    want = _nine_of_ten(have)
    watch = Stopwatch()
    planned = plan(diff(want, have, operator.eq), gates, {"peers": len(have)}, Instant(2), kinds)
    gone = [decode(change.owner.value) for change in planned.ready if change.op is Op.DELETE]
    cpu = watch.cpu_s
    if not len(gone) == len(planned.ready) == len(have) - len(want):
        raise Unmeasurable(f"{len(gone):,} of {len(have) - len(want):,} deletions were planned: a gate is in the way")
    return cpu


def _nine_of_ten(have: Run) -> Run:
    """Copies: nothing is equal because it is the same object."""
    return [
        (key, Owned(bytes(bytearray(owned.value)), SOURCE, 2))
        for number, (key, owned) in enumerate(have)
        if number % 10
    ]


BENCHMARK = Benchmark(Options, measure)
