"""A pause of the fleet holds every change of an agent: over restarts, without the store, and when it was restored."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.runtime.decision_log import history
from holdfast.store.api import Put
from holdfast.testing.fault import fault
from tests.agent.harness import START, Fleet, HostHarness
from tests.agent.test_reconciler import P1, P2, on_a_site, peer
from tests.agent.test_restored_store import VIA_A, VIA_B, changes_of, two_hosts


async def running(site: HostHarness) -> Fleet:
    fleet = await two_hosts(site)
    fleet.write(fleet.runs("w", "a", "10.65.0.1/32"))
    site.start()
    await site.settled()
    await asyncio.sleep(6)
    return fleet


def edit(fleet: Fleet) -> None:
    """One create, one replace and one delete."""
    fleet.write(fleet.leaves("a"), fleet.ends("w", "a"), fleet.runs("v", "b", "10.65.0.2/32"), fleet.joins("c", 3))


BEFORE = {**peer(1), **peer(2), P1: VIA_A}
AFTER = {**peer(2), **peer(3), P2: VIA_B}


def test_it_holds_creates_replaces_and_deletes_and_says_by_whom_why_and_until_when(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = await running(site)
        fleet.write(fleet.pauses("rack 12", until=START + timedelta(days=36_500)))
        await asyncio.sleep(1)
        changes = changes_of(site)
        edit(fleet)
        await asyncio.sleep(60)
        assert changes == []
        held = site.running.loop.outstanding()
        assert {one.op for one in held} >= {"create", "delete"}
        assert {one.gate for one in held} == {"intent"}
        assert {one.reason for one in held} == {"alice until 2069-12-07 00:00:00Z: “rack 12”: an operator paused it"}
        assert {one.opens for one in held} == {"holdfast resume fleet, or the end of the pause"}
        fleet.write(fleet.resumes())
        await site.settled()
        assert site.shapes == AFTER
        events = [(one.op, one.outcome) for one in history(tmp_path / "decisions") if one.key == "fleet"]
        assert events == [("pause", "set"), ("pause", "withdrawn")]

    on_a_site(scene, tmp_path)


def test_it_ends_by_itself_and_that_is_recorded(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = await running(site)
        fleet.write(fleet.pauses(until=site.node.clock.wall() + timedelta(seconds=60)))
        await asyncio.sleep(1)
        edit(fleet)
        await asyncio.sleep(50)
        assert site.shapes == BEFORE
        await asyncio.sleep(15)
        assert site.shapes == AFTER
        events = [one.outcome for one in history(tmp_path / "decisions") if one.key == "fleet"]
        assert events == ["set", "expired"]

    on_a_site(scene, tmp_path)


def test_it_holds_an_agent_that_was_down_when_it_was_set_before_its_first_change(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = await running(site)
        await site.stop()
        fleet.write(fleet.pauses())
        edit(fleet)
        changes = changes_of(site)
        site.start()
        await asyncio.sleep(60)
        assert changes == []
        fleet.write(fleet.resumes())
        await site.settled()
        assert site.shapes == AFTER

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_it_outlives_a_restart_with_the_store_away(tmp_path: Path, how: str) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = await running(site)
        fleet.write(fleet.pauses())
        await asyncio.sleep(2)
        await site.stop() if how == "stopped" else site.node.kill()
        site.unreachable = {"region"}
        changes = changes_of(site)
        site.start()
        await asyncio.sleep(30)
        assert [str(one.scope) for one in site.running.intents.holding] == ["fleet"]
        edit(fleet)
        site.heal()
        await asyncio.sleep(60)
        assert changes == []
        fleet.write(fleet.resumes())
        await site.settled()
        assert site.shapes == AFTER

    on_a_site(scene, tmp_path)


@fault(
    "C69",
    without="holdfast.runtime.intents.memory:pause_in_force",
    by="tests.server.test_pause_memory:as_the_store_has_it",
    sees=(AssertionError, r"peer\(3\).keys\(\).isdisjoint\(site.shapes\)"),
)
@pytest.mark.parametrize("meanwhile", ["running", "restarted"])
def test_C69_it_stays_in_force_on_an_agent_of_a_store_restored_to_before_it(tmp_path: Path, meanwhile: str) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = await running(site)
        backup = site.world.store.revision
        fleet.write(fleet.pauses())
        fleet.write(fleet.marks(2), fleet.leads())
        await asyncio.sleep(6)
        if meanwhile == "restarted":
            await site.stop()
        site.world.store.restore(backup)
        if meanwhile == "restarted":
            site.start()
        await asyncio.sleep(10)
        fleet.write(fleet.joins("c", 3))
        await asyncio.sleep(20)
        assert peer(3).keys().isdisjoint(site.shapes), "the pause is gone"
        fleet.write(fleet.pauses("resumed", since=(now := site.node.clock.wall()), until=now))
        await asyncio.sleep(20)
        assert site.shapes == {**BEFORE, **peer(3)}

    on_a_site(scene, tmp_path)


def test_one_that_cannot_be_read_is_a_pause(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = await running(site)
        pause = fleet.pauses()
        fleet.write(Put(pause.key, b"rubbish"))
        await asyncio.sleep(2)
        edit(fleet)
        await asyncio.sleep(30)
        assert site.shapes == BEFORE
        assert "unreadable" in site.running.loop.outstanding()[0].reason

    on_a_site(scene, tmp_path)
