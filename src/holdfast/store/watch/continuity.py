"""A place in the store's history that has to be found again before a watch goes on from there.

A store that was wiped or restored, and written beyond our revision before we looked again, answers like the one that we
left: cluster id, member id, raft term and revision can all fit. Its history cannot: what a watch saw last did not
happen there at that revision. So the watch asks for that moment, not for now. Pure: says what to ask and what the
answers must be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from holdfast.store.api import Entry, Event, Snapshot
from holdfast.store.transport import wire


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """One question about one revision of the past, how many keys it has to find, and where that is known, which."""

    request: wire.RangeRequest
    count: int
    entry: Entry | None = None

    def holds(self, reply: wire.RangeReply | None) -> bool:
        return (
            reply is not None and reply.count == self.count and (self.entry is None or list(reply.kvs) == [self.entry])
        )


@dataclass(frozen=True, slots=True)
class HistoryProof:
    """What the history shows at one revision."""

    looks: Sequence[HistoryQuery]

    def request(self) -> bytes:
        """All questions at once, as one transaction that only reads."""
        return wire.encode(wire.TxnRequest(success=[wire.RequestOp(request_range=look.request) for look in self.looks]))

    def found(self, reply: wire.TxnReply) -> bool:
        """Whether the store that answers went through the same revision in the same way."""
        shown = [response.response_range for response in reply.responses]
        return len(shown) == len(self.looks) and all(
            look.holds(seen) for look, seen in zip(self.looks, shown, strict=True)
        )

    def standing(self) -> HistoryProof:
        """What of it can be looked for in the present, where the moment itself is forgotten: the key seen last."""
        entries = [look.entry for look in self.looks if look.entry is not None]
        return HistoryProof([HistoryQuery(wire.RangeRequest(entry.key), 1, entry) for entry in entries])


NOWHERE = HistoryProof(())
_MOD_REVISION = attrgetter("mod_revision")


def at_event(event: Event) -> HistoryProof:
    """The last change that was seen: a key that was written just then, or that was there just before and then gone."""
    revision = event.mod_revision
    now = wire.RangeRequest(event.key, revision=revision)
    if event.entry is not None:
        return HistoryProof([HistoryQuery(now, 1, event.entry)])
    before = wire.RangeRequest(event.key, revision=revision - 1, keys_only=True)
    return HistoryProof([HistoryQuery(before, 1), HistoryQuery(now, 0)])


@dataclass(slots=True)
class Listed:
    """What the parts of one list have shown so far."""

    count: int = 0
    newest: Entry | None = None

    def add(self, part: Snapshot) -> None:
        self.count += len(part.items) + len(part.unchanged)
        entries = part.items if self.newest is None else [self.newest, *part.items]
        self.newest = max(entries, key=_MOD_REVISION, default=None)


def at_snapshot(prefix: bytes, revision: int, listed: Listed) -> HistoryProof:
    """As many keys as the list had, and the newest of those whose value came with it."""
    first, end = wire.span(prefix)
    looks = [HistoryQuery(wire.RangeRequest(first, end, revision=revision, count_only=True), listed.count)]
    if listed.newest is not None:
        looks.append(HistoryQuery(wire.RangeRequest(listed.newest.key, revision=revision), 1, listed.newest))
    return HistoryProof(looks)
