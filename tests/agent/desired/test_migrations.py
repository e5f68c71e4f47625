"""A migration that stands alone: the target programs the workload beside where it is, and its end opens no gap.

Our inventory has one row per endpoint. It writes a migration and leaves the endpoint where it is; when the operator
moves it, the new endpoint is written, the old one deleted, and the migration deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from holdfast.agent.claims import LocalRoute, RemoteRoute
from holdfast.agent.commands.control import AgentCommands
from holdfast.agent.report.endpoints import EndpointReporter
from holdfast.model.base.kind import Kind
from holdfast.model.calico.endpoint import ENDPOINT, EndpointName
from holdfast.model.calico.endpoint_status import ENDPOINT_STATUS, EndpointState, EndpointStatusName
from holdfast.model.calico.host import HOST
from holdfast.model.calico.migration import MIGRATION
from holdfast.store.api import Snapshot, StoreAway, TxnResult
from holdfast.testing import StoreWrite
from holdfast.testing.fault import fault
from holdfast.testing.store.client import FakeClient
from holdfast.testing.store.link import Fate
from tests.agent.desired.harness import (
    ELSEWHERE,
    HERE,
    PREFIX,
    THERE,
    begun,
    mute,
    seen,
    statuses,
    steps,
    under_way_to_b,
)
from tests.agent.harness import ME, REGION, HostHarness, another_store
from tests.agent.test_reconciler import P1, P2, on_a_site


def test_a_workload_that_only_its_migration_brings_is_programmed_where_it_goes(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        await begun(site)
        assert site.shapes[P1] == HERE
        assert site.running.sources.conflicts() == []
        assert statuses(site) == {"me-holdfast-w-eth0": EndpointState.UP}

    on_a_site(scene, tmp_path)


def test_until_its_interface_exists_packets_go_where_the_workload_is(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        site.kernel.interfaces = set()
        shapes = await begun(site)
        assert (site.shapes[P1], shapes) == (THERE, [])
        assert statuses(site) == {"me-holdfast-w-eth0": EndpointState.DOWN}

    on_a_site(scene, tmp_path)


def test_until_its_interface_exists_the_route_to_the_source_is_made_repaired_and_changed(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        site.kernel.interfaces = set()
        fleet.write(fleet.joins(ME, 7), fleet.joins("a", 1), fleet.runs("w", "a", PREFIX), fleet.migrates("w", "a", ME))
        site.start()
        await site.settled()
        assert site.shapes[P1] == THERE
        site.kernel.flush([P1])
        await asyncio.sleep(2)
        assert site.shapes[P1] == THERE
        fleet.write(fleet.runs("w", "a", PREFIX, "10.65.0.2/32"), fleet.joins("a", 3))
        await site.settled()
        assert site.shapes[P1] == site.shapes[P2] == RemoteRoute("10.99.0.3")

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("at_target", [False, True])
def test_an_interface_that_goes_and_comes_takes_the_route_with_it_and_brings_it_back(
    tmp_path: Path, at_target: bool
) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        site.kernel.interfaces = {"tap-w"}
        shapes = await begun(site)
        if at_target:
            fleet.write(fleet.runs("w", ME, PREFIX))
        await asyncio.sleep(5)
        site.kernel.disappear("tap-w")
        await asyncio.sleep(2)
        assert shapes == [None, THERE]
        assert statuses(site) == {"me-holdfast-w-eth0": EndpointState.DOWN}
        assert site.running.sources.conflicts() == []
        site.kernel.appear("tap-w")
        await asyncio.sleep(2)
        assert shapes == [None, THERE, HERE]

    on_a_site(scene, tmp_path)


def test_an_arriving_workload_takes_no_address_from_a_newer_one_and_the_conflict_is_named(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await begun(site, "b")
        fleet.write(fleet.arrived("w", "b"), fleet.runs("v", "b", PREFIX))
        await asyncio.sleep(2)
        assert shapes == [ELSEWHERE]
        [before] = site.running.sources.conflicts()
        fleet.write(fleet.migrates("w", "a", ME))
        await asyncio.sleep(2)
        assert shapes == [ELSEWHERE]
        assert site.running.sources.conflicts() == [before]

    on_a_site(scene, tmp_path)


def test_a_move_gives_no_address_to_an_older_workload_in_between(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("c", 3), fleet.runs("v", "c", PREFIX))
        shapes = await begun(site, "b")
        for step in steps(fleet, "b"):
            fleet.write(step)
            await asyncio.sleep(2)
        assert shapes == [ELSEWHERE]

    on_a_site(scene, tmp_path)


def test_every_other_host_routes_to_where_it_is_until_it_is_moved(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await begun(site, "b")
        await asyncio.sleep(30)
        assert (site.shapes[P1], shapes) == (THERE, [])
        for step in steps(fleet, "b"):
            fleet.write(step)
            await asyncio.sleep(5)
        assert shapes == [ELSEWHERE]

    on_a_site(scene, tmp_path)


def test_a_source_endpoint_that_is_rewritten_does_not_take_the_route_back_and_the_arrival_follows_it(
    tmp_path: Path,
) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await begun(site)
        fleet.write(fleet.runs("w", "a", PREFIX, "10.65.0.2/32"))
        await site.settled()
        assert shapes == []
        assert site.shapes[P2] == HERE
        fleet.write(fleet.runs("w", "a", "10.65.0.2/32"))
        await site.settled()
        assert shapes == [None]
        fleet.write(fleet.ends("w", "a"))
        await site.settled()
        assert P2 not in site.shapes

    on_a_site(scene, tmp_path)


def test_an_endpoint_at_the_target_counts_and_not_its_migration(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        await begun(site)
        fleet.write(fleet.runs("w", ME, PREFIX, interface="tap-other"))
        await site.settled()
        assert site.shapes[P1] == LocalRoute("tap-other")

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("late", [ENDPOINT, MIGRATION], ids=lambda kind: kind.plural)
@pytest.mark.parametrize("to", [ME, "b"])
def test_a_move_changes_a_route_once_at_most_whichever_event_is_late(
    tmp_path: Path, late: Kind[Any, Any], to: str
) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await begun(site, to)
        mute(site, late)
        for step in steps(fleet, to):
            fleet.write(step)
            await asyncio.sleep(10)
        site.clients["region"].link.heal()
        await asyncio.sleep(30)
        assert shapes == ([] if to == ME else [ELSEWHERE])
        assert site.shapes[P1] == (HERE if to == ME else ELSEWHERE)

    on_a_site(scene, tmp_path)


@fault("N8", without="holdfast.agent.desired.source_claims:SourceClaims._end_is_unknown", returns=False)
def test_N8_a_migration_that_is_gone_takes_nothing_from_a_workload_that_has_arrived(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await begun(site)
        mute(site, ENDPOINT)
        fleet.write(*steps(fleet))
        await asyncio.sleep(30)
        assert shapes == []
        assert statuses(site) == {"me-holdfast-w-eth0": EndpointState.UP}
        site.clients["region"].link.heal()
        await asyncio.sleep(5)
        assert (shapes, site.shapes[P1]) == ([], HERE)

    on_a_site(scene, tmp_path)


def test_a_migration_that_is_cancelled_goes_back_to_where_the_workload_is(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await begun(site)
        fleet.write(fleet.arrived("w", ME))
        await asyncio.sleep(2)
        assert shapes == [THERE]
        assert statuses(site) == {}

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("late", [None, ENDPOINT, MIGRATION], ids=lambda kind: kind.plural if kind else "none")
def test_an_arriving_workload_is_reported_up_once_and_stays_up_when_it_has_arrived(
    tmp_path: Path, late: Kind[Any, Any] | None
) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        await begun(site)
        async with reported(site) as written:
            if late is not None:
                mute(site, late)
            for step in steps(fleet):
                fleet.write(step)
                await asyncio.sleep(5)
            site.clients["region"].link.heal()
            await asyncio.sleep(10)
        assert written == [b'{"status":"up"}']

    on_a_site(scene, tmp_path)


def test_of_a_migration_that_is_cancelled_no_status_stays(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        await begun(site)
        async with reported(site) as written:
            fleet.write(fleet.arrived("w", ME))
            await asyncio.sleep(5)
        assert written == [b'{"status":"up"}', None]

    on_a_site(scene, tmp_path)


@contextlib.asynccontextmanager
async def reported(site: HostHarness) -> AsyncIterator[list[bytes | None]]:
    """Record the workload's statuses that the endpoint reporter writes beside the agent."""
    key = ENDPOINT_STATUS.key(REGION, EndpointStatusName.of(REGION, EndpointName(ME, "holdfast", "w", "eth0")))
    written: list[bytes | None] = []

    def note(write: StoreWrite) -> None:
        entries = [event.entry for event in write.events if event.key == key]
        written.extend(None if entry is None else entry.value for entry in entries)

    site.world.store.observers.append(note)
    commands = AgentCommands(site.running, ME, "boot-1", site.node.clock)
    reporter = EndpointReporter(site.world.store.client("reporter"), REGION, ME, commands.endpoints)
    running = asyncio.create_task(reporter.run())
    await site.world.until(lambda: bool(written))
    yield written
    running.cancel()


