"""Inventory to store: what is written, kept and held, and what a concurrent change costs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.inventory.changes import WantedObject, wanted
from holdfast.inventory.sql.schema import IDENTITY, OBJECTS, OUTBOX
from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration, seconds
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.host import HOST, Host, HostSpec
from holdfast.model.control.identity import Identity
from holdfast.model.control.intent import INTENT
from holdfast.reconcile import Change, Outcome
from holdfast.runtime.control import Request, Who
from holdfast.server.identity.verdict import FleetIdentityReason
from holdfast.server.syncer.allow import AllowCommands
from holdfast.server.syncer.target import EtcdTarget
from holdfast.store.api import Deposed, Entry
from holdfast.store.identity import SeenStore, read_identity
from holdfast.testing.fault import fault
from tests.inventory.harness import REGION, endpoint, endpoint_key, endpoint_name, host, subnet
from tests.server.harness import SyncerHarness, syncer_harness


@pytest.fixture
def here(tmp_path: Path) -> Iterator[SyncerHarness]:
    with syncer_harness(tmp_path) as made:
        yield made


def test_everything_in_the_inventory_arrives_and_nothing_else(here: SyncerHarness) -> None:
    here.editor.change([host(1), subnet("red", "10.0.0.0/8"), *map(endpoint, range(50))], who="alice")
    asyncio.run(here.settled())
    assert here.stored() == here.wanted()
    assert len(here.stored()) == 52


def test_what_is_right_is_not_written_again(here: SyncerHarness) -> None:
    async def scenario() -> tuple[int, int]:
        here.editor.change([host(1), *map(endpoint, range(20))], who="alice")
        term = await here.settled()
        before = here.fake.revision
        term.reconciler.dirty.mark_all()
        await term.reconciler.turn()
        return before, here.fake.revision

    before, after = asyncio.run(scenario())
    assert before == after


def test_pages_smaller_than_either_side_come_to_the_same(here: SyncerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    small_pages(monkeypatch, 7)

    async def scenario() -> None:
        here.editor.change([host(1), *map(endpoint, range(40))], who="alice")
        term = await here.settled()
        gone = [WantedObject(ENDPOINT, endpoint_name(n)) for n in (3, 4, 39)]
        here.editor.change([*gone, *(endpoint(n) for n in range(60, 80)), subnet("red", "10.0.0.0/8")], who="alice")
        term.reconciler.dirty.mark_all()
        await term.reconciler.turn()

    asyncio.run(scenario())
    assert here.stored() == here.wanted()


@fault(
    "C19",
    without="holdfast.server.syncer.outbox:Outbox.fetch",
    by="tests.server.syncer.without_protection:nothing_noted",
    sees=(AssertionError, r"here.stored\(\) == here.wanted\(\)"),
)
def test_C19_a_committed_change_reaches_the_store_although_it_was_never_announced(here: SyncerHarness) -> None:
    async def scenario() -> int:
        here.editor.change([host(1), endpoint(1)], who="alice")
        term = await here.settled()
        passes = term.reconciler.passes
        here.editor.change([endpoint(2), WantedObject(ENDPOINT, endpoint_name(1))], who="alice")
        await term.reconciler.turn()
        return term.reconciler.passes - passes

    assert asyncio.run(scenario()) == 0, "found by the outbox, not by a resync"
    assert here.stored() == here.wanted()
    assert here.inventory.waiting() == 0


def test_a_change_stays_in_the_outbox_until_the_store_has_it(here: SyncerHarness) -> None:
    async def scenario() -> list[int]:
        term = await here.settled()
        store = term.syncer.store
        here.editor.change([endpoint(1)], who="alice")
        store.link.cut()  # type: ignore[attr-defined]
        await term.reconciler.turn()
        waiting = [here.inventory.waiting()]
        store.link.heal()  # type: ignore[attr-defined]
        await term.apply_intents()
        await term.reconciler.turn()
        return [*waiting, here.inventory.waiting()]

    assert asyncio.run(scenario()) == [1, 0]
    assert here.stored() == here.wanted()


def test_a_move_is_one_transaction(here: SyncerHarness) -> None:
    async def scenario() -> None:
        here.editor.change([endpoint(1, on="r1")], who="alice")
        term = await here.settled()
        here.editor.change([endpoint(1, on="r2")], who="alice")
        await term.reconciler.turn()

    asyncio.run(scenario())
    last = here.fake.history[-1]
    assert {(event.key, event.entry is None) for event in last.events} == {
        (endpoint_key(1, on="r1"), True),
        (endpoint_key(1, on="r2"), False),
    }


def test_C35_a_store_out_of_space_keeps_both_ends_of_a_move_as_they_are(here: SyncerHarness) -> None:
    async def scenario() -> str:
        here.editor.change([endpoint(1, on="r1"), endpoint(2)], who="alice")
        term = await here.settled()
        before = here.stored()
        here.editor.change([endpoint(1, on="r2"), WantedObject(ENDPOINT, endpoint_name(2))], who="alice")
        here.fake.run_out_of_space()
        await term.reconciler.turn()
        assert here.stored() == before
        here.fake.regain_space()
        here.clock.advance(seconds(1))
        await term.apply_intents()
        await term.reconciler.turn()
        return term.syncer.context.vitals.state

    assert asyncio.run(scenario()) == "ok"
    assert here.stored() == here.wanted()


def test_uid_and_what_we_do_not_know_survive_a_rewrite(here: SyncerHarness) -> None:
    async def scenario() -> dict[str, Any]:
        here.editor.change([endpoint(1)], who="alice")
        term = await here.settled()
        value = json.loads(here.stored()[endpoint_key(1)])
        value["metadata"]["uid"] = "kept"
        value["spec"]["ofTheNextVersion"] = 7
        await here.operator.put(endpoint_key(1), json.dumps(value).encode())
        here.editor.change([endpoint(1, gateway="10.0.0.254")], who="alice")
        await term.reconciler.turn()
        found: dict[str, Any] = json.loads(here.stored()[endpoint_key(1)])
        return found

    found = asyncio.run(scenario())
    assert (found["metadata"]["uid"], found["spec"]["ofTheNextVersion"]) == ("kept", 7)
    assert found["spec"]["ipv4Gateway"] == "10.0.0.254"


def test_a_corrupt_value_is_repaired(here: SyncerHarness) -> None:
    async def scenario() -> None:
        here.editor.change([endpoint(1)], who="alice")
        term = await here.settled()
        await here.operator.put(endpoint_key(1), b"\xff not JSON")
        term.reconciler.dirty.mark_all()
        await term.reconciler.turn()

    asyncio.run(scenario())
    assert here.stored() == here.wanted()


def test_what_is_not_ours_is_never_touched(here: SyncerHarness) -> None:
    strange = ENDPOINT.prefix(REGION) + b"pod-k8s-web-eth0"
    other = HOST.key(REGION, "ams-1")
    theirs = wanted(HOST, Region("ams"), "ams-1", Host.of("ams-1", HostSpec())).thing

    async def scenario() -> None:
        await here.operator.put(other, HOST.encode(theirs))  # type: ignore[arg-type]
        term = await here.settled()
        await here.operator.put(strange, b"{}")
        term.reconciler.dirty.mark_all()
        await term.reconciler.turn()

    asyncio.run(scenario())
    assert set(here.stored()) == {strange, other}


def test_a_region_leaves_the_hosts_of_others_alone(tmp_path: Path) -> None:
    with syncer_harness(tmp_path, Region("ams")) as here:

        async def scenario() -> None:
            await here.operator.put(HOST.key(REGION, "r1"), HOST.encode(host(1).thing))  # type: ignore[arg-type]
            await here.settled()

        asyncio.run(scenario())
        assert set(here.stored()) == {HOST.key(REGION, "r1")}


@fault(
    "C20",
    without="holdfast.server.syncer.target:EtcdTarget._outcome",
    by="tests.server.syncer.without_protection:first_failure_ends_it",
    sees=(AssertionError, r"asyncio.run\(scenario\(\)\) == \(28, 0\)"),
)
def test_C20_one_failing_object_is_named_and_retried_and_aborts_nothing(
    here: SyncerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pages(monkeypatch, 5)
    taken = HOST.key(REGION, "r2")
    foreign = HOST.encode(host(2).thing).replace(b'"name":"r2"', b'"name":"r2","labels":{"holdfast/region":"b"}')  # type: ignore[arg-type]

    async def scenario() -> tuple[int, int]:
        await here.operator.put(taken, foreign)
        here.editor.change([*(host(n) for n in range(1, 9)), *map(endpoint, range(20))], who="alice")
        term = await here.lead()
        await term.check_identity()
        await term.reconciler.turn()
        there = len(here.stored())
        await here.operator.delete(taken)
        here.clock.advance(seconds(60))
        await term.reconciler.turn()
        return there, len(term.reconciler.ledger)

    assert asyncio.run(scenario()) == (28, 0), "all but one in the first pass, that one later"
    assert here.stored() == here.wanted()


@fault(
    "C21",
    without="holdfast.server.syncer.target:unchanged",
    by="tests.server.syncer.without_protection:whatever_it_is_now",
    sees=(AssertionError, "asyncio.run\\(scenario\\(\\)\\) == b'\"newer\"'"),
)
def test_C21_a_key_that_changed_meanwhile_is_compared_again_before_it_is_written(here: SyncerHarness) -> None:
    async def scenario() -> bytes:
        here.editor.change([endpoint(1)], who="alice")
        term = await here.settled()
        here.editor.change([endpoint(1, gateway="10.0.0.254")], who="alice")
        await meanwhile(term.target, lambda: here.operator.put(endpoint_key(1), b'"newer"'))
        await term.reconciler.turn()
        seen = here.stored()[endpoint_key(1)]
        here.clock.advance(seconds(1))
        await term.reconciler.turn()
        return seen

    assert asyncio.run(scenario()) == b'"newer"', "not written over unseen"
    assert here.stored() == here.wanted()


@fault(
    "C36",
    without="holdfast.runtime.reconciler.loop:Reconciler._still_wanted",
    by="tests.server.syncer.without_protection:everything_goes",
    sees=(AssertionError, r"endpoint_key\(3\) not in deleted"),
)
def test_C36_an_object_that_is_wanted_again_since_the_snapshot_is_not_deleted(here: SyncerHarness) -> None:
    async def scenario() -> None:
        here.editor.change([endpoint(n) for n in range(10)], who="alice")
        term = await here.settled()
        here.editor.change([WantedObject(ENDPOINT, endpoint_name(3))], who="alice")
        term.reconciler.dirty.mark_all()
        look_up = term.reconciler.place.look_up
        assert look_up is not None

        async def look_up_and_then(changes: Any) -> None:
            await look_up(changes)
            here.editor.undo(ENDPOINT, endpoint_name(3), who="alice")

        term.reconciler.place.look_up = look_up_and_then
        await term.reconciler.turn()

    asyncio.run(scenario())
    deleted = [event.key for write in here.fake.history for event in write.events if event.entry is None]
    assert endpoint_key(3) not in deleted


def test_C36_the_store_is_pinned_before_the_snapshot_is_opened(here: SyncerHarness) -> None:
    async def scenario() -> None:
        term = await here.settled()
        entries = term.target._entries

        async def entries_and_then(after: bytes | None) -> Any:
            found = await entries(after)
            here.editor.change([endpoint(5)], who="alice")
            with here.engine.begin() as connection:
                connection.execute(OUTBOX.delete())
            return found

        term.target._entries = entries_and_then  # type: ignore[method-assign]
        term.reconciler.dirty.mark_all()
        await term.reconciler.turn()

    asyncio.run(scenario())
    assert set(here.stored()) == {endpoint_key(5)}, "the snapshot is younger than the revision it is compared with"


@fault("C27", without="holdfast.reconcile.brake:Brake.judge", sees=(AssertionError, r"len\(here.stored\(\)\) == 40"))
def test_C27_an_emptied_inventory_deletes_nothing_and_says_how_to_let_it_through(here: SyncerHarness) -> None:
    """Also if an operator has said that nothing of it needs a witness."""

    async def scenario() -> tuple[str, str]:
        here.editor.change([endpoint(n) for n in range(40)], who="alice")
        term = await here.settled()
        with here.engine.begin() as connection:
            connection.execute(OBJECTS.delete())
        assert await here.compared(term) == "held: witness"
        state = await here.allow_unwitnessed(term)
        held = term.reconciler.outstanding()
        return state, held[0].opens if held else ""

    state, opens = asyncio.run(scenario())
    assert len(here.stored()) == 40
    assert (state, opens) == ("held: brake", "holdfast gate allow syncer/brake --once --reason …")


@fault(
    "C27",
    without="holdfast.server.syncer.gates:SyncerBrake.exceeded",
    by="tests.server.syncer.without_protection:large_kinds_only",
    sees=(AssertionError, r"len\(here.stored\(\)\) == 4"),
)
def test_C27_an_emptied_inventory_deletes_not_even_the_last_of_a_few(here: SyncerHarness) -> None:
    async def scenario() -> None:
        here.editor.change([host(1), host(2), subnet("red", "10.0.0.0/8"), endpoint(1)], who="alice")
        term = await here.settled()
        with here.engine.begin() as connection:
            connection.execute(OBJECTS.delete())
        await here.compared(term)
        await here.allow_unwitnessed(term)

    asyncio.run(scenario())
    assert len(here.stored()) == 4


def test_the_last_of_its_kind_goes_when_an_operator_deletes_it(here: SyncerHarness) -> None:
    async def scenario() -> None:
        here.editor.change([endpoint(1)], who="alice")
        term = await here.settled()
        here.editor.change([WantedObject(ENDPOINT, endpoint_name(1))], who="alice")
        term.reconciler.dirty.mark_all()
        await term.reconciler.turn()

    asyncio.run(scenario())
    assert here.stored() == {}


def test_an_operator_lets_the_held_deletes_through(here: SyncerHarness) -> None:
    async def scenario() -> None:
        here.editor.change([endpoint(n) for n in range(40)], who="alice")
        term = await here.settled()
        here.editor.change([WantedObject(ENDPOINT, endpoint_name(n)) for n in range(40)], who="alice")
        await term.reconciler.turn()
        assert len(here.stored()) == 40
        assert here.inventory.waiting() == 40, "what is held stays in the outbox"
        brake = term.reconciler.place.brake
        assert brake is not None
        assert brake.allow() == 40
        term.reconciler.dirty.mark_all()
        await term.reconciler.turn()

    asyncio.run(scenario())
    assert here.stored() == {}
    assert here.inventory.waiting() == 0


def test_a_host_is_evacuated_without_the_brake_taking_it_for_a_loss(here: SyncerHarness) -> None:
    async def scenario() -> str:
        here.editor.change([endpoint(n, on="r1") for n in range(40)], who="alice")
        term = await here.settled()
        here.editor.change([endpoint(n, on="r2") for n in range(40)], who="alice")
        await term.reconciler.turn()
        return term.syncer.context.vitals.state

    assert asyncio.run(scenario()) == "ok"
    assert here.stored() == here.wanted()
    assert here.inventory.waiting() == 0


def test_what_an_operator_let_through_is_recorded_for_the_agents(here: SyncerHarness) -> None:
    async def scenario() -> tuple[str, int]:
        here.editor.change([endpoint(n) for n in range(40)], who="alice")
        term = await here.settled()
        here.editor.change([WantedObject(ENDPOINT, endpoint_name(n)) for n in range(40)], who="alice")
        await term.reconciler.turn()

        async def allow(_request: Request, _who: Who) -> str:
            assert term.reconciler.place.brake is not None
            count = term.reconciler.place.brake.allow()
            term.reconciler.dirty.mark_all()
            await term.reconciler.turn()
            return f"{count} go"

        said = await AllowCommands(term, allow).answer(Request("allow", {"reason": "rack 12"}), Who(0, 0, "alice"))
        async with asyncio.timeout(30):
            while not here.entries(INTENT.prefix(REGION)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return said, max(write.revision for write in here.fake.history if any(e.entry is None for e in write.events))

    said, last_delete = asyncio.run(scenario())
    (entry,) = here.entries(INTENT.prefix(REGION))
    allowance = INTENT.decode(entry.key, entry.value)
    assert not isinstance(allowance, Bad)
    assert (allowance.who, allowance.why, allowance.until) == ("alice", "rack 12", None)
    assert last_delete <= allowance.revision < entry.mod_revision
    assert said == "40 go"


@fault(
    "C27",
    without="holdfast.server.identity.gate:FleetIdentityGate.judge",
    sees=(AssertionError, r"asyncio.run\(scenario\(\)\) == here.stored\(\)"),
)
def test_C27_a_wrong_database_writes_nothing_at_all(here: SyncerHarness) -> None:
    async def scenario() -> dict[bytes, bytes]:
        here.editor.change([endpoint(n) for n in range(3)], who="alice")
        await here.settled()
        before = here.stored()
        with here.engine.begin() as connection:
            connection.execute(OBJECTS.delete())
            connection.execute(IDENTITY.delete())
        here.editor.change([endpoint(9, address="10.9.9.9")], who="alice")
        term = await here.lead()
        await term.reconciler.turn()
        return before

    assert asyncio.run(scenario()) == here.stored()


def test_both_sides_without_an_id_get_one_before_the_store_is_filled(here: SyncerHarness) -> None:
    async def scenario() -> tuple[object, str | None]:
        here.editor.change([endpoint(1)], who="alice")
        term = await here.lead()
        assert term.identity_gate.verdict.closed is FleetIdentityReason.UNKNOWN
        await term.check_identity()
        assert (await read_identity(here.operator, REGION)).identity == Identity(
            here.inventory.fleet() or "", 1, filling=True
        )
        assert here.stored() == {}
        await term.reconciler.turn()
        await term.check_identity()
        return (await read_identity(here.operator, REGION)).identity, here.inventory.fleet()

    identity, fleet = asyncio.run(scenario())
    assert identity == Identity(fleet or "", 1)
    assert here.stored() == here.wanted()


def test_a_wiped_store_is_refilled_under_a_higher_epoch(here: SyncerHarness) -> None:
    async def scenario() -> object:
        here.editor.change([endpoint(n) for n in range(5)], who="alice")
        term = await here.settled()
        here.seen_store = SeenStore(here.inventory.fleet() or "", term.fence.epoch, here.fake.revision)
        here.fake.wipe()
        await here.settled()
        return (await read_identity(here.operator, REGION)).identity

    assert asyncio.run(scenario()) == Identity(here.inventory.fleet() or "", 2)
    assert here.stored() == here.wanted()


def test_a_deposed_syncer_stops_and_writes_nothing(here: SyncerHarness) -> None:
    async def scenario() -> None:
        old = await here.settled()
        await here.lead()
        here.editor.change([endpoint(1)], who="alice")
        with pytest.raises(Deposed):
            await old.reconciler.turn()

    asyncio.run(scenario())
    assert here.stored() == {}
    assert here.inventory.waiting() == 1


def small_pages(monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    defaults = EtcdTarget.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "page", page)


async def meanwhile(target: EtcdTarget, what: Callable[[], Awaitable[object]]) -> None:
    """Lets something happen once, between the decision and the write."""
    apply = target.apply

    async def happens_first(ready: list[Change[bytes, Entry]]) -> list[Outcome[bytes, Entry]]:
        target.apply = apply  # type: ignore[method-assign]
        await what()
        return list(await apply(ready))

    target.apply = happens_first  # type: ignore[assignment,method-assign]


class Deaf:
    """A waker that never wakes."""

    async def wait(self, most: Duration) -> None:
        await asyncio.sleep(3_600)

    async def close(self) -> None:
        return None


def test_a_new_inventory_is_named_at_once_however_short_the_term_will_be(
    here: SyncerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.server.syncer.term.APPLIED_WITHIN", seconds(3_600))
    here.editor.change([endpoint(1)], who="alice")

    async def scenario() -> None:
        term = await here.lead()
        term.syncer.waker = Deaf()
        running = asyncio.create_task(term.run(asyncio.Event()))
        async with asyncio.timeout(30):
            while not here.stored():  # noqa: ASYNC110 -- the store tells nobody here
                await asyncio.sleep(0.01)
        running.cancel()

    asyncio.run(scenario())
    assert here.inventory.fleet() is not None
