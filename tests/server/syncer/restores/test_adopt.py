"""Adoption of a store or an inventory: what it waits for, what it deletes, and how it survives an interruption."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.inventory.api import DatabaseAway, Fence
from holdfast.inventory.changes import WantedObject
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.control.intent import INTENT, Intent, IntentKind
from holdfast.model.fleet.agent_report import AGENT_REPORT, AgentReport
from holdfast.model.fleet.balancer_report import BALANCER_REPORT, BalancerReport
from holdfast.runtime.control import Declined, Request
from holdfast.server.identity.verdict import FleetIdentityReason
from holdfast.server.syncer.adopt import AdoptCommands
from holdfast.server.syncer.term import SyncerTerm
from holdfast.store.identity import read_identity, remember
from holdfast.testing.fault import fault
from tests.inventory.harness import REGION, endpoint, endpoint_key, endpoint_name, host
from tests.server.harness import SyncerHarness
from tests.server.syncer.restores.harness import OPERATOR, Backup, adopted, after, live, turned


@fault(
    "C60",
    without="holdfast.server.syncer.adopt:AdoptCommands._check_store",
    sees=(pytest.fail.Exception, "DID NOT RAISE Declined"),
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
    sees=(AssertionError, r"asyncio.run\(scenario\(\)\) == \(FleetIdentityReason.STORE_RESTORED"),
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
    sees=(ValueError, r"\(allowed,\) = \[one for one in stored if isinstance\(one, Intent\)"),
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
    stored = [INTENT.decode(entry.key, entry.value) for entry in here.entries(INTENT.prefix(REGION))]
    (allowed,) = [one for one in stored if isinstance(one, Intent) and one.what is IntentKind.ALLOW]
    assert (allowed.who, allowed.why) == ("ops", "drill")
    assert allowed.revision >= max(one.mod_revision for one in here.entries(b"/calico/"))


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
