"""Troubles of frontends, as `holdfast status` shows them, and the last probe error of a backend."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from holdfast.balancer.commands.troubles import FrontendTrouble, troubles
from holdfast.balancer.commands.views import BalancerViews
from holdfast.cli.explain import balancer as explained
from holdfast.cli.status.problems import problems
from holdfast.cli.status.view import StatusView
from holdfast.testing import World
from tests.balancer.harness import BalancerHarness, simple
from tests.balancer.test_reconciler import play, settled


def seen(site: BalancerHarness) -> Sequence[FrontendTrouble]:
    return troubles(site.reconciler, site.node.clock.now())


def test_a_frontend_that_serves_with_all_of_its_backends_has_none(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2, 3))
        assert list(seen(site)) == []

    play(story, tmp_path)


def test_a_backend_that_is_down_while_others_serve_is_handled_by_itself(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        site.truth.down = {"b2"}
        await settled(site, simple(1, 2, 3))
        (one,) = seen(site)
        assert not one.needs_action
        assert one.sentence.startswith("1 of 3 backends down, the others serve: b2 down (")
        assert not problems(StatusView([], troubles=[one]))[0].needs_action

    play(story, tmp_path)


def test_a_frontend_without_a_living_backend_needs_action_until_one_is_back(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        await settled(site, simple(1, 2))
        site.truth.down = {"b1", "b2"}
        await asyncio.sleep(10)
        (one,) = seen(site)
        assert one.needs_action
        assert one.sentence.startswith("no backend serves: b1 down (")
        (problem,) = problems(StatusView([], troubles=[one]))
        assert problem.needs_action
        site.truth.down = set()
        await asyncio.sleep(10)
        assert list(seen(site)) == []

    play(story, tmp_path)


def test_without_a_route_to_any_backend_the_last_probe_error_is_shown(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        site.truth.no_route = {"b1", "b2"}
        site.start(simple(1, 2))
        await asyncio.sleep(60)
        found = seen(site)
        assert [one.subject for one in found] == ["probes", "f1"]
        assert all(one.needs_action and "NOROUTE" in one.sentence for one in found)
        backend = site.reconciler.balancer.services.backends["b1"]
        view = BalancerViews(site.reconciler, site.node.clock.now()).explain_backend(backend)
        assert any("last probe: NOROUTE" in line for line in explained.backend(view))

    play(story, tmp_path)
