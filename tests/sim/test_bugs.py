"""Every planted bug is found: a simulation that finds nothing proves nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import pytest

from holdfast.testing import first_failure, simulate
from tests.sim.bugs import BUGS
from tests.sim.judge import Broken
from tests.sim.reign import reign

KNOWN: Final[Mapping[str, int]] = {}
"""A seed that finds it today. The order of steps changes with the code: when it does not any more, the first seeds are
tried as well, and the message names the one to write here."""

FIRST = 250
ALL = 1_000


def find(bug: str, seeds: Iterable[int]) -> int:
    with BUGS[bug]():
        failure = first_failure(seeds, reign)
    assert failure is not None, f"nobody noticed: {bug}"
    assert isinstance(failure.error, Broken), f"not found out, but fallen over: {failure.error!r}"
    return failure.seed


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found_by_a_seed_that_is_fine_without_it(bug: str) -> None:
    seed = find(bug, [KNOWN[bug], *range(FIRST)])
    simulate(seed, reign)


@pytest.mark.soak
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found_within_a_thousand_seeds(bug: str) -> None:
    assert find(bug, range(ALL)) < ALL
