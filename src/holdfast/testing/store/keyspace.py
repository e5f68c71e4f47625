"""A keyspace with history in memory, by etcd's rules for transactions, ranges and revisions.

It promises what etcd promises: a transaction that changes anything takes exactly one revision, one that changes
nothing takes none; a read at an old revision is exact until that revision is compacted. Nothing here waits, fails at
random or knows a clock.
"""

from __future__ import annotations

import copy
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from holdfast.store.api import (
    Compacted,
    Compare,
    Delete,
    Entry,
    Event,
    Get,
    LeaseGone,
    Operation,
    Put,
    StoreError,
    TooLarge,
    TxnResult,
)

FIRST_REVISION: Final = 1
"""The revision of an etcd to which nothing was ever written."""
MAX_OPERATIONS: Final = 128
MAX_REQUEST_BYTES: Final = 1_572_864
FRAMING_BYTES: Final = 32


class Keyspace:
    """Every key with its versions, and every transaction since the last compaction."""

    def __init__(self) -> None:
        self.revision = FIRST_REVISION
        self.compacted = 0
        self._keys: list[bytes] = []
        self._versions: dict[bytes, list[Event]] = {}
        self._log: list[Sequence[Event]] = []
        self._leased: dict[int, set[bytes]] = {}

    def at(self, revision: int) -> Keyspace:
        """Return a copy as of an earlier revision: a backup."""
        self._check(revision)
        past = copy.copy(self)
        past.revision = revision
        past._log = [events for events in self._log if events[0].mod_revision <= revision]
        kept = {key: [v for v in self._versions[key] if v.mod_revision <= revision] for key in self._keys}
        past._versions = {key: versions for key, versions in kept.items() if versions}
        past._keys = list(past._versions)
        past._leased = {}
        for entry in past.range(b"\0", b"\0"):
            past._attach(entry)
        return past

    def get(self, key: bytes, revision: int = 0) -> Entry | None:
        self._check(revision)
        return self._version(key, revision or self.revision)

    def range(self, start: bytes, end: bytes | None, revision: int = 0) -> list[Entry]:
        """Return the entries of [start, end), or of `start` alone, at `revision` (0 = now), in key order."""
        self._check(revision)
        return list(self._range(start, end, revision or self.revision))

    def events(self, after: int, until: int) -> Iterator[Sequence[Event]]:
        """Yield the transactions of revisions (after, until], each whole. Raises `Compacted` when one is gone."""
        if after < self.compacted:
            raise Compacted(self.compacted)
        first = bisect_left(self._log, after + 1, key=lambda events: events[0].mod_revision)
        for events in self._log[first:]:
            if events[0].mod_revision > until:
                return
            yield events

    def leased(self, lease: int) -> Sequence[bytes]:
        """Return the keys attached to a lease, in the order in which etcd deletes them."""
        return sorted(self._leased.get(lease, ()))

    def commit(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation],
        otherwise: Sequence[Operation],
        leases: Mapping[int, object],
    ) -> tuple[TxnResult, Sequence[Event]]:
        """Apply a transaction; return its result and its changes. `leases` are those that exist now."""
        refuse(compares, then, otherwise)
        succeeded = all(compare.holds(self._version(compare.key, self.revision)) for compare in compares)
        branch = then if succeeded else otherwise
        for op in branch:
            if isinstance(op, Put) and op.lease and op.lease not in leases:
                raise LeaseGone("the lease of a put has expired or was revoked")
        changes: list[Event] = []
        results = [self._apply(op, changes) for op in branch]
        if changes:
            self.revision += 1
            self._log.append(tuple(changes))
        return TxnResult(succeeded, self.revision, results), changes

    def drop(self, keys: Sequence[bytes]) -> Sequence[Event]:
        """Delete any number of keys in one revision, as the end of a lease does."""
        changes: list[Event] = []
        for key in keys:
            self._apply(Delete(key), changes)
        if changes:
            self.revision += 1
            self._log.append(tuple(changes))
        return changes

    def compact(self, revision: int) -> None:
        """Forget everything before `revision`; a read at exactly `revision` stays possible."""
        if revision <= self.compacted:
            raise Compacted(self.compacted)
        self._check(revision)
        self.compacted = revision
        self._log = [events for events in self._log if events[0].mod_revision > revision]
        for key in list(self._keys):
            self._forget(key, revision)

    def _check(self, revision: int) -> None:
        if revision > self.revision:
            raise StoreError(f"revision {revision} has not happened yet; the store is at {self.revision}")
        if 0 < revision < self.compacted:
            raise Compacted(self.compacted)

    def _forget(self, key: bytes, revision: int) -> None:
        versions = self._versions[key]
        old = [v for v in versions if v.mod_revision <= revision]
        kept = old[-1:] if old and old[-1].entry else []
        versions[: len(old)] = kept
        if not versions:
            del self._versions[key]
            del self._keys[bisect_left(self._keys, key)]

    def _version(self, key: bytes, revision: int) -> Entry | None:
        for version in reversed(self._versions.get(key, ())):
            if version.mod_revision <= revision:
                return version.entry
        return None

    def _range(self, start: bytes, end: bytes | None, revision: int) -> Iterator[Entry]:
        keys: Sequence[bytes] = [start]
        if end:
            last = len(self._keys) if end == b"\0" else bisect_left(self._keys, end)
            keys = self._keys[bisect_left(self._keys, start) : last]
        for key in keys:
            entry = self._version(key, revision)
            if entry is not None:
                yield entry

    def _apply(self, op: Operation, changes: list[Event]) -> int | Sequence[Entry]:
        revision = self.revision + 1
        match op:
            case Put():
                changes.append(self._put(op, revision))
                return revision
            case Delete():
                gone = list(self._range(op.key, op.end, revision))
                changes.extend(self._remove(entry, revision) for entry in gone)
                return len(gone)
            case Get():
                return list(self._range(op.key, op.end, revision))

    def _put(self, put: Put, revision: int) -> Event:
        old = self._version(put.key, revision)
        if old is not None:
            self._detach(old)
        created, version = (old.create_revision, old.version + 1) if old else (revision, 1)
        entry = Entry(put.key, put.value, created, revision, version, put.lease)
        self._attach(entry)
        return self._record(Event(entry))

    def _remove(self, entry: Entry, revision: int) -> Event:
        self._detach(entry)
        return self._record(Event.delete(entry.key, revision))

    def _record(self, event: Event) -> Event:
        if event.key not in self._versions:
            self._versions[event.key] = []
            insort(self._keys, event.key)
        self._versions[event.key].append(event)
        return event

    def _attach(self, entry: Entry) -> None:
        if entry.lease:
            self._leased.setdefault(entry.lease, set()).add(entry.key)

    def _detach(self, entry: Entry) -> None:
        self._leased.get(entry.lease, set()).discard(entry.key)


