"""Rate of skipped changes: over a minute, and not from a moment."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast.agent.commands.control import AgentCommands
from holdfast.agent.desired.skipped_rate import SHORTEST, SkippedRate
from holdfast.model.base.time import Instant, seconds
from holdfast.runtime.control import Request, Who
from holdfast.store.api import Put
from tests.agent.harness import ME, HostHarness
from tests.agent.test_reconciler import on_a_site

POLICY = b"/calico/resources/v3/projectcalico.org/networkpolicies/openstack/ossg.default.%d"
START = Instant(1_000_000_000)


def test_a_rate_is_that_of_the_last_minute() -> None:
    rate = SkippedRate()
    assert rate.per_second == 0.0
    for second in range(0, 200, 5):
        rate.note(1_000 + 20 * max(0, second - 100), START + seconds(second))
    assert rate.per_second == 20.0


def test_a_burst_at_the_start_is_no_rate() -> None:
    rate = SkippedRate()
    rate.note(0, START)
    rate.note(5_000, START + SHORTEST / 2)
    assert rate.per_second == 0.0


def test_an_agent_tells_how_many_changes_of_other_kinds_it_skips_and_takes_nothing_from_them(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1))
        site.start()
        await site.settled()
        revision = site.running.watchers[0].synced.revision
        for _ in range(60):
            site.running.measure(site.node.clock.now())
            fleet.write(*(Put(POLICY % number, b"not even JSON") for number in range(15)))
            await asyncio.sleep(1)
        commands = AgentCommands(site.running, ME, "boot-1", site.node.clock)
        about = await commands.handlers()["about"](Request("about"), Who(0, 1, "test"))
        assert 13 < about["skipped_per_second"] < 17
        assert site.running.watchers[0].synced.revision == revision
        assert site.running.watchers[0].synced.unreadable == ()

    on_a_site(scene, tmp_path)
