"""Proof of continuity: what the store's history must contain before a watch resumes.

A store that was wiped or restored, and written beyond our revision before we reconnect, answers like the one before:
cluster id, member id, raft term and revision can all match. Its history cannot: the last change that the watch saw did
not happen there at that revision. So the watch reads that revision, not the present. Pure: builds the queries and
checks the answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from holdfast.store.api import Entry, Event, Keys, Snapshot, span
from holdfast.store.transport import wire


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """One read at a past revision, the number of keys that it must find and, where known, the entry."""

    request: wire.RangeRequest
    count: int
    entry: Entry | None = None

    def holds(self, reply: wire.RangeReply | None) -> bool:
        return (
            reply is not None and reply.count == self.count and (self.entry is None or list(reply.kvs) == [self.entry])
        )


@dataclass(frozen=True, slots=True)
class HistoryProof:
    """The queries that identify a store's history at one revision."""

    queries: Sequence[HistoryQuery]
    counts: Sequence[wire.RangeRequest] = ()
    """Prefixes at that revision, which have `count` keys together."""
    count: int = 0

    def request(self) -> bytes:
        """Encode all queries as one read-only transaction."""
        reads = [*(query.request for query in self.queries), *self.counts]
        return wire.encode(wire.TxnRequest(success=[wire.RequestOp(request_range=read) for read in reads]))

    def found(self, reply: wire.TxnReply) -> bool:  # protection: C29
        """Return True if the store that answers has the same history at that revision."""
        replies = [response.response_range for response in reply.responses]
        if len(replies) != len(self.queries) + len(self.counts):
            return False
        counted = [one.count for one in replies[len(self.queries) :] if one is not None]
        return sum(counted) == self.count and all(
            query.holds(one) for query, one in zip(self.queries, replies, strict=False)
        )


LISTED, RECENT = 128, 16
"""Entries kept of a list, and of the changes since."""
LARGEST = 16 << 10
"""Bytes of a value up to which an entry is kept."""
NO_PROOF = HistoryProof(())
_MOD_REVISION = attrgetter("mod_revision")


def at_event(event: Event) -> HistoryProof:
    """Prove the last change seen: a put is there at its revision, a deleted key was there one revision before."""
    revision = event.mod_revision
    now = wire.RangeRequest(event.key, revision=revision)
    if event.entry is not None:
        return HistoryProof([HistoryQuery(now, 1, event.entry)])
    before = wire.RangeRequest(event.key, revision=revision - 1, keys_only=True)
    return HistoryProof([HistoryQuery(before, 1), HistoryQuery(now, 0)])


@dataclass(slots=True)
class ListSummary:
    """Number of keys and newest entry of one list, as far as its parts have arrived."""

    count: int = 0
    newest: Entry | None = None

    def add(self, part: Snapshot) -> None:
        self.count += len(part.items) + len(part.unchanged)
        entries = part.items if self.newest is None else [self.newest, *part.items]
        self.newest = max(entries, key=_MOD_REVISION, default=None)


@dataclass(slots=True)
class KnownValues:
    """Some entries with their values, which identify the store's history where it is compacted (C29).

    The last change alone does not: on a busy prefix it has been overwritten. A random part of the last list finds the
    entries that stay; of the unchanged keys, all but about one in `LISTED` are older than the newest unchanged entry of
    that part."""

    pick: Callable[[Sequence[Entry], int], list[Entry]]
    """Returns that many of the entries, at random."""
    _listed: dict[bytes, Entry] = field(default_factory=dict)
    recent: deque[Event] = field(default_factory=lambda: deque(maxlen=RECENT))
    """The last changes of the last batches; the watch appends them."""
    _count: int = 0

    def entries(self) -> Mapping[bytes, Entry]:
        recent = [event.entry for event in self.recent if event.entry is not None]
        return self._listed | {entry.key: entry for entry in recent if len(entry.value) <= LARGEST}

    def add_part(self, part: Snapshot, held: Mapping[bytes, int]) -> None:
        """Take some entries of a list, the same share of each of its parts, and drop what the reader holds no more."""
        if part.first:
            self._count, known = 0, self.entries() if part.unchanged else {}  # else it may be another store
            self._listed = {key: one for key, one in known.items() if held.get(key) == one.mod_revision}
            self.recent.clear()
        self._count += len(part.items) + len(part.unchanged)
        items = [entry for entry in part.items if len(entry.value) <= LARGEST]
        share = min(len(items), -(-LISTED * len(part.items) // max(1, self._count)))
        kept = list(self._listed.values())
        kept = self.pick(kept, min(len(kept), LISTED - share))
        self._listed = {entry.key: entry for entry in (*kept, *self.pick(items, share))}


def at_snapshot(prefixes: Sequence[Keys], revision: int, listed: ListSummary) -> HistoryProof:
    """Prove a list: its number of keys, and the newest entry whose value came with it."""
    ranges = map(span, prefixes)
    counts = [wire.RangeRequest(each.first, each.end, revision=revision, count_only=True) for each in ranges]
    newest = [] if listed.newest is None else [listed.newest]
    queries = [HistoryQuery(wire.RangeRequest(entry.key, revision=revision), 1, entry) for entry in newest]
    return HistoryProof(queries, counts, listed.count)