def refuse(compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation]) -> None:
    """Raise what etcd answers to a transaction that breaks its rules.

    etcd checks both branches, also the one that will not run. Sizes are those of the payload: etcd counts some bytes of
    framing on top, so test nothing within a few hundred bytes of the limit on the fake alone.
    """
    for part in (compares, then, otherwise):
        if len(part) > MAX_OPERATIONS:
            raise TooLarge(f"a transaction of {len(part)} operations is above the store's limit of {MAX_OPERATIONS}")
        if any(not item.key for item in part):
            raise StoreError("a key is empty; the store has no empty key")
    for branch in (then, otherwise):
        _refuse_key_changed_twice(branch)
    size = sum(map(_size, (*compares, *then, *otherwise)))
    if size > MAX_REQUEST_BYTES:
        raise TooLarge(f"a request of {size} bytes is above the store's limit of {MAX_REQUEST_BYTES}")


def _refuse_key_changed_twice(branch: Sequence[Operation]) -> None:
    puts: set[bytes] = set()
    for put in (op for op in branch if isinstance(op, Put)):
        deleted = any(isinstance(op, Delete) and _covers(op, put.key) for op in branch)
        if put.key in puts or deleted:
            raise StoreError(f"key {put.key!r} is changed twice in one transaction")
        puts.add(put.key)


def _covers(delete: Delete, key: bytes) -> bool:
    """Return True where etcd sees that the delete covers the key; it overlooks ranges to the end of the keyspace."""
    return key == delete.key if not delete.end else delete.key <= key < delete.end


def _size(part: Compare | Operation) -> int:
    value = part.value if isinstance(part, Put) else b""
    return len(part.key) + len(value) + FRAMING_BYTES
