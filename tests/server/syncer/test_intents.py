"""Operator intents for the syncer are stored in etcd: a pause and a timed allowance survive a takeover."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.inventory.changes import WantedObject
from holdfast.model.base.time import seconds
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.control.allowance import ALLOWANCE, Allowance
from holdfast.model.control.intent import INTENT
from holdfast.reconcile import Away
from holdfast.runtime.control import Declined, Request, Who
from holdfast.server.intents.pause import PauseCommands
from holdfast.server.intents.pause_memory import PauseMemory
from holdfast.server.intents.store import BRAKE, PAUSE, SYNCER, EtcdIntents
from holdfast.server.syncer.allow import AllowCommands
from holdfast.server.syncer.term import SyncerTerm
from holdfast.store.identity import read_identity, remember
from tests.inventory.harness import REGION, endpoint, endpoint_name
from tests.server.harness import SyncerHarness, at_once, syncer_harness

ALICE = Who(1000, 1, "alice")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[SyncerHarness]:
    with syncer_harness(tmp_path) as made:
        yield made


async def say(term: SyncerTerm, what: str, reason: str = "", *, within: str | None = None, leads: bool = True) -> str:
    """A command to the server of this term, or to another one."""
    args = {"reason": reason, **({"for": within} if within else {})}
    syncer, context = term.syncer, term.syncer.context
    intents = EtcdIntents(syncer.store, syncer.region, context.clock)
    apply = term.apply_intents if leads else None
    pausing = PauseCommands(intents, context.clock, context.decisions, apply)
    return str(await pausing.handlers()[what](Request(what, args), ALICE))


async def allow(term: SyncerTerm, **args: str) -> str:
    async def once(_request: Request, _who: Who) -> str:
        raise AssertionError("asked for a time, not for once")

    return str(await AllowCommands(term, once).answer(Request("allow", args), ALICE))


def gone(*numbers: int) -> list[WantedObject]:
    return [WantedObject(ENDPOINT, endpoint_name(number)) for number in numbers]


def recorded(here: SyncerHarness) -> Allowance:
    (entry,) = here.entries(ALLOWANCE.key(REGION, BRAKE))
    found = ALLOWANCE.decode(entry.key, entry.value)
    assert isinstance(found, Allowance)
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
    assert said == "syncer is paused; end it with: holdfast resume syncer"
    assert (state, here.stored()) == ("held: intent", {})
    assert here.inventory.waiting() == 1, "nothing is forgotten"


def test_a_pause_is_said_at_any_server_and_ended_at_any_other(here: SyncerHarness) -> None:
    async def scenario() -> tuple[str, bool, str]:
        term = await here.settled()
        said = await say(term, "pause", "migration", leads=False)
        await term.apply_intents()
        paused = term.pause.pause is not None
        here.editor.change([endpoint(1)], who="bob")
        await term.reconciler.turn()
        assert here.stored() == {}
        ended = await say(term, "resume")
        await term.reconciler.turn()
        return said, paused, ended

    said, paused, ended = asyncio.run(scenario())
    assert "on the leader, within 2 s" in said
    assert (paused, ended) == (True, "syncer goes on")
    assert here.stored() == here.wanted()


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

    with pytest.raises(Declined, match="not done, because it could not be stored: store is unreachable"):
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
        await term.intents.extend_allowance(term.fenced, term.target.known)
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
        assert term.pause.pause is not None

    asyncio.run(scenario())


def test_a_pause_that_is_stored_is_accepted_although_it_cannot_be_applied_yet(here: SyncerHarness) -> None:
    async def scenario() -> tuple[str, bool]:
        term = await here.settled()

        async def away() -> None:
            raise Away("store", "it went")

        intents = EtcdIntents(term.syncer.store, REGION, here.clock)
        pausing = PauseCommands(intents, here.clock, term.syncer.context.decisions, away)
        said = await pausing.handlers()["pause"](Request("pause", {"reason": "migration"}), ALICE)
        await term.apply_intents()
        return str(said), term.pause.pause is not None

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
        syncer.pauses = PauseMemory(tmp_path, SYNCER, lambda: here.seen_store, at_once)
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
