"""The balancer on dataplanes that cannot hold or read everything: a restart writes nothing there either."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.balancer.commands.views import BalancerViews
from holdfast.balancer.dataplane.remembered import RememberedFields
from holdfast.balancer.vip import BackendEntry, VipKey, VipSettings, backend
from holdfast.config.sections.balancer import BalancerSettings
from holdfast.model.control.intent import IntentKind
from holdfast.reconcile import Op
from holdfast.testing import World
from holdfast.testing.fakes.dataplane import FakeDataplane
from holdfast.testing.fakes.weight_dataplane import FakeWeightDataplane
from tests.balancer.dataplane.test_dataplanes import LASTING
from tests.balancer.harness import BalancerHarness, simple
from tests.balancer.test_reconciler import VIP, apply_intents, intent, play, settled
from tests.balancer.test_routine_work import with_standby

Make = Callable[[Path], FakeDataplane]
STICKY = "src_ip_sticky: true\nslow_start: 60s"


def restart(site: BalancerHarness, config: BalancerSettings, dataplane: FakeDataplane) -> None:
    """Kill the balancer and start it again; `dataplane` has what the old one held."""
    site.node.kill()
    site.dataplane = replace(dataplane, objects=site.dataplane.objects, flows=site.dataplane.flows)
    site.start(config)


@pytest.mark.parametrize("make", LASTING, ids=lambda make: make.__name__)
def test_a_restart_makes_no_write_and_a_full_comparison_finds_no_difference(tmp_path: Path, make: Make) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        config = simple(1, 2, 3, 4, 5, frontends=2, extra=STICKY)
        site.truth.down = {"b2"}
        await settled(site, config)
        intents = intent(IntentKind.DISABLE, "b3"), intent(IntentKind.WEIGHT, "b4", 30)
        apply_intents(site, *intents)
        await asyncio.sleep(90)
        before, digest = dict(site.dataplane.objects), site.reconciler.digests().table
        assert before[VipKey(VIP)].sticky is True  # type: ignore[union-attr]
        for pause in (3, 20, 70):
            restart(site, config, make(tmp_path))
            apply_intents(site, *intents)
            await asyncio.sleep(pause)
            assert site.dataplane.calls == []
        passes = site.reconciler.loop.passes
        site.reconciler.loop.dirty.mark_all()
        await asyncio.sleep(1)
        assert site.reconciler.loop.passes == passes + 1
        assert len(site.reconciler.loop.ledger) == 0
        assert (site.dataplane.objects, site.dataplane.calls) == (before, [])
        assert site.reconciler.digests().table == digest

    play(story, tmp_path, make(tmp_path))


@pytest.mark.parametrize("make", LASTING, ids=lambda make: make.__name__)
def test_a_restart_during_a_slow_start_continues_it(tmp_path: Path, make: Make) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        config = simple(1, 2, 3, extra=STICKY)
        site.truth.down = {"b3"}
        await settled(site, config, until=60)
        site.truth.down = set()
        await asyncio.sleep(20)
        before = site.weights()
        assert 0 < before["b3"] < before["b1"]
        restart(site, config, make(tmp_path))
        await asyncio.sleep(3)
        assert site.weights() == before
        seen = []
        for _ in range(120):
            await asyncio.sleep(0.5)
            seen.append(site.weights()["b3"])
        assert seen == sorted(seen)
        assert seen[-1] == before["b1"] == site.weights()["b2"]
        assert {call.key.backend for call in site.dataplane.calls} == {
            site.reconciler.balancer.desired(site.reconciler.balancer.services.at[VIP], site.node.clock.now())
            .keys["b3"]
            .backend
        }

    play(story, tmp_path, make(tmp_path))


def test_what_cannot_be_read_and_is_not_remembered_is_as_wanted(tmp_path: Path) -> None:
    """A lost state folder is no reason to rebuild every VIP."""

    async def story(world: World, site: BalancerHarness) -> None:
        config = simple(1, 2, extra=STICKY)
        await settled(site, config)
        restart(site, config, FakeWeightDataplane())
        await asyncio.sleep(60)
        assert site.dataplane.calls == []

    play(story, tmp_path, FakeWeightDataplane())


def test_a_changed_setting_that_cannot_be_read_is_written_once(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2))
        site.dataplane.calls.clear()
        site.reload(simple(1, 2, extra="src_ip_sticky: true"))
        await asyncio.sleep(60)
        settings = [call.new.value for call in site.dataplane.calls if call.key == VipKey(VIP) and call.new]
        assert settings == [VipSettings(True, 128, 0)]

    play(
        story, tmp_path, FakeWeightDataplane(remembered=RememberedFields(tmp_path / "r", frozenset({"sticky", "kill"})))
    )


def test_a_killed_process_kills_flows_again_that_were_perhaps_not_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is noted is noted after the change: an older value is written again, never believed to be newer."""
    memory = RememberedFields(tmp_path / "r", frozenset({"sticky", "kill"}))

    async def story(world: World, site: BalancerHarness) -> None:
        config = simple(1, 2)
        await settled(site, config)
        monkeypatch.setattr(memory, "note", lambda _changes: None)  # killed before it noted
        apply_intents(site, intent(IntentKind.DISABLE, "b1"))
        await asyncio.sleep(2)
        restart(site, config, FakeWeightDataplane(remembered=RememberedFields(tmp_path / "r", memory._names)))
        apply_intents(site, intent(IntentKind.DISABLE, "b1"))
        await asyncio.sleep(40)
        (call,) = site.dataplane.calls
        assert call.new is not None
        assert call.new.value == BackendEntry(0, kill=True)

    play(story, tmp_path, FakeWeightDataplane(remembered=memory))


