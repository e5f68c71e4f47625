"""Every fault that FakeStore offers really happens, to the client that it was asked for and to nobody else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from holdfast.model.base.time import seconds
from holdfast.store.api import (
    Aspect,
    Compacted,
    Compare,
    Delete,
    Events,
    LeaseGone,
    NoSpace,
    OwnKey,
    Put,
    Snapshot,
    StoreAway,
)
from holdfast.testing import FakeClient, FakeStore, Fate, World, simulate


def simulated(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Makes a test of a scenario: one seed, virtual time."""

    def test() -> None:
        simulate(1, scenario)

    test.__name__ = scenario.__name__
    return test


async def away(call: Awaitable[object]) -> StoreAway:
    with pytest.raises(StoreAway) as raised:
        await call
    return raised.value


def value(fake: FakeStore, key: bytes) -> bytes | None:
    entry = fake.keys.get(key)
    return entry.value if entry else None


@simulated
async def test_a_lost_reply_leaves_the_write_applied_and_its_caller_uncertain(world: World) -> None:
    store = world.node("a").store(deadline=seconds(3))
    store.link.next_calls(Fate.REPLY_LOST)
    assert (await away(store.put(b"k", b"v"))).uncertain
    assert world.time == pytest.approx(3)
    assert value(world.store, b"k") == b"v"


@simulated
async def test_a_lost_request_leaves_nothing_applied_and_its_caller_uncertain(world: World) -> None:
    store = world.node("a").store()
    store.link.next_calls(Fate.REQUEST_LOST)
    assert (await away(store.put(b"k", b"v"))).uncertain
    assert value(world.store, b"k") is None


@simulated
async def test_a_refused_connection_is_known_at_once_and_certain(world: World) -> None:
    store = world.node("a").store()
    store.link.next_calls(Fate.REFUSED)
    assert not (await away(store.put(b"k", b"v"))).uncertain
    assert world.time == 0
    assert value(world.store, b"k") is None


@simulated
async def test_a_read_that_is_lost_leaves_nothing_uncertain(world: World) -> None:
    store = world.node("a").store()
    store.link.next_calls(Fate.REPLY_LOST)
    assert not (await away(store.get(b"k"))).uncertain


@simulated
async def test_a_fate_meets_only_the_calls_it_was_asked_for(world: World) -> None:
    store = world.node("a").store()
    store.link.next_calls(Fate.REFUSED, count=2, of="txn")
    await store.put(b"k", b"v")
    await away(store.txn([], [Put(b"k", b"1")]))
    await away(store.txn([], [Put(b"k", b"2")]))
    await store.txn([], [Put(b"k", b"3")])
    assert value(world.store, b"k") == b"3"


@simulated
async def test_weather_decides_about_every_call(world: World) -> None:
    store = world.node("a").store()
    store.link.fate_of = lambda method: Fate.REFUSED if method == "put" else Fate.ANSWERED
    await away(store.put(b"k", b"v"))
    assert await store.get(b"k") is None


@simulated
async def test_latency_is_paid_there_and_back(world: World) -> None:
    store = world.node("a").store()
    store.link.latency = lambda: 0.25
    await store.get(b"k")
    assert world.time == pytest.approx(0.5)


@simulated
async def test_a_slow_request_is_applied_after_its_caller_gave_up(world: World) -> None:
    store = world.node("a").store(deadline=seconds(1))
    store.link.latency = lambda: 2.0
    assert (await away(store.put(b"k", b"late"))).uncertain
    assert value(world.store, b"k") is None
    await asyncio.sleep(1.5)
    assert value(world.store, b"k") == b"late"


@simulated
async def test_a_partition_cuts_off_one_client_alone(world: World) -> None:
    cut, other = world.node("a").store(), world.node("b").store()
    cut.link.cut()
    await other.put(b"k", b"v")
    await away(cut.get(b"k"))
    cut.link.heal()
    assert (await cut.get(b"k")) == (await other.get(b"k"))


@simulated
async def test_a_reset_ends_the_calls_under_way_at_once(world: World) -> None:
    store = world.node("a").store()
    store.link.latency = lambda: 1.0
    call = asyncio.ensure_future(store.put(b"k", b"v"))
    await asyncio.sleep(1.5)
    store.link.disconnect()
    assert (await away(call)).uncertain
    assert world.time == pytest.approx(1.5)
    assert value(world.store, b"k") == b"v"


