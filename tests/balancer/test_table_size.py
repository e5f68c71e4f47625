"""The table size of a frontend: only the configuration changes it, and then all new flows move."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.balancer.commands.views import BalancerViews
from holdfast.balancer.vip import BackendEntry, VipKey, VipSettings, backend
from holdfast.testing import World
from holdfast.testing.fakes.dataplane import FakeDataplane
from tests.balancer.harness import BalancerHarness, simple
from tests.balancer.test_reconciler import VIP, play, settled

LARGER = simple(1, 2, extra="table_size: 65537")


@pytest.mark.parametrize("live", [frozenset[str](), frozenset({"table_size"})], ids=["rebuilt", "live"])
def test_a_changed_size_reaches_the_dataplane_and_keeps_the_entries(tmp_path: Path, live: frozenset[str]) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2))
        assert len(site.dataplane.table(VIP)) == 16381
        site.reload(LARGER)
        await asyncio.sleep(1)
        assert len(site.dataplane.table(VIP)) == 65537
        assert site.weights() == {"b1": 100, "b2": 100}

    play(story, tmp_path, FakeDataplane(live=live))


def test_a_plan_says_that_another_size_moves_all_new_flows(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2))
        site.dataplane.refuse = lambda _change: "not now"
        site.reload(LARGER)
        await asyncio.sleep(1)
        (moves,) = (await BalancerViews(site.reconciler, site.node.clock.now()).plan())["moves"]
        assert (moves["buckets"], moves["of"], moves["share"]) == (65537, 65537, 1.0)

    play(story, tmp_path)


def test_the_digest_is_of_the_size_in_the_dataplane(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2))
        before = site.reconciler.digests().table
        site.reload(LARGER)
        await asyncio.sleep(1)
        larger = site.reconciler.digests().table
        site.reload(simple(1, 2))
        await asyncio.sleep(1)
        assert before == site.reconciler.digests().table != larger

    play(story, tmp_path)


def test_a_table_of_its_size_is_adopted_without_a_write(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        entries = {VipKey(VIP, backend(f"10.0.0.{n}", 80)): BackendEntry(100) for n in (1, 2)}
        site.dataplane.objects |= {VipKey(VIP): VipSettings(table_size=65537), **entries}
        await settled(site, LARGER)
        assert site.dataplane.calls == []

    play(story, tmp_path)
