"""Store guard: the memory is recalled before the store is asked, and a verdict stays until the epoch rises."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from holdfast.model.base.region import Region
from holdfast.model.base.time import NEVER
from holdfast.model.control.identity import IDENTITY, Identity, LatchedVerdict
from holdfast.model.control.leader import LEADER, Leader
from holdfast.runtime.store_guard import StoreGuard
from holdfast.runtime.store_memory import StoreMemory
from holdfast.store.api import Put, Store
from holdfast.store.identity import StoreVerdict, identity_key
from holdfast.store.mirror.mirror import Mirror
from holdfast.testing import FakeStore, World, simulate
from holdfast.testing.fault import fault

REGION = Region("r")
RESTORED = LatchedVerdict(StoreVerdict.RESTORED.value, "the store went back")


def name_it(store: FakeStore, epoch: int = 1, verdict: LatchedVerdict | None = None) -> None:
    store.apply("leader", (), [Put(identity_key(REGION), IDENTITY.encode(Identity("kelp", epoch, verdict=verdict)))])


def write(store: FakeStore, times: int) -> None:
    for _ in range(times):
        store.apply("leader", (), [Put(b"/x", b"1")])


def lead(store: FakeStore) -> None:
    put = Put(LEADER.key(REGION, "leader"), LEADER.encode(Leader("ctl-1", "ctl-1", 1)))
    store.apply("leader", (), [put])


def guard_of(store: Store, folder: Path) -> StoreGuard:
    return StoreGuard(store, REGION, StoreMemory(folder, "agent"))


@fault(
    "C49",
    without="holdfast.runtime.store_guard:StoreGuard.read",
    by="tests.agent.without_protection:asks_before_recalling",
    sees=(AssertionError, r"\(await checking\).verdict is StoreVerdict.OURS"),
)
def test_C49_a_memory_that_grows_while_the_store_answers_is_no_evidence(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        name_it(world.store)
        slow, fast = world.connect("slow"), world.connect("fast")
        slow.link.latency = lambda: 2.0
        one, other = guard_of(slow, tmp_path), guard_of(fast, tmp_path)
        for guard in (one, other):
            guard.offload = _inline
        await other.check(NEVER)
        checking = asyncio.create_task(one.check(NEVER))
        await asyncio.sleep(2.5)  # its request has been answered, the answer is on its way
        write(world.store, 5)
        await other.check(NEVER)
        assert (await checking).verdict is StoreVerdict.OURS

    simulate(1, scenario)


async def _inline(work: object) -> None:
    assert callable(work)
    work()


def test_C43_a_verdict_stays_while_the_disk_takes_no_writes(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = FakeStore(now=lambda: 0.0)
        name_it(store)
        guard = guard_of(store.client(), tmp_path)
        backup = store.revision
        write(store, 5)
        await guard.check(NEVER)
        (tmp_path / "agent.store.json.new").mkdir()  # so that the file cannot be written, not even by root
        store.restore(backup)
        assert (await guard.check(NEVER)).verdict is StoreVerdict.RESTORED
        write(store, 20)
        assert (await guard.check(NEVER)).verdict is StoreVerdict.RESTORED
        (tmp_path / "agent.store.json.new").rmdir()
        await guard.check(NEVER)
        memory = StoreMemory(tmp_path, "agent").load()
        assert memory is not None
        assert (memory.restored != "", memory.noticed) == (True, backup)

    asyncio.run(scenario())


def test_C43_a_verdict_ends_when_the_epoch_rises(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = FakeStore(now=lambda: 0.0)
        name_it(store)
        backup = store.revision
        write(store, 5)
        await guard_of(store.client(), tmp_path).check(NEVER)
        store.restore(backup)
        assert (await guard_of(store.client(), tmp_path).check(NEVER)).verdict is StoreVerdict.RESTORED
        name_it(store, epoch=2)
        assert (await guard_of(store.client(), tmp_path).check(NEVER)).verdict is StoreVerdict.OURS
        memory = StoreMemory(tmp_path, "agent").load()
        assert memory is not None
        assert (memory.epoch, memory.restored) == (2, "")

    asyncio.run(scenario())


def test_what_was_written_after_the_leaders_verdict_is_newer_than_the_backup(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = FakeStore(now=lambda: 0.0)
        name_it(store)
        backup = store.revision
        write(store, 5)
        await guard_of(store.client(), tmp_path).check(NEVER)
        store.restore(backup)
        name_it(store, verdict=RESTORED)
        noticed = store.revision
        write(store, 10)
        guard = guard_of(store.client(), tmp_path)
        assert (await guard.check(NEVER)).verdict is StoreVerdict.RESTORED
        assert guard.noticed == noticed

    asyncio.run(scenario())


def test_C68_a_history_is_compared_again_after_a_new_list(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = FakeStore(now=lambda: 0.0)
        name_it(store)
        lead(store)
        backup = store.revision
        write(store, 2)
        lead(store)
        guard = guard_of(store.client(), tmp_path)
        await guard.check(NEVER)
        await guard.check(NEVER)
        store.restore(backup)
        write(store, 10)
        guard.forget_history()
        assert (await guard.check(NEVER)).verdict is StoreVerdict.RESTORED

    asyncio.run(scenario())


def test_a_store_that_one_daemon_has_adopted_is_ours_for_it_although_the_leaders_verdict_stands(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        store = FakeStore(now=lambda: 0.0)
        name_it(store)
        backup = store.revision
        write(store, 5)
        guard = guard_of(store.client(), tmp_path)
        await guard.check(NEVER)
        store.restore(backup)
        name_it(store, verdict=RESTORED)
        assert (await guard.check(NEVER)).verdict is StoreVerdict.RESTORED
        assert (await guard.adopt(NEVER)).verdict is StoreVerdict.OURS
        assert (await guard.check(NEVER)).verdict is StoreVerdict.OURS
        assert (await guard_of(store.client(), tmp_path).check(NEVER)).verdict is StoreVerdict.OURS

    asyncio.run(scenario())


@fault(
    "C43",
    without="holdfast.runtime.store_guard:StoreGuard.follow",
    sees=(AssertionError, "judgement.verdict is StoreVerdict.RESTORED"),
)
def test_C43_a_store_restored_to_a_moment_after_the_last_check_is_recognised_by_its_history(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        store, mirror, guard = await followed(world, tmp_path)
        write(store, 2)
        copied = store.revision
        write(store, 3)
        await asyncio.sleep(1)
        guard.follow([mirror])
        store.restore(copied)  # later than the last check, earlier than what the mirror has
        await asyncio.sleep(1)
        guard.follow([mirror])
        judgement = await guard.check(NEVER)
        assert judgement.verdict is StoreVerdict.RESTORED
        assert "the history of the store is not the one that was seen" in judgement.sentence
        assert (await guard.check(NEVER)).verdict is StoreVerdict.RESTORED

    simulate(1, scenario)


def test_a_list_that_comes_after_an_operator_has_adopted_the_store_is_no_evidence(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        store, mirror, guard = await followed(world, tmp_path)
        write(store, 2)
        copied = store.revision
        write(store, 3)
        await asyncio.sleep(1)
        guard.follow([mirror])
        store.restore(copied)
        name_it(store, epoch=2)
        assert (await guard.check(NEVER)).verdict is StoreVerdict.OURS
        await asyncio.sleep(1)
        guard.follow([mirror])
        assert mirror.rewinds == 1
        assert (await guard.check(NEVER)).verdict is StoreVerdict.OURS

    simulate(1, scenario)


async def followed(world: World, folder: Path) -> tuple[FakeStore, Mirror[bytes], StoreGuard]:
    """Return a named store, a mirror that follows it, and a guard that has checked it once."""
    name_it(world.store)
    write(world.store, 1)
    client = world.connect("agent")
    mirror: Mirror[bytes] = Mirror(client, b"/x", lambda _key, value: value)
    world.node("agent").run(mirror.run())
    guard = guard_of(client, folder)
    guard.offload = _inline
    await mirror.wait_synced()
    guard.follow([mirror])
    assert (await guard.check(NEVER)).verdict is StoreVerdict.OURS
    return world.store, mirror, guard


def test_a_list_that_comes_after_the_identity_but_is_older_is_noticed_until_it_was_judged(tmp_path: Path) -> None:
    @dataclass
    class Listed:
        revision: int = 0
        rewinds: int = 0

    async def scenario() -> None:
        store = FakeStore(now=lambda: 0.0)
        write(store, 5)
        listed, old = Listed(), store.revision
        name_it(store)
        guard = guard_of(store.client(), tmp_path)
        guard.follow([listed])
        await guard.check(NEVER)
        noticed = [guard.has_late_list]
        listed.revision = old
        guard.follow([listed])
        noticed.append(guard.has_late_list)
        reading = await guard.read()
        assert guard.is_released_by(reading)
        await guard.take(reading, NEVER)
        noticed.append(guard.has_late_list)
        assert noticed == [False, True, False], "without a list, with an old one, and after it was judged"
        assert not guard.is_released_by(await guard.read())

    asyncio.run(scenario())


def test_the_recorded_verdict_is_known_whatever_this_daemon_thinks_of_the_store(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = FakeStore(now=lambda: 0.0)
        name_it(store)
        guard = guard_of(store.client(), tmp_path)
        await guard.check(NEVER)
        recorded = [guard.recorded]
        name_it(store, verdict=RESTORED)
        await guard.adopt(NEVER)
        assert (await guard.check(NEVER)).is_ours
        recorded.append(guard.recorded)
        name_it(store, epoch=2)
        await guard.check(NEVER)
        assert [*recorded, guard.recorded] == [None, RESTORED, None]

    asyncio.run(scenario())
