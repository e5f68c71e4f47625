"""Every change of the inventory reaches the store, and at rest the store is the inventory, under every seed."""

from __future__ import annotations

import pytest

from holdfast.testing import simulate
from tests.sim.syncer_scenario import SyncerResult, syncer_scenario

SEEDS = 30
AT_ONCE = 10


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_no_seed_leaves_the_store_different_from_the_inventory(first: int) -> None:
    came_to = [keep(seed) for seed in range(first, first + AT_ONCE)]
    assert sum(one.terms for one in came_to) > AT_ONCE, "hardly anybody was deposed: this proves nothing"
    assert sum(one.changes for one in came_to) > 20 * AT_ONCE, "hardly anything was edited: this proves nothing"
    assert sum(one.writes for one in came_to) > 10 * AT_ONCE, "hardly anything was written: this proves nothing"


@pytest.mark.soak
@pytest.mark.parametrize("first", range(SEEDS, 1_030, 50))
def test_no_seed_leaves_them_different_long_version(first: int) -> None:
    assert len([keep(seed) for seed in range(first, first + 50)]) == 50


def keep(seed: int) -> SyncerResult:
    return simulate(seed, syncer_scenario).value
