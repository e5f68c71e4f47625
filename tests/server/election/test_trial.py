"""Database trial: a server is able only after a trial has succeeded (C45)."""

from __future__ import annotations

import asyncio

from holdfast.inventory.sql.engine import DatabaseTimeouts, answer_within
from holdfast.model.base.time import Duration
from holdfast.reconcile import Away
from holdfast.server.election.trial import WITHIN, DatabaseTrial, TrialState


class Database:
    def __init__(self) -> None:
        self.away = False

    async def attempt(self) -> None:
        if self.away:
            raise Away("database", "connection refused")


def test_a_server_is_unable_before_its_first_trial() -> None:
    assert DatabaseTrial(Database().attempt).state is TrialState.UNTRIED


def test_a_failed_trial_makes_it_unable_until_one_succeeds() -> None:
    database = Database()
    trial = DatabaseTrial(database.attempt)
    database.away = True
    asyncio.run(trial.once())
    assert (trial.state, trial.error) == (TrialState.FAILED, "database is unreachable: connection refused")
    database.away = False
    asyncio.run(trial.once())
    assert (trial.state, trial.error) == (TrialState.SUCCEEDED, "")


def test_a_trial_waits_longer_than_a_session_takes_to_give_up() -> None:
    connecting, answering = answer_within(Duration()), answer_within(DatabaseTimeouts().wait)
    assert connecting is not None
    assert answering is not None
    assert WITHIN.total_seconds() > connecting + answering
