"""The fleet's prefixes as the leader publishes them: from the networks, and only while they bound the fleet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.model.fleet.network import NETWORK
from holdfast.model.fleet.prefixes import FLEET_PREFIXES, FleetPrefixes
from holdfast.server.syncer.fleet_prefixes import INTERVAL
from tests.inventory.edit.test_networks import network, on
from tests.inventory.harness import REGION, endpoint
from tests.server.harness import SyncerHarness, syncer_harness

KEY = FLEET_PREFIXES.key(REGION, "prefixes")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[SyncerHarness]:
    with syncer_harness(tmp_path) as made:
        made.editor.change([network("red", "10.28.0.0/16"), on("red", 1, "10.28.0.1")], who="alice")
        yield made


def published(here: SyncerHarness) -> object:
    stored = here.stored(KEY)
    return FLEET_PREFIXES.decode(KEY, stored[KEY]) if stored else None


def test_the_prefixes_of_all_networks_are_published_in_one_key(here: SyncerHarness) -> None:
    here.editor.change([network("blue", "10.29.0.0/16", "fd5f::/64")], who="alice")
    asyncio.run(here.settled())
    assert published(here) == FleetPrefixes(("10.28.0.0/16", "10.29.0.0/16", "fd5f::/64"), bounded=True)


def test_an_endpoint_without_a_network_ends_the_bounds_at_the_next_comparison(here: SyncerHarness) -> None:
    async def scenario() -> list[object]:
        term = await here.settled()
        await term.prefixes.keep()
        here.editor.change([endpoint(7)], who="alice")
        await term.prefixes.keep()
        early = published(here)
        here.clock.advance(INTERVAL)
        await term.prefixes.keep()
        return [early, published(here)]

    assert asyncio.run(scenario()) == [
        FleetPrefixes(("10.28.0.0/16",), bounded=True),
        FleetPrefixes(("10.28.0.0/16",), bounded=False),
    ]


def test_a_new_prefix_is_published_before_its_network_and_endpoints_are_written(here: SyncerHarness) -> None:
    async def scenario() -> None:
        term = await here.settled()
        here.editor.change([network("blue", "10.29.0.0/16"), on("blue", 2, "10.29.0.1")], who="alice")
        await term.reconciler.turn()

    asyncio.run(scenario())
    order = [event.key for moment in here.fake.history for event in moment.events]
    last_published = max(at for at, key in enumerate(order) if key == KEY)
    assert last_published < order.index(NETWORK.key(REGION, "blue"))
    assert published(here) == FleetPrefixes(("10.28.0.0/16", "10.29.0.0/16"), bounded=True)


def test_what_is_published_already_is_not_written_again_by_the_next_leader(here: SyncerHarness) -> None:
    async def scenario() -> int:
        await here.settled()
        await here.settled()
        return sum(event.key == KEY for moment in here.fake.history for event in moment.events)

    assert asyncio.run(scenario()) == 1


def test_a_key_that_was_lost_with_the_store_is_published_again(here: SyncerHarness) -> None:
    async def scenario() -> None:
        term = await here.settled()
        await here.operator.delete(KEY)
        term.prefixes.forget()
        await term.prefixes.keep()

    asyncio.run(scenario())
    assert published(here) == FleetPrefixes(("10.28.0.0/16",), bounded=True)
