"""LeasedKey on FakeStore and on a real etcd: renewed by its writer alone, replaced when lost, gone when revoked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from holdfast.model.base.time import Duration, seconds
from holdfast.store.api import Compare, LeaseGone, Operation, Store, StoreAway, TxnResult
from holdfast.store.lease import LeasedKey
from holdfast.testing import Fate, World, simulate
from holdfast.testing.fault import fault
from tests.store.conformance import EtcdGround, FakeGround, Ground, conforms, entry, refusal, watching

KEY = b"/alive"
MINUTE = seconds(60)


@pytest.fixture(params=["fake", "etcd"])
def ground(request: pytest.FixtureRequest) -> Ground:
    return FakeGround() if request.param == "fake" else EtcdGround(request.getfixturevalue("one_etcd"))


async def written(store: Store, ttl: Duration = MINUTE) -> LeasedKey:
    key = LeasedKey(store, KEY, ttl)
    await key.write(b"0")
    return key


@conforms
async def test_a_key_that_is_written_again_and_again_outlives_its_ttl(store: Store) -> None:
    key = await written(store, seconds(5))
    first = await entry(store, KEY)
    for n in range(1, 8):
        await asyncio.sleep(1)
        await key.write(b"%d" % n)
    last = await entry(store, KEY)
    assert (last.value, last.create_revision, last.lease) == (b"7", first.create_revision, first.lease)


@conforms
async def test_a_key_whose_writer_writes_no_more_is_gone_after_its_ttl(store: Store) -> None:
    await written(store, seconds(5))
    before = (await entry(store, KEY)).mod_revision
    async with watching(store, KEY) as view:
        assert await view.until(before + 1) == {}


@conforms
async def test_a_transaction_alone_renews_nothing(store: Store) -> None:
    key = await written(store, seconds(2))

    async def write_without_renewal() -> None:
        while True:
            await asyncio.sleep(0.5)
            await key.txn([], [key.put(b"1")])

    assert await refusal(write_without_renewal()) is LeaseGone


@conforms
async def test_a_lost_lease_is_replaced_by_the_next_write(store: Store) -> None:
    key = await written(store)
    lost = key.lease
    await store.revoke(lost)
    assert not await key.renew()
    await key.write(b"1")
    assert (await entry(store, KEY)).lease == key.lease != lost


@conforms
async def test_a_write_under_a_lost_lease_is_refused_and_the_lease_forgotten(store: Store) -> None:
    key = await written(store)
    await store.revoke(key.lease)
    assert await refusal(key.txn([], [key.put(b"1")])) is LeaseGone
    assert key.lease == 0


@conforms
async def test_the_lease_of_a_predecessor_is_taken_over(store: Store) -> None:
    predecessor, key = await written(store), LeasedKey(store, KEY, MINUTE)
    await key.renew_or_grant(predecessor.lease)
    assert key.lease == predecessor.lease


@conforms
async def test_the_lease_of_a_predecessor_with_another_ttl_is_left_alone(store: Store) -> None:
    predecessor, key = await written(store, seconds(90)), LeasedKey(store, KEY, MINUTE)
    await key.renew_or_grant(predecessor.lease)
    assert key.lease not in (0, predecessor.lease)


@conforms
async def test_the_lease_of_a_predecessor_that_has_expired_is_replaced(store: Store) -> None:
    predecessor, key = await written(store), LeasedKey(store, KEY, MINUTE)
    await store.revoke(predecessor.lease)
    await key.renew_or_grant(predecessor.lease)
    assert key.lease not in (0, predecessor.lease)


@conforms
async def test_a_key_with_a_lease_of_its_own_takes_over_no_other(store: Store) -> None:
    key, other = await written(store), await store.grant(MINUTE)
    own = key.lease
    await key.renew_or_grant(other)
    assert key.lease == own


@conforms
async def test_revoking_deletes_the_key_and_may_be_repeated(store: Store) -> None:
    key = await written(store)
    await key.revoke()
    assert await store.get(KEY) is None
    await key.revoke()
    assert not await key.renew()


@conforms
async def test_revoking_a_lease_that_is_gone_is_not_an_error(store: Store) -> None:
    key = await written(store)
    await store.revoke(key.lease)
    await key.revoke()
    assert key.lease == 0


def test_a_store_that_is_unreachable_for_a_moment_does_not_cost_the_lease() -> None:
    async def story(world: World) -> None:
        client = world.node("a").store()
        key = await written(client)
        lease = key.lease
        for call in ("renew", "txn"):
            client.link.next_calls(Fate.REFUSED, of=call)
            with pytest.raises(StoreAway):
                await key.write(b"1")
        await key.write(b"2")
        assert key.lease == lease

    simulate(1, story)


def test_a_lease_that_cannot_be_revoked_expires() -> None:
    async def story(world: World) -> None:
        client = world.node("a").store()
        key = await written(client)
        client.link.cut()
        await key.revoke()
        await world.until(lambda: world.store.keys.get(KEY) is None, within=MINUTE)

    simulate(1, story)


async def trusted_renewal(
    key: LeasedKey, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
) -> TxnResult:
    """Replaces `LeasedKey.txn`: keeps a lease that the store acknowledges, whatever a write says."""
    return await key._store.txn(compares, then, otherwise)


@fault(
    "C11",
    without="holdfast.store.lease:LeasedKey.txn",
    by="tests.store.test_lease:trusted_renewal",
    sees=(AssertionError, "key.lease == 0"),
)
def test_C11_an_acknowledged_renewal_of_a_revoked_lease_is_not_believed() -> None:
    async def story(world: World) -> None:
        world.store.acknowledges_gone_leases = True
        client = world.node("a").store()
        key = await written(client)
        await client.revoke(key.lease)
        assert await refusal(key.write(b"1")) is LeaseGone
        assert key.lease == 0, "it was acknowledged, and believed"
        await key.write(b"2")
        assert (await entry(client, KEY)).value == b"2"

    simulate(1, story)
