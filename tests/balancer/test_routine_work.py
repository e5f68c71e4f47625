"""Routine work under way: scaling in and out, new addresses, lost routes, reloads. No flow may pay for it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from holdfast.balancer.desired.frontend import Predecessor
from holdfast.balancer.desired.state import BalancerState
from holdfast.balancer.gates import HealthGate, HealthReason
from holdfast.balancer.health import Health, HealthState
from holdfast.balancer.probing.messages import ProbeCode, ProbeReport, ProbeResult
from holdfast.balancer.services.resolved import Services
from holdfast.balancer.vip import Vip, backend, shown
from holdfast.config.sections.balancer import BalancerSettings
from holdfast.model.base.time import Instant, seconds
from holdfast.model.control.intent import IntentKind
from holdfast.testing import World
from holdfast.testing.fault import fault
from tests.balancer.harness import BalancerHarness, configuration, simple
from tests.balancer.test_reconciler import VIP, apply_intents, intent, play, settled


def with_standby(first: str = "b1: {}, b2: {}", offset: int = 0, extra: str = "") -> BalancerSettings:
    """Backend b3 takes over when nobody of the first pool serves. `offset` moves the addresses of b1 and b2."""
    lines = ["healthchecks: {web: {type: tcp, interval: 1s}}", "backends:"]
    addresses = {1: 1 + offset, 2: 2 + offset, 3: 3}
    lines += [f"  b{n}: {{address: 10.0.0.{at}, port: 80, healthcheck: web}}" for n, at in addresses.items()]
    pools = f"[{{backends: {{{first}}}}}, {{backends: {{b3: {{}}}}}}]"
    lines += ["frontends:", f"  f1: {{address: 192.0.2.1, port: 80, pools: {pools}{extra and ', ' + extra}}}"]
    return configuration("\n".join(lines))


def addressed(**addresses: str) -> BalancerSettings:
    """One pool of these backends."""
    lines = ["healthchecks: {web: {type: tcp, interval: 1s}}", "backends:"]
    lines += [f"  {name}: {{address: {address}, port: 80, healthcheck: web}}" for name, address in addresses.items()]
    pool = ", ".join(f"{name}: {{}}" for name in addresses)
    lines += ["frontends:", f"  f1: {{address: 192.0.2.1, port: 80, pools: [{{backends: {{{pool}}}}}]}}"]
    return configuration("\n".join(lines))


@fault("B26", without="holdfast.balancer.gates:VipBrake.counts", returns=True)
def test_B26_six_backends_scaled_to_two_leave_within_a_second(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2, 3, 4, 5, 6))
        site.reload(simple(1, 2))
        await asyncio.sleep(1)
        assert site.weights() == {"b1": 100, "b2": 100}

    play(story, tmp_path)


def test_a_backend_that_leaves_keeps_its_flows_for_a_moment_and_gets_no_new_one(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2, 3))
        clients = [n for n in range(200) if site.dataplane.connect(VIP, n) == backend("10.0.0.3", 80)]
        site.reload(simple(1, 2))
        await asyncio.sleep(0.3)
        assert site.weights() == {"b1": 100, "b2": 100, "b3": 0}
        assert all((VIP, n) in site.dataplane.flows for n in clients)
        await asyncio.sleep(0.5)
        assert site.weights() == {"b1": 100, "b2": 100}
        assert not any((VIP, n) in site.dataplane.flows for n in clients)

    play(story, tmp_path)


def test_entries_of_vips_that_the_brake_holds_stay_with_them(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2, frontends=6))
        site.reload(simple(1, 2))
        await asyncio.sleep(5)
        assert [site.weights(vip) for vip in range(1, 7)] == [{"b1": 100, "b2": 100}] * 6

    play(story, tmp_path)


@fault("B29", without="holdfast.balancer.gates:HealthGate._has_request", by=f"{__name__}:what_is_lowered_passes")
def test_B29_the_standby_serves_when_primaries_are_disabled_while_the_prober_is_silent(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, with_standby())
        site.truth.dead = True
        await asyncio.sleep(10)
        apply_intents(site, intent(IntentKind.DISABLE, "b1"), intent(IntentKind.DISABLE, "b2"))
        await asyncio.sleep(2)
        assert site.weights() == {"b1": 0, "b2": 0, "b3": 100}

    play(story, tmp_path)


def what_is_lowered_passes(gate: HealthGate, found: object, vip: object, now: object) -> bool:
    """As before: an operator's hold passes on its own, without the changes that make up for it."""
    return False


def test_the_standby_serves_when_primaries_leave_the_configuration_while_the_prober_is_silent(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, with_standby())
        site.truth.dead = True
        await asyncio.sleep(10)
        site.reload(with_standby(""))
        await asyncio.sleep(2)
        assert site.weights() == {"b3": 100}

    play(story, tmp_path)


