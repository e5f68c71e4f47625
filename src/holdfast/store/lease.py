"""Lease renewal, in a loop that does nothing else.

A lease is counted from before the request was sent, never from its reply (rule 2): a late reply only tells how long ago
the store renewed. A renewal counts once it is proven, if the holder has a proof: an old etcd acknowledges the renewal
of a lease that was already revoked (C11), so the elector proves it with a transaction on its term.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from holdfast.model.base.time import Duration, Instant
from holdfast.store.api import LeaseGone, Store, StoreAway, StoreError
from holdfast.store.boottime import Now, boot_now

MIN_TTL = Duration(seconds=2)
RETRY_MOST = Duration(seconds=1)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease that the store has granted us, and until when it is certainly ours."""

    id: int
    until: Instant


Proof = Callable[[Lease], Awaitable[None]]
"""Raises `LeaseGone` when the lease does not carry its keys; a renewal counts only after this returned."""


class LeaseKeeper:
    """Keeps one lease at a time and takes a new one when it is lost; a holder that attached keys waits for `next`."""

    def __init__(
        self,
        store: Store,
        ttl: Duration,
        *,
        interval: Duration | None = None,
        proof: Proof | None = None,
        now: Now = boot_now,
    ) -> None:
        """Renew every `interval`, by default a third of `ttl`. Raises `ValueError` for TTLs under 2 s."""
        if ttl < MIN_TTL:
            raise ValueError(f"a lease of {ttl.total_seconds():g} s is refused: etcd grants no less than 2 s")
        self._store = store
        self._ttl = ttl
        self._interval = interval or ttl / 3
        if self._interval >= ttl:
            raise ValueError("a lease must be renewed more often than it expires")
        self._proof = proof
        self._now = now
        self._lease: Lease | None = None
        self._granted = asyncio.Condition()

    def held(self) -> Lease | None:
        """Return the lease if it is certainly ours now."""
        lease = self._lease
        return lease if lease is not None and self._now() < lease.until else None

    async def next(self, after: int = 0) -> Lease:
        """Wait for a lease other than `after`."""
        async with self._granted:
            await self._granted.wait_for(lambda: self._lease is not None and self._lease.id != after)
        assert self._lease is not None
        return self._lease

    async def run(self) -> None:
        """Take a lease and renew it for ever, retrying while the store is unreachable."""
        while True:
            try:
                await (self._grant() if self._lease is None else self._renew(self._lease))
                pause = self._interval
            except LeaseGone:
                log.warning("lease lost", lease=self._lease.id if self._lease else 0)
                self._lease = None
                pause = Duration(0)
            except (StoreAway, StoreError) as error:
                log.warning("lease not renewed", why=str(error))
                pause = min(self._interval, RETRY_MOST)
            await asyncio.sleep(pause.total_seconds())

    async def resign(self) -> None:
        """Revoke the lease, which deletes every key under it. End `run` first."""
        lease, self._lease = self._lease, None
        if lease is None:
            return
        try:
            await self._store.revoke(lease.id)
        except LeaseGone:
            log.info("lease to be revoked is already gone", lease=lease.id)

    async def _grant(self) -> None:
        sent = self._now()
        lease = Lease(await self._store.grant(self._ttl), sent + self._ttl)
        async with self._granted:
            self._lease = lease
            self._granted.notify_all()

    async def _renew(self, lease: Lease) -> None:
        sent = self._now()
        renewed = Lease(lease.id, sent + await self._store.renew(lease.id))
        await self._prove(renewed)
        self._lease = renewed

    async def _prove(self, lease: Lease) -> None:  # protection: C11
        if self._proof is not None:
            await self._proof(lease)
