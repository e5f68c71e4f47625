"""Identity gate: holds changes whose source is not the store that this host knows, or was restored from a backup.

A store of another fleet, or one without an identity, changes nothing here. A store that was restored from a backup may
add, but deletes nothing until an operator has confirmed it. Programmed state stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from holdfast.agent.claims import Claim, ClaimKey
from holdfast.agent.desired.watcher import SourceWatcher
from holdfast.agent.journal.journal import Offload
from holdfast.model.base.time import Instant
from holdfast.model.control.identity import Identity
from holdfast.reconcile import Away, Change, Closed, Op, Reason
from holdfast.runtime.store_memory import MemoryUnreadable, StoreMemory
from holdfast.store.api import StoreError
from holdfast.store.identity import ADOPT, Judgement, SeenStore, StoreVerdict, classify_store, read_identity

log = structlog.get_logger(__name__)


class StoreIdentityReason(Reason):
    UNKNOWN = "the identity of its source's store is not known yet"
    FOREIGN_STORE = "its source's store belongs to another fleet"
    STORE_RESTORED = "its source's store was restored from a backup"
    UNNAMED_STORE = "its source's store has no identity yet"


_REASONS: Mapping[StoreVerdict, StoreIdentityReason] = {
    StoreVerdict.FOREIGN: StoreIdentityReason.FOREIGN_STORE,
    StoreVerdict.RESTORED: StoreIdentityReason.STORE_RESTORED,
    StoreVerdict.UNNAMED: StoreIdentityReason.UNNAMED_STORE,
}

_OPENS: Mapping[StoreIdentityReason, str] = {
    StoreIdentityReason.UNKNOWN: "wait until the store answers (holdfast doctor)",
    StoreIdentityReason.FOREIGN_STORE: "set store.endpoints and store.region to the right store (holdfast doctor)",
    StoreIdentityReason.STORE_RESTORED: ADOPT,
    StoreIdentityReason.UNNAMED_STORE: "wait until the first leader writes it (holdfast leader)",
}


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """Last finding about one source's store."""

    judgement: Judgement | None
    since: Instant

    def refuses(self, op: Op) -> StoreIdentityReason | None:
        if self.judgement is None:
            return StoreIdentityReason.UNKNOWN
        reason = _REASONS.get(self.judgement.verdict)
        return None if reason is StoreIdentityReason.STORE_RESTORED and op is not Op.DELETE else reason


@dataclass
class StoreIdentityGate:
    memories: Mapping[str, StoreMemory]
    """One memory per source."""
    is_active: Callable[[str], bool] = lambda _name: True
    """Returns whether a source counts: one that an operator has forgotten need not have an identity."""
    offload: Offload = asyncio.to_thread
    known: dict[str, SourceIdentity] = field(default_factory=dict)
    invalidated: asyncio.Event = field(default_factory=asyncio.Event)

    def invalidate(self, name: str, now: Instant) -> None:
        """Hold everything from a source until its identity is read again: a new list may be that of another store."""
        self.known[name] = SourceIdentity(None, now)
        self.invalidated.set()

    async def check(self, watchers: Sequence[SourceWatcher], now: Instant) -> bool:
        """Read the identity of each store; return whether a verdict has changed."""
        before = self._verdicts()
        for watcher in watchers:
            await self._check(watcher, now)
        return before != self._verdicts()

    def judge(self, change: Change[ClaimKey, Claim], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        owner = change.owner.source
        for name in [owner] if owner in self.memories else [] if owner else sorted(self.memories):
            known = self.known.get(name, SourceIdentity(None, now))
            reason = known.refuses(change.op) if self.is_active(name) else None
            if reason is not None:
                detail = known.judgement.sentence if known.judgement else name
                return Closed("identity", reason, known.since, _OPENS[reason], detail)
        return None

    def _verdicts(self) -> dict[str, StoreVerdict | None]:
        return {name: one.judgement.verdict if one.judgement else None for name, one in self.known.items()}

    async def _check(self, watcher: SourceWatcher, now: Instant) -> None:
        name, memory = watcher.name, self.memories[watcher.name]
        before = self.known.setdefault(name, SourceIdentity(None, now))
        try:
            remembered, found = memory.load(), await read_identity(watcher.store, watcher.region)
        except (Away, StoreError):
            return  # the last finding still holds: an unreachable store changes nothing
        except MemoryUnreadable as error:
            self._set(name, before, Judgement(StoreVerdict.RESTORED, str(error)), now)
            return
        if self.invalidated.is_set():
            return  # this answer may be older than the list that invalidated it; it is read again at once
        judgement = classify_store(remembered, found)
        if judgement.verdict is StoreVerdict.OURS and isinstance(found.identity, Identity):
            seen = remembered or SeenStore(found.identity.fleet, found.identity.epoch, 0)
            await self._remember(memory, seen.seen(found.identity, found.revision))
        self._set(name, before, judgement, now)

    async def _remember(self, memory: StoreMemory, seen: SeenStore) -> None:
        try:
            await self.offload(lambda: memory.keep(seen))
        except OSError as error:
            log.error("cannot save the store's identity; continuing", error=str(error))

    def _set(self, name: str, before: SourceIdentity, judgement: Judgement, now: Instant) -> None:
        same = before.judgement is not None and before.judgement.verdict is judgement.verdict
        self.known[name] = SourceIdentity(judgement, before.since if same else now)
        if not same and judgement.verdict is not StoreVerdict.OURS:
            log.error("store identity check failed; programmed state stays", source=name, reason=judgement.sentence)
