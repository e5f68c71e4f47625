"""Arrivals: who is on his way and who has arrived is told in two places, and the word from one may only be late.

Endpoints and migrations come by two watches, and nothing keeps one in step with the other. So before a workload's newer
place takes its addresses from the older one, the store itself is asked whether it migrates; and when a migration is
gone, whether its workload has arrived. Until what it says is seen here too, packets go where they went, and on the host
that a workload goes to it stays programmed. Nearly always the other watch answers first: the store is asked after a
moment only, about many at once, and less and less often.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence, Set
from dataclasses import dataclass
from random import Random

from holdfast.agent.claims import ClaimKey
from holdfast.agent.desired.migration_query import MigrationQuery
from holdfast.agent.desired.source_claims import SourceClaims
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration, Instant
from holdfast.model.calico.endpoint import EndpointName
from holdfast.reconcile import Away
from holdfast.runtime.clock import Clock
from holdfast.store.api import Get, Store, StoreError

MOMENT = Duration(seconds=1)
SELDOM = Duration(seconds=5)
"""As seldom as a question is asked that has no answer."""
AT_ONCE = 40
"""Questions in one transaction: etcd takes 128 operations, and each has three at most."""


@dataclass
class _Open:
    """A question without an answer."""

    question: MigrationQuery
    since: Instant
    again: Instant
    pause: Duration = MOMENT


class MigrationCheck:
    def __init__(self, store: Store, region: Region, clock: Clock, chance: Random) -> None:
        """By `chance` not all hosts ask at one moment."""
        self._store = store
        self._region = region
        self._clock = clock
        self._chance = chance
        self._open: dict[bytes, _Open] = {}
        self._answered: list[MigrationQuery] = []
        self._asked = asyncio.Event()

    def weigh(self, demand: SourceClaims, touched: Collection[ClaimKey]) -> set[ClaimKey]:
        """Has the demand doubt what is not known to have moved, and act on what is; the claims that this touches."""
        answered, self._answered = self._answered, []
        news = set[ClaimKey]().union(*map(demand.settle, answered))
        while found := doubtful(demand, {*touched, *news}):
            for by in found:
                demand.doubt(by)
        demand.disbelieve({*touched, *news})
        self._note(demand.questions())
        return news

    async def run(self, wake: Callable[[], None]) -> None:
        """Asks for ever; `wake` is called when there is an answer."""
        while True:
            await self._asked.wait()
            await asyncio.sleep(MOMENT.total_seconds() * (0.5 + self._chance.random()))
            due = [one for one in self._open.values() if one.again <= self._clock.now()]
            for start in range(0, len(due), AT_ONCE):
                if answered := await self._ask(due[start : start + AT_ONCE]):
                    self._answered += answered
                    wake()

    def _note(self, questions: Collection[MigrationQuery]) -> None:
        now, before = self._clock.now(), self._open
        self._open = {
            one.by: old if (old := before.get(one.by)) and one.is_still(old.question) else _Open(one, now, now)
            for one in questions
        }
        if self._open:
            self._asked.set()
        else:
            self._asked.clear()

    async def _ask(self, asked: Sequence[_Open]) -> list[MigrationQuery]:
        """Those that are answered; the others are asked again, later and later."""
        keys = [one.question.keys(self._region) for one in asked]
        there = await self._read([key for some in keys for key in some])
        now = self._clock.now()
        for one in asked:
            one.again, one.pause = now + one.pause, min(2 * one.pause, SELDOM)
        if there is None:
            return []
        found = [[key in there for key in some] for some in keys]
        both = zip(asked, found, strict=True)
        return [one.question for one, each in both if one.question.is_answered(each, now - one.since)]

    async def _read(self, keys: Sequence[bytes]) -> Set[bytes] | None:
        """Which of these are there at one moment; a store that does not answer has not said no."""
        try:
            read = await self._store.txn([], [Get(key) for key in keys])
        except (Away, StoreError):
            return None
        return {key for key, entries in zip(keys, read.results, strict=True) if entries}


def doubtful(demand: SourceClaims, touched: Collection[ClaimKey]) -> dict[bytes, EndpointName]:
    """The endpoints that would take one of these claims from the same workload on another host."""
    return dict(demand.twins(touched))
