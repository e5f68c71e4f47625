"""Store guard: recalls the store that this daemon knows, reads the one that answers, judges, remembers and says so.

Elector, agent and balancer use it. The memory is recalled before the store is asked: read in the other order, it would
look newer than the store (C49).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import structlog

from holdfast.model.base.region import Region
from holdfast.model.base.time import NEVER, Instant
from holdfast.model.control.identity import Identity, LatchedVerdict
from holdfast.runtime.store_memory import StoreMemory
from holdfast.store.api import Store
from holdfast.store.identity import (
    Judgement,
    SeenStore,
    StoreIdentity,
    StoreVerdict,
    classify_store,
    has_diverged,
    latch,
    read_identity,
    remember,
    written_before,
)

log = structlog.get_logger(__name__)

Offload = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs a blocking call in a thread: the loop has leases to renew and a disk may be slow."""


_REFUSED = frozenset({StoreVerdict.FOREIGN, StoreVerdict.RESTORED, StoreVerdict.INVENTORY_RESTORED})


class Followed(Protocol):
    """The part of a mirror that a guard needs."""

    @property
    def revision(self) -> int: ...
    @property
    def rewinds(self) -> int: ...


class FollowedState(NamedTuple):
    """State of a mirror when it last changed, and the store's epoch as it was known then."""

    revision: int
    epoch: int
    rewinds: int
    is_new: bool = False
    """True if it was listed from the restored store already, while the epoch was still the old one."""

    def at(self, epoch: int) -> FollowedState:
        """Return the state after the store's epoch is known for the first time, or has risen."""
        return self._replace(epoch=epoch, is_new=False) if not self.epoch or self.is_new else self


class StoreReading(NamedTuple):
    """The memory, the store's answer after it was recalled, and `diverged` if its history is another one."""

    remembered: SeenStore | None
    found: StoreIdentity
    diverged: bool


