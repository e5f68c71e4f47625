"""Routine work under way: scaling in and out, new addresses, lost routes, reloads. No flow may pay for it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from holdfast.balancer.commands.views import BalancerViews
from holdfast.balancer.desired.leaving import LeavingBackends, Predecessor
from holdfast.balancer.gates import HealthGate, HealthReason
from holdfast.balancer.health import HealthState
from holdfast.balancer.probing.messages import ProbeCode, ProbeReport, ProbeResult
from holdfast.balancer.services.resolved import Services
from holdfast.balancer.vip import BackendEntry, Vip, VipKey, backend, shown
from holdfast.cli.explain.balancer import frontend as shown_frontend
from holdfast.config.sections.balancer import BalancerSettings
from holdfast.model.base.time import seconds
from holdfast.model.control.intent import IntentKind
from holdfast.testing import World
from holdfast.testing.fault import fault
from tests.balancer.harness import BalancerHarness, configuration, simple
from tests.balancer.test_reconciler import VIP, apply_intents, intent, play, settled

PREDECESSORS = "holdfast.balancer.desired.leaving:LeavingBackends._kept_predecessors"


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


@fault(
    "B26",
    without="holdfast.balancer.gates:VipBrake.counts",
    returns=True,
    sees=(AssertionError, r'site.weights\(\) == \{"b1": 100'),
)
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


@fault(
    "B29",
    without="holdfast.balancer.gates:HealthGate._has_request",
    by=f"{__name__}:what_is_lowered_passes",
    sees=(AssertionError, r'site.weights\(\) == \{"b1": 0, "b2": 0, "b3": 100\}'),
)
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


@fault(
    "B27",
    without="holdfast.balancer.desired.reachability:Reachability.is_failing",
    returns=False,
    sees=(AssertionError, r'site.weights\(\) == \{"b1": 0, "b2": 100, "b3": 100\}'),
)
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


@fault(
    "B30",
    without="holdfast.balancer.desired.pools:_counts",
    by=f"{__name__}:everybody_counts",
    sees=(AssertionError, r'site.weights\(\) == \{"b1": 100, "b2": 0, "b3": 100, "b4": 0'),
)
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


@fault(
    "B31",
    without="holdfast.balancer.desired.state:_is_current",
    returns=True,
    sees=(AssertionError, r'site.reconciler.balancer.health\["b1"\].state is'),
)
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


@fault(
    "B32",
    without="holdfast.balancer.services.resolved:_same_backend",
    by=f"{__name__}:by_name",
    sees=(AssertionError, r'site.weights\(\) == \{"b1": 100'),
)
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


@fault(
    "B35",
    without="holdfast.balancer.desired.leaving:LeavingBackends._kept_predecessors",
    by=f"{__name__}:none_kept",
    sees=(AssertionError, r'site.weights\(\) == \{"b1": 100, "b2": 100, "b3": 0\}'),
)
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


def none_kept(leaving: LeavingBackends, *_arguments: object) -> dict[str, Predecessor]:
    return {}


def test_flows_at_an_old_address_can_end_for_a_moment_after_the_new_one_has_taken_over(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, addressed(b1="10.0.0.1", b2="10.0.0.2"))
        clients = [n for n in range(200) if site.dataplane.connect(VIP, n) == backend("10.0.0.1", 80)]
        site.truth.mute = {"b1"}
        site.reload(addressed(b1="10.0.0.9", b2="10.0.0.2"))
        await asyncio.sleep(5)
        site.truth.mute = set()
        await comes(site, {"b1": 0, "b2": 100, "b9": 100})
        await asyncio.sleep(0.3)
        assert all((VIP, n) in site.dataplane.flows for n in clients)
        await asyncio.sleep(0.5)
        assert site.weights() == {"b2": 100, "b9": 100}

    play(story, tmp_path)


def test_backends_that_others_replace_serve_until_each_of_those_has_a_result(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, with_standby())
        clients = [n for n in range(200) if site.dataplane.connect(VIP, n) == backend("10.0.0.1", 80)]
        site.truth.mute = {"c1", "c2"}
        site.reload(replaced())
        await asyncio.sleep(5)
        assert site.weights() == {"b1": 100, "b2": 100, "b3": 0, "b7": 0, "b8": 0}
        site.truth.mute = {"c2"}
        await asyncio.sleep(1)
        assert site.weights() == {"b1": 100, "b2": 100, "b3": 0, "b7": 100, "b8": 0}
        site.truth.mute = set()
        await comes(site, {"b1": 0, "b2": 0, "b3": 0, "b7": 100, "b8": 100})
        await asyncio.sleep(0.3)
        assert all((VIP, n) in site.dataplane.flows for n in clients)
        await asyncio.sleep(0.5)
        assert site.weights() == {"b3": 0, "b7": 100, "b8": 100}

    play(story, tmp_path)


def test_the_standby_serves_once_those_that_replaced_the_primaries_have_failed(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, with_standby())
        site.truth.down = {"c1", "c2"}
        site.reload(replaced())
        await asyncio.sleep(2)
        assert site.weights() == {"b3": 100, "b7": 0, "b8": 0}

    play(story, tmp_path)


def test_backends_that_others_replace_serve_no_longer_than_max_delay(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, with_standby())
        site.truth.mute = {"c1", "c2"}
        site.reload(replaced())
        await asyncio.sleep(29)
        assert site.weights()["b1"] == 100
        await asyncio.sleep(2)
        assert site.weights() == {"b3": 100, "b7": 0, "b8": 0}

    play(story, tmp_path)


def test_backends_serve_until_the_last_of_several_replacements_has_a_result(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, with_standby())
        site.truth.mute = {"c1", "c2", "d1"}
        site.reload(replaced())
        await asyncio.sleep(2)
        site.reload(replaced(d1=9))
        await asyncio.sleep(2)
        assert site.weights() == {"b1": 100, "b2": 100, "b3": 0, "b9": 0}
        site.reload(replaced(b1=1, d1=9))
        await asyncio.sleep(2)
        assert site.weights() == {"b1": 100, "b2": 100, "b3": 0, "b9": 0}
        site.truth.mute = set()
        await asyncio.sleep(2)
        assert site.weights() == {"b1": 100, "b3": 0, "b9": 100}

    play(story, tmp_path)


async def comes(site: BalancerHarness, weights: Mapping[str, int]) -> None:
    """Return at the moment at which the dataplane has these weights."""
    for _ in range(40):
        if site.weights() == weights:
            return
        await asyncio.sleep(0.05)
    assert site.weights() == weights


def replaced(**addresses: int) -> BalancerSettings:
    """As `with_standby`, with others in the place of b1 and b2: c1 and c2, or those given with their addresses."""
    addresses = addresses or {"c1": 7, "c2": 8}
    lines = ["healthchecks: {web: {type: tcp, interval: 1s}}", "backends:"]
    all_of_them = {**addresses, "b3": 3}
    lines += [f"  {name}: {{address: 10.0.0.{at}, port: 80, healthcheck: web}}" for name, at in all_of_them.items()]
    pools = f"[{{backends: {{{', '.join(f'{name}: {{}}' for name in addresses)}}}}}, {{backends: {{b3: {{}}}}}}]"
    lines += ["frontends:", f"  f1: {{address: 192.0.2.1, port: 80, pools: {pools}}}"]
    return configuration("\n".join(lines))


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


@pytest.mark.parametrize("others", ["addresses", "names"])
def test_a_change_of_addresses_that_is_taken_back_before_the_first_result_is_noticed_by_nobody(
    tmp_path: Path, others: str
) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, with_standby())
        before, calls = site.weights(), len(site.dataplane.calls)
        site.truth.mute = {"b1", "b2", "c1", "c2"}
        site.reload(with_standby(offset=6) if others == "addresses" else replaced())
        await asyncio.sleep(5)
        site.reload(with_standby())
        for _ in range(20):
            assert site.weights().items() >= before.items()
            await asyncio.sleep(0.05)
        assert site.weights() == before
        lowered = [one for one in site.dataplane.calls[calls:] if one.key.backend.address in (0x0A000001, 0x0A000002)]
        assert lowered == []

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


def test_a_lower_weight_of_an_operator_takes_only_from_that_backend_and_gives_exactly_that_back(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2, 3, 4, 5))
        vip, thinned = Vip.of("192.0.2.1", "tcp", 80), backend("10.0.0.2", 80)
        before = site.dataplane.table(vip)
        apply_intents(site, intent(IntentKind.WEIGHT, "b2", 30))
        await asyncio.sleep(1)
        after = site.dataplane.table(vip)
        assert {old for old, new in zip(before, after, strict=True) if old != new} == {thinned}
        assert 0.27 < list(after).count(thinned) / list(before).count(thinned) < 0.33
        apply_intents(site)
        await asyncio.sleep(1)
        assert site.dataplane.table(vip) == before

    play(story, tmp_path)


def test_a_weight_above_the_configured_one_makes_a_new_base(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, with_standby("b1: {weight: 50}, b2: {}"))
        key = VipKey(VIP, backend("10.0.0.1", 80))
        for weight, base in ((20, 50), (80, 80)):
            apply_intents(site, intent(IntentKind.WEIGHT, "b1", weight))
            await asyncio.sleep(1)
            assert site.dataplane.objects[key] == BackendEntry(weight, base=base)

    play(story, tmp_path)


def test_what_a_change_moves_is_logged_before_it_is_made_and_counted(tmp_path: Path) -> None:
    counted: list[float] = []

    async def story(world: World, site: BalancerHarness) -> None:
        moved = site.start(simple(1, 2, 3, 4, 5, extra="flush_on_down: false")).metrics.moved
        await asyncio.sleep(40)
        before = site.dataplane.table(VIP)
        assert moved._value.get() == 0, "a new table moves nothing"
        site.truth.down = {"b2"}
        await asyncio.sleep(5)
        changed = sum(old != new for old, new in zip(before, site.dataplane.table(VIP), strict=True))
        assert moved._value.get() == changed > 0
        counted.append(changed)

    with capture_logs() as logs:
        play(story, tmp_path)
    events = [one["event"] for one in logs]
    (said,) = (one for one in logs if one["event"] == "moving buckets of a VIP")
    assert (said["moved"], said["of_new_flows"]) == (counted[0], f"{counted[0] / said['buckets']:.2%}")
    assert events.index(said["event"]) > events.index("backend changed state")
    assert "changes applied" in events[events.index(said["event"]) :]


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


def test_a_pool_that_serves_is_not_left_while_its_backends_are_restarted_one_by_one(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, with_standby(extra="fail_back_delay: 60s"))
        for name in ("b1", "b2", "b1"):
            site.truth.down = {name}
            await asyncio.sleep(5)
            assert site.weights()["b3"] == 0, f"another backend serves while {name} is down"
            site.truth.down = set()
            await asyncio.sleep(5)
            assert site.weights() == {"b1": 100, "b2": 100, "b3": 0}

    play(story, tmp_path)


def test_a_standby_that_recovers_first_serves_for_the_whole_fail_back_delay(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, with_standby(extra="fail_back_delay: 20s"))
        site.truth.down = {"b1", "b2", "b3"}
        await asyncio.sleep(10)
        site.truth.down = {"b1", "b2"}
        await asyncio.sleep(10)
        site.truth.down = set()
        (frontend,) = site.reconciler.balancer.services.frontends.values()
        served, told = [], []
        for _ in range(60):
            await asyncio.sleep(1)
            served.append(site.weights()["b3"] > 0)
            explained = BalancerViews(site.reconciler, site.node.clock.now()).explain_frontend(frontend)
            told.append(next((line for line in shown_frontend(explained) if "FAIL-BACK" in line), ""))
        assert served == sorted(served, reverse=True), "one switch"
        assert "pool 0 can serve again, and takes over in 10.3 s (fail-back-delay)" in told[9]
        assert told[-1] == ""
        assert 19 <= sum(served) <= 30

    play(story, tmp_path)
