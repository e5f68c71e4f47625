"""The brake's sliding minute survives a restart of the agent, however it ended."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast.reconcile import BrakeLimits
from holdfast.runtime.decision_log import history
from holdfast.testing.fault import fault
from tests.agent.harness import HostHarness
from tests.agent.test_reconciler import on_a_site


def routes(site: HostHarness) -> int:
    """Routes of workloads."""
    return sum(str(key).startswith("route 10.65.") for key in site.shapes)


def end(site: HostHarness, first: int, count: int = 15) -> None:
    fleet = site.fleet()
    fleet.write(*[fleet.ends(f"w{n}", "a") for n in range(first, first + count)])


async def begin(site: HostHarness) -> None:
    fleet = site.fleet()
    fleet.write(fleet.joins("a", 1), *[fleet.runs(f"w{n}", "a", f"10.65.1.{n}/32") for n in range(100)])
    site.start()
    await site.settled()


async def restart(site: HostHarness) -> None:
    site.node.kill()
    site.start()
    await site.world.until(lambda: site.reconciler is not None and site.reconciler.loop.passes > 0)


@fault(
    "C27",
    without="holdfast.runtime.reconciler.brake_memory:BrakeMemory.recall",
    sees=(AssertionError, r"routes\(site\) == 85"),
)
def test_C27_an_agent_that_is_killed_again_and_again_deletes_no_more_than_one_that_runs(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        await begin(site)
        for first in range(0, 60, 15):
            end(site, first)
            await asyncio.sleep(5)
            await restart(site)
        await asyncio.sleep(5)
        assert routes(site) == 85
        assert site.running.loop.held() == {"brake": 45}

    on_a_site(scene, tmp_path, limits=BrakeLimits())


def test_deletes_that_left_the_window_before_the_restart_are_not_counted(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        await begin(site)
        end(site, 0)
        await asyncio.sleep(62)
        await restart(site)
        end(site, 15)
        await site.settled()
        assert routes(site) == 70

    on_a_site(scene, tmp_path, limits=BrakeLimits())


def test_deletes_that_an_operator_allowed_leave_the_limit_as_it_was_after_a_restart_too(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        await begin(site)
        end(site, 0, 40)
        await site.world.until(lambda: bool(site.running.loop.held()))
        brake = site.running.loop.place.brake
        assert brake is not None
        brake.allow()
        site.running.loop.dirty.mark_all()
        await site.settled()
        await restart(site)
        end(site, 40)
        await site.settled()
        assert routes(site) == 45

    on_a_site(scene, tmp_path, limits=BrakeLimits())


def test_deletes_that_failed_are_not_counted_after_a_restart(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        await begin(site)
        site.kernel.refuse = lambda change: "busy" if change.new is None else None
        end(site, 0)
        await asyncio.sleep(10)
        failed = [one for one in history(site.folder / "decisions", last=0) if one.outcome == "failed"]
        assert len(failed) > 30
        await restart(site)
        site.kernel.refuse = lambda change: None
        await site.settled()
        assert routes(site) == 85

    on_a_site(scene, tmp_path, limits=BrakeLimits())
