"""Restored, wiped and foreign stores and inventories: nothing that lives is deleted or moved back.

The store is a fake with etcd's semantics, the inventory a SQLite file that is copied and put back.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.inventory.api import DatabaseAway, Fence
from holdfast.inventory.changes import WantedObject
from holdfast.model.base.time import seconds
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.host import HOST
from holdfast.model.control.identity import Identity
from holdfast.model.control.intent import INTENT, Intent
from holdfast.model.control.leader import LEADER
from holdfast.model.fleet.agent_report import AGENT_REPORT, AgentReport
from holdfast.model.fleet.balancer_report import BALANCER_REPORT, BalancerReport
from holdfast.reconcile import Away, Change, Outcome
from holdfast.runtime.control import Declined, Request, Who
from holdfast.server.identity.verdict import FleetIdentityReason
from holdfast.server.syncer.adopt import AdoptCommands
from holdfast.server.syncer.held import HeldCommands
from holdfast.server.syncer.term import SyncerTerm
from holdfast.store.api import Entry
from holdfast.store.identity import read_identity, remember
from holdfast.testing.fault import fault
from tests.inventory.harness import REGION, endpoint, endpoint_key, endpoint_name, host
from tests.server.harness import SyncerHarness, syncer_harness

OPERATOR = Who(0, 1, "ops")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[SyncerHarness]:
    with syncer_harness(tmp_path) as made:
        yield made


class Backup:
    """A copy of the inventory's file."""

    def __init__(self, here: SyncerHarness, folder: Path) -> None:
        self._live, self._copy = str(here.engine.url.database), str(folder / "backup.db")
        self._copied(self._live, self._copy)

    def restore(self) -> None:
        self._copied(self._copy, self._live)

    def _copied(self, from_file: str, to_file: str) -> None:
        with sqlite3.connect(from_file) as source, sqlite3.connect(to_file) as target:
            source.backup(target)


async def adopted(term: SyncerTerm, **args: Any) -> dict[str, Any]:
    """Has the leader carry out an adoption while its loop turns; returns the result."""
    commands = AdoptCommands(term)
    await commands.answer(Request("adopt", {"reason": "drill", **args}), OPERATOR)
    for _ in range(500):
        if term.syncer.adoption["done"]:
            break
        await term.reconciler.turn()
        await asyncio.sleep(0.01)
    return term.syncer.adoption


async def after(here: SyncerHarness, numbers: range) -> int:
    """A leader with these endpoints; returns the revision of a backup taken then."""
    here.editor.change([host(1), host(2), *map(endpoint, numbers)], who="alice")
    await here.settled()
    return here.fake.revision


async def turned(here: SyncerHarness, *, turns: int = 3) -> SyncerTerm:
    """A new leader that has judged and reconciled a few times."""
    term = await here.lead()
    for _ in range(turns):
        await term.check_identity()
        await term.reconciler.turn()
    return term


def live(here: SyncerHarness) -> set[bytes]:
    return {key for key in here.wanted() if key.startswith(b"/calico/")}


@fault(
    "C42",
    without="holdfast.server.identity.verdict:fence_is_ahead",
    returns=False,
)
def test_C42_a_store_from_before_the_present_term_is_refilled_without_the_fence(here: SyncerHarness) -> None:
    async def scenario() -> tuple[SyncerTerm, SyncerTerm]:
        await after(here, range(4))
        backup = here.fake.revision
        for _ in range(20):
            await here.operator.put(b"/other/time-passes", b"")
        await here.settled()  # the inventory's fence is raised to this term, and nothing else is written
        here.fake.restore(backup)
        await here.operator.delete(endpoint_key(2))
        term = await turned(here)
        assert live(here) <= set(here.stored()), "everything wanted is in the store again"
        result = await adopted(term, side="store")
        assert result["error"] == "", result
        await term.check_identity()
        assert term.is_outdated, "the term begins again, under the new epoch"
        return term, await turned(here)

    before, term = asyncio.run(scenario())
    assert (before.identity_gate.verdict.closed, term.identity_gate.verdict.closed) == (None, None)
    assert term.fence.epoch == before.fence.epoch + 1
    assert here.stored() == here.wanted()
    assert here.inventory.waiting() == 0, "the outbox is settled again"


