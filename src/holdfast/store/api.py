"""The store as the rest of Holdfast sees it: plain types and one protocol, without etcd's wire format.

`EtcdStore` talks to a real etcd, `holdfast.testing.FakeStore` keeps everything in memory; one conformance suite runs
on both. Keys and values are bytes, revisions are ints that only grow.
"""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Literal, Protocol

import msgspec

from holdfast.model.base.time import Duration
from holdfast.reconcile.change import Away


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One key as the store holds it at some revision. The defaults are there because etcd omits empty fields."""

    key: bytes
    value: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    version: int = 0
    lease: int = 0


class KeyRange(msgspec.Struct, frozen=True):
    """Every key from `first` up to, and without, `end`; an end of b"\\0" is that of the keyspace."""

    first: bytes
    end: bytes

    def __contains__(self, key: bytes) -> bool:
        return self.first <= key and (self.end == b"\0" or key < self.end)


Keys = bytes | KeyRange
"""A prefix or a range of keys."""


class Page(msgspec.Struct, frozen=True):
    """One page of a list, in ascending key order. All pages of one list are read at the same `revision`."""

    revision: int
    entries: Sequence[Entry]
    more: bool


class Aspect(Enum):
    """The property of a key that a comparison reads."""

    CREATE_REVISION = "CREATE"
    MOD_REVISION = "MOD"
    VERSION = "VERSION"
    VALUE = "VALUE"
    LEASE = "LEASE"


_RELATION: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "EQUAL": operator.eq,
    "NOT_EQUAL": operator.ne,
    "GREATER": operator.gt,
    "LESS": operator.lt,
}


class Compare(msgspec.Struct, frozen=True, gc=False):
    """A condition of a transaction. A key that does not exist has revision, version and lease 0."""

    key: bytes
    aspect: Aspect
    wanted: int | bytes
    relation: Literal["EQUAL", "GREATER", "LESS", "NOT_EQUAL"] = "EQUAL"

    def holds(self, entry: Entry | None) -> bool:
        """Evaluate the condition by etcd's rule. The value of a key that does not exist satisfies no relation."""
        if self.aspect is Aspect.VALUE:
            return entry is not None and _RELATION[self.relation](entry.value, self.wanted)
        number = getattr(entry, self.aspect.name.lower()) if entry is not None else 0
        return _RELATION[self.relation](number, self.wanted)


class Put(msgspec.Struct, frozen=True, gc=False):
    key: bytes
    value: bytes
    lease: int = 0


class Delete(msgspec.Struct, frozen=True, gc=False):
    """Deletes one key, or with `end` every key in [key, end)."""

    key: bytes
    end: bytes | None = None


class Get(msgspec.Struct, frozen=True, gc=False):
    """Reads one key, or with `end` every key in [key, end)."""

    key: bytes
    end: bytes | None = None


Operation = Put | Delete | Get


class TxnResult(msgspec.Struct, frozen=True):
    """Result of a transaction. `results` has one item per operation of the branch that ran: the revision of a put, the
    number of keys that a delete removed, the entries of a get."""

    succeeded: bool
    revision: int
    results: Sequence[int | Sequence[Entry]]


class Snapshot(msgspec.Struct, frozen=True):
    """Everything under the prefixes at `revision`. Any but the first means that continuity was lost.

    For a reader that passed what it holds (`watch(…, held=…)`), `unchanged` has the keys that exist with the
    mod_revision that the reader holds, and `items` all others. For other readers `unchanged` is empty. The list belongs
    to the reader, which may consume it.

    A reader that asked for `parts` gets a large snapshot in several parts, with `more` set on all but the last; only
    then is it complete. A part with `first` begins a new list and discards the parts of one that failed half way.
    """

    revision: int
    items: list[Entry]
    unchanged: Sequence[bytes] = ()
    first: bool = True
    more: bool = False
    went_back: bool = False
    """True if the store's history lacks what this watch has delivered: the store was wiped or restored."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """One change of one key, in etcd's own shape. `kv` of a delete has key and mod_revision only."""

    kv: Entry
    type: str = "PUT"

    @classmethod
    def delete(cls, key: bytes, revision: int) -> Event:
        return cls(Entry(key, mod_revision=revision), "DELETE")

    @property
    def key(self) -> bytes:
        return self.kv.key

    @property
    def mod_revision(self) -> int:
        return self.kv.mod_revision

    @property
    def entry(self) -> Entry | None:
        """The entry after the change; None after a delete."""
        return self.kv if self.type == "PUT" else None