class Watched:
    """A watch read in the background."""

    def __init__(self, client: FakeClient, prefix: bytes, **options: Any) -> None:
        self.heard: list[Snapshot | Events] = []
        self._task = asyncio.ensure_future(self._read(client, prefix, options))

    async def _read(self, client: FakeClient, prefix: bytes, options: dict[str, Any]) -> None:
        async with contextlib.aclosing(client.watch(prefix, **options)) as news:
            async for item in news:
                self.heard.append(item)

    @property
    def kinds(self) -> list[str]:
        return [type(item).__name__ for item in self.heard]


@simulated
async def test_a_watch_is_silent_in_a_partition_and_catches_up_without_a_new_snapshot(world: World) -> None:
    cut, other = world.node("a").store(), world.node("b").store()
    watched = Watched(cut, b"k")
    await asyncio.sleep(1)
    cut.link.cut()
    await other.put(b"k1", b"")
    await other.put(b"k2", b"")
    await asyncio.sleep(100)
    assert watched.kinds == ["Snapshot"]
    cut.link.heal()
    await asyncio.sleep(1)
    assert watched.kinds == ["Snapshot", "Events"]
    assert [event.key for event in watched.heard[1].batch] == [b"k1", b"k2"]  # type: ignore[union-attr]


@simulated
async def test_a_compaction_during_a_partition_costs_the_watch_a_new_snapshot(world: World) -> None:
    cut, other = world.node("a").store(), world.node("b").store()
    watched = Watched(cut, b"k")
    await asyncio.sleep(1)
    cut.link.cut()
    await other.put(b"k1", b"")
    await other.delete(b"k1")
    await other.put(b"k2", b"")
    world.store.compact()
    cut.link.heal()
    await asyncio.sleep(1)
    assert watched.kinds == ["Snapshot", "Snapshot"]
    assert [entry.key for entry in watched.heard[1].items] == [b"k2"]  # type: ignore[union-attr]


@simulated
async def test_a_watch_that_begins_while_the_store_is_away_waits_for_it(world: World) -> None:
    store = world.node("a").store()
    store.link.cut()
    watched = Watched(store, b"k")
    await asyncio.sleep(60)
    assert watched.heard == []
    store.link.heal()
    await asyncio.sleep(10)
    assert watched.kinds == ["Snapshot"]


@simulated
async def test_a_later_snapshot_leaves_out_what_its_reader_holds(world: World) -> None:
    store = world.node("a").store()
    same, changed = await store.put(b"same", b""), await store.put(b"changed", b"1")
    watched = Watched(store, b"", held={b"same": same, b"changed": changed})
    await asyncio.sleep(1)
    store.link.lose_continuity()
    world.store.apply("other", (), [Put(b"changed", b"2")])
    await asyncio.sleep(1)
    first, second = watched.heard
    assert isinstance(first, Snapshot)
    assert isinstance(second, Snapshot)
    assert ([e.key for e in first.items], list(first.unchanged)) == ([b"changed", b"same"], [])
    assert ([e.key for e in second.items], list(second.unchanged)) == ([b"changed"], [b"same"])


@simulated
async def test_C29_after_a_restore_nothing_that_a_reader_holds_counts(world: World) -> None:
    store = world.node("a").store()
    backup = await store.put(b"key", b"0")
    revision = await store.put(b"key", b"before")
    watched = Watched(store, b"", held={b"key": revision})
    await asyncio.sleep(1)
    world.store.restore(backup)
    world.store.apply("other", (), [Put(b"key", b"after")])
    await asyncio.sleep(1)
    again = watched.heard[-1]
    assert isinstance(again, Snapshot)
    assert [(entry.mod_revision, entry.value) for entry in again.items] == [(revision, b"after")]


@simulated
async def test_C38_a_half_open_stream_is_silent_for_ever_without_an_own_key(world: World) -> None:
    store = world.node("a").store()
    watched = Watched(store, b"k")
    await asyncio.sleep(1)
    store.link.mute_watches()
    await store.put(b"k", b"")
    await asyncio.sleep(3_600)
    assert watched.kinds == ["Snapshot"]


@simulated
async def test_C38_an_own_write_that_does_not_come_back_opens_the_stream_anew(world: World) -> None:
    store = world.node("a").store()
    watched = Watched(store, b"k", own=OwnKey(b"own", seconds(2)))
    await asyncio.sleep(1)
    store.link.mute_watches()
    await store.put(b"own", b"")
    await store.put(b"k", b"")
    await asyncio.sleep(10)
    assert watched.kinds == ["Snapshot", "Events"]


@simulated
async def test_a_stale_member_answers_from_the_past(world: World) -> None:
    stale, fresh = world.node("a").store(), world.node("b").store()
    then = await fresh.put(b"k", b"old")
    await fresh.put(b"k", b"new")
    stale.go_stale(then)
    found = await stale.get(b"k")
    assert found is not None
    assert found.value == b"old"
    assert [member.revision for member in await stale.status()] == [then]
    stale.go_fresh()
    assert await stale.get(b"k") == await fresh.get(b"k")


