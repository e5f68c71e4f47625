"""What the syncer wants: the inventory, read page by page from one snapshot of the database.

A pass begins when it is asked for what comes first, and ends with the last page; only then is the list complete, and
the sync gate told so. Rows are read ahead by a page, so that however little the store holds, memory stays bounded.
Objects of another region are none of this syncer's business: they are passed over, and that is said.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

import structlog

from holdfast.inventory.api import Fence as SqlFence
from holdfast.inventory.api import Inventory, InventorySnapshot, OutboxRow, Row
from holdfast.inventory.sql.thread import RunInThread
from holdfast.model.base.time import Instant
from holdfast.reconcile import Owned, Synced, SyncGate
from holdfast.store.api import Entry

log = structlog.get_logger(__name__)

NAME = "inventory"
"""Whose wishes these are, as the sync gate and the decision log call it."""
MOST_NOTED = 5_000

Wish = tuple[bytes, Owned[Entry]]


def wish(row: Row) -> Wish:
    return row.key, Owned(Entry(row.key, row.doc), NAME, row.revision)


class InventorySource:
    """`wants` tells whether a key with that document is one of this region's."""

    def __init__(
        self,
        inventory: Inventory,
        aside: RunInThread,
        sync: SyncGate,
        now: Callable[[], Instant],
        wants: Callable[[bytes, bytes], bool],
    ) -> None:
        self._inventory = inventory
        self._wants = wants
        self._others, self._other = 0, b""
        self._said = 0
        self._aside = aside
        self._sync = sync
        self._now = now
        self._snapshot: InventorySnapshot | None = None
        self._ahead: deque[Row] = deque()
        self._ended = False
        self._last: bytes | None = None
        sync.note_source(NAME, Synced(now()))

    async def bound(self, after: bytes | None, most: int) -> bytes | None:
        """The key of the `most`-th wish above that key: no page need go further. None: there are fewer."""
        if after is None:
            await self._begin()
        await self._read_ahead(most)
        return self._ahead[most - 1].key if len(self._ahead) >= most else None

    async def read(self, after: bytes | None, upto: bytes | None) -> Sequence[Wish]:
        if self._snapshot is None:
            await self._begin()
        found: list[Wish] = []
        while self._ahead or not self._ended:
            if not self._ahead:
                await self._read_ahead(1_000)
                continue
            if upto is not None and self._ahead[0].key > upto:
                break
            found.append(wish(self._ahead.popleft()))
        if upto is None:
            await self._complete()
        return found

    async def get(self, keys: Collection[bytes]) -> Mapping[bytes, Owned[Entry]]:
        """Outside any snapshot: what is wanted now (C36)."""
        rows = await self._aside(lambda: self._inventory.read_keys(keys))
        return dict(wish(row) for row in rows if self._wants(row.key, row.doc))

    async def refresh(self) -> None:
        """Every pass reads a fresh snapshot; here it only has to be proven that there is one to be had."""
        await self._aside(self._inventory.fleet)

    async def close(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        self._ahead.clear()
        if snapshot is not None:
            await self._aside(snapshot.close)

    async def _begin(self) -> None:
        await self.close()
        self._ended, self._last = False, None
        self._others = 0
        self._snapshot = await self._aside(self._inventory.snapshot)

    async def _complete(self) -> None:
        assert self._snapshot is not None
        self._sync.note_source(NAME, Synced(self._now(), self._snapshot.revision()))
        self._say_others()
        await self.close()

    def _say_others(self) -> None:
        if self._others and self._others != self._said:
            log.warning(
                f"{self._others:,} objects of the inventory belong to another region and are left alone, the last at "
                f"{self._other.decode(errors='backslashreplace')}; was holdfast apply run with another store.region?"
            )
        self._said = self._others

    async def _read_ahead(self, most: int) -> None:
        snapshot = self._snapshot
        assert snapshot is not None
        while (missing := most - len(self._ahead)) > 0 and not self._ended:
            rows = await self._aside(partial(snapshot.read, self._last, missing))
            self._ended = len(rows) < missing
            self._last = rows[-1].key if rows else self._last
            for row in rows:
                if self._wants(row.key, row.doc):
                    self._ahead.append(row)
                else:
                    self._others, self._other = self._others + 1, row.key


class Outbox:
    """The feed of the syncer: rows are noted, and forgotten once none of their keys is open any more (C19). Rows that
    are only about another region's keys are not touched: whoever syncs that region settles them."""

    def __init__(self, inventory: Inventory, aside: RunInThread, fence: SqlFence, has: Callable[[bytes], bool]) -> None:
        self._inventory = inventory
        self._has = has
        self._aside = aside
        self._fence = fence
        self._noted: dict[int, OutboxRow] = {}
        self._left: Counter[bytes] = Counter()
        self._told: Counter[bytes] = Counter()
        self._more = False

    def __len__(self) -> int:
        return len(self._noted)

    def has_moved(self, key: bytes) -> bool:
        """Whether a change that is not settled yet says that the object of this key has another one now."""
        return self._left[key] > 0

    def has_told(self, key: bytes) -> bool:
        """Whether a change that is not settled yet is about this key."""
        return self._told[key] > 0

    async def fetch(self) -> Collection[bytes]:
        """Keys of rows that were not seen before. Always from the beginning: rows may commit late (C37)."""
        fresh = await self._aside(self._unseen)
        self._more = len(fresh) >= MOST_NOTED
        self._noted.update((one.id, one) for one in fresh)
        self._left.update(self._moved_from(fresh))
        self._told.update(key for one in fresh for key in self._keys(one))
        return {key for one in fresh for key in self._keys(one)}

    async def settle(self, is_open: Callable[[bytes], bool]) -> bool:
        done = [one.id for one in self._noted.values() if not any(map(is_open, self._keys(one)))]
        if done:
            await self._aside(lambda: self._inventory.settle(self._fence, done))
            settled = [self._noted.pop(number) for number in done]
            self._left -= Counter(self._moved_from(settled))
            self._told -= Counter(key for one in settled for key in self._keys(one))
        return self._more

    def _unseen(self) -> Sequence[OutboxRow]:
        fresh: list[OutboxRow] = []
        after = 0
        while len(fresh) < MOST_NOTED:
            rows = self._inventory.outbox(MOST_NOTED, after)
            fresh += [one for one in rows if one.id not in self._noted and self._keys(one)]
            if len(rows) < MOST_NOTED:
                break
            after = rows[-1].id
        return fresh

    def _moved_from(self, rows: Iterable[OutboxRow]) -> Iterator[bytes]:
        """What went to another region has no key here that it moved to: here it is a loss, and the brake counts it."""
        return (one.before for one in rows if one.before is not None and self._has(one.key))

    def _keys(self, one: OutboxRow) -> Sequence[bytes]:
        return [key for key in (one.key, one.before) if key is not None and self._has(key)]