@dataclass
class StoreGuard:
    """Judges one store periodically. `judgement` is the last verdict, None before the first."""

    store: Store
    region: Region
    memory: StoreMemory
    offload: Offload = asyncio.to_thread
    judgement: Judgement | None = None
    since: Instant = NEVER
    fleet: str = ""
    """Fleet of the store when it was last read."""
    recorded: LatchedVerdict | None = None
    """Verdict that the leader had recorded in the store when it was last read."""
    unsaved: bool = False
    """True while the last sighting of the store could not be saved."""
    known: SeenStore | None = None
    """The store as remembered after it was last read."""
    noticed: int | None = None
    """Under `store_restored`: what was written after this revision is newer than the backup. None if unknown."""
    _unsaved: SeenStore | None = field(default=None, repr=False)
    """Stands in for the memory while the disk takes no writes: a verdict must not go away with a full disk (C43)."""
    _checked: SeenStore | None = field(default=None, repr=False)
    """The memory whose history was compared with the store's."""
    _relisted: bool = field(default=False, repr=False)
    _has_new_lists: bool = field(default=True, repr=False)
    """True until the store was judged with all lists there: at the start, and after each new list."""
    _identity_revision: int = field(default=0, repr=False)
    """Revision of the last write of the identity that was judged."""
    _followed: dict[int, FollowedState] = field(default_factory=dict, repr=False)
    _went_back: bool = field(default=False, repr=False)
    """True if a list came from a store whose history lacks what this daemon has acted on."""

    async def check(self, now: Instant) -> Judgement:
        """Judge the store by what is remembered. Raises `StoreAway`, `StoreError` or `MemoryUnreadable`."""
        return await self.take(await self.read(), now)

    async def read(self) -> StoreReading:
        """Recall the memory, then ask the store."""
        remembered = self._unsaved or self.memory.load()  # protection: C49
        found = await read_identity(self.store, self.region)
        return StoreReading(remembered, found, await self._has_diverged(remembered, found))

    def is_released_by(self, reading: StoreReading) -> bool:  # protection: C60
        """Return whether this reading ends a verdict: then the store was refilled, and a watch that was cut off may not
        have delivered that yet. Refresh the mirrors before `take`."""
        remembered, identity = reading.remembered, reading.found.identity
        was_held = self.judgement is not None and not self.judgement.is_followed
        has_risen = isinstance(identity, Identity) and remembered is not None and identity.epoch > remembered.epoch
        is_late = self._has_older_list(reading.found.mod_revision)
        return (was_held or has_risen or is_late) and self._classify(reading).is_followed

    @property
    def has_late_list(self) -> bool:
        """True if a list came that is older than the identity that was judged: it has to be judged again."""
        return self._has_older_list(self._identity_revision)

    def _has_older_list(self, revision: int) -> bool:  # protection: C65
        """Return whether a new list is older than a write of the identity: a daemon that starts while the leader ends
        the filling may have listed a store that was not full, and read the identity of the full one."""
        return self._has_new_lists and any(0 < one.revision < revision for one in self._followed.values())

    async def take(self, reading: StoreReading, now: Instant) -> Judgement:
        """Judge a reading, and remember the store."""
        remembered, found = reading.remembered, reading.found
        judgement = self._classify(reading)
        self._went_back = False
        self._identity_revision = found.mod_revision
        if self._followed and all(one.revision for one in self._followed.values()):
            self._has_new_lists = False
        identity = found.identity if isinstance(found.identity, Identity) else None
        self.fleet, self.recorded = (identity.fleet, identity.verdict) if identity else ("", None)
        before = self.known
        self.known = known = latch(remembered, found, judgement, relisted=self._relisted)
        if known is not None and (before is None or known.epoch > before.epoch):
            self._followed = {number: one.at(known.epoch) for number, one in self._followed.items()}
        self._relisted = False
        self.noticed = known.noticed if known is not None and known.restored else written_before(found)
        await self._remember(remembered, known)
        self.set(judgement, now)
        return judgement

    def _classify(self, reading: StoreReading) -> Judgement:
        return classify_store(reading.remembered, reading.found, diverged=reading.diverged or self._went_back)

    def set(self, judgement: Judgement, now: Instant) -> None:
        """Take over a judgement; logs one that differs from the last."""
        if self.judgement is None or judgement.verdict is not self.judgement.verdict:
            self.since = now
            expected = judgement.verdict in (StoreVerdict.OURS, StoreVerdict.FILLING, StoreVerdict.UNNAMED)
            write = log.info if expected else log.error
            write("store identity checked", verdict=judgement.sentence, to_release=judgement.opens or None)
        self.judgement = judgement

    def follow(self, mirrors: Iterable[Followed]) -> None:  # protection: C43
        """Note what the mirrors of this store have received, always in the same order.

        The memory is as old as the last check, and a store can be restored to a moment after that. But a new list whose
        history lacks what a mirror had before proves a restore, unless the epoch has risen since: then an operator has
        accepted it, or the leader has refilled a wiped store."""
        epoch = self.known.epoch if self.known is not None else 0
        for number, mirror in enumerate(mirrors):
            before = self._followed.get(number) or FollowedState(0, epoch, mirror.rewinds)
            went_back = mirror.rewinds != before.rewinds and before.epoch == epoch
            self._went_back |= went_back
            if (mirror.revision, mirror.rewinds) != (before.revision, before.rewinds):
                is_new = went_back or (before.is_new and before.epoch == epoch)
                self._followed[number] = FollowedState(mirror.revision, epoch, mirror.rewinds, is_new)

    def forget_history(self) -> None:
        """Compare the store's history again: a new list may be that of another store."""
        self._checked, self._relisted, self._has_new_lists = None, True, True

    async def adopt(self, now: Instant) -> Judgement:
        """Accept the store as it is, for this daemon alone, on an operator's request."""
        found = await read_identity(self.store, self.region)
        judgement = classify_store(None, found)
        if isinstance(found.identity, Identity):
            self.known = known = remember(found, adopted=True)
            await self._remember(None, known)
            judgement = classify_store(known, found)
        self.set(judgement, now)
        return judgement

    async def _has_diverged(self, remembered: SeenStore | None, found: StoreIdentity) -> bool:
        """Compare the histories, once for each store that answers: at the start, and after each new list."""
        if remembered is None or self._checked is not None or found.revision < remembered.trace:
            return False
        diverged = await has_diverged(self.store, self.region, remembered)
        self._checked = remembered
        return diverged

    async def _remember(self, before: SeenStore | None, known: SeenStore | None) -> None:
        """A disk that takes no writes costs the knowledge of the last revisions, nothing else."""
        if known is None or (known == before and self._unsaved is None):
            return
        try:
            await self.offload(lambda: self.memory.keep(known))
            self.unsaved, self._unsaved = False, None
        except OSError as error:
            if not self.unsaved:
                log.error("cannot save the store identity; retrying", error=str(error))
            self.unsaved, self._unsaved = True, known

    @property
    def refusal(self) -> Judgement | None:
        """The judgement, if an operator has to act on it."""
        judgement = self.judgement
        return judgement if judgement is not None and (judgement.opens or judgement.verdict in _REFUSED) else None
