"""FakeStore: an etcd in memory with every fault on demand, and clients that see it through a faulty link.

    fake = FakeStore()
    store = fake.client("server-a")                     # a Store like any other
    store.link.next_calls(Fate.REPLY_LOST, of="txn")    # applied, but its caller gets no reply
    fake.compact(); fake.run_out_of_space(); fake.restore(revision)

One conformance suite (tests/store/test_conformance.py) runs on this and on a real etcd; what differs is a bug here.
Leases run on the clock of the running loop, which under `simulate` is virtual; `advance` moves it by hand.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast.model.base.time import Duration, seconds
from holdfast.store.api import (
    Compare,
    Delete,
    Event,
    LeaseGone,
    LeaseTime,
    MemberStatus,
    NoSpace,
    Operation,
    Put,
    TxnResult,
)
from holdfast.testing.store.client import FakeClient
from holdfast.testing.store.keyspace import Keyspace
from holdfast.testing.store.link import later, world_time

NO_SPACE = "NOSPACE"
SHORTEST_TTL = seconds(2)
_FIRST_LEASE = 0x1D00_0000_0000_0001


@dataclass(frozen=True, slots=True)
class StoreWrite:
    """One accepted change of the store, for history checkers."""

    revision: int
    at: float
    client: str
    compares: Sequence[Compare]
    events: Sequence[Event]


@dataclass(slots=True)
class _Lease:
    ttl: float
    expires: float
    granted: int


class FakeStore:
    """The server side: state, leases, alarms. Its public methods inject faults and what an operator does."""

    def __init__(self, *, now: Callable[[], float] = world_time) -> None:
        self.keys = Keyspace()
        self.history: list[StoreWrite] = []
        """Every accepted change, in order, lease expiries included."""
        self.observers: list[Callable[[StoreWrite], None]] = []
        """Called with every accepted change at the moment of its revision: the place to check an invariant."""
        self.replaced: list[Callable[[], None]] = []
        """Called when the whole keyspace was replaced: restored or wiped."""
        self.alarms: tuple[str, ...] = ()
        self.raft_term = 2
        self.acknowledges_gone_leases = False
        """C11: an old etcd may answer the keepalive of a lease that is gone as if it were alive."""
        self._clock = now
        self._ahead = 0.0
        self._leases: dict[int, _Lease] = {}
        self._granted: dict[int, _Lease] = {}
        """Every lease ever granted."""
        self._next_lease = _FIRST_LEASE
        self._clients: list[FakeClient] = []

    def client(self, name: str = "client", *, deadline: Duration = seconds(5)) -> FakeClient:
        """Make a client with a link, and faults, of its own."""
        client = FakeClient(self, name, deadline)
        self._clients.append(client)
        return client

    @property
    def revision(self) -> int:
        return self.keys.revision

    @property
    def leases(self) -> Sequence[int]:
        """Ids of the current leases."""
        self.expire()
        return sorted(self._leases)

    def advance(self, duration: Duration) -> None:
        """Advance the clock of the leases."""
        self._ahead += duration.total_seconds()
        self.expire()

    def compact(self, revision: int = 0) -> None:
        """Forget everything before `revision` (0 = before now), as any client may request at any moment."""
        self.keys.compact(revision or self.revision)

    def run_out_of_space(self) -> None:
        """Raise the NOSPACE alarm: puts and grants fail; deletes, renewals and compaction succeed."""
        self.alarms = (NO_SPACE,)

    def regain_space(self) -> None:
        self.alarms = ()

    def change_leader(self) -> None:
        """Change etcd's leader: every lease starts again with its full TTL (C23)."""
        self.raft_term += 1
        for lease in self._leases.values():
            self._extend(lease)

    def restore(self, revision: int) -> None:
        """Restore a backup of `revision`: what happened since is gone and revisions are used again (C29)."""
        self._replace(self.keys.at(revision))

    def wipe(self) -> None:
        """Lose the data folder: an empty store at the first revision, with the same cluster and member id (C29)."""
        self._replace(Keyspace())

    def expire(self) -> None:
        """End every lease that has expired, each in a revision of its own."""
        now = self._now()
        for number, lease in sorted(self._leases.items(), key=lambda item: (item[1].expires, item[0])):
            if lease.expires <= now:
                self._end(number, "lease expiry")

    # Effects of requests, when they arrive.

    def apply(
        self, client: str, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult:
        """Apply one transaction of a client."""
        self.expire()
        if self.alarms and any(isinstance(op, Put) for op in (*then, *otherwise)):
            raise NoSpace("the store is out of space: compact and defragment it, then disarm the alarm")
        result, changes = self.keys.commit(compares, then, otherwise, self._leases)
        self._commit(client, compares, changes)
        return result

    def delete(self, client: str, key: bytes, end: bytes | None) -> int:
        count = self.apply(client, (), [Delete(key, end)]).results[0]
        assert isinstance(count, int)
        return count

    def grant(self, ttl: Duration) -> int:
        if self.alarms:
            raise NoSpace("the store is out of space: compact and defragment it, then disarm the alarm")
        number, self._next_lease = self._next_lease, self._next_lease + 1
        lease = _Lease(math.ceil(ttl.total_seconds()), 0.0, self.revision)
        self._leases[number] = self._granted[number] = lease
        self._extend(lease)
        return number

    def renew(self, number: int) -> Duration:
        self.expire()
        lease = self._leases.get(number)
        if lease is not None:
            self._extend(lease)
            return seconds(lease.ttl)
        if self.acknowledges_gone_leases:
            return SHORTEST_TTL
        raise LeaseGone("the lease has expired or was revoked")

    def lease_time(self, number: int) -> LeaseTime:
        self.expire()
        if number not in self._leases:
            raise LeaseGone("the lease has expired or was revoked")
        lease = self._leases[number]
        return LeaseTime(seconds(lease.ttl), seconds(math.floor(lease.expires - self._now())))

    def revoke(self, client: str, number: int) -> None:
        self.expire()
        if number not in self._leases:
            raise LeaseGone("the lease has expired or was revoked")
        self._end(number, client)

    def status(self, keys: Keyspace) -> Sequence[MemberStatus]:
        """Return the status of a member that answers from `keys`."""
        size = sum(len(entry.key) + len(entry.value) for entry in keys.range(b"\0", b"\0"))
        member = MemberStatus("fake", "3.4.23", 0xC1, 0xA1, 0xA1, keys.revision, self.raft_term, size, self.alarms)
        return [member]

    def _now(self) -> float:
        return self._clock() + self._ahead

    def _commit(self, client: str, compares: Sequence[Compare], changes: Sequence[Event]) -> None:
        if changes:
            write = StoreWrite(self.revision, self._now(), client, compares, changes)
            self.history.append(write)
            for observer in self.observers:
                observer(write)
            self._notify()

    def _notify(self) -> None:
        for client in self._clients:
            client.link.notify(self.revision)

    def _extend(self, lease: _Lease) -> None:
        lease.expires = self._now() + lease.ttl
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return  # without a loop no task waits; the next call expires leases
        later(lease.ttl, self.expire)

    def _end(self, number: int, client: str) -> None:
        del self._leases[number]
        self._commit(client, (), self.keys.drop(self.keys.leased(number)))

    def _replace(self, keys: Keyspace) -> None:
        self.keys = keys
        kept = {number: lease for number, lease in self._leases.items() if lease.granted <= keys.revision}
        attached = {entry.lease for entry in keys.range(b"\0", b"\0")} - {0}
        # A backup has its leases, each with its full time to live (C23); without them their keys would stay for ever.
        self._leases = kept | {number: self._granted[number] for number in attached if number in self._granted}
        for number in attached & self._granted.keys():
            self._extend(self._leases[number])
        for client in self._clients:
            client.link.lose_continuity()
        for hook in self.replaced:
            hook()
