"""What the syncer writes to: the store, read at one pinned revision, written in fenced, packed transactions.

Every write compares what it was decided upon: a create that the key is absent, a replace and a delete its
mod_revision (C21). Who lost that race is looked at again. An object that moves goes in one transaction, so that it
cannot lose its old key and get no new one; one that has moved on since then keeps its old key until its new one is
there (C35). What our model does not know of a value survives its rewrite.
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
KEYS_PER_LOOK = 100

Item = Change[bytes, Entry]
Bound = Callable[[bytes | None, int], Awaitable[bytes | None]]
Elsewhere = Callable[[Collection[bytes]], Awaitable[Mapping[bytes, bytes]]]
"""Of these keys, those whose object is wanted under another one by now, and which."""


async def nowhere(_keys: Collection[bytes]) -> Mapping[bytes, bytes]:
    return {}


class EtcdTarget:
    """`bound` limits a page by what is wanted, too: an empty store must not mean one page of everything.

    `conflict` is told of each write that found its object changed by somebody else.
    """

    def __init__(
        self,
        fenced: FencedStore,
        layout: RegionKeys,
        bound: Bound,
        *,
        page: int = PAGE,
        conflict: Callable[[], None] = lambda: None,
        elsewhere: Elsewhere = nowhere,
    ) -> None:
        self._fenced = fenced
        self._store: Store = fenced.store
        self._layout = layout
        self._bound = bound
        self._page = page
        self._pinned = 0
        self.known = fenced.term
        """The latest revision that the store is known to have had: the one that we won at, or wrote last."""
        self._conflict = conflict
        self._elsewhere = elsewhere
        self._foreign: set[bytes] = set()
        """Keys that were last seen with an object of another region."""

    async def read(self, after: bytes | None) -> tuple[Sequence[tuple[bytes, Owned[Entry]]], bytes | None]:
        if after is None:
            self._pinned = 0
        with _sentences():
            entries, upto = await self._entries(after)
        # C36: only now, with the store's revision pinned, is the database's snapshot opened.
        bound = await self._bound(after, self._page)
        if bound is not None and (upto is None or bound < upto):
            upto = bound
            entries = [entry for entry in entries if entry.key <= bound]
        return [(entry.key, _owned(entry)) for entry in entries if self._layout.is_ours(entry)], upto

    async def get(self, keys: Collection[bytes]) -> Mapping[bytes, Owned[Entry]]:
        found: dict[bytes, Owned[Entry]] = {}
        self._foreign.difference_update(keys)
        with _sentences():
            for some in _portions(sorted(keys)):
                answer = await self._store.txn([], [Get(key) for key in some])
                entries = [entry for result in answer.results if not isinstance(result, int) for entry in result]
                found |= {entry.key: _owned(entry) for entry in entries if self._layout.is_ours(entry)}
                self._foreign.update(entry.key for entry in entries if entry.key not in found)
        return found

    async def apply(self, ready: Sequence[Item]) -> Sequence[Outcome[bytes, Entry]]:
        """One outcome per change. Raises `Deposed`: then this term is over for the whole server."""
        outcomes = await self._too_early(ready)
        going = [change for change in ready if change.key not in outcomes]
        # Within one call writes land in any order, so what leans on something goes in a call of its own.
        for _, units in itertools.groupby(paired(going, self._layout), key=self._rank):
            await self._write(list(units), outcomes)
        return [outcomes[change.key] for change in ready]

    async def _too_early(self, ready: Sequence[Item]) -> dict[bytes, Outcome[bytes, Entry]]:
        """C35: whoever moves an object once more, after this was decided, leaves us a delete without its create."""
        arriving = {self._layout.individual(change.key) for change in ready if change.op is Op.CREATE}
        leaving = {
            change.key: change
            for change in ready
            if change.op is Op.DELETE and self._layout.individual(change.key) not in {None, *arriving}
        }
        moved = await self._elsewhere(leaving) if leaving else {}
        there = await self.get(set(moved.values())) if moved else {}
        return {
            old: Outcome(leaving[old], f"it is wanted as {self._layout.show(new)} now, and stays until that is there")
            for old, new in moved.items()
            if new not in there
        }

    async def _write(self, units: Sequence[Sequence[Item]], outcomes: dict[bytes, Outcome[bytes, Entry]]) -> None:
        results = await self._fenced.bulk([self._as_write(unit) for unit in units])
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
            self._conflict()
            if change.key in self._foreign:
                key = change.key.decode(errors="backslashreplace")
                return Outcome(change, f"{key} is another region's in the store: give it another name, here or there")
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
        # A document that we cannot read ourselves is newer than we are: it goes as it is.
        return Put(change.key, doc if isinstance(thing, Bad) else kind.encode(thing, over=change.old.value.value))

    def _rank(self, unit: Sequence[Item]) -> int:
        kinds = self._layout.kinds
        return kinds.rank(kinds.of(unit[-1].key))

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
            self._pinned = self._pinned or not_stale(page.revision, self.known)
            return page
        raise StoreError("the store answered a list with nothing at all")


def paired(ready: Sequence[Item], layout: RegionKeys) -> Iterator[Sequence[Item]]:
    """The changes as they are to be written: all halves of a move together, in the place of its last new key.

    A workload's migration goes with it: whoever sees that it has arrived sees that it is not on its way any more.
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


def unchanged(change: Item) -> Compare:
    """C21: the write holds only for what it was decided upon."""
    if change.old is None:
        return Compare(change.key, Aspect.VERSION, 0)  # absence in the fewest bytes
    return Compare(change.key, Aspect.MOD_REVISION, change.old.revision)


def not_stale(revision: int, known: int) -> int:
    """C29: a list from before our own term or our own last write is a stale member's, and nothing is concluded from it.

    What such a list does not show could be there; the change that was to remove it would be settled for nothing.
    """
    if revision < known:
        raise Away("store", f"a member lists revision {revision}, but we have seen {known}: it is stale")
    return revision


def _owned(entry: Entry) -> Owned[Entry]:
    return Owned(entry, NAME, entry.mod_revision)


async def _end(pages: AsyncIterator[Page]) -> None:
    close = getattr(pages, "aclose", None)
    if close is not None:
        await close()


@contextlib.contextmanager
def _sentences() -> Iterator[None]:
    """A store that says no while it is read is waited for, like one that says nothing."""
    try:
        yield
    except StoreError as error:
        raise Away("store", str(error)) from error


def _portions(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(keys), KEYS_PER_LOOK):
        yield keys[start : start + KEYS_PER_LOOK]
