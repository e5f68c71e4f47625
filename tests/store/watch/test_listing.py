"""Lists: ascending, complete, and of one moment."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest

from holdfast.store.api import Entry, Events, Put, Snapshot, StoreAway
from holdfast.store.client import EtcdStore
from holdfast.store.embedded.server import EmbeddedEtcd
from holdfast.store.transport import wire
from holdfast.store.transport.gateway import Connection, Gateway, GatewayCall
from holdfast.store.watch.listing import VALUES_PER_CALL, _values, read_range
from holdfast.testing.fault import fault
from tests.store.harness import opened, until
from tests.store.proxy import Proxy

NOBODY = "http://127.0.0.1:1"
_RANGE = wire.decoder(wire.RangeReply)


async def unpinned(gateway: Gateway, request: wire.RangeRequest) -> wire.RangeReply:
    """Stands in for the reading of a page: each page of its own moment."""
    body = wire.encode(msgspec.structs.replace(request, revision=0))
    return await gateway.call(GatewayCall(wire.RANGE, body, _RANGE))


@fault(
    "C17",
    without="holdfast.store.watch.listing:read_range",
    by="tests.store.watch.test_listing:unpinned",
    sees=(AssertionError, r"len\(\{entry.value for entry in snapshot.items if entry.key in"),
)
def test_C17_a_snapshot_in_ascending_pages_is_of_one_moment(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    """Writers keep all values equal by one transaction each; a list of two moments would see two values."""
    names = [prefix + b"%04d" % i for i in range(0, 2_400, 100)]

    written = itertools.count()

    async def keep_equal(store: EtcdStore) -> None:
        while True:
            value = b"%d" % next(written)
            await store.txn([], [Put(name, value) for name in names])

    async def main() -> None:
        async with opened(etcd.connection()) as writer, opened(etcd.connection()) as store:
            for start in range(0, 2_400, 100):
                await writer.txn([], [Put(prefix + b"%04d" % i, b"fixed" * 200) for i in range(start, start + 100)])
            writing = asyncio.create_task(keep_equal(writer))
            for looks in itertools.count(1):
                snapshot = await anext(store.watch(prefix))
                assert isinstance(snapshot, Snapshot)
                seen = [entry.key for entry in snapshot.items]
                assert seen == [prefix + b"%04d" % i for i in range(2_400)]
                assert len({entry.value for entry in snapshot.items if entry.key in names}) == 1
                if looks >= 8 and next(written) >= 100:  # where the disk is slow, few writes fall into a list
                    break
            writing.cancel()

    asyncio.run(main())


async def read_once(gateway: Gateway, request: wire.RangeRequest, last: object, wait: object) -> wire.RangeReply:
    """Stands in for a page that is read again."""
    return await read_range(gateway, request)


KEYS = 12_000
"""Four pages."""


async def fill(store: EtcdStore, prefix: bytes, value: bytes = b"v") -> None:
    for start in range(0, KEYS, 100):
        await store.txn([], [Put(prefix + b"%05d" % number, value) for number in range(start, start + 100)])


@fault(
    "C56",
    without="holdfast.store.watch.listing:read_next_page",
    by="tests.store.watch.test_listing:read_once",
    sees=(AssertionError, r"\[part.first for part in parts\].count\(True\) == 1"),
)
@pytest.mark.parametrize("how", ["at the same member", "at another member"])
def test_C56_a_list_that_fails_at_a_later_page_goes_on_with_that_page(
    etcd: EmbeddedEtcd, prefix: bytes, how: str
) -> None:
    async def main() -> None:
        async with Proxy(etcd.endpoint) as proxy, Proxy(NOBODY) as other, opened(etcd.connection()) as writer:
            await fill(writer, prefix)
            async with opened(Connection((proxy.url, other.url))) as store:
                watch = store.watch(prefix, parts=True)
                parts = [await next_part(watch)]
                proxy.target = NOBODY
                proxy.reset()
                rest = asyncio.create_task(complete(watch, parts))
                await asyncio.sleep(0.3)
                await writer.put(prefix + b"later", b"")  # a list from another moment would have it
                (proxy if how == "at the same member" else other).target = etcd.endpoint
                await rest
        assert [part.first for part in parts].count(True) == 1
        assert len({part.revision for part in parts}) == 1
        assert [one.key for part in parts for one in part.items] == [prefix + b"%05d" % n for n in range(KEYS)]

    asyncio.run(main())


@pytest.mark.parametrize("why", ["compacted", "restored"])
def test_C56_a_list_begins_again_when_its_revision_is_gone(folder: Path, why: str) -> None:
    async def main() -> None:
        first, second = EmbeddedEtcd(folder / "first"), EmbeddedEtcd(folder / "second")
        async with (
            first,
            second,
            Proxy(first.endpoint) as proxy,
            opened(proxy.connection()) as store,
            opened(first.connection()) as writer,
            opened(second.connection()) as restored,
        ):
            await fill(writer, b"/p/")
            watch = store.watch(b"/p/", parts=True)
            parts = [await next_part(watch)]
            proxy.target = NOBODY
            proxy.reset()
            rest = asyncio.create_task(complete(watch, parts))
            if why == "compacted":
                await writer.compact(await writer.put(b"/p/later", b""))
                proxy.target = first.endpoint
            else:
                await fill(restored, b"/p/", b"new life")
                await restored.put(b"/p/later", b"")
                proxy.target = second.endpoint
            await rest
            wanted = {
                entry.key: entry
                async for page in (writer if why == "compacted" else restored).list(b"/p/")
                for entry in page.entries
            }
        began = max(number for number, part in enumerate(parts) if part.first)
        assert began > 0
        assert {entry.key: entry for part in parts[began:] for entry in part.items} == wanted

    asyncio.run(main())


async def values_once(gateway: Gateway, keys: Sequence[bytes], revision: int, *_: object) -> list[Entry]:
    """Stands in for values that are read again."""
    return await _values(gateway, keys, revision)


@fault(
    "C56",
    without="holdfast.store.watch.listing:read_next_values",
    by="tests.store.watch.test_listing:values_once",
    sees=(AssertionError, r"\[part.first for part in parts\].count\(True\) == 1"),
)
def test_C56_a_list_of_changes_that_fails_at_later_values_goes_on_with_them(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    changed = [prefix + b"%05d" % number for number in range(2 * VALUES_PER_CALL)]

    async def main() -> None:
        async with Proxy(etcd.endpoint) as proxy, opened(etcd.connection()) as writer:
            await fill(writer, prefix)
            async with opened(proxy.connection()) as store:
                watch = await changed_while_away(store, prefix, writer, proxy, changed)
                parts = [await next_part(watch), await next_part(watch)]
                found = [entry.key for entry in parts[-1].items]
                parts[-1].items.clear()  # as a mirror does, to free them
                proxy.target = NOBODY
                proxy.reset()
                rest = asyncio.create_task(complete(watch, parts))
                await asyncio.sleep(0.3)
                await writer.put(prefix + b"later", b"")  # a list from another moment would have it
                proxy.target = etcd.endpoint
                await rest
        assert [part.first for part in parts].count(True) == 1
        assert len({part.revision for part in parts}) == 1
        found += [one.key for part in parts for one in part.items]
        assert set(found) >= set(changed)
        assert sorted(found + [key for part in parts for key in part.unchanged]) == [
            b"%b%05d" % (prefix, n) for n in range(KEYS)
        ]

    asyncio.run(main())


def test_C56_a_list_of_changes_begins_again_when_another_store_answers(folder: Path) -> None:
    changed = [b"/p/%05d" % number for number in range(2 * VALUES_PER_CALL)]

    async def main() -> None:
        first, second = EmbeddedEtcd(folder / "first"), EmbeddedEtcd(folder / "second")
        async with (
            first,
            second,
            Proxy(first.endpoint) as proxy,
            opened(proxy.connection()) as store,
            opened(first.connection()) as writer,
            opened(second.connection()) as restored,
        ):
            await fill(writer, b"/p/")
            watch = await changed_while_away(store, b"/p/", writer, proxy, changed)
            parts = [await next_part(watch), await next_part(watch)]
            proxy.target = NOBODY
            proxy.reset()
            rest = asyncio.create_task(complete(watch, parts))
            await fill(restored, b"/p/", b"new life")
            await put(restored, changed, b"new life")
            await put(restored, changed, b"new life")
            proxy.target = second.endpoint
            await rest
        began = max(number for number, part in enumerate(parts) if part.first)
        assert began > 0
        assert {one.value for part in parts[began:] for one in part.items} == {b"new life"}
        assert len([one for part in parts[began:] for one in (*part.items, *part.unchanged)]) == KEYS

    asyncio.run(main())


async def changed_while_away(
    store: EtcdStore, prefix: bytes, writer: EtcdStore, proxy: Proxy, changed: Sequence[bytes]
) -> AsyncIterator[Snapshot | Events]:
    """Return a watch that has to list what changed, because it was away while that was compacted."""
    held: dict[bytes, int] = {}
    watch = store.watch(prefix, held=held, parts=True)
    parts: list[Snapshot] = [await next_part(watch)]
    await complete(watch, parts)
    held |= {entry.key: entry.mod_revision for part in parts for entry in part.items}
    alive = proxy.target
    proxy.target = NOBODY
    proxy.reset()
    await put(writer, changed, b"changed")
    await writer.compact((await writer.txn([], [])).revision)
    proxy.target = alive
    return watch


async def put(store: EtcdStore, keys: Sequence[bytes], value: bytes) -> None:
    for start in range(0, len(keys), 100):
        await store.txn([], [Put(key, value) for key in keys[start : start + 100]])


async def complete(watch: AsyncIterator[Snapshot | Events], parts: list[Snapshot]) -> None:
    while parts[-1].more:
        parts.append(await next_part(watch))


async def next_part(watch: AsyncIterator[Snapshot | Events]) -> Snapshot:
    part = await anext(watch)
    assert isinstance(part, Snapshot)
    return part


def test_C56_a_page_of_a_list_is_read_a_few_times_before_the_caller_is_told(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    async def main() -> None:
        async with Proxy(etcd.endpoint) as proxy, opened(proxy.connection()) as store:
            await fill(store, prefix)
            pages = store.list(prefix)
            entries = list((await anext(pages)).entries)
            proxy.target = NOBODY
            proxy.reset()
            asyncio.get_running_loop().call_later(0.1, setattr, proxy, "target", etcd.endpoint)
            entries += [entry async for page in pages for entry in page.entries]
            assert [entry.key for entry in entries] == [prefix + b"%05d" % number for number in range(KEYS)]
            pages = store.list(prefix)
            await anext(pages)
            proxy.target = NOBODY
            proxy.reset()
            with pytest.raises(StoreAway):
                await anext(pages)

    asyncio.run(main())


def test_a_relist_of_a_prefix_that_changes_all_the_time_fetches_what_changed(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    """The change seen last has been overwritten each time: it proves nothing."""
    hot = [prefix + b"%05d" % number for number in range(0, KEYS, KEYS // 100)]

    async def main() -> None:
        async with (
            Proxy(etcd.endpoint) as proxy,
            opened(proxy.connection()) as store,
            opened(etcd.connection()) as other,
        ):
            await fill(other, prefix)
            held: dict[bytes, int] = {}
            watch = store.watch(prefix, held=held)
            first = await anext(watch)
            assert isinstance(first, Snapshot)
            held |= {entry.key: entry.mod_revision for entry in first.items}
            for _ in range(3):
                nudge = asyncio.ensure_future(anext(watch))
                await until(lambda: bool(proxy.watches()))
                proxy.target = NOBODY
                proxy.reset()
                await other.txn([], [Put(key, b"again") for key in hot])
                await other.compact((await other.txn([], [Put(key, b"and again") for key in hot])).revision)
                proxy.target = etcd.endpoint
                again = await nudge
                assert isinstance(again, Snapshot)
                assert len(again.items) + len(again.unchanged) == KEYS
                assert set(hot) <= {entry.key for entry in again.items}
                assert len(again.items) < len(hot) + KEYS // 10
                held |= {entry.key: entry.mod_revision for entry in again.items}

    asyncio.run(main())
