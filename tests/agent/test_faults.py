"""Rows of the fault matrix that the agent protects against, each on a simulated host."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from holdfast.agent.claims import ClaimKey, NeighbourEntry, RemoteRoute, device, neighbour, nexthop, route
from holdfast.model.calico.host import HOST, REGION_LABEL
from holdfast.store.api import Put
from holdfast.testing import World, simulate
from holdfast.testing.fakes.kernel import FakeKernel
from holdfast.testing.fault import fault
from tests.agent.harness import REGION, HostHarness, Ids, another_store, host
from tests.agent.test_reconciler import P1, on_a_site, peer
from tests.sim.agent_scenario import SwallowingIds


def removals_of(kernel: FakeKernel) -> list[ClaimKey]:
    """Record deletes from now on."""
    gone: list[ClaimKey] = []
    kernel.observers.append(lambda key, shape: gone.append(key) if shape is None else None)
    return gone


@fault(
    "N1",
    without="holdfast.agent.target:JournaledTarget._load_journal",
    sees=(AssertionError, r"set\(ids.held\) == \{\*peer\(2\), device\(4\)\}"),
)
def test_N1_what_was_deleted_while_the_agent_was_down_goes_when_it_is_back(tmp_path: Path) -> None:
    ids = Ids()

    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.joins("b", 2), fleet.runs("w", "a", "10.65.0.1/32"))
        site.start()
        await site.settled()
        site.node.kill()
        fleet.write(fleet.leaves("a"), fleet.ends("w", "a"))
        site.kernel.flap()  # of most of it the kernel's tags tell nothing any more, while others still have it
        site.start()
        await site.settled()
        assert site.shapes == peer(2)
        assert set(ids.held) == {*peer(2), device(4)}

    on_a_site(scene, tmp_path, others=(ids,))


@fault(
    "N4",
    without="holdfast.runtime.reconciler.loop:Reconciler._still_wanted",
    by="tests.agent.without_protection:as_planned",
    sees=(AssertionError, r"len\(gone\) == 1"),
)
def test_N4_a_host_that_is_back_while_the_prune_walks_its_list_is_left_alone(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        names = ["a", "b", "c"]
        fleet.write(*[fleet.joins(name, number) for number, name in enumerate(names, start=1)])
        site.start()
        await site.settled()
        gone = removals_of(site.kernel)

        async def come_back() -> None:
            site.kernel.pause = _at_once
            fleet.write(*[fleet.joins(name, number) for number, name in enumerate(names, start=1)])
            await asyncio.sleep(1)

        site.kernel.pause = _when_removing(site, come_back)
        fleet.write(*[fleet.leaves(name) for name in names])
        await site.settled()
        assert len(site.shapes) == 12
        assert len(gone) == 1, "only what was on its way to the kernel already"

    on_a_site(scene, tmp_path, batch=1)


async def _at_once() -> None:
    """No time passes."""


def _when_removing(site: HostHarness, then: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    """Calls `then` when the first deletion has been handed over."""

    async def pause() -> None:
        if site.running.target.journal.deleting:
            await then()

    return pause


@fault(
    "N5",
    without="holdfast.agent.target:is_acknowledged",
    by="tests.agent.without_protection:tried_once",
    sees=(ValueError, r"\(key,\) = \[key for key in site.running.target.pending_deletes if"),
)
def test_N5_a_deletion_that_failed_is_tried_until_it_is_done(tmp_path: Path) -> None:
    ids = Ids()

    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.joins("b", 2))
        site.start()
        await site.settled()
        ids.refuse = lambda change: "busy" if change.new is None else None
        fleet.write(fleet.leaves("a"))
        await asyncio.sleep(20)
        (key,) = [key for key in site.running.target.pending_deletes if key == route("10.99.0.1/32")]
        statuses = {one.handler: one for one in site.running.target.pending_deletes.statuses(key)}
        assert statuses["kernel"].acknowledged
        assert statuses["ids"].error == "busy"
        site.node.kill()
        site.start()
        await asyncio.sleep(20)
        ids.refuse = lambda _change: None
        await site.settled()
        assert set(ids.held) == {*peer(2), device(4)}
        assert not site.running.target.journal.deleting

    on_a_site(scene, tmp_path, others=(ids,))


@fault(
    "N8",
    without="holdfast.agent.desired.ownership:ClaimOwners._withdraw",
    by="tests.agent.without_protection:with_all_its_claims",
    sees=(KeyError, r'site.shapes\[neighbour\("10.99.0.1"\)\] =='),
)
def test_N8_an_address_that_has_a_new_owner_stays_when_the_old_one_goes(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("old", 1), fleet.joins("other", 9))
        site.start()
        await site.settled()
        fleet.write(fleet.joins("new", 2, tunnel=1))
        await site.settled()
        gone = removals_of(site.kernel)
        fleet.write(fleet.leaves("old"))
        await site.settled()
        assert site.shapes[neighbour("10.99.0.1")] == NeighbourEntry("66:00:00:00:00:02")
        assert not {neighbour("10.99.0.1"), nexthop("10.99.0.1")} & set(gone)

    on_a_site(scene, tmp_path)


def test_N8_an_address_that_changed_hands_while_the_agent_was_down_is_never_absent(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("old", 1), fleet.runs("w", "old", "10.65.0.1/32"))
        site.start()
        await site.settled()
        site.node.kill()
        gone = removals_of(site.kernel)
        fleet.write(fleet.leaves("old"), fleet.ends("w", "old"))
        fleet.write(fleet.joins("new", 2, tunnel=1), fleet.runs("v", "new", "10.65.0.1/32"))
        site.start()
        await site.settled()
        assert site.shapes[neighbour("10.99.0.1")] == NeighbourEntry("66:00:00:00:00:02")
        assert [key.kind.name for key in gone] == ["FORWARDING"]

    on_a_site(scene, tmp_path)


@fault("N9", without="holdfast.agent.gates.dependents:DependentsGate.judge", sees=(AssertionError, "P1 not in gone"))
def test_N9_a_prefix_that_has_a_new_owner_is_routed_throughout(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("old", 1), fleet.runs("w", "old", "10.65.0.1/32"))
        site.start()
        await site.settled()
        gone = removals_of(site.kernel)
        fleet.write(
            fleet.leaves("old"),
            fleet.ends("w", "old"),
            fleet.joins("new", 2),
            fleet.runs("w", "new", "10.65.0.1/32"),
        )
        await site.settled()
        assert site.shapes == {**peer(2), P1: RemoteRoute("10.99.0.2")}
        assert P1 not in gone

    on_a_site(scene, tmp_path)


@fault(
    "N10",
    without="holdfast.agent.gates.readiness:unready",
    sees=(AssertionError, r"set\(ids.held\) == \{\*peer\(2\), device\(4\)\}"),
)
def test_N10_a_deletion_that_comes_before_the_handler_is_ready_waits_for_it(tmp_path: Path) -> None:
    ids = SwallowingIds()

    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.joins("b", 2))
        site.start()
        await site.settled()
        site.node.kill()
        fleet.write(fleet.leaves("a"))
        ids.waits_for = "its table"
        site.start()
        await asyncio.sleep(60)
        ids.waits_for = None
        await site.settled()
        assert set(ids.held) == {*peer(2), device(4)}

    on_a_site(scene, tmp_path, others=(ids,))


@fault(
    "N12",
    without="holdfast.agent.desired.watcher:is_complete",
    returns=True,
    sees=(AssertionError, r'site.running.sync_gate.sources\["region"\].revision is None'),
)
def test_N12_a_source_that_does_not_answer_for_ten_minutes_is_not_empty(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.runs("w", "a", "10.65.0.1/32"))
        site.start()
        await site.settled()
        site.node.kill()
        site.unreachable.add("region")
        site.start()
        await asyncio.sleep(600)
        assert site.shapes == {**peer(1), P1: RemoteRoute("10.99.0.1")}
        assert site.running.sync_gate.sources["region"].revision is None
        assert site.programmed_peers() == {"region": 1}

    on_a_site(scene, tmp_path)


@fault(
    "N13",
    without="holdfast.agent.gates.store_path:on_path",
    returns=[],
    sees=(AssertionError, r'site.shapes == \{\*\*path, P1: RemoteRoute\("10.99.0.1"\)\}'),
)
def test_N13_the_path_to_the_store_is_deleted_last_and_stays_when_its_delete_was_a_mistake(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        known = [
            fleet.joins("a", 1),
            fleet.joins("b", 2),
            fleet.runs("etcd", "a", "10.65.0.1/32"),
            fleet.runs("w", "a", "10.65.0.2/32"),
        ]
        fleet.write(*known)
        site.start()
        await site.settled()
        gone = removals_of(site.kernel)
        fleet.write(fleet.leaves("a"), fleet.leaves("b"), fleet.ends("etcd", "a"), fleet.ends("w", "a"))
        await asyncio.sleep(20)
        path = {key: shape for key, shape in peer(1).items() if key != route("10.99.0.1/32")}
        assert site.shapes == {**path, P1: RemoteRoute("10.99.0.1")}
        fleet.write(*known)
        await site.settled()
        await asyncio.sleep(60)
        assert not {P1, *path} & set(gone)
        fleet.write(fleet.leaves("a"), fleet.ends("etcd", "a"), fleet.ends("w", "a"))
        await site.settled()
        assert site.shapes == peer(2)

    on_a_site(scene, tmp_path, path=lambda: ["10.65.0.1"], allowed=("10.65.0.1/32",))


@fault("N19", without="holdfast.reconcile.sync:SyncGate.judge", sees=(AssertionError, r"site.shapes == peer\(2\)"))
def test_N19_objects_known_only_by_their_tag_stay_until_every_source_is_complete(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        site = HostHarness(world, tmp_path, stores={"region": world.store, "region-b": another_store()})
        first, second = site.fleet("region"), site.fleet("region-b")
        first.name_it()
        second.name_it()
        first.write(first.joins("a", 1))
        second.write(second.joins("z", 2))
        site.start()
        await site.settled()
        await site.stop()
        (tmp_path / "journal").unlink()
        first.write(first.leaves("a"))
        site.unreachable.add("region-b")
        site.start()
        await asyncio.sleep(600)
        assert site.shapes == {**peer(1), **peer(2)}
        site.heal()
        await site.settled()
        assert site.shapes == peer(2)
        site.close()

    simulate(1, scenario)


@fault(
    "N25",
    without="holdfast.agent.desired.watcher:_is_foreign",
    returns=False,
    sees=(AssertionError, r"site.shapes == \{\*\*peer\(1\), \*\*peer\(2\)\}"),
)
def test_N25_a_host_of_another_region_is_no_peer_whenever_it_gets_there(tmp_path: Path) -> None:
    def labelled(name: str, number: int, region: str) -> Put:
        made = host(name, number)
        labels = {REGION_LABEL: region} if region else {}
        made = msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, labels=labels))
        return Put(HOST.key(REGION, name), HOST.encode(made))

    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), labelled("b", 2, ""), labelled("z", 1, "other"))
        fleet.write(fleet.runs("w", "z", "10.65.0.1/32"))
        site.start()
        await site.settled()
        assert site.shapes == {**peer(1), **peer(2)}
        assert (site.running.sources.conflicts(), site.running.watchers[0].has_host("z")) == ([], False)
        fleet.write(labelled("b", 2, "other"))
        await site.settled()
        assert site.shapes == peer(1)
        fleet.write(labelled("b", 2, ""))
        await site.settled()
        assert site.shapes == {**peer(1), **peer(2)}

    on_a_site(scene, tmp_path)


@fault(
    "N27",
    without="holdfast.agent.gates.unreadable:UnreadableValues.blamed",
    by="tests.agent.without_protection:any_value",
    sees=(AssertionError, r'site.shapes == \{ \*\*peer\(1\), \*\*peer\(2\), route\("10.65.0.1/32"\)'),
)
def test_N27_an_unreadable_value_holds_its_own_state_and_no_other_prune(tmp_path: Path) -> None:
    """Of host a and of workload v on host b; host c and workload w leave meanwhile."""

    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.joins("b", 2), fleet.joins("c", 3), fleet.runs("u", "a", "10.65.0.1/32"))
        fleet.write(fleet.runs("v", "b", "10.65.0.2/32"), fleet.runs("w", "b", "10.65.0.3/32"))
        site.start()
        await site.settled()
        await site.stop()
        rotten = Put(HOST.key(REGION, "a"), b"{"), Put(fleet.runs("v", "b").key, b"{")
        fleet.write(*rotten, fleet.leaves("c"), fleet.ends("w", "b"))
        site.start()
        await asyncio.sleep(60)
        assert site.shapes == {
            **peer(1), **peer(2), route("10.65.0.1/32"): RemoteRoute("10.99.0.1"),
            route("10.65.0.2/32"): RemoteRoute("10.99.0.2"),
        }  # fmt: skip
        fleet.write(fleet.leaves("a"), fleet.ends("v", "b"))
        await site.settled()
        assert site.shapes == peer(2)

    on_a_site(scene, tmp_path)


@fault(
    "C39",
    without="holdfast.agent.desired.watcher:unreadable_keys",
    returns=[],
    sees=(AssertionError, r'site.shapes == \{\*\*peer\(1\), \*\*peer\(2\), route\("10.65.0.1/32"\)'),
)
def test_C39_the_state_of_a_live_host_whose_value_cannot_be_read_stays(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = site.fleet()
        fleet.write(fleet.joins("a", 1), fleet.joins("b", 2), fleet.runs("w", "a", "10.65.0.1/32"))
        site.start()
        await site.settled()
        fleet.write(Put(HOST.key(REGION, "a"), b'{"kind": "Node", '))
        await asyncio.sleep(10)
        site.node.kill()
        site.start()
        await asyncio.sleep(600)
        assert site.shapes == {**peer(1), **peer(2), route("10.65.0.1/32"): RemoteRoute("10.99.0.1")}
        closed = [story.closed for story in site.running.loop.ledger if story.closed]
        assert {one.opens for one in closed} == {f"fix or delete {HOST.key(REGION, 'a').decode()}"}
        fleet.write(fleet.leaves("a"))
        await site.settled()
        assert site.shapes == peer(2)

    on_a_site(scene, tmp_path)
