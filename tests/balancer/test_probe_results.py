"""Results of probes: which backends are probed, what is kept of their transitions, and how changes are gathered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.balancer.commands.troubles import troubles
from holdfast.balancer.commands.views import BalancerViews
from holdfast.balancer.desired.state import BalancerState
from holdfast.balancer.probing.messages import ProbeCode, ProbeInterval, ProbeReport, ProbeResult
from holdfast.balancer.services.resolved import resolve_services
from holdfast.balancer.target import ValueChange
from holdfast.balancer.warm_up import WarmUp
from holdfast.model.base.time import Instant, seconds
from holdfast.model.control.intent import IntentKind
from holdfast.runtime.decision_log import history
from holdfast.testing import World
from holdfast.testing.fakes.dataplane import FakeDataplane
from tests.balancer.harness import BalancerHarness, simple
from tests.balancer.test_reconciler import apply_intents, intent, play, settled
from tests.balancer.test_routine_work import with_standby

NOW = Instant(1_000_000_000_000)


def probed(site: BalancerHarness) -> list[str]:
    """Backends that the prober was last told to probe."""
    return [target.id.partition("/")[0] for target in site.prober.assigned.targets]


@pytest.mark.parametrize("what", [IntentKind.PAUSE, IntentKind.DISABLE])
def test_a_backend_is_probed_once_for_all_frontends_and_not_while_an_operator_holds_it(
    tmp_path: Path, what: IntentKind
) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2, frontends=3))
        assert probed(site) == ["b1", "b2"]
        apply_intents(site, intent(what, "b1"))
        assert probed(site) == ["b2"]
        apply_intents(site)
        assert probed(site) == ["b1", "b2"]
        assert site.reconciler.balancer.health["b1"].state.value == "unknown"

    play(story, tmp_path)


def test_the_prober_is_told_at_which_interval_to_probe(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2))
        told = []
        for down in ({"b1"}, set[str]()):
            site.truth.down = down
            for pause in (0.3, 2):
                await asyncio.sleep(pause)
                told.append(site.prober.intervals["b1/web"].value)
        assert told == ["fast", "down", "fast", "normal"]
        assert "b2/web" not in {name for name, one in site.prober.intervals.items() if one is not ProbeInterval.NORMAL}

    play(story, tmp_path)


def test_a_reload_tells_the_prober_the_intervals_anew_and_how_long_the_first_probes_may_take(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        site.truth.down = {"b1"}
        await settled(site, simple(1, 2))
        site.reload(simple(1, 2, 3))
        assigned = site.prober.assigned
        assert {name: one.value for name, one in assigned.intervals.items()} == {"b1/web": "down", "b3/web": "fast"}
        assert assigned.first_within == seconds(5)

    play(story, tmp_path)


def test_the_last_transitions_are_kept_and_no_more() -> None:
    balancer = BalancerState(
        resolve_services(simple(1, check=", rise: 1, fall: 1")), WarmUp(NOW, seconds(0), seconds(0)), history=3
    )
    (target,) = balancer.assignment("").targets
    for second in range(10):
        result = _result(target.id, target.generation, passed=second % 2 == 0, now=NOW + seconds(second))
        balancer.on_report(ProbeReport(NOW + seconds(second), (result,), 1), NOW + seconds(second))
    kept = balancer.history["b1"]
    assert [(one.new.value, one.at) for one in kept] == [
        ("down", NOW + seconds(7)),
        ("up", NOW + seconds(8)),
        ("down", NOW + seconds(9)),
    ]
    assert kept[-1].why == "web: L4CON"


def test_transitions_are_in_the_decision_log_with_their_reason(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2))
        site.truth.down = {"b1"}
        await asyncio.sleep(3)

    play(story, tmp_path)
    kept = [one.sentence for one in history(tmp_path, "backend/b1") if one.op == "transition"]
    assert sorted(kept) == ["unknown → up: web: L4OK", "up → down: web: L4CON"]


def _result(target: str, generation: int, *, passed: bool, now: Instant) -> ProbeResult:
    code = ProbeCode.L4OK if passed else ProbeCode.L4CON
    return ProbeResult(target, passed, code, seconds(0.001), now, generation=generation)


class BatchingDataplane(FakeDataplane):
    """Notes the batches in which it is changed."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []

    async def apply(self, changes: Sequence[ValueChange]) -> Sequence[str | None]:
        self.batches.append(len(changes))
        return await super().apply(changes)


def test_transitions_within_50_ms_are_written_together(tmp_path: Path) -> None:
    dataplane = BatchingDataplane()

    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2, 3, 4, check=", fall: 1", extra="flush_on_down: false"))
        dataplane.batches.clear()
        site.truth.dead = True  # reports are those of this test
        targets = {target.id.partition("/")[0]: target for target in site.prober.assigned.targets}
        for name, pause in (("b1", 0.02), ("b2", 0.02), ("b3", 0.5)):
            now = site.node.clock.now()
            result = _result(targets[name].id, targets[name].generation, passed=False, now=now)
            site.reconciler.on_report(ProbeReport(now, (result,), 4))
            await asyncio.sleep(pause)
        assert dataplane.batches == [3]

    play(story, tmp_path, dataplane)


def test_a_lone_backend_without_a_route_keeps_its_state_and_that_is_said(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1))
        site.truth.no_route = {"b1"}
        await asyncio.sleep(30)
        assert site.weights() == {"b1": 100}
        (found,) = troubles(site.reconciler, site.node.clock.now())
        assert found.needs_action
        assert "no route to any backend" in found.sentence
        assert "b1 up (web: NOROUTE)" in found.sentence

    play(story, tmp_path)


def test_the_plan_says_that_a_switch_to_another_pool_moves_everything(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, with_standby())
        site.dataplane.refuse = lambda _change: "no room"
        apply_intents(site, intent(IntentKind.PAUSE, "b1"), intent(IntentKind.PAUSE, "b2"))
        await asyncio.sleep(1)
        plan = await BalancerViews(site.reconciler, site.node.clock.now()).plan()
        assert [one["share"] for one in plan["moves"]] == [1.0]

    play(story, tmp_path)


def test_a_change_of_an_entry_is_recorded_with_its_weights(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2))
        site.truth.down = {"b2"}
        await asyncio.sleep(10)

    play(story, tmp_path)
    told = [one.sentence for one in history(tmp_path, "192.0.2.1:80/tcp → 10.0.0.2:80") if one.op == "replace"]
    assert [one.partition(":")[0] for one in told] == [
        "replaced (weight 100 → weight 0 of 100)",
        "replaced (weight 0 of 100 → weight 0 of 100, flows ended)",
    ]
