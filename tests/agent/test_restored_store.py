"""The agent beside a store that was restored from a backup, is being refilled, or lost its history."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import pytest

from holdfast.agent.claims import ClaimKey, LocalRoute, RemoteRoute, Shape, nexthop, route
from holdfast.agent.commands.control import AgentCommands
from holdfast.agent.desired.peers import Encapsulation, LocalHost
from holdfast.agent.desired.slim_endpoint import decode_endpoint
from holdfast.agent.desired.source_claims import SourceClaims
from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.endpoint_status import EndpointState
from holdfast.model.control.identity import LatchedVerdict
from holdfast.reconcile import Op
from holdfast.runtime import store_guard
from holdfast.runtime.store_memory import StoreMemory
from holdfast.store.api import Store
from holdfast.store.identity import SeenStore, StoreIdentity, StoreVerdict, read_identity
from holdfast.testing import FakeStore
from holdfast.testing.fault import fault
from holdfast.testing.store.link import Fate, always_answered
from tests.agent.harness import ME, REGION, Fleet, HostHarness, host
from tests.agent.test_reconciler import P1, P2, on_a_site, peer

VIA_A, VIA_B = RemoteRoute("10.99.0.1"), RemoteRoute("10.99.0.2")
ROUTES = [route(f"10.65.0.{number}/32") for number in range(1, 26)]
RESTORED = LatchedVerdict("store_restored", "the store went back; nothing is deleted")


def changes_of(site: HostHarness) -> list[tuple[ClaimKey, Shape | None]]:
    """Record changes of the kernel from now on."""
    seen: list[tuple[ClaimKey, Shape | None]] = []
    site.kernel.observers.append(lambda key, shape: seen.append((key, shape)))
    return seen


def verdict(site: HostHarness) -> StoreVerdict | None:
    return site.running.identity_gate.verdict("region")


def moves(fleet: Fleet, workload: str, before: str, after: str, prefix: str) -> None:
    fleet.write(fleet.ends(workload, before), fleet.runs(workload, after, prefix))


async def two_hosts(site: HostHarness) -> Fleet:
    fleet = site.fleet()
    fleet.write(fleet.joins("a", 1), fleet.joins("b", 2), fleet.leads(), fleet.marks(1))
    return fleet


async def restored(site: HostHarness) -> tuple[Fleet, int]:
    """One workload that moved from a to b, and one that started on b, after the backup that the store goes back to.
    Returns the last revision before that."""
    fleet = await two_hosts(site)
    fleet.write(fleet.runs("w", "a", "10.65.0.1/32"))
    backup = site.world.store.revision
    moves(fleet, "w", "a", "b", "10.65.0.1/32")
    fleet.write(fleet.runs("v", "b", "10.65.0.2/32"))
    fleet.write(fleet.marks(2), fleet.leads())
    site.start()
    await site.settled()
    await asyncio.sleep(6)
    last = site.world.store.revision
    site.world.store.restore(backup)
    await asyncio.sleep(10)
    return fleet, last


@pytest.mark.parametrize("runs", [True, False], ids=["running", "down meanwhile"])
def test_C60_routes_are_not_replaced_by_older_ones(tmp_path: Path, runs: bool) -> None:
    async def scene(site: HostHarness) -> None:
        fleet, store = await two_hosts(site), site.world.store
        for number, key in enumerate(ROUTES):
            fleet.write(fleet.runs(f"w{number}", "a", key.text))
        backup = store.revision
        for number, key in enumerate(ROUTES):
            moves(fleet, f"w{number}", "a", "b", key.text)
        site.start()
        await site.settled()
        await asyncio.sleep(6)
        changes = changes_of(site)
        if runs:
            store.restore(backup)
        else:
            await site.stop()
            store.restore(backup)
            site.start()
        await asyncio.sleep(60)
        assert verdict(site) is StoreVerdict.RESTORED
        assert changes == []
        assert {site.shapes[key] for key in ROUTES} == {VIA_B}
        held = [one for one in site.running.loop.ledger if one.closed is not None and one.closed.gate == "identity"]
        assert {one.change.op for one in held} == {Op.REPLACE}

    on_a_site(scene, tmp_path)


@fault(
    "N22",
    without="holdfast.agent.gates.identity:StoreIdentityGate._is_newer",
    returns=True,
    sees=(AssertionError, r"\(verdict\(site\), site.shapes\[P1\]\) == \(StoreVerdict.RESTORED"),
)
def test_N22_a_restored_store_moves_no_live_workload_back_to_where_it_was(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet, _ = await restored(site)
        assert (verdict(site), site.shapes[P1]) == (StoreVerdict.RESTORED, VIA_B)
        fleet.write(fleet.leads())
        await asyncio.sleep(600)
        await site.stop()
        site.start()
        await asyncio.sleep(60)
        assert site.shapes[P1] == VIA_B

    on_a_site(scene, tmp_path)


def test_C60_a_store_that_is_restored_twice_replaces_nothing_by_older_claims(tmp_path: Path) -> None:
    """The second backup is younger than the first: its claims are newer than that, and older than what is live."""

    async def scene(site: HostHarness) -> None:
        fleet, store = await two_hosts(site), site.world.store
        first = store.revision
        for _ in range(50):
            fleet.write(fleet.leads())
        fleet.write(fleet.runs("w", "a", "10.65.0.1/32"))
        second, younger = store.revision, store.keys.at(store.revision)
        moves(fleet, "w", "a", "b", "10.65.0.1/32")
        site.start()
        await site.settled()
        await asyncio.sleep(6)
        changes = changes_of(site)
        store.restore(first)
        await asyncio.sleep(10)
        store._replace(younger)
        await asyncio.sleep(30)
        assert (verdict(site), store.revision, changes) == (StoreVerdict.RESTORED, second, [])
        moves(fleet, "w", "a", "b", "10.65.0.1/32")
        fleet.write(fleet.joins("c", 3))
        moves(fleet, "w", "b", "c", "10.65.0.1/32")
        await asyncio.sleep(5)
        assert site.shapes[P1] == RemoteRoute("10.99.0.3")

    on_a_site(scene, tmp_path)


def test_a_restored_store_still_adds(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet, _ = await restored(site)
        fleet.write(fleet.joins("c", 3), fleet.runs("x", "c", "10.65.0.3/32"))
        await asyncio.sleep(2)
        assert site.shapes == {
            **peer(1), **peer(2), **peer(3), P1: VIA_B, P2: VIA_B, route("10.65.0.3/32"): RemoteRoute("10.99.0.3"),
        }  # fmt: skip

    on_a_site(scene, tmp_path)


def test_what_is_written_after_the_restore_was_noticed_replaces(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet, last = await restored(site)
        fleet.write(fleet.joins("c", 3))
        moves(fleet, "w", "a", "c", "10.65.0.1/32")
        await asyncio.sleep(2)
        assert site.world.store.revision < last
        assert site.shapes[P1] == RemoteRoute("10.99.0.3")
        await site.stop()
        moves(fleet, "w", "c", "a", "10.65.0.1/32")
        site.start()
        await asyncio.sleep(10)
        assert site.shapes[P1] == VIA_A  # a restart does not forget when the restore was noticed

    on_a_site(scene, tmp_path)


def test_a_host_that_changes_its_address_after_the_restore_takes_its_routes_along(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = await two_hosts(site)
        fleet.write(fleet.runs("w", "a", "10.65.0.1/32"))
        backup = site.world.store.revision
        fleet.write(fleet.runs("v", "b", "10.65.0.2/32"))
        site.start()
        await site.settled()
        await asyncio.sleep(6)
        site.world.store.restore(backup)
        await asyncio.sleep(10)
        fleet.write(fleet.joins("a", 1, tunnel=7))
        await asyncio.sleep(5)
        assert verdict(site) is StoreVerdict.RESTORED
        assert site.shapes[P1] == RemoteRoute("10.99.0.7")
        assert nexthop("10.99.0.1") in site.shapes  # its delete is held

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("order", list(permutations(["old", "refilled", "host"])), ids="-".join)
def test_of_two_claims_the_refilled_one_wins_in_any_order_of_events(order: Sequence[str]) -> None:
    fleet = Fleet(FakeStore(now=lambda: 0.0))
    old, refilled = fleet.runs("gone", "a", "10.65.0.1/32"), fleet.runs("live", "b", "10.65.0.1/32")
    revisions = {old.key: 5, refilled.key: 9}
    claims = SourceClaims(
        LocalHost(ME, Encapsulation.ALWAYS),
        REGION,
        lambda path: revisions.get(path, 0),
        lambda path: revisions.get(path, 0),
    )
    claims.restored = True
    claims.set_host(b"nodes/a", host("a", 1))
    for one in order:
        if one == "host":
            claims.set_host(b"nodes/b", host("b", 2))
        else:
            put = old if one == "old" else refilled
            endpoint = decode_endpoint(put.key, put.value)
            assert not isinstance(endpoint, Bad)
            claims.set_endpoint(put.key, endpoint)
    wanted = claims.wanted(P1)
    assert wanted is not None
    assert wanted.claim.shape == VIA_B


def test_a_claim_of_the_backup_and_a_refilled_one_end_with_the_refilled_one(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = await two_hosts(site)
        fleet.write(fleet.runs("gone", "a", "10.65.0.1/32"))
        backup = site.world.store.revision
        fleet.write(fleet.ends("gone", "a"), fleet.runs("live", "b", "10.65.0.1/32"))
        site.start()
        await site.settled()
        await asyncio.sleep(6)
        changes = changes_of(site)
        site.world.store.restore(backup)
        await asyncio.sleep(10)
        fleet.write(fleet.runs("live", "b", "10.65.0.1/32"))  # refilled, while the delete of the other one is held
        await asyncio.sleep(10)
        assert (site.shapes[P1], changes) == (VIA_B, [])
        fleet.write(fleet.ends("gone", "a"))
        fleet.name_it(epoch=2)
        await site.settled()
        assert (site.shapes[P1], changes) == (VIA_B, [])

    on_a_site(scene, tmp_path)


def test_repairs_go_on_under_a_verdict(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = await two_hosts(site)
        fleet.write(fleet.runs("w", "a", "10.65.0.1/32"), fleet.runs("mine", "me", "10.65.0.9/32"))
        backup = site.world.store.revision
        fleet.write(fleet.runs("v", "b", "10.65.0.2/32"))
        site.start()
        await site.settled()
        await asyncio.sleep(6)
        site.world.store.restore(backup)
        await asyncio.sleep(10)
        before = dict(site.shapes)
        site.kernel.flap()
        assert site.shapes != before
        await asyncio.sleep(10)
        left = {key: shape for key, shape in before.items() if key != P2}  # the store does not want that one any more
        assert left.items() <= site.shapes.items()
        assert site.shapes[route("10.65.0.9/32")] == LocalRoute("tap-mine")

    on_a_site(scene, tmp_path)


def test_a_store_that_is_being_refilled_adds_and_keeps_only(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = await two_hosts(site)
        fleet.write(fleet.runs("w", "a", "10.65.0.1/32"), fleet.runs("v", "b", "10.65.0.2/32"))
        site.start()
        await site.settled()
        await asyncio.sleep(6)
        site.world.store.wipe()
        fleet.name_it(epoch=2, filling=True)
        fleet.write(fleet.joins("a", 1), fleet.joins("b", 2), fleet.joins("c", 3), fleet.runs("w", "b", "10.65.0.1/32"))
        await asyncio.sleep(20)
        assert verdict(site) is StoreVerdict.FILLING
        assert site.shapes == {**peer(1), **peer(2), **peer(3), P1: VIA_A, P2: VIA_B}
        fleet.write(fleet.runs("v", "b", "10.65.0.2/32"))
        fleet.name_it(epoch=2)
        await site.settled()
        assert site.shapes == {**peer(1), **peer(2), **peer(3), P1: VIA_B, P2: VIA_B}

    on_a_site(scene, tmp_path)


@fault(
    "C65",
    without="holdfast.runtime.store_guard:StoreGuard._has_older_list",
    returns=False,
    sees=(AssertionError, r"\(verdict\(site\), changes\) == \(None, \[\]\)"),
)
def test_C65_an_agent_that_starts_while_the_filling_ends_deletes_nothing(tmp_path: Path) -> None:
    """Its lists are from before the last endpoint was refilled, the identity that it reads from after that."""

    async def scene(site: HostHarness) -> None:
        fleet = await two_hosts(site)
        fleet.write(fleet.runs("w", "a", "10.65.0.1/32"), fleet.runs("v", "b", "10.65.0.2/32"))
        site.start()
        await site.settled()
        await asyncio.sleep(6)
        site.world.store.wipe()
        fleet.name_it(epoch=2, filling=True)
        fleet.write(fleet.joins("a", 1), fleet.joins("b", 2), fleet.runs("w", "a", "10.65.0.1/32"))
        await asyncio.sleep(20)
        assert verdict(site) is StoreVerdict.FILLING
        site.node.kill()
        changes = changes_of(site)
        site.unreachable = {"region"}
        site.start()
        await site.world.until(lambda: site.reconciler is not None)
        link = site.clients["region"].link
        link.fate_of = lambda method: Fate.REFUSED if method == "txn" else Fate.ANSWERED
        site.heal()
        await site.world.until(lambda: bool(site.running.sources.complete))
        link.mute_watches(ENDPOINT.prefix(REGION))
        fleet.write(fleet.runs("v", "b", "10.65.0.2/32"))
        fleet.name_it(epoch=2)
        link.fate_of = always_answered
        await asyncio.sleep(30)
        assert (verdict(site), changes) == (None, []), "the watch is behind"
        link.heal()
        await asyncio.sleep(10)
        assert (verdict(site), changes) == (StoreVerdict.OURS, [])

    on_a_site(scene, tmp_path)


def test_a_restored_inventory_holds_nothing_on_an_agent(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = await two_hosts(site)
        fleet.write(fleet.runs("w", "a", "10.65.0.1/32"), fleet.runs("v", "b", "10.65.0.2/32"))
        site.start()
        await site.settled()
        fleet.name_it(verdict=LatchedVerdict("inventory_restored", "the inventory went back"))
        await asyncio.sleep(6)
        moves(fleet, "w", "a", "b", "10.65.0.1/32")
        fleet.write(fleet.ends("v", "b"))
        await site.settled()
        assert verdict(site) is StoreVerdict.INVENTORY_RESTORED
        assert site.shapes == {**peer(1), **peer(2), P1: VIA_B}

    on_a_site(scene, tmp_path)


def test_C69_allowances_of_a_restored_store_are_void(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = await two_hosts(site)
        fleet.write(fleet.runs("w", "a", "10.65.0.1/32"), fleet.allows(10**6))
        backup = site.world.store.revision
        fleet.write(fleet.runs("v", "b", "10.65.0.2/32"))
        site.start()
        await site.settled()
        await asyncio.sleep(6)
        site.world.store.restore(backup)
        await asyncio.sleep(10)
        (held,) = [one.change for one in site.running.loop.ledger if one.change.key == P2]
        assert not site.running._is_allowed(held)
        fleet.name_it(epoch=2)
        await asyncio.sleep(6)
        assert site.running._is_allowed(held)

    on_a_site(scene, tmp_path)


@fault(
    "C43",
    without="holdfast.runtime.store_guard:latch",
    by="tests.agent.without_protection:remembers_no_verdict",
    sees=(AssertionError, r"verdict\(site\) is StoreVerdict.RESTORED"),
)
def test_C43_the_verdict_stays_when_the_store_has_outgrown_what_was_seen(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet, last = await restored(site)
        while site.world.store.revision <= last + 5:
            fleet.write(fleet.leads())
        fleet.write(fleet.marks(3))
        await asyncio.sleep(30)
        assert verdict(site) is StoreVerdict.RESTORED
        await site.stop()
        site.start()
        await asyncio.sleep(30)
        assert verdict(site) is StoreVerdict.RESTORED
        assert site.shapes == {**peer(1), **peer(2), P1: VIA_B, P2: VIA_B}

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("evidence", ["marks", "history"])
def test_C43_a_store_restored_with_higher_revisions_is_noticed(tmp_path: Path, evidence: str) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = await two_hosts(site)
        backup = site.world.store.revision
        fleet.write(fleet.runs("w", "a", "10.65.0.1/32"))
        fleet.write(fleet.leads(), *([fleet.marks(2)] if evidence == "marks" else []))
        site.start()
        await site.settled()
        await asyncio.sleep(6)
        site.world.store.restore(backup)
        site.world.store.keys.revision += 10_000
        if evidence == "marks":
            site.world.store.compact()
        await asyncio.sleep(30)
        assert verdict(site) is StoreVerdict.RESTORED
        assert site.shapes[P1] == VIA_A

    on_a_site(scene, tmp_path)


def test_C60_no_live_route_goes_when_a_refilled_store_is_adopted(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        changes = changes_of(site)
        fleet, _ = await restored(site)
        changes.clear()
        fleet.name_it(verdict=RESTORED)
        moves(fleet, "w", "a", "b", "10.65.0.1/32")
        fleet.write(fleet.runs("v", "b", "10.65.0.2/32"))
        await asyncio.sleep(10)
        fleet.name_it(epoch=2)
        await site.settled()
        await asyncio.sleep(60)
        assert (verdict(site), changes) == (StoreVerdict.OURS, [])
        assert site.shapes == {**peer(1), **peer(2), P1: VIA_B, P2: VIA_B}

    on_a_site(scene, tmp_path)


@fault(
    "C61",
    without="holdfast.agent.commands.control:only_up",
    by="tests.agent.without_protection:whatever_the_state",
    sees=(AssertionError, r"\{name.workload: state for name, state in reported.items\(\)\} =="),
)
def test_C61_only_what_is_up_is_reported_to_a_restored_store(tmp_path: Path) -> None:
    """One workload has moved away from this host since the backup: its route goes to the other host and stays."""

    async def scene(site: HostHarness) -> None:
        fleet = await two_hosts(site)
        fleet.write(fleet.joins(ME, 3), fleet.runs("stays", ME, "10.65.0.1/32"), fleet.runs("w", ME, "10.65.0.2/32"))
        backup = site.world.store.revision
        moves(fleet, "w", ME, "b", "10.65.0.2/32")
        fleet.write(fleet.marks(2), fleet.leads())
        site.start()
        await site.settled()
        await asyncio.sleep(6)
        site.world.store.restore(backup)
        await asyncio.sleep(10)
        assert verdict(site) is StoreVerdict.RESTORED
        reported = AgentCommands(site.running, ME, "boot-1", site.node.clock).endpoints()
        assert reported is not None
        assert {name.workload: state for name, state in reported.items()} == {"stays": EndpointState.UP}

    on_a_site(scene, tmp_path)


@pytest.mark.parametrize("remembers", [True, False])
def test_C68_a_host_that_boots_under_a_verdict_follows_the_refilled_claim(tmp_path: Path, remembers: bool) -> None:
    """Its kernel and its journal are empty; the delete of the old place of the workload is held at the syncer."""

    async def scene(site: HostHarness) -> None:
        fleet = await two_hosts(site)
        fleet.write(fleet.runs("w", "a", "10.65.0.1/32"))
        if remembers:
            StoreMemory(tmp_path, "region").keep(SeenStore("fleet-1", 1, 1_000, restored="it went back", noticed=900))
        fleet.write(fleet.runs("w", "b", "10.65.0.1/32"))
        fleet.name_it(verdict=RESTORED)
        site.start()
        await asyncio.sleep(30)
        assert verdict(site) is StoreVerdict.RESTORED
        assert site.shapes[P1] == VIA_B

    on_a_site(scene, tmp_path)


def test_a_claim_that_was_passed_over_before_the_restore_does_not_come_back(tmp_path: Path) -> None:
    """It is in the backup with a higher revision than the one that is programmed."""

    async def scene(site: HostHarness) -> None:
        fleet = await two_hosts(site)
        fleet.write(fleet.runs("w", "a", "10.65.0.1/32"))
        fleet.write(fleet.runs("twice", "b", "10.65.0.1/32"))
        backup = site.world.store.revision
        fleet.write(fleet.ends("twice", "b"))
        site.start()
        await site.settled()
        await asyncio.sleep(6)
        changes = changes_of(site)
        site.world.store.restore(backup)
        await asyncio.sleep(30)
        assert (site.shapes[P1], changes) == (VIA_A, [])

    on_a_site(scene, tmp_path)


def test_C68_a_new_host_takes_the_leaders_verdict_and_adds(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = await two_hosts(site)
        fleet.write(fleet.runs("w", "a", "10.65.0.1/32"))
        fleet.name_it(verdict=RESTORED)
        site.start()
        await asyncio.sleep(10)
        assert verdict(site) is StoreVerdict.RESTORED
        assert site.shapes == {**peer(1), **peer(2), P1: VIA_A}
        assert StoreMemory(tmp_path, "region").load() is None
        fleet.write(fleet.ends("w", "a"))
        await asyncio.sleep(10)
        assert site.shapes[P1] == VIA_A
        fleet.name_it(epoch=2)
        await site.settled()
        assert site.shapes == {**peer(1), **peer(2)}

    on_a_site(scene, tmp_path)


@fault(
    "C68",
    without="holdfast.runtime.store_guard:has_diverged",
    by="tests.agent.without_protection:takes_compacted_for_another_history",
    sees=(TimeoutError, r"self.world.until\(lambda: not reconciler.loop.backlog\(\)"),
)
def test_C68_a_host_that_comes_back_after_its_history_was_compacted_goes_on(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = await two_hosts(site)
        fleet.write(fleet.runs("w", "a", "10.65.0.1/32"))
        site.start()
        await site.settled()
        await asyncio.sleep(6)
        await site.stop()
        moves(fleet, "w", "a", "b", "10.65.0.1/32")
        fleet.write(fleet.leaves("a"), fleet.leads(), fleet.marks(2))
        site.world.store.compact()
        await asyncio.sleep(3_600)
        site.start()
        await site.settled()
        assert verdict(site) is StoreVerdict.OURS
        assert site.shapes == {**peer(2), P1: VIA_B}

    on_a_site(scene, tmp_path)


def test_C68_a_host_that_comes_back_to_another_history_notices_it(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = await two_hosts(site)
        backup = site.world.store.revision
        fleet.write(fleet.runs("w", "a", "10.65.0.1/32"), fleet.leads())
        site.start()
        await site.settled()
        await asyncio.sleep(6)
        await site.stop()
        last = site.world.store.revision
        site.world.store.restore(backup)
        while site.world.store.revision <= last + 5:
            fleet.write(fleet.joins("b", 2))
        site.start()
        await asyncio.sleep(10)
        assert verdict(site) is StoreVerdict.RESTORED
        assert site.shapes[P1] == VIA_A

    on_a_site(scene, tmp_path)


def test_the_identity_is_watched_and_read_once_a_minute_at_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of agents share a store: each reads what it is told of, not every few seconds what did not change."""
    reads: list[float] = []

    async def counted(store: Store, region: Region) -> StoreIdentity:
        reads.append(asyncio.get_running_loop().time())
        return await read_identity(store, region)

    monkeypatch.setattr(store_guard, "read_identity", counted)

    async def scene(site: HostHarness) -> None:
        fleet = await two_hosts(site)
        site.start()
        await site.settled()
        await asyncio.sleep(10)
        reads.clear()
        await asyncio.sleep(300)
        assert 4 <= len(reads) <= 6
        fleet.name_it(verdict=RESTORED)
        await asyncio.sleep(2)
        assert verdict(site) is StoreVerdict.RESTORED
        fleet.name_it(epoch=2)
        await asyncio.sleep(2)
        assert verdict(site) is StoreVerdict.OURS

    on_a_site(scene, tmp_path)
