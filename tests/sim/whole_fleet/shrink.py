"""Shrinks a failing seed of the whole fleet: fewer faults and actors, less time, while it fails in the same way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from holdfast.testing import simulate
from tests.sim.whole_fleet.scenario import FleetSize, fleet_scenario

SAME = 40
"""Characters of the failure's text that have to agree."""


def failure(seed: int, size: FleetSize) -> Exception | None:
    """Run one seed; return what went wrong."""
    try:
        simulate(seed, partial(fleet_scenario, size=size))
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is what is looked for
        return error
    return None


def shrink(seed: int, size: FleetSize) -> FleetSize:
    """Return the smallest size found with which the seed still fails as it does with `size`."""
    wanted = _kind(failure(seed, size))
    if wanted is None:
        raise ValueError(f"seed {seed} does not fail")
    shrunk = True
    while shrunk:
        shrunk = False
        for smaller in _smaller(size):
            if _kind(failure(seed, smaller)) == wanted:
                size, shrunk = smaller, True
                break
    return size


def _smaller(size: FleetSize) -> Iterator[FleetSize]:
    """Yield sizes with one thing less, those that save most first."""
    names = sorted(size.faults)
    half = len(names) // 2
    if half > 1:
        yield replace(size, faults=frozenset(names[:half]))
        yield replace(size, faults=frozenset(names[half:]))
    if size.balancers != 0:
        yield replace(size, balancers=0)
    if size.agents != 0:
        yield replace(size, agents=0 if size.agents == 1 else 1)
    if size.servers is None or size.servers > 1:
        yield replace(size, servers=2 if size.servers is None else size.servers - 1)
    for name in names:
        yield replace(size, faults=size.faults - {name})
    if size.lasting > 10:
        yield replace(size, lasting=size.lasting / 2)


def _kind(error: Exception | None) -> tuple[str, str] | None:
    """Return what has to agree: numbers, such as how many objects differ, follow from the size."""
    return None if error is None else (type(error).__name__, re.sub(r"\d+", "N", str(error))[:SAME])
