"""The history checker itself: what it takes for right, and what it finds."""

from __future__ import annotations

import pytest

from holdfast.model.calico.endpoint import EndpointSpec
from tests.chaos.inventory_history import KeyHistory, went_back


def version(number: int) -> EndpointSpec:
    return EndpointSpec(orchestrator="holdfast", workload=f"w{number}", node="r1", endpoint="eth0")


ONE, TWO, THREE = map(version, (1, 2, 3))


@pytest.mark.parametrize(
    "stored", [(), (ONE,), (ONE, TWO, None, THREE), (TWO, THREE), (THREE,), (ONE, None, THREE)], ids=str
)
def test_versions_may_be_skipped(stored: KeyHistory) -> None:
    assert went_back([None, ONE, TWO, None, THREE], stored) is None


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        ((TWO, ONE), "its version 2 became"),
        ((THREE, None), "its version 2 was deleted, which nobody wanted any more, or ever"),
        ((version(9),), "its version 1 became"),
        ((ONE, None, TWO), "its version 3 became"),
    ],
    ids=["older after newer", "deleted while wanted", "never wanted", "back from the dead"],
)
def test_what_went_back_is_found(stored: KeyHistory, words: str) -> None:
    assert words in (went_back([None, ONE, TWO, None, THREE], stored) or "")