def test_C43_the_verdict_stands_when_the_store_has_outgrown_every_revision(here: SyncerHarness) -> None:
    async def scenario() -> tuple[object, object]:
        backup = await after(here, range(4))
        here.editor.change([endpoint(5)], who="alice")
        here.editor.change([WantedObject(ENDPOINT, endpoint_name(0))], who="alice")
        await here.settled()
        here.editor.change([endpoint(6)], who="alice")
        await here.settled()
        here.fake.restore(backup)
        for _ in range(100):
            await here.operator.put(b"/other/time-passes", b"")
        first = await turned(here)
        for _ in range(100):
            await here.operator.put(b"/other/time-passes", b"")
        second = await turned(here)
        return first.identity_gate.verdict.closed, second.identity_gate.verdict.closed

    restored = FleetIdentityReason.STORE_RESTORED
    assert asyncio.run(scenario()) == (restored, restored)
    assert endpoint_key(0) in here.stored(), "it came back with the backup, and its delete is held"
    assert live(here) <= set(here.stored())


@fault(
    "C43",
    without="holdfast.server.syncer.term:SyncerTerm._write_mark",
    by="tests.server.syncer.without_protection:no_mark",
)
def test_C43_a_store_restored_in_mid_term_gets_no_mark_before_it_was_judged(here: SyncerHarness) -> None:
    async def scenario() -> SyncerTerm:
        backup = await after(here, range(4))
        term = await here.settled()
        backup = here.fake.revision
        here.editor.change([endpoint(5)], who="alice")
        await term.reconciler.turn()
        here.fake.restore(backup)
        here.editor.change([WantedObject(ENDPOINT, endpoint_name(1))], who="alice")
        await term.reconciler.turn()  # before anybody has judged the store
        assert endpoint_key(1) in here.stored(), "nothing is written to a store that has not been judged"
        await term.check_identity()
        await term.reconciler.turn()
        return term

    term = asyncio.run(scenario())
    assert term.identity_gate.verdict.closed is FleetIdentityReason.STORE_RESTORED
    assert endpoint_key(5) in here.stored(), "refilled at once"
    assert endpoint_key(1) in here.stored(), "its delete waits"


@fault(
    "C60",
    without="holdfast.server.syncer.adopt:AdoptCommands._check_store",
)
def test_C60_a_restored_store_is_refilled_at_once_and_adopted_only_after_that(here: SyncerHarness) -> None:
    async def scenario() -> None:
        backup = await after(here, range(4))
        here.editor.change([endpoint(n) for n in range(4, 9)], who="alice")
        await here.settled()
        here.editor.change([endpoint(9)], who="alice")
        await here.settled()
        here.fake.restore(backup)
        term = await here.lead()
        await term.check_identity()
        with pytest.raises(Declined, match="still being refilled"):
            await AdoptCommands(term).answer(Request("adopt", {"side": "store", "reason": "drill"}), OPERATOR)
        await term.reconciler.turn()
        assert live(here) <= set(here.stored())
        assert (await adopted(term, side="store"))["error"] == ""

    asyncio.run(scenario())
    assert live(here) <= set(here.stored())


def test_an_adopted_store_loses_what_was_deleted_since_the_backup(here: SyncerHarness) -> None:
    async def scenario() -> None:
        backup = await after(here, range(8))
        here.editor.change([WantedObject(ENDPOINT, endpoint_name(0))], who="alice")
        term = await here.settled()
        here.editor.change([endpoint(9)], who="alice")
        await term.reconciler.turn()
        here.editor.change([endpoint(10)], who="alice")
        await term.reconciler.turn()
        here.fake.restore(backup)
        term = await turned(here)
        assert endpoint_key(0) in here.stored()
        assert (await adopted(term, side="store"))["error"] == ""
        await turned(here)

    asyncio.run(scenario())
    assert here.stored() == here.wanted()


async def preview(term: SyncerTerm) -> str:
    answer = await AdoptCommands(term).answer(Request("adopt", {"side": "store", "preview": True}), OPERATOR)
    return str(answer["reports"])


