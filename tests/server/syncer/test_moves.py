"""Moves that a full comparison finds: one transaction each, and no loss for the brake."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

from holdfast.inventory.changes import WantedObject
from holdfast.inventory.sql.schema import OUTBOX
from holdfast.model.base.time import seconds
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.reconcile import Owned
from holdfast.server.syncer.term import SyncerTerm
from holdfast.store.api import Entry
from holdfast.testing.fault import fault
from tests.inventory.harness import endpoint, endpoint_key, endpoint_name
from tests.server.harness import SyncerHarness, syncer_harness
from tests.server.syncer.test_term import small_pages


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
    """The second move reaches the store as well; at no revision since then was the endpoint nowhere."""
    while here.stored() != here.wanted():
        await term.reconciler.turn()
        here.clock.advance(seconds(0.1))
    places = {endpoint_key(1, on=host) for host in ("r1", "r2", "r3")}
    stands = {endpoint_key(1, on="r1")}
    for write in here.fake.history:
        for event in write.events if write.revision > seen else ():
            if event.key in places:
                (stands.add if event.entry is not None else stands.discard)(event.key)
        assert stands, f"at revision {write.revision} it has no key at all"


TOO_EARLY = "holdfast.server.syncer.target:EtcdTarget._too_early"


@fault("C35", without=TOO_EARLY, by="tests.server.syncer.without_protection:nothing_is_too_early")
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


@fault("C35", without=TOO_EARLY, by="tests.server.syncer.without_protection:nothing_is_too_early")
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
        term.moves._most = 7
        await term.create_identity()
        await term.reconciler.turn()
        return term

    assert asyncio.run(scenario()).syncer.context.vitals.state == "ok"
    assert here.stored() == here.wanted()