class Events(msgspec.Struct, frozen=True):
    """Changes in revision order, every revision whole; `revision` is that of the last one, skipped ones included.
    `head` is the store's revision when they were sent: it is ahead of `revision` while a watch catches up. `own` is
    set, with an empty batch, when the own key lies outside what the stream covers: the revision of a write of it, by
    which all earlier changes have been delivered. `skipped` counts changes of other keys between the prefixes."""

    revision: int
    batch: Sequence[Event]
    head: int = 0
    own: int = 0
    skipped: int = 0


class OwnKey(msgspec.Struct, frozen=True):
    """A key that this process (or its server) writes anyway, about every `interval`.

    A watch stream can be dead while its connection looks alive (C38). A write of this key that the stream has not
    delivered within two intervals proves it, and the watch opens a new stream. A stream that delivers the writes in
    time is alive, at a member that follows the cluster: nothing else is asked about it then, because what an idle
    stream asks costs etcd more than all that it delivers.
    """

    key: bytes
    interval: Duration
    written_every: Duration = Duration(0)
    """Interval of the writes, where it is longer than that of the checks."""

    @property
    def quiet_after(self) -> Duration:
        """Time without a known write after which the stream and its member are asked instead."""
        return 2 * max(self.interval, self.written_every)


class MemberStatus(msgspec.Struct, frozen=True):
    """Status of one member, as it reports it."""

    endpoint: str
    version: str
    cluster_id: int
    member_id: int
    leader_id: int
    revision: int
    raft_term: int
    db_size: int
    alarms: Sequence[str] = ()
    took: Duration = Duration(0)
    """Time until its answer was there."""


class LeaseTime(msgspec.Struct, frozen=True):
    """Time of a lease, in whole seconds of the store's clock."""

    ttl: Duration
    left: Duration

    @property
    def unrenewed(self) -> Duration:
        """Time since it was granted or renewed last."""
        return self.ttl - self.left


class StoreAway(Away):
    """The store is unreachable: no endpoint answered in time. If `uncertain`, a write may have been applied."""

    def __init__(self, why: str, *, uncertain: bool = False) -> None:
        super().__init__("store", why)
        self.uncertain = uncertain


class StoreError(Exception):
    """The store refused a request. The message tells the operator the problem and the fix."""


class StoreRefused(StoreError):
    """Configuration or credentials do not fit this store (TLS, password, CN certificate, gateway off, …)."""


class Compacted(StoreError):
    """The requested revision was compacted. `compact_revision` is 0 if the store does not name the oldest kept one."""

    def __init__(self, compact_revision: int) -> None:
        oldest = f"; the oldest kept is {compact_revision}" if compact_revision else ""
        super().__init__(f"the requested revision was compacted{oldest}: list again")
        self.compact_revision = compact_revision


class NoSpace(StoreError):
    """The store is out of space. Puts and leases fail while deletes still succeed, so Holdfast writes nothing."""


class TooLarge(StoreError):
    """One value or transaction is above the store's limit."""


class LeaseGone(StoreError):
    """The lease has expired or was revoked."""


class WriteConflict(StoreError):
    """A key differs from what the writer compared it with. Nothing was written: read it again and decide again."""

    def __init__(self, key: bytes) -> None:
        super().__init__(f"{key.decode(errors='backslashreplace')} was changed by another writer meanwhile")
        self.key = key


class Deposed(StoreError):
    """The term of this write is over. Nothing was written."""


GATHER = Duration(milliseconds=20)
"""Default time for which a busy watch collects changes before it delivers them."""


