"""One client of a FakeStore: the `Store` protocol over a link of its own."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from holdfast.model.base.time import Duration, seconds
from holdfast.store.api import (
    GATHER,
    Compare,
    Entry,
    Events,
    Keys,
    LeaseTime,
    MemberStatus,
    Operation,
    OwnKey,
    Page,
    Put,
    Snapshot,
    StoreAway,
    StoreError,
    TxnResult,
    span,
)
from holdfast.testing.store.keyspace import Keyspace
from holdfast.testing.store.link import FakeLink
from holdfast.testing.store.watch import FakeWatch

if TYPE_CHECKING:
    from holdfast.testing.store.fake import FakeStore

T = TypeVar("T")


class FakeClient:
    """Reaches the store through `link`, where a test injects the faults of this client."""

    def __init__(self, fake: FakeStore, name: str, deadline: Duration) -> None:
        self.fake = fake
        self.name = name
        self.deadline = deadline
        self.link = FakeLink()
        self._stale: Keyspace | None = None
        self._closed = False

    def go_stale(self, revision: int) -> None:
        """Answer reads, snapshots and status from a member that stopped at `revision`; its streams are silent."""
        self._stale = self.fake.keys.at(revision)

    def go_fresh(self) -> None:
        self._stale = None
        self.link.notify(self.fake.revision)

    @property
    def keys(self) -> Keyspace:
        """The keyspace that answers this client's reads."""
        return self._stale or self.fake.keys

    async def get(self, key: bytes, *, revision: int = 0) -> Entry | None:
        return await self._call("get", lambda: self._read(key, revision))

    async def list(
        self,
        prefix: Keys,
        *,
        after: bytes | None = None,
        revision: int = 0,
        page: int = 5_000,
        keys_only: bool = False,
    ) -> AsyncGenerator[Page, None]:
        wanted = span(prefix)
        start = wanted.first
        if after is not None:
            start = max(start, after + b"\0")
        while True:
            found = await self._call("list", partial(self._page, start, wanted.end, revision, page))
            yield _without_values(found) if keys_only else found
            if not found.more:
                return
            start, revision = found.entries[-1].key + b"\0", found.revision

    async def txn(
        self, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult:
        return await self._call("txn", lambda: self.fake.apply(self.name, compares, then, otherwise))

    async def put(self, key: bytes, value: bytes, *, lease: int = 0) -> int:
        return (await self._call("put", lambda: self.fake.apply(self.name, (), [Put(key, value, lease)]))).revision

    async def delete(self, key: bytes, *, end: bytes | None = None) -> int:
        return await self._call("delete", lambda: self.fake.delete(self.name, key, end))

    async def watch(
        self,
        *prefixes: Keys,
        own: OwnKey | None = None,
        held: Mapping[bytes, int] | None = None,
        parts: bool = False,
        gather: Duration = GATHER,
    ) -> AsyncGenerator[Snapshot | Events, None]:
        watch = FakeWatch(self, prefixes, own, held, parts)
        try:
            while True:
                async with aclosing(watch.snapshot()) as listed:
                    async for part in listed:
                        yield part
                while (events := await watch.next_events()) is not None:
                    yield events
        finally:
            watch.close()

    def note_write(self, key: bytes, revision: int) -> None:
        """Nothing to record: a watch of the fake reads its own key."""

    async def grant(self, ttl: Duration) -> int:
        if ttl < seconds(2):
            raise ValueError(f"a lease of {ttl.total_seconds():g} s is too short; etcd grants no less than 2 s")
        return await self._call("grant", lambda: self.fake.grant(ttl))

    async def renew(self, lease: int) -> Duration:
        return await self._call("renew", lambda: self.fake.renew(lease))

    async def lease_time(self, lease: int) -> LeaseTime:
        return await self._call("lease_time", lambda: self.fake.lease_time(lease))

    async def revoke(self, lease: int) -> None:
        await self._call("revoke", lambda: self.fake.revoke(self.name, lease))

    async def compact(self, revision: int) -> None:
        await self._call("compact", lambda: self.fake.keys.compact(revision))

    async def status(self, within: Duration | None = None) -> Sequence[MemberStatus]:
        return await self._call("status", lambda: self.fake.status(self.keys), within)

    async def alarms(self) -> Sequence[str]:
        return await self._call("alarms", lambda: self.fake.alarms)

    async def close(self) -> None:
        self._closed = True

    async def list_all(self, prefixes: Sequence[Keys]) -> Snapshot:
        """Return everything under the prefixes at one revision."""
        return await self._call("list", lambda: self._all(prefixes))

    async def check_reachable(self) -> None:
        """Make a call without effect, as a request for the next page of a list."""
        await self._call("list", lambda: None)

    def _read(self, key: bytes, revision: int) -> Entry | None:
        self.fake.expire()
        if not key:
            raise StoreError("a key is empty; the store has no empty key")
        return self.keys.get(key, revision)

    def _all(self, prefixes: Sequence[Keys]) -> Snapshot:
        found = [self._page(each.first, each.end, 0, sys.maxsize) for each in map(span, prefixes)]
        return Snapshot(found[0].revision, [entry for page in found for entry in page.entries])

    def _page(self, start: bytes, end: bytes, revision: int, size: int) -> Page:
        self.fake.expire()
        found = self.keys.range(start, end, revision)
        return Page(revision or self.keys.revision, found[:size], len(found) > size)

    async def _call(self, method: str, work: Callable[[], T], within: Duration | None = None) -> T:
        if self._closed:
            raise StoreAway("this client is closed")
        return await self.link.call(method, work, self.deadline if within is None else min(within, self.deadline))


def _without_values(page: Page) -> Page:
    return Page(page.revision, [replace(entry, value=b"") for entry in page.entries], page.more)
