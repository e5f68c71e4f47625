"""The election keeps its promises under every seed: tests/sim/election_invariants.py says which."""

from __future__ import annotations

import pytest

from holdfast.testing import World, simulate
from tests.sim.election import replay
from tests.sim.election_scenario import ElectionResult, election_scenario

SEEDS = 300
AT_ONCE = 20


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_no_seed_breaks_a_promise(first: int) -> None:
    came_to = [keep(seed) for seed in range(first, first + AT_ONCE)]
    assert sum(one.terms for one in came_to) > 2 * AT_ONCE, "hardly anybody was deposed: this proves nothing"
    assert sum(one.writes for one in came_to) > 10 * AT_ONCE, "hardly anybody wrote: this proves nothing"
    assert any(one.recovered_after > 1 for one in came_to), "nobody had to wait for a lease: this proves nothing"


@pytest.mark.soak
@pytest.mark.parametrize("first", range(SEEDS, 5_000, 100))
def test_no_seed_breaks_a_promise_long_version(first: int) -> None:
    assert len([keep(seed) for seed in range(first, first + 100)]) == 100


def test_a_seed_replays_step_by_step() -> None:
    first, second = simulate(3, election_scenario), simulate(3, election_scenario)
    assert first.trace.text == second.trace.text
    assert first.value == second.value


def keep(seed: int) -> ElectionResult:
    try:
        return simulate(seed, election_scenario).value
    except Exception as error:
        error.add_note(f"replay it with: {replay(seed)}")
        raise


def test_a_failing_seed_names_the_command_that_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(world: World) -> ElectionResult:
        raise AssertionError("two leaders")

    monkeypatch.setitem(globals(), "election_scenario", fail)
    with pytest.raises(AssertionError, match="two leaders") as failed:
        keep(7)
    assert "replay it with: python -m tests.sim.election --seeds 1 --first 7" in failed.value.__notes__
