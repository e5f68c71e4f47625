"""The census of single hosts: only for those that ask, from the inventory, and gone when they ask no longer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.inventory.changes import wanted
from holdfast.model.calico.host import HOST, Host, HostSpec
from holdfast.model.fleet.agent_report import AGENT_REPORT, AgentReport
from holdfast.model.fleet.census import HOST_CENSUS, Census, KeySum
from holdfast.server.syncer import host_census
from holdfast.server.syncer.census import INTERVAL
from tests.inventory.harness import REGION, endpoint, endpoint_key, migration, migration_key
from tests.server.harness import SyncerHarness, syncer_harness


@pytest.fixture
def here(tmp_path: Path) -> Iterator[SyncerHarness]:
    with syncer_harness(tmp_path) as made:
        hosts = [wanted(HOST, REGION, name, Host.of(name, HostSpec())) for name in ("r1", "r1-1")]
        objects = [*hosts, endpoint(1), endpoint(2), endpoint(3, on="r1-1")]
        made.editor.change([*objects, migration(3, to="r1")], who="alice")
        yield made


async def reports(here: SyncerHarness, name: str, *, asks: bool) -> None:
    report = AgentReport(version="1", boot_id="b", asks_census=asks)
    await here.operator.put(AGENT_REPORT.key(REGION, name), AGENT_REPORT.encode(report))


def published(here: SyncerHarness) -> dict[str, Census]:
    stored = here.stored(HOST_CENSUS.prefix(REGION))
    found = {HOST_CENSUS.parse(key, REGION): HOST_CENSUS.decode(key, value) for key, value in stored.items()}
    return {str(name): census for name, census in found.items() if isinstance(census, Census)}


def test_a_host_that_asks_gets_what_the_inventory_has_of_it(here: SyncerHarness) -> None:
    async def scenario() -> None:
        term = await here.settled()
        await reports(here, "r1", asks=True)
        await reports(here, "r1-1", asks=False)
        await here.operator.delete(endpoint_key(2))  # the store lost it
        await term.host_census.keep()

    asyncio.run(scenario())
    assert published(here) == {
        "r1": Census(
            here.fake.revision - 1,
            KeySum().with_keys([HOST.key(REGION, "r1")]),
            KeySum().with_keys([endpoint_key(1), endpoint_key(2)]),
            KeySum().with_keys([migration_key(3, to="r1")]),
        )
    }


def test_a_host_that_the_inventory_does_not_have_gets_an_empty_census(here: SyncerHarness) -> None:
    async def scenario() -> None:
        term = await here.settled()
        await reports(here, "r9", asks=True)
        await reports(here, "ends-with-", asks=True)  # a name without endpoints
        await term.host_census.keep()

    asyncio.run(scenario())
    assert published(here) == {"r9": Census(here.fake.revision - 1)}


def test_a_host_gets_one_answer_a_minute_and_none_once_it_no_longer_asks(here: SyncerHarness) -> None:
    async def scenario() -> list[int]:
        term = await here.settled()
        await reports(here, "r1", asks=True)
        revisions: list[int] = []
        for _ in range(3):
            await term.host_census.keep()
            revisions += [census.revision for census in published(here).values()]
            here.clock.advance(INTERVAL / 2)
        await reports(here, "r1", asks=False)
        here.clock.advance(INTERVAL)
        await term.host_census.keep()
        return revisions

    first, second, third = asyncio.run(scenario())
    assert first == second < third
    assert published(here) == {}


def test_nothing_is_answered_while_a_change_waits_for_the_store(here: SyncerHarness) -> None:
    async def scenario() -> None:
        term = await here.settled()
        await reports(here, "r1", asks=True)
        here.editor.change([endpoint(4)], who="alice")
        await term.outbox.fetch()
        await term.host_census.keep()
        assert published(here) == {}
        await term.reconciler.turn()
        await term.host_census.keep()  # it still waits for its answer

    asyncio.run(scenario())
    assert published(here)["r1"].endpoints.count == 3


def test_many_hosts_are_answered_in_portions(here: SyncerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_census, "AT_ONCE", 2)
    monkeypatch.setattr(host_census, "_ROWS", 1)

    async def scenario() -> None:
        term = await here.settled()
        for name in ("r1", "r1-1", "r2", "r3", "r4"):
            await reports(here, name, asks=True)
        await term.host_census.keep()

    asyncio.run(scenario())
    assert {name: census.endpoints.count for name, census in published(here).items()} == {
        "r1": 2,
        "r1-1": 1,
        "r2": 0,
        "r3": 0,
        "r4": 0,
    }
