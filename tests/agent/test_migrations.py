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

from holdfast.agent.claims import Local, Remote, Shape
from holdfast.agent.commands import Commands
from holdfast.agent.endpoint_reporter import EndpointReporter
from holdfast.model.endpoint import ENDPOINT, EndpointName
from holdfast.model.endpoint_status import ENDPOINT_STATUS, EndpointStatusName, State
from holdfast.model.host import HOST
from holdfast.model.kind import Kind
from holdfast.model.migration import MIGRATION
from holdfast.model.time import seconds
from holdfast.store.api import Operation, Put, Snapshot, StoreAway, TxnResult
from holdfast.testing import Write
from holdfast.testing.client import FakeClient
from holdfast.testing.fault import fault
from holdfast.testing.link import Fate
from tests.agent.site import ME, REGION, Fleet, Ids, Site, another_store
from tests.agent.test_keeper import P1, P2, on_a_site

HERE, THERE, ELSEWHERE = Local("tap-w"), Remote("10.99.0.1"), Remote("10.99.0.2")
PREFIX, SECOND, THIRD = "10.65.0.1/32", "10.65.0.2/32", "10.65.0.3/32"
ROTTEN = b'{"kind": "LiveMigration", '


async def begun(site: Site, to: str = ME) -> list[Shape | None]:
    """w is on a, on its way to a host; what becomes of its route from now on."""
    fleet = site.fleet()
    fleet.write(fleet.joins(ME, 7), fleet.joins("a", 1), fleet.joins("b", 2), fleet.runs("w", "a", PREFIX))
    site.start()
    await site.settled()
    assert site.shapes[P1] == THERE
    fleet.write(fleet.migrates("w", "a", to))
    await asyncio.sleep(5)
    return seen(site)


def seen(site: Site) -> list[Shape | None]:
    """What becomes of the workload's route from now on."""
    shapes: list[Shape | None] = []
    site.kernel.seen.append(lambda key, shape: shapes.append(shape) if key == P1 else None)
    return shapes


def steps(fleet: Fleet, to: str = ME) -> Sequence[Operation]:
    """A move, in the order in which it is written."""
    return fleet.runs("w", to, PREFIX), fleet.ends("w", "a"), fleet.arrived("w", to)


def mute(site: Site, kind: Kind[Any, Any]) -> None:
    site.clients["region"].link.mute_watches(kind.prefix(REGION))


def statuses(site: Site) -> dict[str, State]:
    found = Commands(site.running, ME, "boot-1", site.node.clock).endpoints()
    assert found is not None
    return {str(name): state for name, state in found.items()}


