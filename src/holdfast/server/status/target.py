"""Target of the status workers: the inventory's `observed` rows, written in fenced transactions, differences only.

Rows are kept in memory as they were read and written, so that a comparison needs no query: while a term lasts no other
process writes here, and every audit reads all rows again. A pass reads all rows before its first page is compared:
otherwise a loss that is reported meanwhile would look like a new object. An unreadable row is present, and equal to
nothing that is wanted: it is rewritten or removed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Generic, TypeVar

import msgspec

from holdfast.inventory.api import Fence, Observed
from holdfast.inventory.sql.thread import RunInThread
from holdfast.model.base import codec
from holdfast.reconcile import Change, Outcome, Owned, alike
from holdfast.runtime.clock import Clock
from holdfast.store.mirror.gc_pause import gc_paused

V = TypeVar("V", bound=msgspec.Struct)

PAGE = 5_000
SOURCE = "reports"
_MOST_REMEMBERED = 1_000
_VALUE = attrgetter("value")


class WrittenRow(Owned[V], frozen=True, gc=False):
    """Value of a row, and when it was written: shared by all rows that were written together with the same value."""

    at: datetime


_Page = Sequence[tuple[bytes, WrittenRow[V]]]


class ObservedTarget(Generic[V]):
    """Rows of one kind under one prefix."""

    def __init__(
        self,
        observed: Observed,
        run_in_thread: RunInThread,
        fence: Fence,
        kind: str,
        prefix: bytes,
        blank: V,
        clock: Clock,
        expected: Callable[[], int] = lambda: 0,
    ) -> None:
        """`expected` returns about how many rows there are."""
        self._observed = observed
        self._run_in_thread = run_in_thread
        self._fence = fence
        self._kind = kind
        self._prefix = prefix
        self.blank = blank
        """Value of unreadable rows."""
        self._decoder = msgspec.json.Decoder(type(blank))
        self._clock = clock
        self._expected = expected
        self.written: dict[bytes, WrittenRow[V]] = {}
        """The readable rows."""
        self.page = PAGE
        """Rows that are read at once, and compared at once."""
        self._pages: deque[_Page[V]] = deque()
        """Pages that the current pass has not compared yet, as they were when the pass began."""
        self._documents: dict[bytes, V] = {}
        self.writes = 0
        """Rows written or removed so far."""

    def values(self) -> Iterator[V]:
        """Values of the readable rows."""
        return map(_VALUE, self.written.values())

    async def read(self, after: bytes | None) -> tuple[_Page[V], bytes | None]:
        if after is None:
            with gc_paused(self._expected(), lasting=False):
                await self._read_all()
        page = self._pages.popleft()
        return page, page[-1][0] if self._pages else None

    async def _read_all(self) -> None:
        pages: deque[_Page[V]] = deque()
        shared: dict[tuple[bytes, datetime], WrittenRow[V]] = {}
        after: bytes | None = None
        while True:
            rows = await self._run_in_thread(partial(self._observed.read, self._kind, self._prefix, after, self.page))
            page: list[tuple[bytes, WrittenRow[V]]] = []
            for seen in rows:
                case = seen.doc, seen.at
                row = shared.get(case)
                if row is None:
                    row = shared[case] = WrittenRow(self._decoded(seen.doc), SOURCE, 0, seen.at)
                page.append((seen.key, row))
            pages.append(page)
            if len(rows) < self.page:
                break
            after = rows[-1].key
        if not pages[-1] and len(pages) > 1:
            pages.pop()
        self._pages = pages
        self.written = {key: row for page in pages for key, row in page if row.value is not self.blank}

    async def get(self, keys: Collection[bytes]) -> Mapping[bytes, WrittenRow[V]]:
        return self.written

    async def apply(self, ready: Sequence[Change[bytes, V]]) -> Sequence[Outcome[bytes, V]]:
        """Write all changes in one transaction. Raises `Away`, or `Deposed`: then this term is over."""
        at = self._clock.wall()
        rows: dict[bytes, list[bytes]] = {}
        made: dict[bytes, WrittenRow[V]] = {}
        gone: list[bytes] = []
        for some in alike(ready):
            new, keys = some[0].new, [change.key for change in some]
            if new is None:
                gone += keys
                continue
            rows.setdefault(codec.encode(new.value), []).extend(keys)
            made |= dict.fromkeys(keys, WrittenRow(new.value, SOURCE, 0, at))
        await self._run_in_thread(partial(self._observed.write, self._fence, self._kind, rows, gone, at))
        self.written |= made
        for key in gone:
            self.written.pop(key, None)
        self.writes += len(ready)
        return list(map(Outcome, ready))

    def _decoded(self, doc: bytes) -> V:
        known = self._documents.get(doc)
        if known is not None:
            return known
        try:
            value = self._decoder.decode(doc)
        except (msgspec.MsgspecError, RecursionError):
            return self.blank
        if len(self._documents) < _MOST_REMEMBERED:
            self._documents[doc] = value
        return value
