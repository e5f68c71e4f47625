"""C38: a half-open watch is detected by this host's own report, which it does not deliver."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from holdfast.agent.journal import Journal
from holdfast.agent.target import JournaledTarget
from holdfast.agent.worker import own_key, source_watcher
from holdfast.config.root import Config
from holdfast.model.base.time import seconds
from holdfast.model.fleet.agent_report import AGENT_REPORT
from holdfast.store.api import Put
from holdfast.testing import World, simulate
from holdfast.testing.fakes.kernel import FakeKernel
from holdfast.testing.fault import fault
from tests.agent.harness import BOOT, ME, REGION, Fleet


async def no_intents() -> None:
    return


CONFIG = msgspec.structs.replace(Config(), agent=msgspec.structs.replace(Config().agent, host=ME))


@fault(
    "C38",
    without="holdfast.agent.worker:own_key",
    returns=None,
    sees=(AssertionError, r'source.has_host\("a"\) is True'),
)
def test_C38_a_host_that_joins_is_seen_although_every_watch_is_half_open(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        fleet, machine = Fleet(world.store), world.node(ME)
        target = JournaledTarget(Journal.open(tmp_path / "journal", BOOT), FakeKernel())
        store = machine.store()
        source = source_watcher(CONFIG, store, machine.clock, target)
        task = asyncio.create_task(source.run(lambda: None, no_intents))
        await asyncio.sleep(5)
        store.link.mute_watches()
        fleet.write(fleet.joins("a", 1), Put(AGENT_REPORT.key(REGION, ME), b"{}"))
        await asyncio.sleep(120)
        await source.catch_up()
        assert source.has_host("a") is True
        task.cancel()

    simulate(1, scenario)


def test_the_own_report_is_checked_often_however_seldom_it_is_written() -> None:
    slow = msgspec.structs.replace(CONFIG, agent=msgspec.structs.replace(CONFIG.agent, report_interval=seconds(600)))
    assert own_key(slow).interval == seconds(10)
    assert own_key(slow).quiet_after == seconds(120)
    assert own_key(CONFIG).quiet_after == seconds(60)
