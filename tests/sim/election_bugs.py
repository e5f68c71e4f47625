"""Planted bugs: each removes one protection of the election, by one small patch. The simulation must find every one.

with BUGS["no fence"]():
    first_failure(range(1_000), election_scenario)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from unittest.mock import patch

from holdfast.config.sections.server import ServerSettings
from holdfast.model.base.time import Instant, nanoseconds, seconds
from holdfast.server.election import leadership, machine, predecessor
from holdfast.server.election.elector import Elector
from holdfast.server.election.machine import (
    CampaignFailed,
    Effect,
    Election,
    ElectionPhase,
    Event,
    Renew,
    Resign,
    Resigned,
    Won,
)
from holdfast.server.election.trial import TrialState
from holdfast.store.api import Compare, Delete, Operation, Put, TxnResult
from holdfast.store.fenced.store import FencedStore
from holdfast.testing.sim.nodes import NodeClock

Bug = Callable[[], contextlib.AbstractContextManager[object]]


def _replaced(owner: Any, name: str, by: Any) -> Bug:
    return lambda: patch.object(owner, name, by)


def claims_to_be_able(_last: TrialState) -> TrialState:
    """A follower that has not tried the database."""
    return TrialState.SUCCEEDED


def _from_the_reply(sent: Instant, answered: Instant) -> Instant:
    return answered


async def _unfenced(
    self: FencedStore, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
) -> TxnResult:
    return await self.store.txn(compares, then, otherwise)


async def _put_whatever_the_term(self: Elector, effect: Renew) -> bool:
    return (await self._store.txn([], [Put(self._key, self._value(), effect.lease)])).succeeded


async def _keepalive_is_enough(self: Elector, effect: Renew) -> bool:
    return True


def _time_of_day(self: NodeClock) -> Instant:
    return Instant(nanoseconds(self.wall() - datetime(2025, 1, 1, tzinfo=UTC)))


async def _delete_whatever_is_there(self: Elector, effect: Resign) -> Event:
    await self._store.txn([], [Delete(self._key)])
    return Resigned(self._now())


async def _campaign_blindly(self: Elector) -> Event:
    sent = self._now()
    lease = await self._store.grant(self._timings.ttl)
    self._handle(machine.Leased(self._now(), sent, lease))
    result = await self._store.txn([], [Put(self._key, self._value(), lease)])
    return Won(self._now(), result.revision)


def _believe_for_an_hour(state: Election, timings: ServerSettings) -> Instant:
    return state.proven + seconds(3600) if state.phase is ElectionPhase.LEADING else Instant(0)


@contextlib.contextmanager
def _uncertain_is_won() -> Iterator[None]:
    """Take a campaign without an answer as won, under the next expected revision."""
    failed = Elector._failed

    def guess(self: Elector, effect: Effect, error: Exception) -> Event | None:
        event = failed(self, effect, error)
        seen = self.state.seen
        if isinstance(event, CampaignFailed) and self.state.lease and seen is not None:
            return Won(event.now, seen.mod_revision + 1)
        return event

    with patch.object(Elector, "_failed", guess):
        yield


@contextlib.contextmanager
def _say_nothing_when_it_ends() -> Iterator[None]:
    """Hand leadership back without updating the board."""
    show = Elector._show

    def show_beginnings(self: Elector) -> None:
        if self.state.phase is ElectionPhase.LEADING:
            show(self)

    with patch.object(Elector, "_show", show_beginnings):
        yield


BUGS: Final[Mapping[str, Bug]] = {
    "the lease is counted from the reply": _replaced(machine, "counted_from", _from_the_reply),
    "no fence": _replaced(FencedStore, "txn", _unfenced),
    "no comparison of the term in the renewal": _replaced(Elector, "_proven", _put_whatever_the_term),
    "a keepalive reply alone is believed": _replaced(Elector, "_proven", _keepalive_is_enough),
    "the wall clock instead of the boot clock": _replaced(NodeClock, "now", _time_of_day),
    "a predecessor is cleared without looking at boot id and namespace": _replaced(
        predecessor, "same_kernel", lambda _other, _me: True
    ),
    "a resignation deletes whatever key is there": _replaced(Elector, "_resign", _delete_whatever_is_there),
    "a campaign does not compare for absence": _replaced(Elector, "_campaign", _campaign_blindly),
    "check() ignores the deadline": _replaced(leadership, "is_fresh", lambda _shown, _now: True),
    "the renew deadline is not enforced": _replaced(machine, "leading_until", _believe_for_an_hour),
    "an uncertain campaign is taken as won": _uncertain_is_won,
    "workers are not told of the end": _say_nothing_when_it_ends,
}
