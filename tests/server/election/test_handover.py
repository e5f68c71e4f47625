"""Handover: only a leader that has been unable for a while resigns, and only in favour of an able server (C33)."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from holdfast.model.base.time import Instant, seconds
from holdfast.model.control.server import Server, WorkerHealth
from holdfast.server.election.handover import (
    ABLE_FOR,
    PATIENCE,
    TRIAL_FAILED,
    Ability,
    HandoverRefused,
    able_successors,
    successor,
)
from holdfast.testing.fault import fault

NOW = Instant(1_000_000_000_000)


def server(*, database: bool = True, healthy: bool = True) -> Server:
    return Server(
        host="h",
        pid=1,
        boot_id="b",
        pid_namespace="n",
        version="1",
        since=datetime(2026, 1, 1, tzinfo=UTC),
        database=database,
        workers={"syncer": WorkerHealth(healthy, "ok" if healthy else "crash-looping")},
    )


ABLE, NO_DATABASE, SICK = server(), server(database=False), server(healthy=False)


def test_an_able_leader_never_hands_over() -> None:
    assert successor(Ability().updated(ABLE, {"b": ABLE}, NOW, leads=True), {"b": ABLE}, NOW + seconds(1_000)) is None


def test_inability_counts_from_its_beginning() -> None:
    ability = Ability().updated(NO_DATABASE, {}, NOW, leads=True).updated(SICK, {}, NOW + seconds(50), leads=True)
    assert ability.unable_since == NOW


def test_a_moment_of_ability_starts_the_count_again() -> None:
    ability = (
        Ability()
        .updated(SICK, {}, NOW, leads=True)
        .updated(ABLE, {}, NOW + seconds(50), leads=True)
        .updated(SICK, {}, NOW + seconds(51), leads=True)
    )
    assert ability.unable_since == NOW + seconds(51)


def test_an_unable_leader_hands_over_after_its_patience_to_the_first_able_server() -> None:
    others = {"d": ABLE, "b": SICK, "c": ABLE}
    ability = Ability().updated(NO_DATABASE, others, NOW, leads=True)
    assert successor(ability, others, NOW + PATIENCE - seconds(1)) is None
    assert successor(ability, others, NOW + PATIENCE) == "c"


def test_a_database_that_is_unreachable_for_all_servers_causes_no_handover() -> None:
    ability = Ability().updated(NO_DATABASE, {"b": NO_DATABASE}, NOW, leads=True)
    assert successor(ability, {"b": NO_DATABASE}, NOW + seconds(1_000)) is None


@fault(
    "C45",
    without="holdfast.server.election.handover:Ability.has_able_other",
    returns=True,
    sees=(AssertionError, r'successor\(ability, \{"b": ABLE\}, back \+ ABLE_FOR - seconds\(1\)\)'),
)
def test_C45_a_database_that_is_back_for_a_follower_first_causes_no_handover_yet() -> None:
    ability, away = Ability(), {"b": NO_DATABASE}
    for age in range(600):
        ability = ability.updated(NO_DATABASE, away, NOW + seconds(age), leads=True)
    back = NOW + seconds(600)
    ability = ability.updated(NO_DATABASE, {"b": ABLE}, back, leads=True)
    assert successor(ability, {"b": ABLE}, back + ABLE_FOR - seconds(1)) is None
    assert successor(ability, {"b": ABLE}, back + ABLE_FOR) == "b", "it is back for the follower only"


FAILED = msgspec.structs.replace(
    NO_DATABASE, workers={"syncer": WorkerHealth(healthy=False, state="waiting: database")}
)
FAILED_TRIAL = msgspec.structs.replace(NO_DATABASE, workers={"syncer": WorkerHealth(healthy=False, state=TRIAL_FAILED)})


@fault(
    "C45",
    without="holdfast.server.election.handover:Ability.remembered_failure",
    returns="",
    sees=(AssertionError, "not report.able"),
)
def test_C45_a_server_that_failed_as_leader_stays_unable_although_its_trials_succeed() -> None:
    ability = Ability().updated(FAILED, {}, NOW, leads=True)
    ability = ability.updated(FAILED, {}, NOW + seconds(1), leads=False)  # its work is being cancelled
    for age in range(2, 3_600):
        ability = ability.updated(ABLE, {}, NOW + seconds(age), leads=False)
    report = msgspec.structs.replace(ABLE, failed=ability.failed)
    assert not report.able
    assert report.why_not == "it failed as leader (syncer waiting: database)"


def test_a_server_that_failed_as_leader_is_able_again_once_it_leads_with_success() -> None:
    ability = Ability().updated(FAILED, {}, NOW, leads=True).updated(ABLE, {}, NOW + seconds(1), leads=False)
    assert ability.failed
    ability = ability.updated(ABLE, {}, NOW + seconds(2), leads=True)
    assert not ability.updated(ABLE, {}, NOW + seconds(3), leads=False).failed


def test_a_server_that_failed_as_leader_has_not_succeeded_by_being_elected_or_by_waiting_for_the_store() -> None:
    ability = Ability().updated(FAILED, {}, NOW, leads=True).updated(ABLE, {}, NOW + seconds(1), leads=False)
    for state, healthy in (("following", True), ("waiting: store", False)):
        elected = msgspec.structs.replace(ABLE, workers={"syncer": WorkerHealth(healthy, state)})
        ability = ability.updated(elected, {}, NOW + seconds(2), leads=True)
        assert ability.updated(ABLE, {}, NOW + seconds(3), leads=False).failed


def test_a_server_that_failed_as_leader_is_able_again_once_a_trial_that_failed_succeeds() -> None:
    ability = Ability().updated(FAILED, {}, NOW, leads=True).updated(FAILED_TRIAL, {}, NOW + seconds(1), leads=False)
    assert ability.failed
    assert not ability.updated(ABLE, {}, NOW + seconds(2), leads=False).failed


def test_a_leader_whose_worker_crashes_again_and_again_has_failed() -> None:
    assert Ability().updated(SICK, {}, NOW, leads=True).failed == "syncer crash-looping"


def test_a_leader_that_waits_for_the_store_has_not_failed() -> None:
    waiting = msgspec.structs.replace(ABLE, workers={"syncer": WorkerHealth(healthy=False, state="waiting: store")})
    assert not Ability().updated(waiting, {}, NOW, leads=True).failed


def test_there_is_no_handover_to_a_server_that_would_not_take_over() -> None:
    paused = msgspec.structs.replace(ABLE, stands=False)
    ability = Ability().updated(NO_DATABASE, {"b": paused, "c": ABLE}, NOW, leads=True)
    assert successor(ability, {"b": paused}, NOW + PATIENCE) is None
    assert successor(ability, {"b": paused, "c": ABLE}, NOW + PATIENCE) == "c"


def test_those_who_can_take_over_from_a_leader_that_steps_down_are_named() -> None:
    assert able_successors({"c": ABLE, "b": ABLE, "d": SICK}) == ["b", "c"]
    assert able_successors({"c": ABLE, "b": ABLE}, "c") == ["c"]


@pytest.mark.parametrize(
    ("others", "to", "reason"),
    [
        ({}, "", "no other server can take over (there is none): see holdfast get servers"),
        (
            {"b": SICK, "c": NO_DATABASE},
            "",
            "no other server can take over (b: syncer crash-looping; c: it has not reached the database yet)",
        ),
        ({"b": ABLE, "c": SICK}, "c", "c cannot take over (c: syncer crash-looping): see"),
        ({"b": ABLE}, "x", "no other server is called x; there are: b"),
    ],
)
def test_a_step_down_without_a_successor_is_refused_with_the_reason(
    others: dict[str, Server], to: str, reason: str
) -> None:
    with pytest.raises(HandoverRefused) as refused:
        able_successors(others, to)
    assert str(refused.value).startswith(reason)
