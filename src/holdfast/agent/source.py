"""What is wanted in the kernel: the source of the agent's reconciler, always as of the last whole state of each source.

Whatever is asked is answered after everything that has arrived was taken over, so a claim that came back while
deletions are being sent is seen in time (N4).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence

from holdfast.agent.claims import Claim, ClaimKey
from holdfast.agent.desired.sources import Sources
from holdfast.agent.desired.watcher import Remembered, SourceWatcher
from holdfast.agent.gates.dependents import Present
from holdfast.agent.key_order import in_order
from holdfast.reconcile import Owned, SyncGate
from holdfast.runtime.cooperative import in_turns
from holdfast.store.mirror.gc_pause import resting


class WantedClaims:
    """Source and feed at once: marks say what has changed since the last turn, and what may go on."""

    def __init__(
        self,
        sources: Sources,
        followings: Sequence[SourceWatcher],
        sync: SyncGate,
        present: Present,
        listed_anew: Callable[[str], None] = lambda _name: None,
        remembered: Remembered = tuple,
    ) -> None:
        """`listed_anew` hears of a source that was listed once more: it may be that of another store now.
        `remembered` tells what earlier lives have programmed."""
        self.sources = sources
        self.followings = followings
        self._sync = sync
        self._present = present
        self._listed_anew = listed_anew
        self._remembered = remembered
        self._touched: set[ClaimKey] = set()
        self._was_read = False
        self._ordered: list[ClaimKey] | None = None
        """All that is wanted, for the pages of one pass; None when something has been touched since."""

    async def fetch(self) -> Collection[ClaimKey]:
        await self._catch_up()
        touched, self._touched = self._touched, set()
        return touched | self._present.take_freed()

    async def settle(self, is_open: Callable[[ClaimKey], bool]) -> bool:
        return bool(self._touched or self._present.freed)

    async def read(self, after: ClaimKey | None, upto: ClaimKey | None) -> Sequence[tuple[ClaimKey, Owned[Claim]]]:
        await self._catch_up()
        if after is None or self._ordered is None:
            self._ordered = await self._in_order()
        start = 0 if after is None else bisect_right(self._ordered, after)
        end = len(self._ordered) if upto is None else bisect_right(self._ordered, upto)
        return list(self.sources.among(self._ordered[start:end]).items())

    async def _in_order(self) -> list[ClaimKey]:
        keys = self.sources.keys()
        # Before the first time, the sources have taken over whole lists: the collector need not look at those again.
        with resting(len(keys), lasting=not self._was_read):
            self._was_read = True
            return await in_turns(in_order(keys))

    async def get(self, keys: Collection[ClaimKey]) -> Mapping[ClaimKey, Owned[Claim]]:
        await self._catch_up()
        return self.sources.among(keys)

    async def refresh(self) -> None:
        for following in self.followings:
            if following.synced.revision is not None:
                await following.refresh()

    async def _catch_up(self) -> None:
        for following in self.followings:
            before, lists = following.synced, following.lists
            touched = await following.catch_up(self._remembered)
            if touched:
                self._touched |= touched
                self._ordered = None
            if following.synced.revision is not None:
                self.sources.complete.add(following.name)
            if lists and following.lists != lists:
                self._listed_anew(following.name)
            # One that an operator has told us to forget is not waited for, but when it speaks after all, it counts.
            is_source = following.name in self._sync.sources or following.synced.revision is not None
            if following.synced != before and is_source:
                self._sync.note_source(following.name, following.synced)
