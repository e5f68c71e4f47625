"""Maglev tables: CPU to build one, how even it is, and whom the loss of a backend moves.

Builds are measured in this process, one at a time and uncached, with weights that differ; the median counts. Disruption
is the share of flows of the nine other backends that move when one of ten goes, over many sets of ten. What a table
costs to commit needs a dataplane: it is not measured where there is none.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Annotated

import msgspec
import numpy as np

from bench.benchmark import Benchmark
from holdfast.balancer import maglev
from holdfast.balancer.churn import predicted
from holdfast.balancer.maglev import QUANTUM, Identity

BUILDS = 7
SETS = 20
FIRST = 0x0A000001


class Options(msgspec.Struct, frozen=True):
    size: Annotated[int, msgspec.Meta(ge=251, description="buckets, a prime")] = maglev.DEFAULT_SIZE
    backends: Annotated[int, msgspec.Meta(ge=2, description="backends of the table that is built")] = 1_000


class Figures(msgspec.Struct, frozen=True):
    build_cpu_ms: float
    delta_buckets: int
    delta_commit_cpu_ms: float | None
    full_commit_cpu_ms: float | None
    disruption_pct: float
    disruption_max_pct: float
    evenness_max: float


def fleet(count: int, first: int = FIRST) -> dict[Identity, int]:
    return {Identity(4, first + index, 80): QUANTUM for index in range(count)}


def measure(options: Options) -> Figures:
    weights = fleet(options.backends)
    gone = next(iter(weights))
    without = {backend: weight for backend, weight in weights.items() if backend != gone}
    moved = [share for number in range(SETS) for share in disruptions(FIRST + 1_000 * number, options.size)]
    return Figures(
        build_cpu_ms=round(median(build_ms(options, number) for number in range(BUILDS)), 2),
        delta_buckets=predicted(weights, without, options.size).moved,
        delta_commit_cpu_ms=None,
        full_commit_cpu_ms=None,
        disruption_pct=round(100 * median(moved), 3),
        disruption_max_pct=round(100 * max(moved), 3),
        evenness_max=round(evenness(weights, options.size), 4),
    )


def build_ms(options: Options, number: int) -> float:
    """CPU of one build. Each has another backend at another weight, so that none is remembered from the one before."""
    weights = fleet(options.backends)
    weights[next(iter(weights))] = QUANTUM - 1 - number
    before = time.process_time()
    maglev.table(weights, options.size)
    return 1_000 * (time.process_time() - before)


def disruptions(first: int, size: int) -> list[float]:
    """For each of ten backends the share of the others' buckets that move when it goes."""
    weights = fleet(10, first)
    serving, table = maglev.table(weights, size)
    shares = []
    for place, gone in enumerate(serving):
        left = {backend: weight for backend, weight in weights.items() if backend != gone}
        own = int(np.count_nonzero(table == place))
        shares.append((predicted(weights, left, size).moved - own) / (size - own))
    return shares


def evenness(weights: dict[Identity, int], size: int) -> float:
    """The largest share of a backend, as a multiple of its fair one."""
    serving, table = maglev.table(weights, size)
    return float(np.bincount(table).max()) * len(serving) / size


BENCHMARK = Benchmark(Options, measure)
