"""Target of the syncer: the store, read at one pinned revision, written in fenced, packed transactions.

Every write compares the state that it was decided on: a create that the key is absent, a replace and a delete its
mod_revision (C21). An object that loses that race is compared again. The halves of a move go in one transaction, so
that an object cannot lose its old key without getting its new one; an object that has moved once more since then keeps
its old key until it moves to the newest one (C35). Fields that our model does not know survive a rewrite of their
value.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence

from holdfast.model.base.bad import Bad
from holdfast.reconcile import Away, Change, Op, Outcome, Owned
from holdfast.server.syncer.keys import RegionKeys
from holdfast.server.syncer.source import NAME
from holdfast.store.api import (
    Aspect,
    Compare,
    Delete,
    Deposed,
    Entry,
    Get,
    Page,
    Put,
    Store,
    StoreAway,
    StoreError,
    WriteConflict,
)
from holdfast.store.fenced.packing import FencedWrite
from holdfast.store.fenced.store import FencedStore, WriteResult

PAGE = 2_000
KEYS_PER_READ = 100

Item = Change[bytes, Entry]
Bound = Callable[[bytes | None, int], Awaitable[bytes | None]]
NewKeys = Callable[[Collection[bytes]], Awaitable[Mapping[bytes, bytes]]]
"""Maps those of the keys whose object is wanted under another key by now to that key."""


async def no_new_keys(_keys: Collection[bytes]) -> Mapping[bytes, bytes]:
    return {}


async def nothing_first(_changes: Sequence[Item]) -> None:
    return None


class StoredObjects:
    """Objects of the store, read page by page at one pinned revision.

    `bound` also limits a page by what is wanted: with an empty store, one page must not cover everything. `attempted`
    is called after each page.
    """

    def __init__(
        self,
        store: Store,
        layout: RegionKeys,
        bound: Bound,
        *,
        known: int = 0,
        page: int = PAGE,
        attempted: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._layout = layout
        self._bound = bound
        self._page = page
        self._pinned = 0
        self.known = known
        """Latest revision that the store is known to have had: that of our term, or of our last write."""
        self._attempted = attempted
        self._foreign: set[bytes] = set()
        """Keys that were last read with an object of another region."""

    async def read(self, after: bytes | None) -> tuple[Sequence[tuple[bytes, Owned[Entry]]], bytes | None]:
        if after is None:
            self._pinned = 0
        with _as_away():
            entries, upto = await self._entries(after)
        # C36: the database's snapshot is opened only now, with the store's revision pinned.
        bound = await self._bound(after, self._page)
        if bound is not None and (upto is None or bound < upto):
            upto = bound
            entries = [entry for entry in entries if entry.key <= bound]
        return [(entry.key, _owned(entry)) for entry in entries if self._layout.is_ours(entry)], upto

    async def get(self, keys: Collection[bytes]) -> Mapping[bytes, Owned[Entry]]:
        found: dict[bytes, Owned[Entry]] = {}
        self._foreign.difference_update(keys)
        with _as_away():
            for some in _portions(sorted(keys)):
                answer = await self._store.txn([], [Get(key) for key in some])
                self._attempted()
                entries = [entry for result in answer.results if not isinstance(result, int) for entry in result]
                found |= {entry.key: _owned(entry) for entry in entries if self._layout.is_ours(entry)}
                hidden = (entry.key for entry in entries if entry.key not in found)
                self._foreign.update(key for key in hidden if key not in self._layout.ignored)
        return found

    async def _entries(self, after: bytes | None) -> tuple[list[Entry], bytes | None]:
        entries: list[Entry] = []
        prefixes = self._layout.prefixes
        for prefix in prefixes:
            if after is not None and prefix < after and not after.startswith(prefix):
                continue
            page = await self._first_page(prefix, after, self._page - len(entries))
            entries += page.entries
            if page.more or (len(entries) >= self._page and prefix != prefixes[-1]):
                return entries, entries[-1].key
        return entries, None

    async def _first_page(self, prefix: bytes, after: bytes | None, most: int) -> Page:
        above = after if after is not None and after.startswith(prefix) else None
        pages: AsyncIterator[Page] = self._store.list(prefix, after=above, revision=self._pinned, page=most)
        async for page in pages:
            await _end(pages)
            self._attempted()
            self._pinned = self._pinned or not_stale(page.revision, self.known)
            return page
        raise StoreError("the store answered a list without any page")


class EtcdTarget(StoredObjects):
    """Writes to the store, too.

    `on_conflict` is called for each write whose object had been changed by another client, `before_write` with
    the changes that are written next, after the last read. It may refuse them with `Away`. `attempted` is called after
    each page and each transaction.
    """

    def __init__(
        self,
        fenced: FencedStore,
        layout: RegionKeys,
        bound: Bound,
        *,
        page: int = PAGE,
        on_conflict: Callable[[], None] = lambda: None,
        new_keys: NewKeys = no_new_keys,
        before_write: Callable[[Sequence[Item]], Awaitable[None]] = nothing_first,
        attempted: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(fenced.store, layout, bound, known=fenced.term, page=page, attempted=attempted)
        self._fenced = fenced
        self._on_conflict = on_conflict
        self._new_keys = new_keys
        self._before_write = before_write

    def lower_floor(self, revision: int) -> None:  # protection: C50
        """C50: the store was restored and continues from this revision; wait for no later one."""
        self.known = min(self.known, revision)

    async def apply(self, ready: Sequence[Item]) -> Sequence[Outcome[bytes, Entry]]:
        """Return one outcome per change. Raises `Deposed`: then this term is over for the whole server."""
        outcomes = await self._too_early(ready)
        going = [change for change in ready if change.key not in outcomes]
        # Within one call writes land in any order, so dependents go in a call of their own.
        for _, units in itertools.groupby(paired(going, self._layout), key=self._rank):
            together = list(units)
            await self._before_write([change for unit in together for change in unit])
            await self._write(together, outcomes)
        return [outcomes[change.key] for change in ready]

    async def _too_early(self, ready: Sequence[Item]) -> dict[bytes, Outcome[bytes, Entry]]:
        """C35: an object that moves once more after this was decided leaves a delete without its create."""
        arriving = {self._layout.individual(change.key) for change in ready if change.op is Op.CREATE}
        leaving = {
            change.key: change
            for change in ready
            if change.op is Op.DELETE and self._layout.individual(change.key) not in {None, *arriving}
        }
        moved = await self._new_keys(leaving) if leaving else {}
        there = await self.get(set(moved.values())) if moved else {}
        return {
            old: Outcome(leaving[old], f"it is wanted as {self._layout.show(new)} now, and stays until that exists")
            for old, new in moved.items()
            if new not in there
        }

    async def _write(self, units: Sequence[Sequence[Item]], outcomes: dict[bytes, Outcome[bytes, Entry]]) -> None:
        results = await self._fenced.bulk([self._as_write(unit) for unit in units], self._attempted)
        for unit, result in zip(units, results, strict=True):
            if isinstance(result.error, Deposed):
                raise result.error
            self.known = max(self.known, result.revision)
            for change in unit:
                outcomes[change.key] = self._outcome(change, result)

    def _outcome(self, change: Item, result: WriteResult) -> Outcome[bytes, Entry]:
        if result.error is None:
            return Outcome(change)
        if isinstance(result.error, WriteConflict):
            self._on_conflict()
            if change.key in self._foreign:
                key = change.key.decode(errors="backslashreplace")
                return Outcome(change, f"{key} belongs to another region in the store: rename one of the two")
        what = "store" if isinstance(result.error, StoreAway) else str(result.error)
        return Outcome(change, what, result.stop)

    def _as_write(self, unit: Sequence[Item]) -> FencedWrite:
        return FencedWrite([self._operation(change) for change in unit], [unchanged(change) for change in unit])

    def _operation(self, change: Item) -> Put | Delete:
        if change.new is None:
            return Delete(change.key)
        doc = change.new.value.value
        if change.old is None:
            return Put(change.key, doc)
        kind = self._layout.kind(change.key)
        thing = kind.decode(change.key, doc)
        # A document that we cannot decode is newer than this version: it is written unchanged.
        return Put(change.key, doc if isinstance(thing, Bad) else kind.encode(thing, over=change.old.value.value))

    def _rank(self, unit: Sequence[Item]) -> int:
        kinds = self._layout.kinds
        return kinds.rank(kinds.of(unit[-1].key))


def paired(ready: Sequence[Item], layout: RegionKeys) -> Iterator[Sequence[Item]]:
    """Group the changes into transactions: all parts of a move together, in the place of its last new key.

    A workload's migration goes with it: a watcher that sees the arrival also sees the end of the migration.
    """
    leaving = {layout.workload(change.key) for change in ready if change.op is Op.DELETE}
    arriving = {layout.workload(change.key) for change in ready if change.op is Op.CREATE} if leaving else set()
    together: dict[bytes | None, list[Item]] = {one: [] for one in (leaving & arriving) - {None}}
    for change in ready if together else ():
        if (unit := together.get(layout.workload(change.key))) is not None:
            unit.append(change)
    for change in ready:
        unit = together.get(layout.workload(change.key)) if together else None
        if unit is None:
            yield (change,)
        elif change is unit[-1]:
            yield unit


def unchanged(change: Item) -> Compare:  # protection: C21
    """C21: the write succeeds only in the state that it was decided on."""
    if change.old is None:
        return Compare(change.key, Aspect.VERSION, 0)  # absence in the fewest bytes
    return Compare(change.key, Aspect.MOD_REVISION, change.old.revision)


def not_stale(revision: int, known: int) -> int:  # protection: C29
    """C29: a list from before our own term or last write comes from a stale member, and nothing is concluded from it.

    An object that such a list lacks could exist; its delete would be settled without having been done.
    """
    if revision < known:
        raise Away("store", f"a member lists revision {revision}, but revision {known} is known: it is stale")
    return revision


def _owned(entry: Entry) -> Owned[Entry]:
    return Owned(entry, NAME, entry.mod_revision)


async def _end(pages: AsyncIterator[Page]) -> None:
    close = getattr(pages, "aclose", None)
    if close is not None:
        await close()


@contextlib.contextmanager
def _as_away() -> Iterator[None]:
    """A store that refuses a read is waited for, like one that is unreachable."""
    try:
        yield
    except StoreError as error:
        raise Away("store", str(error)) from error


def _portions(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(keys), KEYS_PER_READ):
        yield keys[start : start + KEYS_PER_READ]
