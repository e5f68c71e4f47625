"""A VIP is deleted only after its address is withdrawn; the reconciler on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from holdfast.balancer.commands.announce_status import announce_input
from holdfast.balancer.vip import VipKey
from holdfast.testing import World, simulate
from tests.balancer.harness import BalancerHarness, simple

ANNOUNCED = "announce: {device: lo, withdraw_delay: 10s}"
Story = Callable[[BalancerHarness], Coroutine[Any, Any, None]]


def play(story: Story, folder: Path) -> None:
    async def scenario(world: World) -> None:
        site = BalancerHarness(world.node("lb"), folder)
        site.start(simple(1, 2, frontends=3, extra=ANNOUNCED))
        await asyncio.sleep(40)
        await story(site)

    simulate(1, scenario)


def report(site: BalancerHarness, *announced: str) -> None:
    """Reports as the announcer does several times a second."""
    site.reconciler.announced_gate.on_report(announced, {}, site.node.clock.now())


def vips(site: BalancerHarness) -> set[str]:
    return {str(key.vip).partition(":")[0] for key in site.dataplane.objects if key == VipKey(key.vip)}


def gates(site: BalancerHarness) -> set[str]:
    return set(site.reconciler.loop.held())


async def report_for(site: BalancerHarness, seconds: int, *announced: str) -> None:
    for _ in range(seconds):
        report(site, *announced)
        await asyncio.sleep(1)


def test_a_vip_stays_until_its_address_is_withdrawn(tmp_path: Path) -> None:
    async def story(site: BalancerHarness) -> None:
        report(site, "192.0.2.1", "192.0.2.2", "192.0.2.3")
        site.reload(simple(1, 2, frontends=2, extra=ANNOUNCED))
        await report_for(site, 20, "192.0.2.1", "192.0.2.2", "192.0.2.3")
        assert vips(site) == {"192.0.2.1", "192.0.2.2", "192.0.2.3"}
        assert len(site.weights(3)) == 2
        assert gates(site) == {"announced"}
        await report_for(site, 3, "192.0.2.1", "192.0.2.2")
        assert vips(site) == {"192.0.2.1", "192.0.2.2"}

    play(story, tmp_path)


def test_a_vip_that_is_not_announced_goes_at_once(tmp_path: Path) -> None:
    async def story(site: BalancerHarness) -> None:
        report(site, "192.0.2.1")
        site.reload(simple(1, 2, frontends=2, extra=ANNOUNCED))
        await report_for(site, 2, "192.0.2.1")
        assert vips(site) == {"192.0.2.1", "192.0.2.2"}

    play(story, tmp_path)


def test_a_vip_stays_until_the_announcer_has_reported_what_it_did_with_the_last_answer(tmp_path: Path) -> None:
    async def story(site: BalancerHarness) -> None:
        report(site)
        site.reconciler.announced_gate.on_answer({"192.0.2.3"})
        site.reload(simple(1, 2, frontends=2, extra=ANNOUNCED))
        await report_for(site, 2)
        assert "192.0.2.3" in vips(site)
        site.reconciler.announced_gate.on_answer(())
        await report_for(site, 2)
        assert "192.0.2.3" not in vips(site)

    play(story, tmp_path)


def test_an_announcer_that_has_been_silent_for_long_is_not_waited_for(tmp_path: Path) -> None:
    async def story(site: BalancerHarness) -> None:
        report(site, "192.0.2.3")
        site.reload(simple(1, 2, frontends=2, extra=ANNOUNCED))
        await asyncio.sleep(25)
        assert "192.0.2.3" in vips(site)
        await asyncio.sleep(10)
        assert "192.0.2.3" not in vips(site)

    play(story, tmp_path)


def test_a_vip_held_by_the_brake_stays_announced(tmp_path: Path) -> None:
    async def story(site: BalancerHarness) -> None:
        everything = [f"192.0.2.{n}" for n in range(1, 7)]
        site.reload(simple(1, 2, frontends=6, extra=ANNOUNCED))
        await report_for(site, 2, *everything)
        site.reload(simple(1, 2, frontends=1, extra=ANNOUNCED))
        await report_for(site, 2, *everything)
        assert gates(site) == {"brake"}
        assert announce_input(site.reconciler, site.node.clock.now()).kept_vips == tuple(everything[1:])

    play(story, tmp_path)


def test_a_vip_that_waits_for_its_withdrawal_does_not_count_as_kept(tmp_path: Path) -> None:
    async def story(site: BalancerHarness) -> None:
        report(site, "192.0.2.3")
        site.reload(simple(1, 2, frontends=2, extra=ANNOUNCED))
        await report_for(site, 2, "192.0.2.3")
        assert announce_input(site.reconciler, site.node.clock.now()).kept_vips == ()

    play(story, tmp_path)


def test_the_announcer_gets_the_state_of_every_announced_frontend(tmp_path: Path) -> None:
    async def story(site: BalancerHarness) -> None:
        site.truth.down = {"b1", "b2"}
        await asyncio.sleep(10)
        found = announce_input(site.reconciler, site.node.clock.now())
        assert [(one.frontend, one.address, one.state.value, one.programmed) for one in found.frontends] == [
            ("f1", "192.0.2.1", "down", True),
            ("f2", "192.0.2.2", "down", True),
            ("f3", "192.0.2.3", "down", True),
        ]
        assert (found.revision, found.warming, found.prober_silent_since) == (1, False, None)
        site.truth.dead = True
        await asyncio.sleep(10)
        assert announce_input(site.reconciler, site.node.clock.now()).prober_silent_since is not None

    play(story, tmp_path)