@fault("B27", without="holdfast.balancer.desired.reachability:Reachability.is_failing", returns=False)
def test_B27_one_backend_without_a_route_goes_down_while_others_pass(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2, 3))
        site.truth.no_route = {"b1"}
        await asyncio.sleep(3)
        assert site.weights() == {"b1": 0, "b2": 100, "b3": 100}

    play(story, tmp_path)


def test_B27_without_a_route_to_anybody_nothing_is_known_and_nothing_changes(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2, 3))
        site.truth.no_route = {"b1", "b2", "b3"}
        await asyncio.sleep(30)
        assert site.weights() == {"b1": 100, "b2": 100, "b3": 100}
        assert site.reconciler.health.reason is HealthReason.NO_ROUTE

    play(story, tmp_path)


def test_B27_without_a_route_to_anybody_a_slow_start_waits(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        site.truth.down = {"b3"}
        await settled(site, simple(1, 2, 3, extra="slow_start: 60s"))
        site.truth.down = set()
        await asyncio.sleep(10)
        site.truth.no_route = {"b1", "b2", "b3"}
        await asyncio.sleep(5)
        before = site.weights()
        assert 0 < before["b3"] < 50
        await asyncio.sleep(60)
        assert site.weights() == before
        assert site.reconciler.loop.held()["no_prober"] == 1

    play(story, tmp_path)


@pytest.mark.parametrize(
    ("extra", "weights"),
    [("src_ip_sticky: true", {}), ("table_size: 1021", {}), ("", {"b1": 50})],
    ids=["sticky", "size", "weight"],
)
def test_B29_what_the_configuration_asks_for_passes_while_the_prober_is_silent(
    tmp_path: Path, extra: str, weights: Mapping[str, int]
) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, with_standby())
        site.truth.dead = True
        await asyncio.sleep(10)
        pool = ", ".join(f"{name}: {{weight: {weights.get(name, 100)}}}" for name in ("b1", "b2"))
        site.reload(with_standby(pool, extra=extra))
        await asyncio.sleep(2)
        assert site.weights() == {"b1": weights.get("b1", 100), "b2": 100, "b3": 0}
        wanted = site.reconciler.source.of(Vip.of("192.0.2.1", "tcp", 80), site.node.clock.now())
        assert site.dataplane.objects == wanted
        assert not site.reconciler.loop.held()

    play(story, tmp_path)


