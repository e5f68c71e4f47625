"""The simulated fleet: seeds per second of CPU time, and what a seed goes through.

Servers, agents, balancers and etcd as they are shipped, in one process and on virtual time (`python -m tests.sim`). The
first seed is run before and not counted: it imports what a daemon imports. A seed that breaks a promise ends the
benchmark.
"""

from __future__ import annotations

import logging
import time
from typing import Annotated

import msgspec
import structlog

from bench.benchmark import Benchmark, Unmeasurable
from holdfast.testing import simulate
from tests.sim.whole_fleet.scenario import fleet_scenario


class Options(msgspec.Struct, frozen=True):
    seeds: Annotated[int, msgspec.Meta(ge=1, description="seeds, each a minute of edits and faults, then rest")] = 15


class Figures(msgspec.Struct, frozen=True):
    seeds_per_s_per_core: float
    simulated_s_per_seed: float
    faults_per_seed: float


def measure(options: Options) -> Figures:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        return _measured(options.seeds)
    finally:
        structlog.reset_defaults()


def _measured(seeds: int) -> Figures:
    simulated, faults, began = 0.0, 0, 0.0
    for seed in range(seeds + 1):
        try:
            run = simulate(seed, fleet_scenario)
        except Exception as error:
            raise Unmeasurable(f"seed {seed} fails, replay it with python -m tests.sim --first {seed}") from error
        if seed == 0:
            began = time.process_time()
            continue
        simulated, faults = simulated + run.time, faults + run.value.faults
    cpu = time.process_time() - began
    return Figures(
        seeds_per_s_per_core=seeds / cpu, simulated_s_per_seed=simulated / seeds, faults_per_seed=faults / seeds
    )


BENCHMARK = Benchmark(Options, measure)
