"""A frontend with one backend held by an operator, while the health of the others is unknown."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast.balancer.commands.announce_status import announce_input
from holdfast.balancer.health import HealthState
from holdfast.testing import World, simulate
from tests.balancer.harness import BalancerHarness, configuration
from tests.balancer.test_reconciler import apply_intents

CONFIG = configuration(
    """\
healthchecks:
  web: {type: tcp, interval: 1s}
backends:
  b1: {address: 10.0.0.1, port: 80, healthcheck: web, enabled: false}
  b2: {address: 10.0.0.2, port: 80, healthcheck: web}
  b3: {address: 10.0.0.3, port: 80, healthcheck: web}
frontends:
  f1: {address: 192.0.2.1, port: 80, pools: [{backends: {b1: {}, b2: {}}}], announce: {device: lo}}
  f2: {address: 192.0.2.2, port: 80, pools: [{backends: {b3: {}}}]}"""
)


def test_the_adopted_state_stays_announced_until_health_is_known(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        site = BalancerHarness(world.node("lb"), tmp_path)
        site.start(CONFIG)
        apply_intents(site)
        await asyncio.sleep(40)
        assert site.weights() == {"b1": 0, "b2": 100}
        site.node.kill()
        site.truth.mute = {"b2"}  # its check takes longer than the start-up window
        site.start(CONFIG)
        apply_intents(site)
        await asyncio.sleep(60)
        assert site.weights() == {"b1": 0, "b2": 100}
        assert [one.state for one in announce_input(site.reconciler, site.node.clock.now()).frontends] == [
            HealthState.UNKNOWN
        ]
        site.truth.mute, site.truth.down = set(), {"b2"}
        await asyncio.sleep(30)
        assert site.weights() == {"b1": 0, "b2": 0}
        assert [one.state for one in announce_input(site.reconciler, site.node.clock.now()).frontends] == [
            HealthState.DOWN
        ]

    simulate(1, scenario)
