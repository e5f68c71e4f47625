"""The store as the rest of Holdfast sees it: plain types and one protocol. Nothing here knows etcd's wire.

`EtcdStore` speaks to a real etcd, `holdfast.testing.FakeStore` keeps everything in memory; one conformance suite runs
on both. Keys and values are bytes, revisions are ints that only grow.
"""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Literal, Protocol

import msgspec

from holdfast.model.base.time import Duration
from holdfast.reconcile.change import Away


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One key as the store holds it at some revision. etcd leaves out of its wire what is empty: hence the defaults."""

    key: bytes
    value: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    version: int = 0
    lease: int = 0


class Page(msgspec.Struct, frozen=True):
    """A run of entries in ascending key order. All pages of one list are read at the same `revision`."""

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
    """`results` has one item per operation of the branch that ran: revision for a put, number deleted for a delete,
    entries for a get."""

    succeeded: bool
    revision: int
    results: Sequence[int | Sequence[Entry]]


class Snapshot(msgspec.Struct, frozen=True):
    """Everything under the prefix at `revision`. After the first one: continuity was lost, compare with what you had.

    A reader that said what it holds (`watch(…, held=…)`) may get in `unchanged` the keys whose mod_revision is the one
    it holds; they exist too. For all other readers `unchanged` is empty and `items` is everything. The list is the
    reader's own: it may take the entries out as it goes.

    A reader that asked for `parts` gets a large one piece by piece, with `more` until the last: only then is it
    everything. What is `first` begins a list, also instead of one that failed half way and counts for nothing.
    """

    revision: int
    items: list[Entry]
    unchanged: Sequence[bytes] = ()
    first: bool = True
    more: bool = False


class Event(msgspec.Struct, frozen=True, gc=False):
    """One change of one key, in the form in which etcd says it. `kv` of a delete has key and mod_revision only."""

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
        """What stands there now; None after a delete."""
        return self.kv if self.type == "PUT" else None


class Events(msgspec.Struct, frozen=True):
    """Changes in revision order; `revision` is that of the last of them. `head` is the store's own revision when they
    were sent: while a watch catches up it is ahead of `revision`. `own` comes alone, where the own key stands
    elsewhere: a write of it that was seen when all changes before it had been."""

    revision: int
    batch: Sequence[Event]
    head: int = 0
    own: int = 0


class OwnKey(msgspec.Struct, frozen=True):
    """A key that this process (or its server) writes anyway, about every `interval`.

    A watch stream can be dead while the connection looks alive (C38). A write of this key that has not come back on
    the stream within two intervals is the proof, and the stream is opened anew.
    """

    key: bytes
    interval: Duration


class MemberStatus(msgspec.Struct, frozen=True):
    """What one member says of itself."""

    endpoint: str
    version: str
    cluster_id: int
    member_id: int
    leader_id: int
    revision: int
    raft_term: int
    db_size: int
    alarms: Sequence[str] = ()


class StoreAway(Away):
    """No endpoint answers in time. The write may or may not have happened when `uncertain`."""

    def __init__(self, why: str, *, uncertain: bool = False) -> None:
        super().__init__("store", why)
        self.uncertain = uncertain


class StoreError(Exception):
    """The store answered, and said no. The message is one sentence for the operator: what is wrong, what to do."""


class StoreRefused(StoreError):
    """Configuration or credentials do not fit this store (TLS, password, CN certificate, gateway off, ...)."""


class Compacted(StoreError):
    """The revision asked for is gone. `compact_revision` is 0 where the store does not say which is the oldest kept."""

    def __init__(self, compact_revision: int) -> None:
        oldest = f"; the oldest kept is {compact_revision}" if compact_revision else ""
        super().__init__(f"the revision asked for was compacted{oldest}: list again")
        self.compact_revision = compact_revision


class NoSpace(StoreError):
    """The store is out of space: puts and leases fail, deletes would still succeed, so nothing at all is written."""


class TooLarge(StoreError):
    """One value or transaction is above the store's limit."""


class LeaseGone(StoreError):
    """The lease has expired or was revoked."""


class WriteConflict(StoreError):
    """A key is not (any more) what the writer compared it with. Nothing was written: read it again and decide again."""

    def __init__(self, key: bytes) -> None:
        super().__init__(f"{key.decode(errors='backslashreplace')} was changed by somebody else meanwhile")
        self.key = key


class Deposed(StoreError):
    """The term that this write was made under is over. Nothing was written."""


GATHER = Duration(milliseconds=20)
"""For how long a watch lets changes come together while they keep coming, unless its reader says otherwise."""


class Store(Protocol):
    """One etcd cluster, however many endpoints. Every call has a deadline; `StoreAway` after it."""

    async def get(self, key: bytes, *, revision: int = 0) -> Entry | None:
        """Reads one key, linearizable."""
        ...

    def list(
        self,
        prefix: bytes,
        *,
        after: bytes | None = None,
        revision: int = 0,
        page: int = 5_000,
        keys_only: bool = False,
    ) -> AsyncIterator[Page]:
        """Everything under `prefix` (above key `after`) in ascending pages, all at one revision; at least one page.
        With `keys_only` the values stay in the store, and the entries' are empty."""
        ...

    async def txn(
        self, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult: ...

    async def put(self, key: bytes, value: bytes, *, lease: int = 0) -> int:
        """Returns the revision of the write."""
        ...

    async def delete(self, key: bytes, *, end: bytes | None = None) -> int:
        """Returns how many keys went."""
        ...

    def watch(
        self,
        prefix: bytes,
        *,
        own: OwnKey | None = None,
        held: Mapping[bytes, int] | None = None,
        parts: bool = False,
        gather: Duration = GATHER,
    ) -> AsyncIterator[Snapshot | Events]:
        """A `Snapshot`, then `Events` without a gap, and a new `Snapshot` whenever continuity was lost. Never ends by
        itself, never raises `StoreAway`: while the store is away it is silent. A store that refuses us raises
        `StoreRefused`
        before the first snapshot; later the watch keeps trying.

        `held` is the reader's live view of key → mod_revision: with it, a later `Snapshot` need not carry again what
        the reader has (see `Snapshot.unchanged`). With `parts` a large `Snapshot` comes in several (see there): the
        reader works on one while the next is fetched, and never has all of them in memory. A change after a quiet
        moment comes at once; while more keep coming they are handed on together, late by at most `gather`: a reader
        that has the time is woken less often.
        """
        ...

    async def grant(self, ttl: Duration) -> int:
        """A new lease. TTLs under 2 s are refused with `ValueError`: etcd would round them up silently."""
        ...

    async def renew(self, lease: int) -> Duration:
        """Renews a lease once; the TTL it now has. Raises `LeaseGone`."""
        ...

    async def revoke(self, lease: int) -> None: ...

    async def compact(self, revision: int) -> None: ...

    async def status(self) -> Sequence[MemberStatus]:
        """What each reachable member says of itself."""
        ...

    async def alarms(self) -> Sequence[str]:
        """The cluster's active alarms: `NOSPACE`, `CORRUPT`. Any one member's answer is enough."""
        ...

    async def close(self) -> None: ...


def prefix_end(prefix: bytes) -> bytes:
    """The first key after all keys that begin with `prefix` (b"\\0" = to the end of the keyspace)."""
    for i in range(len(prefix) - 1, -1, -1):
        if prefix[i] < 0xFF:
            return prefix[:i] + bytes([prefix[i] + 1])
    return b"\0"