def test_a_store_that_no_daemon_calls_restored_is_not_adopted(here: SyncerHarness) -> None:
    async def scenario() -> None:
        await after(here, range(4))
        term = await turned(here)
        well = AgentReport(version="1", boot_id="b")
        await here.operator.put(AGENT_REPORT.key(REGION, "r1"), AGENT_REPORT.encode(well))
        await here.operator.put(AGENT_REPORT.key(REGION, "r2"), b"{")
        for args in ({"reason": "drill"}, {"preview": True}):
            with pytest.raises(Declined, match=r"nothing to adopt: .* no agent or balancer reports store_restored"):
                await AdoptCommands(term).answer(Request("adopt", {"side": "store", **args}), OPERATOR)

    asyncio.run(scenario())


def test_a_restore_that_only_agents_and_balancers_noticed_is_ended_by_adopting_the_store(here: SyncerHarness) -> None:
    async def scenario() -> tuple[str, int, int]:
        await after(here, range(4))
        term = await turned(here)
        for name in ("r1", "r2", "r3", "r4"):
            noticed = AgentReport(version="1", boot_id="b", store_verdict="store_restored")
            await here.operator.put(AGENT_REPORT.key(REGION, name), AGENT_REPORT.encode(noticed))
        balancer = BalancerReport(
            version="1", table="t", configuration="c", health="h", intents="i", store_verdict="store_restored"
        )
        await here.operator.put(BALANCER_REPORT.key(REGION, "lb1"), BALANCER_REPORT.encode(balancer))
        shown = await preview(term)
        assert (await adopted(term, side="store"))["error"] == ""
        return shown, term.fence.epoch, (await turned(here)).fence.epoch

    shown, before, later = asyncio.run(scenario())
    assert shown == "4 agents (r1, r2, r3, …) and 1 balancer (lb1) report store_restored"
    assert later == before + 1
    assert here.stored() == here.wanted()


@fault(
    "C66",
    without="holdfast.server.syncer.adopt:AdoptCommands._adopt_store",
    by="tests.server.syncer.without_protection:verdict_ends_first",
)
def test_C66_a_leader_killed_in_the_middle_of_adopt_leaves_the_verdict_standing(
    here: SyncerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_fence: Fence) -> None:
        raise DatabaseAway("killed")

    async def scenario() -> tuple[object, object]:
        backup = await after(here, range(4))
        here.editor.change([endpoint(5)], who="alice")
        await here.settled()
        known = remember(await read_identity(here.operator, REGION))
        here.fake.restore(backup)
        here.seen_store = known
        term = await turned(here)
        here.seen_store = None  # the next leader is a server that was never here
        with monkeypatch.context() as patch:
            patch.setattr(here.inventory, "raise_fence", killed)
            assert "the verdict stands" in (await adopted(term, side="store"))["error"]
        term = await turned(here)
        standing = term.identity_gate.verdict.closed
        assert (await adopted(term, side="store"))["error"] == ""
        return standing, (await turned(here)).identity_gate.verdict.closed

    assert asyncio.run(scenario()) == (FleetIdentityReason.STORE_RESTORED, None)
    assert here.stored() == here.wanted()


@fault(
    "C67",
    without="holdfast.server.identity.verdict:store_went_back",
    by="tests.server.syncer.without_protection:every_mark_counts",
)
def test_C67_a_mark_that_never_reached_the_store_is_no_evidence(here: SyncerHarness) -> None:
    async def scenario() -> object:
        await after(here, range(4))
        term = await here.settled()
        here.inventory.mark(term.fence, (await read_identity(here.operator, REGION)).mark_number)
        return (await turned(here)).identity_gate.verdict.closed

    assert asyncio.run(scenario()) is None


@fault("C40", without="holdfast.server.identity.verdict:inventory_went_back", returns="")
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


@fault("C40", without="holdfast.server.syncer.outbox:Outbox.forget")
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


