"""Pauses and allowances of a store that was restored, wiped or is being filled (C69)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.base.bad import Bad, BadReason
from holdfast.model.base.time import seconds
from holdfast.model.control.identity import IDENTITY, Identity, LatchedVerdict
from holdfast.model.control.intent import INTENT, Intent, IntentKind, IntentName
from holdfast.model.control.scope import FLEET, Scope
from holdfast.runtime.control import Declined, Request, Who
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.daemon.vitals import Vitals
from holdfast.runtime.decision_log import DecisionLog
from holdfast.runtime.intents.commands import PauseCommands
from holdfast.runtime.intents.etcd import FLEET_PAUSE, SYNCER, EtcdIntents, server_intents, void_allows
from holdfast.runtime.intents.memory import pause_in_force
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.runtime.store_memory import StoreMemory
from holdfast.store.identity import StoreVerdict, identity_key, read_identity, remember
from holdfast.testing import FakeStore
from holdfast.testing.fault import fault
from tests.inventory.harness import REGION
from tests.server.harness import START, HandClock, at_once

ALICE = Who(1000, 1, "alice")
PAUSE, ALLOW = IntentName(IntentKind.PAUSE, SYNCER), IntentName(IntentKind.ALLOW, SYNCER)


def pause_of(fleet: Fleet, server: EtcdIntents, name: IntentName = PAUSE) -> Intent | None:
    """The pause that this server obeys now."""
    wall = fleet.clock.wall()
    return next((one for one in server.all() if one.name == name and one.holds(wall)), None)


def allow_of(fleet: Fleet, server: EtcdIntents) -> Intent | None:
    return pause_of(fleet, server, ALLOW)


class Fleet:
    """One store and the intents of two servers, each with its own state folder."""

    def __init__(self, folder: Path) -> None:
        self.fake = FakeStore(now=lambda: 0.0)
        self.store = self.fake.client("operator")
        self.clock = HandClock()
        self.folder = folder
        self.scope = SYNCER
        self.one, self.other = self.server("one"), self.server("other")

    def server(self, name: str) -> EtcdIntents:
        state = self.folder / name
        state.mkdir(exist_ok=True)
        seen_store = StoreMemory(state, "server").load
        return server_intents(self.fake.client(name), REGION, self.clock, state, SYNCER, seen_store, at_once)

    async def name(self, epoch: int = 1, **more: Any) -> None:
        await self.store.put(identity_key(REGION), IDENTITY.encode(Identity("kelp", epoch, **more)))

    async def see(self) -> None:
        """Both servers remember the store as it is."""
        found = await read_identity(self.store, REGION)
        for name in ("one", "other"):
            StoreMemory(self.folder / name, "server").keep(remember(found))

    async def say(self, intents: EtcdIntents, what: str, **args: str) -> str:
        self.clock.advance(seconds(1))
        decisions = DecisionLog(self.folder / "decisions", "server.syncer")
        context = Context(self.clock, Vitals(self.clock), decisions, WorkerMetrics())
        commands = PauseCommands(intents, self.scope, context, lambda: None)
        return str(await commands.handlers()[what](Request(what, args), ALICE))

    async def paused(self, *, within: str | None = None) -> None:
        """A fleet with a backup from before its pause, and that backup is restored."""
        await self.name()
        backup = self.fake.revision
        await self.say(self.one, "pause", reason="migration", **({"for": within} if within else {}))
        await self.other.refresh()
        await self.see()
        self.fake.restore(backup)

    def stored_pause(self) -> Intent | None:
        entries = self.fake.keys.at(self.fake.revision).range(INTENT.key(REGION, PAUSE), None)
        found = [INTENT.decode(entry.key, entry.value) for entry in entries]
        return found[0] if found and isinstance(found[0], Intent) else None


@fault(
    "C69",
    without="holdfast.runtime.intents.memory:pause_in_force",
    by=f"{__name__}:as_the_store_has_it",
    sees=(AssertionError, "pause is not None"),
)
@pytest.mark.parametrize("scope", [SYNCER, FLEET], ids=str)
def test_C69_a_pause_stays_in_force_when_the_store_is_restored_to_before_it(tmp_path: Path, scope: Scope) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        fleet.scope = scope
        await fleet.paused()
        for server in (fleet.one, fleet.other, fleet.server("one")):
            await server.refresh()
            pause = pause_of(fleet, server, IntentName(IntentKind.PAUSE, scope))
            assert pause is not None, "the pause is gone"
            assert pause.why == "migration"

    asyncio.run(scenario())


def as_the_store_has_it(stored: Intent | Bad | None, _remembered: object, *, in_doubt: bool) -> Intent | Bad | None:
    """The store alone says what is paused, whatever happened to it."""
    return stored


@fault(
    "C69",
    without="holdfast.runtime.intents.etcd:valid_allows",
    by=f"{__name__}:every_allow",
    sees=(AssertionError, r"allow_of\(fleet, fleet.one\) is None"),
)
def test_C69_allowances_that_came_back_with_a_backup_are_void(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        await fleet.name()
        await given(fleet)
        await fleet.one.refresh()
        assert allow_of(fleet, fleet.one) is not None
        backup = fleet.fake.revision
        await fleet.store.delete(INTENT.key(REGION, ALLOW))
        await fleet.see()
        fleet.fake.restore(backup)
        await fleet.one.refresh()
        assert allow_of(fleet, fleet.one) is None, "an old allowance is back"

    asyncio.run(scenario())


def every_allow(found: Iterable[Intent | Bad], _verdict: StoreVerdict) -> list[Intent]:
    return [one for one in found if isinstance(one, Intent) and one.what is IntentKind.ALLOW]


async def given(fleet: Fleet) -> None:
    wall = fleet.clock.wall()
    until = wall + seconds(3_600)
    allow = Intent(what=ALLOW.what, scope=SYNCER, revision=1, who="bob", why="rack 12", since=wall, until=until)
    await fleet.store.put(INTENT.key(REGION, ALLOW), INTENT.encode(allow))


def test_a_remembered_pause_is_put_back_and_outlives_the_verdict(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        await fleet.paused()
        await fleet.one.refresh()
        stored = fleet.stored_pause()
        assert stored is not None
        assert stored.why == "migration"
        await fleet.name(2)
        await fleet.one.refresh()
        assert not fleet.one.in_doubt
        assert pause_of(fleet, fleet.one) is not None
        assert await fleet.say(fleet.one, "resume") == "worker syncer goes on"
        assert fleet.stored_pause() is None

    asyncio.run(scenario())


def test_a_resume_under_the_verdict_ends_the_pause_on_every_server(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        await fleet.paused()
        assert await fleet.say(fleet.other, "resume") == "worker syncer goes on"
        for server in (fleet.one, fleet.other, fleet.server("one")):
            await server.refresh()
            assert pause_of(fleet, server) is None
        await fleet.name(2)
        await fleet.one.refresh()
        assert pause_of(fleet, fleet.one) is None

    asyncio.run(scenario())


def test_a_server_that_remembers_nothing_can_resume_the_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        await fleet.paused()
        third = fleet.server("third")
        await fleet.name(verdict=LatchedVerdict("store_restored", "the store went back", 1))
        assert await fleet.say(third, "resume") == "worker syncer goes on"
        await fleet.one.refresh()
        assert pause_of(fleet, fleet.one) is None

    asyncio.run(scenario())


def test_a_remembered_pause_expires(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        await fleet.paused(within="30m")
        await fleet.one.refresh()
        assert pause_of(fleet, fleet.one) is not None
        fleet.clock.advance(seconds(1_801))
        await fleet.one.refresh()
        assert pause_of(fleet, fleet.one) is None

    asyncio.run(scenario())


def test_a_wiped_store_keeps_the_pause_and_gets_it_back_once_it_has_an_identity(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        await fleet.paused()
        fleet.fake.wipe()
        await fleet.one.refresh()
        assert pause_of(fleet, fleet.one) is not None
        assert fleet.stored_pause() is None, "a store without identity counts as empty, and stays so"
        await fleet.name(2, filling=True)
        await fleet.one.refresh()
        assert fleet.stored_pause() is not None
        await fleet.name(2)
        await fleet.one.refresh()
        assert pause_of(fleet, fleet.one) is not None

    asyncio.run(scenario())


def test_a_resume_of_a_store_that_is_ours_is_not_remembered_as_a_pause(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        await fleet.name()
        backup = fleet.fake.revision
        await fleet.say(fleet.one, "pause", reason="migration")
        await fleet.say(fleet.one, "resume")
        with pytest.raises(Declined, match="syncer is not paused"):
            await fleet.say(fleet.one, "resume")
        await fleet.see()
        fleet.fake.restore(backup)
        await fleet.one.refresh()
        assert (fleet.one.in_doubt, pause_of(fleet, fleet.one)) == (True, None)

    asyncio.run(scenario())


def test_in_doubt_a_memory_that_cannot_be_read_counts_as_a_pause(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        await fleet.paused()
        (tmp_path / "one" / "intents" / "server.syncer.remembered.json").write_text("{")
        await fleet.one.refresh()
        assert pause_of(fleet, fleet.one) is not None
        await fleet.say(fleet.one, "resume")
        assert pause_of(fleet, fleet.one) is None

    asyncio.run(scenario())


def test_a_store_memory_that_cannot_be_read_puts_the_store_in_doubt(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        await fleet.name()
        await given(fleet)
        (tmp_path / "one" / "server.store.json").write_text("{")
        await fleet.one.refresh()
        assert (fleet.one.in_doubt, allow_of(fleet, fleet.one)) == (True, None)

    asyncio.run(scenario())


def test_adopting_a_store_deletes_its_allowances(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        await fleet.name()
        await given(fleet)
        assert (await fleet.store.txn([], [void_allows(REGION)])).results == [1]
        await fleet.one.refresh()
        assert allow_of(fleet, fleet.one) is None

    asyncio.run(scenario())


@pytest.mark.parametrize("in_doubt", [False, True])
def test_of_two_pauses_the_later_request_counts_in_doubt(in_doubt: bool) -> None:
    earlier, later = (
        Intent(what=IntentKind.PAUSE, scope=SYNCER, who="ada", why="w", since=START + seconds(n)) for n in (1, 2)
    )
    bad = Bad(b"key", BadReason.NOT_JSON, "")
    assert pause_in_force(earlier, later, in_doubt=in_doubt) is (later if in_doubt else earlier)
    assert pause_in_force(later, earlier, in_doubt=in_doubt) is later
    assert pause_in_force(None, earlier, in_doubt=in_doubt) is (earlier if in_doubt else None)
    assert pause_in_force(bad, earlier, in_doubt=in_doubt) is bad
    assert pause_in_force(None, bad, in_doubt=in_doubt) is (bad if in_doubt else None)
    assert pause_in_force(None, None, in_doubt=in_doubt) is None


def test_a_server_that_starts_without_the_store_obeys_the_pause_that_it_remembers(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        fleet.scope = FLEET
        await fleet.name()
        await fleet.say(fleet.one, "pause", reason="migration", **{"for": "30m"})
        again = fleet.server("one")
        assert pause_of(fleet, again, FLEET_PAUSE) is not None
        fleet.clock.advance(seconds(1_801))
        assert pause_of(fleet, again, FLEET_PAUSE) is None

    asyncio.run(scenario())


def test_nothing_is_written_into_the_store_of_another_fleet(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        await fleet.name()
        await fleet.see()
        await fleet.store.put(identity_key(REGION), IDENTITY.encode(Identity("other", 1)))
        with pytest.raises(Declined, match="the store belongs to another fleet"):
            await fleet.say(fleet.one, "pause", reason="migration")
        assert fleet.stored_pause() is None

    asyncio.run(scenario())
