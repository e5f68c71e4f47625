"""The mirror: a prefix as objects, and what has changed since its reader last asked."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import pytest

from holdfast.model.base.bad import Bad, BadReason
from holdfast.model.base.kind import Kind
from holdfast.model.base.time import Duration, Instant
from holdfast.model.calico.endpoint_status import ENDPOINT_STATUS
from holdfast.store.api import GATHER, Events, Keys, OwnKey, Put, Snapshot, StoreAway, StoreError
from holdfast.store.client import EtcdStore
from holdfast.store.embedded.server import EmbeddedEtcd
from holdfast.store.mirror.mirror import Mirror, _State
from holdfast.store.mirror.pending import Delta
from holdfast.store.transport.gateway import Gateway
from holdfast.store.watch.listing import Wait, full_list
from holdfast.testing import FakeStore
from holdfast.testing.fault import fault
from holdfast.testing.store import watch as watching
from holdfast.testing.store.client import FakeClient
from holdfast.testing.store.link import Fate, always_answered
from tests.store.harness import opened, until
from tests.store.proxy import Proxy

PREFIX = b"/things/"
BOOT = Instant(10**12)


def text(key: bytes, value: bytes) -> str | Bad:
    """Decodes a value; `?` stands for rubbish, `#` for an object of another kind."""
    if value.startswith(b"#"):
        return Bad(key, BadReason.OTHER_KIND, "not ours")
    return Bad(key, BadReason.NOT_JSON, "rubbish") if value.startswith(b"?") else value.decode()


@dataclass
class Ground:
    """A mirror on a fake store, with a clock that the test moves."""

    fake: FakeStore = field(default_factory=FakeStore)
    time: Instant = BOOT

    def __post_init__(self) -> None:
        self.writer = self.fake.client("writer")
        self.reader = self.fake.client("reader")
        self.mirror: Mirror[str] = Mirror(self.reader, PREFIX, text, now=lambda: self.time)

    async def put(self, name: str, value: bytes) -> int:
        return await self.writer.put(PREFIX + name.encode(), value)

    async def caught_up(self) -> None:
        await until(lambda: self.mirror.revision >= self.fake.revision, within=10)

    async def taken(self) -> dict[str, str | None]:
        return named(await self.mirror.take())

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Ground]:
        task = asyncio.create_task(self.mirror.run())
        try:
            await self.mirror.wait_synced()
            yield self
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def named(deltas: object) -> dict[str, str | None]:
    assert isinstance(deltas, list)
    return {d.key.removeprefix(PREFIX).decode(): d.new for d in deltas if isinstance(d, Delta)}


def test_the_first_snapshot_is_a_change_of_every_key() -> None:
    async def main() -> None:
        ground = Ground()
        await ground.put("a", b"1")
        await ground.put("b", b"2")
        async with ground.running():
            assert await ground.taken() == {"a": "1", "b": "2"}
            assert dict(ground.mirror.objects) == {PREFIX + b"a": "1", PREFIX + b"b": "2"}
            assert ground.mirror.mod_revision(PREFIX + b"b") == ground.fake.revision

    asyncio.run(main())


def test_changes_of_one_key_are_one_change() -> None:
    async def main() -> None:
        ground = Ground()
        await ground.put("a", b"1")
        async with ground.running():
            await ground.taken()
            for i in range(100):
                await ground.put("a", b"%d" % i)
            await ground.caught_up()
            assert ground.mirror.backlog == 1
            assert await ground.taken() == {"a": "99"}

    asyncio.run(main())


def test_a_key_that_came_and_went_is_handed_out_because_a_reader_may_have_seen_it_meanwhile() -> None:
    async def main() -> None:
        ground = Ground()
        async with ground.running():
            await ground.put("passing", b"1")
            await ground.writer.delete(PREFIX + b"passing")
            await ground.put("stays", b"2")
            await ground.caught_up()
            assert await ground.taken() == {"passing": None, "stays": "2"}

    asyncio.run(main())


def test_a_deleted_key_is_handed_out_without_an_object() -> None:
    async def main() -> None:
        ground = Ground()
        await ground.put("a", b"last")
        async with ground.running():
            await ground.taken()
            await ground.writer.delete(PREFIX + b"a")
            assert await ground.taken() == {"a": None}

    asyncio.run(main())


def test_live_changes_are_handed_out_before_those_of_a_snapshot() -> None:
    async def main() -> None:
        ground = Ground()
        for i in range(5):
            await ground.put(f"old{i}", b"1")
        async with ground.running():
            await ground.put("zlive", b"2")
            await ground.caught_up()
            first = await ground.mirror.take(1)
            assert [(d.key, d.live) for d in first] == [(PREFIX + b"zlive", True)]
            assert len(await ground.mirror.take(100)) == 5

    asyncio.run(main())


def test_deletions_during_a_lost_watch_are_found() -> None:
    async def main() -> None:
        ground = Ground()
        await ground.put("a", b"1")
        await ground.put("b", b"2")
        async with ground.running():
            await ground.taken()
            ground.reader.link.lose_continuity()
            await ground.writer.delete(PREFIX + b"a")
            assert await ground.taken() == {"a": None}

    asyncio.run(main())


@dataclass(eq=False)
class Opaque:
    """An object that is equal to itself only: two readings of the same bytes look different."""

    value: bytes


@fault(
    "C15",
    without="holdfast.store.mirror.mirror:_Held.__getitem__",
    returns=-1,
    sees=(AssertionError, r"\[delta.key for delta in await mirror.take\(1_000\)\] == \[prefix \+"),
)
def test_C15_a_second_snapshot_reports_nothing_that_has_not_changed(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    async def main() -> None:
        async with (
            Proxy(etcd.endpoint) as proxy,
            opened(proxy.connection()) as store,
            opened(etcd.connection()) as other,
        ):
            await other.txn([], [Put(prefix + b"%d" % i, b"same") for i in range(100)])
            mirror: Mirror[Opaque] = Mirror(store, prefix, lambda _, value: Opaque(value))
            task = asyncio.create_task(mirror.run())
            assert len(await mirror.take(1_000)) == 100
            await until(lambda: bool(proxy.watches()))
            proxy.target = "http://127.0.0.1:1"
            proxy.reset()
            await other.put(prefix + b"7", b"lost in the compaction")
            await other.compact(await other.put(prefix + b"7", b"changed"))
            proxy.target = etcd.endpoint
            assert [delta.key for delta in await mirror.take(1_000)] == [prefix + b"7"]
            task.cancel()

    asyncio.run(main())


def test_a_value_written_again_unchanged_is_no_change() -> None:
    async def main() -> None:
        ground = Ground()
        await ground.put("a", b"1")
        async with ground.running():
            await ground.taken()
            revision = await ground.put("a", b"1")
            await ground.put("b", b"2")
            await ground.caught_up()
            assert await ground.taken() == {"b": "2"}
            assert ground.mirror.mod_revision(PREFIX + b"a") == revision

    asyncio.run(main())


def absent_if_bad(mirror: Mirror[str], into: _State[str], bad: Bad, key: bytes, known: str | None) -> None:
    """Stands in for the handling of bad values: what cannot be decoded is not there."""
    into.objects.pop(key, None)


@fault(
    "C39",
    without="holdfast.store.mirror.mirror:Mirror._keep_last_good",
    by="tests.store.mirror.test_mirror:absent_if_bad",
    sees=(KeyError, r'ground.mirror.objects\[PREFIX \+ b"a"\] == "good"'),
)
def test_C39_a_value_that_cannot_be_decoded_leaves_the_last_good_object() -> None:
    async def main() -> None:
        ground = Ground()
        async with ground.running():
            await ground.put("a", b"good")
            await ground.put("end", b"0")
            await ground.caught_up()
            await ground.taken()
            await ground.put("a", b"?")
            await ground.put("end", b"1")
            await ground.caught_up()
            assert await ground.taken() == {"end": "1"}
            assert ground.mirror.objects[PREFIX + b"a"] == "good"
            assert ground.mirror.bad[PREFIX + b"a"].reason is BadReason.NOT_JSON
            assert list(ground.mirror.unreadable) == []

    asyncio.run(main())


def test_a_bad_value_without_an_earlier_object_is_listed_as_unreadable_until_it_is_good_or_gone() -> None:
    async def main() -> None:
        ground = Ground()
        await ground.put("a", b"?")
        await ground.put("b", b"?")
        async with ground.running():
            assert list(ground.mirror.unreadable) == [PREFIX + b"a", PREFIX + b"b"]
            assert dict(ground.mirror.objects) == {}
            await ground.put("a", b"mended")
            await ground.writer.delete(PREFIX + b"b")
            assert await ground.taken() == {"a": "mended"}
            await ground.caught_up()
            assert dict(ground.mirror.bad) == {}

    asyncio.run(main())


def test_the_last_good_object_survives_a_new_snapshot() -> None:
    async def main() -> None:
        ground = Ground()
        await ground.put("a", b"good")
        async with ground.running():
            await ground.taken()
            await ground.put("a", b"?")
            await ground.caught_up()
            ground.reader.link.lose_continuity()
            await ground.put("b", b"1")
            assert await ground.taken() == {"b": "1"}
            assert ground.mirror.objects[PREFIX + b"a"] == "good"
            assert list(ground.mirror.bad) == [PREFIX + b"a"]

    asyncio.run(main())


def test_a_bad_value_does_not_make_the_last_good_object_any_newer() -> None:
    async def main() -> None:
        ground, key = Ground(), PREFIX + b"a"
        written = await ground.writer.put(key, b"good")
        async with ground.running():
            await ground.taken()
            for _ in range(2):
                await ground.put("a", b"?")
                await ground.caught_up()
                assert (ground.mirror.good_revision(key), ground.mirror.mod_revision(key) > written) == (written, True)
            ground.reader.link.lose_continuity()
            await ground.put("b", b"1")
            await ground.taken()
            assert ground.mirror.good_revision(key) == written
            mended = await ground.writer.put(key, b"better")
            await ground.taken()
            assert ground.mirror.good_revision(key) == ground.mirror.mod_revision(key) == mended
            await ground.put("a", b"?")
            await ground.writer.delete(key)
            await ground.put("a", b"?")
            await ground.caught_up()
            assert ground.mirror.good_revision(key) == 0

    asyncio.run(main())


def test_an_object_of_another_kind_is_neither_there_nor_bad() -> None:
    async def main() -> None:
        ground = Ground()
        await ground.put("a", b"#")
        await ground.put("b", b"1")
        async with ground.running():
            assert await ground.taken() == {"b": "1"}
            assert dict(ground.mirror.bad) == {}

    asyncio.run(main())


def raise_on_rubbish(kind: Kind[object, object], key: bytes, value: bytes) -> object:
    """Stands in for a decoder that never raises."""
    return kind._decoder.decode(value)


@fault(
    "C13",
    without="holdfast.model.base.kind:Kind.decode",
    by="tests.store.mirror.test_mirror:raise_on_rubbish",
    sees=(AssertionError, r'list\(mirror.objects\) == \[PREFIX \+ b"good"\]'),
)
def test_C13_a_status_that_is_json_but_no_object_does_not_stop_its_neighbours() -> None:
    async def main() -> None:
        fake = FakeStore()
        writer = fake.client("writer")
        good = b'{"status":"up"}'
        await writer.put(PREFIX + b"bad", b'["not an object"]')
        await writer.put(PREFIX + b"good", good)
        mirror = Mirror(fake.client("reader"), PREFIX, ENDPOINT_STATUS.decode)
        task = asyncio.create_task(mirror.run())
        await until(lambda: mirror.synced or task.done())
        assert list(mirror.objects) == [PREFIX + b"good"]
        await writer.put(PREFIX + b"bad", b"7")
        await writer.put(PREFIX + b"later", good)
        await until(lambda: PREFIX + b"later" in mirror.objects or task.done())
        assert PREFIX + b"later" in mirror.objects
        assert list(mirror.unreadable) == [PREFIX + b"bad"]
        task.cancel()

    asyncio.run(main())


class Remembering(FakeClient):
    """A client that remembers what its watch has handed out."""

    def __init__(self, fake: FakeStore) -> None:
        super().__init__(fake, "reader", Duration(seconds=5))
        self.handed_out: list[Snapshot | Events] = []

    async def watch(
        self,
        *prefixes: Keys,
        own: OwnKey | None = None,
        held: Mapping[bytes, int] | None = None,
        parts: bool = False,
        gather: Duration = GATHER,
    ) -> AsyncGenerator[Snapshot | Events, None]:
        async for seen in super().watch(*prefixes, own=own, held=held, parts=parts, gather=gather):
            self.handed_out.append(seen)
            yield seen


def test_a_snapshot_is_taken_over_in_key_order_and_leaves_memory_meanwhile() -> None:
    keys = [PREFIX + b"%04d" % number for number in range(1_234)]

    async def main() -> None:
        fake = FakeStore()
        for key in reversed(keys):
            await fake.client("writer").put(key, b"x")
        reader = Remembering(fake)
        mirror: Mirror[str] = Mirror(reader, PREFIX, text)
        task = asyncio.create_task(mirror.run())
        await mirror.wait_synced()
        assert list(mirror.objects) == keys
        assert len(reader.handed_out) > 10
        assert all(isinstance(part, Snapshot) and part.items == [] for part in reader.handed_out)
        task.cancel()

    asyncio.run(main())


def test_C14_a_list_that_breaks_between_two_parts_changes_nothing_and_begins_anew() -> None:
    async def main() -> None:
        fake = FakeStore()
        writer = fake.client("writer")

        async def write(value: bytes) -> None:
            for number in range(250):
                await writer.put(PREFIX + b"%03d" % number, value)

        await write(b"old")
        reader = Remembering(fake)
        mirror: Mirror[str] = Mirror(reader, PREFIX, text)
        task = asyncio.create_task(mirror.run())
        await mirror.wait_synced()
        shown = dict(mirror.objects)
        reader.link.mute_watches()
        await write(b"new")
        reader.handed_out.clear()
        reader.link.fate_of = lambda method: Fate.REFUSED if method == "list" and reader.handed_out else Fate.ANSWERED
        reader.link.lose_continuity()
        await until(lambda: len(reader.handed_out) > 0)
        await writer.delete(PREFIX + b"000")
        assert mirror.objects == shown
        reader.link.fate_of = always_answered
        await until(lambda: mirror.lists == 2)
        assert mirror.objects == dict.fromkeys(sorted(shown)[1:], "new")
        assert len([seen for seen in reader.handed_out if isinstance(seen, Snapshot) and seen.first]) == 2
        task.cancel()

    asyncio.run(main())


def test_lag_is_counted_in_revisions_and_in_the_age_of_the_oldest_change() -> None:
    async def main() -> None:
        ground = Ground()
        async with ground.running():
            assert ground.mirror.lag(BOOT) == ground.mirror.lag(BOOT + Duration(seconds=9))
            assert ground.mirror.lag(BOOT).revisions == 0
            for name in ("a", "b", "a"):
                await ground.put(name, name.encode())
            await ground.caught_up()
            lag = ground.mirror.lag(BOOT + Duration(seconds=7))
            assert (lag.revisions, lag.oldest) == (3, Duration(seconds=7))
            await ground.taken()
            assert ground.mirror.lag(BOOT + Duration(seconds=9)).oldest == Duration(0)

    asyncio.run(main())


async def give_up(error: StoreAway) -> None:
    raise error


async def half_a_list(gateway: Gateway, prefixes: Sequence[bytes], wait: Wait) -> AsyncGenerator[Snapshot, None]:
    """Stands in for a list that is complete or not at all: it takes what it has for all when the connection breaks."""
    last: Snapshot | None = None
    try:
        async with aclosing(full_list(gateway, prefixes, give_up)) as parts:
            async for last in parts:
                yield last
    except StoreAway:
        if last is None:
            raise
        yield Snapshot(last.revision, [], first=False, more=False)


@fault(
    "C14",
    without="holdfast.store.watch.listing:full_list",
    by="tests.store.mirror.test_mirror:half_a_list",
    sees=(AssertionError, r"len\(mirror.objects\) == 4_000"),
)
def test_C14_a_snapshot_that_breaks_half_way_changes_nothing(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    async def fill(store: EtcdStore, values: bytes) -> None:
        for start in range(0, 4_000, 100):
            await store.txn([], [Put(prefix + b"%04d" % i, values * 100) for i in range(start, start + 100)])

    async def main() -> None:
        async with (
            Proxy(etcd.endpoint) as proxy,
            opened(proxy.connection()) as store,
            opened(etcd.connection()) as other,
        ):
            await fill(other, b"first")
            mirror: Mirror[bytes] = Mirror(store, prefix, lambda _, value: value)
            task = asyncio.create_task(mirror.run())
            await mirror.wait_synced()
            assert len(mirror.objects) == 4_000
            await until(lambda: bool(proxy.watches()))
            # Nothing gets through until everything was rewritten, 100 keys deleted and the history compacted; then
            # each connection breaks after 1.5 MB: the first page has less, the second more.
            proxy.target, proxy.cut_answers_after = "http://127.0.0.1:1", 1_500_000
            proxy.reset()
            await fill(other, b"second")
            await other.delete(prefix + b"0000", end=prefix + b"0100")
            await other.compact((await other.status())[0].revision)
            proxy.target = etcd.endpoint
            flows = len(proxy.flows)
            await until(lambda: len(proxy.flows) > flows + 8)
            assert len(mirror.objects) == 4_000
            proxy.cut_answers_after = None
            await until(lambda: len(mirror.objects) == 3_900)
            assert set(mirror.objects.values()) == {b"second" * 100}
            task.cancel()

    asyncio.run(main())


def test_a_store_that_refuses_is_reported_and_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    async def main() -> None:
        here = Ground()
        watch = here.reader.watch

        def refusing(*words: Any, **more: Any) -> AsyncIterator[Snapshot | Events]:
            if not said:
                raise StoreError("not now")  # anything that the store may say, not only a refusal of our credentials
            return watch(*words, **more)

        monkeypatch.setattr(here.reader, "watch", refusing)
        await here.put("a", b"1")
        task = asyncio.create_task(
            here.mirror.keep_running(lambda error: said.append(str(error)), Duration(milliseconds=1))
        )
        await here.mirror.wait_synced()
        task.cancel()
        assert here.mirror.objects == {PREFIX + b"a": "1"}

    asyncio.run(main())
    assert said == ["not now"]


@pytest.mark.parametrize("size", [20_000])
def test_a_large_snapshot_leaves_the_loop_free_between_slices(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "PART", size)  # in one part, so that the mirror's own turns are counted

    async def main() -> None:
        fake = FakeStore()
        writer = fake.client("writer")
        for start in range(0, size, 100):
            await writer.txn([], [Put(PREFIX + b"%06d" % i, b"x") for i in range(start, start + 100)])
        mirror: Mirror[bytes] = Mirror(fake.client("reader"), PREFIX, lambda _, value: value)
        task = asyncio.create_task(mirror.run())
        turns = 0
        while not mirror.synced:
            await asyncio.sleep(0)
            turns += 1
        assert turns > 2 * size / 1_000
        task.cancel()

    asyncio.run(main())


def test_what_a_new_list_shows_waits_from_the_moment_that_it_is_shown() -> None:
    """A reader that looks at any time finds pending whatever is not as it took it."""

    async def main() -> None:
        ground = Ground()
        keys = [PREFIX + b"%04d" % number for number in range(2_000)]
        for start in range(0, len(keys), 100):
            await ground.writer.txn([], [Put(key, b"old") for key in keys[start : start + 100]])
        async with ground.running():
            known = {delta.key: delta.new for delta in await ground.mirror.take(len(keys))}
            ground.reader.link.mute_watches()
            for start in range(0, len(keys), 100):
                await ground.writer.txn([], [Put(key, b"new") for key in keys[start : start + 100]])
            ground.reader.link.lose_continuity()
            while ground.mirror.lists == 1:
                await asyncio.sleep(0)
                objects = ground.mirror.objects
                assert all(objects[key] is known[key] or ground.mirror.is_pending(key) for key in keys)
            told = {delta.key: delta.new for delta in await ground.mirror.take(len(keys))}
            assert told == dict.fromkeys(keys, "new")

    asyncio.run(main())


def test_objects_that_take_long_give_the_loop_its_turn_before_a_slice_is_full() -> None:
    decoded: list[bytes] = []

    def slow(key: bytes, value: bytes) -> bytes:
        time.sleep(0.001)
        decoded.append(key)
        return value

    async def main() -> None:
        fake = FakeStore()
        await fake.client("writer").txn([], [Put(PREFIX + b"%03d" % i, b"x") for i in range(100)])
        mirror: Mirror[bytes] = Mirror(fake.client("reader"), PREFIX, slow)
        task = asyncio.create_task(mirror.run())
        while not decoded:  # noqa: ASYNC110 -- each turn of the loop is looked at
            await asyncio.sleep(0)
        assert len(decoded) < 100
        await mirror.wait_synced()
        assert len(mirror.objects) == 100
        task.cancel()

    asyncio.run(main())


def test_of_a_store_that_was_restored_nothing_counts_as_shown_because_it_once_was() -> None:
    async def main() -> None:
        ground = Ground()
        own = OwnKey(b"/elsewhere", Duration(seconds=1))
        ground.mirror = Mirror(ground.reader, PREFIX, text, own=own, now=lambda: ground.time)
        async with ground.running():
            before = await ground.put("a", b"x")
            for _ in range(50):
                await ground.writer.put(own.key, b"renewed")
            await until(lambda: ground.mirror.seen_revision >= 50, within=10)
            ground.fake.restore(before)
            await until(lambda: ground.mirror.lists == 2, within=10)
            assert ground.mirror.seen_revision == ground.mirror.revision < 50

    asyncio.run(main())
