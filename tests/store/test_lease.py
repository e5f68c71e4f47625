"""The keeper of a lease: counted from before the send, renewed, proven, replaced when lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from holdfast.model.base.time import Duration, Instant
from holdfast.store.api import LeaseGone, Store
from holdfast.store.client import EtcdStore
from holdfast.store.embedded.server import EmbeddedEtcd
from holdfast.store.lease import Lease, LeaseKeeper
from holdfast.testing import FakeStore
from holdfast.testing.fault import fault
from holdfast.testing.store.link import Fate
from tests.store.harness import opened, until

BOOT = Instant(10**12)


class Clock:
    """Stands still unless it is moved."""

    def __init__(self) -> None:
        self.time = BOOT

    def __call__(self) -> Instant:
        return self.time

    def move(self, seconds: float) -> None:
        self.time = self.time + Duration(seconds=seconds)


@contextlib.asynccontextmanager
async def kept(keeper: LeaseKeeper) -> AsyncIterator[LeaseKeeper]:
    task = asyncio.create_task(keeper.run())
    try:
        yield keeper
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def keeper_of(store: Store, clock: Clock, ttl: float = 10, interval: float = 0.01) -> LeaseKeeper:
    return LeaseKeeper(store, Duration(seconds=ttl), interval=Duration(seconds=interval), now=clock)


@pytest.mark.parametrize(("ttl", "interval"), [(1.9, None), (5, 5)])
def test_a_lease_that_cannot_be_kept_is_refused(ttl: float, interval: float | None) -> None:
    with pytest.raises(ValueError, match=r"no less than 2 s|more often than it expires"):
        LeaseKeeper(
            FakeStore().client(),
            Duration(seconds=ttl),
            interval=Duration(seconds=interval) if interval else None,
        )


class SlowReply:
    """A client whose clock moves while it waits for replies."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._store = FakeStore().client()
        self._clock = clock
        self._seconds = seconds

    async def grant(self, ttl: Duration) -> int:
        lease = await self._store.grant(ttl)
        self._clock.move(self._seconds)
        return lease

    async def renew(self, lease: int) -> Duration:
        left = await self._store.renew(lease)
        self._clock.move(self._seconds)
        return left


def test_a_lease_is_counted_from_before_the_request_was_sent() -> None:
    async def main() -> None:
        clock = Clock()
        keeper = keeper_of(SlowReply(clock, 3), clock)  # type: ignore[arg-type]
        await keeper._grant()
        assert keeper._lease is not None
        assert keeper._lease.until == BOOT + Duration(seconds=10)
        await keeper._renew(keeper._lease)
        assert keeper._lease.until == BOOT + Duration(seconds=13)

    asyncio.run(main())


def test_a_lease_whose_time_is_over_is_not_held_whatever_the_store_says() -> None:
    async def main() -> None:
        clock, client = Clock(), FakeStore().client()
        async with kept(keeper_of(client, clock)) as keeper:
            await keeper.next()
            assert keeper.held() is not None
            client.link.cut()
            clock.move(10)
            assert keeper.held() is None

    asyncio.run(main())


def test_a_lost_lease_is_replaced_and_its_holder_told() -> None:
    async def main() -> None:
        clock, fake = Clock(), FakeStore()
        async with kept(keeper_of(fake.client(), clock)) as keeper:
            first = await keeper.next()
            await fake.client("operator").revoke(first.id)
            async with asyncio.timeout(10):
                second = await keeper.next(after=first.id)
            assert second.id != first.id

    asyncio.run(main())


def test_a_store_that_is_away_for_a_moment_does_not_cost_the_lease() -> None:
    async def main() -> None:
        clock, client = Clock(), FakeStore().client()
        async with kept(keeper_of(client, clock)) as keeper:
            first = await keeper.next()
            client.link.next_calls(Fate.REFUSED, count=3, of="renew")
            clock.move(5)
            await until(lambda: keeper.held() is not None and keeper.held() != first, within=10)
            lease = keeper.held()
            assert lease is not None
            assert lease.id == first.id

    asyncio.run(main())


def test_resigning_takes_the_keys_along() -> None:
    async def main() -> None:
        fake = FakeStore()
        client = fake.client()
        async with kept(keeper_of(client, Clock())) as keeper:
            lease = await keeper.next()
            await client.put(b"leader", b"me", lease=lease.id)
        await keeper.resign()
        assert await client.get(b"leader") is None
        assert keeper.held() is None

    asyncio.run(main())


class AcknowledgesEverything:
    """An old etcd: it confirms the renewal of a lease that was revoked."""

    def __init__(self, store: Store) -> None:
        self.grant = store.grant
        self.confirmed = 0

    async def renew(self, lease: int) -> Duration:
        self.confirmed += 1
        return Duration(seconds=10)


async def unproven(keeper: LeaseKeeper, lease: Lease) -> None:
    """Stands in for the proof of a renewal."""


@fault("C11", without="holdfast.store.lease:LeaseKeeper._prove", by="tests.store.test_lease:unproven")
def test_C11_a_renewal_of_a_revoked_lease_is_not_believed() -> None:
    async def main() -> None:
        client = FakeStore().client()
        old_etcd = AcknowledgesEverything(client)

        async def leader_key_is_there(lease: Lease) -> None:
            entry = await client.get(b"leader")
            if entry is None or entry.lease != lease.id:
                raise LeaseGone("the leader key is not under this lease")

        keeper = LeaseKeeper(
            old_etcd,  # type: ignore[arg-type]
            Duration(seconds=10),
            interval=Duration(milliseconds=10),
            proof=leader_key_is_there,
        )
        async with kept(keeper):
            first = await keeper.next()
            await client.put(b"leader", b"me", lease=first.id)
            await client.revoke(first.id)
            replaced = asyncio.create_task(keeper.next(after=first.id))
            await until(lambda: replaced.done() or old_etcd.confirmed > 5)
            assert replaced.done(), "it was confirmed again and again, and believed"

    asyncio.run(main())


async def lasts(store: Store, keeper: LeaseKeeper, lease: Lease, key: bytes) -> bool:
    """Puts the key under the lease and lets twice its time pass; whether its keeper says that it was held all along."""
    try:
        await store.put(key, b"", lease=lease.id)
    except LeaseGone:
        return False
    await asyncio.sleep(4)
    held = keeper.held()
    return held is not None and held.id == lease.id


def test_a_kept_lease_outlives_its_ttl_in_a_real_etcd(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    async def scenario(store: EtcdStore) -> None:
        async with kept(LeaseKeeper(store, Duration(seconds=2))) as keeper, asyncio.timeout(60):
            lease = await keeper.next()
            while not await lasts(store, keeper, lease, prefix):  # a machine that stands still for 2 s renews nothing
                lease = await keeper.next(after=lease.id)
            assert await store.get(prefix) is not None
        await keeper.resign()
        assert await store.get(prefix) is None

    async def main() -> None:
        async with opened(etcd.connection()) as store:
            await scenario(store)

    asyncio.run(main())
