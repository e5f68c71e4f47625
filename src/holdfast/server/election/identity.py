"""The guard: is the store that answers the one this server knows? Asked before it campaigns, and ever again.

A store of another fleet closes the gate: this server neither leads nor writes, and nobody exits (`foreign_store`). A
store that was thrown back to an older life is led, but nothing is deleted until an operator has looked
(`store_restored`). A store without an identity gets one from its first leader.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

from holdfast.model.base.region import Region
from holdfast.model.base.time import NEVER, Instant
from holdfast.model.control.identity import Identity
from holdfast.reconcile import Change, Closed, Op, Reason
from holdfast.reconcile.change import K, V
from holdfast.runtime.store_memory import StoreMemory
from holdfast.store.api import Store, WriteConflict
from holdfast.store.fenced.store import FencedStore
from holdfast.store.identity import ADOPT, Judgement, SeenStore, StoreVerdict, create_identity, judge, read_identity

log = structlog.get_logger(__name__)


class IdentityReason(Reason):
    FOREIGN_STORE = "the store belongs to another fleet"
    STORE_RESTORED = "the store was thrown back to an older life"
    UNNAMED_STORE = "the store has no identity yet"


_REASONS: Mapping[StoreVerdict, IdentityReason] = {
    StoreVerdict.FOREIGN: IdentityReason.FOREIGN_STORE,
    StoreVerdict.RESTORED: IdentityReason.STORE_RESTORED,
    StoreVerdict.UNNAMED: IdentityReason.UNNAMED_STORE,
}

_OPENS: Mapping[IdentityReason, str] = {
    IdentityReason.FOREIGN_STORE: "store.endpoints and store.region naming the right store (holdfast doctor)",
    IdentityReason.STORE_RESTORED: ADOPT,
    IdentityReason.UNNAMED_STORE: "the first leader writing it (holdfast leader)",
}


@dataclass
class IdentityCheck:
    """Judges the store again and again, and remembers what was ours."""

    store: Store
    region: Region
    memory: StoreMemory
    judgement: Judgement | None = None
    since: Instant = field(default=NEVER)
    fleet: str = ""
    """The fleet that the store said it belongs to, when it was last asked."""
    forgetful: bool = False
    """Whether the last thing to remember could not be written down."""

    async def look(self, now: Instant) -> Judgement:
        """Reads the store's identity and judges it by what is remembered."""
        remembered = self.memory.recall()
        found = await read_identity(self.store, self.region)
        judgement = judge(remembered, found)
        self.fleet = found.identity.fleet if isinstance(found.identity, Identity) else ""
        if judgement.verdict is StoreVerdict.OURS and isinstance(found.identity, Identity):
            known = remembered or SeenStore(found.identity.fleet, found.identity.epoch, 0)
            await self._remember(known.seen(found.identity, found.revision))
        if self.judgement is None or judgement.verdict is not self.judgement.verdict:
            self.since = now
            level = log.info if judgement.verdict in (StoreVerdict.OURS, StoreVerdict.UNNAMED) else log.error
            level(judgement.sentence + (f"; opens by: {judgement.opens}" if judgement.opens else ""))
        self.judgement = judgement
        return judgement

    async def _remember(self, known: SeenStore) -> None:
        """Beside the loop, which has leases to renew: a disk may take its time. One that takes nothing at all costs
        the knowledge of the last revisions, not the leadership."""
        try:
            await asyncio.to_thread(self.memory.keep, known)
            self.forgetful = False
        except OSError as error:
            if not self.forgetful:
                log.error(f"what was seen of the store cannot be written down, the work goes on: {error}")
            self.forgetful = True

    @property
    def refusal(self) -> Judgement | None:
        """The judgement, if it is one that somebody has to look at."""
        wrong = self.judgement is not None and self.judgement.verdict in (StoreVerdict.FOREIGN, StoreVerdict.RESTORED)
        return self.judgement if wrong else None

    async def found(self, fenced: FencedStore) -> None:
        """A new leader names a store that has no name; whoever was faster is right."""
        remembered = self.memory.recall()
        identity = Identity(remembered.fleet, remembered.epoch + 1) if remembered else Identity(uuid.uuid4().hex, 1)
        try:
            await create_identity(fenced, self.region, identity)
            log.info(f"the store is named: fleet {identity.fleet}, epoch {identity.epoch}")
        except WriteConflict:
            log.info("the store was named by another leader meanwhile")

    def judge(self, change: Change[K, V], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        """The identity gate: a foreign store takes nothing, a restored one no deletes."""
        if self.judgement is None or self.judgement.verdict is StoreVerdict.OURS:
            return None
        reason = _REASONS[self.judgement.verdict]
        if reason is IdentityReason.STORE_RESTORED and change.op is not Op.DELETE:
            return None
        return Closed("identity", reason, self.since, _OPENS[reason], self.judgement.sentence)
