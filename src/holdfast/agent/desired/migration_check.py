"""Resolves live migrations when the endpoint watch and the migration watch are out of step.

Endpoints and migrations arrive on two watches without a common order. So before the newer place of a workload takes
over addresses from the older one, the store is asked whether a migration is in progress; and when a migration is gone,
whether its workload has arrived. Until the answer agrees with what is known here, traffic stays where it was, and on
the target host the workload stays programmed. Nearly always the other watch delivers first: the store is asked after a
short delay only, about many workloads at once, with increasing pauses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence, Set
from dataclasses import dataclass
from random import Random

from holdfast.agent.claims import ClaimKey
from holdfast.agent.desired.migrations import MigrationQuery
from holdfast.agent.desired.source_claims import SourceClaims
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration, Instant
from holdfast.model.calico.endpoint import EndpointName
from holdfast.reconcile import Away
from holdfast.runtime.clock import Clock
from holdfast.store.api import Get, Store, StoreError

DELAY = Duration(seconds=1)
MAX_PAUSE = Duration(seconds=5)
"""Longest pause between two attempts at an unanswered query."""
BATCH = 40
"""Queries in one transaction: etcd takes 128 operations, and each query needs three at most."""


@dataclass
class _OpenQuery:
    query: MigrationQuery
    since: Instant
    again: Instant
    pause: Duration = DELAY


class MigrationCheck:
    def __init__(self, store: Store, region: Region, clock: Clock, random: Random) -> None:
        """`random` spreads the queries of all hosts over time."""
        self._store = store
        self._region = region
        self._clock = clock
        self._random = random
        self._open: dict[bytes, _OpenQuery] = {}
        self._answered: list[MigrationQuery] = []
        self._has_queries = asyncio.Event()

    def evaluate(self, claims: SourceClaims, touched: Collection[ClaimKey]) -> set[ClaimKey]:
        """Hold unconfirmed takeovers, apply the answers that have arrived, and return the claims that this touches."""
        answered, self._answered = self._answered, []
        confirmed = set[ClaimKey]().union(*map(claims.confirm, answered))
        while unconfirmed := unconfirmed_moves(claims, {*touched, *confirmed}):
            for path in unconfirmed:
                claims.hold_until_confirmed(path)
        claims.revoke_confirmations({*touched, *confirmed})
        self._set_queries(claims.queries())
        return confirmed

    async def run(self, wake: Callable[[], None]) -> None:
        """Run until cancelled; send queries and call `wake` when there is an answer."""
        while True:
            await self._has_queries.wait()
            await asyncio.sleep(DELAY.total_seconds() * (0.5 + self._random.random()))
            due = [one for one in self._open.values() if one.again <= self._clock.now()]
            for start in range(0, len(due), BATCH):
                if answered := await self._send_queries(due[start : start + BATCH]):
                    self._answered += answered
                    wake()

    def _set_queries(self, queries: Collection[MigrationQuery]) -> None:
        now, before = self._clock.now(), self._open
        self._open = {
            one.path: old if (old := before.get(one.path)) and one.is_same(old.query) else _OpenQuery(one, now, now)
            for one in queries
        }
        if self._open:
            self._has_queries.set()
        else:
            self._has_queries.clear()

    async def _send_queries(self, queries: Sequence[_OpenQuery]) -> list[MigrationQuery]:
        """Return the queries that are answered; retry the others with increasing pauses."""
        keys = [one.query.keys(self._region) for one in queries]
        existing = await self._read([key for some in keys for key in some])
        now = self._clock.now()
        for one in queries:
            one.again, one.pause = now + one.pause, min(2 * one.pause, MAX_PAUSE)
        if existing is None:
            return []
        found = [[key in existing for key in some] for some in keys]
        both = zip(queries, found, strict=True)
        return [one.query for one, each in both if one.query.is_answered(each, now - one.since)]

    async def _read(self, keys: Sequence[bytes]) -> Set[bytes] | None:
        """Return which keys exist at one revision; None when the store is unreachable, which is not a no."""
        try:
            read = await self._store.txn([], [Get(key) for key in keys])
        except (Away, StoreError):
            return None
        return {key for key, entries in zip(keys, read.results, strict=True) if entries}


def unconfirmed_moves(claims: SourceClaims, touched: Collection[ClaimKey]) -> dict[bytes, EndpointName]:
    """Endpoints that would take over one of these claims from the same workload on another host."""
    return dict(claims.moved_endpoints(touched))
