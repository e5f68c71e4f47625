"""What the status workers write to: the inventory's `observed`, in fenced transactions, differences only.

What was read and written is remembered, so that a comparison costs no question to the database: while a term lasts
nobody else writes here, and every audit reads it all again. A pass begins with all of it, before its first page is
compared: what is reported meanwhile is news about rows that are known, or a loss would look like something new. A row
that cannot be read is there, and equal to nothing that is wanted: it is written anew, or removed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Generic, TypeVar

import msgspec

from holdfast.inventory.api import Fence
from holdfast.inventory.aside import Aside
from holdfast.inventory.observed import Observed, Seen
from holdfast.model import codec
from holdfast.reconcile import Change, Outcome, Owned
from holdfast.runtime.clock import Clock

V = TypeVar("V", bound=msgspec.Struct)

PAGE = 5_000
SOURCE = "reports"
_MOST_REMEMBERED = 1_000


class ObservedTarget(Generic[V]):
    """The rows of one kind under one prefix."""

    def __init__(
        self, observed: Observed, aside: Aside, fence: Fence, kind: str, prefix: bytes, blank: V, clock: Clock
    ) -> None:
        self._observed = observed
        self._aside = aside
        self._fence = fence
        self._kind = kind
        self._prefix = prefix
        self.blank = blank
        """Stands for rows that cannot be read."""
        self._decoder = msgspec.json.Decoder(type(blank))
        self._clock = clock
        self.memory: dict[bytes, V] = {}
        self.times: dict[bytes, datetime] = {}
        """When each row was last written."""
        self.page = PAGE
        """Rows that are asked for at once, and compared at once."""
        self._pages: deque[Sequence[tuple[bytes, V]]] = deque()
        """What the pass that is under way has not compared yet, as it was when the pass began."""
        self._documents: dict[bytes, V] = {}
        self.writes = 0
        """Rows written or removed so far."""

    async def read(self, after: bytes | None) -> tuple[Sequence[tuple[bytes, Owned[V]]], bytes | None]:
        if after is None:
            await self._read_all()
        page = self._pages.popleft()
        return _owned(page), page[-1][0] if self._pages else None

    async def _read_all(self) -> None:
        pages: deque[Sequence[tuple[bytes, V]]] = deque()
        times: dict[bytes, datetime] = {}
        after: bytes | None = None
        while True:
            rows = await self._aside(partial(self._observed.read, self._kind, self._prefix, after, self.page))
            known = self._documents.get  # there are few different ones, and a hundred thousand rows
            pages.append([(seen.key, known(seen.doc) or self._decoded(seen)) for seen in rows])
            times |= {seen.key: seen.at for seen in rows}
            if len(rows) < self.page:
                break
            after = rows[-1].key
        if not pages[-1] and len(pages) > 1:
            pages.pop()
        self._pages, self.times = pages, times
        self.memory = {key: value for page in pages for key, value in page if value is not self.blank}

    async def look(self, keys: Collection[bytes]) -> Mapping[bytes, Owned[V]]:
        memory = self.memory
        return {key: Owned(memory[key], SOURCE, 0) for key in keys if key in memory}

    async def apply(self, ready: Sequence[Change[bytes, V]]) -> Sequence[Outcome[bytes, V]]:
        """All of it in one transaction. Raises `Away`, or `Deposed`: then this term is over."""
        made = {change.key: change.new.value for change in ready if change.new is not None}
        gone = [change.key for change in ready if change.new is None]
        # There are few different ones, and mostly they are the very same object.
        documents = {value_id: codec.encode(value) for value_id, value in {id(v): v for v in made.values()}.items()}
        rows = [(key, documents[id(value)]) for key, value in made.items()]
        at = self._clock.wall()
        await self._aside(partial(self._observed.write, self._fence, self._kind, rows, gone, at))
        self.memory |= made
        self.times |= dict.fromkeys(made, at)
        for key in gone:
            self._forget(key)
        self.writes += len(ready)
        return [Outcome(change) for change in ready]

    def _forget(self, key: bytes) -> None:
        self.memory.pop(key, None)
        self.times.pop(key, None)

    def _decoded(self, seen: Seen) -> V:
        try:
            value = self._decoder.decode(seen.doc)
        except (msgspec.MsgspecError, RecursionError):
            return self.blank
        if len(self._documents) < _MOST_REMEMBERED:
            self._documents[seen.doc] = value
        return value


def _owned(page: Sequence[tuple[bytes, V]]) -> Sequence[tuple[bytes, Owned[V]]]:
    return [(key, Owned(value, SOURCE, 0)) for key, value in page]
