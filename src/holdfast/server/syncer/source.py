"""Source of the syncer: the inventory, read page by page from one snapshot of the database.

A pass begins with the first page and ends with the last; only then is the list complete, and the sync gate is notified.
Rows are read ahead by a page, so that memory stays bounded however little the store holds. Objects of another region
are skipped, with a warning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import structlog

from holdfast.inventory.api import Inventory, InventorySnapshot, Row
from holdfast.inventory.sql.thread import RunInThread
from holdfast.model.base.time import Instant
from holdfast.reconcile import Kept, Owned, Synced, SyncGate
from holdfast.store.api import Entry

log = structlog.get_logger(__name__)

NAME = "inventory"
"""Name of this source at the sync gate and in the decision log."""

Wanted = tuple[bytes, Owned[Entry]]


def wanted(row: Row) -> Wanted:
    owned = Kept if row.is_refused else Owned
    return row.key, owned(Entry(row.key, row.doc), NAME, row.revision)


class InventorySource:
    """`wants` says whether an object with that key and document belongs to this region."""

    def __init__(
        self,
        inventory: Inventory,
        run_in_thread: RunInThread,
        sync: SyncGate,
        now: Callable[[], Instant],
        wants: Callable[[bytes, bytes], bool],
    ) -> None:
        self._inventory = inventory
        self._wants = wants
        self._skipped, self._last_skipped = 0, b""
        self._logged = 0
        self._refusing: list[bytes] = []
        self.refused: Sequence[bytes] = ()
        """Keys of the last complete pass whose object has no form in the store."""
        self._run_in_thread = run_in_thread
        self._sync = sync
        self._now = now
        self._snapshot: InventorySnapshot | None = None
        self._ahead: deque[Row] = deque()
        self._ended = False
        self._last: bytes | None = None
        sync.note_source(NAME, Synced(now()))

    async def bound(self, after: bytes | None, most: int) -> bytes | None:
        """Key of the `most`-th wanted object above that key, which limits a page. None: there are fewer."""
        if after is None:
            await self._begin()
        await self._read_ahead(most)
        return self._ahead[most - 1].key if len(self._ahead) >= most else None

    async def read(self, after: bytes | None, upto: bytes | None) -> Sequence[Wanted]:
        if self._snapshot is None:
            await self._begin()
        found: list[Wanted] = []
        while self._ahead or not self._ended:
            if not self._ahead:
                await self._read_ahead(1_000)
                continue
            if upto is not None and self._ahead[0].key > upto:
                break
            found.append(wanted(self._ahead.popleft()))
        if upto is None:
            await self._complete()
        return found

    async def get(self, keys: Collection[bytes]) -> Mapping[bytes, Owned[Entry]]:
        """Read what is wanted now, outside any snapshot (C36)."""
        rows = await self._run_in_thread(lambda: self._inventory.read_keys(keys))
        return dict(wanted(row) for row in rows if self._wants(row.key, row.doc))

    async def refresh(self) -> None:
        """Check that the database answers; every pass reads a fresh snapshot anyway."""
        await self._run_in_thread(self._inventory.fleet)

    async def close(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        self._ahead.clear()
        if snapshot is not None:
            await self._run_in_thread(snapshot.close)

    async def _begin(self) -> None:
        await self.close()
        self._ended, self._last = False, None
        self._skipped = 0
        self._refusing = []
        self._snapshot = await self._run_in_thread(self._inventory.snapshot)

    async def _complete(self) -> None:
        assert self._snapshot is not None
        self._sync.note_source(NAME, Synced(self._now(), self._snapshot.revision()))
        self._log_skipped()
        self.refused = self._refusing
        await self.close()

    def _log_skipped(self) -> None:
        if self._skipped and self._skipped != self._logged:
            log.warning(
                "objects of another region are left alone; was holdfast apply run with another store.region?",
                count=self._skipped,
                last=self._last_skipped.decode(errors="backslashreplace"),
            )
        self._logged = self._skipped

    async def _read_ahead(self, most: int) -> None:
        snapshot = self._snapshot
        assert snapshot is not None
        while (missing := most - len(self._ahead)) > 0 and not self._ended:
            rows = await self._run_in_thread(partial(snapshot.read, self._last, missing))
            self._ended = len(rows) < missing
            self._last = rows[-1].key if rows else self._last
            self._refusing += [row.key for row in rows if row.is_refused]
            for row in rows:
                if self._wants(row.key, row.doc):
                    self._ahead.append(row)
                else:
                    self._skipped, self._last_skipped = self._skipped + 1, row.key
