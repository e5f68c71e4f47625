"""Target of the status workers: the inventory's `observed` rows, written in fenced transactions, differences only.

Rows are kept in memory as they were read and written, so that a comparison needs no query: while a term lasts no other
process writes here, and every audit reads all rows again. A pass reads all rows before its first page is compared:
otherwise a loss that is reported meanwhile would look like a new object. An unreadable row is present, and equal to
nothing that is wanted: it is rewritten or removed.

A write whose answer is lost may have been committed. Its rows are read again before anything is compared with them
(C47): if the report has changed back meanwhile, the row in memory would look right while the database has the other
value, until the next audit. Every page and every transaction is an attempt (C48), and transactions stay short.

Where the fence does not cover what a write changes, as in Neutron, the term is confirmed before every transaction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Generic, TypeVar

import msgspec

from holdfast.inventory.api import Fence, Observed, ObservedRow
from holdfast.inventory.sql.thread import RunInThread
from holdfast.model.base import codec
from holdfast.model.base.time import Duration
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


@dataclass(frozen=True, slots=True)
class TransactionSize:
    """Rows per transaction: doubled after a quick one, halved after a slow one.

    It begins small: a first transaction of a minute would be taken for a stall, and the worker that replaces this one
    would begin with the same (C48).
    """

    rows: int = 500
    most: int = 5_000
    least: int = 10
    quick: Duration = Duration(seconds=1)
    slow: Duration = Duration(seconds=5)

    def after(self, took: Duration) -> TransactionSize:
        rows = self.rows * 2 if took <= self.quick else self.rows // 2 if took > self.slow else self.rows
        return replace(self, rows=min(self.most, max(self.least, rows)))


_UNFENCED = TransactionSize(rows=20)
"""First size where a row may be a call of 200 ms: a confirmed term must not be minutes old when it is relied on."""

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
        attempted: Callable[[], None] = lambda: None,
        confirm: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`expected` returns about how many rows there are; `attempted` is called after every page and transaction.
        `confirm` is called before a transaction that the fence does not cover; it raises `Deposed` or `Away`."""
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
        self._attempted = attempted
        self._confirm = confirm
        self.written: dict[bytes, WrittenRow[V]] = {}
        """The readable rows."""
        self.page = PAGE
        """Rows that are read at once, and compared at once."""
        self._pages: deque[_Page[V]] = deque()
        """Pages that the current pass has not compared yet, as they were when the pass began."""
        self._documents: dict[bytes, V] = {}
        self._size = TransactionSize() if confirm is None else _UNFENCED
        self._uncertain: set[bytes] = set()
        """Keys of writes that may or may not have been committed."""
        self.writes = 0
        """Rows written or removed so far."""

    def values(self) -> Iterator[V]:
        """Values of the readable rows."""
        return map(_VALUE, self.written.values())

    async def read(self, after: bytes | None) -> tuple[_Page[V], bytes | None]:
        if after is None:
            if self._uncertain:
                await self._read_again()  # waits for the transaction that may still commit
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
            self.note_attempt()
            pages.append(self._page_of(rows, shared))
            if len(rows) < self.page:
                break
            after = rows[-1].key
        if not pages[-1] and len(pages) > 1:
            pages.pop()
        self._pages = pages
        self.written = {key: row for page in pages for key, row in page if row.value is not self.blank}

    def _page_of(self, rows: Sequence[ObservedRow], shared: dict[tuple[bytes, datetime], WrittenRow[V]]) -> _Page[V]:
        """Decode rows; those with the same document and time share one object."""
        page: list[tuple[bytes, WrittenRow[V]]] = []
        for seen in rows:
            case = seen.doc, seen.at
            row = shared.get(case)
            if row is None:
                row = shared[case] = WrittenRow(self._decoded(seen.doc), SOURCE, 0, seen.at)
            page.append((seen.key, row))
        return page

    async def get(self, keys: Collection[bytes]) -> Mapping[bytes, WrittenRow[V]]:
        if self._observed.shared(self._kind):  # protection: C31
            self._note_uncertain(keys)
        if self._uncertain:
            await self._read_again()
        return self.written

    async def _read_again(self) -> None:
        """Read the rows of uncertain writes, after the transactions that may still commit them have ended."""
        keys = sorted(self._uncertain)
        rows = await self._run_in_thread(partial(self._observed.read_settled, self._fence, keys))
        self.note_attempt()
        for key in keys:
            self.written.pop(key, None)
        self.written |= {key: row for key, row in self._page_of(rows, {}) if row.value is not self.blank}
        self._uncertain.difference_update(keys)

    async def apply(self, ready: Sequence[Change[bytes, V]]) -> Sequence[Outcome[bytes, V]]:
        """Write the changes in transactions of a few seconds. Raises `Away`, or `Deposed`: then this term is over."""
        done = 0
        refused: dict[bytes, str] = {}
        while done < len(ready):
            some = ready[done : done + self._size.rows]
            if self._confirm is not None:
                await self._confirm()
            began = self._clock.now()
            refused |= await self._write(some)
            self._size = self._size.after(self._clock.now() - began)
            self.note_attempt()
            done += len(some)
        if not refused:
            return list(map(Outcome, ready))
        return [Outcome(change, refused.get(change.key)) for change in ready]

    async def keep_fresh(self) -> None:
        """Write again what ages in the inventory. Raises `Away`, or `Deposed`: then nothing was written."""
        if self._confirm is not None:
            await self._confirm()
        await self._run_in_thread(partial(self._observed.keep_fresh, self._fence, self._kind))

    async def _write(self, ready: Sequence[Change[bytes, V]]) -> Mapping[bytes, str]:
        """Write in one transaction. Returns the keys that were refused, with the reason."""
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
        try:
            write = partial(self._observed.write, self._fence, self._kind, rows, gone, at)
            refused = await self._run_in_thread(write)
        except BaseException:  # also when this term's work is cancelled: the thread goes on
            self._note_uncertain([*made, *gone])
            raise
        for key in refused:
            made.pop(key, None)
        self.written |= made
        for key in gone:
            self.written.pop(key, None)
        self.writes += len(ready) - len(refused)
        return refused

    def _note_uncertain(self, keys: Collection[bytes]) -> None:  # protection: C47
        self._uncertain.update(keys)

    def note_attempt(self) -> None:  # protection: C48
        """Note that a page was read or a transaction has ended."""
        self._attempted()

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