@pytest.mark.parametrize("keep", ["inventory", "store"])
def test_a_restored_inventory_is_adopted_one_way_or_the_other(here: SyncerHarness, tmp_path: Path, keep: str) -> None:
    async def scenario() -> dict[str, Any]:
        here.editor.change([host(1), host(2), *map(endpoint, range(10))], who="alice")
        term = await here.settled()
        backup = Backup(here, tmp_path)
        here.editor.change([endpoint(n) for n in range(10, 20)], who="alice")
        here.editor.move(endpoint_name(1), "r2", who="alice")
        await term.reconciler.turn()
        backup.restore()
        term = await turned(here)
        if keep == "store":
            assert "still differ" in (await adopted(term, side="inventory", keep=keep))["error"]
            here.editor.change([endpoint(n) for n in range(10, 20)], who="bob")
            here.editor.move(endpoint_name(1), "r2", who="bob")
        result = await adopted(term, side="inventory", keep=keep)
        assert (await turned(here)).identity_gate.verdict.closed is None
        return result

    assert asyncio.run(scenario())["error"] == ""
    assert set(here.stored()) == set(here.wanted())
    assert len(here.wanted()) == (22 if keep == "store" else 12)


@fault(
    "C40",
    without="holdfast.server.syncer.adopt:record_allow",
    by="tests.server.syncer.without_protection:no_allowance",
)
def test_C40_agents_need_no_second_consent_for_what_an_adoption_deletes(here: SyncerHarness, tmp_path: Path) -> None:
    async def scenario() -> dict[str, Any]:
        here.editor.change([host(1), *map(endpoint, range(10))], who="alice")
        term = await here.settled()
        backup = Backup(here, tmp_path)
        here.editor.change([endpoint(n) for n in range(10, 50)], who="alice")
        await term.reconciler.turn()
        backup.restore()
        return await adopted(await turned(here), side="inventory", keep="inventory")

    assert asyncio.run(scenario())["error"] == ""
    assert set(here.stored()) == set(here.wanted())
    (entry,) = here.entries(INTENT.prefix(REGION))
    allowance = INTENT.decode(entry.key, entry.value)
    assert isinstance(allowance, Intent)
    assert (allowance.who, allowance.why) == ("ops", "drill")
    assert allowance.revision >= max(one.mod_revision for one in here.entries(b"/calico/"))


@fault("C70", without="holdfast.server.identity.verdict:inventory_went_back", returns="")
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


