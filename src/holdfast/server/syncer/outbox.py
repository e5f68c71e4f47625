"""Outbox of the inventory: the feed of the syncer. Rows are noted, and settled once none of their keys is open (C19).

Rows that are only about keys of another region are not touched: the syncer of that region settles them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence

from holdfast.inventory.api import Fence, Inventory, OutboxRow
from holdfast.inventory.sql.thread import RunInThread

MOST_NOTED = 5_000


class Outbox:
    """`has` says whether a key belongs to this region; `may_settle` whether rows may be removed now."""

    def __init__(
        self,
        inventory: Inventory,
        run_in_thread: RunInThread,
        fence: Fence,
        has: Callable[[bytes], bool],
        may_settle: Callable[[], bool] = lambda: True,
    ) -> None:
        self._inventory = inventory
        self._has = has
        self._may_settle = may_settle
        self._run_in_thread = run_in_thread
        self._fence = fence
        self._noted: dict[int, OutboxRow] = {}
        self._announced: Counter[bytes] = Counter()
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

    async def fetch(self) -> Collection[bytes]:  # protection: C19
        """Return the keys of new rows. Always reads from the beginning: rows may commit late (C37)."""
        fresh = await self._run_in_thread(self._unseen)
        self._more = len(fresh) >= MOST_NOTED
        self._noted.update((one.id, one) for one in fresh)
        self._announced.update(key for one in fresh for key in self._keys(one))
        return {key for one in fresh for key in self._keys(one)}

    async def settle(self, is_open: Callable[[bytes], bool]) -> bool:
        done = [one.id for one in self._noted.values() if not any(map(is_open, self._keys(one)))]
        if done and self._may_settle():
            await self._run_in_thread(lambda: self._inventory.settle(self._fence, done))
            settled = [one for number in done if (one := self._noted.pop(number, None)) is not None]
            self._announced -= Counter(key for one in settled for key in self._keys(one))
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

    def _keys(self, one: OutboxRow) -> Sequence[bytes]:
        return [key for key in (one.key, one.before) if key is not None and self._has(key)]