def test_a_workload_that_only_its_migration_brings_is_programmed_where_it_goes(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        await begun(site)
        assert site.shapes[P1] == HERE
        assert site.running.sources.disputes() == []
        assert statuses(site) == {"me-holdfast-w-eth0": State.UP}

    on_a_site(scene, tmp_path)


def test_until_its_interface_exists_packets_go_where_the_workload_is(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        site.kernel.interfaces = set()
        shapes = await begun(site)
        assert (site.shapes[P1], shapes) == (THERE, [])
        assert statuses(site) == {"me-holdfast-w-eth0": State.DOWN}

    on_a_site(scene, tmp_path)


def test_until_its_interface_exists_the_route_to_the_source_is_made_repaired_and_changed(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
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
        assert site.shapes[P1] == site.shapes[P2] == Remote("10.99.0.3")

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("at_target", [False, True])
def test_an_interface_that_goes_and_comes_takes_the_route_with_it_and_brings_it_back(
    tmp_path: Path, at_target: bool
) -> None:
    async def scene(site: Site) -> None:
        fleet = site.fleet()
        site.kernel.interfaces = {"tap-w"}
        shapes = await begun(site)
        if at_target:
            fleet.write(fleet.runs("w", ME, PREFIX))
        await asyncio.sleep(5)
        site.kernel.disappear("tap-w")
        await asyncio.sleep(2)
        assert shapes == [None, THERE]
        assert statuses(site) == {"me-holdfast-w-eth0": State.DOWN}
        assert site.running.sources.disputes() == []
        site.kernel.appear("tap-w")
        await asyncio.sleep(2)
        assert shapes == [None, THERE, HERE]

    on_a_site(scene, tmp_path)


def test_who_arrives_takes_no_address_from_a_newer_workload_and_their_dispute_is_named(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        fleet = site.fleet()
        shapes = await begun(site, "b")
        fleet.write(fleet.arrived("w", "b"), fleet.runs("v", "b", PREFIX))
        await asyncio.sleep(2)
        assert shapes == [ELSEWHERE]
        [before] = site.running.sources.disputes()
        fleet.write(fleet.migrates("w", "a", ME))
        await asyncio.sleep(2)
        assert shapes == [ELSEWHERE]
        assert site.running.sources.disputes() == [before]

    on_a_site(scene, tmp_path)


def test_a_move_gives_no_address_to_an_older_workload_in_between(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("c", 3), fleet.runs("v", "c", PREFIX))
        shapes = await begun(site, "b")
        for step in steps(fleet, "b"):
            fleet.write(step)
            await asyncio.sleep(2)
        assert shapes == [ELSEWHERE]

    on_a_site(scene, tmp_path)


def test_every_other_host_routes_to_where_it_is_until_it_is_moved(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        fleet = site.fleet()
        shapes = await begun(site, "b")
        await asyncio.sleep(30)
        assert (site.shapes[P1], shapes) == (THERE, [])
        for step in steps(fleet, "b"):
            fleet.write(step)
            await asyncio.sleep(5)
        assert shapes == [ELSEWHERE]

    on_a_site(scene, tmp_path)


def test_a_source_that_is_written_again_does_not_take_it_back_and_what_arrives_follows_it(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
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
    async def scene(site: Site) -> None:
        fleet = site.fleet()
        await begun(site)
        fleet.write(fleet.runs("w", ME, PREFIX, interface="tap-other"))
        await site.settled()
        assert site.shapes[P1] == Local("tap-other")

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("late", [ENDPOINT, MIGRATION], ids=lambda kind: kind.plural)
@pytest.mark.parametrize("to", [ME, "b"])
def test_a_move_changes_a_route_once_at_most_whichever_word_is_late(
    tmp_path: Path, late: Kind[Any, Any], to: str
) -> None:
    async def scene(site: Site) -> None:
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


@fault("N8", without="holdfast.agent.demand:Demand._is_in_question", returns=False)
def test_N8_a_migration_that_is_gone_takes_nothing_from_a_workload_that_has_arrived(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        fleet = site.fleet()
        shapes = await begun(site)
        mute(site, ENDPOINT)
        fleet.write(*steps(fleet))
        await asyncio.sleep(30)
        assert shapes == []
        assert statuses(site) == {"me-holdfast-w-eth0": State.UP}
        site.clients["region"].link.heal()
        await asyncio.sleep(5)
        assert (shapes, site.shapes[P1]) == ([], HERE)

    on_a_site(scene, tmp_path)


def test_a_migration_that_is_cancelled_goes_back_to_where_the_workload_is(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        fleet = site.fleet()
        shapes = await begun(site)
        fleet.write(fleet.arrived("w", ME))
        await asyncio.sleep(2)
        assert shapes == [THERE]
        assert statuses(site) == {}

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("late", [None, ENDPOINT, MIGRATION], ids=lambda kind: kind.plural if kind else "none")
def test_who_arrives_is_reported_up_once_and_stays_so_when_he_has_arrived(
    tmp_path: Path, late: Kind[Any, Any] | None
) -> None:
    async def scene(site: Site) -> None:
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
    async def scene(site: Site) -> None:
        fleet = site.fleet()
        await begun(site)
        async with reported(site) as written:
            fleet.write(fleet.arrived("w", ME))
            await asyncio.sleep(5)
        assert written == [b'{"status":"up"}', None]

    on_a_site(scene, tmp_path)


@contextlib.asynccontextmanager
async def reported(site: Site) -> AsyncIterator[list[bytes | None]]:
    """What is written of the workload's status at this host while the reporter runs beside the agent."""
    key = ENDPOINT_STATUS.key(REGION, EndpointStatusName.of(REGION, EndpointName(ME, "holdfast", "w", "eth0")))
    written: list[bytes | None] = []

    def note(write: Write) -> None:
        entries = [event.entry for event in write.events if event.key == key]
        written.extend(None if entry is None else entry.value for entry in entries)

    site.world.store.observers.append(note)
    commands = Commands(site.running, ME, "boot-1", site.node.clock)
    reporter = EndpointReporter(site.world.store.client("reporter"), REGION, ME, commands.endpoints)
    running = asyncio.create_task(reporter.run())
    await site.world.until(lambda: bool(written))
    yield written
    running.cancel()


def test_a_store_that_does_not_answer_has_not_said_that_a_migration_was_cancelled(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        fleet = site.fleet()
        shapes = await begun(site)
        site.clients["region"].link.next_calls(Fate.REQUEST_LOST, count=5, of="txn")
        fleet.write(fleet.arrived("w", ME))
        await asyncio.sleep(2)
        assert shapes == []
        await asyncio.sleep(60)
        assert shapes == [THERE]

    on_a_site(scene, tmp_path)


async def under_way_to_b(site: Site, source: str) -> list[Shape | None]:
    """As Calico's driver writes it, with an endpoint at the target; what becomes of the route from now on."""
    fleet = site.fleet()
    fleet.write(fleet.joins("a", 1), fleet.joins("b", 2), fleet.runs("w", source, PREFIX))
    site.start()
    await site.settled()
    shapes = seen(site)
    fleet.write(fleet.migrates("w", source, "b"), fleet.runs("w", "b", PREFIX))
    await asyncio.sleep(5)
    return shapes


@pytest.mark.parametrize("source", ["a", ME])
@fault("N8", without="holdfast.agent.demand:Demand._is_in_question", returns=False)
def test_N8_a_migration_that_turns_back_takes_nothing_from_where_its_workload_stays(
    tmp_path: Path, source: str
) -> None:
    """With an endpoint at the target, as Calico's driver writes it, and lets go of it afterwards."""

    async def scene(site: Site) -> None:
        fleet = site.fleet()
        shapes = await under_way_to_b(site, source)
        fleet.write(fleet.arrived("w", "b"))
        await asyncio.sleep(10)
        fleet.write(fleet.ends("w", "b"))
        await asyncio.sleep(10)
        assert shapes == []

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("source", ["a", ME])
def test_that_a_migration_turns_back_may_be_heard_late(tmp_path: Path, source: str) -> None:
    async def scene(site: Site) -> None:
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
    async def scene(site: Site) -> None:
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
    async def scene(site: Site) -> None:
        fleet = site.fleet()
        shapes = await under_way_to_b(site, "a")
        fleet.write(fleet.arrived("w", "b"))
        await asyncio.sleep(25)
        assert (shapes, site.running.sources.disputes()) == ([], [])
        await asyncio.sleep(20)
        assert shapes == [ELSEWHERE]
        [dispute] = site.running.sources.disputes()
        assert "claimed by endpoint b-holdfast-w-eth0 on b and also by endpoint a-holdfast-w-eth0 on a" in dispute

    on_a_site(scene, tmp_path)


def test_an_answer_about_an_earlier_end_does_not_end_a_migration_that_was_begun_anew(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
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
def test_who_sets_out_again_from_where_he_arrived_is_routed_there_also_when_all_word_of_it_is_late(
    tmp_path: Path, onward: str
) -> None:
    async def scene(site: Site) -> None:
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


def test_a_migration_that_is_cancelled_and_begun_anew_is_under_way(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        fleet = site.fleet()
        await begun(site)
        fleet.write(fleet.arrived("w", ME))
        await asyncio.sleep(2)
        fleet.write(fleet.migrates("w", "a", ME))
        await asyncio.sleep(2)
        assert site.shapes[P1] == HERE

    on_a_site(scene, tmp_path)


def test_a_workload_that_is_moved_to_a_third_host_is_routed_there(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        fleet = site.fleet()
        shapes = await begun(site)
        fleet.write(fleet.runs("w", "b", PREFIX), fleet.ends("w", "a"))
        await asyncio.sleep(2)
        fleet.write(fleet.arrived("w", ME))
        await asyncio.sleep(2)
        assert shapes == [ELSEWHERE]

    on_a_site(scene, tmp_path)


def test_an_agent_that_starts_anew_in_a_migration_changes_nothing(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        shapes = await begun(site)
        site.node.kill()
        site.start()
        await site.settled()
        await asyncio.sleep(10)
        assert shapes == []

    on_a_site(scene, tmp_path)


@contextlib.contextmanager
def withheld(*kinds: Kind[Any, Any]) -> Iterator[None]:
    """Nobody gets a list of these."""
    prefixes, everything = {kind.prefix(REGION) for kind in kinds}, FakeClient.everything

    async def some(self: FakeClient, prefix: bytes) -> Snapshot:
        if prefix in prefixes:
            raise StoreAway("no list for now")
        return await everything(self, prefix)

    with patch.object(FakeClient, "everything", some):
        yield


@pytest.mark.parametrize("gone", [(), ("a",)], ids=["", "with its host"])
@fault("N12", without="holdfast.agent.demand:Demand.recall", by="tests.agent.removals:nothing_recalled")
def test_N12_first_lists_of_which_one_is_older_than_a_move_take_nothing_from_who_has_arrived(
    tmp_path: Path, gone: Sequence[str]
) -> None:
    """The endpoints are listed before it is moved, the migrations after; and so are the hosts, if one is gone."""

    async def scene(site: Site) -> None:
        fleet = site.fleet()
        shapes = await begun(site)
        site.node.kill()
        with withheld(MIGRATION, *[HOST][: len(gone)]):
            site.start()
            await asyncio.sleep(5)
            assert [mirror.synced for mirror in site.running.followings[0]._mirrors()] == [not gone, True, False]
            mute(site, ENDPOINT)
            fleet.write(*steps(fleet), *map(fleet.leaves, gone))
        await asyncio.sleep(30)
        assert site.running.followings[0].synced.revision is not None
        assert shapes == []
        site.clients["region"].link.heal()
        await asyncio.sleep(10)
        assert (shapes, site.shapes[P1]) == ([], HERE)

    on_a_site(scene, tmp_path)


def test_a_start_recalls_nothing_of_what_another_source_has_programmed(tmp_path: Path) -> None:
    """Both have a workload of that name: the other's is here, and this one's is elsewhere."""

    async def scene(site: Site) -> None:
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


def test_a_migration_that_cannot_be_read_after_a_start_takes_nothing_from_who_arrives(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        fleet = site.fleet()
        shapes = await begun(site)
        site.node.kill()
        fleet.write(Put(fleet.migrates("w", "a", ME).key, ROTTEN))
        site.start()
        await site.settled()
        await asyncio.sleep(10)
        assert shapes == []
        for step in steps(fleet):
            fleet.write(step)
            await asyncio.sleep(5)
        assert (shapes, site.shapes[P1]) == ([], HERE)

    on_a_site(scene, tmp_path)


def test_a_start_recalls_who_has_what_is_programmed_here_and_not_another_place_of_the_same_workload(
    tmp_path: Path,
) -> None:
    async def scene(site: Site) -> None:
        fleet = site.fleet()
        fleet.write(fleet.runs("w", "0", "10.65.0.2/32"), fleet.joins("0", 4))
        shapes = await begun(site)
        site.node.kill()
        fleet.write(Put(fleet.migrates("w", "a", ME).key, ROTTEN))
        site.start()
        await asyncio.sleep(10)
        site.kernel.flush([P1])
        await asyncio.sleep(5)
        assert shapes == [None, HERE]

    on_a_site(scene, tmp_path)


rotten_ones = pytest.mark.parametrize("rotten", [("source",), ("source", "migration")], ids=" and ".join)


async def restarted_among(site: Site, rotten: Sequence[str], to: str) -> None:
    """A new life of the agent that cannot read these."""
    fleet = site.fleet()
    keys = {"source": fleet.runs("w", "a", PREFIX).key, "migration": fleet.migrates("w", "a", to).key}
    site.node.kill()
    fleet.write(*(Put(keys[one], ROTTEN) for one in rotten))
    site.start()
    await asyncio.sleep(30)


@rotten_ones
def test_who_arrives_stays_programmed_while_nobody_can_read_where_he_comes_from(
    tmp_path: Path, rotten: Sequence[str]
) -> None:
    async def scene(site: Site) -> None:
        shapes = await begun(site)
        await restarted_among(site, rotten, ME)
        assert shapes == []

    on_a_site(scene, tmp_path)


@rotten_ones
@fault("C39", without="holdfast.agent.demand:Demand._recall", returns=[])
def test_C39_nobody_routes_to_where_a_workload_is_only_expected_because_its_place_cannot_be_read(
    tmp_path: Path, rotten: Sequence[str]
) -> None:
    async def scene(site: Site) -> None:
        fleet = site.fleet()
        shapes = await begun(site, "b")
        fleet.write(fleet.runs("w", "b", PREFIX))
        await asyncio.sleep(5)
        await restarted_among(site, rotten, "b")
        assert shapes == []

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("to", ["b", ME])
def test_what_cannot_be_read_after_a_start_has_what_it_had_until_it_is_gone(tmp_path: Path, to: str) -> None:
    """Before that, w was somewhere else, and something was left of it there."""

    async def scene(site: Site) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.joins("b", 2), fleet.runs("w", to, PREFIX))
        fleet.write(fleet.runs("w", "a", PREFIX))
        site.start()
        await asyncio.sleep(10)
        assert site.shapes[P1] == THERE
        shapes = seen(site)
        await restarted_among(site, ["source"], "b")
        assert shapes == []
        fleet.write(fleet.ends("w", "a"))
        await asyncio.sleep(10)
        assert shapes == [HERE if to == ME else ELSEWHERE]

    on_a_site(scene, tmp_path)


def test_what_cannot_be_read_and_is_deleted_leaves_nothing_behind(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.runs("w", "a", PREFIX))
        site.start()
        await site.settled()
        await restarted_among(site, ["source"], "b")
        assert site.shapes[P1] == THERE
        fleet.write(fleet.ends("w", "a"))
        await asyncio.sleep(10)
        assert P1 not in site.shapes

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("who", ["u", "w"])
def test_what_cannot_be_read_is_as_old_as_what_is_remembered_of_it(tmp_path: Path, who: str) -> None:
    """While the agent is down the address goes elsewhere, and what had it is written anew as nobody can read it."""

    async def scene(site: Site) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.joins("b", 2), fleet.runs("w", "a", PREFIX))
        site.start()
        await site.settled()
        site.node.kill()
        fleet.write(fleet.ends("w", "a"), fleet.runs(who, "b", PREFIX))
        await restarted_among(site, ["source"], "b")
        assert site.shapes[P1] == ELSEWHERE

    on_a_site(scene, tmp_path)


def test_what_cannot_be_read_after_a_start_and_is_mended_is_what_it_says_then(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.runs("w", "a", PREFIX))
        site.start()
        await site.settled()
        site.node.kill()
        fleet.write(Put(fleet.runs("w", "a", PREFIX).key, ROTTEN))
        site.start()
        await asyncio.sleep(10)
        assert site.shapes[P1] == THERE
        fleet.write(fleet.runs("w", "a", "10.65.0.2/32"))
        await site.settled()
        assert (site.shapes.get(P1), site.shapes[P2]) == (None, THERE)

    on_a_site(scene, tmp_path)


def test_who_sets_out_from_a_place_that_cannot_be_read_has_not_arrived_because_his_migration_is_heard_late(
    tmp_path: Path,
) -> None:
    async def scene(site: Site) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.joins("b", 2), fleet.runs("w", "a", PREFIX))
        site.start()
        await site.settled()
        shapes = seen(site)
        site.node.kill()
        fleet.write(Put(fleet.runs("w", "a", PREFIX).key, ROTTEN))
        site.start()
        await asyncio.sleep(10)
        mute(site, MIGRATION)
        fleet.write(fleet.migrates("w", "a", "b"), fleet.runs("w", "b", PREFIX))
        await asyncio.sleep(10)
        assert shapes == []

    on_a_site(scene, tmp_path)


def test_of_two_migrations_of_one_workload_the_one_that_turns_back_takes_nothing_from_the_one_that_arrived(
    tmp_path: Path,
) -> None:
    """The source is gone, so only who arrived first can lose; that the other is gone is heard late."""

    async def scene(site: Site) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.joins("b", 2), fleet.runs("w", "a", PREFIX))
        fleet.write(fleet.migrates("w", "a", ME), fleet.runs("w", ME, PREFIX))
        fleet.write(fleet.migrates("w", "a", "b"), fleet.runs("w", "b", PREFIX))
        site.start()
        await site.settled()
        fleet.write(fleet.ends("w", "a"), fleet.arrived("w", ME))
        await asyncio.sleep(10)
        assert site.shapes[P1] == HERE
        shapes = seen(site)
        mute(site, ENDPOINT)
        fleet.write(fleet.ends("w", "b"), fleet.arrived("w", "b"))
        await asyncio.sleep(30)
        assert shapes == []

    on_a_site(scene, tmp_path)


def test_who_is_here_is_not_doubted_because_another_place_of_him_is_written_at_the_same_time(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.runs("w", ME, PREFIX))
        site.start()
        await site.settled()
        shapes = seen(site)
        fleet.write(fleet.runs("w", ME, PREFIX, "10.65.0.2/32"), fleet.runs("w", "a", PREFIX))
        await asyncio.sleep(10)
        assert shapes == []

    on_a_site(scene, tmp_path)


def test_who_was_doubted_and_has_it_since_is_not_doubted_any_more_when_another_place_of_him_comes(
    tmp_path: Path,
) -> None:
    """Of all these migrations nothing is heard."""

    async def scene(site: Site) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.joins("b", 2), fleet.runs("w", "a", PREFIX))
        site.start()
        await site.settled()
        shapes = seen(site)
        mute(site, MIGRATION)
        fleet.write(fleet.migrates("w", "a", "b"), fleet.runs("w", "b", PREFIX))
        await asyncio.sleep(5)
        fleet.write(fleet.ends("w", "a"))
        await asyncio.sleep(5)
        assert shapes == [ELSEWHERE]
        fleet.write(fleet.migrates("w", "b", "a"), fleet.runs("w", "a", PREFIX))
        await asyncio.sleep(10)
        assert shapes == [ELSEWHERE]

    on_a_site(scene, tmp_path)


async def only_expected_on_b(site: Site, *more: str) -> list[Shape | None]:
    """w is on a, on its way to b, with more addresses there; of the migration nothing is heard. What becomes of its
    route from now on."""
    fleet = site.fleet()
    fleet.write(fleet.joins("a", 1), fleet.joins("b", 2), fleet.joins("c", 3), fleet.runs("w", "a", PREFIX))
    site.start()
    await site.settled()
    shapes = seen(site)
    mute(site, MIGRATION)
    fleet.write(fleet.migrates("w", "a", "b"), fleet.runs("w", "b", PREFIX, *more))
    await asyncio.sleep(5)
    assert shapes == []
    return shapes


@pytest.mark.parametrize("claimed_by", ["w", "v"])
def test_who_has_one_address_is_still_doubted_about_the_others(tmp_path: Path, claimed_by: str) -> None:
    async def scene(site: Site) -> None:
        fleet = site.fleet()
        shapes = await only_expected_on_b(site, SECOND)
        assert site.shapes[P2] == ELSEWHERE
        written = fleet.runs("w", "b", PREFIX, SECOND, THIRD) if claimed_by == "w" else fleet.runs("v", "c", SECOND)
        fleet.write(written)
        await asyncio.sleep(700)  # an audit, too
        assert shapes == []

    on_a_site(scene, tmp_path)


def test_a_host_that_leaves_and_comes_back_has_its_workloads_again(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        fleet = site.fleet()
        shapes = await only_expected_on_b(site)
        fleet.write(fleet.leaves("a"))
        await asyncio.sleep(2)
        fleet.write(fleet.joins("a", 1))
        await asyncio.sleep(20)
        assert (shapes[-1], site.shapes[P1]) == (THERE, THERE)

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("anew", [True, False])
def test_who_was_believed_once_and_has_lost_since_is_asked_again(tmp_path: Path, anew: bool) -> None:
    """Something is left of w on b; then it goes there again, and that it only goes is not heard."""

    async def scene(site: Site) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.joins("b", 2), fleet.runs("w", "a", PREFIX))
        site.start()
        await site.settled()
        shapes = seen(site)
        for host in "b", "a":
            fleet.write(fleet.runs("w", host, PREFIX))
            await asyncio.sleep(10)
        assert shapes == [ELSEWHERE, THERE]
        for kind in (ENDPOINT, MIGRATION) if anew else (MIGRATION,):
            mute(site, kind)
        if anew:
            fleet.write(fleet.ends("w", "b"))
        fleet.write(fleet.migrates("w", "a", "b"), fleet.runs("w", "b", PREFIX))
        await asyncio.sleep(1)
        site.clients["region"].link.heal()
        mute(site, MIGRATION)
        await asyncio.sleep(10)
        assert shapes == [ELSEWHERE, THERE]

    on_a_site(scene, tmp_path)


def test_what_came_back_unreadable_where_a_workload_left_takes_nothing_from_where_it_is(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        fleet = site.fleet()
        await under_way_to_b(site, "a")
        fleet.write(fleet.ends("w", "a"))
        await asyncio.sleep(5)
        assert site.shapes[P1] == ELSEWHERE
        shapes = seen(site)
        await restarted_among(site, ["source"], "b")
        assert shapes == []

    on_a_site(scene, tmp_path)


def test_who_arrives_stays_programmed_when_only_where_he_comes_from_can_be_read_again(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        fleet = site.fleet()
        shapes = await begun(site)
        await restarted_among(site, ["source", "migration"], ME)
        fleet.write(fleet.runs("w", "a", PREFIX))
        await asyncio.sleep(10)
        assert shapes == []
        for step in steps(fleet):
            fleet.write(step)
            await asyncio.sleep(5)
        assert (shapes, site.shapes[P1]) == ([], HERE)

    on_a_site(scene, tmp_path)


def test_who_comes_here_from_where_nothing_can_be_read_stays_here_when_he_is_also_expected_elsewhere(
    tmp_path: Path,
) -> None:
    async def scene(site: Site) -> None:
        fleet = site.fleet()
        shapes = await begun(site)
        fleet.write(fleet.migrates("w", "a", "b"), fleet.runs("w", "b", PREFIX))
        await asyncio.sleep(5)
        await restarted_among(site, ["source"], ME)
        assert shapes == []

    on_a_site(scene, tmp_path)


def test_who_is_here_stays_here_while_it_is_asked_whether_he_has_arrived_and_an_older_place_of_him_is_reached(
    tmp_path: Path,
) -> None:
    async def scene(site: Site) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.runs("w", "b", PREFIX))
        fleet.write(fleet.runs("w", "a", PREFIX))
        site.start()
        await site.settled()
        shapes = seen(site)
        fleet.write(fleet.runs("w", ME, PREFIX))
        await asyncio.sleep(0.2)
        fleet.write(fleet.joins("b", 2))
        await asyncio.sleep(10)
        assert shapes == [HERE]

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("why", ["restart", "join"])
def test_who_is_doubted_about_one_address_keeps_the_others(tmp_path: Path, why: str) -> None:
    """w is on b, and something older with one more address is left of it on a. Then w has that on b as well."""

    async def scene(site: Site) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("b", 2), fleet.runs("w", "a", PREFIX, SECOND))
        fleet.write(fleet.runs("w", "b", PREFIX), *([fleet.joins("a", 1)] if why == "restart" else []))
        site.start()
        await asyncio.sleep(10)
        if why == "restart":
            site.node.kill()
            site.start()
        else:
            fleet.write(fleet.joins("a", 1))
        await asyncio.sleep(10)
        assert (site.shapes[P1], site.shapes[P2]) == (ELSEWHERE, THERE)
        shapes = seen(site)
        fleet.write(fleet.runs("w", "b", PREFIX, SECOND))
        await asyncio.sleep(10)
        assert (site.shapes[P2], shapes) == (ELSEWHERE, [])

    on_a_site(scene, tmp_path)


def test_who_is_doubted_because_somebody_else_let_go_of_an_address_keeps_the_others(tmp_path: Path) -> None:
    """And the store does not answer."""

    async def scene(site: Site) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("b", 2), fleet.joins("c", 3), fleet.runs("w", "a", PREFIX, SECOND))
        fleet.write(fleet.runs("w", "b", PREFIX, SECOND))
        fleet.write(fleet.runs("v", "c", SECOND))
        site.start()
        await asyncio.sleep(10)
        fleet.write(fleet.joins("a", 1))
        await asyncio.sleep(10)
        assert (site.shapes[P1], site.shapes[P2]) == (ELSEWHERE, Remote("10.99.0.3"))
        shapes = seen(site)
        site.clients["region"].link.next_calls(Fate.REQUEST_LOST, count=500, of="txn")
        fleet.write(fleet.ends("v", "c"))
        await asyncio.sleep(700)  # an audit, too
        assert shapes == []

    on_a_site(scene, tmp_path)


def test_what_a_start_kept_for_a_migration_is_forgotten_with_it(tmp_path: Path) -> None:
    """Much later something of nobody's concern cannot be read."""

    async def scene(site: Site) -> None:
        fleet = site.fleet()
        await begun(site)
        await restarted_among(site, ["migration"], ME)
        fleet.write(fleet.migrates("w", "a", ME))
        await asyncio.sleep(5)
        fleet.write(fleet.arrived("w", ME))
        await asyncio.sleep(40)
        fleet.write(fleet.runs("w", "b", PREFIX), fleet.ends("w", "a"))
        await asyncio.sleep(60)
        assert site.shapes[P1] == ELSEWHERE
        shapes = seen(site)
        fleet.write(Put(fleet.runs("x", "a", "10.65.9.9/32").key, ROTTEN))
        await asyncio.sleep(60)
        assert (shapes, statuses(site)) == ([], {})

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("how", ["called off", "host left"])
def test_who_was_believed_and_lost_without_a_question_is_asked_when_he_comes_again(tmp_path: Path, how: str) -> None:
    """Something is left of w on b; that it only goes there again is not heard."""

    async def scene(site: Site) -> None:
        fleet = site.fleet()
        shapes = await under_way_to_b(site, "a")
        fleet.write(fleet.arrived("w", "b"))
        if how == "host left":
            await asyncio.sleep(40)
            assert shapes == [ELSEWHERE]
            fleet.write(fleet.leaves("b"))
        fleet.write(fleet.runs("w", "a", PREFIX))
        await asyncio.sleep(100)
        fleet.write(fleet.joins("b", 2))
        await asyncio.sleep(100)
        assert site.shapes[P1] == THERE
        shapes.clear()
        mute(site, MIGRATION)
        fleet.write(fleet.migrates("w", "a", "b"), fleet.runs("w", "b", PREFIX))
        await asyncio.sleep(10)
        assert shapes == []

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("who", ["v", "w"])
def test_who_is_written_anew_as_he_was_wins_over_what_is_only_remembered(tmp_path: Path, who: str) -> None:
    async def scene(site: Site) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.joins("b", 2), fleet.runs(who, "b", PREFIX))
        fleet.write(fleet.runs("w", "a", PREFIX))
        site.start()
        await asyncio.sleep(10)
        await restarted_among(site, ["source"], "b")
        assert site.shapes[P1] == THERE
        fleet.write(fleet.runs(who, "b", PREFIX))
        await asyncio.sleep(20)
        assert site.shapes[P1] == ELSEWHERE

    on_a_site(scene, tmp_path, audit=seconds(3000))


@pytest.mark.parametrize("left", [(), (PREFIX,)], ids=["all", "one address"])
def test_what_was_being_removed_is_not_recalled(tmp_path: Path, left: Sequence[str]) -> None:
    """A handler has not let go of it yet when the agent starts anew and cannot read whose it was."""
    clinging = Ids()
    clinging.refuse = lambda change: "no" if change.new is None else None

    async def scene(site: Site) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.runs("w", "a", PREFIX, SECOND))
        site.start()
        await site.settled()
        fleet.write(fleet.runs("w", "a", *left) if left else fleet.ends("w", "a"))
        await asyncio.sleep(10)
        assert P2 not in site.shapes
        await restarted_among(site, ["source"], "b")
        assert (P1 in site.shapes, P2 in site.shapes) == (bool(left), False)

    on_a_site(scene, tmp_path, others=(clinging,))


def test_a_start_takes_nothing_from_who_is_here_because_an_older_place_of_him_and_another_claim_it(
    tmp_path: Path,
) -> None:
    async def scene(site: Site) -> None:
        fleet = site.fleet()
        for host, who in (("a", "w"), ("b", "v"), (ME, "w")):
            fleet.write(fleet.runs(who, host, PREFIX))
        fleet.write(fleet.joins("a", 1), fleet.joins("b", 2))
        site.start()
        await asyncio.sleep(10)
        assert site.shapes[P1] == HERE
        shapes = seen(site)
        site.node.kill()
        site.start()
        await asyncio.sleep(60)
        assert shapes == []

    on_a_site(scene, tmp_path)
