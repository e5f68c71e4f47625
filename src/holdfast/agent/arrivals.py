"""Arrivals: a workload that is seen on a second host may be on its way there, and the word of it may only be late.

Endpoints and migrations come by two watches, and nothing keeps one in step with the other. So before a workload's newer
place takes its addresses from the older one, the store itself is asked whether it migrates. Until it has said no, or
the migration is known here too, packets go where they went.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from holdfast.agent.claims import Key
from holdfast.agent.demand import Demand
from holdfast.model.endpoint import EndpointName
from holdfast.model.migration import MIGRATION
from holdfast.model.region import Region
from holdfast.model.time import Duration
from holdfast.reconcile import Away
from holdfast.store.api import Store, StoreError

AGAIN = Duration(seconds=1)


class Arrivals:
    def __init__(self, store: Store, region: Region, is_known: Callable[[bytes], bool]) -> None:
        """`is_known` tells whether the migration with that key is known here."""
        self._store = store
        self._region = region
        self._is_known = is_known
        self._open: dict[bytes, EndpointName] = {}
        self._over: set[bytes] = set()
        self._asked = asyncio.Event()

    def weigh(self, demand: Demand, touched: Collection[Key]) -> set[Key]:
        """Has the demand doubt what is not known to have moved, and believe what is; the claims that this touches."""
        over, self._over = self._over, set()
        believed = set[Key]().union(*(demand.believe(by) for by in over))
        while found := doubtful(demand, {*touched, *believed}):
            for by in found:
                demand.doubt(by)
            self._open |= found
            self._asked.set()
        return believed

    async def run(self, wake: Callable[[], None]) -> None:
        """Asks for ever; `wake` is called when there is an answer."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            for by, name in list(self._open.items()):
                if await self._is_settled(name):
                    del self._open[by]
                    self._over.add(by)
                    wake()
            if self._open:
                await asyncio.sleep(AGAIN.total_seconds())
                self._asked.set()

    async def _is_settled(self, name: EndpointName) -> bool:
        key = MIGRATION.key(self._region, name)
        if self._is_known(key):
            return True
        try:
            return await self._store.get(key) is None
        except (Away, StoreError):
            return False  # a store that does not answer has not said no


def doubtful(demand: Demand, touched: Collection[Key]) -> dict[bytes, EndpointName]:
    """The endpoints that would take one of these claims from the same workload on another host."""
    return dict(demand.twins(touched))
