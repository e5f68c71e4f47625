"""Identity check of the elector: detects a store that is not the one this server knows.

Checked before the server campaigns, and periodically after. In a store of another fleet this server neither leads nor
writes (`foreign_store`); it does not exit. A store that was restored from a backup is led, but nothing is deleted until
an operator has confirmed it (`store_restored`; the syncer's gate holds the deletes). A store without an identity gets
one from its first leader.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field

import structlog

from holdfast.model.base.region import Region
from holdfast.model.base.time import NEVER, Instant
from holdfast.model.control.identity import Identity
from holdfast.runtime.store_memory import StoreMemory
from holdfast.store.api import Store, WriteConflict
from holdfast.store.fenced.store import FencedStore
from holdfast.store.identity import Judgement, SeenStore, StoreVerdict, classify_store, create_identity, read_identity

log = structlog.get_logger(__name__)


@dataclass
class IdentityCheck:
    """Judges the store periodically, and remembers the one that was ours."""

    store: Store
    region: Region
    memory: StoreMemory
    judgement: Judgement | None = None
    since: Instant = field(default=NEVER)
    fleet: str = ""
    """Fleet of the store when it was last read."""
    unsaved: bool = False
    """True while the last sighting of the store could not be saved."""

    async def check(self, now: Instant) -> Judgement:
        """Read the store's identity and judge it by what is remembered."""
        remembered = self.memory.load()
        found = await read_identity(self.store, self.region)
        judgement = classify_store(remembered, found)
        self.fleet = found.identity.fleet if isinstance(found.identity, Identity) else ""
        if judgement.verdict is StoreVerdict.OURS and isinstance(found.identity, Identity):
            known = remembered or SeenStore(found.identity.fleet, found.identity.epoch, 0)
            await self._remember(known.seen(found.identity, found.revision))
        if self.judgement is None or judgement.verdict is not self.judgement.verdict:
            self.since = now
            expected = judgement.verdict in (StoreVerdict.OURS, StoreVerdict.UNNAMED)
            write = log.info if expected else log.error
            write("store identity checked", verdict=judgement.sentence, to_release=judgement.opens or None)
        self.judgement = judgement
        return judgement

    async def _remember(self, known: SeenStore) -> None:
        """Save in a thread, because the loop has leases to renew and a disk may be slow. A disk that takes no writes
        costs the knowledge of the last revisions, not the leadership."""
        try:
            await asyncio.to_thread(self.memory.keep, known)
            self.unsaved = False
        except OSError as error:
            if not self.unsaved:
                log.error("cannot save the store identity; retrying", error=str(error))
            self.unsaved = True

    @property
    def refusal(self) -> Judgement | None:
        """The judgement, if an operator has to act on it."""
        wrong = self.judgement is not None and self.judgement.verdict in (StoreVerdict.FOREIGN, StoreVerdict.RESTORED)
        return self.judgement if wrong else None

    async def create(self, fenced: FencedStore) -> None:
        """Give an identity to a store that has none; another leader's wins if it was faster."""
        remembered = self.memory.load()
        identity = Identity(remembered.fleet, remembered.epoch + 1) if remembered else Identity(uuid.uuid4().hex, 1)
        try:
            await create_identity(fenced, self.region, identity)
            log.info("store identity created", fleet=identity.fleet, epoch=identity.epoch)
        except WriteConflict:
            log.info("store identity was created by another leader meanwhile")
