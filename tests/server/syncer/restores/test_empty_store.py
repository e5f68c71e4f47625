"""Stores without an identity: one that another system uses, and one that was wiped and is filled again."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast.model.base.time import seconds
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.host import HOST
from holdfast.model.control.identity import Identity
from holdfast.model.control.leader import LEADER
from holdfast.server.identity.verdict import FleetIdentityReason
from holdfast.server.syncer.term import SyncerTerm
from holdfast.store.identity import read_identity, remember
from holdfast.testing.fault import fault
from tests.inventory.harness import REGION, endpoint, endpoint_key, host
from tests.server.harness import SyncerHarness
from tests.server.syncer.restores.harness import Backup, adopted, after, turned


@fault(
    "C41",
    without="holdfast.server.identity.judge:IdentityJudge._is_empty",
    by="tests.server.syncer.without_protection:always_empty",
    sees=(AssertionError, "now == before"),
)
def test_C41_a_store_that_somebody_else_uses_is_left_alone_until_it_is_adopted(here: SyncerHarness) -> None:
    async def scenario() -> tuple[dict[bytes, bytes], dict[bytes, bytes], object]:
        for n in range(3, 18):
            await here.operator.put(HOST.key(REGION, f"r{n}"), HOST.encode(host(n).thing))  # type: ignore[arg-type]
            await here.operator.put(endpoint_key(n, on=f"r{n}"), ENDPOINT.encode(endpoint(n, on=f"r{n}").thing))  # type: ignore[arg-type]
        before = here.stored()
        here.editor.change([host(1), endpoint(1)], who="alice")
        term = await turned(here)
        return before, here.stored(), term.identity_gate.verdict.closed

    before, now, closed = asyncio.run(scenario())
    assert now == before
    assert closed is FleetIdentityReason.STORE_UNNAMED


@fault(
    "C65",
    without="holdfast.server.syncer.term:SyncerTerm.is_filled",
    by="tests.server.syncer.without_protection:filled_at_once",
    sees=(AssertionError, r"\(killed.filling, done.filling\) == \(True, False\)"),
)
def test_C65_a_leader_killed_in_the_middle_of_a_refill_leaves_filling_set(here: SyncerHarness) -> None:
    async def scenario() -> tuple[object, object]:
        await after(here, range(8))
        here.fake.wipe()
        term = await here.lead()
        await term.check_identity()
        await term.check_identity()
        killed = (await read_identity(here.operator, REGION)).identity
        await turned(here)
        return killed, (await read_identity(here.operator, REGION)).identity

    killed, done = asyncio.run(scenario())
    assert isinstance(killed, Identity)
    assert isinstance(done, Identity)
    assert (killed.filling, done.filling) == (True, False)
    assert killed.epoch == done.epoch == 2
    assert here.stored() == here.wanted()


def test_an_object_that_cannot_be_written_does_not_keep_a_store_filling(here: SyncerHarness) -> None:
    theirs = HOST.encode(host(2).thing).replace(b'"name":"r2"', b'"name":"r2","labels":{"holdfast/region":"b"}')  # type: ignore[arg-type]

    async def scenario() -> SyncerTerm:
        await here.operator.put(HOST.key(REGION, "r2"), theirs)
        here.editor.change([host(1), host(2), *map(endpoint, range(3))], who="alice")
        term = await here.lead()
        for _ in range(12):
            await term.check_identity()
            await term.reconciler.turn()
            here.clock.advance(seconds(61))
        return term

    term = asyncio.run(scenario())
    assert term.identity_gate.verdict.closed is None
    assert len(term.reconciler.ledger) == 1, "it is still named, and tried again"


def test_a_wiped_store_and_an_older_database_have_a_leader_and_a_way_out(here: SyncerHarness, tmp_path: Path) -> None:
    async def scenario() -> list[object]:
        here.editor.change([host(1), *map(endpoint, range(3))], who="alice")
        term = await here.settled()
        backup = Backup(here, tmp_path)
        here.editor.change([endpoint(5)], who="alice")
        await term.reconciler.turn()
        here.seen_store = remember(await read_identity(here.operator, REGION))
        backup.restore()
        here.fake.wipe()
        closed: list[object] = []
        for _ in range(2):
            term = await turned(here)
            closed.append(term.identity_gate.verdict.closed)
            assert not term.is_outdated
        assert (await adopted(term, side="inventory", keep="inventory"))["error"] == ""
        term = await turned(here)
        closed.append(term.identity_gate.verdict.closed)
        return closed

    inventory = FleetIdentityReason.INVENTORY_RESTORED
    assert asyncio.run(scenario())[:2] == [inventory, inventory]
    assert here.stored() == here.wanted()


def test_a_store_wiped_within_a_term_of_the_same_number_is_named_under_a_higher_epoch(here: SyncerHarness) -> None:
    async def scenario() -> SyncerTerm:
        await after(here, range(4))
        term = await here.settled()
        here.fake.wipe()
        key = LEADER.key(REGION, "leader")
        while here.fake.revision < term.fence.term - 1:
            await here.operator.put(b"/other/time-passes", b"")
        assert await here.operator.put(key, b"{}") == term.fence.term, "the new term has the number of the old one"
        await term.check_identity()
        assert term.is_outdated
        assert (await read_identity(here.operator, REGION)).identity is None, "the term begins again first"
        return term

    asyncio.run(scenario())
