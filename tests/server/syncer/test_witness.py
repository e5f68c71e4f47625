"""Witness gate: what no recorded change of the inventory deleted stays in the store until an operator decides."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.explain.inventory import lines
from holdfast.inventory.api import Witness
from holdfast.inventory.changes import WantedObject
from holdfast.inventory.edit.ignored import IgnoredEditor
from holdfast.inventory.sql.schema import OBJECTS
from holdfast.model.base.time import NEVER, seconds
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.host import HOST
from holdfast.reconcile import Change, Op, Owned
from holdfast.runtime.control import Declined, Request, Who
from holdfast.server.syncer.allow import AllowCommands, RevokeCommands
from holdfast.server.syncer.explain import ExplainCommands
from holdfast.server.syncer.held import HeldCommands
from holdfast.server.syncer.term import SyncerTerm
from holdfast.server.syncer.witness import OPENS, WitnessGate, seal
from holdfast.store.api import Entry
from holdfast.testing.fault import fault
from tests.inventory.harness import REGION, endpoint, endpoint_key, endpoint_name, host
from tests.server.harness import SyncerHarness, syncer_harness

NOW = NEVER + seconds(1_000)
SEEN = Witness(1, "alice")
ALICE = Who(1000, 1, "alice")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[SyncerHarness]:
    with syncer_harness(tmp_path) as made:
        yield made


def delete(key: bytes, revision: int = 7) -> Change[bytes, Entry]:
    return Change(Op.DELETE, key, Owned(Entry(key, b"{}", mod_revision=revision), "inventory", revision), None)


def nowhere(_key: bytes) -> bytes | None:
    return None


def test_a_delete_passes_with_a_witness_only() -> None:
    gate = WitnessGate(nowhere)
    gate.note([b"a", b"b"], {b"a": SEEN}, NOW)
    assert gate.judge(delete(b"a"), {}, 0, NOW) is None
    closed = gate.judge(delete(b"b"), {}, 0, NOW + seconds(9))
    assert closed is not None
    assert (closed.gate, closed.reason.label, closed.since, closed.opens) == ("witness", "unwitnessed", NOW, OPENS)
    assert gate.judge(delete(b"not looked up"), {}, 0, NOW) is not None


def test_creates_and_replaces_need_no_witness() -> None:
    gate, owned = WitnessGate(nowhere), Owned(Entry(b"a", b"{}"), "inventory", 1)
    assert gate.judge(Change(Op.CREATE, b"a", None, owned), {}, 0, NOW) is None
    assert gate.judge(Change(Op.REPLACE, b"a", owned, owned), {}, 0, NOW) is None


def test_an_individual_that_is_wanted_under_another_key_has_moved() -> None:
    gate = WitnessGate({b"a": b"new", b"b": b"b"}.get)
    assert gate.judge(delete(b"a"), {}, 0, NOW) is None
    assert gate.judge(delete(b"b"), {}, 0, NOW) is not None


def test_an_allowance_is_for_that_key_at_that_revision() -> None:
    gate = WitnessGate(nowhere)
    gate.allow([delete(b"a", 7)])
    assert gate.judge(delete(b"a", 7), {}, 0, NOW) is None
    assert gate.judge(delete(b"a", 8), {}, 0, NOW) is not None, "written since it was shown"
    assert gate.judge(delete(b"b", 7), {}, 0, NOW) is not None


def test_a_newer_answer_replaces_the_older_one() -> None:
    gate = WitnessGate(nowhere)
    gate.note([b"a"], {b"a": SEEN}, NOW)
    gate.note([b"a"], {}, NOW)
    assert gate.judge(delete(b"a"), {}, 0, NOW) is not None
    gate.note([b"a"], {b"a": SEEN}, NOW)
    assert gate.judge(delete(b"a"), {}, 0, NOW) is None


def test_answers_about_what_is_no_longer_outstanding_are_dropped() -> None:
    gate = WitnessGate(nowhere)
    keys = [b"%d" % number for number in range(5_000)]
    gate.note(keys, dict.fromkeys(keys, SEEN), NOW)
    gate.keep({b"17"}.__contains__)
    assert gate.judge(delete(b"17"), {}, 0, NOW) is None
    assert gate.judge(delete(b"18"), {}, 0, NOW) is not None


def test_a_seal_differs_with_the_keys_and_their_revisions() -> None:
    assert seal([delete(b"a"), delete(b"b")]) == seal([delete(b"b"), delete(b"a")])
    assert len({seal([]), seal([delete(b"a")]), seal([delete(b"a", 8)]), seal([delete(b"b")])}) == 4


async def foreign(here: SyncerHarness, count: int) -> dict[bytes, bytes]:
    """Another controller has written hosts and endpoints of which this inventory never knew."""
    for number in range(100, 100 + count):
        for one in (host(number), endpoint(number)):
            await here.operator.put(one.key, one.kind.encode(one.thing))
    return here.stored()


@fault(
    "C41",
    without="holdfast.server.syncer.witness:WitnessGate.judge",
    sees=(AssertionError, r"here.stored\(\) == there"),
)
def test_C41_objects_that_the_inventory_never_had_are_not_deleted_however_old_they_are(here: SyncerHarness) -> None:
    async def scenario() -> tuple[dict[bytes, bytes], list[str]]:
        here.editor.change([host(1), *(endpoint(n) for n in range(20))], who="alice")
        term = await here.settled()
        there = await foreign(here, 15)
        states = [await here.compared(term)]
        for _ in range(3):
            here.clock.advance(seconds(100_000))
            states.append(await here.compared(term))
        await here.compared(await here.settled())
        return there, states

    there, states = asyncio.run(scenario())
    assert here.stored() == there
    assert set(states) == {"held: witness"}


@fault(
    "C40",
    without="holdfast.server.syncer.witness:WitnessGate.judge",
    sees=(AssertionError, r'asyncio.run\(scenario\(\)\) == "held: witness"'),
)
def test_C40_rows_that_raw_sql_deleted_or_a_restored_dump_lacks_stay_in_the_store(here: SyncerHarness) -> None:
    """Three of many: few enough for the brake."""

    async def scenario() -> str:
        here.editor.change([endpoint(n) for n in range(80)], who="alice")
        term = await here.settled()
        with here.engine.begin() as connection:
            connection.execute(OBJECTS.delete().where(OBJECTS.c.name.in_([endpoint_name(n) for n in (1, 2, 3)])))
        return await here.compared(term)

    assert asyncio.run(scenario()) == "held: witness"
    assert len(here.stored()) == 80


def test_what_an_operator_deletes_goes_beside_what_is_held(here: SyncerHarness) -> None:
    async def scenario() -> SyncerTerm:
        here.editor.change([endpoint(n) for n in range(40)], who="alice")
        term = await here.settled()
        await foreign(here, 2)
        await here.compared(term)
        here.editor.change([WantedObject(ENDPOINT, endpoint_name(5))], who="alice")
        await term.reconciler.turn()
        return term

    term = asyncio.run(scenario())
    assert endpoint_key(5) not in here.stored()
    assert endpoint_key(100) in here.stored()
    assert here.inventory.waiting() == 0
    assert term.reconciler.held() == {"witness": 4}


def test_an_object_that_comes_back_after_its_delete_was_recorded_is_deleted_again(here: SyncerHarness) -> None:
    async def scenario() -> None:
        here.editor.change([endpoint(n) for n in range(20)], who="alice")
        term = await here.settled()
        old = here.stored()[endpoint_key(3)]
        here.editor.change([WantedObject(ENDPOINT, endpoint_name(3))], who="alice")
        await term.reconciler.turn()
        await here.operator.put(endpoint_key(3), old)
        await here.compared(term)

    asyncio.run(scenario())
    assert here.stored() == here.wanted()


def test_what_is_ignored_is_neither_deleted_nor_held_nor_counted(here: SyncerHarness) -> None:
    ignored = IgnoredEditor(here.inventory)

    async def scenario() -> tuple[str, str]:
        here.editor.change([endpoint(n) for n in range(20)], who="alice")
        term = await here.settled()
        await foreign(here, 2)
        assert await here.compared(term) == "held: witness"
        there = dict(term.reconciler.present)
        for key in (endpoint_key(100), endpoint_key(101), HOST.key(REGION, "r100"), HOST.key(REGION, "r101")):
            ignored.add(key, who="alice", why="of the lab next door")
        term.reconciler.dirty.mark(await term.ignored.refresh())
        await term.reconciler.turn()
        quiet = term.syncer.context.vitals.state
        await here.compared(term)
        assert there["endpoints"] - term.reconciler.present["endpoints"] == 2
        ignored.end(endpoint_key(100))
        term.reconciler.dirty.mark(await term.ignored.refresh())
        await term.reconciler.turn()
        return quiet, term.syncer.context.vitals.state

    assert asyncio.run(scenario()) == ("ok", "held: witness")
    assert len(here.stored()) == 24


def test_an_ignored_key_that_is_applied_later_is_written_like_any_other(here: SyncerHarness) -> None:
    async def scenario() -> str:
        term = await here.settled()
        await here.operator.put(endpoint_key(1), b'"theirs"')
        IgnoredEditor(here.inventory).add(endpoint_key(1), who="alice", why="theirs")
        term.reconciler.dirty.mark(await term.ignored.refresh())
        assert await here.compared(term) == "ok"
        here.editor.change([endpoint(1)], who="alice")
        await term.reconciler.turn()
        term.reconciler.dirty.mark(await term.ignored.refresh())
        here.clock.advance(seconds(1))
        await term.reconciler.turn()
        return term.syncer.context.vitals.state

    assert asyncio.run(scenario()) == "ok"
    assert here.stored() == here.wanted()


async def plain_held(_request: Request, _who: Who) -> dict[str, Any]:
    return {"objects": [], "seal": "of the brake"}


async def once(_request: Request, _who: Who) -> str:
    raise AssertionError("this is about the brake")


async def shown(term: SyncerTerm) -> dict[str, Any]:
    answer: dict[str, Any] = await HeldCommands(term, plain_held).answer(Request("held", {"gate": "witness"}), ALICE)
    return answer


async def allow(term: SyncerTerm, **args: object) -> str:
    request = Request("allow", {"gate": "witness", "reason": "junk", **args})
    return str(await AllowCommands(term, once).answer(request, ALICE))


def test_an_operator_allows_exactly_what_was_shown(here: SyncerHarness) -> None:
    async def scenario() -> tuple[dict[str, Any], str]:
        here.editor.change([host(1), host(2), host(3), *(endpoint(n) for n in range(20))], who="alice")
        term = await here.settled()
        await foreign(here, 1)
        await here.compared(term)
        seen = await shown(term)
        said = await allow(term, seal=seen["seals"]["witness"])
        await term.reconciler.turn()
        return seen, said

    seen, said = asyncio.run(scenario())
    assert [one["key"] for one in seen["objects"]] == ["endpoint r1-holdfast-w100-eth0", "host r100"]
    assert all(one["look"] == "holdfast diff inventory" and one["also"] == "2 in all" for one in seen["objects"])
    assert said.startswith("2 unwitnessed deletes go through once")
    assert here.stored() == here.wanted()


def test_an_allowance_that_is_not_used_yet_is_taken_back(here: SyncerHarness) -> None:
    async def scenario() -> str:
        here.editor.change([host(1), host(2), host(3), *(endpoint(n) for n in range(20))], who="alice")
        term = await here.settled()
        await foreign(here, 1)
        await here.compared(term)
        await allow(term, seal=(await shown(term))["seals"]["witness"])
        revoke = RevokeCommands(term, once).answer
        said = str(await revoke(Request("revoke", {"gate": "witness"}), ALICE))
        await here.compared(term)
        with pytest.raises(Declined, match="nothing that is still to be deleted is allowed at syncer/witness"):
            await revoke(Request("revoke", {"gate": "witness"}), ALICE)
        return said

    assert asyncio.run(scenario()) == "syncer/witness holds 2 unwitnessed deletes again"
    assert endpoint_key(100) in here.stored()


def test_what_is_written_between_the_list_and_the_allowance_is_not_released(here: SyncerHarness) -> None:
    async def scenario() -> None:
        here.editor.change([endpoint(n) for n in range(20)], who="alice")
        term = await here.settled()
        await foreign(here, 1)
        await here.compared(term)
        seen = await shown(term)
        await here.operator.put(endpoint_key(100), b'"newer"')
        await here.compared(term)
        with pytest.raises(Declined, match="others than were shown are held now"):
            await allow(term, seal=seen["seals"]["witness"])
        await here.allow_unwitnessed(term)
        await here.operator.put(endpoint_key(100), b'"newest"')
        await here.compared(term)

    asyncio.run(scenario())
    assert here.stored()[endpoint_key(100)] == b'"newest"'


def test_an_allowance_without_a_list_or_for_a_time_is_declined(here: SyncerHarness) -> None:
    async def scenario() -> None:
        term = await here.settled()
        with pytest.raises(Declined, match="syncer/witness holds nothing"):
            await allow(term)
        await foreign(here, 1)
        await here.compared(term)
        with pytest.raises(Declined, match="others than were shown"):
            await allow(term)
        with pytest.raises(Declined, match="never released for a time"):
            await allow(term, **{"for": "30m"})

    asyncio.run(scenario())
    assert len(here.stored()) == 2


async def explained(term: SyncerTerm, kind: str, name: str) -> list[str]:
    request = Request("explain", {"kind": kind, "name": name})
    return list(lines(await ExplainCommands(term.syncer, term).answer(request, ALICE)))


def test_explain_names_the_commands_that_decide_about_an_object_without_a_witness(here: SyncerHarness) -> None:
    async def scenario() -> list[str]:
        term = await here.settled()
        await foreign(here, 1)
        await here.compared(term)
        return await explained(term, "endpoint", endpoint_name(100))

    text = "\n".join(asyncio.run(scenario()))
    assert text.startswith("endpoint holdfast-w100-eth0 is not wanted but still in the store.")
    assert "WANTED      no, and the inventory has no record of it" in text
    assert "held by witness: no recorded change of the inventory deleted it" in text
    assert "holdfast gate allow syncer/witness --once --reason …" in text
    assert "holdfast import" in text
    assert "holdfast ignore endpoint r1-holdfast-w100-eth0 --reason …" in text


def test_explain_of_an_ignored_object_says_so(here: SyncerHarness) -> None:
    async def scenario() -> list[str]:
        term = await here.settled()
        await foreign(here, 1)
        IgnoredEditor(here.inventory).add(endpoint_key(100), who="alice", why="theirs")
        await term.ignored.refresh()
        await here.compared(term)
        return await explained(term, "endpoint", endpoint_name(100))

    assert asyncio.run(scenario())[0] == "endpoint holdfast-w100-eth0 is not wanted; it is in the store, and ignored."


def test_unwitnessed_objects_are_counted_by_kind_until_the_term_is_over(here: SyncerHarness) -> None:
    async def scenario() -> SyncerTerm:
        here.editor.change([host(1), *(endpoint(n) for n in range(20))], who="alice")
        term = await here.settled()
        await foreign(here, 3)
        await here.compared(term)
        return term

    term = asyncio.run(scenario())
    term._measure()

    assert unwitnessed_counts(term) == {"hosts": 3.0, "endpoints": 3.0}

    term.syncer.metrics.clear()

    assert unwitnessed_counts(term) == {}


def unwitnessed_counts(term: SyncerTerm) -> dict[str, float]:
    (family,) = term.syncer.metrics.objects.collect()
    found = {one.labels["kind"]: one.value for one in family.samples if one.labels["state"] == "unwitnessed"}
    return {kind: count for kind, count in found.items() if count}