@fault("B30", without="holdfast.balancer.desired.pools:_counts", by=f"{__name__}:everybody_counts")
def test_B30_scaling_out_is_no_panic_and_newcomers_get_no_traffic_before_a_result(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        extra = "panic_threshold: 60"
        site.truth.down = {"b2"}
        await settled(site, simple(1, 2, 3, extra=extra))
        assert site.weights() == {"b1": 100, "b2": 0, "b3": 100}
        site.truth.mute = {"b4", "b5", "b6"}
        site.reload(simple(1, 2, 3, 4, 5, 6, extra=extra))
        await asyncio.sleep(5)
        assert site.weights() == {"b1": 100, "b2": 0, "b3": 100, "b4": 0, "b5": 0, "b6": 0}

    play(story, tmp_path)


def everybody_counts(member: object) -> bool:
    return True


@fault("B31", without="holdfast.balancer.desired.state:_is_current", returns=True)
def test_B31_a_late_result_of_the_old_address_says_nothing_about_the_new_one(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, addressed(b1="10.0.0.1", b2="10.0.0.2"))
        old = next(one for one in site.reconciler.balancer.services.targets(site.reconciler.balancer.health))
        site.truth.mute = {"b1"}
        site.reload(addressed(b1="10.0.0.9", b2="10.0.0.2"))
        now = site.node.clock.now()
        late = ProbeResult(old.id, True, ProbeCode.L4OK, seconds(0.001), now, generation=old.generation)
        site.reconciler.on_report(ProbeReport(now, (late,), 2))
        assert site.reconciler.balancer.health["b1"].state is HealthState.UNKNOWN
        await asyncio.sleep(0)

    play(story, tmp_path)


@fault("B32", without="holdfast.balancer.services.resolved:_same_backend", by=f"{__name__}:by_name")
def test_B32_a_renamed_backend_keeps_its_health(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, addressed(b1="10.0.0.1", b2="10.0.0.2"))
        site.truth.mute = {"new"}
        site.reload(addressed(new="10.0.0.1", b2="10.0.0.2"))
        await asyncio.sleep(5)
        assert site.weights() == {"b1": 100, "b2": 100}

    play(story, tmp_path)


def by_name(old: Services, backend: object) -> object:
    return old.backends.get(backend.name)  # type: ignore[attr-defined]


def test_B32_a_down_backend_without_checks_is_up(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        site.truth.down = {"b1"}
        await settled(site, simple(1, 2))
        assert site.weights() == {"b1": 0, "b2": 100}
        plain = configuration(
            "backends: {b1: {address: 10.0.0.1, port: 80}, b2: {address: 10.0.0.2, port: 80}}\n"
            "frontends: {f1: {address: 192.0.2.1, port: 80, pools: [{backends: {b1: {}, b2: {}}}]}}"
        )
        site.reload(plain)
        await asyncio.sleep(1)
        assert site.weights() == {"b1": 100, "b2": 100}
        assert site.reconciler.balancer.history["b1"][-1].new is HealthState.UP

    play(story, tmp_path)


@fault("B35", without="holdfast.balancer.desired.state:BalancerState._kept_predecessors", by=f"{__name__}:none_kept")
def test_B35_a_re_addressed_pool_serves_at_its_old_addresses_until_the_first_result(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, with_standby())
        site.truth.mute = {"b1", "b2"}
        site.reload(with_standby(offset=6))
        await asyncio.sleep(5)
        assert site.weights() == {"b1": 100, "b2": 100, "b3": 0}
        site.truth.mute = set()
        await asyncio.sleep(1)
        assert site.weights() == {"b7": 100, "b8": 100, "b3": 0}

    play(story, tmp_path)


def none_kept(
    state: BalancerState, before: Services, known: Mapping[str, Health], now: Instant
) -> dict[str, Predecessor]:
    return {}


def test_an_old_address_serves_no_longer_than_max_delay(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, addressed(b1="10.0.0.1", b2="10.0.0.2"))
        site.truth.mute = {"b1"}
        site.reload(addressed(b1="10.0.0.9", b2="10.0.0.2"))
        await asyncio.sleep(31)
        assert site.weights() == {"b9": 0, "b2": 100}

    play(story, tmp_path)


def test_two_backends_that_exchange_their_addresses_go_on_serving(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, addressed(b1="10.0.0.1", b2="10.0.0.2"))
        site.truth.mute = {"b1", "b2"}
        site.reload(addressed(b1="10.0.0.2", b2="10.0.0.1"))
        await asyncio.sleep(5)
        assert site.weights() == {"b1": 100, "b2": 100}

    play(story, tmp_path)


def test_a_health_change_moves_no_bucket_of_anybody_else(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2, 3, 4, 5))
        vip, gone = Vip.of("192.0.2.1", "tcp", 80), backend("10.0.0.2", 80)
        before = site.dataplane.table(vip)
        site.truth.down = {"b2"}
        await asyncio.sleep(5)
        after = site.dataplane.table(vip)
        assert gone not in after
        assert {old for old, new in zip(before, after, strict=True) if old != new} == {gone}
        site.truth.down = set()
        await asyncio.sleep(5)
        assert site.dataplane.table(vip) == before

    play(story, tmp_path)


def test_a_slow_start_takes_only_its_own_buckets_back(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2, 3, extra="slow_start: 20s"), until=70)
        vip, slow = Vip.of("192.0.2.1", "tcp", 80), backend("10.0.0.2", 80)
        full = site.dataplane.table(vip)
        site.truth.down = {"b2"}
        await asyncio.sleep(5)
        site.truth.down = set()
        before = site.dataplane.table(vip)
        for _ in range(30):
            await asyncio.sleep(1)
            after = site.dataplane.table(vip)
            assert {new for old, new in zip(before, after, strict=True) if old != new} <= {slow}
            before = after
        assert before == full

    play(story, tmp_path)


def test_a_new_backend_joins_the_base_with_its_first_pass_or_after_max_delay(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2))
        site.truth.down = {"b3"}
        site.reload(simple(1, 2, 3, 4))
        await asyncio.sleep(5)
        entries = {shown(key.backend): entry.base for key, entry in site.dataplane.entries.items()}
        assert entries == {"10.0.0.1:80": 100, "10.0.0.2:80": 100, "10.0.0.3:80": 0, "10.0.0.4:80": 100}
        await asyncio.sleep(27)
        assert {entry.base for entry in site.dataplane.entries.values()} == {100}

    play(story, tmp_path)


def test_a_pool_that_recovers_takes_over_again_only_after_the_fail_back_delay(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        config = with_standby(extra="fail_back_delay: 20s")
        await settled(site, config)
        assert site.weights() == {"b1": 100, "b2": 100, "b3": 0}
        site.truth.down = {"b1", "b2"}
        await asyncio.sleep(5)
        assert site.weights() == {"b1": 0, "b2": 0, "b3": 100}
        site.truth.down = set()
        await asyncio.sleep(15)
        assert site.weights() == {"b1": 0, "b2": 0, "b3": 100}
        site.node.kill()
        site.dataplane.calls.clear()
        site.start(config)
        await asyncio.sleep(19)
        assert site.dataplane.calls == []
        await asyncio.sleep(5)
        assert site.weights() == {"b1": 100, "b2": 100, "b3": 0}

    play(story, tmp_path)
