"""Identity check of the elector: the store guard of a server, which also creates a first identity.

Checked before the server campaigns, and periodically after. In a store of another fleet this server neither leads nor
writes (`foreign_store`); it does not exit. A store that was restored from a backup is led, but nothing is deleted until
an operator has confirmed it (`store_restored`; the syncer's gate holds the deletes). Without an inventory, a store
without an identity gets one from its first leader.
"""

from __future__ import annotations

import uuid

import structlog

from holdfast.model.control.identity import Identity
from holdfast.runtime.store_guard import StoreGuard
from holdfast.store.api import WriteConflict
from holdfast.store.fenced.store import FencedStore
from holdfast.store.identity import create_identity

log = structlog.get_logger(__name__)


class IdentityCheck(StoreGuard):
    """The store guard of a server."""

    async def create(self, fenced: FencedStore) -> None:
        """Give an identity to a store that has none; another leader's wins if it was faster."""
        remembered = self.memory.load()
        identity = Identity(remembered.fleet, remembered.epoch + 1) if remembered else Identity(uuid.uuid4().hex, 1)
        try:
            await create_identity(fenced, self.region, identity)
            log.info("store identity created", fleet=identity.fleet, epoch=identity.epoch)
        except WriteConflict:
            log.info("store identity was created by another leader meanwhile")