class Store(Protocol):
    """One etcd cluster with any number of endpoints. Every call has a deadline, after which it raises `StoreAway`."""

    async def get(self, key: bytes, *, revision: int = 0) -> Entry | None:
        """Read one key, linearizable."""
        ...

    def list(
        self,
        prefix: Keys,
        *,
        after: bytes | None = None,
        revision: int = 0,
        page: int = 5_000,
        keys_only: bool = False,
    ) -> AsyncIterator[Page]:
        """Yield everything under `prefix` (above key `after`) in ascending pages, all at one revision; at least one
        page. With `keys_only` the entries have empty values."""
        ...

    async def txn(
        self, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult: ...

    async def put(self, key: bytes, value: bytes, *, lease: int = 0) -> int:
        """Return the revision of the write."""
        ...

    async def delete(self, key: bytes, *, end: bytes | None = None) -> int:
        """Return how many keys were deleted."""
        ...

    def watch(
        self,
        *prefixes: Keys,
        own: OwnKey | None = None,
        held: Mapping[bytes, int] | None = None,
        parts: bool = False,
        gather: Duration = GATHER,
    ) -> AsyncIterator[Snapshot | Events]:
        """Yield a `Snapshot`, then `Events` without a gap, and a new `Snapshot` whenever continuity was lost.

        Several `prefixes` are listed at one revision and followed in one order, by one stream over every key from the
        first prefix to the last: two watches drift, even on one stream. Changes of other keys on it are skipped with
        their values undecoded, and the watch resumes after them as after any other.

        With a `KeyRange` among them each is a watch of its own on the same stream, so that nothing between them is
        sent. They are listed at one revision, and drift from then on: `Events` of one may overtake those of another.

        The watch never ends and never raises `StoreAway`: it yields nothing while the store is unreachable. Before the
        first snapshot a store that refuses us raises `StoreRefused`; later the watch keeps retrying.

        `held` is the reader's live view of key → mod_revision; with it, a later `Snapshot` omits what the reader has
        (see `Snapshot.unchanged`). With `parts` a large `Snapshot` comes in several: the reader works on one part while
        the next is fetched, and never has the whole list in memory. A change after a quiet moment is delivered at once;
        under load changes are delivered together, late by at most `gather`, which wakes the reader less often.
        """
        ...

    def note_write(self, key: bytes, revision: int) -> None:
        """Record that another process of this daemon wrote a key: watches that have it as own key must deliver it."""
        ...

    async def grant(self, ttl: Duration) -> int:
        """Grant a lease and return its id. Raises `ValueError` for TTLs under 2 s, which etcd rounds up silently."""
        ...

    async def renew(self, lease: int) -> Duration:
        """Renew a lease once and return its TTL. Raises `LeaseGone`."""
        ...

    async def lease_time(self, lease: int) -> LeaseTime:
        """Return how long a lease, which may be another client's, lasts without a renewal. Raises `LeaseGone`."""
        ...

    async def revoke(self, lease: int) -> None: ...

    async def compact(self, revision: int) -> None: ...

    async def status(self, within: Duration | None = None) -> Sequence[MemberStatus]:
        """Return the status of each member that answers in time, by default in that of a call."""
        ...

    async def alarms(self) -> Sequence[str]:
        """Return the cluster's active alarms, `NOSPACE` and `CORRUPT`, from any one member."""
        ...

    async def close(self) -> None: ...


def span(keys: Keys) -> KeyRange:
    """Return the range of a prefix; etcd has no empty key, so the whole keyspace begins at b"\\0"."""
    return keys if isinstance(keys, KeyRange) else KeyRange(keys or b"\0", prefix_end(keys))


def streamed(prefixes: Sequence[Keys]) -> tuple[KeyRange, ...]:
    """Return the ranges that a stream over these, which are in order, delivers: each of them where one is a range, else
    everything from the first prefix to the last."""
    if any(isinstance(each, KeyRange) for each in prefixes):
        return tuple(map(span, prefixes))
    return (KeyRange(span(prefixes[0]).first, span(prefixes[-1]).end),)


def named(prefixes: Sequence[Keys]) -> str:
    """Return these for people; a range as its first key."""
    return ", ".join(span(each).first.decode(errors="replace") for each in prefixes)


def in_key_order(prefixes: Iterable[Keys]) -> tuple[Keys, ...]:
    return tuple(sorted(prefixes, key=lambda each: span(each).first))


def prefix_end(prefix: bytes) -> bytes:
    """Return the first key after all keys that begin with `prefix`; b"\\0" is the end of the keyspace."""
    for i in range(len(prefix) - 1, -1, -1):
        if prefix[i] < 0xFF:
            return prefix[:i] + bytes([prefix[i] + 1])
    return b"\0"
