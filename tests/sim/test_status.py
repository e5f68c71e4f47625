"""At rest the inventory says what follows from the reports, under every seed; queues are bounded; takeovers quiet."""

from __future__ import annotations

import pytest

from holdfast.testing import simulate
from tests.sim.status_scenario import HOSTS, OBJECTS, StatusResult, status_scenario

SEEDS = 6
AT_ONCE = 3
MOST = HOSTS * OBJECTS + HOSTS + 1
"""Every endpoint on every host, every agent, and "everything" itself."""


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_status_converges_queues_are_bounded_and_a_takeover_writes_nothing(first: int) -> None:
    came_to = [keep(seed) for seed in range(first, first + AT_ONCE)]
    assert sum(one.terms for one in came_to) > AT_ONCE, "hardly anybody was deposed: this proves nothing"
    assert sum(one.rows for one in came_to) > 20 * AT_ONCE, "hardly anything was written: this proves nothing"


@pytest.mark.soak
@pytest.mark.parametrize("first", range(SEEDS, 512, 50))
def test_status_converges_long_version(first: int) -> None:
    assert len([keep(seed) for seed in range(first, first + 50)]) == 50


def keep(seed: int) -> StatusResult:
    came_to = simulate(seed, status_scenario).value
    assert came_to.peak <= MOST
    assert came_to.after_takeover == 0
    return came_to
