"""FencedStore: what a leader may write, and what a deposed one may not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from holdfast.model.base.time import Instant
from holdfast.store.api import (
    Aspect,
    Compare,
    Delete,
    Deposed,
    Get,
    LeaseGone,
    NoSpace,
    Put,
    Store,
    StoreAway,
    TooLarge,
    WriteConflict,
)
from holdfast.store.client import EtcdStore
from holdfast.store.embedded.server import EmbeddedEtcd
from holdfast.store.fenced.packing import FencedWrite
from holdfast.store.fenced.store import FencedStore
from holdfast.testing import FakeStore
from holdfast.testing.fault import fault
from holdfast.testing.store.link import Fate
from tests.store.harness import opened, until

Scenario = Callable[[Store, bytes], Awaitable[None]]


# The clock stands still: however busy the machine, transactions are never slow, and so their number is known.
async def leading(store: Store, prefix: bytes) -> FencedStore:
    term = await store.put(prefix + b"leader", b"me")
    return FencedStore(store, prefix + b"leader", term, now=lambda: Instant(1))


async def depose(store: Store, prefix: bytes) -> None:
    await store.delete(prefix + b"leader")
    await store.put(prefix + b"leader", b"another")


def on_both(scenario: Scenario) -> Callable[[EmbeddedEtcd, bytes, str], None]:
    """Makes a test of a scenario that runs on the fake and on a real etcd."""

    @pytest.mark.parametrize("ground", ["fake", "etcd"])
    def test(etcd: EmbeddedEtcd, prefix: bytes, ground: str) -> None:
        async def main() -> None:
            if ground == "fake":
                await scenario(FakeStore().client(), prefix)
                return
            async with opened(etcd.connection()) as store:
                await scenario(store, prefix)

        asyncio.run(main())

    return test


async def keys(store: Store, prefix: bytes) -> list[bytes]:
    found = [entry.key async for page in store.list(prefix) for entry in page.entries]
    return [key.removeprefix(prefix) for key in found if not key.endswith(b"leader")]


@on_both
async def test_a_leader_writes(store: Store, prefix: bytes) -> None:
    fenced = await leading(store, prefix)
    await fenced.put(prefix + b"a", b"1")
    await fenced.put(prefix + b"b", b"2")
    assert await fenced.delete(prefix + b"a") == 1
    assert await keys(store, prefix) == [b"b"]


@on_both
async def test_a_deposed_leader_writes_nothing(store: Store, prefix: bytes) -> None:
    fenced = await leading(store, prefix)
    await depose(store, prefix)
    for write in (fenced.put(prefix + b"a", b""), fenced.delete(prefix + b"a"), fenced.txn([], [Put(prefix, b"")])):
        with pytest.raises(Deposed, match=f"term {fenced.term} is over: term .* leads now; nothing was written"):
            await write
    results = await fenced.bulk([FencedWrite([Put(prefix + b"%d" % i, b"")]) for i in range(300)])
    assert all(isinstance(result.error, Deposed) and result.stop for result in results)
    assert await keys(store, prefix) == []


@on_both
async def test_without_any_leader_nothing_is_written(store: Store, prefix: bytes) -> None:
    fenced = await leading(store, prefix)
    await store.delete(prefix + b"leader")
    with pytest.raises(Deposed, match="there is no leader now"):
        await fenced.put(prefix + b"a", b"")


@on_both
async def test_a_comparison_of_its_own_that_fails_is_not_a_deposition(store: Store, prefix: bytes) -> None:
    fenced = await leading(store, prefix)
    await store.put(prefix + b"a", b"there")
    absent = Compare(prefix + b"a", Aspect.CREATE_REVISION, 0)
    result = await fenced.txn([absent], [Put(prefix + b"a", b"new")], [Get(prefix + b"a")])
    assert not result.succeeded
    assert len(result.results) == 1


def test_a_term_of_zero_would_fence_nothing_and_is_refused() -> None:
    with pytest.raises(ValueError, match="never 0"):
        FencedStore(FakeStore().client(), b"leader", 0)


@on_both
async def test_a_plan_is_written_whole_and_in_few_transactions(store: Store, prefix: bytes) -> None:
    fenced = await leading(store, prefix)
    results = await fenced.bulk([FencedWrite([Put(prefix + b"%04d" % i, b"v")]) for i in range(1_000)])
    assert all(result.error is None for result in results)
    assert len({result.revision for result in results}) == 8
    assert await keys(store, prefix) == [b"%04d" % i for i in range(1_000)]


@on_both
async def test_an_empty_plan_is_no_write(store: Store, prefix: bytes) -> None:
    assert await (await leading(store, prefix)).bulk([]) == []


@on_both
async def test_conflicts_are_named_and_the_others_written(store: Store, prefix: bytes) -> None:
    fenced = await leading(store, prefix)
    await store.put(prefix + b"7", b"somebody was here")
    writes = [
        FencedWrite([Put(prefix + b"%d" % i, b"v")], [Compare(prefix + b"%d" % i, Aspect.MOD_REVISION, 0)])
        for i in range(20)
    ]
    results = await fenced.bulk(writes)
    errors = {result.write.key: result.error for result in results if result.error is not None}
    assert list(errors) == [prefix + b"7"]
    assert isinstance(errors[prefix + b"7"], WriteConflict)
    assert not any(result.stop for result in results)
    assert len(await keys(store, prefix)) == 20


@on_both
async def test_a_value_that_is_too_large_is_named_and_the_others_written(store: Store, prefix: bytes) -> None:
    fenced = await leading(store, prefix)
    sizes = [10, 1_700_000, 10, 900_000]
    results = await fenced.bulk([FencedWrite([Put(prefix + b"%d" % i, b"x" * size)]) for i, size in enumerate(sizes)])
    assert [type(result.error) for result in results] == [type(None), TooLarge, type(None), type(None)]
    assert not results[1].stop


@on_both
async def test_one_object_that_the_store_refuses_does_not_hold_up_the_rest(store: Store, prefix: bytes) -> None:
    fenced = await leading(store, prefix)
    results = await fenced.bulk([FencedWrite([Put(prefix + b"%d" % i, b"", lease=77 * (i == 3))]) for i in range(10)])
    assert [i for i, result in enumerate(results) if isinstance(result.error, LeaseGone)] == [3]
    assert len(await keys(store, prefix)) == 9


@on_both
async def test_writes_to_one_key_land_in_their_order(store: Store, prefix: bytes) -> None:
    fenced = await leading(store, prefix)
    results = await fenced.bulk([FencedWrite([Put(prefix + b"a", b"%d" % i)]) for i in range(20)])
    assert sorted(result.revision for result in results) == [result.revision for result in results]
    entry = await store.get(prefix + b"a")
    assert entry is not None
    assert entry.value == b"19"


async def no_check(fenced: FencedStore, plan: object) -> None:
    """Stands in for the look at the alarms."""


@fault(
    "C35",
    without="holdfast.store.fenced.store:FencedStore._check_space",
    by="tests.store.fenced.test_store:no_check",
    sees=(AssertionError, r"all\(isinstance\(result.error, NoSpace\) and result.stop for"),
)
def test_C35_a_store_out_of_space_loses_nothing_to_a_plan_of_moves_and_deletes(folder: Path) -> None:
    async def main() -> None:
        async with (
            EmbeddedEtcd(folder, options=["--quota-backend-bytes=2000000"]) as etcd,
            opened(etcd.connection()) as store,
        ):
            fenced = await leading(store, b"")
            before = [b"gone", *(b"old%d" % i for i in range(3))]
            for key in before:
                await store.put(key, b"")
            await fill(store)
            moves = [FencedWrite([Delete(b"old%d" % i), Put(b"new%d" % i, b"")]) for i in range(3)]
            for plan in ([FencedWrite([Delete(b"gone")])], moves):
                results = await fenced.bulk(plan)
                assert all(isinstance(result.error, NoSpace) and result.stop for result in results)
            assert [key for key in await keys(store, b"") if not key.startswith(b"fill")] == before

    asyncio.run(main())


async def fill(store: EtcdStore) -> None:
    while True:
        try:
            await store.put(b"fill", b"x" * 300_000)
        except NoSpace:
            return


def test_a_plan_of_puts_stops_when_space_runs_out() -> None:
    async def main() -> None:
        fake = FakeStore()
        fenced = await leading(fake.client(), b"")
        fake.run_out_of_space()
        results = await fenced.bulk([FencedWrite([Put(b"%d" % i, b"")]) for i in range(1_000)])
        assert all(isinstance(result.error, NoSpace) for result in results)

    asyncio.run(main())


def test_what_was_not_sent_is_certainly_not_written_when_the_store_goes_away() -> None:
    async def main() -> None:
        fake = FakeStore()
        client = fake.client()
        fenced = await leading(client, b"")
        client.link.next_calls(Fate.REPLY_LOST, count=4, of="txn")
        client.link.latency = lambda: 0.01
        client.deadline = client.deadline / 50
        results = await fenced.bulk([FencedWrite([Put(b"%04d" % i, b"")]) for i in range(2_000)])
        errors = [result.error for result in results]
        assert all(isinstance(error, StoreAway) for error in errors)
        uncertain = [i for i, error in enumerate(errors) if isinstance(error, StoreAway) and error.uncertain]
        assert uncertain == list(range(4 * 127))
        assert await keys(fake.client("other"), b"") == [b"%04d" % i for i in uncertain]

    asyncio.run(main())


def test_a_leader_deposed_in_the_middle_of_a_plan_stops_there() -> None:
    async def main() -> None:
        fake = FakeStore()
        client, other = fake.client(), fake.client("other")
        fenced = await leading(client, b"")
        client.link.latency = lambda: 0.005
        plan = asyncio.create_task(fenced.bulk([FencedWrite([Put(b"%05d" % i, b"")]) for i in range(5_000)]))
        await until(lambda: fake.revision >= 4)
        await depose(other, b"")
        results = await plan
        written = [result.write.key for result in results if result.error is None]
        assert 0 < len(written) < 5_000
        assert all(isinstance(result.error, Deposed) for result in results if result.error is not None)
        assert await keys(other, b"") == written

    asyncio.run(main())
