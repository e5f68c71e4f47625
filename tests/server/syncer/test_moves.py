"""Moves that a full comparison finds: one transaction each, and no loss for the brake."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.inventory.changes import WantedObject
from holdfast.inventory.sql.schema import OUTBOX
from holdfast.model.base.time import Instant, seconds
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.reconcile import Change, Closed, Op, Owned, Reason
from holdfast.server.syncer.term import SyncerTerm
from holdfast.store.api import Entry
from holdfast.testing.fault import fault
from tests.inventory.harness import endpoint, endpoint_key, endpoint_name
from tests.server.harness import SyncerHarness, syncer_harness
from tests.server.syncer.test_term import meanwhile, small_pages


@pytest.fixture
def here(tmp_path: Path) -> Iterator[SyncerHarness]:
    with syncer_harness(tmp_path) as made:
        yield made


async def moved_unheard(here: SyncerHarness, count: int, old: str, new: str) -> tuple[SyncerTerm, int]:
    """Endpoints on another host that no outbox tells of, and the revision from before; the syncer has looked again."""
    here.editor.change([endpoint(n, on=old) for n in range(count)], who="alice")
    term = await here.settled()
    seen = here.fake.revision
    here.editor.change([endpoint(n, on=new) for n in range(count)], who="alice")
    with here.engine.begin() as connection:
        connection.execute(OUTBOX.delete())
    term.reconciler.dirty.mark_all()
    await term.reconciler.turn()
    return term, seen


@pytest.mark.parametrize(("old", "new"), [("r1", "r2"), ("r2", "r1")], ids=["to a later page", "to an earlier page"])
@fault(
    "C35",
    without="holdfast.runtime.reconciler.rekeying:Rekeying.withhold",
    by="tests.server.syncer.without_protection:creates_flow",
    sees=(AssertionError, r"len\(writes\) == 1"),
)
def test_C35_a_move_that_a_resync_finds_is_one_transaction(
    here: SyncerHarness, monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    small_pages(monkeypatch, 4)
    _, seen = asyncio.run(moved_unheard(here, 10, old, new))
    for number in range(10):
        writes = [
            write.revision
            for write in here.fake.history
            if write.revision > seen
            and any(e.key in (endpoint_key(number, on=old), endpoint_key(number, on=new)) for e in write.events)
        ]
        assert len(writes) == 1, "both keys in the same transaction"
    assert here.stored() == here.wanted()


async def moved_on(here: SyncerHarness, term: SyncerTerm, seen: int) -> None:
    """The second move reaches the store as well; at every revision since then the endpoint has exactly one key."""
    while here.stored() != here.wanted():
        await term.reconciler.turn()
        here.clock.advance(seconds(0.03))
    places = {endpoint_key(1, on=host) for host in ("r1", "r2", "r3")}
    stands = {endpoint_key(1, on="r1")}
    for write in here.fake.history:
        for event in write.events if write.revision > seen else ():
            if event.key in places:
                (stands.add if event.entry is not None else stands.discard)(event.key)
        assert len(stands) == 1, f"at revision {write.revision} it has the keys {sorted(stands)}"


@fault(
    "C35",
    without="holdfast.server.syncer.target:EtcdTarget._too_early",
    by="tests.server.syncer.without_protection:nothing_is_too_early",
    sees=(AssertionError, r'len\(stands\) == 1, f"at revision \{write.revision\} it has the'),
)
def test_C35_what_is_wanted_elsewhere_just_before_its_delete_is_written_keeps_its_key(here: SyncerHarness) -> None:
    async def scenario() -> None:
        here.editor.change([endpoint(1, on="r1"), endpoint(2)], who="alice")
        term = await here.settled()
        seen = here.fake.revision
        here.editor.change([WantedObject(ENDPOINT, endpoint_name(1))], who="alice")
        await meanwhile(term.target, lambda: returned(here, endpoint(1, on="r3")))
        await moved_on(here, term, seen)

    asyncio.run(asyncio.wait_for(scenario(), 60))


async def returned(here: SyncerHarness, one: WantedObject) -> None:
    here.editor.change([one], who="bob")


@fault(
    "C35",
    without="holdfast.runtime.reconciler.loop:Reconciler._completed",
    by="tests.server.syncer.without_protection:halves_go_alone",
    sees=(AssertionError, r'len\(stands\) == 1, f"at revision \{write.revision\} it has the'),
)
def test_C35_what_moves_on_after_the_syncer_heard_of_it_keeps_a_key(here: SyncerHarness) -> None:
    async def scenario() -> None:
        here.editor.change([endpoint(1, on="r1"), endpoint(2)], who="alice")
        term = await here.settled()
        seen = here.fake.revision
        here.editor.change([endpoint(1, on="r2")], who="alice")
        get = term.source.get

        async def late(keys: Collection[bytes]) -> Mapping[bytes, Owned[Entry]]:
            term.source.get = get  # type: ignore[method-assign]
            here.editor.change([endpoint(1, on="r3")], who="bob")
            return await get(keys)

        term.source.get = late  # type: ignore[method-assign]
        await moved_on(here, term, seen)

    asyncio.run(asyncio.wait_for(scenario(), 60))


@fault(
    "C35",
    without="holdfast.runtime.reconciler.rekeying:Rekeying.without",
    by="tests.server.syncer.without_protection:only_these_are_dropped",
    sees=(AssertionError, r'len\(stands\) == 1, f"at revision \{write.revision\} it has the'),
)
def test_C35_what_moves_back_before_it_is_written_is_not_created_elsewhere(here: SyncerHarness) -> None:
    async def scenario() -> None:
        here.editor.change([endpoint(1, on="r1"), endpoint(2)], who="alice")
        term = await here.settled()
        seen = here.fake.revision
        here.editor.change([endpoint(1, on="r2")], who="alice")
        get, asked = term.source.get, itertools.count(1)

        async def late(keys: Collection[bytes]) -> Mapping[bytes, Owned[Entry]]:
            if next(asked) == 2:
                here.editor.change([endpoint(1, on="r1")], who="bob")
            return await get(keys)

        term.source.get = late  # type: ignore[method-assign]
        await term.reconciler.turn()
        await moved_on(here, term, seen)

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_C35_what_moves_on_during_a_full_pass_keeps_a_key(here: SyncerHarness) -> None:
    async def scenario() -> None:
        here.editor.change([endpoint(1, on="r1"), endpoint(2)], who="alice")
        await here.settled()
        seen = here.fake.revision
        here.editor.change([endpoint(1, on="r2")], who="alice")
        term = await here.lead()
        fetch, asked = term.outbox.fetch, itertools.count(1)

        async def late() -> Collection[bytes]:
            if next(asked) == 2:
                here.editor.change([endpoint(1, on="r3")], who="bob")
            return await fetch()

        term.outbox.fetch = late  # type: ignore[method-assign]
        await moved_on(here, term, seen)

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_what_moves_and_then_goes_is_deleted_at_all_of_its_keys(here: SyncerHarness) -> None:
    async def scenario() -> None:
        here.editor.change([endpoint(n) for n in range(1, 9)], who="alice")
        term = await here.settled()
        here.editor.change([endpoint(1, on="r2")], who="alice")
        here.editor.change([WantedObject(ENDPOINT, endpoint_name(1))], who="alice")
        await term.reconciler.turn()

    asyncio.run(scenario())
    assert here.stored() == here.wanted()


def test_an_evacuated_host_that_a_resync_finds_is_no_loss(here: SyncerHarness) -> None:
    term, _ = asyncio.run(moved_unheard(here, 40, "r1", "r2"))
    assert term.syncer.context.vitals.state == "ok"
    assert here.stored() == here.wanted()


def test_what_stands_on_two_hosts_leaves_both_when_it_moves_to_a_third(here: SyncerHarness) -> None:
    async def scenario() -> None:
        here.editor.change([endpoint(1, on="r1"), endpoint(2)], who="alice")
        term = await here.settled()
        await here.operator.put(endpoint_key(1, on="r2"), b"{}")
        here.editor.change([endpoint(1, on="r3")], who="alice")
        term.reconciler.dirty.mark_all()
        await term.reconciler.turn()

    asyncio.run(scenario())
    assert here.stored() == here.wanted()


def test_more_new_objects_than_are_kept_back_flow_on(here: SyncerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    small_pages(monkeypatch, 5)

    async def scenario() -> SyncerTerm:
        here.editor.change([endpoint(n) for n in range(40)], who="alice")
        term = await here.lead()
        term.rekeying._most = 7
        await term.check_identity()
        await term.reconciler.turn()
        return term

    assert asyncio.run(scenario()).syncer.context.vitals.state == "ok"
    assert here.stored() == here.wanted()


@fault(
    "C44",
    without="holdfast.server.syncer.gates:SyncerBrake.counts",
    by="tests.server.syncer.without_protection:moved_at_some_time",
    sees=(AssertionError, r'set\(here.stored\(\)\) == \{endpoint_key\(n, on="r1"\) for n in'),
)
def test_C44_what_moved_and_was_deleted_before_the_syncer_looked_meets_the_brake(here: SyncerHarness) -> None:
    async def scenario() -> SyncerTerm:
        here.editor.change([endpoint(n, on="r1") for n in range(40)], who="alice")
        term = await here.settled()
        here.editor.change([endpoint(n, on="r2") for n in range(40)], who="alice")
        here.editor.change([WantedObject(ENDPOINT, endpoint_name(n)) for n in range(40)], who="alice")
        await term.reconciler.turn()
        return term

    term = asyncio.run(scenario())
    assert set(here.stored()) == {endpoint_key(n, on="r1") for n in range(40)}
    assert term.reconciler.held() == {"brake": 40}


def test_moves_do_not_use_up_the_brake_of_a_delete_in_the_same_plan(here: SyncerHarness) -> None:
    async def scenario() -> str:
        here.editor.change([endpoint(n, on="r1") for n in range(50)], who="alice")
        term = await here.settled()
        here.editor.change([endpoint(n, on="r2") for n in range(40)], who="alice")
        here.editor.change([WantedObject(ENDPOINT, endpoint_name(n)) for n in (45, 46)], who="alice")
        await term.reconciler.turn()
        return term.syncer.context.vitals.state

    assert asyncio.run(scenario()) == "ok"
    assert here.stored() == here.wanted()


class HeldReason(Reason):
    HELD = "the test holds it"


@dataclass
class HoldsSome:
    """A gate that holds these operations on these keys until the test opens it."""

    op: Op
    keys: Collection[bytes]
    closed: bool = True

    def judge(self, change: Change[bytes, Entry], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        is_held = self.closed and change.op is self.op and change.key in self.keys
        return Closed("test", HeldReason.HELD, now, "the test") if is_held else None


def hold(term: SyncerTerm, op: Op, on: str) -> HoldsSome:
    gate = HoldsSome(op, {endpoint_key(1, on=on)})
    term.reconciler._gates = [gate, *term.reconciler._gates]
    return gate


@pytest.mark.parametrize(("op", "on"), [(Op.DELETE, "r1"), (Op.CREATE, "r2")], ids=["old key held", "new key held"])
@fault(
    "C62",
    without="holdfast.reconcile.gate:other_halves",
    returns={},
    sees=(
        AssertionError,
        r'here.fake.revision == seen|\[one and one.gate for one in shown\] == \["test", "test"\], "both',
    ),
)
def test_C62_a_move_of_which_one_half_is_held_waits_and_then_is_one_transaction(
    here: SyncerHarness, op: Op, on: str
) -> None:
    async def scenario() -> None:
        here.editor.change([endpoint(1, on="r1"), endpoint(2)], who="alice")
        term = await here.settled()
        seen, gate = here.fake.revision, hold(term, op, on)
        here.editor.change([endpoint(1, on="r2")], who="alice")
        for _ in range(3):
            await term.reconciler.turn()
            here.clock.advance(seconds(2))
        assert here.fake.revision == seen, "nothing is written"
        shown = [term.reconciler.outstanding_for(endpoint_key(1, on=host)) for host in ("r1", "r2")]
        assert [one and one.gate for one in shown] == ["test", "test"], "both halves say why"
        gate.closed = False
        await moved_on(here, term, seen)

    asyncio.run(asyncio.wait_for(scenario(), 60))


@fault(
    "C62",
    without="holdfast.runtime.reconciler.loop:Reconciler._completed",
    by="tests.server.syncer.without_protection:halves_go_alone",
    sees=(AssertionError, "here.fake.revision == seen"),
)
def test_C62_what_moves_on_while_its_old_key_is_held_waits_with_it(here: SyncerHarness) -> None:
    async def scenario() -> None:
        here.editor.change([endpoint(1, on="r1"), endpoint(2)], who="alice")
        term = await here.settled()
        seen, gate = here.fake.revision, hold(term, Op.DELETE, "r1")
        for host in ("r2", "r3"):
            here.editor.change([endpoint(1, on=host)], who="alice")
            await term.reconciler.turn()
        assert here.fake.revision == seen, "the third host waits like the second"
        gate.closed = False
        here.clock.advance(seconds(2))
        await moved_on(here, term, seen)

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_move_whose_new_key_another_program_holds_keeps_its_old_key(here: SyncerHarness) -> None:
    async def scenario() -> SyncerTerm:
        here.editor.change([endpoint(1, on="r1"), endpoint(2)], who="alice")
        term = await here.settled()
        here.editor.change([endpoint(1, on="r2")], who="alice")
        await meanwhile(term.target, lambda: here.operator.put(endpoint_key(1, on="r2"), b"{}"))
        await term.reconciler.turn()
        assert endpoint_key(1, on="r1") in here.stored()
        for _ in range(5):
            here.clock.advance(seconds(2))
            await term.reconciler.turn()
        return term

    assert asyncio.run(scenario()).syncer.context.vitals.state == "ok"
    assert here.stored() == here.wanted()


def test_a_plan_without_deletes_asks_nobody_where_anything_is_wanted(here: SyncerHarness) -> None:
    async def scenario() -> list[int]:
        term = await here.settled()
        asked: list[int] = []
        find_all = here.inventory.find_all

        def counted(kind: Any, names: Collection[str]) -> Any:
            asked.append(len(names))
            return find_all(kind, names)

        here.inventory.find_all = counted  # type: ignore[method-assign]
        here.editor.change([endpoint(n, on="r1") for n in range(5)], who="alice")
        await term.reconciler.turn()
        here.editor.change([endpoint(n, on="r2") for n in range(5)], who="alice")
        await term.reconciler.turn()
        here.editor.change([WantedObject(ENDPOINT, endpoint_name(1))], who="alice")
        await term.reconciler.turn()
        return asked

    assert asyncio.run(scenario()) == [1, 1], "creates and moves answer for themselves; a delete twice, late and last"


def test_answers_about_what_is_settled_are_forgotten(here: SyncerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.server.syncer.moves._SPARE", 0)

    async def scenario() -> SyncerTerm:
        here.editor.change([endpoint(n, on="r1") for n in range(5)], who="alice")
        term = await here.settled()
        for host in ("r2", "r3", "r4", "r5"):
            here.editor.change([endpoint(n, on=host) for n in range(5)], who="alice")
            await term.reconciler.turn()
            here.clock.advance(seconds(120))
        return term

    moves = asyncio.run(scenario()).moves
    assert len(moves._wanted) <= 15
    assert moves.wanted_at(endpoint_key(1, on="r1")) is None


def test_a_move_during_a_refill_waits_for_its_end_and_does_not_prevent_it(here: SyncerHarness) -> None:
    async def scenario() -> None:
        here.editor.change([endpoint(1, on="r1"), endpoint(2)], who="alice")
        await here.settled()
        here.fake.wipe()
        term = await here.lead()
        await term.check_identity()
        await term.reconciler.turn()
        seen = here.fake.revision
        here.editor.change([endpoint(1, on="r2")], who="alice")
        await term.reconciler.turn()
        assert set(term.reconciler.held()) <= {"identity"}
        await term.check_identity()
        await moved_on(here, term, seen)

    asyncio.run(asyncio.wait_for(scenario(), 60))
