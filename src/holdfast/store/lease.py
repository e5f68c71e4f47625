"""One leased key: a process writes it to show that it is alive, and the key is gone with its lease.

Nothing renews the lease beside the writer, so a writer that hangs does not look alive. An old etcd acknowledges the
renewal of a lease that was already revoked (C11): only a write under the lease proves it.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from holdfast.model.base.time import Duration
from holdfast.store.api import Compare, LeaseGone, Operation, Put, Store, StoreAway, StoreError, TxnResult

log = structlog.get_logger(__name__)


class LeasedKey:
    def __init__(self, store: Store, key: bytes, ttl: Duration) -> None:
        self._store = store
        self._ttl = ttl
        self.key = key
        self.lease = 0
        """0: none. The writer may put other keys under it too."""

    def put(self, value: bytes) -> Put:
        return Put(self.key, value, self.lease)

    async def write(self, value: bytes) -> None:
        """Renew the lease, or get a new one, and write the key, whatever it holds."""
        await self.renew_or_grant()
        await self.txn([], [self.put(value)])

    async def renew_or_grant(self, predecessor: int = 0) -> None:
        """Renew the lease. Without one, take over that of a predecessor if it has the same TTL, or get a new one."""
        if not self.lease and await self._renewed(predecessor) == self._ttl:
            self.lease = predecessor
        elif not await self.renew():
            await self.grant()

    async def renew(self) -> bool:
        """Renew the lease once. Return False if it is gone."""
        return await self._renewed(self.lease) is not None

    async def grant(self) -> None:
        """Get a new lease. The one before is left to expire."""
        self.lease = await self._store.grant(self._ttl)

    async def txn(  # protection: C11
        self, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult:
        """Write under the lease. Raises `LeaseGone`; then the next renewal gets a new lease."""
        try:
            return await self._store.txn(compares, then, otherwise)
        except LeaseGone:
            self.lease = 0
            raise

    async def revoke(self) -> None:
        """Revoke the lease, which deletes its keys. If that fails, it expires."""
        lease, self.lease = self.lease, 0
        if not lease:
            return
        try:
            await self._store.revoke(lease)
        except (StoreAway, StoreError) as error:
            log.info("lease not revoked; it expires", key=self.key.decode(), error=str(error))

    async def _renewed(self, lease: int) -> Duration | None:
        """Renew `lease` and return its TTL; None if it is 0 or gone."""
        if not lease:
            return None
        try:
            return await self._store.renew(lease)
        except LeaseGone:
            log.info("lease expired", key=self.key.decode(), lease=lease)
            return None
