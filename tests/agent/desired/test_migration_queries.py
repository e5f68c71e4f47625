"""A migration query is answered when the store, at one revision, agrees exactly with what is known here."""

from __future__ import annotations

import pytest

from holdfast.agent.desired.migrations import PATIENCE, MigrationQuery, Move
from holdfast.model.base.time import Duration, seconds
from holdfast.model.calico.endpoint import EndpointName

TARGET, SOURCE = (EndpointName(host, "holdfast", "w", "eth0") for host in ("b", "a"))
MOVE = Move(SOURCE, TARGET)


def asked(*stand: bool, move: Move = MOVE) -> MigrationQuery:
    return MigrationQuery(b"by", move, (TARGET, SOURCE)[: len(stand)], stand)


@pytest.mark.parametrize(
    ("stand", "found", "waited", "is_answered"),
    [
        ((False, True), [False, False, True], seconds(0), True),
        ((True, False), [False, True, False], seconds(0), True),
        ((False, True), [True, False, True], PATIENCE, False),
        ((False, True), [False, True, False], PATIENCE, False),
        ((True, True), [False, True, True], seconds(1), False),
        ((True, True), [False, True, True], PATIENCE, True),
        ((True,), [False, True], seconds(0), True),
        ((True,), [True, True], PATIENCE, False),
        ((True,), [False, False], PATIENCE, False),
    ],
    ids=[
        "cancelled, as known",
        "arrived, as known",
        "it migrates still, or again",
        "known otherwise here",
        "both ends stand: it is not over",
        "but not for ever",
        "nothing migrates to an endpoint that stands",
        "something does",
        "the endpoint is gone",
    ],
)
def test_a_query_is_answered_when_the_store_agrees_with_what_is_known_here(
    stand: tuple[bool, ...], found: list[bool], waited: Duration, is_answered: bool
) -> None:
    assert asked(*stand).is_answered(found, waited) is is_answered


def test_a_query_about_another_end_or_other_endpoints_is_another_query() -> None:
    question = asked(False, True)
    assert asked(False, True).is_same(question)
    assert not asked(True, True).is_same(question)
    assert not asked(False, True, move=Move(*MOVE)).is_same(question)
    assert not question.is_same(None)
