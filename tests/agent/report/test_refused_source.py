"""A store that denies one prefix to the agent: the agent waits, and says for what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.agent.journal import Journal
from holdfast.agent.report.summary import AgentSummary
from holdfast.agent.target import JournaledTarget
from holdfast.agent.worker import source_watcher
from holdfast.config.root import Config
from holdfast.model.control.intent import INTENT
from holdfast.model.fleet.prefixes import FLEET_PREFIXES
from holdfast.store.api import Events, Snapshot, StoreRefused
from holdfast.store.identity import identity_key
from holdfast.testing import World, simulate
from holdfast.testing.fakes.kernel import FakeKernel
from tests.agent.harness import BOOT, ME, REGION

CONFIG = msgspec.structs.replace(Config(), agent=msgspec.structs.replace(Config().agent, host=ME))
DENIED = "https://e1:2379 denies our user this key"


async def no_intents() -> None:
    return


def test_the_prefix_that_the_agent_may_not_read_is_named_until_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        machine, denied = world.node(ME), [INTENT.prefix(REGION)]
        target = JournaledTarget(Journal.open(tmp_path / "journal", BOOT), FakeKernel())
        store = machine.store()
        watch = store.watch

        def refusing(*prefixes: bytes, **options: Any) -> AsyncIterator[Snapshot | Events]:
            if not set(denied).isdisjoint(prefixes):
                raise StoreRefused(DENIED)
            return watch(*prefixes, **options)

        monkeypatch.setattr(store, "watch", refusing)
        source = source_watcher(CONFIG, store, machine.clock, target)
        task = asyncio.create_task(source.run(lambda: None, no_intents))
        await asyncio.sleep(30)
        prefixes = FLEET_PREFIXES.prefix(REGION), identity_key(REGION), INTENT.prefix(REGION)
        watched = ", ".join(prefix.decode() for prefix in prefixes)
        refusal = f"{watched} cannot be read: {DENIED}"
        assert source.refusal == refusal
        summary = AgentSummary("0", BOOT, sources={"region": source.synced}, refusals={"region": source.refusal})
        (shown,) = summary.by_source(machine.clock.now())
        assert shown.sentence == f"unsynced: region, 00:00:30, keeping 0 peers; {refusal}"
        denied.clear()
        await asyncio.sleep(10)
        assert source.refusal == ""
        task.cancel()

    simulate(1, scenario)
