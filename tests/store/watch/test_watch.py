"""The watch against a real etcd: nothing is lost, whatever happens to its stream."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from pathlib import Path

import pytest

from holdfast.model.base.time import Duration
from holdfast.store.api import OwnKey, Put, Snapshot, StoreAway
from holdfast.store.client import EtcdStore
from holdfast.store.contact import WatchRestart
from holdfast.store.embedded.server import EmbeddedEtcd
from holdfast.store.mirror.mirror import Mirror
from holdfast.store.watch.watch import LARGE_PREFIX, RELIST_SPREAD, SMALL_PREFIX, spread_of
from holdfast.testing.fault import fault
from holdfast.testing.real.processes import reserved_ports
from tests.store.harness import Follower, opened, run, until
from tests.store.proxy import Proxy


async def state(store: EtcdStore, prefix: bytes) -> dict[bytes, tuple[int, bytes]]:
    return {e.key: (e.mod_revision, e.value) async for page in store.list(prefix) for e in page.entries}


def test_changes_follow_the_snapshot_without_a_gap(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    async def scenario(store: EtcdStore) -> None:
        await store.put(prefix + b"before", b"1")
        async with Follower(store, prefix) as follower:
            await store.put(prefix + b"after", b"2")
            await store.delete(prefix + b"before")
            await until(lambda: set(follower.seen) == {prefix + b"after"})
            assert [len(follower.snapshots), follower.history[-1][1]] == [1, prefix + b"before"]

    run(etcd.connection(), scenario)


def test_a_lone_change_arrives_at_once_and_many_arrive_together(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    async def scenario(store: EtcdStore) -> None:
        async with Follower(store, prefix) as follower:
            await asyncio.gather(*(store.put(prefix + b"%d" % i, b"") for i in range(500)))
            await until(lambda: len(follower.seen) == 500)
            assert len(follower.batches) < 250

    run(etcd.connection(), scenario)


def test_a_reader_that_has_time_is_woken_once_for_what_comes_meanwhile(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    async def scenario(store: EtcdStore) -> None:
        async with Follower(store, prefix, gather=Duration(seconds=2)) as follower:
            began = time.monotonic()
            for i in range(5):
                await store.put(prefix + b"%d" % i, b"")
                await asyncio.sleep(0.05)
            took = time.monotonic() - began
            await until(lambda: len(follower.seen) == 5)
            # The first may have come with the beginning of the watch.
            assert len(follower.batches) <= 2 + took // 2

    run(etcd.connection(), scenario)


def test_a_broken_stream_is_resumed_after_the_last_event(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    async def main() -> None:
        async with (
            Proxy(etcd.endpoint) as proxy,
            opened(proxy.connection()) as store,
            opened(etcd.connection()) as other,
            Follower(store, prefix) as follower,
        ):
            for i in range(20):
                revision = await other.put(prefix + b"%d" % i, b"")
                if i % 5 == 0:
                    if i % 10:  # a new stream begins with what was seen last; otherwise nothing of it was
                        await until_seen(follower, revision)
                    proxy.reset()
            await until(lambda: follower.revision >= revision)
            assert follower.seen == await state(other, prefix)
            assert [key for _, key in follower.history] == [prefix + b"%d" % i for i in range(20)]
            assert len(follower.snapshots) == 1
            assert set(+store.contact.restarts) == {WatchRestart.INTERRUPTED}

    asyncio.run(main())


@fault(
    "C18",
    without="holdfast.store.watch.watch:Watch._cancellation",
    returns=None,
    sees=(TimeoutError, r"until\(lambda: len\(follower.snapshots\) == 2, within=5\)"),
)
def test_C18_a_watch_on_a_compacted_revision_lists_again(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    async def main() -> None:
        async with (
            Proxy(etcd.endpoint) as proxy,
            opened(proxy.connection()) as store,
            opened(etcd.connection()) as other,
        ):
            await other.put(prefix + b"gone", b"")

            async def compacted() -> None:
                await other.delete(prefix + b"gone")
                await other.compact(await other.put(prefix + b"new", b""))

            async with Follower(store, prefix) as follower:
                await until(lambda: bool(proxy.watches()))
                proxy.before_watch = compacted
                proxy.reset()
                await until(lambda: len(follower.snapshots) == 2, within=5)
                assert follower.seen == await state(other, prefix)
                assert store.contact.restarts[WatchRestart.COMPACTED] == 1

    asyncio.run(main())


@fault(
    "C38",
    without="holdfast.store.watch.own_writes:OwnWriteCheck.missing",
    returns=0,
    sees=(TimeoutError, r"async with asyncio.timeout\(8\)"),
)
def test_C38_a_half_open_stream_is_noticed_by_own_writes_that_do_not_come_back(
    etcd: EmbeddedEtcd, prefix: bytes
) -> None:
    own = OwnKey(prefix + b"own", Duration(milliseconds=200))

    async def main() -> None:
        async with (
            Proxy(etcd.endpoint) as proxy,
            opened(proxy.connection()) as store,
            opened(etcd.connection()) as other,
            Follower(store, prefix + b"watched/", own) as follower,
        ):
            await until(lambda: bool(proxy.watches()))
            proxy.silence_watches()
            await other.put(prefix + b"watched/a", b"")
            async with asyncio.timeout(8):
                while prefix + b"watched/a" not in follower.seen:
                    await store.put(own.key, b"alive")
                    await asyncio.sleep(0.1)
            assert len(follower.snapshots) == 1

    asyncio.run(main())


def test_a_half_open_stream_is_noticed_when_another_process_writes_the_own_key(
    etcd: EmbeddedEtcd, prefix: bytes
) -> None:
    own = OwnKey(prefix + b"leader", Duration(milliseconds=200))

    async def main() -> None:
        async with (
            Proxy(etcd.endpoint) as proxy,
            opened(proxy.connection()) as store,
            opened(etcd.connection()) as other,
            Follower(store, prefix, own) as follower,
        ):
            await until(lambda: bool(proxy.watches()))
            proxy.silence_watches()
            async with asyncio.timeout(15):
                while own.key not in follower.seen:
                    await other.put(own.key, b"renewed")
                    await asyncio.sleep(0.1)

    asyncio.run(main())


def test_a_quiet_stream_whose_own_writes_come_back_is_left_alone(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    own = OwnKey(prefix + b"own", Duration(seconds=1))

    async def main() -> None:
        async with (
            Proxy(etcd.endpoint) as proxy,
            opened(proxy.connection()) as store,
            Follower(store, prefix + b"watched/", own),
        ):
            await until(lambda: bool(proxy.watches()))
            stream = proxy.watches()
            for _ in range(30):
                await store.put(own.key, b"alive")
                await asyncio.sleep(0.1)
            assert proxy.watches() == stream

    asyncio.run(main())


class CountingProxy(Proxy):
    """Counts what clients ask members about themselves, and reads of single keys."""

    asked = 0

    def request(self, data: bytes) -> bytes:
        self.asked += data.count(b"/v3/maintenance/status") + data.count(b"/v3/kv/range")
        return data


@pytest.mark.parametrize("noted", [True, False])
def test_a_stream_whose_own_writes_come_back_asks_its_member_nothing(
    etcd: EmbeddedEtcd, prefix: bytes, noted: bool
) -> None:
    own = OwnKey(prefix + b"own", Duration(milliseconds=200), written_every=Duration(seconds=1))

    async def main() -> None:
        async with (
            CountingProxy(etcd.endpoint) as proxy,
            opened(proxy.connection()) as store,
            opened(etcd.connection()) as other,
            Follower(store, prefix + b"watched/", own),
        ):
            await until(lambda: bool(proxy.watches()))
            stream, before = proxy.watches(), 0
            for number in range(30):
                revision = await other.put(own.key, b"alive")
                if noted:
                    store.note_write(own.key, revision)
                if not number:
                    before = proxy.asked  # since the first write, nothing is to be asked
                await asyncio.sleep(0.1)
            assert proxy.watches() == stream
            assert (proxy.asked == before) is noted

    asyncio.run(main())


def test_a_half_open_stream_is_noticed_by_a_noted_write_of_another_process(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    own = OwnKey(prefix + b"own", Duration(milliseconds=200), written_every=Duration(hours=1))

    async def main() -> None:
        async with (
            Proxy(etcd.endpoint) as proxy,
            opened(proxy.connection()) as store,
            opened(etcd.connection()) as other,
            Follower(store, prefix + b"watched/", own) as follower,
        ):
            await until(lambda: bool(proxy.watches()))
            proxy.silence_watches()
            await other.put(prefix + b"watched/a", b"")
            async with asyncio.timeout(8):
                while prefix + b"watched/a" not in follower.seen:
                    store.note_write(own.key, await other.put(own.key, b"alive"))
                    await asyncio.sleep(0.1)

    asyncio.run(main())


def test_a_store_that_is_away_keeps_the_watch_silent(folder: Path) -> None:
    async def main() -> None:
        etcd = EmbeddedEtcd(folder, port=port)
        await etcd.start()
        async with opened(etcd.connection()) as store:
            await store.put(b"a", b"1")
            async with Follower(store, b"") as follower:
                await etcd.stop()
                with pytest.raises(StoreAway):
                    await store.get(b"a")
                again = EmbeddedEtcd(folder, port=port)
                await again.start()
                try:
                    async with opened(again.connection()) as other:
                        revision = await other.put(b"b", b"2")
                    await until(lambda: follower.revision >= revision)
                    assert set(follower.seen) == {b"a", b"b"}
                    assert len(follower.snapshots) == 1
                finally:
                    await again.stop()

    with reserved_ports(1) as (port,):
        asyncio.run(main())


@fault(
    "C29",
    without="holdfast.store.watch.watch:Watch._probe",
    by="tests.store.watch.test_watch:trust_any_member",
    sees=(TimeoutError, r'until\(lambda: set\(follower.seen\) == \{b"only"\}'),
)
def test_C29_a_wiped_store_gives_a_new_snapshot(folder: Path) -> None:
    async def main() -> None:
        etcd = EmbeddedEtcd(folder / "first", port=port)
        await etcd.start()
        async with opened(etcd.connection()) as store:
            for i in range(50):
                await store.put(b"%d" % i, b"")
            async with Follower(store, b"") as follower:
                await etcd.stop()
                async with EmbeddedEtcd(folder / "wiped", port=port) as wiped, opened(wiped.connection()) as other:
                    await other.put(b"only", b"")
                    await until(lambda: set(follower.seen) == {b"only"}, within=10)  # it may try only every 5 s by now
                    assert follower.snapshots[-1].revision < follower.snapshots[0].revision

    with reserved_ports(1) as (port,):
        asyncio.run(main())


@fault(
    "C29",
    without="holdfast.store.watch.continuity:HistoryProof.found",
    returns=True,
    sees=(TimeoutError, r'until\(lambda: set\(follower.seen\) == \{b"both"\}, within=8\)'),
)
@pytest.mark.parametrize("last", ["snapshot", "put", "delete"])
def test_C29_a_store_that_was_wiped_and_written_beyond_our_revision_unseen_gives_a_new_snapshot(
    folder: Path, last: str
) -> None:
    async def main() -> None:
        first, wiped = EmbeddedEtcd(folder / "first"), EmbeddedEtcd(folder / "wiped")
        async with first, wiped, Proxy(first.endpoint) as proxy, opened(proxy.connection()) as store:
            await store.txn([], [Put(b"lost", b""), Put(b"both", b""), Put(b"gone", b"")])
            async with Follower(store, b"") as follower, opened(wiped.connection()) as other:
                await until(lambda: bool(proxy.watches()))
                if last == "put":
                    await until_seen(follower, await store.put(b"both", b"again"))
                elif last == "delete":
                    await store.delete(b"gone")
                    await until(lambda: b"gone" not in follower.seen)
                proxy.target = "http://127.0.0.1:1"
                proxy.reset()
                while await other.put(b"both", b"new life") < follower.revision + 10:
                    pass
                proxy.target = wiped.endpoint
                await until(lambda: set(follower.seen) == {b"both"}, within=8)
                assert len(follower.snapshots) == 2

    asyncio.run(main())


@fault(
    "C29",
    without="holdfast.store.watch.continuity:HistoryProof.found",
    returns=True,
    sees=(TimeoutError, r'until\(lambda: set\(mirror.objects.values\(\)\) == \{b"new life"\}'),
)
def test_C29_where_history_was_compacted_before_a_wipe_the_store_is_known_by_the_value_seen_last(folder: Path) -> None:
    wipe_and_fill_alike(folder, "before the wipe")


async def trust_mod_revisions(gateway: object, found: object) -> int:
    """Stands in for the proof of history by a value."""
    return 1 << 62


@fault(
    "C29",
    without="holdfast.store.watch.listing:_proven",
    by="tests.store.watch.test_watch:trust_mod_revisions",
    sees=(TimeoutError, r'until\(lambda: set\(mirror.objects.values\(\)\) == \{b"new life"\}'),
)
def test_C29_where_history_was_compacted_after_a_wipe_the_store_is_known_by_its_values(folder: Path) -> None:
    wipe_and_fill_alike(folder, "after the wipe")


def wipe_and_fill_alike(folder: Path, forgotten: str) -> None:
    """Both stores are filled in the same order: keys, mod_revisions and their number are the same."""
    keys = [b"/p/%d" % number for number in range(8)]

    async def fill(store: EtcdStore, value: bytes) -> None:
        for key in keys:
            await store.put(key, value)

    async def main() -> None:
        first, wiped = EmbeddedEtcd(folder / "first"), EmbeddedEtcd(folder / "wiped")
        async with (
            first,
            wiped,
            Proxy(first.endpoint) as proxy,
            opened(proxy.connection()) as store,
            opened(first.connection()) as before,
            opened(wiped.connection()) as after,
        ):
            await fill(before, b"old")
            mirror: Mirror[bytes] = Mirror(store, b"/p/", lambda _, value: value)
            task = asyncio.create_task(mirror.run())
            await mirror.wait_synced()
            if forgotten == "before the wipe":
                await cut(proxy)
                await before.compact(await before.put(b"/elsewhere", b""))
                proxy.target = first.endpoint
                await until(lambda: mirror.lists == 2)
            await cut(proxy)
            await fill(after, b"new life")
            while (beyond := await after.put(b"/elsewhere", b"")) < mirror.revision + 10:
                pass
            if forgotten == "after the wipe":
                await after.compact(beyond)
            proxy.target = wiped.endpoint
            await until(lambda: set(mirror.objects.values()) == {b"new life"}, within=8)
            task.cancel()

    asyncio.run(main())


async def cut(proxy: Proxy) -> None:
    await until(lambda: bool(proxy.watches()))
    proxy.target = "http://127.0.0.1:1"
    proxy.reset()


async def until_same(follower: Follower, now: dict[bytes, tuple[int, bytes]]) -> None:
    await until(lambda: follower.seen == now)


async def until_seen(follower: Follower, revision: int) -> None:
    await until(lambda: follower.revision >= revision)


def test_a_stream_that_is_opened_again_at_the_same_store_goes_on_without_a_list(
    etcd: EmbeddedEtcd, prefix: bytes
) -> None:
    async def main() -> None:
        async with (
            Proxy(etcd.endpoint) as proxy,
            opened(proxy.connection()) as store,
            opened(etcd.connection()) as other,
        ):
            await other.put(prefix + b"a", b"1")
            async with Follower(store, prefix) as follower:
                for act in (other.put(prefix + b"b", b"2"), other.delete(prefix + b"b"), other.put(b"elsewhere", b"")):
                    await until(lambda: bool(proxy.watches()))
                    await act
                    await until_same(follower, await state(other, prefix))
                    proxy.reset()
                await until_seen(follower, await other.put(prefix + b"c", b"3"))
                assert len(follower.snapshots) == 1

    asyncio.run(main())


async def trust_any_member(watch: object, url: str, timeout: float) -> object:
    """Stands in for the look at where a member stands before it is watched."""
    from holdfast.store.transport import wire

    return wire.RangeReply(wire.Header())


def test_a_relist_brings_only_what_the_reader_does_not_hold(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    async def main() -> None:
        async with (
            Proxy(etcd.endpoint) as proxy,
            opened(proxy.connection()) as store,
            opened(etcd.connection()) as other,
        ):
            await other.txn([], [Put(prefix + b"%03d" % i, b"v") for i in range(100)])
            held = {key: revision for key, (revision, _) in (await state(other, prefix)).items()}
            watch = store.watch(prefix, held=held)
            await anext(watch)
            opening = asyncio.ensure_future(anext(watch))
            await until(lambda: bool(proxy.watches()))
            proxy.target = "http://127.0.0.1:1"
            proxy.reset()
            await other.delete(prefix + b"001")
            await other.compact(await other.put(prefix + b"002", b"changed"))
            proxy.target = etcd.endpoint
            snapshot = await opening
            assert isinstance(snapshot, Snapshot)
            assert [entry.key for entry in snapshot.items] == [prefix + b"002"]
            assert list(snapshot.unchanged) == [prefix + b"%03d" % i for i in (0, *range(3, 100))]

    asyncio.run(main())


def test_lists_of_a_prefix_are_spread_by_its_size() -> None:
    minute = Duration(seconds=60)
    sizes = (0, SMALL_PREFIX, (SMALL_PREFIX + LARGE_PREFIX) // 2, LARGE_PREFIX, 10 * LARGE_PREFIX)
    assert [spread_of(keys, minute).total_seconds() for keys in sizes] == [0, 0, 30, 60, 60]


class RecordingRandom(random.Random):
    """Draws 0, and records over which times lists were spread."""

    def __init__(self) -> None:
        super().__init__(7)
        self.spreads: list[float] = []

    def uniform(self, a: float, b: float) -> float:
        if a == 0:
            self.spreads.append(b)
        return a


@pytest.mark.parametrize(("keys", "expected"), [(100, 0.0), (SMALL_PREFIX + 490, 0.6)])
def test_a_small_prefix_is_listed_again_at_once_and_a_larger_one_later(
    etcd: EmbeddedEtcd, prefix: bytes, keys: int, expected: float
) -> None:
    async def main() -> None:
        rng = RecordingRandom()
        async with Proxy(etcd.endpoint) as proxy, opened(etcd.connection()) as other:
            store = EtcdStore(proxy.connection(), rng=rng, relist_spread=RELIST_SPREAD)
            for at in range(0, keys, 100):
                puts = [Put(prefix + b"%05d" % number, b"v") for number in range(at, min(at + 100, keys))]
                await other.txn([], puts)
            async with contextlib.AsyncExitStack() as closing, Follower(store, prefix) as follower:
                closing.push_async_callback(store.close)
                await until(lambda: bool(proxy.watches()))
                proxy.target = "http://127.0.0.1:1"
                proxy.reset()
                await other.compact(await other.put(prefix + b"new", b""))
                proxy.target = etcd.endpoint
                await until(lambda: len(follower.snapshots) == 2)
        assert rng.spreads == [pytest.approx(expected)]

    asyncio.run(main())


def test_a_mirror_knows_up_to_where_it_is_complete_by_a_write_of_its_own_key_elsewhere(
    etcd: EmbeddedEtcd, prefix: bytes
) -> None:
    """Whoever takes over waits for that: what was reported before the term began is there then."""
    own = OwnKey(prefix + b"leader", Duration(milliseconds=200))

    async def main() -> None:
        async with (
            Proxy(etcd.endpoint) as proxy,
            opened(proxy.connection()) as store,
            opened(etcd.connection()) as other,
        ):
            mirror: Mirror[bytes] = Mirror(store, prefix + b"watched/", lambda _key, value: value, own=own)
            following = asyncio.create_task(mirror.run())
            await mirror.wait_synced()
            await until(lambda: bool(proxy.watches()))
            first = await other.put(own.key, b"term 1")
            renewing = asyncio.create_task(renew(other))
            async with asyncio.timeout(8):
                await mirror.wait_seen(first)
            renewing.cancel()
            assert mirror.revision < mirror.seen_revision
            proxy.silence_watches()
            await other.put(prefix + b"watched/a", b"up")
            term = await other.put(own.key, b"term 2")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await mirror.wait_seen(term)
            renewing = asyncio.create_task(renew(other))
            async with asyncio.timeout(8):
                await mirror.wait_seen(term)
            assert mirror.objects == {prefix + b"watched/a": b"up"}
            for task in following, renewing:
                task.cancel()

    async def renew(other: EtcdStore) -> None:
        while True:
            await other.put(own.key, b"renewed")
            await asyncio.sleep(0.1)

    asyncio.run(main())
