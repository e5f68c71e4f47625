"""Outbox of the inventory: the feed of the syncer. Rows are noted, and settled once none of their keys is open (C19).

Within a term the outbox is read on by position, so that waiting rows are not read again with every page (C57). A row
that commits late has a low id, which a reader by position would never see (C37), so the outbox is swept from its
beginning as well: with every fetch while few rows wait, and from time to time while many do.

Rows that are only about keys of another region are not touched: the syncer of that region settles them.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from holdfast.inventory.api import Fence, Inventory, OutboxRow
from holdfast.inventory.sql.thread import RunInThread
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.model.control.mark import Mark

PAGE = 5_000
"""Rows per read, and per transaction that settles them: a new leader waits for an open one (C34)."""
FEW = 500
"""Waiting rows that are read again with every fetch."""
SWEEP_EVERY = Duration(seconds=60)


class Outbox:
    """`has` says whether a key belongs to this region; `may_settle` whether rows may be removed now; `is_pass_next`
    whether a full pass follows, which covers all rows that are noted before it: then they are all fetched at once.
    `mark` returns the last one that reached the store."""

    def __init__(
        self,
        inventory: Inventory,
        run_in_thread: RunInThread,
        fence: Fence,
        has: Callable[[bytes], bool],
        now: Callable[[], Instant],
        may_settle: Callable[[], bool] = lambda: True,
        is_pass_next: Callable[[], bool] = lambda: False,
        mark: Callable[[], Mark | None] = lambda: None,
    ) -> None:
        self._inventory = inventory
        self._has = has
        self._now = now
        self._may_settle = may_settle
        self._is_pass_next = is_pass_next
        self._mark = mark
        self._run_in_thread = run_in_thread
        self._fence = fence
        self._noted: dict[int, OutboxRow] = {}
        self._announced: Counter[bytes] = Counter()
        self._position = 0
        """Highest id that was read."""
        self._waiting = 0
        """Rows up to that id, as far as known: those that the next sweep reads again."""
        self._next_sweep = NEVER
        self._more = False

    def __len__(self) -> int:
        return len(self._noted)

    def has_announced(self, key: bytes) -> bool:
        """True if an unsettled row is about this key."""
        return self._announced[key] > 0

    def forget(self) -> None:  # protection: C40
        """Note all rows anew: in a restored database other rows can have the ids of those that were noted."""
        self._noted.clear()
        self._announced.clear()
        self._position = self._waiting = 0

    async def fetch(self) -> Collection[bytes]:  # protection: C19
        """Return the keys of new rows, about a page of them."""
        keys = await (self._sweep() if self.is_sweep_due() else self._read_on())
        while self._more and self._is_pass_next():
            keys |= await self._read_on()
        return keys

    def is_sweep_due(self) -> bool:  # protection: C37, C57
        """True if rows that were read are to be read again, for those that committed late among them."""
        return self._waiting <= FEW or self._now() >= self._next_sweep

    async def settle(self, is_open: Callable[[bytes], bool]) -> bool:
        done = [one.id for one in self._noted.values() if not any(map(is_open, self._keys(one)))]
        if self._may_settle():
            for portion in _portions(done):
                ids = [number for number in portion if number in self._noted]  # forgotten meanwhile: another row now
                await self._run_in_thread(partial(self._inventory.settle, self._fence, ids, self._mark()))
                self._forget(ids)
        return self._more

    async def _read_on(self) -> set[bytes]:
        rows = await self._page(self._position)
        self._waiting += len(rows)
        self._more = len(rows) >= PAGE
        return self._note(rows)

    async def _sweep(self) -> set[bytes]:
        """Read from the beginning to one page beyond the position."""
        began, known, keys = self._now(), self._position, set[bytes]()
        after = self._waiting = 0
        while True:
            rows = await self._page(after)
            self._waiting += len(rows)
            keys |= self._note(rows)
            after = rows[-1].id if rows else after
            self._more = len(rows) >= PAGE
            if not self._more or after > known:
                break
        # However many rows wait, sweeping takes no more than a twentieth of the time.
        self._next_sweep = began + max(SWEEP_EVERY, 20 * (self._now() - began))
        return keys

    async def _page(self, after: int) -> Sequence[OutboxRow]:
        return await self._run_in_thread(partial(self._inventory.outbox, PAGE, after))

    def _note(self, rows: Sequence[OutboxRow]) -> set[bytes]:
        """Note the new ones among these rows; returns their keys."""
        if rows:
            self._position = max(self._position, rows[-1].id)
        unseen = ((one, self._keys(one)) for one in rows if one.id not in self._noted)
        fresh = [(one, keys) for one, keys in unseen if keys or not one.key]
        self._noted.update((one.id, one) for one, _ in fresh)
        announced = list(itertools.chain.from_iterable(keys for _, keys in fresh))
        self._announced.update(announced)
        return set(announced)

    def _forget(self, ids: Sequence[int]) -> None:
        self._waiting = max(0, self._waiting - len(ids))
        settled = [one for number in ids if (one := self._noted.pop(number, None)) is not None]
        for key in itertools.chain.from_iterable(map(self._keys, settled)):
            self._announced[key] -= 1
            if not self._announced[key]:
                del self._announced[key]

    def _keys(self, one: OutboxRow) -> Sequence[bytes]:
        return [key for key in (one.key, one.before, *one.others) if key is not None and self._has(key)]


def _portions(ids: Sequence[int]) -> Iterable[Sequence[int]]:
    return (ids[start : start + PAGE] for start in range(0, len(ids), PAGE))
