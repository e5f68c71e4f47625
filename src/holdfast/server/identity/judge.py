"""Reads inventory and store in the order in which a verdict is sound, and writes verdicts and names.

Memory first, then the inventory, then the store, then the inventory once more for the store's mark: each side is asked
after what it is compared with, so a database that stands still for seconds makes nothing look old (C62).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import structlog

from holdfast.inventory.api import Fence, Inventory, InventoryMarks
from holdfast.inventory.sql.thread import RunInThread
from holdfast.model.base.region import Region
from holdfast.model.calico.host import HOST
from holdfast.model.control.identity import Identity, LatchedVerdict
from holdfast.model.control.mark import Mark
from holdfast.reconcile import Away
from holdfast.server.identity.verdict import LATCHED, IdentityVerdict, Sides, next_epoch
from holdfast.store.api import Deposed, Entry, Store, StoreError
from holdfast.store.fenced.store import FencedStore
from holdfast.store.identity import (
    SeenStore,
    StoreIdentity,
    StoreVerdict,
    has_diverged,
    read_identity,
    replace_identity,
)

log = structlog.get_logger(__name__)


@dataclass
class IdentityJudge:
    """Reads both sides for one server's syncer. `seen_store` reads what this server remembers of the store."""

    store: Store
    region: Region
    inventory: Inventory
    run_in_thread: RunInThread
    seen_store: Callable[[], SeenStore | None]
    is_ours: Callable[[Entry], bool]
    """Tells whether an entry under one of our prefixes belongs to this region: hosts of all regions share theirs."""

    async def read(self, term: int, written: int = 0, marked: int = 0) -> Sides:
        """Read both sides for the leader of that term, which knows of that revision and that mark of the store. Raises
        `Away`, or `Deposed` if the store has another leader."""
        remembered = self.seen_store()
        fleet, marks, fence, revision = await self.run_in_thread(self._read_inventory)
        try:
            found = await read_identity(self.store, self.region)
            if found.term != term:
                raise Deposed(f"term {term} is over: the store's is {found.term}")
            others = await self._other_regions(fence) if found.identity is None else ()
            empty = found.identity is None and await self._is_empty()
            diverged = await self._has_diverged(remembered, found)
        except Deposed:
            raise
        except StoreError as error:
            raise Away("store", str(error)) from error
        mark = found.mark
        known = isinstance(mark, Mark) and await self._has_mark(mark)
        seen = found, known, empty, remembered, term, diverged, written, marked, others
        return Sides(fleet, marks, fence, revision, *seen)

    async def latch(self, fenced: FencedStore, sides: Sides, verdict: IdentityVerdict) -> None:
        """Write a verdict that an operator has to end into the store's identity, unless it stands there already. Raises
        `Away` or `Deposed`."""
        kind = LATCHED.get(verdict.closed) if verdict.closed is not None else None
        if kind is None or sides.fleet is None:
            return
        latched = LatchedVerdict(kind.value, verdict.sentence, verdict.revision, verdict.store)
        identity = sides.found.identity
        if not isinstance(identity, Identity):
            identity = _lost_identity(sides, kind)
        standing = identity.verdict
        if standing is not None and (standing.name, standing.store) == (latched.name, latched.store):
            return
        new = msgspec.structs.replace(identity, verdict=latched)
        try:
            await replace_identity(fenced, self.region, sides.found, new)
        except Deposed:
            raise
        except StoreError as error:
            raise Away("store", str(error)) from error
        log.error("verdict recorded in the store; it stands until an operator ends it", verdict=kind.value)

    def _read_inventory(self) -> tuple[str | None, InventoryMarks, Fence, int]:
        inventory, segment = self.inventory, self.region.segment
        return inventory.fleet(), inventory.marks(segment), inventory.fence(segment), inventory.revision()

    async def _has_mark(self, mark: Mark) -> bool:
        return await self.run_in_thread(lambda: self.inventory.has_mark(self.region.segment, mark))

    async def _other_regions(self, fence: Fence) -> tuple[str, ...]:
        """Regions that the inventory serves, if it has never served this one: the region was renamed, and its objects
        would be no server's."""
        if fence.epoch:
            return ()
        return tuple(sorted(set(await self.run_in_thread(self.inventory.regions)) - {self.region.segment}))

    async def _has_diverged(self, remembered: SeenStore | None, found: StoreIdentity) -> bool:
        if remembered is None or found.revision < remembered.trace:
            return False
        return await has_diverged(self.store, self.region, remembered)

    async def _is_empty(self) -> bool:
        """Look for a key under the prefixes that we write."""
        for kind in self.inventory.kinds:
            async for page in self.store.list(kind.prefix(self.region), page=1_000):
                if any(kind is not HOST or self.is_ours(entry) for entry in page.entries):
                    return False
        return True


def _lost_identity(sides: Sides, verdict: StoreVerdict) -> Identity:
    """The identity of a store that lost its own, for a verdict to stand in. A wiped store counts as not filled: agents
    keep what they have until it is. A restored one keeps the epoch at which daemons know it."""
    if verdict is StoreVerdict.INVENTORY_RESTORED:
        return Identity(sides.fleet or "", next_epoch(sides), filling=True)
    return Identity(sides.fleet or "", max(next_epoch(sides) - 1, 1))
