"""Compaction of the store's history: how much goes, which server does it, and what a full or restored store changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from structlog.testing import capture_logs

from holdfast.config.sections.compaction import CompactionSettings
from holdfast.model.base.region import Region
from holdfast.model.base.time import NEVER, Duration, seconds
from holdfast.model.calico.host import HOST
from holdfast.model.control.leader import LEADER
from holdfast.server.compaction.compactor import Compactor
from holdfast.server.compaction.policy import (
    LAST,
    TRIGGER,
    Checked,
    CompactionVerdict,
    LastCompaction,
    Why,
    compaction_verdict,
    period,
    read_last,
)
from holdfast.store.api import Compacted
from holdfast.store.fenced.store import FencedStore
from holdfast.testing import FakeStore
from holdfast.testing.store.client import FakeClient
from holdfast.testing.store.link import Fate
from tests.server.harness import HandClock

REGION = Region()
LEADER_KEY = LEADER.key(REGION, "leader")
HOUR = seconds(3_600)


class Upkeep:
    """A store that time passes at, and leaders that look after it."""

    def __init__(self, config: CompactionSettings | None = None) -> None:
        self.clock = HandClock()
        self.fake = FakeStore(now=lambda: 0.0)
        self.client: FakeClient = self.fake.client("leader")
        self.config = config or CompactionSettings(every=HOUR)
        self.registry = CollectorRegistry()
        self.fenced: FencedStore | None = None

    async def lead(self) -> Compactor:
        await self.client.delete(LEADER_KEY)
        term = await self.client.put(LEADER_KEY, b"{}")
        self.fenced = FencedStore(self.client, LEADER_KEY, term, now=self.clock.now)
        self.registry = CollectorRegistry()
        return Compactor(self.client, REGION, self.config, self.clock, self.registry, lambda: self.fenced)

    async def write(self, count: int) -> int:
        for _ in range(count):
            await self.client.put(b"/some", b"")
        return self.fake.revision

    async def pass_by(self, duration: Duration) -> None:
        self.clock.advance(duration)
        self.fake.advance(duration)

    async def oldest(self) -> int:
        """The oldest revision that can still be read."""
        low, high = 1, self.fake.revision
        while low < high:
            middle = (low + high) // 2
            try:
                await self.client.get(b"/some", revision=middle)
                high = middle
            except Compacted:
                low = middle + 1
        return low


def play(scene: Callable[[Upkeep], Awaitable[None]], config: CompactionSettings | None = None) -> list[str]:
    with capture_logs() as logs:
        asyncio.run(_play(scene, config))
    return [" ".join([str(one["event"]), *(f"{name}={value}" for name, value in one.items())]) for one in logs]


async def _play(scene: Callable[[Upkeep], Awaitable[None]], config: CompactionSettings | None) -> None:
    await scene(Upkeep(config))


def test_the_first_check_only_notes_where_the_store_stands() -> None:
    async def scene(upkeep: Upkeep) -> None:
        compactor = await upkeep.lead()
        await upkeep.write(5_000)
        await compactor.check()
        assert await upkeep.oldest() == 1
        last = await upkeep.client.get(LAST)
        assert last is not None
        assert last.value == b"0"

    assert any("first check" in one for one in play(scene))


def test_after_a_period_the_history_from_before_it_goes_and_it_is_said() -> None:
    async def scene(upkeep: Upkeep) -> None:
        compactor = await upkeep.lead()
        await upkeep.write(5_000)
        await compactor.check()
        then = upkeep.fake.revision
        await upkeep.write(2_000)
        await upkeep.pass_by(HOUR + seconds(1))
        await compactor.check()
        assert await upkeep.oldest() == then
        assert b"holdfast_compactions_total 1.0" in generate_latest(upkeep.registry)

    assert any(one.startswith("store history compacted") for one in play(scene))


def test_within_a_period_nothing_goes() -> None:
    async def scene(upkeep: Upkeep) -> None:
        compactor = await upkeep.lead()
        await compactor.check()
        await upkeep.write(5_000)
        await upkeep.pass_by(HOUR - seconds(10))
        await compactor.check()
        assert await upkeep.oldest() == 1

    play(scene)


def test_at_least_a_thousand_revisions_stay() -> None:
    async def scene(upkeep: Upkeep) -> None:
        compactor = await upkeep.lead()
        await upkeep.write(3_000)
        await compactor.check()
        await upkeep.pass_by(HOUR + seconds(1))
        await compactor.check()
        assert upkeep.fake.revision - await upkeep.oldest() >= 1_000

    play(scene)


def test_the_next_leader_goes_on_where_the_last_one_was() -> None:
    async def scene(upkeep: Upkeep) -> None:
        first = await upkeep.lead()
        await upkeep.write(2_000)
        await first.check()
        then = upkeep.fake.revision
        await upkeep.pass_by(HOUR / 2)
        second = await upkeep.lead()
        await upkeep.write(2_000)
        await second.check()
        assert await upkeep.oldest() == 1
        await upkeep.pass_by(HOUR / 2 + seconds(1))
        await second.check()
        assert await upkeep.oldest() == then

    play(scene)


def test_a_deposed_leader_compacts_nothing() -> None:
    async def scene(upkeep: Upkeep) -> None:
        old = await upkeep.lead()
        await upkeep.write(3_000)
        await old.check()
        await upkeep.pass_by(HOUR + seconds(1))
        await upkeep.write(3_000)
        await upkeep.client.delete(LEADER_KEY)
        await old.check()
        assert await upkeep.oldest() == 1
        assert await upkeep.client.get(TRIGGER) is None

    play(scene)


def test_a_server_that_does_not_lead_compacts_nothing() -> None:
    async def scene(upkeep: Upkeep) -> None:
        compactor = await upkeep.lead()
        upkeep.fenced = None
        await upkeep.write(3_000)
        await compactor.check()
        assert await upkeep.client.get(TRIGGER) is None

    play(scene)


def test_a_compaction_by_another_client_is_recognised() -> None:
    async def scene(upkeep: Upkeep) -> None:
        compactor = await upkeep.lead()
        await upkeep.write(2_000)
        await compactor.check()
        await upkeep.write(3_000)
        await upkeep.client.compact(upkeep.fake.revision - 10)
        await upkeep.pass_by(HOUR + seconds(1))
        await compactor.check()
        assert b"holdfast_compactions_total 0.0" in generate_latest(upkeep.registry)

    assert any("already compacted by another client" in one for one in play(scene))


def test_a_store_that_stands_lower_than_it_did_was_restored() -> None:
    async def scene(upkeep: Upkeep) -> None:
        compactor = await upkeep.lead()
        await upkeep.client.put(LAST, b"900000")
        await upkeep.write(3_000)
        await compactor.check()
        assert await upkeep.oldest() == 1
        last = await upkeep.client.get(LAST)
        assert last is not None
        assert last.value == b"0"

    assert any("it was restored" in one for one in play(scene))


def test_while_the_store_is_full_it_compacts_without_a_put() -> None:
    async def scene(upkeep: Upkeep) -> None:
        compactor = await upkeep.lead()
        await upkeep.write(2_000)
        await compactor.check()
        then = upkeep.fake.revision
        await upkeep.write(3_000)
        await upkeep.pass_by(HOUR + seconds(1))
        upkeep.fake.run_out_of_space()
        before = upkeep.fake.revision
        await compactor.check()
        assert upkeep.fake.revision == before
        assert await upkeep.oldest() == then
        assert b"holdfast_store_full 1.0" in generate_latest(upkeep.registry)

    assert any("store is full" in one for one in play(scene))


def test_nothing_is_compacted_when_it_is_switched_off() -> None:
    async def scene(upkeep: Upkeep) -> None:
        compactor = await upkeep.lead()
        await upkeep.write(3_000)
        await compactor.check()
        assert await upkeep.client.get(TRIGGER) is None

    play(scene, CompactionSettings(every=Duration(0)))


def test_an_unreachable_store_is_checked_again_later() -> None:
    async def scene(upkeep: Upkeep) -> None:
        compactor = await upkeep.lead()
        upkeep.client.link.next_calls(Fate.REFUSED)
        await compactor.check()
        assert await upkeep.client.get(LAST) is None
        await compactor.check()
        assert await upkeep.client.get(LAST) is not None

    play(scene)


@pytest.mark.parametrize(
    ("every", "hosts", "often"), [(60, 1_000, 60), (60, 1_001, 10), (2, 5_000, 2), (2, 5, 2), (0, 5_000, 0)]
)
def test_large_fleets_compact_every_ten_minutes(every: int, hosts: int, often: int) -> None:
    assert period(Duration(minutes=every), Duration(minutes=10), hosts) == Duration(minutes=often)


def test_what_stands_at_last_and_makes_no_sense_is_a_first_check() -> None:
    assert [read_last(value, 7) for value in (b"-3", b"", b"x", b"9" * 40)] == [None] * 4
    assert read_last(b" 12\n", 7) == Checked(12, 7)


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.booleans())
def test_whatever_the_figures_a_thousand_revisions_and_the_last_period_stay(
    revision: int, compacted: int, at: int, noted: int, written: bool
) -> None:
    verdict = compaction_verdict(revision, Checked(compacted, at), LastCompaction(NEVER, noted, written))
    if verdict.upto:
        assert verdict == CompactionVerdict(Why.DUE, verdict.upto)
        assert compacted < verdict.upto <= revision - 1_000
        assert verdict.upto <= (at if written else max(at, noted)) <= revision


def test_a_restored_store_that_has_outgrown_what_it_was_keeps_what_came_since() -> None:
    assert compaction_verdict(
        12_000, Checked(0, 8_990), LastCompaction(NEVER, 10_000, written=True)
    ) == CompactionVerdict(Why.DUE, 8_990)


def test_a_store_that_went_back_is_restored_also_when_it_forgot_its_last_check() -> None:
    assert compaction_verdict(50, None, LastCompaction(NEVER, 100)) == CompactionVerdict(Why.RESTORED)


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.REQUEST_LOST])
def test_a_turn_that_could_not_be_taken_leaves_no_lease_behind(fate: Fate) -> None:
    async def scene(upkeep: Upkeep) -> None:
        compactor = await upkeep.lead()
        upkeep.client.link.next_calls(fate, count=20, of="txn")
        await compactor.check()
        assert not upkeep.fake.leases

    play(scene)


def test_a_trigger_without_a_lease_does_not_stop_compaction_for_ever() -> None:
    async def scene(upkeep: Upkeep) -> None:
        compactor = await upkeep.lead()
        await upkeep.client.put(TRIGGER, b"stuck")
        await compactor.check()
        trigger = await upkeep.client.get(TRIGGER)
        assert trigger is not None
        assert trigger.lease
        assert await upkeep.client.get(LAST) is not None

    assert any("compaction trigger has no lease and would block compaction" in one for one in play(scene))


@pytest.mark.parametrize(("hosts", "compacted"), [(1_000, False), (1_001, True)])
def test_a_fleet_of_more_than_a_thousand_hosts_is_compacted_more_often(hosts: int, compacted: bool) -> None:
    async def scene(upkeep: Upkeep) -> None:
        for number in range(hosts):
            await upkeep.client.put(HOST.key(REGION, f"r{number}"), b"{}")
        compactor = await upkeep.lead()
        await compactor.check()
        await upkeep.write(2_000)
        await upkeep.pass_by(Duration(minutes=11))
        await compactor.check()
        assert (await upkeep.oldest() > 1) is compacted

    play(scene)


def test_a_store_that_is_nearly_full_is_warned_about_once() -> None:
    async def scene(upkeep: Upkeep) -> None:
        compactor = await upkeep.lead()
        size = max(member.db_size for member in await upkeep.client.status())
        compactor._config = CompactionSettings(quota=size)
        await compactor.check()
        await compactor.check()

    assert sum("store is nearly full" in one and "of_quota=100%" in one for one in play(scene)) == 1


def test_a_store_that_has_lost_its_last_check_with_all_the_rest_keeps_what_came_since() -> None:
    assert compaction_verdict(5_000_000, None, LastCompaction(NEVER, 4_900_000, written=True)) == CompactionVerdict(
        Why.FEW
    )


def test_a_deposed_leader_compacts_nothing_either_while_the_store_is_full() -> None:
    async def scene(upkeep: Upkeep) -> None:
        old = await upkeep.lead()
        await upkeep.write(3_000)
        await old.check()
        await upkeep.write(3_000)
        await upkeep.pass_by(HOUR + seconds(1))
        await upkeep.client.delete(LEADER_KEY)
        upkeep.fake.run_out_of_space()
        await old.check()
        assert await upkeep.oldest() == 1

    play(scene)


def test_the_default_is_every_hour_and_every_ten_minutes_in_large_fleets() -> None:
    assert (CompactionSettings().every, CompactionSettings().every_when_large) == (
        Duration(minutes=60),
        Duration(minutes=10),
    )
