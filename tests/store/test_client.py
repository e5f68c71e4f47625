"""EtcdStore against a real etcd: the calls, their results, their refusals."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from holdfast.model.base.time import Duration
from holdfast.store.api import (
    Aspect,
    Compacted,
    Compare,
    Delete,
    Entry,
    Get,
    LeaseGone,
    Put,
    StoreAway,
    StoreError,
    TooLarge,
)
from holdfast.store.client import EtcdStore
from holdfast.store.embedded.server import EmbeddedEtcd
from holdfast.store.transport.gateway import Connection
from holdfast.store.transport.http import USER_TIMEOUT_MS, HttpConnection, MemberAddress, connect


def run(etcd: EmbeddedEtcd, scenario: Callable[[EtcdStore], Awaitable[None]]) -> None:
    async def main() -> None:
        store = EtcdStore(etcd.connection())
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(main())


async def listed(store: EtcdStore, prefix: bytes) -> list[Entry]:
    return [entry async for page in store.list(prefix) for entry in page.entries]


def test_a_key_reads_back_as_it_was_written(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    async def scenario(store: EtcdStore) -> None:
        revision = await store.put(prefix + b"a", b"\x00\xff")
        assert await store.get(prefix + b"a") == Entry(prefix + b"a", b"\x00\xff", revision, revision, 1)
        assert await store.get(prefix + b"b") is None

    run(etcd, scenario)


def test_a_list_comes_in_ascending_pages_of_one_revision(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    async def scenario(store: EtcdStore) -> None:
        keys = [prefix + b"%02d" % i for i in range(7)]
        for key in reversed(keys):
            await store.put(key, b"v")
        seen: list[bytes] = []
        revisions: set[int] = set()
        async for page in store.list(prefix, page=3):
            await store.put(prefix + b"99", b"came later")
            seen += [entry.key for entry in page.entries]
            revisions.add(page.revision)
        assert seen == keys
        assert len(revisions) == 1

    run(etcd, scenario)


def test_pages_of_large_values_are_short(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    async def scenario(store: EtcdStore) -> None:
        for start in range(0, 1100, 100):
            await store.txn([], [Put(prefix + b"%04d" % i, b"x" * 9_000) for i in range(start, start + 100)])
        sizes = [len(page.entries) async for page in store.list(prefix)]
        assert sum(sizes) == 1100
        assert all(size < 1000 for size in sizes[1:])

    run(etcd, scenario)


def test_a_transaction_runs_the_branch_that_its_comparison_chose(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    async def scenario(store: EtcdStore) -> None:
        absent = Compare(prefix + b"a", Aspect.CREATE_REVISION, 0)
        first = await store.txn([absent], [Put(prefix + b"a", b"1"), Delete(prefix + b"none")])
        second = await store.txn([absent], [Put(prefix + b"a", b"2")], [Get(prefix + b"a")])
        assert first.succeeded
        assert first.results == [first.revision, 0]
        assert not second.succeeded
        assert second.results == [[Entry(prefix + b"a", b"1", first.revision, first.revision, 1)]]

    run(etcd, scenario)


def test_a_lease_takes_its_keys_along(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    async def scenario(store: EtcdStore) -> None:
        lease = await store.grant(Duration(seconds=30))
        await store.put(prefix + b"a", b"", lease=lease)
        assert await store.renew(lease) == Duration(seconds=30)
        await store.revoke(lease)
        assert await store.get(prefix + b"a") is None
        with pytest.raises(LeaseGone):
            await store.renew(lease)
        with pytest.raises(LeaseGone):
            await store.put(prefix + b"a", b"", lease=lease)

    run(etcd, scenario)


def test_a_lease_under_two_seconds_is_refused(etcd: EmbeddedEtcd) -> None:
    async def scenario(store: EtcdStore) -> None:
        with pytest.raises(ValueError, match="no less than 2 s"):
            await store.grant(Duration(seconds=1))

    run(etcd, scenario)


def test_a_compacted_revision_is_named(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    async def scenario(store: EtcdStore) -> None:
        old = await store.put(prefix + b"a", b"1")
        new = await store.put(prefix + b"a", b"2")
        await store.compact(new)
        with pytest.raises(Compacted):
            await store.get(prefix + b"a", revision=old)

    run(etcd, scenario)


def test_a_value_above_the_limit_is_too_large(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    async def scenario(store: EtcdStore) -> None:
        for size in (1_600_000, 3_000_000):
            with pytest.raises(TooLarge):
                await store.put(prefix + b"a", b"x" * size)

    run(etcd, scenario)


def test_a_refused_request_is_one_sentence(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    async def scenario(store: EtcdStore) -> None:
        with pytest.raises(StoreError, match="duplicate key"):
            await store.txn([], [Put(prefix, b"1"), Put(prefix, b"2")])

    run(etcd, scenario)


def test_status_says_who_answers(etcd: EmbeddedEtcd) -> None:
    async def scenario(store: EtcdStore) -> None:
        (status,) = await store.status()
        assert status.endpoint == etcd.endpoint
        assert status.member_id == status.leader_id != 0
        assert status.version >= "3.4.22"
        assert await store.alarms() == []

    run(etcd, scenario)


def test_status_does_not_wait_for_a_member_that_hangs(etcd: EmbeddedEtcd) -> None:
    """Its port accepts connections and never answers, as that of a frozen process."""

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as frozen:
            hangs = f"http://127.0.0.1:{frozen.getsockname()[1]}"
            store = EtcdStore(Connection((etcd.endpoint, hangs), deadline=Duration(seconds=600)))
            async with asyncio.timeout(60):
                (status,) = await store.status(within=Duration(seconds=3))
                assert status.endpoint == etcd.endpoint
                assert status.took < Duration(seconds=3)
            await store.close()
            store = EtcdStore(Connection((hangs,), deadline=Duration(seconds=600)))
            with pytest.raises(StoreAway, match="does not answer in time"):
                await store.status(within=Duration(seconds=0.1))
            await store.close()

    asyncio.run(main())


def test_many_calls_at_once_share_the_store(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    async def scenario(store: EtcdStore) -> None:
        await asyncio.gather(*(store.put(prefix + b"%d" % i, b"") for i in range(50)))
        assert len(await listed(store, prefix)) == 50

    run(etcd, scenario)


def test_a_cancelled_call_does_not_spoil_the_next(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    async def scenario(store: EtcdStore) -> None:
        await store.put(prefix + b"a", b"right")
        for _ in range(20):
            call = asyncio.create_task(store.get(prefix + b"other"))
            await asyncio.sleep(0)
            call.cancel()
            entry = await store.get(prefix + b"a")
            assert entry is not None
            assert entry.value == b"right"

    run(etcd, scenario)


def test_tcp_itself_gives_up_on_a_peer_that_does_not_acknowledge(etcd: EmbeddedEtcd) -> None:
    async def main() -> int:
        endpoint = MemberAddress.parse(etcd.endpoint)
        connection = await connect(endpoint, None, HttpConnection(endpoint))
        assert connection._transport is not None
        sock = connection._transport.get_extra_info("socket")
        timeout: int = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        connection.close()
        await asyncio.sleep(0)  # the loop closes aborted sockets in its next turn
        return timeout

    assert asyncio.run(main()) == USER_TIMEOUT_MS
