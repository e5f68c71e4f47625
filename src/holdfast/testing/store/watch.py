"""One watch of a FakeStore: a snapshot, then events without a gap, and a new snapshot whenever continuity was lost.

Continuity is lost by a compaction beyond what was delivered, by a restored or wiped store, and on demand. A stream
that is half-open is noticed only as the protocol says: by an own write that does not come back (C38).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

import msgspec

from holdfast.store.api import (
    Compacted,
    Entry,
    Event,
    Events,
    KeyRange,
    Keys,
    OwnKey,
    Snapshot,
    StoreAway,
    in_key_order,
    span,
    streamed,
)

if TYPE_CHECKING:
    from holdfast.testing.store.keyspace import Keyspace
    from holdfast.testing.store.link import FakeLink

_MOD_REVISION = attrgetter("mod_revision")
RETRY_SECONDS = 0.1
PART = 100
"""Keys in one part of a list, for a reader that asks for parts."""


class _Reader(Protocol):
    """The part of a client that a watch needs."""

    @property
    def link(self) -> FakeLink: ...
    @property
    def keys(self) -> Keyspace: ...
    async def get(self, key: bytes, *, revision: int = 0) -> Entry | None: ...
    async def list_all(self, prefixes: Sequence[Keys]) -> Snapshot: ...
    async def check_reachable(self) -> None: ...


class FakeWatch:
    """State of one watch."""

    def __init__(
        self,
        client: _Reader,
        prefixes: Sequence[Keys],
        own: OwnKey | None,
        held: Mapping[bytes, int] | None,
        parts: bool,
    ) -> None:
        self._client = client
        self._prefixes = in_key_order(prefixes)
        self._own = own
        self._held: Mapping[bytes, int] = {} if held is None else held  # live: it may still be empty now
        self._stream = client.link.open(client.keys.revision, self._prefixes)
        self._seen = 0
        self._ranges = streamed(self._prefixes)
        self._seen_of = dict.fromkeys(self._ranges, 0)
        """Per range, the revision up to which it was delivered."""
        self._listed: Keyspace | None = None
        self._part = PART if parts else sys.maxsize

    def close(self) -> None:
        self._client.link.close(self._stream)

    async def snapshot(self) -> AsyncGenerator[Snapshot, None]:
        """Yield everything under the prefixes, retrying for as long as it takes. It is of one revision; the link may
        fail between its parts all the same, and then it begins anew."""
        while True:
            self._stream.continuous = True
            try:
                found = await self._client.list_all(self._prefixes)
                keys = self._client.keys
                # After a restore the same revision can have another value (C29): then list everything.
                snapshot = _without(found, self._held) if self._listed is keys else found
                went_back = self._listed not in (None, keys) and found.revision < self._seen
                for part in _parts(msgspec.structs.replace(snapshot, went_back=went_back), self._part):
                    if not part.first:
                        await self._client.check_reachable()
                    yield part
            except StoreAway:
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self._seen, self._listed = found.revision, keys
                self._seen_of = dict.fromkeys(self._ranges, found.revision)
                return

    async def next_events(self) -> Events | None:
        """Wait for the next events; None when continuity was lost."""
        while True:
            await self._wait_advanced()
            try:
                events = self._events() if self._stream.continuous else None
            except Compacted:
                events = None
            if events is None or events.batch or events.own or events.skipped:
                return events

    def _events(self) -> Events:
        until = self._reachable()
        sent = sorted((event for each in self._moving() for event in self._of(each, until)), key=_MOD_REVISION)
        all_of_it = [event for events in self._client.keys.events(self._seen, until) for event in events]
        batch = [one for one in sent if any(one.key in span(each) for each in self._prefixes)]
        own = 0
        if self._own is not None and not self._is_streamed(self._own.key):
            own = max((one.mod_revision for one in all_of_it if one.key == self._own.key), default=0)
        self._seen = max(self._seen, until)
        if not sent:
            return Events(0, batch, own=own)
        skipped = len(sent) - len(batch)
        return Events(sent[-1].mod_revision, batch, self._client.keys.revision, skipped=skipped)

    def _is_streamed(self, key: bytes) -> bool:
        """Return whether etcd sends that key: it sends everything between the first prefix and the last."""
        return any(key in each for each in self._ranges)

    def _moving(self) -> Sequence[KeyRange]:
        """Ranges that do not lag."""
        held = self._stream.held_back
        return [each for each in self._ranges if held is None or not each.first.startswith(held)]

    def _of(self, each: KeyRange, until: int) -> Sequence[Event]:
        """Take the next events of one range."""
        since, self._seen_of[each] = self._seen_of[each], max(self._seen_of[each], until)
        return [event for events in self._client.keys.events(since, until) for event in events if event.key in each]

    def _reachable(self) -> int:
        """Return the newest revision that can be read: a stale or restored store may be behind the stream."""
        return min(self._stream.horizon, self._client.keys.revision)

    async def _wait_advanced(self) -> None:
        while self._stream.continuous and self._reachable() <= min(map(self._seen_of.__getitem__, self._moving())):
            self._stream.advanced.clear()
            try:
                async with asyncio.timeout(self._timeout()):
                    await self._stream.advanced.wait()
            except TimeoutError:
                await self._prove_alive()

    def _timeout(self) -> float | None:
        return None if self._own is None else 2 * self._own.interval.total_seconds()

    async def _prove_alive(self) -> None:
        assert self._own is not None
        try:
            own = await self._client.get(self._own.key)
        except StoreAway:
            return
        if own is not None and own.mod_revision > self._stream.horizon:
            self.close()
            self._stream = self._client.link.open(self._client.keys.revision, self._prefixes)


def _without(snapshot: Snapshot, held: Mapping[bytes, int]) -> Snapshot:
    """Reduce a snapshot for a reader that holds some of it already."""
    unchanged = [entry.key for entry in snapshot.items if held.get(entry.key) == entry.mod_revision]
    if not unchanged:
        return snapshot
    items = [entry for entry in snapshot.items if held.get(entry.key) != entry.mod_revision]
    return Snapshot(snapshot.revision, items, unchanged)


def _parts(snapshot: Snapshot, size: int) -> Iterator[Snapshot]:
    items = snapshot.items
    back = snapshot.went_back
    yield Snapshot(snapshot.revision, items[:size], snapshot.unchanged, more=len(items) > size, went_back=back)
    for start in range(size, len(items), size):
        more = len(items) > start + size
        yield Snapshot(snapshot.revision, items[start : start + size], first=False, more=more, went_back=back)