def test_where_changes_take_effect_one_by_one_backends_are_added_before_others_leave(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, with_standby())
        site.dataplane.calls.clear()
        apply_intents(site, intent(IntentKind.PAUSE, "b1"), intent(IntentKind.PAUSE, "b2"))
        await asyncio.sleep(2)
        assert [call.key.backend for call in site.dataplane.calls] == [backend(f"10.0.0.{n}", 0) for n in (3, 1, 2)]
        site.dataplane.calls.clear()
        apply_intents(site)
        await asyncio.sleep(5)
        site.dataplane.calls.clear()
        site.reload(simple(1, 4, extra="flush_on_down: false"))
        await asyncio.sleep(40)
        ops = [call.op for call in site.dataplane.calls]
        assert ops.index(Op.CREATE) < ops.index(Op.DELETE)

    play(story, tmp_path, FakeWeightDataplane())


def test_the_plan_of_a_weight_dataplane_is_its_own_prediction(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2))
        site.dataplane.refuse = lambda _change: "not now"
        apply_intents(site, intent(IntentKind.PAUSE, "b1"))
        await asyncio.sleep(1)
        (moves,) = (await BalancerViews(site.reconciler, site.node.clock.now()).plan())["moves"]
        assert (moves["buckets"], moves["of"]) == (64, 128)

    play(story, tmp_path, FakeWeightDataplane())


def test_backends_are_shown_by_the_entries_that_they_have_in_the_dataplane(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2, 3))
        view = BalancerViews(site.reconciler, site.node.clock.now())
        (frontend,) = view.status()["frontends"]
        assert [(one["wanted"], one["programmed"]) for one in frontend["pools"][0]] == [(42, 42)] * 3

    play(story, tmp_path, FakeWeightDataplane())


def test_a_silent_prober_is_noticed_on_a_weight_dataplane_as_on_any(tmp_path: Path) -> None:
    """An operator's weight is scaled there, which must not look like a request that is never fulfilled."""

    async def story(world: World, site: BalancerHarness) -> None:
        site.truth.down = {"b3"}
        await settled(site, simple(1, 2, 3, extra="slow_start: 60s"))
        apply_intents(site, intent(IntentKind.WEIGHT, "b1", 50))
        site.truth.down = set()
        await asyncio.sleep(10)
        site.truth.dead = True
        await asyncio.sleep(5)
        before = site.weights()
        await asyncio.sleep(60)
        assert site.weights() == before
        assert site.reconciler.loop.held()["no_prober"] == 1

    play(story, tmp_path, FakeWeightDataplane())
