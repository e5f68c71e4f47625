"""`withdraw-after`: the announcer hears since when the health of a frontend could not be verified."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast.balancer.commands.announce_status import announce_input
from holdfast.balancer.commands.views import BalancerViews
from holdfast.balancer.health import HealthState
from holdfast.model.base.time import seconds
from holdfast.testing import World
from tests.balancer.harness import BalancerHarness, simple
from tests.balancer.test_reconciler import play, settled


def test_the_announcer_hears_since_when_health_is_not_verified(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        config = simple(1, extra="announce: {device: lo}\nwithdraw_after: 60s")
        await settled(site, config)
        (found,) = announce_input(site.reconciler, site.node.clock.now()).frontends
        assert (found.withdraw_after, found.unverified_since) == (seconds(60), None)
        died = site.node.clock.now()
        site.truth.dead = True
        await asyncio.sleep(70)
        (found,) = announce_input(site.reconciler, site.node.clock.now()).frontends
        assert found.unverified_since is not None
        assert abs(found.unverified_since - died) < seconds(1)
        assert found.is_unverified(site.node.clock.now())
        view = BalancerViews(site.reconciler, site.node.clock.now())
        (frontend,) = view.status()["frontends"]
        assert frontend["announce"]["why"] == (
            "the health of its backends could not be verified for 1m (withdraw-after)"
        )
        site.node.kill()
        site.truth.dead = False
        site.truth.mute = {"b1"}
        site.start(config)
        await asyncio.sleep(50)
        (found,) = announce_input(site.reconciler, site.node.clock.now()).frontends
        assert found.state is HealthState.UNKNOWN
        assert not found.is_unverified(site.node.clock.now())
        await asyncio.sleep(11)
        assert found.is_unverified(site.node.clock.now())

    play(story, tmp_path)
