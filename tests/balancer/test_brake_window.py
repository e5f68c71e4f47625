"""The brake's sliding minute survives a restart of the balancer, however it ended."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast.model.base.time import seconds
from holdfast.testing import World
from holdfast.testing.fault import fault
from tests.balancer.harness import BalancerHarness, simple
from tests.balancer.test_reconciler import play


def vips(site: BalancerHarness) -> int:
    return len({key.vip for key in site.dataplane.objects})


@fault(
    "C27",
    without="holdfast.runtime.reconciler.brake_memory:BrakeMemory.recall",
    sees=(AssertionError, r"vips\(site\) == 85"),
)
def test_C27_a_balancer_that_is_killed_again_and_again_deletes_no_more_vips_than_one_that_runs(tmp_path: Path) -> None:
    async def story(world: World, site: BalancerHarness) -> None:
        low, high = seconds(1), seconds(2)
        site.start(simple(1, 2, frontends=100), low=low, high=high)
        await asyncio.sleep(10)
        assert vips(site) == 100
        for left in (85, 70, 55):
            site.node.kill()
            site.start(simple(1, 2, frontends=left), low=low, high=high)
            await asyncio.sleep(10)
        assert vips(site) == 85
        assert site.reconciler.loop.held()["brake"] == 90  # 30 VIPs with their two entries each

    play(story, tmp_path)
