"""Database trial: a server that does not lead tries the database itself, so that it claims no ability that it lacks.

Without it, a follower that never uses the database looked able, and a database that was away for everybody made
leadership wander from server to server (C45). A server is unable until its first trial has succeeded. A failure of a
leader that its trials do not notice is remembered by `handover`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum

import structlog

from holdfast.model.base.time import Duration
from holdfast.reconcile import Away
from holdfast.server.election.handover import FOLLOWING, TRIAL_FAILED

log = structlog.get_logger(__name__)

TRY_EVERY = Duration(seconds=5)
WITHIN = Duration(seconds=25)
"""Longer than connecting and any one timeout of the database session take together: a trial that takes longer hangs."""


class TrialState(Enum):
    """Result of the last trial. The value is the state that a follower's worker shows."""

    UNTRIED = "starting"
    FAILED = TRIAL_FAILED
    SUCCEEDED = FOLLOWING


class DatabaseTrial:
    """`attempt` reads and writes, and raises `Away` if it cannot."""

    def __init__(self, attempt: Callable[[], Awaitable[None]]) -> None:
        self._attempt = attempt
        self._last = TrialState.UNTRIED
        self.error = ""

    @property
    def state(self) -> TrialState:
        return follower_state(self._last)

    def _failed(self, error: str) -> None:
        if self._last is not TrialState.FAILED:
            log.warning("database is unreachable; this server cannot take over", error=error)
        self._last, self.error = TrialState.FAILED, error

    async def once(self) -> None:
        try:
            async with asyncio.timeout(WITHIN.total_seconds()):
                await self._attempt()
        except TimeoutError:
            self._failed(f"no answer within {WITHIN.total_seconds():g} s")
        except Away as away:
            self._failed(str(away))
        else:
            if self._last is TrialState.FAILED:
                log.info("database is reachable again; this server can take over")
            self._last, self.error = TrialState.SUCCEEDED, ""

    async def run(self) -> None:
        while True:
            await self.once()
            await asyncio.sleep(TRY_EVERY.total_seconds())


def follower_state(last: TrialState) -> TrialState:  # protection: C45
    """C45: a follower is as able as its last trial has shown."""
    return last