def test_an_unreachable_store_is_no_proof_that_a_migration_was_cancelled(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await begun(site)
        site.clients["region"].link.next_calls(Fate.REQUEST_LOST, count=5, of="txn")
        fleet.write(fleet.arrived("w", ME))
        await asyncio.sleep(2)
        assert shapes == []
        await asyncio.sleep(60)
        assert shapes == [THERE]

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("source", ["a", ME])
@fault("N8", without="holdfast.agent.desired.source_claims:SourceClaims._end_is_unknown", returns=False)
def test_N8_a_migration_that_turns_back_takes_nothing_from_where_its_workload_stays(
    tmp_path: Path, source: str
) -> None:
    """With an endpoint at the target, as Calico's driver writes it, that is deleted afterwards."""

    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await under_way_to_b(site, source)
        fleet.write(fleet.arrived("w", "b"))
        await asyncio.sleep(10)
        fleet.write(fleet.ends("w", "b"))
        await asyncio.sleep(10)
        assert shapes == []

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("source", ["a", ME])
def test_the_cancellation_of_a_migration_may_arrive_late(tmp_path: Path, source: str) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await under_way_to_b(site, source)
        mute(site, ENDPOINT)
        fleet.write(fleet.ends("w", "b"), fleet.arrived("w", "b"))
        await asyncio.sleep(30)
        site.clients["region"].link.heal()
        await asyncio.sleep(10)
        assert shapes == []

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("source", ["a", ME])
@pytest.mark.parametrize("pause", [0.05, 10])
@pytest.mark.parametrize("succeeds", [True, False])
def test_a_migration_that_goes_before_the_endpoint_that_is_not_needed_any_more_is_not_over_before_that_goes(
    tmp_path: Path, source: str, pause: float, succeeds: bool
) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await under_way_to_b(site, source)
        fleet.write(fleet.arrived("w", "b"))
        await asyncio.sleep(pause)
        assert shapes == []
        fleet.write(fleet.ends("w", source if succeeds else "b"))
        await asyncio.sleep(1)
        assert shapes == ([ELSEWHERE] if succeeds else [])

    on_a_site(scene, tmp_path)


def test_a_workload_that_stays_on_two_hosts_after_its_migration_is_on_the_newer_one_and_that_is_named(
    tmp_path: Path,
) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await under_way_to_b(site, "a")
        fleet.write(fleet.arrived("w", "b"))
        await asyncio.sleep(25)
        assert (shapes, site.running.sources.conflicts()) == ([], [])
        await asyncio.sleep(20)
        assert shapes == [ELSEWHERE]
        [dispute] = site.running.sources.conflicts()
        assert "claimed by endpoint b-holdfast-w-eth0 on b and also by endpoint a-holdfast-w-eth0 on a" in dispute

    on_a_site(scene, tmp_path)


def test_an_answer_about_an_earlier_end_does_not_end_a_migration_that_was_restarted(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await begun(site)
        client = site.clients["region"]
        mute(site, ENDPOINT)
        ask, answered = client.txn, asyncio.Event()

        async def slow(*args: Any) -> TxnResult:
            read = await ask(*args)
            answered.set()
            await asyncio.sleep(3)
            return read

        with patch.object(client, "txn", slow):
            fleet.write(fleet.arrived("w", ME))
            await answered.wait()
        fleet.write(fleet.migrates("w", "a", ME))
        await asyncio.sleep(0.5)
        fleet.write(*steps(fleet))
        await asyncio.sleep(20)
        assert (shapes, site.shapes[P1]) == ([], HERE)

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("onward", ["a", "c"])
def test_a_workload_that_migrates_on_is_routed_to_where_it_arrived_even_when_every_event_is_late(
    tmp_path: Path, onward: str
) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("c", 3))
        shapes = await begun(site, "b")
        mute(site, MIGRATION)
        for step in steps(fleet, "b"):
            fleet.write(step)
            await asyncio.sleep(5)
        fleet.write(fleet.migrates("w", "b", onward), fleet.runs("w", onward, PREFIX))
        await asyncio.sleep(10)
        site.clients["region"].link.heal()
        await asyncio.sleep(10)
        assert shapes == [ELSEWHERE]

    on_a_site(scene, tmp_path)


def test_a_migration_that_is_cancelled_and_restarted_is_in_progress(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        await begun(site)
        fleet.write(fleet.arrived("w", ME))
        await asyncio.sleep(2)
        fleet.write(fleet.migrates("w", "a", ME))
        await asyncio.sleep(2)
        assert site.shapes[P1] == HERE

    on_a_site(scene, tmp_path)


def test_a_workload_that_is_moved_to_a_third_host_is_routed_there(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await begun(site)
        fleet.write(fleet.runs("w", "b", PREFIX), fleet.ends("w", "a"))
        await asyncio.sleep(2)
        fleet.write(fleet.arrived("w", ME))
        await asyncio.sleep(2)
        assert shapes == [ELSEWHERE]

    on_a_site(scene, tmp_path)


def test_an_agent_that_restarts_during_a_migration_changes_nothing(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        shapes = await begun(site)
        site.node.kill()
        site.start()
        await site.settled()
        await asyncio.sleep(10)
        assert shapes == []

    on_a_site(scene, tmp_path)


@contextlib.contextmanager
def withheld(*kinds: Kind[Any, Any]) -> Iterator[None]:
    """Lists of this kind get no answer."""
    prefixes, everything = {kind.prefix(REGION) for kind in kinds}, FakeClient.list_all

    async def some(self: FakeClient, listed: Sequence[bytes]) -> Snapshot:
        if not prefixes.isdisjoint(listed):
            raise StoreAway("no list for now")
        return await everything(self, listed)

    with patch.object(FakeClient, "list_all", some):
        yield


@pytest.mark.parametrize("gone", [(), ("a",)], ids=["", "with its host"])
@fault(
    "N12",
    without="holdfast.agent.desired.source_claims:SourceClaims.restore",
    by="tests.agent.without_protection:nothing_restored",
)
def test_N12_first_lists_of_which_one_predates_a_move_take_nothing_from_an_arrived_workload(
    tmp_path: Path, gone: Sequence[str]
) -> None:
    """The endpoints are listed before it is moved, the migrations after; and so are the hosts, if one is gone."""

    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        shapes = await begun(site)
        site.node.kill()
        with withheld(MIGRATION, *[HOST][: len(gone)]):
            site.start()
            await asyncio.sleep(5)
            assert [mirror.synced for mirror in site.running.watchers[0].mirrors()] == [not gone, True, False]
            mute(site, ENDPOINT)
            fleet.write(*steps(fleet), *map(fleet.leaves, gone))
        await asyncio.sleep(30)
        assert site.running.watchers[0].synced.revision is not None
        assert shapes == []
        site.clients["region"].link.heal()
        await asyncio.sleep(10)
        assert (shapes, site.shapes[P1]) == ([], HERE)

    on_a_site(scene, tmp_path)


def test_a_start_restores_nothing_that_another_source_programmed(tmp_path: Path) -> None:
    """Both sources have a workload of that name: the other's is here, this one's is elsewhere."""

    async def scene(site: HostHarness) -> None:
        site.stores = {"other": another_store(), **site.stores}
        other, fleet = site.fleet("other"), site.fleet()
        other.name_it()
        other.write(other.runs("w", ME, "10.65.0.2/32"))
        fleet.write(fleet.joins("a", 1), fleet.runs("w", "a", PREFIX))
        site.start()
        await site.settled()
        assert (site.shapes[P1], site.shapes[P2]) == (THERE, HERE)
        shapes = seen(site)
        site.node.kill()
        site.start()
        await asyncio.sleep(20)
        assert shapes == []

    on_a_site(scene, tmp_path)