@simulated
async def test_C29_a_restored_store_goes_backwards_and_uses_revisions_again(world: World) -> None:
    store = world.node("a").store()
    backup = await store.put(b"k1", b"")
    await store.put(b"k2", b"")
    lost = await store.put(b"k3", b"")
    watched = Watched(store, b"k")
    await asyncio.sleep(1)
    world.store.restore(backup)
    assert await store.put(b"k4", b"") < lost
    await asyncio.sleep(1)
    last = watched.heard[-1]
    assert isinstance(last, Snapshot)
    assert [entry.key for entry in last.items] == [b"k1", b"k4"]


@simulated
async def test_C29_a_wiped_store_is_empty_at_the_first_revision_with_its_old_identity(world: World) -> None:
    store = world.node("a").store()
    await store.put(b"k", b"")
    (before,) = await store.status()
    world.store.wipe()
    (after,) = await store.status()
    assert after.revision == 1
    assert (after.cluster_id, after.member_id, after.raft_term) == (
        before.cluster_id,
        before.member_id,
        before.raft_term,
    )
    assert await store.get(b"k") is None


@simulated
async def test_C35_out_of_space_refuses_puts_and_leases_but_not_deletes(world: World) -> None:
    store = world.node("a").store()
    lease = await store.grant(seconds(10))
    await store.put(b"k", b"", lease=lease)
    world.store.run_out_of_space()
    for refused in (store.put(b"k", b""), store.grant(seconds(10)), store.txn([], [], [Put(b"k", b"")])):
        with pytest.raises(NoSpace):
            await refused
    assert await store.alarms() == ("NOSPACE",)
    await store.renew(lease)
    await store.txn([Compare(b"k", Aspect.VERSION, 1)], [Delete(b"k")])
    assert value(world.store, b"k") is None
    world.store.regain_space()
    await store.put(b"k", b"")


@simulated
async def test_C23_a_change_of_the_etcd_leader_extends_every_lease(world: World) -> None:
    store = world.node("a").store()
    await store.put(b"k", b"", lease=await store.grant(seconds(5)))
    await asyncio.sleep(4)
    world.store.change_leader()
    await world.until(lambda: value(world.store, b"k") is None)
    assert world.time == pytest.approx(9, abs=0.1)


@simulated
async def test_C11_an_old_etcd_acknowledges_the_renewal_of_a_lease_that_is_gone(world: World) -> None:
    store = world.node("a").store()
    lease = await store.grant(seconds(5))
    await store.revoke(lease)
    with pytest.raises(LeaseGone):
        await store.renew(lease)
    world.store.acknowledges_gone_leases = True
    assert await store.renew(lease) > seconds(0)


@simulated
async def test_every_accepted_write_is_in_the_history_with_who_made_it(world: World) -> None:
    a, b = world.node("a").store(), world.node("b").store()
    await a.put(b"k", b"1", lease=await a.grant(seconds(5)))
    compare = Compare(b"k", Aspect.VERSION, 1)
    await b.txn([compare], [Put(b"l", b"")])
    await b.txn([Compare(b"k", Aspect.VERSION, 7)], [Put(b"m", b"")])
    await asyncio.sleep(10)
    told = [(w.revision, w.client, list(w.compares), [e.key for e in w.events]) for w in world.store.history]
    assert told == [
        (2, "a.1", [], [b"k"]),
        (3, "b.2", [compare], [b"l"]),
        (4, "lease expiry", [], [b"k"]),
    ]


def test_leases_can_be_moved_on_by_hand_without_a_simulation() -> None:
    async def scenario() -> None:
        fake = FakeStore()
        store = fake.client()
        await store.put(b"k", b"", lease=await store.grant(seconds(600)))
        fake.advance(seconds(599))
        assert await store.get(b"k") is not None
        fake.advance(seconds(1))
        assert await store.get(b"k") is None

    asyncio.run(scenario())


def test_a_store_can_be_compacted_at_any_moment() -> None:
    async def scenario() -> None:
        fake = FakeStore()
        store = fake.client()
        first = await store.put(b"k", b"1")
        await store.put(b"k", b"2")
        fake.compact()
        with pytest.raises(Compacted):
            await store.get(b"k", revision=first)

    asyncio.run(scenario())


def test_a_closed_client_answers_nothing() -> None:
    async def scenario() -> None:
        store = FakeStore().client()
        await store.close()
        await away(store.get(b"k"))

    asyncio.run(scenario())
