"""Operator intents for the syncer are stored in etcd: a pause and a timed allowance survive a takeover."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.inventory.changes import WantedObject
from holdfast.model.base.time import seconds
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.control.intent import INTENT, Intent, IntentKind, IntentName
from holdfast.model.control.scope import FLEET, Scope
from holdfast.reconcile import Away
from holdfast.runtime.control import Declined, Request, Who
from holdfast.runtime.intents.commands import IntentCommands, PauseCommands
from holdfast.runtime.intents.etcd import SYNCER, EtcdIntents, server_intents
from holdfast.server.syncer.allow import AllowCommands
from holdfast.server.syncer.term import SyncerTerm
from holdfast.store.identity import read_identity, remember
from holdfast.testing.store.link import Fate
from tests.inventory.harness import REGION, endpoint, endpoint_name
from tests.server.harness import SyncerHarness, at_once, syncer_harness

ALICE = Who(1000, 1, "alice")
PAUSE, ALLOW = IntentName(IntentKind.PAUSE, SYNCER), IntentName(IntentKind.ALLOW, SYNCER)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[SyncerHarness]:
    with syncer_harness(tmp_path) as made:
        yield made


async def say(
    term: SyncerTerm,
    what: str,
    reason: str = "",
    *,
    within: str | None = None,
    leads: bool = True,
    scope: Scope = SYNCER,
) -> str:
    """A command to the server of this term, or to another one."""
    args = {"reason": reason, **({"for": within} if within else {})}
    syncer, context = term.syncer, term.syncer.context
    here = syncer.intents if leads else another_server(term)
    pausing = PauseCommands(here, scope, context, term.applied.apply if leads else None)
    return str(await pausing.handlers()[what](Request(what, args), ALICE))


def another_server(term: SyncerTerm) -> EtcdIntents:
    folder, syncer = Path(mkdtemp()), term.syncer
    return server_intents(syncer.store, syncer.region, syncer.context.clock, folder, SYNCER, None, at_once)


async def allow(term: SyncerTerm, **args: str) -> str:
    async def once(_request: Request, _who: Who) -> str:
        raise AssertionError("asked for a time, not for once")

    return str(await AllowCommands(term, once).answer(Request("allow", args), ALICE))


def gone(*numbers: int) -> list[WantedObject]:
    return [WantedObject(ENDPOINT, endpoint_name(number)) for number in numbers]


def recorded(here: SyncerHarness) -> Intent:
    (entry,) = here.entries(INTENT.key(REGION, ALLOW))
    found = INTENT.decode(entry.key, entry.value)
    assert isinstance(found, Intent)
    return found


def test_a_pause_holds_the_next_leader_before_its_first_write(here: SyncerHarness) -> None:
    async def scenario() -> tuple[str, str]:
        term = await here.settled()
        said = await say(term, "pause", "migration")
        here.editor.change([endpoint(1)], who="bob")
        after = await here.lead()
        await after.reconciler.turn()
        return said, after.syncer.context.vitals.state

    said, state = asyncio.run(scenario())
    assert said == "worker syncer is paused; end it with: holdfast resume worker syncer"
    assert (state, here.stored()) == ("held: intent", {})
    assert here.inventory.waiting() == 1, "nothing is forgotten"


def test_a_pause_is_said_at_any_server_and_ended_at_any_other(here: SyncerHarness) -> None:
    async def scenario() -> tuple[str, bool, str]:
        term = await here.settled()
        said = await say(term, "pause", "migration", leads=False)
        await term.apply_intents()
        paused = term.pause.pauses != ()
        here.editor.change([endpoint(1)], who="bob")
        await term.reconciler.turn()
        assert here.stored() == {}
        ended = await say(term, "resume")
        await term.reconciler.turn()
        return said, paused, ended

    said, paused, ended = asyncio.run(scenario())
    assert "on the leader, within 2 s" in said
    assert (paused, ended) == (True, "worker syncer goes on")
    assert here.stored() == here.wanted()


def test_nothing_is_written_after_an_outage_before_the_intents_are_read_again(here: SyncerHarness) -> None:
    async def scenario() -> str:
        term = await here.settled()
        await say(term, "pause", "migration", leads=False, scope=FLEET)
        refresh, term.intents.refresh = term.intents.refresh, away  # type: ignore[method-assign]
        with pytest.raises(Away):
            await term.apply_intents()
        here.editor.change([endpoint(1)], who="bob")
        await term.reconciler.turn()
        assert here.stored() == {}, "an operator may have paused it just before"
        term.intents.refresh = refresh  # type: ignore[method-assign]
        await term.apply_intents()
        await term.reconciler.turn()
        return term.syncer.context.vitals.state

    assert asyncio.run(scenario()) == "held: intent"
    assert here.stored() == {}


def test_an_outage_too_short_for_the_next_read_of_the_intents_lets_nothing_through_either(here: SyncerHarness) -> None:
    async def scenario() -> list[str]:
        term = await here.settled()
        await say(term, "pause", "migration", leads=False, scope=FLEET)
        here.editor.change([endpoint(1)], who="bob")
        term.syncer.store.link.next_calls(Fate.REFUSED)  # type: ignore[attr-defined]
        states = []
        for _ in range(2):
            await term.reconciler.turn()
            states.append(term.syncer.context.vitals.state)
        assert here.stored() == {}, "an operator may have paused it just before"
        await term.apply_intents()
        await term.reconciler.turn()
        return [*states, term.syncer.context.vitals.state]

    assert asyncio.run(scenario()) == ["waiting: store", "held: intent", "held: intent"]
    assert here.stored() == {}


async def away() -> None:
    raise Away("store", "no member answers")


def test_a_pause_that_holds_nothing_is_not_forgotten_either(here: SyncerHarness) -> None:
    async def scenario() -> tuple[str, str]:
        term = await here.settled()
        await say(term, "pause", "migration", within="30m")
        await term.reconciler.turn()
        paused = term.syncer.context.vitals.state
        here.clock.advance(seconds(1_801))
        await term.reconciler.turn()
        return paused, term.syncer.context.vitals.state

    assert asyncio.run(scenario()) == ("paused", "ok")


def test_a_pause_runs_out_by_itself(here: SyncerHarness) -> None:
    async def scenario() -> None:
        term = await here.settled()
        await say(term, "pause", "migration", within="30m")
        here.editor.change([endpoint(1)], who="bob")
        await term.reconciler.turn()
        assert here.stored() == {}
        here.clock.advance(seconds(1_801))
        await term.reconciler.turn()

    asyncio.run(scenario())
    assert here.stored() == here.wanted()


def test_a_pause_that_cannot_be_read_is_a_pause(here: SyncerHarness) -> None:
    async def scenario() -> str:
        await here.settled()
        await here.operator.put(INTENT.key(REGION, PAUSE), b"\xff")
        here.editor.change([endpoint(1)], who="bob")
        term = await here.lead()
        await term.reconciler.turn()
        return term.syncer.context.vitals.state

    assert asyncio.run(scenario()) == "held: intent"


def test_what_is_not_paused_cannot_be_resumed(here: SyncerHarness) -> None:
    async def scenario() -> None:
        await say(await here.settled(), "resume")

    with pytest.raises(Declined, match="syncer is not paused"):
        asyncio.run(scenario())


def test_without_the_store_a_pause_is_declined_in_one_sentence(here: SyncerHarness) -> None:
    async def scenario() -> None:
        term = await here.settled()
        term.syncer.store.link.cut()  # type: ignore[attr-defined]
        await say(term, "pause", "migration")

    with pytest.raises(Declined, match="not done, because the store cannot be read: store is unreachable"):
        asyncio.run(scenario())


def test_a_pause_whose_write_was_not_answered_is_not_called_undone(here: SyncerHarness) -> None:
    async def scenario() -> None:
        term = await here.settled()
        link = term.syncer.store.link  # type: ignore[attr-defined]
        link.next_calls(Fate.ANSWERED, count=2, of="txn")  # intents and identity are read before it
        link.next_calls(Fate.REPLY_LOST, of="txn")
        try:
            await say(term, "pause", "migration")
        finally:
            await term.syncer.intents.refresh()
            assert [one.why for one in term.syncer.intents.all()] == ["migration"]

    with pytest.raises(Declined, match=r"it is not known whether it was stored .*: see holdfast get intents"):
        asyncio.run(scenario())


def test_an_allowance_for_a_time_covers_what_comes_in_that_time_and_no_more(here: SyncerHarness) -> None:
    async def scenario() -> str:
        here.editor.change([endpoint(n) for n in range(60)], who="bob")
        term = await here.settled()
        said = await allow(term, reason="rack 12", **{"for": "30m"})
        here.editor.change(gone(*range(40)), who="bob")
        await term.reconciler.turn()
        assert len(here.stored()) == 20
        here.clock.advance(seconds(1_801))
        here.editor.change(gone(*range(40, 60)), who="bob")
        await term.reconciler.turn()
        return said

    assert asyncio.run(scenario()) == "syncer/brake lets everything through until 00:46:40Z"
    assert len(here.stored()) == 20, "held again"


def test_an_allowance_for_a_time_follows_a_takeover(here: SyncerHarness) -> None:
    async def scenario() -> None:
        here.editor.change([endpoint(n) for n in range(40)], who="bob")
        await allow(await here.settled(), reason="rack 12", **{"for": "30m"})
        here.editor.change(gone(*range(40)), who="bob")
        await here.settled()

    asyncio.run(scenario())
    assert here.stored() == {}


def test_agents_honour_an_allowance_for_what_was_deleted_while_it_lasted(here: SyncerHarness) -> None:
    async def scenario() -> int:
        here.editor.change([endpoint(n) for n in range(40)], who="bob")
        term = await here.settled()
        await allow(term, reason="rack 12", **{"for": "30m"})
        before = recorded(here).revision
        here.editor.change(gone(*range(40)), who="bob")
        await term.reconciler.turn()
        await term.intents.extend_allow(term.fenced, term.target.known)
        return before

    before = asyncio.run(scenario())
    last_delete = max(write.revision for write in here.fake.history if any(e.entry is None for e in write.events))
    assert before < last_delete <= recorded(here).revision
    assert recorded(here).covers(last_delete, here.clock.wall())


def test_an_answer_from_before_a_pause_does_not_undo_it(here: SyncerHarness) -> None:
    async def scenario() -> None:
        term = await here.settled()
        words, asked, answered = term.intents, asyncio.Event(), asyncio.Event()
        txn = words._store.txn

        async def late(*args: Any) -> Any:
            found = await txn(*args)
            asked.set()
            await answered.wait()
            return found

        words._store = SimpleNamespace(txn=late, put=words._store.put)
        looking = asyncio.create_task(term.apply_intents())
        await asked.wait()
        await say(term, "pause", "migration", leads=False)
        hearing = asyncio.create_task(term.apply_intents())
        await asyncio.sleep(0)
        answered.set()
        await asyncio.gather(looking, hearing)
        assert term.pause.pauses != ()

    asyncio.run(scenario())


def test_a_pause_that_is_stored_is_accepted_although_it_cannot_be_applied_yet(here: SyncerHarness) -> None:
    async def scenario() -> tuple[str, bool]:
        term = await here.settled()

        intents, reads = another_server(term), 0
        refresh = intents.refresh

        async def away_after_the_first() -> None:
            nonlocal reads
            reads += 1
            if reads > 1:
                raise Away("store", "it went")
            await refresh()

        intents.refresh = away_after_the_first  # type: ignore[method-assign]
        pausing = PauseCommands(intents, SYNCER, term.syncer.context, term.applied.apply)
        said = await pausing.handlers()["pause"](Request("pause", {"reason": "migration"}), ALICE)
        await term.apply_intents()
        return str(said), term.pause.pauses != ()

    said, paused = asyncio.run(scenario())
    assert "on the leader, within 2 s" in said
    assert paused


def test_a_pause_that_ran_out_is_none(here: SyncerHarness) -> None:
    async def scenario() -> None:
        term = await here.settled()
        await say(term, "pause", "migration", within="30m")
        here.clock.advance(seconds(1_801))
        with pytest.raises(Declined, match="is not paused"):
            await say(term, "resume")
        assert here.entries(INTENT.key(REGION, PAUSE)) == []

    asyncio.run(scenario())


def test_a_pause_holds_the_syncer_of_a_store_restored_to_before_it(here: SyncerHarness, tmp_path: Path) -> None:
    async def scenario() -> tuple[str, int]:
        syncer = (before := await here.settled()).syncer
        sides = await syncer.read_sides(before.fence.term)
        term = SyncerTerm(syncer, before.fence, before.identity_gate, sides)
        backup = here.fake.revision
        await say(term, "pause", "migration")
        here.seen_store = remember(await read_identity(here.operator, REGION))
        here.fake.restore(backup)
        here.editor.change([endpoint(1)], who="bob")
        await term.apply_intents()
        await term.reconciler.turn()
        return syncer.context.vitals.state, len(here.stored())

    assert asyncio.run(scenario()) == ("held: intent", 0)


def test_a_pause_of_the_fleet_holds_the_syncer_and_outlives_a_takeover(here: SyncerHarness) -> None:
    async def scenario() -> None:
        term = await here.settled()
        said = await say(term, "pause", "moving racks", within="2h", scope=FLEET)
        assert said == "fleet is paused until 02:16:40Z; end it with: holdfast resume fleet"
        here.editor.change([endpoint(1)], who="bob")
        after = await here.lead()
        await after.reconciler.turn()
        assert here.stored() == {}
        (held,) = after.reconciler.outstanding()
        assert (held.gate, held.opens) == ("intent", "holdfast resume fleet, or the end of the pause")
        assert held.reason == "alice until 02:16:40Z: “moving racks”: an operator paused it"
        await say(after, "resume", scope=FLEET)
        await after.reconciler.turn()

    asyncio.run(scenario())
    assert here.stored() == here.wanted()
    about_it = [one for one in here.decisions() if " fleet: " in one]
    assert sorted(about_it) == [
        "pause fleet: asked",
        "pause fleet: set",
        "pause fleet: withdrawn",
        "resume fleet: asked",
    ]


def test_the_pauses_of_fleet_and_worker_end_one_by_one(here: SyncerHarness) -> None:
    async def scenario() -> list[str]:
        term = await here.settled()
        await say(term, "pause", "racks", scope=FLEET)
        await say(term, "pause", "database")
        here.editor.change([endpoint(1)], who="bob")
        states = []
        for scope in (FLEET, SYNCER):
            await say(term, "resume", scope=scope)
            await term.reconciler.turn()
            states.append(term.syncer.context.vitals.state)
        return states

    assert asyncio.run(scenario()) == ["held: intent", "ok"]


async def revoke(term: SyncerTerm) -> str:
    context, syncer = term.syncer.context, term.syncer
    commands = IntentCommands(context, term.reconciler, term.applied, term.sync, SYNCER, syncer.intents)
    return str(await commands.handlers()["revoke"](Request("revoke", {}), ALICE))


def test_an_allow_for_a_time_is_taken_back(here: SyncerHarness) -> None:
    async def scenario() -> str:
        here.editor.change([endpoint(n) for n in range(60)], who="bob")
        term = await here.settled()
        await allow(term, reason="rack 12", **{"for": "30m"})
        said = await revoke(term)
        assert here.entries(INTENT.key(REGION, ALLOW)) == []
        here.editor.change(gone(*range(40)), who="bob")
        await term.reconciler.turn()
        return said

    assert asyncio.run(scenario()) == "syncer/brake holds mass deletes again"
    assert len(here.stored()) == 60


def test_an_allow_for_once_that_is_not_used_yet_is_taken_back(here: SyncerHarness) -> None:
    async def scenario() -> None:
        here.editor.change([endpoint(n) for n in range(60)], who="bob")
        term = await here.settled()
        here.editor.change(gone(*range(40)), who="bob")
        await term.reconciler.turn()
        assert term.reconciler.place.brake is not None
        assert term.reconciler.place.brake.allow() == 40
        await revoke(term)
        await here.compared(term)

    asyncio.run(scenario())
    assert len(here.stored()) == 60


def test_what_was_not_allowed_cannot_be_taken_back(here: SyncerHarness) -> None:
    async def scenario() -> None:
        await revoke(await here.settled())

    with pytest.raises(Declined, match="nothing is allowed at syncer/brake"):
        asyncio.run(scenario())


def test_an_allow_that_was_taken_back_does_not_come_back_with_an_extension(here: SyncerHarness) -> None:
    async def scenario() -> None:
        here.editor.change([endpoint(n) for n in range(60)], who="bob")
        term = await here.settled()
        await allow(term, reason="rack 12", **{"for": "30m"})
        await here.operator.delete(INTENT.key(REGION, ALLOW))
        await term.intents.extend_allow(term.fenced, 10**6)
        assert here.entries(INTENT.key(REGION, ALLOW)) == []

    asyncio.run(scenario())
