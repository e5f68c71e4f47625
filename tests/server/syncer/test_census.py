"""The census as the leader publishes it: from the inventory, when nothing is outstanding, and not all the time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.fleet.census import CENSUS, Census, KeySum
from holdfast.server.syncer.census import INTERVAL, RENEWAL
from tests.inventory.harness import REGION, endpoint
from tests.server.harness import SyncerHarness, syncer_harness

KEY = CENSUS.key(REGION, "census")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[SyncerHarness]:
    with syncer_harness(tmp_path) as made:
        made.editor.change([endpoint(1), endpoint(2)], who="alice")
        yield made


def published(here: SyncerHarness) -> Census | None:
    stored = here.stored(KEY)
    found = CENSUS.decode(KEY, stored[KEY]) if stored else None
    return found if isinstance(found, Census) else None


def endpoints(here: SyncerHarness) -> KeySum:
    """Sum of the endpoints that the store has."""
    return KeySum().with_keys(here.stored(ENDPOINT.prefix(REGION)))


def test_what_the_inventory_has_is_published_with_the_revision_at_which_the_store_has_it(here: SyncerHarness) -> None:
    async def scenario() -> None:
        term = await here.settled()
        await term.census.keep()

    asyncio.run(scenario())
    census = published(here)
    assert census is not None
    assert census.endpoints == endpoints(here)
    assert census.endpoints.count == 2
    assert census.revision == here.fake.revision - 1  # the next one is the census itself


def test_an_object_that_the_store_lost_is_counted_all_the_same(here: SyncerHarness) -> None:
    async def scenario() -> None:
        term = await here.settled()
        await here.operator.delete(next(iter(here.stored(ENDPOINT.prefix(REGION)))))
        await term.census.keep()

    asyncio.run(scenario())
    census = published(here)
    assert census is not None
    assert (census.endpoints.count, endpoints(here).count) == (2, 1)


def test_a_change_is_counted_once_a_minute_and_an_old_census_is_renewed(here: SyncerHarness) -> None:
    async def scenario() -> list[int]:
        term = await here.settled()
        await term.census.keep()
        first = published(here)
        here.editor.change([endpoint(3)], who="alice")
        await term.reconciler.turn()
        await term.census.keep()
        assert published(here) == first
        here.clock.advance(INTERVAL)
        await term.census.keep()
        second = published(here)
        here.clock.advance(INTERVAL)
        await term.census.keep()
        assert published(here) == second
        here.clock.advance(RENEWAL)
        await term.census.keep()
        third = published(here)
        assert first is not None
        assert second is not None
        assert third is not None
        assert third.revision > second.revision
        return [one.endpoints.count for one in (first, second, third)]

    assert asyncio.run(scenario()) == [2, 3, 3]


def test_nothing_is_published_while_a_change_waits_for_the_store(here: SyncerHarness) -> None:
    async def scenario() -> None:
        term = await here.settled()
        here.editor.change([endpoint(3)], who="alice")
        await term.outbox.fetch()
        await term.census.keep()

    asyncio.run(scenario())
    assert published(here) is None
