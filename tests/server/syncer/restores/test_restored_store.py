"""A store that was restored from a backup is noticed and refilled; a database that stands still is no restore."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.inventory.changes import WantedObject
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.control.leader import LEADER
from holdfast.reconcile import Away
from holdfast.server.identity.verdict import FleetIdentityReason
from holdfast.server.syncer.term import SyncerTerm
from holdfast.store.api import Deposed
from holdfast.store.identity import read_identity, remember
from holdfast.testing.fault import fault
from tests.inventory.harness import REGION, endpoint, endpoint_key, endpoint_name
from tests.server.harness import SyncerHarness
from tests.server.syncer.restores.harness import adopted, after, live, turned


@fault(
    "C42",
    without="holdfast.server.identity.verdict:fence_is_ahead",
    returns=False,
    sees=(Deposed, r"term \d+ is over: the inventory has a later one; nothing was"),
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


@fault(
    "C42",
    without="holdfast.server.syncer.term:SyncerTerm._write_mark",
    by="tests.server.syncer.without_protection:no_mark",
    sees=(AssertionError, r"here.stored\(\) == before"),
)
def test_C42_an_old_leader_writes_nothing_in_a_term_that_has_its_number_again(here: SyncerHarness) -> None:
    """Its lease is not over yet, and the term's comparison holds; the mark's does not."""

    async def scenario() -> tuple[dict[bytes, bytes], SyncerTerm]:
        backup = await after(here, range(4))
        old = await here.settled()
        here.editor.change([endpoint(5)], who="alice")
        await old.reconciler.turn()
        here.editor.change([endpoint(6)], who="alice")
        await old.reconciler.turn()
        here.fake.restore(backup)
        while here.fake.revision < old.fence.term - 2:
            await here.operator.put(b"/other/time-passes", b"")
        before = here.stored()
        leader = LEADER.key(REGION, "leader")
        await here.operator.delete(leader)
        assert await here.operator.put(leader, b"{}") == old.fence.term
        here.editor.change([endpoint(7)], who="alice")
        here.editor.change([WantedObject(ENDPOINT, endpoint_name(0))], who="alice")
        await old.reconciler.turn()
        assert here.stored() == before
        return before, await turned(here)

    before, term = asyncio.run(scenario())
    assert term.identity_gate.verdict.closed is FleetIdentityReason.STORE_RESTORED
    assert set(before) | live(here) <= set(here.stored()), "refilled, and the delete is held"


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
    sees=(AssertionError, r"endpoint_key\(1\) in here.stored\(\)"),
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
    "C67",
    without="holdfast.server.identity.verdict:store_went_back",
    by="tests.server.syncer.without_protection:every_mark_counts",
    sees=(AssertionError, r"asyncio.run\(scenario\(\)\) is None"),
)
def test_C67_a_mark_that_never_reached_the_store_is_no_evidence(here: SyncerHarness) -> None:
    async def scenario() -> object:
        await after(here, range(4))
        term = await here.settled()
        here.inventory.mark(term.fence, (await read_identity(here.operator, REGION)).mark_number)
        return (await turned(here)).identity_gate.verdict.closed

    assert asyncio.run(scenario()) is None


@fault(
    "C62",
    without="holdfast.server.identity.judge:IdentityJudge.read",
    by="tests.server.syncer.without_protection:store_first",
    sees=(AssertionError, "term.identity_gate.verdict.closed is None"),
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
