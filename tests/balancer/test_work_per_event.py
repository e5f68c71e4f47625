"""Work per event: a frontend's desired state is computed once, its dataplane read once, and tables are built elsewhere
than on the event loop."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from holdfast.balancer.commands import buckets
from holdfast.balancer.commands.buckets import base_owner, bucket_counts, programmed_table
from holdfast.balancer.desired import state
from holdfast.balancer.desired.frontend import DesiredFrontend, desired
from holdfast.balancer.maglev import table as maglev
from holdfast.balancer.probing.messages import ProbeCode, ProbeReport, ProbeResult
from holdfast.balancer.reconciler import VipReconciler
from holdfast.balancer.services.resolved import resolve_services
from holdfast.balancer.vip import BackendEntry, Value, Vip, VipKey
from holdfast.balancer.warm_up import WarmUp
from holdfast.model.base.time import Instant, seconds
from holdfast.model.control.intent import IntentKind
from holdfast.testing import World
from holdfast.testing.fakes.dataplane import FakeDataplane
from holdfast.testing.sim.nodes import WALL_START
from tests.balancer.dataplane.nftables.reconciling import comes_true, keeping
from tests.balancer.harness import BalancerHarness, simple
from tests.balancer.test_reconciler import intent, play, settled
from tests.balancer.test_routine_work import with_standby


class CountingDataplane(FakeDataplane):
    """Counts reads, by whether they are of single VIPs or of everything."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()

    async def read(self, vips: Collection[Vip] | None = None) -> Mapping[VipKey, Value]:
        self.reads["all" if vips is None else "some"] += 1
        return await super().read(vips)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts by frontend how often its desired state was computed."""
    counts: Counter[str] = Counter()

    def counting(frontend: Any, inputs: Any, now: Instant) -> DesiredFrontend:
        counts[frontend.name] += 1
        return desired(frontend, inputs, now)

    monkeypatch.setattr("holdfast.balancer.desired.state.desired", counting)
    return counts


def test_a_transition_computes_one_frontend_once_and_reads_it_once(tmp_path: Path, computed: Counter[str]) -> None:
    dataplane = CountingDataplane()

    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2, 3, frontends=2, extra="flush_on_down: false"))
        dataplane.reads.clear()
        computed.clear()
        site.truth.down = {"b1"}
        await asyncio.sleep(5)
        assert site.weights(1) == site.weights(2) == {"b1": 0, "b2": 100, "b3": 100}
        assert computed == {"f1": 1, "f2": 1}, "one event, whatever asks for the result"
        assert dataplane.reads == {"some": 1}, "both frontends together"

    play(story, tmp_path, dataplane)


def test_a_full_comparison_of_what_is_unchanged_computes_nothing_and_reads_once(
    tmp_path: Path, computed: Counter[str]
) -> None:
    dataplane = CountingDataplane()

    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2, frontends=3))
        dataplane.reads.clear()
        computed.clear()
        passes = site.reconciler.loop.passes
        site.reconciler.loop.dirty.mark_all()
        await asyncio.sleep(1)
        assert site.reconciler.loop.passes == passes + 1
        assert (dict(computed), dict(dataplane.reads)) == ({}, {"all": 1})

    play(story, tmp_path, dataplane)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_remembered_is_what_would_be_computed(seed: int) -> None:
    """Random events and times: a frontend is never served from an outdated state."""
    chance, now = random.Random(seed), Instant(1_000_000_000_000)
    variants = [
        with_standby(extra="slow_start: 5s"),
        with_standby(extra="panic_threshold: 60, fail_back_delay: 3s"),
        with_standby(offset=10),
        with_standby("b1: {weight: 30}", extra="flush_on_down: false"),
    ]
    balancer = state.BalancerState(resolve_services(variants[0]), WarmUp(now, seconds(0), seconds(4)))
    for _ in range(150):
        now += seconds(chance.choice([0.1, 0.5, 1, 3]))
        what = chance.random()
        if what < 0.1:
            balancer.reload(resolve_services(chance.choice(variants)), now)
        elif what < 0.2:
            kind = chance.choice([IntentKind.PAUSE, IntentKind.DISABLE, IntentKind.WEIGHT])
            weight = chance.choice([0, 10, 100]) if kind is IntentKind.WEIGHT else None
            wanted = [intent(kind, f"b{chance.randint(1, 3)}", weight)] if chance.random() < 0.7 else []
            balancer.apply_intents(wanted, WALL_START, now)
        else:
            targets = balancer.assignment("").targets
            if targets:
                target, passed = chance.choice(targets), chance.random() < 0.5
                code = ProbeCode.L4OK if passed else ProbeCode.L4CON
                result = ProbeResult(target.id, passed, code, seconds(0.001), now, generation=target.generation)
                balancer.on_report(ProbeReport(now, (result,), len(targets)), now)
        for frontend in balancer.services.frontends.values():
            remembered, known = balancer.desired(frontend, now), balancer.frontend_state(frontend.vip)
            balancer._forget(balancer.services.frontends)
            assert balancer.desired(frontend, now) == remembered
            assert balancer.frontend_state(frontend.vip) == known


def test_what_time_changes_is_due_also_if_somebody_else_asked_first(tmp_path: Path) -> None:
    now = Instant(1_000_000_000_000)
    balancer = state.BalancerState(resolve_services(simple(1, 2)), WarmUp(now, seconds(0), seconds(4)))
    (frontend,) = balancer.services.frontends.values()
    due = balancer.desired(frontend, now).due
    assert due == balancer.next_due() == now + seconds(4)
    assert balancer.due(now) == set()
    balancer.desired(frontend, due)
    assert balancer.due(due) == {"f1"}
    assert balancer.due(due) == set()


def test_tables_are_not_built_on_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builders: list[threading.Thread] = []
    original = maglev._filled

    def noting(*arguments: Any) -> maglev.Table:
        builders.append(threading.current_thread())
        return original(*arguments)

    monkeypatch.setattr(maglev, "_filled", noting)
    maglev.forget_tables()
    buckets._counts.cache_clear()

    async def story() -> None:
        async with keeping(simple(1, 2, 3), FakeDataplane(), tmp_path) as (reconciler, prober):
            await comes_true(lambda: len(reconciler.target.held) == 4)
            prober.down = {"b1"}
            await comes_true(lambda: any(isinstance(one, BackendEntry) and not one.weight for one in held(reconciler)))
            assert builders
            maglev.forget_tables()
            built = len(builders)
            counts = await bucket_counts(reconciler.target, reconciler.balancer.services.frontends.values())
            assert sum(counts["f1"].values()) == 16_381
            assert len(builders) > built
            frontend = reconciler.balancer.services.frontends["f1"]
            maglev.forget_tables()
            await programmed_table(reconciler.target, frontend, {})
            assert await base_owner(reconciler.target, frontend.vip, 0) is not None

    asyncio.run(story())
    assert threading.main_thread() not in builders


def held(reconciler: VipReconciler) -> Collection[Value]:
    return reconciler.target.held.values()


def test_a_dashboard_that_asks_again_builds_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2, 3, frontends=3))
        target, frontends = site.reconciler.target, site.reconciler.balancer.services.frontends.values()
        before = await bucket_counts(target, frontends)
        assert before["f1"] == before["f2"] == before["f3"]
        maglev.forget_tables()
        monkeypatch.setattr(maglev, "_filled", None)
        assert await bucket_counts(target, frontends) == before

    play(story, tmp_path)
