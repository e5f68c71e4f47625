"""An inventory that was restored from a backup deletes and moves nothing; what is edited after the verdict flows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.inventory.changes import WantedObject
from holdfast.model.base.time import seconds
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.reconcile import Change, Outcome
from holdfast.runtime.control import Request, Who
from holdfast.server.identity.verdict import FleetIdentityReason
from holdfast.server.syncer.held import HeldCommands
from holdfast.server.syncer.term import SyncerTerm
from holdfast.store.api import Entry
from holdfast.testing.fault import fault
from tests.inventory.harness import endpoint, endpoint_key, endpoint_name, host
from tests.server.harness import SyncerHarness
from tests.server.syncer.restores.harness import OPERATOR, Backup, adopted, turned


@fault(
    "C40",
    without="holdfast.server.identity.verdict:inventory_went_back",
    returns="",
    sees=(AssertionError, "term.identity_gate.verdict.closed is"),
)
def test_C40_a_restored_inventory_deletes_and_moves_nothing(here: SyncerHarness, tmp_path: Path) -> None:
    async def scenario() -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
        here.editor.change([host(1), host(2), *map(endpoint, range(10))], who="alice")
        term = await here.settled()
        backup = Backup(here, tmp_path)
        here.editor.change([endpoint(n) for n in range(10, 30)], who="alice")
        here.editor.change([WantedObject(ENDPOINT, endpoint_name(0))], who="alice")
        here.editor.move(endpoint_name(1), "r2", who="alice")
        await term.reconciler.turn()
        before = here.stored()
        backup.restore()
        term = await turned(here)
        assert term.identity_gate.verdict.closed is FleetIdentityReason.INVENTORY_RESTORED
        for _ in range(3):
            here.clock.advance(seconds(700))
            await term.check_identity()
            await term.reconciler.turn()
        return before, here.stored()

    before, now = asyncio.run(scenario())
    assert now == before


def test_status_learns_the_verdict_and_how_much_it_holds(here: SyncerHarness, tmp_path: Path) -> None:
    async def nothing(_request: Request, _who: Who) -> Any:
        return {"objects": []}

    async def verdict(term: SyncerTerm) -> Any:
        return (await HeldCommands(term, nothing).answer(Request("held"), OPERATOR))["verdict"]

    async def scenario() -> tuple[Any, Any]:
        here.editor.change([host(1), *map(endpoint, range(10))], who="alice")
        term = await here.settled()
        backup, well = Backup(here, tmp_path), await verdict(term)
        here.editor.change([endpoint(n) for n in range(10, 30)], who="alice")
        here.editor.change([WantedObject(ENDPOINT, endpoint_name(0))], who="alice")
        await term.reconciler.turn()
        backup.restore()
        return well, await verdict(await turned(here))

    well, found = asyncio.run(scenario())
    assert well is None
    assert found["sentence"].startswith("the store has mark ")
    del found["sentence"]
    assert found == {
        "name": "inventory_restored",
        "opens": "holdfast inventory adopt --keep store|inventory --reason WHY",
        "held": {"create": 1, "delete": 20},
        "kinds": ["endpoints"],
    }


def test_only_what_is_edited_after_the_verdict_flows(here: SyncerHarness, tmp_path: Path) -> None:
    async def scenario() -> dict[bytes, bytes]:
        here.editor.change([host(1), host(2), *map(endpoint, range(10))], who="alice")
        term = await here.settled()
        backup = Backup(here, tmp_path)
        here.editor.change([endpoint(n) for n in range(10, 20)], who="alice")
        await term.reconciler.turn()
        before = here.stored()
        backup.restore()
        await turned(here)
        here.editor.change([WantedObject(ENDPOINT, endpoint_name(3)), endpoint(40)], who="bob")
        here.editor.move(endpoint_name(4), "r2", who="bob")
        await turned(here)
        return before

    before = asyncio.run(scenario())
    now = here.stored()
    assert before.keys() - now.keys() == {endpoint_key(3), endpoint_key(4)}
    assert now.keys() - before.keys() == {endpoint_key(40), endpoint_key(4, on="r2")}


@fault(
    "C40",
    without="holdfast.server.syncer.outbox:Outbox.forget",
    sees=(AssertionError, r"\{endpoint_key\(9\), endpoint_key\(40\), endpoint_key\(41\)\} <="),
)
def test_C40_an_edit_whose_outbox_row_has_the_id_of_an_earlier_one_flows(here: SyncerHarness, tmp_path: Path) -> None:
    async def scenario() -> None:
        here.editor.change([host(1), *map(endpoint, range(8))], who="alice")
        term = await here.settled()
        backup = Backup(here, tmp_path)
        here.editor.change([endpoint(9)], who="alice")
        await term.reconciler.turn()
        here.editor.change([endpoint(9, gateway="10.0.0.254")], who="alice")
        await term.outbox.fetch()
        backup.restore()
        await term.check_identity()
        await term.reconciler.turn()  # the delete of endpoint 9 is held, so its row stays noted
        here.editor.change([endpoint(40)], who="bob")
        here.editor.change([endpoint(41)], who="bob")
        await term.reconciler.turn()

    asyncio.run(scenario())
    assert {endpoint_key(9), endpoint_key(40), endpoint_key(41)} <= set(here.stored())


@fault(
    "C70",
    without="holdfast.server.identity.verdict:inventory_went_back",
    returns="",
    sees=(AssertionError, "term.identity_gate.verdict.closed is"),
)
def test_C70_a_copied_file_that_serves_two_leaders_in_turn_is_noticed(here: SyncerHarness, tmp_path: Path) -> None:
    async def scenario() -> SyncerTerm:
        here.editor.change([host(1), *map(endpoint, range(4))], who="alice")
        term = await here.settled()
        copy = Backup(here, tmp_path)
        here.editor.change([endpoint(5)], who="alice")
        await term.reconciler.turn()
        copy.restore()  # the second leader has the copy
        here.editor.change([endpoint(6)], who="bob")
        return await turned(here)

    term = asyncio.run(scenario())
    assert term.identity_gate.verdict.closed is FleetIdentityReason.INVENTORY_RESTORED
    assert endpoint_key(5) in here.stored()


async def edited_after_a_dump(here: SyncerHarness, folder: Path) -> tuple[SyncerTerm, Backup]:
    """A leader at work, and a dump from before a create, a move and a delete that are in the store by now."""
    here.editor.change([host(1), host(2), *map(endpoint, range(7))], who="alice")
    term = await here.settled()
    here.editor.change([endpoint(8)], who="alice")  # in the outbox when the dump is taken
    backup = Backup(here, folder)
    await term.reconciler.turn()
    here.editor.change([endpoint(7), WantedObject(ENDPOINT, endpoint_name(8))], who="alice")
    here.editor.move(endpoint_name(2), "r2", who="alice")
    await term.reconciler.turn()
    return term, backup


@fault(
    "C40",
    without="holdfast.server.syncer.term:SyncerTerm._make_mark",
    by="tests.server.syncer.without_protection:unchecked_mark",
    sees=(AssertionError, "closed is FleetIdentityReason.INVENTORY_RESTORED"),
)
def test_C40_a_database_restored_under_a_leader_gets_no_mark_before_it_was_judged(
    here: SyncerHarness, tmp_path: Path
) -> None:
    async def scenario() -> tuple[dict[bytes, bytes], object]:
        term, backup = await edited_after_a_dump(here, tmp_path)
        before = here.stored()
        backup.restore()
        await term.reconciler.turn()  # the outbox row of the dump, before anybody has judged the database
        await term.check_identity()
        term.reconciler.dirty.mark_all()
        await term.reconciler.turn()
        return before, term.identity_gate.verdict.closed

    before, closed = asyncio.run(scenario())
    assert closed is FleetIdentityReason.INVENTORY_RESTORED
    assert here.stored() == before


@fault(
    "C40",
    without="holdfast.server.identity.gate:FleetIdentityGate.judge",
    sees=(AssertionError, r"here.stored\(\) == before"),
)
def test_C40_a_verdict_reached_between_plan_and_write_counts(here: SyncerHarness, tmp_path: Path) -> None:
    async def scenario() -> dict[bytes, bytes]:
        term, backup = await edited_after_a_dump(here, tmp_path)
        before = here.stored()
        backup.restore()
        apply = term.target.apply

        async def judged_first(ready: Sequence[Change[bytes, Entry]]) -> Sequence[Outcome[bytes, Entry]]:
            await term.check_identity()
            return await apply(ready)

        term.target.apply = judged_first  # type: ignore[method-assign]
        term.reconciler.dirty.mark_all()
        await term.reconciler.turn()
        return before

    before = asyncio.run(scenario())
    assert here.stored() == before


def test_an_object_that_had_moved_flows_once_it_is_edited_after_the_verdict(
    here: SyncerHarness, tmp_path: Path
) -> None:
    async def scenario() -> dict[str, Any]:
        here.editor.change([host(1), host(2), *map(endpoint, range(5))], who="alice")
        term = await here.settled()
        backup = Backup(here, tmp_path)
        here.editor.move(endpoint_name(2), "r2", who="alice")
        await term.reconciler.turn()
        backup.restore()
        term = await turned(here)
        here.editor.change([endpoint(2, gateway="10.0.0.254")], who="bob")
        await term.reconciler.turn()
        return await adopted(term, side="inventory", keep="store")

    assert asyncio.run(scenario())["error"] == ""
    assert here.stored() == here.wanted()
