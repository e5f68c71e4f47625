"""Arrivals: who is on his way and who has arrived is told in two places, and the word from one may only be late.

Endpoints and migrations come by two watches, and nothing keeps one in step with the other. So before a workload's newer
place takes its addresses from the older one, the store itself is asked whether it migrates: until it has said no, or
the migration is known here too, packets go where they went. And when a migration is gone, the store is asked whether
its workload has arrived: until what it says of both ends is seen here too, packets go where they went, and on the host
that it goes to it stays programmed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection

from holdfast.agent.claims import Key
from holdfast.agent.demand import Demand
from holdfast.agent.moves import Move
from holdfast.model.endpoint import ENDPOINT, EndpointName
from holdfast.model.migration import MIGRATION
from holdfast.model.region import Region
from holdfast.model.time import Duration
from holdfast.reconcile import Away
from holdfast.store.api import Get, Store, StoreError

AGAIN = Duration(seconds=1)


class Arrivals:
    def __init__(self, store: Store, region: Region, is_known: Callable[[bytes], bool]) -> None:
        """`is_known` tells whether the migration or the endpoint with that key is known here."""
        self._store = store
        self._region = region
        self._is_known = is_known
        self._doubted: dict[bytes, EndpointName] = {}
        self._ended: dict[bytes, Move] = {}
        self._settled: set[bytes] = set()
        self._asked = asyncio.Event()

    def weigh(self, demand: Demand, touched: Collection[Key]) -> set[Key]:
        """Has the demand doubt what is not known to have moved, and act on what is; the claims that this touches."""
        settled, self._settled = self._settled, set()
        news = set[Key]().union(*(demand.believe(by) | demand.end(by) for by in settled))
        while found := doubtful(demand, {*touched, *news}):
            for by in found:
                demand.doubt(by)
            self._doubted |= found
            self._asked.set()
        before, self._ended = self._ended, ended(demand)
        if self._ended.keys() - before.keys():
            self._asked.set()
        return news

    async def run(self, wake: Callable[[], None]) -> None:
        """Asks for ever; `wake` is called when there is an answer."""
        while True:
            await self._asked_or_again()
            for by, name in list(self._doubted.items()):
                if await self._answer(self._is_clear(name)):
                    del self._doubted[by]
                    self._settled.add(by)
                    wake()
            for by, move in list(self._ended.items()):
                if await self._answer(self._has_ended(move)):
                    self._settled.add(by)
                    wake()

    async def _asked_or_again(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(AGAIN.total_seconds() if self._doubted or self._ended else None):
                await self._asked.wait()
        self._asked.clear()

    async def _answer(self, question: Awaitable[bool]) -> bool:
        try:
            return await question
        except (Away, StoreError):
            return False  # a store that does not answer has not said no

    async def _is_clear(self, name: EndpointName) -> bool:
        """Whether an endpoint is known here to migrate, or does not."""
        key = MIGRATION.key(self._region, name)
        return self._is_known(key) or await self._store.get(key) is None

    async def _has_ended(self, move: Move) -> bool:
        """Whether it is known here how that migration ended: both its ends are here as they are in the store. Asked of
        one moment: an endpoint that is moved is written before its migration goes."""
        source, target = (ENDPOINT.key(self._region, name) for name in move)
        read = await self._store.txn([], [Get(MIGRATION.key(self._region, move.target)), Get(target), Get(source)])
        migrates, has_arrived, stays = map(bool, read.results)
        return not migrates and (has_arrived, stays) == (self._is_known(target), self._is_known(source))


def doubtful(demand: Demand, touched: Collection[Key]) -> dict[bytes, EndpointName]:
    """The endpoints that would take one of these claims from the same workload on another host."""
    return dict(demand.twins(touched))


def ended(demand: Demand) -> dict[bytes, Move]:
    """The migrations of which nobody knows how they ended."""
    return dict(demand.over())
