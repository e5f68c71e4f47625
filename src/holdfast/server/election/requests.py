"""Requests between servers: a key under a short lease, for the one server that carries it out.

That server deletes the key first, so that a request is carried out at most once; the lease ends one that nobody takes,
so that a server that was away does not carry out an old one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import structlog

from holdfast.model.base.bad import Bad
from holdfast.model.base.kind import Kind
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.store.api import Aspect, Compare, Delete, Put, Store, StoreAway, StoreError

log = structlog.get_logger(__name__)

T = TypeVar("T")


class LeasedRequests(Generic[T]):
    """Requests of one kind, each valid for that long."""

    def __init__(self, store: Store, region: Region, kind: Kind[T, str], valid_for: Duration) -> None:
        self._store = store
        self._region = region
        self._kind = kind
        self._valid_for = valid_for

    async def put(self, name: str, wanted: T) -> None:
        """Store a request under that name. Raises `StoreAway` or `StoreError`."""
        lease = await self._store.grant(self._valid_for)
        await self._store.txn([], [Put(self._kind.key(self._region, name), self._kind.encode(wanted), lease)])

    async def take(self, name: str) -> T | None:
        """Delete the request of that name, and return it; None if there is none that can be read. Raises `StoreAway` or
        `StoreError`."""
        entry = await self._store.get(self._kind.key(self._region, name))
        if entry is None:
            return None
        same = Compare(entry.key, Aspect.MOD_REVISION, entry.mod_revision)
        if not (await self._store.txn([same], [Delete(entry.key)])).succeeded:
            return None  # replaced by a newer one
        wanted = self._kind.decode(entry.key, entry.value)
        if isinstance(wanted, Bad):
            log.warning("unreadable request deleted", kind=self._kind.name, error=str(wanted))
            return None
        return wanted

    async def run(self, every: Duration, take: Callable[[], Awaitable[None]]) -> None:
        """Call `take` for ever; an unreachable store is retried."""
        while True:
            await asyncio.sleep(every.total_seconds())
            try:
                await take()
            except (StoreAway, StoreError) as error:
                log.debug("cannot read requests; retrying", kind=self._kind.name, error=str(error))
