"""A quiet watch keeps up with compaction by own writes that came back."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from holdfast.model.base.time import Duration
from holdfast.store.api import Entry, Event, OwnKey, Put
from holdfast.store.embedded.server import EmbeddedEtcd
from holdfast.store.watch.own_writes import SETTLED_S, QuietPlace
from holdfast.testing.fault import fault
from tests.store.harness import Follower, opened, until
from tests.store.proxy import Proxy

OWN = OwnKey(b"own", Duration(seconds=10))
PATIENT = Duration(seconds=30)
"""Deadline of an etcd whose disk is busy with other tests."""


def write(revision: int) -> Event:
    return Event(Entry(OWN.key, b"alive", 1, revision))


def test_an_own_write_counts_once_two_intervals_were_quiet() -> None:
    place = QuietPlace(OWN)
    assert place.delivered(write(5), 100.0) is None
    assert place.delivered(write(6), 119.0) is None
    assert place.delivered(write(7), 120.0) == write(5)
    assert place.delivered(write(8), 130.0) is None
    assert place.delivered(write(9), 140.0) == write(7)


def test_a_change_or_a_new_stream_starts_over() -> None:
    place = QuietPlace(OWN)
    place.delivered(write(5), 100.0)
    place.reopened()
    assert place.delivered(write(6), 120.0) is None
    assert place.delivered(write(7), 140.0) == write(6)


def test_a_short_interval_is_not_enough_for_a_watch_that_catches_up() -> None:
    place = QuietPlace(OwnKey(b"own", Duration(milliseconds=10)))
    place.delivered(write(5), 100.0)
    assert place.delivered(write(6), 100.0 + SETTLED_S / 2) is None
    assert place.delivered(write(7), 100.0 + SETTLED_S) == write(5)


@fault(
    "C52",
    without="holdfast.store.watch.own_writes:QuietPlace.delivered",
    returns=None,
    sees=(AssertionError, r"len\(follower.snapshots\) == 1"),
)
def test_C52_a_quiet_watch_resumes_after_a_compaction_without_a_list(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    own = OwnKey(prefix + b"own", Duration(milliseconds=100))

    async def main() -> None:
        async with (
            Proxy(etcd.endpoint) as proxy,
            opened(proxy.connection()) as store,
            opened(etcd.connection()) as other,
        ):
            await other.put(prefix + b"watched/a", b"")
            async with Follower(store, prefix + b"watched/", own) as follower:
                await until(lambda: bool(proxy.watches()))
                written = [await store.put(own.key, b"alive")]
                begun = asyncio.get_running_loop().time()
                while asyncio.get_running_loop().time() < begun + 3 * SETTLED_S:
                    await asyncio.sleep(0.1)
                    written.append(await store.put(own.key, b"alive"))
                await other.compact(written[1])
                proxy.reset()
                await other.put(prefix + b"watched/b", b"")
                await until(lambda: prefix + b"watched/b" in follower.seen, within=5)
                assert len(follower.snapshots) == 1

    asyncio.run(main())


def test_C52_what_is_written_with_the_own_key_in_one_transaction_is_not_lost(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    own = OwnKey(prefix + b"own", Duration(milliseconds=100))

    async def main() -> None:
        async with (
            Proxy(etcd.endpoint) as proxy,
            opened(proxy.connection()) as store,
            opened(replace(etcd.connection(), deadline=PATIENT)) as other,
            Follower(store, prefix + b"watched/", own) as follower,
        ):
            for number in range(30):
                await other.txn([], [Put(own.key, b"alive"), Put(prefix + b"watched/%d" % number, b"")])
                await asyncio.sleep(0.05)
                if number % 10 == 9:
                    proxy.reset()
            await until(lambda: len(follower.seen) == 30)
            assert len(follower.history) == 30

    asyncio.run(main())
