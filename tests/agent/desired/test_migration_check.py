"""A workload that is seen on two hosts: its route moves when it has moved, not because a watch is behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from holdfast.agent.claims import LocalRoute, RemoteRoute
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.migration import MIGRATION
from holdfast.store.api import Compare, Operation, Put, TxnResult
from holdfast.store.identity import identity_key
from holdfast.testing.store.link import Fate
from tests.agent.harness import REGION, HostHarness
from tests.agent.test_reconciler import P1, on_a_site

THERE, ELSEWHERE = RemoteRoute("10.99.0.1"), RemoteRoute("10.99.0.2")


async def begun(site: HostHarness) -> None:
    fleet = site.fleet()
    fleet.write(fleet.joins("a", 1), fleet.joins("b", 2), fleet.runs("w", "a", "10.65.0.1/32"))
    site.start()
    await site.settled()
    assert site.shapes[P1] == THERE


def mute_migrations(site: HostHarness) -> None:
    site.clients["region"].link.mute_watches(MIGRATION.prefix(REGION))


def test_a_migration_that_is_seen_late_moves_nothing_too_early(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        await begun(site)
        shapes: list[object] = []
        site.kernel.observers.append(lambda key, shape: shapes.append(shape) if key == P1 else None)
        mute_migrations(site)
        fleet.write(fleet.migrates("w", "a", "b"))
        fleet.write(fleet.runs("w", "b", "10.65.0.1/32"))
        await asyncio.sleep(60)
        assert shapes == []
        site.clients["region"].link.heal()
        await asyncio.sleep(60)
        assert shapes == []
        fleet.write(fleet.arrived("w", "b"), fleet.ends("w", "a"))
        await asyncio.sleep(5)
        assert shapes == [ELSEWHERE]

    on_a_site(scene, tmp_path)


def test_a_workload_whose_endpoint_is_here_is_programmed_whether_or_not_it_is_known_to_migrate(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        await begun(site)
        mute_migrations(site)
        fleet.write(fleet.migrates("w", "a", "me"))
        fleet.write(fleet.runs("w", "me", "10.65.0.1/32"))
        await asyncio.sleep(30)
        assert site.shapes[P1] == LocalRoute("tap-w")
        site.clients["region"].link.heal()
        await asyncio.sleep(5)
        assert site.shapes[P1] == LocalRoute("tap-w")

    on_a_site(scene, tmp_path)


def test_a_host_that_joins_with_an_older_place_of_a_workload_takes_nothing_from_the_newer_one(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("b", 2), fleet.runs("w", "a", "10.65.0.1/32"))
        fleet.write(fleet.runs("w", "b", "10.65.0.1/32"))
        site.start()
        await site.settled()
        shapes: list[object] = []
        site.kernel.observers.append(lambda key, shape: shapes.append(shape) if key == P1 else None)
        fleet.write(fleet.joins("a", 1))
        await asyncio.sleep(5)
        assert (shapes, site.shapes[P1]) == ([], ELSEWHERE)

    on_a_site(scene, tmp_path)


def test_of_a_workload_on_two_hosts_that_does_not_migrate_the_newer_one_wins_at_once(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        await begun(site)
        fleet.write(fleet.runs("w", "b", "10.65.0.1/32"))
        await asyncio.sleep(2)
        assert site.shapes[P1] == ELSEWHERE
        fleet.write(fleet.ends("w", "b"))
        await asyncio.sleep(2)
        assert site.shapes[P1] == THERE

    on_a_site(scene, tmp_path)


def test_an_unconfirmed_endpoint_is_not_confirmed_when_the_store_does_not_have_it_any_more(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        await begun(site)
        mute_migrations(site)
        fleet.write(fleet.migrates("w", "a", "b"), fleet.runs("w", "b", "10.65.0.1/32"))
        await asyncio.sleep(5)
        site.clients["region"].link.mute_watches(ENDPOINT.prefix(REGION))
        fleet.write(fleet.ends("w", "b"), fleet.arrived("w", "b"))
        await asyncio.sleep(60)
        assert site.shapes[P1] == THERE

    on_a_site(scene, tmp_path)


def test_an_unreadable_migration_is_not_queried_for_ever(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        await begun(site)
        mute_migrations(site)
        fleet.write(Put(fleet.migrates("w", "a", "b").key, b"{"), fleet.runs("w", "b", "10.65.0.1/32"))
        await asyncio.sleep(3)
        site.clients["region"].link.heal()
        await asyncio.sleep(10)
        asked = queries(site)
        await asyncio.sleep(600)
        assert (len(asked), site.shapes[P1]) == (0, THERE)

    on_a_site(scene, tmp_path)


def test_many_queries_are_few_calls_with_increasing_pauses(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        await begun(site)
        asked = queries(site)
        mute_migrations(site)
        for number in range(100):
            prefix = f"10.66.0.{number}/32"
            fleet.write(fleet.runs(f"v{number}", "a", prefix))
            fleet.write(fleet.migrates(f"v{number}", "a", "b"), fleet.runs(f"v{number}", "b", prefix))
        await asyncio.sleep(60)
        assert 3 <= len(asked) <= 60, "100 every second are 6,000"

    on_a_site(scene, tmp_path)


def test_a_migration_that_is_deleted_with_its_target_endpoint_needs_no_query(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        await begun(site)
        fleet.write(fleet.migrates("w", "a", "b"), fleet.runs("w", "b", "10.65.0.1/32"))
        await asyncio.sleep(5)
        asked = queries(site)
        fleet.write(fleet.arrived("w", "b"), fleet.ends("w", "b"))
        await asyncio.sleep(10)
        assert (len(asked), site.shapes[P1]) == (0, THERE)

    on_a_site(scene, tmp_path)


def queries(site: HostHarness) -> list[Sequence[Operation]]:
    """Record the transactions from now on, except those that read the identity of the store."""
    made: list[Sequence[Operation]] = []
    client = site.clients["region"]
    send = client.txn

    async def txn(
        compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult:
        if then[0].key != identity_key(REGION):
            made.append(then)
        return await send(compares, then, otherwise)

    client.txn = txn  # type: ignore[method-assign]
    return made


def test_of_two_workloads_with_one_address_the_one_that_is_rewritten_unchanged_wins_at_once(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        await begun(site)
        fleet.write(fleet.runs("v", "b", "10.65.0.1/32"))
        await asyncio.sleep(2)
        assert site.shapes[P1] == ELSEWHERE
        fleet.write(fleet.runs("w", "a", "10.65.0.1/32"))
        await asyncio.sleep(2)
        assert site.shapes[P1] == THERE

    on_a_site(scene, tmp_path)


def test_an_unreachable_store_is_no_proof_that_nothing_migrates(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        await begun(site)
        link = site.clients["region"].link
        link.next_calls(Fate.REQUEST_LOST, count=5, of="txn")
        fleet.write(fleet.runs("w", "b", "10.65.0.1/32"))
        await asyncio.sleep(2)
        assert site.shapes[P1] == THERE
        await asyncio.sleep(60)
        assert site.shapes[P1] == ELSEWHERE

    on_a_site(scene, tmp_path)
