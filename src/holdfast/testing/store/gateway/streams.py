"""Server side of one watch stream: several watches that one request created, each at a place of its own.

As in etcd: a watch that keeps up gets each commit as one line. One that begins in the past, or that fell behind,
catches up in steps of at most `MOST_REVISIONS` revisions, and for as long the watches of one stream drift against each
other. A watch from before the compacted revision is created and then cancelled; the stream stays open and silent.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from holdfast.store.api import Event
from holdfast.store.transport import wire
from holdfast.testing.store.fake import StoreWrite
from holdfast.testing.store.gateway.encoding import as_json, event
from holdfast.testing.store.keyspace import Keyspace
from holdfast.testing.store.link import later

MOST_REVISIONS = 1_000
SYNC_EVERY = 0.1
"""Seconds between two steps of watches that catch up."""
_REQUESTS = wire.decoder(wire.WatchRequest)


@dataclass(slots=True)
class ServerWatch:
    """One watch: every revision before `next` was sent."""

    id: int
    first: bytes
    end: bytes
    next: int
    synced: bool = False

    def covers(self, key: bytes) -> bool:
        if not self.end:
            return key == self.first
        return self.first <= key and (self.end == b"\0" or key < self.end)


@dataclass(slots=True, eq=False)
class ServerStream:
    """The watches of one connection. `send` writes one line to the client."""

    keys: Callable[[], Keyspace]
    header: Callable[[], dict[str, int]]
    send: Callable[[bytes], None]
    may_send: Callable[[ServerWatch], bool]
    """False while this watch does not get on: its member lags, or its part of the stream does."""
    rng: random.Random
    drift: Callable[[], float]
    """Probability that a watch falls behind at a commit."""
    watches: list[ServerWatch] = field(default_factory=list)
    closed: bool = False
    _ticking: bool = False

    def create(self, body: bytes) -> None:
        """Create the watches of a request: several objects, one after the other."""
        for request in _REQUESTS.decode_lines(body.replace(b"}{", b"}\n{")):
            asked, now = request.create_request, self.keys().revision
            started = asked.start_revision or now + 1
            watch = ServerWatch(asked.watch_id, asked.key, asked.range_end, started, synced=started > now)
            self.watches.append(watch)
            self._line(watch, {"created": True})
        self.wake()

    def committed(self, write: StoreWrite) -> None:
        """Send a commit to the watches that keep up."""
        for watch in self.watches:
            if not watch.synced or write.revision < watch.next:
                continue
            lags = self.rng.random() < self.drift()
            if lags or not self.may_send(watch):
                watch.synced = False
            else:
                self._send_events(watch, write.events)
                watch.next = write.revision + 1
        self.wake()

    def wake(self) -> None:
        """Let the watches that are behind catch up, soon."""
        if not self._ticking and not self.closed and any(self._can_move(watch) for watch in self.watches):
            self._ticking = True
            later(self.rng.uniform(0, SYNC_EVERY), self._catch_up)

    def close(self) -> None:
        self.closed = True
        self.watches.clear()

    def _can_move(self, watch: ServerWatch) -> bool:
        return not watch.synced and self.may_send(watch)

    def _catch_up(self) -> None:
        self._ticking = False
        if self.closed:
            return
        for watch in [each for each in self.watches if self._can_move(each)]:
            self._advance(watch)
        self.wake()

    def _advance(self, watch: ServerWatch) -> None:
        keys = self.keys()
        if watch.next < keys.compacted:
            self.watches.remove(watch)
            self._line(watch, {"canceled": True, "compact_revision": keys.compacted})
            return
        until = min(keys.revision, watch.next + MOST_REVISIONS - 1)
        self._send_events(watch, _history(keys, watch.next, until))
        watch.next = max(watch.next, until + 1)
        watch.synced = watch.next > keys.revision

    def _send_events(self, watch: ServerWatch, events: Sequence[Event]) -> None:
        wanted = [event(each) for each in events if watch.covers(each.key)]
        if wanted:
            self._line(watch, {}, b'"events":[%s]' % b",".join(wanted))

    def _line(self, watch: ServerWatch, fields: dict[str, object], events: bytes = b"") -> None:
        result = as_json({"header": self.header(), "watch_id": watch.id, **fields})
        if events:
            result = b"%s,%s}" % (result[:-1], events)
        self.send(b'{"result":%s}\n' % result)


def _history(keys: Keyspace, first: int, last: int) -> list[Event]:
    """Return the events of the revisions from `first` to `last`. Of the compacted revision itself only what lives is
    left: etcd has dropped its deletes."""
    kept: list[Event] = []
    if first == keys.compacted:
        alive = keys.range(b"\0", b"\0", first)
        kept = [Event(entry) for entry in alive if entry.mod_revision == first]
    after = max(first - 1, keys.compacted)
    return kept + [each for events in keys.events(after, last) for each in events]
