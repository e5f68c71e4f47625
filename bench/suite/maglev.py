"""Maglev tables: CPU to build and to commit one, its evenness, and the disruption when a backend goes.

Builds are measured in this process, one at a time and uncached, with weights that differ; the median counts. Disruption
is the share of flows of the nine other backends that move when one of ten goes, over many sets of ten. Commits go to
the real kernel in a network namespace: packing and committing the whole table, and the delta when one backend goes and
comes back, of tables that are built already. User and system time of this process count, which includes the kernel's
part of a commit. Without network namespaces there are no figures for commits.
"""

from __future__ import annotations

import sys
import time
from statistics import median
from typing import Annotated

import msgspec
import numpy as np

from bench.benchmark import Benchmark
from holdfast.balancer.dataplane.nftables import ruleset
from holdfast.balancer.dataplane.nftables.connection import NftConnection
from holdfast.balancer.dataplane.nftables.layout import MARKS, buckets_of
from holdfast.balancer.dataplane.nftables.ruleset import TableShape
from holdfast.balancer.dataplane.nftables.snapshot import table_of
from holdfast.balancer.maglev import table as maglev
from holdfast.balancer.maglev.churn import predicted
from holdfast.balancer.maglev.table import QUANTUM, BackendId, BucketWeight, in_full
from holdfast.balancer.vip import BackendEntry, Vip
from holdfast.netlink.netns import inside
from holdfast.netlink.nftables.elements import Marks, Transaction, empty
from holdfast.testing.real.netns import network
from holdfast.testing.real.processes import Unavailable

BUILDS = 7
COMMITS = 7
VIP = Vip.of("192.0.2.1", "tcp", 80)
SETS = 20
FIRST = 0x0A000001


class Options(msgspec.Struct, frozen=True):
    size: Annotated[int, msgspec.Meta(ge=251, description="buckets, a prime")] = 65537
    backends: Annotated[int, msgspec.Meta(ge=2, description="backends of the table that is built")] = 1_000


class Figures(msgspec.Struct, frozen=True):
    build_cpu_ms: float
    transition_cpu_ms: float
    transition_half_cpu_ms: float
    transition_innocent_pct: float
    delta_buckets: int
    delta_commit_cpu_ms: float | None
    full_commit_cpu_ms: float | None
    disruption_pct: float
    disruption_max_pct: float
    evenness_max: float


def fleet(count: int, first: int = FIRST) -> dict[BackendId, int]:
    return {BackendId(4, first + index, 80): QUANTUM for index in range(count)}


def measure(options: Options) -> Figures:
    weights = fleet(options.backends)
    gone = next(iter(weights))
    without = {backend: weight for backend, weight in weights.items() if backend != gone}
    moved = [share for number in range(SETS) for share in disruptions(FIRST + 1_000 * number, options.size)]
    delta_ms, full_ms = commits(weights, without, options.size)
    one_down, delta, innocent = transition(weights, 1, options.size)
    half_down, _, innocent_of_half = transition(weights, options.backends // 2, options.size)
    return Figures(
        build_cpu_ms=round(median(build_ms(options, number) for number in range(BUILDS)), 2),
        transition_cpu_ms=one_down,
        transition_half_cpu_ms=half_down,
        transition_innocent_pct=max(innocent, innocent_of_half),
        delta_buckets=delta,
        delta_commit_cpu_ms=delta_ms,
        full_commit_cpu_ms=full_ms,
        disruption_pct=round(100 * median(moved), 3),
        disruption_max_pct=round(100 * max(moved), 3),
        evenness_max=round(evenness(weights, options.size), 4),
    )


def build_ms(options: Options, number: int) -> float:
    """Return the CPU of one build. Each has another weight for one backend, so that none comes from the cache."""
    weights = fleet(options.backends)
    weights[next(iter(weights))] = QUANTUM - 1 - number
    before = time.process_time()
    maglev.base_table(weights, options.size)
    return 1_000 * (time.process_time() - before)


def transition(weights: dict[BackendId, int], down: int, size: int) -> tuple[float, int, float]:
    """Return the CPU of a health change, the buckets that it moves, and the percentage of others' buckets among all.

    The change takes so many backends down; the median is over several sets of them.
    """
    backends, base = maglev.table(in_full(weights), size)
    spent, delta, innocent = [], [], []
    for number in range(BUILDS):
        out = {backends[(number + place) % len(backends)] for place in range(down)}
        wanted = {one: BucketWeight(weight, 0 if one in out else weight) for one, weight in weights.items()}
        began = time.process_time()
        _, after = maglev.table(wanted, size)
        moved = np.flatnonzero(base != after)
        spent.append(1_000 * (time.process_time() - began))
        lost = np.isin(base, [place for place, one in enumerate(backends) if one in out])
        delta.append(len(moved))
        innocent.append(100 * float(np.count_nonzero(~lost[moved])) / size)
    return round(median(spent), 2), int(median(delta)), round(max(innocent), 3)


def disruptions(first: int, size: int) -> list[float]:
    """Return, for each of ten backends, the share of the others' buckets that move when it goes."""
    weights = fleet(10, first)
    serving, table = maglev.base_table(weights, size)
    shares = []
    for place, gone in enumerate(serving):
        left = {backend: weight for backend, weight in weights.items() if backend != gone}
        own = int(np.count_nonzero(table == place))
        shares.append((predicted(in_full(weights), in_full(left), size).moved - own) / (size - own))
    return shares


def evenness(weights: dict[BackendId, int], size: int) -> float:
    """Return the largest share of a backend, as a multiple of its fair share."""
    serving, table = maglev.base_table(weights, size)
    return float(np.bincount(table).max()) * len(serving) / size


def commits(
    weights: dict[BackendId, int], without: dict[BackendId, int], size: int
) -> tuple[float | None, float | None]:
    """Return the CPU to commit the delta and the whole table, each the median of several rounds."""
    try:
        with network() as net:
            return inside(net.namespace("lb").system_name, lambda: _commits(weights, without, size))
    except Unavailable as missing:
        print(f"commits are not measured: {missing}", file=sys.stderr)
        return None, None


def _commits(weights: dict[BackendId, int], without: dict[BackendId, int], size: int) -> tuple[float, float]:
    shape, kernel = TableShape("bench"), NftConnection("bench")
    marks = {one: MARKS + place for place, one in enumerate(weights, 1)}
    entries = {one: BackendEntry(weight) for one, weight in weights.items()}
    down = {one: BackendEntry(0, base=weights[one]) for one in weights.keys() - without.keys()}
    all_of_them, left = table_of(entries, marks, size), table_of({**entries, **down}, marks, size)
    kernel.restructure(ruleset.frame(shape) + ruleset.buckets(shape, [(VIP, size)]))
    nobody = empty(size)
    full, delta = [], []
    for _ in range(COMMITS):
        full.append(_commit_ms(kernel, nobody, all_of_them))
        delta.append(_commit_ms(kernel, all_of_them, left))
        delta.append(_commit_ms(kernel, left, all_of_them))
        _commit_ms(kernel, all_of_them, nobody)
    kernel.close()
    return round(median(delta), 2), round(median(full), 2)


def _commit_ms(kernel: NftConnection, before: Marks, after: Marks) -> float:
    began = time.thread_time()
    transaction = Transaction("bench")
    transaction.move(buckets_of(VIP, len(after)), before, after)
    kernel.commit(transaction)
    return 1_000 * (time.thread_time() - began)


BENCHMARK = Benchmark(Options, measure)
