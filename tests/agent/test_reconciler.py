"""The agent's reconciler with a fleet that changes, a kernel that loses objects, and restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from holdfast.agent.claims import (
    LocalRoute,
    RemoteRoute,
    RoutingRule,
    Shape,
    device,
    forwarding,
    neighbour,
    nexthop,
    route,
    rule,
)
from holdfast.model.base.time import seconds
from holdfast.reconcile import BrakeLimits
from holdfast.runtime.decision_log import history
from holdfast.testing import World, simulate
from holdfast.testing.fakes.kernel import FakeKernel
from holdfast.testing.fault import fault
from tests.agent.dataplane.conformance import tunnel
from tests.agent.harness import HostHarness, Ids, another_store
from tests.agent.journal.failing_files import FullDisk

P1, P2 = route("10.65.0.1/32"), route("10.65.0.2/32")


def peer(number: int) -> dict[object, object]:
    """Objects of the host with that number."""
    address = f"10.99.0.{number}"
    objects = tunnel(address, f"66:00:00:00:00:{number:02x}", f"192.0.2.{number}")
    return {**dict(objects[1:]), route(f"{address}/32"): RemoteRoute(address)}


def on_a_site(scene: Callable[[HostHarness], Awaitable[None]], folder: Path, **site: object) -> None:
    async def scenario(world: World) -> None:
        here = HostHarness(world, folder, **site)  # type: ignore[arg-type]
        for name in here.stores:
            here.fleet(name).name_it()
        try:
            await scene(here)
        finally:
            here.close()

    simulate(1, scenario)


def test_a_host_and_its_workload_are_programmed(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        site.start()
        fleet.write(fleet.joins("a", 1), fleet.runs("w", "a", "10.65.0.1/32"))
        await site.settled()
        assert site.shapes == {**peer(1), P1: RemoteRoute("10.99.0.1")}

    on_a_site(scene, tmp_path)


def test_a_host_that_leaves_takes_all_of_it_with_it(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.joins("b", 2), fleet.runs("w", "a", "10.65.0.1/32"))
        site.start()
        await site.settled()
        fleet.write(fleet.leaves("a"), fleet.ends("w", "a"))
        await site.settled()
        assert site.shapes == peer(2)
        assert not site.running.target.journal.deleting
        assert len(site.running.target.journal.live) == 5

    on_a_site(scene, tmp_path)


def test_a_local_workload_waits_for_its_interface_and_goes_with_it(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("me", 7), fleet.runs("w", "me", "10.65.0.1/32", interface="tap-w"))
        site.start()
        await asyncio.sleep(30)
        assert site.shapes == {}
        site.kernel.appear("tap-w")
        await site.settled()
        assert site.shapes == {P1: LocalRoute("tap-w")}
        site.kernel.disappear("tap-w")
        fleet.write(fleet.ends("w", "me"))
        await site.settled()
        assert site.shapes == {}

    on_a_site(scene, tmp_path, kernel=FakeKernel(interfaces=set()))


def test_a_restart_changes_nothing_in_the_kernel(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.runs("w", "a", "10.65.0.1/32"), fleet.runs("v", "a", "10.65.0.2/32"))
        site.start()
        await site.settled()
        calls = len(site.kernel.calls)
        site.node.kill()
        site.start()
        await site.settled()
        assert len(site.kernel.calls) == calls
        assert len(site.shapes) == 6

    on_a_site(scene, tmp_path)


def test_a_lost_journal_is_made_again_from_the_kernels_tags_without_touching_it(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.runs("w", "a", "10.65.0.1/32"))
        site.start()
        await site.settled()
        calls = len(site.kernel.calls)
        await site.stop()
        (tmp_path / "journal").unlink()
        site.start()
        await site.settled()
        assert len(site.kernel.calls) == calls
        assert len(site.running.target.journal.live) == 6
        fleet.write(fleet.leaves("a"), fleet.ends("w", "a"))
        await site.settled()
        assert site.shapes == {}

    on_a_site(scene, tmp_path)


def test_a_host_that_changes_its_address_keeps_its_routes_throughout(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.runs("w", "a", "10.65.0.1/32"))
        site.start()
        await site.settled()
        gone: list[object] = []
        site.kernel.observers.append(lambda key, shape: gone.append(key) if shape is None else None)
        fleet.write(fleet.joins("a", 5))
        await site.settled()
        assert site.shapes == {**peer(5), P1: RemoteRoute("10.99.0.5")}
        assert P1 not in gone

    on_a_site(scene, tmp_path)


def test_a_brake_on_routes_is_not_evaded_by_deleting_what_they_depend_on(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        many = [fleet.runs(f"w{n}", "a", f"10.65.1.{n}/32") for n in range(30)]
        hosts = [fleet.joins(f"h{n}", 100 + n) for n in range(30)]
        fleet.write(fleet.joins("a", 1), *hosts, *many, fleet.runs("x", "h1", "10.65.0.1/32"))
        site.start()
        await site.settled()
        fleet.write(fleet.leaves("a"), *[fleet.ends(f"w{n}", "a") for n in range(30)])
        await asyncio.sleep(20)
        assert len(site.shapes) == 31 * 4 + 31
        assert {story.closed.gate for story in site.running.loop.ledger if story.closed} == {
            "brake",
            "dependents",
        }
        brake = site.running.loop.place.brake
        assert brake is not None
        brake.allow()
        site.running.loop.dirty.mark_all()
        await site.settled()
        assert len(site.shapes) == 30 * 4 + 1

    on_a_site(scene, tmp_path, limits=BrakeLimits())


def test_objects_that_another_program_flushed_are_created_again_at_once(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.runs("w", "a", "10.65.0.1/32"))
        site.start()
        await site.settled()
        site.kernel.flush([P1])
        await site.settled()
        assert P1 in site.shapes
        site.kernel.flap()
        await site.settled()
        assert site.shapes == {**peer(1), P1: RemoteRoute("10.99.0.1")}

    on_a_site(scene, tmp_path)


def test_what_was_flushed_without_an_event_is_made_again_by_the_audit(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1))
        site.start()
        await site.settled()
        site.kernel.flush([neighbour("10.99.0.1")], silently=True)
        await site.world.until(lambda: len(site.shapes) == 3, within=seconds(70))

    on_a_site(scene, tmp_path, audit=seconds(60))


def test_an_interrupted_dump_prunes_nothing_and_is_read_again(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1))
        site.start()
        await site.settled()
        site.kernel.interruptions = 4
        site.kernel.flap()
        await site.settled()
        assert site.shapes == peer(1)
        assert site.kernel.interruptions == 0

    on_a_site(scene, tmp_path)


def test_what_the_dataplane_needs_itself_is_kept_like_a_route(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        site.start()
        await site.settled()
        assert site.shapes == {rule(4, 100): RoutingRule(100)}
        site.kernel.flush([rule(4, 100)])
        await site.settled()
        assert rule(4, 100) in site.shapes

    on_a_site(scene, tmp_path, kernel=FakeKernel(own={rule(4, 100): RoutingRule(100)}))


def test_the_first_source_that_wants_a_claim_has_it_and_the_next_one_after_it(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        first, second = site.fleet("region"), site.fleet("region-b")
        first.write(first.joins("a", 1, mac=1))
        second.write(second.joins("z", 1, mac=9))
        site.start()
        await site.settled()
        assert site.shapes[neighbour("10.99.0.1")].mac == "66:00:00:00:00:01"  # type: ignore[union-attr]
        first.write(first.leaves("a"))
        await site.settled()
        assert site.shapes[neighbour("10.99.0.1")].mac == "66:00:00:00:00:09"  # type: ignore[union-attr]
        assert forwarding(4, "66:00:00:00:00:01") not in site.shapes

    async def with_two(world: World) -> None:
        site = HostHarness(world, tmp_path, stores={"region": world.store, "region-b": another_store()})
        for name in site.stores:
            site.fleet(name).name_it()
        try:
            await scene(site)
        finally:
            site.close()

    simulate(1, with_two)


def test_a_claim_stays_with_its_source_until_that_source_is_complete(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        site = HostHarness(world, tmp_path, stores={"region": world.store, "region-b": another_store()})
        first, second = site.fleet("region"), site.fleet("region-b")
        first.name_it()
        second.name_it()
        first.write(first.joins("a", 1, mac=1))
        site.start()
        await site.settled()
        site.node.kill()
        second.write(second.joins("z", 1, mac=9))
        site.unreachable.add("region")
        site.start()
        await asyncio.sleep(100)
        assert site.shapes[neighbour("10.99.0.1")].mac == "66:00:00:00:00:01"  # type: ignore[union-attr]
        assert site.running.sources.complete == {"region-b"}
        site.heal()
        await site.settled()
        assert site.shapes[neighbour("10.99.0.1")].mac == "66:00:00:00:00:01"  # type: ignore[union-attr]
        site.close()

    simulate(1, scenario)


def test_two_live_owners_of_a_claim_are_named_and_the_older_one_keeps_it(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1))
        fleet.write(fleet.joins("b", 2, tunnel=1))
        site.start()
        await site.settled()
        assert site.shapes[neighbour("10.99.0.1")].mac == "66:00:00:00:00:01"  # type: ignore[union-attr]
        said = site.running.sources.conflicts()
        assert said[0] == "neighbour 10.99.0.1 is claimed by host a and also by host b; the oldest object keeps it"

    on_a_site(scene, tmp_path)


@fault(
    "N26",
    without="holdfast.agent.desired.ownership:Seniority.rank",
    by="tests.agent.without_protection:newest_wins",
    sees=(AssertionError, r'\(shapes, site.shapes\[P1\]\) == \(\[\], RemoteRoute\("10.99.0.1"\)\)'),
)
def test_N26_two_owners_of_an_address_do_not_change_places_when_one_is_edited(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.joins("b", 2), fleet.runs("w", "a", "10.65.0.1/32"))
        fleet.write(fleet.runs("v", "b", "10.65.0.1/32"))
        site.start()
        await site.settled()
        shapes: list[Shape | None] = []
        site.kernel.observers.append(lambda key, shape: shapes.append(shape) if key == P1 else None)
        for number in range(4):
            fleet.write(fleet.runs("wv"[number % 2], "ab"[number % 2], "10.65.0.1/32", interface=f"tap{number}"))
            await site.settled()
        await site.stop()
        site.start()
        await site.settled()
        assert (shapes, site.shapes[P1]) == ([], RemoteRoute("10.99.0.1"))
        fleet.write(fleet.ends("w", "a"))
        await site.settled()
        assert shapes == [RemoteRoute("10.99.0.2")]

    on_a_site(scene, tmp_path)


def test_an_owner_that_is_deleted_and_written_again_unseen_is_the_younger_one(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.joins("b", 2), fleet.runs("w", "a", "10.65.0.1/32"))
        fleet.write(fleet.runs("v", "b", "10.65.0.1/32"))
        site.start()
        await site.settled()
        site.clients["region"].link.cut()
        fleet.write(fleet.ends("w", "a"))
        fleet.write(fleet.runs("w", "a", "10.65.0.1/32"))
        site.heal()
        await site.settled()
        assert site.shapes[P1] == RemoteRoute("10.99.0.2")

    on_a_site(scene, tmp_path)


def test_a_migrating_workload_is_programmed_where_it_goes_and_routed_to_where_it_is(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("me", 7), fleet.joins("a", 1), fleet.joins("b", 2))
        fleet.write(fleet.runs("w", "a", "10.65.0.1/32"), fleet.runs("v", "a", "10.65.0.2/32"))
        site.start()
        await site.settled()
        fleet.write(fleet.migrates("w", "a", "b"), fleet.migrates("v", "a", "me"))
        fleet.write(fleet.runs("w", "b", "10.65.0.1/32"), fleet.runs("v", "me", "10.65.0.2/32"))
        await site.settled()
        assert site.shapes[P1] == RemoteRoute("10.99.0.1")
        assert site.shapes[P2] == LocalRoute("tap-v")
        assert site.running.sources.conflicts() == []
        fleet.write(fleet.ends("w", "a"), fleet.arrived("w", "b"))
        await site.settled()
        assert site.shapes[P1] == RemoteRoute("10.99.0.2")

    on_a_site(scene, tmp_path)


def test_a_handler_that_cannot_be_read_gets_every_claim_again_after_a_crash(tmp_path: Path) -> None:
    ids = Ids()

    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1))
        ids.refuse = lambda _change: "not now"
        site.start()
        await asyncio.sleep(1)
        assert len(site.shapes) == 4
        assert not ids.held
        site.node.kill()
        ids.refuse = lambda _change: None
        site.start()
        await site.settled()
        assert set(ids.held) == {*peer(1), device(4)}

    on_a_site(scene, tmp_path, others=(ids,))


def test_what_was_done_to_a_claim_and_why_is_in_the_history(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.runs("w", "a", "10.65.0.1/32"))
        site.start()
        await site.settled()
        fleet.write(fleet.ends("w", "a"))
        await site.settled()
        told = history(tmp_path / "decisions", "route 10.65.0.1/32")
        assert [one.op for one in told][-1:] == ["delete"]
        assert told[-1].sentence == "deleted: last wanted by region at revision 3, no longer wanted"

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_store_of_another_fleet_changes_nothing(tmp_path: Path, epoch: int) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1))
        site.start()
        await site.settled()
        fleet.name_it("somebody-elses", 1 + epoch)
        await asyncio.sleep(6)
        fleet.write(fleet.joins("b", 2), fleet.leaves("a"))
        await asyncio.sleep(60)
        assert site.shapes == peer(1)
        assert set(site.running.loop.held()) == {"identity"}

    on_a_site(scene, tmp_path)


def test_a_nexthop_in_use_waits_for_its_routes(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.runs("w", "a", "10.65.0.1/32"))
        site.start()
        await site.settled()
        site.kernel.refuse = lambda change: "busy" if change.key == P1 and change.new is None else None
        fleet.write(fleet.leaves("a"), fleet.ends("w", "a"))
        await asyncio.sleep(10)
        assert P1 in site.shapes
        assert nexthop("10.99.0.1") in site.shapes
        site.kernel.refuse = lambda _change: None
        await site.settled()
        assert site.shapes == {}

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize(("later", "left"), [(False, 10), (True, 40)])
def test_deletes_allowed_at_the_syncer_pass_here_up_to_the_allowed_revision(
    tmp_path: Path, later: bool, left: int
) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(*[fleet.joins(f"h{n}", n) for n in range(1, 41)])
        site.start()
        await site.settled()
        seen = site.world.store.revision
        fleet.write(*[fleet.leaves(f"h{n}") for n in range(1, 31)])
        await asyncio.sleep(10)
        assert len(site.shapes) == 40 * 4
        fleet.write(fleet.allows(seen if later else site.world.store.revision))
        await asyncio.sleep(10)
        assert len(site.shapes) == left * 4

    on_a_site(scene, tmp_path, limits=BrakeLimits())


def test_what_a_source_wanted_that_was_given_up_goes_behind_the_brake(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        site = HostHarness(
            world, tmp_path, stores={"region": world.store, "region-b": another_store()}, limits=BrakeLimits()
        )
        first, second = site.fleet("region"), site.fleet("region-b")
        first.name_it()
        second.name_it()
        first.write(*[first.joins(f"h{n}", n) for n in range(1, 31)])
        second.write(*[second.joins(f"z{n}", 100 + n) for n in range(1, 4)])
        site.start()
        await site.settled()
        site.node.kill()
        site.unreachable.add("region-b")
        site.start()
        await asyncio.sleep(300)
        assert site.programmed_peers() == {"region": 30, "region-b": 3}
        site.running.sync_gate.forget("region-b")
        site.running.loop.dirty.mark_all()
        await site.settled()
        assert site.programmed_peers() == {"region": 30}
        site.close()

    simulate(1, scenario)


def test_a_source_that_is_not_configured_any_more_counts_as_empty_behind_the_brake(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        both = {"region": world.store, "region-b": another_store()}
        site = HostHarness(world, tmp_path, stores=both, limits=BrakeLimits())
        first, second = site.fleet("region"), site.fleet("region-b")
        first.name_it()
        second.name_it()
        first.write(*[first.joins(f"h{n}", n) for n in range(1, 11)])
        second.write(*[second.joins(f"z{n}", 100 + n) for n in range(1, 31)])
        site.start()
        await site.settled()
        site.node.kill()
        site.stores = {"region": world.store}
        site.start()
        await asyncio.sleep(300)
        assert site.programmed_peers() == {"region": 10, "region-b": 30}
        assert set(site.running.loop.held()) == {"brake", "dependents"}
        brake = site.running.loop.place.brake
        assert brake is not None
        brake.allow(until=site.node.clock.now() + seconds(3600))
        site.running.loop.dirty.mark_all()
        await site.settled()
        assert site.programmed_peers() == {"region": 10}
        site.close()

    simulate(1, scenario)


def test_a_host_that_is_back_as_another_with_the_same_addresses_changes_only_the_journal(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1, uid="first"))
        site.start()
        await site.settled()
        calls = len(site.kernel.calls)
        fleet.write(fleet.joins("a", 1, uid="second"))
        await site.settled()
        assert len(site.kernel.calls) == calls
        claims = [owned.value for key, owned in site.running.present.claims.items() if key != device(4)]
        assert {claim.owner.incarnation for claim in claims} == {"second"}
        journaled = [owned.value for _, owned in site.running.target.journaled() if owned.value.owner.incarnation]
        assert {claim.owner.incarnation for claim in journaled} == {"second"}
        assert len(journaled) == len(claims) == 4

    on_a_site(scene, tmp_path)


def test_a_journal_that_cannot_be_written_to_leaves_the_kernel_alone(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        site.start()
        await site.settled()
        full = FullDisk(0)
        site.running.target.journal._segment._files = full
        fleet.write(fleet.joins("a", 1))
        await asyncio.sleep(30)
        assert site.shapes == {}
        assert site.running._vitals.state == "waiting: journal"
        full.room = 1 << 20
        await site.settled()
        assert site.shapes == peer(1)

    on_a_site(scene, tmp_path)


def test_a_restored_store_deletes_nothing_until_an_operator_confirms_it(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet, store = site.fleet(), site.world.store
        fleet.write(fleet.joins("a", 1))
        backup = store.revision
        fleet.write(fleet.joins("b", 2))
        site.start()
        await site.settled()
        await asyncio.sleep(6)
        store.restore(backup)
        await asyncio.sleep(60)
        assert site.shapes == {**peer(1), **peer(2)}
        assert set(site.running.loop.held()) == {"identity"}
        fleet.name_it(epoch=2)
        await asyncio.sleep(10)
        assert site.shapes == peer(1)

    on_a_site(scene, tmp_path)


def test_another_fleets_store_in_the_place_of_ours_changes_nothing_however_far_its_revisions_are(
    tmp_path: Path,
) -> None:
    async def scene(site: HostHarness) -> None:
        fleet, store = site.fleet(), site.world.store
        fleet.write(fleet.joins("a", 1), fleet.joins("b", 2))
        site.start()
        await site.settled()
        await asyncio.sleep(6)
        seen = store.revision
        store.wipe()
        fleet.name_it("fleet-2")
        while store.revision <= seen:
            fleet.write(fleet.joins("b", 2))
        calls = len(site.kernel.calls)
        await asyncio.sleep(60)
        assert site.shapes == {**peer(1), **peer(2)}
        assert len(site.kernel.calls) == calls
        assert set(site.running.loop.held()) == {"identity"}

    on_a_site(scene, tmp_path)


def test_an_owner_or_interface_with_an_absurd_name_is_refused_and_its_neighbours_are_not(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        absurd = fleet.runs("w", "me", "10.65.0.1/32", interface="x" * 1_200_000)
        fleet.write(fleet.joins("a", 1), fleet.joins("b", 2, uid="x" * 200_000), absurd)
        site.start()
        await asyncio.sleep(5)
        assert site.shapes == peer(1)
        errors = {story.error for story in site.running.loop.ledger}
        assert errors == {"the name of its owner or its interface is too long for the journal"}

    on_a_site(scene, tmp_path)


def test_a_stop_before_the_first_complete_list_leaves_the_journal_unchanged(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.runs("w", "a", "10.65.0.1/32"))
        site.start()
        await site.settled()
        await site.stop()
        before = (tmp_path / "journal").read_bytes()
        calls = len(site.kernel.calls)
        site.unreachable.add("region")
        for end in (site.stop, _killed(site)):
            site.start()
            await asyncio.sleep(30)
            await end()
        assert (tmp_path / "journal").read_bytes() == before
        assert len(site.kernel.calls) == calls

    on_a_site(scene, tmp_path)


def _killed(site: HostHarness) -> Callable[[], Awaitable[None]]:
    async def kill() -> None:
        site.node.kill()

    return kill


def test_the_gauges_show_peers_claims_journal_and_pending_deletes(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.joins("b", 2), fleet.runs("w", "me", "10.65.0.1/32"))
        site.start()
        await site.settled()
        site.kernel.refuse = lambda change: "busy" if change.new is None else None
        fleet.write(fleet.leaves("a"), fleet.joins("c", 3, tunnel=2))
        await asyncio.sleep(60)
        site.running.measure(site.node.clock.now())
        told = site.running.metrics
        values = {
            "wanted": told.peers.labels(state="wanted")._value.get(),
            "programmed": told.peers.labels(state="programmed")._value.get(),
            "routes": told.claims.labels(kind="route")._value.get(),
            "journal": told.journal_bytes._value.get(),
            "pending": told.pending_deletes._value.get(),
            "conflicts": told.conflicts._value.get(),
            "synced": told.source_synced.labels(source="region")._value.get(),
        }
        assert values == {
            "wanted": 2,
            "programmed": 3,
            "routes": 3,
            "journal": site.running.target.journal.size,
            "pending": 1,
            "conflicts": 3,
            "synced": 1,
        }
        assert 59 < told.oldest_delete._value.get() < 61

    on_a_site(scene, tmp_path)
