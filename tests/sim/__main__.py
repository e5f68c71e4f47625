"""The whole fleet by hand: python -m tests.sim --seeds 500 --jobs 2 [--first 1000] [--bug "no fence"] [--trace FILE].

`--shrink SEED` takes faults, actors and time away from a seed that fails, for as long as it fails as before. The parts
have commands of their own: tests.sim.election, tests.sim.agent, tests.sim.restores.
"""
# ruff: noqa: T201 -- a command

from __future__ import annotations

import logging
import sys

import structlog

from tests.sim.seeds import Seeds
from tests.sim.whole_fleet.bugs import BUGS
from tests.sim.whole_fleet.scenario import WHOLE, FleetResult, fleet_scenario
from tests.sim.whole_fleet.shrink import shrink


def came_to(one: FleetResult) -> dict[str, int]:
    return {"terms": one.terms, "writes": one.writes, "deletes": one.deletes, "edits": one.edits, "faults": one.faults}


FLEET = Seeds("python -m tests.sim", "fleet", fleet_scenario, BUGS, came_to)


def main(arguments: list[str]) -> int:
    if "--shrink" not in arguments:
        return FLEET.main(arguments)
    seed = int(arguments[arguments.index("--shrink") + 1])
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    size = shrink(seed, WHOLE)
    print(f"seed {seed} fails as before with {size}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
