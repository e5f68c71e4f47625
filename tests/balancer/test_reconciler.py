"""The balancer as a whole on virtual time: starts, restarts, reloads, failing backends and a failing prober."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.balancer import health as machine
from holdfast.balancer.health import HealthState
from holdfast.balancer.probing.messages import ProbeResult
from holdfast.balancer.vip import BackendEntry, Vip, VipKey, VipSettings, backend
from holdfast.balancer.warm_up import WarmUp
from holdfast.config import ConfigFile, Loaded, resolve
from holdfast.config.sections.balancer import BalancerSettings
from holdfast.model.base.time import Instant
from holdfast.model.control.intent import Intent, IntentKind
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.reconcile import Op
from holdfast.testing import World, simulate
from holdfast.testing.fakes.dataplane import FakeDataplane
from holdfast.testing.fault import fault
from holdfast.testing.sim.nodes import WALL_START
from tests.balancer.harness import BalancerHarness, configuration, simple

VIP = Vip.of("192.0.2.1", "tcp", 80)
Story = Callable[[World, BalancerHarness], Coroutine[Any, Any, None]]


def play(story: Story, folder: Path, dataplane: FakeDataplane | None = None, seed: int = 1) -> None:
    async def scenario(world: World) -> None:
        await story(world, BalancerHarness(world.node("lb"), folder, dataplane))

    simulate(seed, scenario)


def intent(what: IntentKind, name: str, weight: int | None = None) -> Intent:
    scope = Scope(ScopeKind.BACKEND, name)
    return Intent(what=what, scope=scope, who="ada", why="maintenance", since=WALL_START, weight=weight)


def apply_intents(site: BalancerHarness, *intents: Intent) -> None:
    reconciler, clock = site.reconciler, site.node.clock
    reconciler.touch(reconciler.balancer.apply_intents(intents, clock.wall(), clock.now()))
    reconciler.reloaded()


async def settled(site: BalancerHarness, config: BalancerSettings, until: float = 40) -> None:
    site.start(config)
    await asyncio.sleep(until)


def test_a_first_start_programs_everything_after_the_window(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        site.start(simple(1, 2))
        await asyncio.sleep(4.9)
        assert site.dataplane.calls == []
        await asyncio.sleep(1)
        assert site.weights() == {"b1": 100, "b2": 100}

    play(story, tmp_path)


def open_at_once(warm: WarmUp, frontend: str | None, now: Instant) -> None:
    return None


@fault(
    "B1",
    without="holdfast.balancer.warm_up:WarmUp.judge",
    by="tests.balancer.test_reconciler:open_at_once",
    sees=(AssertionError, r'site.weights\(\) == \{"b1": 100, "b2": 100, "b3": 100\}'),
)
def test_B1_a_restart_while_a_backend_is_slow_sets_no_weight_to_zero(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        config = simple(1, 2, 3)
        await settled(site, config)
        site.node.kill()
        site.truth.mute = {"b3"}
        site.dataplane.calls.clear()
        site.start(config)
        await asyncio.sleep(8)
        site.truth.mute = set()
        for _ in range(100):
            await asyncio.sleep(0.1)
            assert site.weights() == {"b1": 100, "b2": 100, "b3": 100}
        assert site.dataplane.calls == []

    play(story, tmp_path)


@pytest.mark.parametrize("seed", range(5))
def test_a_restart_with_unchanged_health_makes_no_write_at_all(tmp_path: Path, seed: int) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        config = simple(1, 2, 3, 4, frontends=3, extra="slow_start: 20s")
        site.truth.down = {"b2"}
        await settled(site, config)
        apply_intents(site, intent(IntentKind.DISABLE, "b3"), intent(IntentKind.WEIGHT, "b4", 30))
        await asyncio.sleep(2)
        intents = site.reconciler.balancer.intents
        for _ in range(3):
            site.node.kill()
            site.dataplane.calls.clear()
            site.start(config)
            apply_intents(site, *intents)
            await asyncio.sleep(world.random.uniform(0.1, 90))
            assert site.dataplane.calls == []
        assert site.weights() == {"b1": 100, "b2": 0, "b3": 0, "b4": 30}

    play(story, tmp_path, seed=seed)


def test_a_restart_meets_a_backend_that_was_flushed_long_ago_and_leaves_it_alone(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        config = msgspec.structs.replace(simple(1, 2), healthchecks=slow_checks())
        site.truth.down = {"b1"}
        await settled(site, config, until=60)
        assert site.dataplane.objects[VipKey(VIP, backend("10.0.0.1", 80))] == BackendEntry(0, kill=True, base=100)
        site.node.kill()
        site.dataplane.calls.clear()
        site.start(config)
        await asyncio.sleep(60)
        assert site.dataplane.calls == []

    play(story, tmp_path)


def slow_checks() -> Any:
    """An interval longer than the first phase of the warm-up: a flush on down would wait beyond it."""
    return configuration("healthchecks: {web: {type: tcp, interval: 20s}}").healthchecks


def shuffled(config: BalancerSettings, seed: int) -> BalancerSettings:
    """The same configuration, every map of it in another order."""
    order = random.Random(seed)

    def mixed(entries: Any) -> Any:
        items = list(entries.items())
        order.shuffle(items)
        return dict(items)

    replace = msgspec.structs.replace
    frontends = {
        name: replace(one, pools=tuple(replace(pool, backends=mixed(pool.backends)) for pool in one.pools))
        for name, one in config.frontends.items()
    }
    return replace(config, frontends=mixed(frontends), backends=mixed(config.backends))


def test_two_balancers_with_shuffled_configuration_make_equal_calls_and_equal_tables(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        config = simple(1, 2, 3, 10, 11, frontends=12)
        one, other = (BalancerHarness(world.node(name), tmp_path / name) for name in ("one", "other"))
        one.start(config)
        other.start(shuffled(config, world.seed))
        await asyncio.sleep(40)
        for down in ({"b2", "b10"}, {"b1"}, set[str]()):
            one.truth.down = other.truth.down = down
            await asyncio.sleep(10)
        assert [(c.op, c.key, c.new and c.new.value) for c in one.dataplane.calls] == [
            (c.op, c.key, c.new and c.new.value) for c in other.dataplane.calls
        ]
        for n in range(1, 13):
            vip = Vip.of(f"192.0.2.{n}", "tcp", 80)
            assert one.dataplane.table(vip) == other.dataplane.table(vip)
        assert one.reconciler.digests() == other.reconciler.digests()

    for seed in range(3):
        simulate(seed, scenario)


def test_B2_calls_are_made_in_numeric_order_whatever_the_file_says(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, shuffled(simple(1, 2, 10, frontends=10), 7))
        keys = [call.key for call in site.dataplane.calls]
        vips = [key for key in keys if key == VipKey(key.vip)]
        entries = [key for key in keys if key != VipKey(key.vip)]
        assert vips == sorted(vips)
        assert entries == sorted(entries)
        assert [str(key.vip).partition(":")[0] for key in vips][-2:] == ["192.0.2.9", "192.0.2.10"]

    play(story, tmp_path)


def test_a_transition_reaches_the_dataplane_within_one_batch(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2, check=", fall: 1"))
        site.dataplane.calls.clear()
        site.truth.down = {"b1"}
        await asyncio.sleep(0.5)
        assert site.weights() == {"b1": 0, "b2": 100}

    play(story, tmp_path)


def first_user(balancer: Any, backends: Any) -> set[str]:
    return {balancer.services.users[name][0] for name in backends}


@fault(
    "B17",
    without="holdfast.balancer.desired.state:BalancerState._users",
    by="tests.balancer.test_reconciler:first_user",
    sees=(AssertionError, r'\[site.weights\(n\)\["b1"\] for n in \(1, 2, 3, 4\)\] == \[0, 0, 0, 0\]'),
)
def test_B17_a_backend_shared_by_frontends_is_updated_in_all_of_them(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2, frontends=4))
        site.truth.down = {"b1"}
        await asyncio.sleep(2)
        assert [site.weights(n)["b1"] for n in (1, 2, 3, 4)] == [0, 0, 0, 0]

    play(story, tmp_path)


def fresh_start(old: Any, new: Any, health: Any, serving: Any, now: Instant, former: Any = ()) -> Any:
    return {name: machine.fresh(one.checks, now) for name, one in new.backends.items()}


@fault(
    "B5",
    without="holdfast.balancer.desired.state:carry_over",
    by="tests.balancer.test_reconciler:fresh_start",
    sees=(AssertionError, r'site.reconciler.balancer.health\["b1"\] == before'),
)
def test_B5_a_reload_keeps_states_intents_and_the_warm_up(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2, 3))
        apply_intents(site, intent(IntentKind.DISABLE, "b3"))
        await asyncio.sleep(1)
        before = site.reconciler.balancer.health["b1"]
        warm = site.reconciler.balancer.warm
        site.dataplane.calls.clear()
        site.reload(simple(1, 2, 3, 4))
        assert site.reconciler.balancer.health["b1"] == before
        assert site.reconciler.balancer.health["b3"].state is HealthState.DISABLED
        assert site.reconciler.balancer.warm == warm
        await asyncio.sleep(2)
        assert site.weights() == {"b1": 100, "b2": 100, "b3": 0, "b4": 100}
        touched = {str(call.key) for call in site.dataplane.calls}
        assert touched == {"192.0.2.1:80/tcp → 10.0.0.4:80"}

    play(story, tmp_path)


def test_a_reload_during_warm_up_writes_nothing_and_does_not_restart_the_clock(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        site.start(simple(1, 2))
        await asyncio.sleep(4)
        site.reload(simple(1, 2, 3))
        await asyncio.sleep(0.9)
        assert site.dataplane.calls == []
        await asyncio.sleep(0.6)
        assert set(site.weights()) == {"b1", "b2", "b3"}

    play(story, tmp_path)


def test_a_vip_removed_by_a_reload_during_warm_up_is_deleted_when_the_window_ends(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2, frontends=2))
        site.node.kill()
        site.start(simple(1, 2, frontends=2))
        await asyncio.sleep(10)
        site.reload(simple(1, 2))
        await asyncio.sleep(18)
        assert site.weights(2) == {"b1": 100, "b2": 100}, "28 s after the start it still serves"
        await asyncio.sleep(4)
        assert site.weights(2) == {}
        assert site.weights(1) == {"b1": 100, "b2": 100}

    play(story, tmp_path)


def weight_alone(wanted: Any, held: Any) -> bool:
    if isinstance(wanted, BackendEntry) and isinstance(held, BackendEntry):
        return wanted.weight == held.weight
    return bool(wanted == held)


@fault(
    "B6",
    without="holdfast.balancer.reconciler:same",
    by="tests.balancer.test_reconciler:weight_alone",
    sees=(AssertionError, r"not any\(\(VIP, n\) in site.dataplane.flows for n in clients\)"),
)
def test_B6_a_backend_that_is_at_zero_already_is_flushed_when_it_is_disabled(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2))
        clients = [n for n in range(200) if site.dataplane.connect(VIP, n) == backend("10.0.0.1", 80)]
        assert clients
        apply_intents(site, intent(IntentKind.PAUSE, "b1"))
        await asyncio.sleep(1)
        assert site.weights()["b1"] == 0
        assert all((VIP, n) in site.dataplane.flows for n in clients)
        apply_intents(site, intent(IntentKind.DISABLE, "b1"))
        await asyncio.sleep(1)
        assert not any((VIP, n) in site.dataplane.flows for n in clients)

    play(story, tmp_path)


def test_a_flush_on_down_waits_one_interval(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2, check=", fall: 1"))
        entry = VipKey(VIP, backend("10.0.0.1", 80))
        site.truth.down = {"b1"}
        await asyncio.sleep(0.5)
        assert site.dataplane.objects[entry] == BackendEntry(0, kill=False, base=100)
        await asyncio.sleep(1)
        assert site.dataplane.objects[entry] == BackendEntry(0, kill=True, base=100)

    play(story, tmp_path)


def in_place(vips: Any, change: Any) -> bool:
    return True


@fault(
    "B9",
    without="holdfast.balancer.target:VipTarget._is_live",
    by="tests.balancer.test_reconciler:in_place",
    sees=(AssertionError, r"site.dataplane.objects\[VipKey\(VIP\)\] == VipSettings\(sticky=True\)"),
)
def test_B9_what_cannot_change_live_is_torn_down_and_rebuilt(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2))
        site.reload(simple(1, 2, extra="src_ip_sticky: true"))
        await asyncio.sleep(1)
        assert site.dataplane.objects[VipKey(VIP)] == VipSettings(sticky=True)
        assert site.weights() == {"b1": 100, "b2": 100}

    play(story, tmp_path)


def one_at(server: str, address: str) -> BalancerSettings:
    backends = f"backends: {{a: {{address: '{server}', port: 80}}}}"
    return configuration(f"{backends}\nfrontends: {{f: {{address: '{address}', pools: [{{backends: {{a: }}}}]}}}}")


def test_B9_a_frontend_that_moves_to_the_other_family_is_served_there_and_nowhere_else(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, one_at("10.0.0.1", "192.0.2.1"))
        site.reload(one_at("2001:db8::1", "2001:db8::80"))
        await asyncio.sleep(35)
        assert {str(key.vip) for key in site.dataplane.objects} == {"[2001:db8::80]:*/tcp"}

    play(story, tmp_path)


def released_again(warm: WarmUp, known: Any, now: Instant) -> Any:
    return warm, {}


@fault(
    "B11",
    without="holdfast.balancer.warm_up:WarmUp.released_now",
    by="tests.balancer.test_reconciler:released_again",
    sees=(AssertionError, r"len\(early\) == 3"),
)
def test_B11_a_frontend_known_early_is_programmed_once_and_before_the_final_sync(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        site.start(simple(1, 2))
        await asyncio.sleep(6)
        early = list(site.dataplane.calls)
        assert len(early) == 3
        await asyncio.sleep(60)
        assert site.dataplane.calls == early

    play(story, tmp_path)


@fault(
    "B14",
    without="holdfast.balancer.desired.state:_event",
    by="tests.balancer.test_reconciler:never_late",
    sees=(AssertionError, r'site.weights\(\) == \{"b1": 100'),
)
def test_B14_failures_of_a_late_prober_take_no_backend_down(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2))
        site.truth.late = True
        await asyncio.sleep(10)
        assert site.weights() == {"b1": 100, "b2": 100}

    play(story, tmp_path)


def never_late(result: ProbeResult) -> machine.HealthEvent:
    return machine.HealthEvent.PASSED if result.passed else machine.HealthEvent.FAILED


async def nobody_notices(reconciler: Any) -> None:
    await asyncio.Event().wait()


@fault(
    "B15",
    without="holdfast.balancer.reconciler:VipReconciler._watch_dataplane",
    by="tests.balancer.test_reconciler:nobody_notices",
    sees=(AssertionError, "site.dataplane.objects == full"),
)
def test_B15_a_dataplane_that_comes_back_empty_is_programmed_at_once(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2))
        full = dict(site.dataplane.objects)
        site.dataplane.away = "it is restarting"
        await asyncio.sleep(20)
        site.reconciler.loop.dirty.mark_all()
        await asyncio.sleep(11)
        site.dataplane.away = None
        await asyncio.sleep(6)
        site.dataplane.restart()
        await asyncio.sleep(2)
        assert site.dataplane.objects == full

    play(story, tmp_path)


def test_a_dataplane_that_comes_back_empty_during_warm_up_waits_like_everything(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        config = simple(1, 2)
        await settled(site, config)
        site.node.kill()
        site.start(config)
        await asyncio.sleep(2)
        site.dataplane.restart()
        await asyncio.sleep(2.9)
        assert site.dataplane.objects == {}
        await asyncio.sleep(1)
        assert site.weights() == {"b1": 100, "b2": 100}

    play(story, tmp_path)


@fault(
    "B16",
    without="holdfast.balancer.reconciler:_still_there",
    by="tests.balancer.test_reconciler:as_touched",
    sees=(KeyError, "'f2'"),
)
def test_B16_a_frontend_that_is_removed_between_event_and_handling_is_tolerated(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2, frontends=2, check=", fall: 1"))
        site.reconciler.touch(["f2"])
        site.reload(simple(1, 2, frontends=1))
        await asyncio.sleep(35)
        assert site.weights(2) == {}
        assert site.weights(1) == {"b1": 100, "b2": 100}

    play(story, tmp_path)


def as_touched(touched: set[str], frontends: Any) -> set[str]:
    return touched


@fault(
    "B21",
    without="holdfast.balancer.reconciler:VipReconciler._check_prober",
    sees=(AssertionError, r"site.weights\(\) == frozen"),
)
def test_B21_a_silent_prober_closes_the_gate_instead_of_freezing_the_states(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2, extra="slow_start: 20s"))
        site.truth.down = {"b1"}
        await asyncio.sleep(3)
        site.truth.down = set()
        await asyncio.sleep(4)
        site.truth.dead = True
        await asyncio.sleep(5)
        frozen = site.weights()
        await asyncio.sleep(20)
        assert site.weights() == frozen
        assert site.reconciler.loop.held()["no_prober"]
        site.truth.dead = False
        await asyncio.sleep(2)
        assert site.weights() == {"b1": 100, "b2": 100}

    play(story, tmp_path)


@fault(
    "B15",
    without="holdfast.balancer.gates:HealthGate._restores",
    sees=(KeyError, r'\(after\["b2"\], after\["b3"\]\) == \(100, 0\)'),
)
def test_B15_lost_objects_are_restored_at_once_while_the_prober_is_silent(tmp_path: Path) -> None:
    """Also to a backend in the midst of its slow start; but nothing that health alone would have changed."""

    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2, 3, extra="slow_start: 60s", check=", fall: 1"))
        site.truth.down = {"b1", "b3"}
        await asyncio.sleep(3)
        site.truth.down = {"b3"}
        await asyncio.sleep(10)
        site.truth.dead = True
        await asyncio.sleep(5)
        before = site.weights()
        site.dataplane.restart()
        await asyncio.sleep(1)
        after = site.weights()
        assert (after["b2"], after["b3"]) == (100, 0)
        assert before["b1"] <= after["b1"] < 100
        await asyncio.sleep(30)
        assert site.weights() == after

    play(story, tmp_path)


def test_an_operator_intent_passes_although_the_prober_is_silent(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2))
        site.truth.dead = True
        await asyncio.sleep(5)
        apply_intents(site, intent(IntentKind.DISABLE, "b1"))
        await asyncio.sleep(1)
        assert site.weights() == {"b1": 0, "b2": 100}

    play(story, tmp_path)


@pytest.mark.parametrize("how", ["dead", "blind"])
@fault(
    "B22", without="holdfast.balancer.gates:HealthGate.judge", sees=(AssertionError, r'site.weights\(\) == \{"b1": 100')
)
def test_B22_without_a_prober_at_the_start_the_adopted_state_stays(tmp_path: Path, how: str) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        config = simple(1, 2)
        await settled(site, config)
        site.node.kill()
        site.truth.dead = how == "dead"
        site.truth.blind = "cut off" if how == "blind" else ""
        site.start(config)
        apply_intents(site, intent(IntentKind.DISABLE, "b2"))
        await asyncio.sleep(100)
        assert site.weights() == {"b1": 100, "b2": 0}

    play(story, tmp_path)


def from_the_beginning(*arguments: Any) -> Any:
    return arguments[-1]


@fault(
    "B23",
    without="holdfast.balancer.desired.adopted:AdoptedEntries.resumed",
    by="tests.balancer.test_reconciler:from_the_beginning",
    sees=(AssertionError, r'site.weights\(\)\["b2"\] == 100'),
)
def test_B23_a_restart_continues_slow_starts_and_begins_none(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        config = simple(1, 2, extra="slow_start: 100s")
        await settled(site, config)
        site.truth.down = {"b1"}
        await asyncio.sleep(5)
        site.truth.down = set()
        await asyncio.sleep(45)
        ramped = site.weights()["b1"]
        assert 30 <= ramped <= 60
        site.node.kill()
        site.start(config)
        lowest = ramped
        for _ in range(90):
            await asyncio.sleep(1)
            assert site.weights()["b2"] == 100
            lowest = min(lowest, site.weights()["b1"])
        assert lowest == ramped
        assert site.weights()["b1"] == 100

    play(story, tmp_path)


@fault(
    "B25",
    without="holdfast.balancer.desired.adopted:AdoptedEntries.is_serving",
    returns=False,
    sees=(AssertionError, r'\[t for t in site.reconciler.balancer.history\["b1"\] if t.new is'),
)
def test_B25_one_lost_probe_after_a_restart_flushes_no_backend(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        config = simple(1, 2)
        await settled(site, config)
        site.node.kill()
        site.dataplane.calls.clear()
        site.truth.down = {"b1"}
        site.start(config)
        await asyncio.sleep(0.3)
        site.truth.down = set()
        await asyncio.sleep(60)
        assert site.dataplane.calls == []
        assert [t for t in site.reconciler.balancer.history["b1"] if t.new is HealthState.DOWN] == []

    play(story, tmp_path)


def test_a_refused_change_is_retried_and_delays_no_other(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        stubborn = VipKey(Vip.of("192.0.2.1", "tcp", 80))
        site.dataplane.refuse = lambda change: "no room" if change.key == stubborn else None
        await settled(site, simple(1, 2, frontends=2))
        assert site.weights(1) == {}
        assert site.weights(2) == {"b1": 100, "b2": 100}
        site.dataplane.refuse = lambda _change: None
        await asyncio.sleep(61)
        assert site.weights(1) == {"b1": 100, "b2": 100}

    play(story, tmp_path)


def test_a_reload_that_drops_more_than_half_of_the_vips_is_held_by_the_brake(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2, frontends=6))
        site.reload(simple(1, 2, frontends=2))
        await asyncio.sleep(200)
        assert len({key.vip for key in site.dataplane.objects}) == 6
        assert site.reconciler.loop.held()["brake"]

    play(story, tmp_path)


def test_an_unwanted_vip_goes_only_after_the_window_and_its_flows_with_it(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        old, gone = Vip.of("192.0.2.77", "tcp", 80), backend("10.0.0.77", 80)
        site.dataplane.objects |= {VipKey(old): VipSettings(), VipKey(old, gone): BackendEntry(100)}
        site.dataplane.connect(old, 1)
        site.start(simple(1, 2))
        await asyncio.sleep(29)
        assert VipKey(old) in site.dataplane.objects
        await asyncio.sleep(3)
        assert VipKey(old) not in site.dataplane.objects
        assert (old, 1) not in site.dataplane.flows
        deletes = [call.key for call in site.dataplane.calls if call.op is Op.DELETE]
        assert deletes == [VipKey(old, gone), VipKey(old)]

    play(story, tmp_path)


def test_a_dry_dataplane_for_the_example_of_the_documentation(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "deploy" / "examples" / "balancer.yaml").read_bytes()

    async def story(world: World, site: BalancerHarness) -> None:
        loaded = resolve(ConfigFile("example", text), {})
        assert isinstance(loaded, Loaded)
        await settled(site, loaded.config.balancer)
        assert len(site.dataplane.objects) == 7

    play(story, tmp_path)
