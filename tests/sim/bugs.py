"""All planted bugs: python -m tests.sim.bugs --seeds 500 [--jobs 2] [--of fleet]. That many seeds must find each one.

Prints, for every protection that is removed, the first seed that notices and what it says; exits with 1 if one is not
noticed.
"""
# ruff: noqa: T201 -- a command

from __future__ import annotations

import argparse
import logging
import multiprocessing
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import structlog

from holdfast.testing import first_failure
from holdfast.testing.sim.simulate import Scenario
from tests.sim import agent_bugs, election_bugs, restore_bugs
from tests.sim.agent_restore_scenario import agent_restore_scenario
from tests.sim.agent_scenario import agent_scenario
from tests.sim.election_scenario import election_scenario
from tests.sim.restore_scenario import restore_scenario
from tests.sim.whole_fleet import bugs as fleet_bugs
from tests.sim.whole_fleet.scenario import fleet_scenario


@dataclass(frozen=True, slots=True)
class World:
    """A simulation and what can be removed in it."""

    scenario: Scenario[Any]
    bugs: Mapping[str, Any]


WORLDS: Final[Mapping[str, World]] = {
    "election": World(election_scenario, election_bugs.BUGS),
    "agent": World(agent_scenario, agent_bugs.BUGS),
    "restores": World(restore_scenario, restore_bugs.BUGS),
    "restored agent": World(agent_restore_scenario, restore_bugs.AGENT_BUGS),
    "fleet": World(fleet_scenario, fleet_bugs.BUGS),
}


@dataclass(frozen=True, slots=True)
class Found:
    """The first seed that noticed a bug; None if none did."""

    of: str
    bug: str
    seed: int | None
    said: str

    def __str__(self) -> str:
        place = f"{self.of}: {self.bug}"
        if self.seed is None:
            return f"NOT FOUND   {place}"
        return f"seed {self.seed:<6} {place}\n            {self.said[:110]}"


def find(seeds: int, place: tuple[str, str]) -> Found:
    of, bug = place
    world = WORLDS[of]
    with world.bugs[bug]():
        failure = first_failure(range(seeds), world.scenario)
    if failure is None:
        return Found(of, bug, None, "")
    return Found(of, bug, failure.seed, f"{type(failure.error).__name__}: {failure.error}".partition("\n")[0])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.bugs", description="Find every planted bug.")
    parser.add_argument("--seeds", type=int, default=500, help="how many may be needed for a bug")
    parser.add_argument("--jobs", type=int, default=1, help="processes that look for bugs side by side")
    parser.add_argument("--of", choices=WORLDS, help="the bugs of one simulation alone")
    given = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    places = [(of, bug) for of, world in WORLDS.items() if given.of in (None, of) for bug in world.bugs]
    found = []
    for one in _each(places, given.seeds, given.jobs):
        found.append(one)
        print(one, flush=True)
    missed = sum(one.seed is None for one in found)
    most = max((one.seed for one in found if one.seed is not None), default=0)
    print(f"{len(found) - missed} of {len(found)} planted bugs found, each within {most + 1} seeds")
    return 1 if missed else 0


def _each(places: list[tuple[str, str]], seeds: int, jobs: int) -> Iterator[Found]:
    if jobs == 1:
        yield from map(partial(find, seeds), places)
        return
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(partial(find, seeds), places)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
