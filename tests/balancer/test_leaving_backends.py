"""Backends that leave while the dataplane cannot be written: their requests get their moment after the write."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from holdfast.balancer.desired import leaving
from holdfast.balancer.vip import backend
from holdfast.model.base.time import seconds
from holdfast.model.control.intent import IntentKind
from holdfast.testing import World
from tests.balancer.harness import BalancerHarness, simple
from tests.balancer.test_frontend_pause import Operator
from tests.balancer.test_frontend_pause import play as play_operator
from tests.balancer.test_reconciler import VIP, apply_intents, intent, play, settled


@pytest.fixture(autouse=True)
def longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than what may pass between the release of a gate and the write."""
    monkeypatch.setattr(leaving, "LEAVES_AFTER", seconds(3))


def clients_of(site: BalancerHarness, number: int) -> list[int]:
    """Connect clients, and return those of backend 10.0.0.N."""
    return [n for n in range(200) if site.dataplane.connect(VIP, n) == backend(f"10.0.0.{number}", 80)]


def all_flow(site: BalancerHarness, clients: Iterable[int]) -> bool:
    return all((VIP, n) in site.dataplane.flows for n in clients)


async def leaves(site: BalancerHarness, clients: Iterable[int]) -> None:
    """The last of two backends gets no new flow, and its requests end afterwards."""
    await asyncio.sleep(1.5)
    assert site.weights() == {"b1": 100, "b2": 0}
    assert all_flow(site, clients)
    await asyncio.sleep(4)
    assert site.weights() == {"b1": 100}
    assert not all_flow(site, clients)


def test_requests_can_end_at_a_backend_that_left_the_configuration_before_a_restart(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2))
        clients = clients_of(site, 2)
        site.node.kill()
        site.start(simple(1))
        await asyncio.sleep(4.9)
        assert site.weights() == {"b1": 100, "b2": 100}
        await leaves(site, clients)

    play(story, tmp_path)


def test_requests_can_end_at_a_backend_that_left_inside_the_start_up_window(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2))
        clients = clients_of(site, 2)
        site.node.kill()
        site.start(simple(1, 2))
        await asyncio.sleep(1)
        site.reload(simple(1))
        await asyncio.sleep(3.9)
        assert site.weights() == {"b1": 100, "b2": 100}
        await leaves(site, clients)

    play(story, tmp_path)


def test_requests_can_end_at_a_backend_that_left_while_its_frontend_was_paused(tmp_path: Path) -> None:
    async def story(ask: Operator) -> None:
        clients = clients_of(ask.site, 2)
        await ask("pause", reason="a move")
        ask.site.reload(simple(1, frontends=2))
        await asyncio.sleep(60)
        assert ask.site.weights() == {"b1": 100, "b2": 100}
        await ask("resume")
        await leaves(ask.site, clients)

    play_operator(story, tmp_path)


def test_a_backend_that_got_no_new_flows_for_longer_leaves_at_once(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2))
        apply_intents(site, intent(IntentKind.PAUSE, "b2"))
        await asyncio.sleep(10)
        assert site.weights() == {"b1": 100, "b2": 0}
        site.reload(simple(1))
        await asyncio.sleep(1)
        assert site.weights() == {"b1": 100}

    play(story, tmp_path)
