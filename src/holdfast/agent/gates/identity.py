"""Belonging: are the stores that the sources come from those that this host knows? The agent's identity gate.

A store of another fleet changes nothing here, and neither does one without a name; one that was thrown back to an older
life may add, but nothing is deleted because of it until an operator has looked. What is programmed stays.
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
from holdfast.store.identity import ADOPT, Judgement, SeenStore, StoreVerdict, judge, read_identity

log = structlog.get_logger(__name__)


class StoreIdentityReason(Reason):
    UNKNOWN = "it is not known yet whose store its source is"
    FOREIGN_STORE = "its source's store belongs to another fleet"
    STORE_RESTORED = "its source's store was thrown back to an older life"
    UNNAMED_STORE = "its source's store has no identity yet"


_REASONS: Mapping[StoreVerdict, StoreIdentityReason] = {
    StoreVerdict.FOREIGN: StoreIdentityReason.FOREIGN_STORE,
    StoreVerdict.RESTORED: StoreIdentityReason.STORE_RESTORED,
    StoreVerdict.UNNAMED: StoreIdentityReason.UNNAMED_STORE,
}

_OPENS: Mapping[StoreIdentityReason, str] = {
    StoreIdentityReason.UNKNOWN: "the store answering (holdfast doctor)",
    StoreIdentityReason.FOREIGN_STORE: "store.endpoints and store.region naming the right store (holdfast doctor)",
    StoreIdentityReason.STORE_RESTORED: ADOPT,
    StoreIdentityReason.UNNAMED_STORE: "the first leader writing it (holdfast leader)",
}


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """What was last found out about one source's store."""

    judgement: Judgement | None
    since: Instant

    def refuses(self, op: Op) -> StoreIdentityReason | None:
        if self.judgement is None:
            return StoreIdentityReason.UNKNOWN
        reason = _REASONS.get(self.judgement.verdict)
        return None if reason is StoreIdentityReason.STORE_RESTORED and op is not Op.DELETE else reason


@dataclass
class StoreIdentityGate:
    """The gate, and what it knows. `memories` has one memory for each source."""

    memories: Mapping[str, StoreMemory]
    offload: Offload = asyncio.to_thread
    counts: Callable[[str], bool] = lambda _name: True
    """Whether a source still does: one that an operator has given up need not say who it is."""
    known: dict[str, SourceIdentity] = field(default_factory=dict)
    doubted: asyncio.Event = field(default_factory=asyncio.Event)

    def doubt(self, name: str, now: Instant) -> None:
        """Its store was listed anew, so it may be another: nothing follows from it until it has said who it is."""
        self.known[name] = SourceIdentity(None, now)
        self.doubted.set()

    async def look(self, followings: Sequence[SourceWatcher], now: Instant) -> bool:
        """Asks each store who it is; whether a verdict has changed."""
        before = {name: known.judgement and known.judgement.verdict for name, known in self.known.items()}
        for following in followings:
            await self._look(following, now)
        return before != {name: known.judgement and known.judgement.verdict for name, known in self.known.items()}

    def judge(self, change: Change[ClaimKey, Claim], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        owner = change.owner.source
        for name in [owner] if owner in self.memories else [] if owner else sorted(self.memories):
            known = self.known.get(name, SourceIdentity(None, now))
            reason = known.refuses(change.op) if self.counts(name) else None
            if reason is not None:
                detail = known.judgement.sentence if known.judgement else name
                return Closed("identity", reason, known.since, _OPENS[reason], detail)
        return None

    async def _look(self, following: SourceWatcher, now: Instant) -> None:
        name, memory = following.name, self.memories[following.name]
        before = self.known.setdefault(name, SourceIdentity(None, now))
        try:
            remembered, found = memory.recall(), await read_identity(following.store, following.region)
        except (Away, StoreError):
            return  # what was known of it still holds: nothing comes from a store that does not answer
        except MemoryUnreadable as sentence:
            self._tell(name, before, Judgement(StoreVerdict.RESTORED, str(sentence)), now)
            return
        if self.doubted.is_set():
            return  # that may have been said before the list that is doubted now; it is asked again at once
        judgement = judge(remembered, found)
        if judgement.verdict is StoreVerdict.OURS and isinstance(found.identity, Identity):
            seen = remembered or SeenStore(found.identity.fleet, found.identity.epoch, 0)
            await self._remember(memory, seen.seen(found.identity, found.revision))
        self._tell(name, before, judgement, now)

    async def _remember(self, memory: StoreMemory, seen: SeenStore) -> None:
        try:
            await self.offload(lambda: memory.keep(seen))
        except OSError as error:
            log.error(f"what was seen of the store cannot be written down, the work goes on: {error}")

    def _tell(self, name: str, before: SourceIdentity, judgement: Judgement, now: Instant) -> None:
        same = before.judgement is not None and before.judgement.verdict is judgement.verdict
        self.known[name] = SourceIdentity(judgement, before.since if same else now)
        if not same and judgement.verdict is not StoreVerdict.OURS:
            log.error(f"{name}: {judgement.sentence}; what is programmed stays")
