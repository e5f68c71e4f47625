"""Source of the agent's loop: the wanted claims, always as of the last whole state of each source.

Every call first takes over everything that has arrived, so a claim that comes back while deletes are being sent is seen
in time (N4).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence

from holdfast.agent.claims import Claim, ClaimKey, in_order, portions
from holdfast.agent.desired.sources import Sources
from holdfast.agent.desired.watcher import Journaled, SourceWatcher
from holdfast.agent.present import Present
from holdfast.reconcile import Owned, SyncGate
from holdfast.runtime.cooperative import in_turns
from holdfast.store.mirror.gc_pause import gc_paused


class WantedClaims:
    """Source and feed in one: the feed marks the keys that have changed, and those that a gate has released."""

    def __init__(
        self,
        sources: Sources,
        watchers: Sequence[SourceWatcher],
        sync: SyncGate,
        present: Present,
        on_new_list: Callable[[str], None] = lambda _name: None,
        journaled: Journaled = tuple,
        on_caught_up: Callable[[SourceWatcher], None] = lambda _watcher: None,
    ) -> None:
        """`on_new_list` is called for a source that was listed again: its store may be another one now. `journaled`
        gives the claims that earlier runs programmed. `on_caught_up` is called whenever a source was taken over."""
        self.sources = sources
        self.watchers = watchers
        self._sync = sync
        self._present = present
        self._on_new_list = on_new_list
        self._journaled = journaled
        self._on_caught_up = on_caught_up
        self._touched: set[ClaimKey] = set()
        self._was_read = False
        self._ordered: list[ClaimKey] | None = None
        """Wanted keys in order, for the pages of one pass; None after any change."""

    async def fetch(self) -> Collection[ClaimKey]:
        await self._catch_up()
        touched, self._touched = self._touched, set()
        return touched | self._present.take_released()

    async def settle(self, is_open: Callable[[ClaimKey], bool]) -> bool:
        return bool(self._touched or self._present.released)

    async def read(self, after: ClaimKey | None, upto: ClaimKey | None) -> Sequence[tuple[ClaimKey, Owned[Claim]]]:
        await self._catch_up()
        if after is None or self._ordered is None:
            self._ordered = await self._in_order()
        start = 0 if after is None else bisect_right(self._ordered, after)
        end = len(self._ordered) if upto is None else bisect_right(self._ordered, upto)
        found: list[tuple[ClaimKey, Owned[Claim]]] = []
        for some in portions(self._ordered[start:end]):
            found += self.sources.among(some).items()
            await asyncio.sleep(0)
        return found

    async def _in_order(self) -> list[ClaimKey]:
        keys = self.sources.keys()
        # On the first read whole lists have just been taken over: they stay, so keep them out of garbage collection.
        with gc_paused(len(keys), lasting=not self._was_read):
            self._was_read = True
            return await in_turns(in_order(keys))

    async def get(self, keys: Collection[ClaimKey]) -> Mapping[ClaimKey, Owned[Claim]]:
        await self._catch_up()
        return self.sources.among(keys)

    async def refresh(self) -> None:
        for watcher in self.watchers:
            if watcher.synced.revision is not None:
                await watcher.refresh()

    async def _catch_up(self) -> None:
        for watcher in self.watchers:
            before, lists = watcher.synced, watcher.lists
            touched = await watcher.catch_up(self._journaled)
            if touched:
                self._touched |= touched
                self._ordered = None
            if watcher.synced.revision is not None:
                self.sources.complete.add(watcher.name)
            self._on_caught_up(watcher)
            if lists and watcher.lists != lists:
                self._on_new_list(watcher.name)
            # A source that an operator has forgotten is not waited for, but counts if it delivers a list after all.
            is_source = watcher.name in self._sync.sources or watcher.synced.revision is not None
            if watcher.synced != before and is_source:
                self._sync.note_source(watcher.name, watcher.synced)