@fault(
    "C41",
    without="holdfast.server.identity.judge:IdentityJudge._is_empty",
    by="tests.server.syncer.without_protection:always_empty",
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


@fault(
    "C62",
    without="holdfast.server.identity.judge:IdentityJudge.read",
    by="tests.server.syncer.without_protection:store_first",
)
def test_C62_a_database_that_stands_still_makes_nothing_look_restored(here: SyncerHarness) -> None:
    async def scenario() -> object:
        await after(here, range(4))
        term = await here.settled()

        async def frozen(call: Any) -> Any:
            """Answers seconds later: meanwhile this server has seen newer revisions and marks of the store."""
            answer = call()
            here.editor.change([endpoint(50 + here.inventory.revision())], who="alice")
            marked = here.inventory.mark(term.fence, (await read_identity(here.operator, REGION)).mark_number)
            await term.fenced.put(
                b"/holdfast/v1/no-region/mark", b'{"number":%d,"nonce":"%s"}' % (marked.number, marked.nonce.encode())
            )
            here.seen_store = remember(await read_identity(here.operator, REGION))
            return answer

        term.syncer._judge.run_in_thread = frozen
        await term.check_identity()
        return term.identity_gate.verdict.closed

    assert asyncio.run(scenario()) is None


def test_an_unreachable_database_gives_no_verdict(here: SyncerHarness) -> None:
    async def scenario() -> object:
        term = await here.settled()

        async def away(_call: Any) -> Any:
            raise Away("database", "connection refused")

        term.syncer._judge.run_in_thread = away  # type: ignore[assignment]
        with pytest.raises(Away):
            await term.check_identity()
        return term.identity_gate.verdict.closed

    assert asyncio.run(scenario()) is None


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


@fault("C40", without="holdfast.server.identity.gate:FleetIdentityGate.judge")
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


def test_a_store_restored_to_between_a_mark_and_its_writes_is_noticed_by_its_leader(here: SyncerHarness) -> None:
    async def scenario() -> SyncerTerm:
        await after(here, range(4))
        term = await here.settled()
        here.editor.change([endpoint(5)], who="alice")
        await term.reconciler.turn()
        here.fake.restore(here.fake.revision - 1)
        assert endpoint_key(5) not in here.stored()
        await term.check_identity()
        await term.reconciler.turn()
        return term

    term = asyncio.run(scenario())
    assert term.identity_gate.verdict.closed is FleetIdentityReason.STORE_RESTORED
    assert endpoint_key(5) in here.stored()


@pytest.mark.parametrize("next_leader", [False, True])
def test_C43_a_restore_to_before_the_last_batch_is_noticed_when_the_store_has_outgrown_it(
    here: SyncerHarness, next_leader: bool
) -> None:
    async def scenario() -> SyncerTerm:
        await after(here, range(4))
        term = await here.settled()
        backup = here.fake.revision
        here.editor.change([endpoint(5)], who="alice")
        await term.reconciler.turn()
        here.fake.restore(backup)
        for _ in range(20):
            await here.operator.put(b"/other/time-passes", b"")
        if next_leader:
            return await turned(here)
        await term.check_identity()
        await term.reconciler.turn()
        return term

    term = asyncio.run(scenario())
    assert term.identity_gate.verdict.closed is FleetIdentityReason.STORE_RESTORED
    assert endpoint_key(5) in here.stored()


def test_a_second_restore_under_the_verdict_is_refilled_at_once(here: SyncerHarness) -> None:
    async def scenario() -> SyncerTerm:
        backup = await after(here, range(4))
        term = await here.settled()
        backup = here.fake.revision
        for number in (5, 6):
            here.editor.change([endpoint(number)], who="alice")
            await term.reconciler.turn()
        for _ in range(2):
            here.fake.restore(backup)
            await term.check_identity()
            assert not term.is_filled
            await term.reconciler.turn()
        return term

    term = asyncio.run(scenario())
    assert term.is_filled
    assert live(here) <= set(here.stored())


def test_an_adoption_whose_term_ends_can_be_repeated(here: SyncerHarness) -> None:
    async def scenario() -> str:
        backup = await after(here, range(4))
        for number in (5, 6):
            here.editor.change([endpoint(number)], who="alice")
            await here.settled()
        here.fake.restore(backup)
        term = await turned(here)
        await AdoptCommands(term).answer(Request("adopt", {"side": "store", "reason": "drill"}), OPERATOR)
        await asyncio.sleep(0)
        for task in list(term._background):
            task.cancel()
        await asyncio.sleep(0)
        error = str(term.syncer.adoption["error"])
        assert (await adopted(term, side="store"))["error"] == ""
        return error

    assert "repeat it" in asyncio.run(scenario())


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


def test_with_both_sides_restored_the_stores_verdict_follows_the_inventorys(
    here: SyncerHarness, tmp_path: Path
) -> None:
    async def scenario() -> list[object]:
        here.editor.change([host(1), host(2), *map(endpoint, range(5))], who="alice")
        term = await here.settled()
        dump = Backup(here, tmp_path)
        here.editor.change([endpoint(6)], who="alice")
        await term.reconciler.turn()
        snapshot = here.fake.revision
        for number in (7, 8):
            here.editor.change([endpoint(number)], who="alice")
            await term.reconciler.turn()
        here.fake.restore(snapshot)
        closed: list[object] = [(await turned(here)).identity_gate.verdict.closed]
        dump.restore()
        term = await turned(here)
        closed.append(term.identity_gate.verdict.closed)
        assert (await adopted(term, side="inventory", keep="inventory"))["error"] == ""
        term = await turned(here)
        closed.append(term.identity_gate.verdict.closed)
        assert (await adopted(term, side="store"))["error"] == ""
        return [*closed, (await turned(here)).identity_gate.verdict.closed]

    store, inventory = FleetIdentityReason.STORE_RESTORED, FleetIdentityReason.INVENTORY_RESTORED
    assert asyncio.run(scenario()) == [store, inventory, store, None]
    assert here.stored() == here.wanted()


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
