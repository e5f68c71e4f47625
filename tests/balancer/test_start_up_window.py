"""The start-up window as an operator sees it: what the log says, and what an unknown backend is worth at its end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from holdfast.balancer.vip import VipKey
from holdfast.config.sections.balancer import BalancerSettings
from holdfast.testing import World
from tests.balancer.harness import BalancerHarness, configuration, simple
from tests.balancer.test_reconciler import VIP, play, settled


def two_frontends(check_of_b1: str = "healthcheck: web") -> BalancerSettings:
    """b1 behind f1, b1 and b2 behind f2."""
    return configuration(
        "healthchecks: {web: {type: tcp, interval: 1s}}\n"
        "backends:\n"
        f"  b1: {{address: 10.0.0.1, port: 80, {check_of_b1}}}\n"
        "  b2: {address: 10.0.0.2, port: 80, healthcheck: web}\n"
        "frontends:\n"
        "  f1: {address: 192.0.2.1, port: 80, pools: [{backends: {b1: {}}}]}\n"
        "  f2: {address: 192.0.2.2, port: 80, pools: [{backends: {b1: {}, b2: {}}}]}"
    )


def test_what_waits_is_logged_at_debug_with_its_reason_and_a_release_at_info_with_its_trigger(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        site.truth.mute = {"b2"}
        await settled(site, two_frontends(), until=10)
        waiting = site.reconciler.loop.outstanding()
        assert {one.opens for one in waiting} == {
            "a first result for each of its backends, or the start-up window, 30 s after the start"
        }
        await asyncio.sleep(30)

    with capture_logs() as logs:
        play(story, tmp_path)
    held = {(one["reason"], one["log_level"]) for one in logs if one.get("gate") == "warm_up"}
    assert held == {("min_delay", "debug"), ("backend_unknown", "debug")}
    released = [one for one in logs if one["event"] == "warm-up released a frontend"]
    assert [(one["frontend"], one["reason"], one["log_level"]) for one in released] == [
        ("f1", "all its backends are known", "info"),
        ("f2", "the start-up window is over", "info"),
    ]


def test_a_change_that_fails_is_a_warning(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        site.dataplane.refuse = lambda change: "no room" if change.key == VipKey(VIP) else None
        await settled(site, simple(1, 2, frontends=2))

    with capture_logs() as logs:
        play(story, tmp_path)
    assert {one["log_level"] for one in logs if "no room" in str(one)} == {"warning"}


def test_an_emptied_dataplane_gets_released_frontends_at_once_and_the_others_when_they_are(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, two_frontends())
        site.node.kill()
        site.truth.mute = {"b2"}
        site.start(two_frontends())
        await asyncio.sleep(10)
        site.dataplane.restart()
        await asyncio.sleep(2)
        assert (site.weights(1), site.weights(2)) == ({"b1": 100}, {})
        await asyncio.sleep(17)
        assert site.weights(2) == {}, "29 s after the start"
        await asyncio.sleep(2)
        assert site.weights(2) == {"b1": 100, "b2": 0}

    play(story, tmp_path)


@pytest.mark.parametrize(("has_results", "weight"), [(True, 0), (False, 100)])
def test_a_backend_unknown_at_the_end_is_worth_nothing_only_if_the_prober_works(
    tmp_path: Path, has_results: bool, weight: int
) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        config = two_frontends() if has_results else two_frontends("enabled: true")
        await settled(site, config)
        site.node.kill()
        site.truth.mute = {"b2"}
        site.start(config)
        await asyncio.sleep(29)
        assert site.weights(2) == {"b1": 100, "b2": 100}
        await asyncio.sleep(10)
        assert site.weights(2) == {"b1": 100, "b2": weight}

    play(story, tmp_path)


def test_without_delays_nothing_waits(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        none = configuration("startup-min-delay: 0s\nstartup-max-delay: 0s")
        site.start(simple(1, 2), low=none.startup_min_delay, high=none.startup_max_delay)
        await asyncio.sleep(1.5)
        assert site.weights() == {"b1": 100, "b2": 100}

    play(story, tmp_path)
