"""The whole fleet keeps its promises under every seed: tests/sim/whole_fleet/invariants.py says which."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

import pytest

from holdfast.testing import simulate
from tests.sim.__main__ import FLEET
from tests.sim.whole_fleet.faults import RECENT
from tests.sim.whole_fleet.scenario import WHOLE, FleetResult, FleetSize, fleet_scenario
from tests.sim.whole_fleet.shrink import shrink

KEPT = Path(__file__).with_name("seeds.txt")
FRESH, AT_ONCE = 8, 4
OF_A_COMMIT = FleetSize(faults=WHOLE.faults - RECENT)
QUIET = FleetSize(faults=frozenset(), lasting=10.0)


def kept(world: str) -> list[int]:
    lines = (line.split() for line in KEPT.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return [int(words[1]) for words in lines if words and words[0] == world]


def fresh() -> int:
    """Return the first of the seeds that belong to this commit: each commit draws others."""
    asked = ["git", "rev-parse", "HEAD"]
    found = subprocess.run(asked, cwd=KEPT.parent, capture_output=True, text=True, check=False).stdout
    return int(found[:7] or "0", 16)


def run(seed: int, size: FleetSize = WHOLE) -> FleetResult:
    return simulate(seed, partial(fleet_scenario, size=size)).value


@pytest.mark.parametrize("seed", kept("fleet"))
def test_seeds_that_once_failed_hold(seed: int) -> None:
    assert run(seed).terms > 0


@pytest.mark.parametrize("first", range(0, FRESH, AT_ONCE))
def test_no_seed_of_this_commit_breaks_a_promise(first: int) -> None:
    came_to = [run(fresh() + first + number, OF_A_COMMIT) for number in range(AT_ONCE)]
    assert sum(one.faults for one in came_to) > 5 * AT_ONCE, "hardly anything went wrong: this proves nothing"
    assert sum(one.edits for one in came_to) > 10 * AT_ONCE, "hardly anything was edited: this proves nothing"
    assert sum(one.writes for one in came_to) > 10 * AT_ONCE, "hardly anything was written: this proves nothing"


def test_a_seed_replays_byte_for_byte() -> None:
    first, second = (simulate(3, partial(fleet_scenario, size=QUIET)).trace.text for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    "bug",
    ["a campaign does not compare for absence", "the outbox is not read", "a worker that ended is not started again"],
)
def test_a_planted_bug_is_found(bug: str) -> None:
    with FLEET.bugs[bug]():
        assert any(fails(seed) for seed in range(40)), f"nobody noticed: {bug}"


def fails(seed: int) -> bool:
    try:
        run(seed)
    except Exception:  # noqa: BLE001 -- any failure is what is looked for
        return True
    return False


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 1_000, 50))
def test_no_seed_breaks_a_promise_long_version(first: int) -> None:
    assert len([run(seed) for seed in range(first, first + 50)]) == 50


@pytest.mark.soak
@pytest.mark.parametrize("bug", FLEET.bugs)
def test_every_planted_bug_is_found_within_500_seeds(bug: str) -> None:
    with FLEET.bugs[bug]():
        assert any(fails(seed) for seed in range(500)), f"nobody noticed: {bug}"


def test_a_failing_seed_shrinks_to_what_it_needs() -> None:
    faults = frozenset({"kill_a_worker", "compact", "flap_a_kernel", "lose_a_table"})
    with FLEET.bugs["the outbox is not read"]():
        smallest = shrink(0, FleetSize(servers=2, agents=1, balancers=1, faults=faults, lasting=15.0))
    assert smallest.faults == frozenset()
    assert smallest.balancers == 0
