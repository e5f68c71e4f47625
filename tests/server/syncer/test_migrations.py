"""Live migrations from the inventory to the store: order, transactions and brake."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from holdfast.inventory.changes import WantedObject
from holdfast.inventory.sql.schema import OBJECTS
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT, EndpointName
from holdfast.model.calico.migration import MIGRATION, Migration
from holdfast.server.syncer.term import SyncerTerm
from holdfast.store.identity import mark_key
from holdfast.testing.fault import fault
from tests.inventory.harness import REGION, endpoint, endpoint_key, endpoint_name, host, migration, migration_key
from tests.server.harness import SyncerHarness, syncer_harness

HOSTS = [host(1), host(2), host(3)]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[SyncerHarness]:
    with syncer_harness(tmp_path) as made:
        yield made


def keys_written(here: SyncerHarness, after: int) -> list[set[tuple[bytes, bool]]]:
    """Per transaction of the syncer: what it wrote, and whether that is there then. Marks are left out."""
    mark = mark_key(REGION)
    return [
        {(event.key, event.entry is not None) for event in write.events}
        for write in here.fake.history
        if write.revision > after and mark not in {event.key for event in write.events}
    ]


async def moving(here: SyncerHarness, *numbers: int, to: str = "r2") -> SyncerTerm:
    """Endpoints on r1 that are on their way, in the store, too."""
    here.editor.change([*HOSTS, *(endpoint(n) for n in numbers), endpoint(99)], who="alice")
    here.editor.change([migration(n, to=to) for n in numbers], who="alice")
    return await here.settled()


async def changed(
    here: SyncerHarness, term: SyncerTerm, changes: Sequence[WantedObject]
) -> list[set[tuple[bytes, bool]]]:
    before = here.fake.revision
    here.editor.change(changes, who="alice")
    await term.reconciler.turn()
    return keys_written(here, before)


def test_a_migration_reaches_the_store_as_the_inventory_has_it(here: SyncerHarness) -> None:
    asyncio.run(moving(here, 1))
    stored = MIGRATION.decode(migration_key(1, to="r2"), here.stored()[migration_key(1, to="r2")])
    assert isinstance(stored, Migration)
    assert (stored.source.node, stored.target.node) == ("r1", "r2")
    assert here.stored() == here.wanted()


@pytest.mark.parametrize("between", [WantedObject(MIGRATION, endpoint_name(1)), migration(1, to="r3")])
def test_a_migration_that_begins_again_between_two_passes_is_a_new_one_in_the_store_too(
    here: SyncerHarness, between: WantedObject
) -> None:
    async def scenario() -> list[set[tuple[bytes, bool]]]:
        term = await moving(here, 1)
        here.editor.change([between], who="alice")
        return await changed(here, term, [migration(1, to="r2")])

    assert {(migration_key(1, to="r2"), True)} in asyncio.run(scenario())
    assert here.stored() == here.wanted()


def test_one_that_begins_with_its_endpoint_is_not_there_before_it(here: SyncerHarness) -> None:
    async def scenario() -> list[set[tuple[bytes, bool]]]:
        term = await moving(here)
        return await changed(here, term, [migration(1, to="r2"), endpoint(1)])

    written = asyncio.run(scenario())
    assert written == [{(endpoint_key(1), True)}, {(migration_key(1, to="r2"), True)}]


ARRIVAL = {(endpoint_key(1, on="r1"), False), (endpoint_key(1, on="r2"), True), (migration_key(1, to="r2"), False)}


@fault(
    "C35",
    without="holdfast.server.syncer.keys:RegionKeys.workload",
    by="tests.server.syncer.without_protection:endpoints_alone",
    sees=(AssertionError, r"asyncio.run\(scenario\(\)\) == \[ARRIVAL\]"),
)
def test_C35_an_arrival_is_one_transaction_with_the_end_of_its_migration(here: SyncerHarness) -> None:
    async def scenario() -> list[set[tuple[bytes, bool]]]:
        term = await moving(here, 1)
        return await changed(here, term, [endpoint(1, on="r2")])

    assert asyncio.run(scenario()) == [ARRIVAL]
    assert here.stored() == here.wanted()


def test_another_target_is_one_transaction(here: SyncerHarness) -> None:
    async def scenario() -> list[set[tuple[bytes, bool]]]:
        term = await moving(here, 1)
        return await changed(here, term, [migration(1, to="r3")])

    assert asyncio.run(scenario()) == [{(migration_key(1, to="r2"), False), (migration_key(1, to="r3"), True)}]


def test_an_arrival_that_sets_out_again_at_once_is_one_transaction(here: SyncerHarness) -> None:
    async def scenario() -> list[set[tuple[bytes, bool]]]:
        term = await moving(here, 1)
        return await changed(here, term, [endpoint(1, on="r2"), migration(1, to="r3")])

    assert asyncio.run(scenario()) == [ARRIVAL | {(migration_key(1, to="r3"), True)}]
    assert here.stored() == here.wanted()


def test_a_migration_does_not_outlive_its_endpoint(here: SyncerHarness) -> None:
    async def scenario() -> list[set[tuple[bytes, bool]]]:
        term = await moving(here, 1)
        return await changed(here, term, [WantedObject(ENDPOINT, endpoint_name(1))])

    assert asyncio.run(scenario()) == [{(migration_key(1, to="r2"), False)}, {(endpoint_key(1), False)}]


def test_a_cancelled_migration_leaves_its_endpoint_alone(here: SyncerHarness) -> None:
    async def scenario() -> list[set[tuple[bytes, bool]]]:
        term = await moving(here, 1)
        return await changed(here, term, [WantedObject(MIGRATION, endpoint_name(1))])

    assert asyncio.run(scenario()) == [{(migration_key(1, to="r2"), False)}]


def test_the_next_leader_ends_no_migration_before_its_endpoint_has_arrived(here: SyncerHarness) -> None:
    async def scenario() -> list[set[tuple[bytes, bool]]]:
        await moving(here, 1)
        before = here.fake.revision
        here.editor.change([endpoint(1, on="r2")], who="alice")
        term = await here.lead()
        await term.reconciler.turn()
        return [one for one in keys_written(here, before) if one & ARRIVAL]

    first, *rest = asyncio.run(scenario())
    assert (endpoint_key(1, on="r2"), True) in first
    assert first.union(*rest) == ARRIVAL
    assert here.stored() == here.wanted()


def test_a_host_that_is_evacuated_is_no_loss_of_migrations(here: SyncerHarness) -> None:
    async def scenario() -> str:
        numbers = range(1, 41)
        term = await moving(here, *numbers)
        await changed(here, term, [endpoint(n, on="r2") for n in numbers])
        return term.syncer.context.vitals.state

    assert asyncio.run(scenario()) == "ok"
    assert here.stored() == here.wanted()
    assert here.stored(MIGRATION.prefix(REGION)) == {}


def test_migrations_that_a_database_lost_stay_until_an_operator_allows_it(here: SyncerHarness) -> None:
    async def scenario() -> list[str]:
        term = await moving(here, 1, 2)
        with here.engine.begin() as connection:
            connection.execute(OBJECTS.delete().where(OBJECTS.c.kind == MIGRATION.name))
        return [await here.compared(term), await here.allow_unwitnessed(term)]

    assert asyncio.run(scenario()) == ["held: witness", "held: brake"]
    assert len(here.stored(MIGRATION.prefix(REGION))) == 2


async def somebodys(here: SyncerHarness, region: Region) -> bytes:
    """A migration of which this inventory knows nothing."""
    strange = Migration.of(region, EndpointName("r1", "holdfast", "w7", "eth0"), "r3")
    key = MIGRATION.key(region, strange.target)
    await here.operator.put(key, MIGRATION.encode(strange))
    return key


def test_a_migration_that_the_inventory_does_not_know_stays_until_an_operator_allows_it(here: SyncerHarness) -> None:
    async def scenario() -> str:
        term = await moving(here, 1, 2)
        key = await somebodys(here, REGION)
        assert await here.compared(term) == "held: witness"
        assert key in here.stored()
        return await here.allow_unwitnessed(term)

    assert asyncio.run(scenario()) == "ok"
    assert here.stored() == here.wanted()


def test_the_only_migration_there_is_is_held_when_the_inventory_does_not_know_it(here: SyncerHarness) -> None:
    async def scenario() -> tuple[bytes, str]:
        term = await moving(here)
        key = await somebodys(here, REGION)
        await here.compared(term)
        return key, await here.allow_unwitnessed(term)

    key, state = asyncio.run(scenario())
    assert (key in here.stored(), state) == (True, "held: brake")


def test_a_migration_of_another_region_is_none_of_ours(here: SyncerHarness) -> None:
    async def scenario() -> tuple[bytes, str]:
        term = await moving(here, 1)
        key = await somebodys(here, Region("ams"))
        term.reconciler.dirty.mark_all()
        await term.reconciler.turn()
        return key, term.syncer.context.vitals.state

    key, state = asyncio.run(scenario())
    assert (key in here.stored(), state) == (True, "ok")
