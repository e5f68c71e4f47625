"""Moves that a full comparison finds: one transaction each, and no loss in the eyes of the brake."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.inventory.schema import OUTBOX
from holdfast.server.syncer import Reign
from holdfast.testing.fault import fault
from tests.inventory.things import endpoint, endpoint_key
from tests.server.syncing import Realm, realm
from tests.server.test_syncer import small_pages


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Realm]:
    with realm(tmp_path) as made:
        yield made


async def moved_unheard(here: Realm, count: int, old: str, new: str) -> tuple[Reign, int]:
    """Endpoints on another host that no outbox tells of, and the revision from before; the syncer has looked again."""
    here.editor.change([endpoint(n, on=old) for n in range(count)], who="alice")
    reign = await here.settled()
    seen = here.fake.revision
    here.editor.change([endpoint(n, on=new) for n in range(count)], who="alice")
    with here.engine.begin() as connection:
        connection.execute(OUTBOX.delete())
    reign.reconciler.dirty.mark_all()
    await reign.reconciler.turn()
    return reign, seen


@pytest.mark.parametrize(("old", "new"), [("r1", "r2"), ("r2", "r1")], ids=["to a later page", "to an earlier page"])
@fault("C35", without="holdfast.runtime.moves:Moves.kept_back", by="tests.server.removals:creates_flow")
def test_C35_a_move_that_a_resync_finds_is_one_transaction(
    here: Realm, monkeypatch: pytest.MonkeyPatch, old: str, new: str
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


def test_an_evacuated_host_that_a_resync_finds_is_no_loss(here: Realm) -> None:
    reign, _ = asyncio.run(moved_unheard(here, 40, "r1", "r2"))
    assert reign.around.vitals.state == "ok"
    assert here.stored() == here.wanted()


def test_what_stands_on_two_hosts_leaves_both_when_it_moves_to_a_third(here: Realm) -> None:
    async def scenario() -> None:
        here.editor.change([endpoint(1, on="r1"), endpoint(2)], who="alice")
        reign = await here.settled()
        await here.operator.put(endpoint_key(1, on="r2"), b"{}")
        here.editor.change([endpoint(1, on="r3")], who="alice")
        reign.reconciler.dirty.mark_all()
        await reign.reconciler.turn()

    asyncio.run(scenario())
    assert here.stored() == here.wanted()


def test_more_new_objects_than_are_kept_back_flow_on(here: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    small_pages(monkeypatch, 5)

    async def scenario() -> Reign:
        here.editor.change([endpoint(n) for n in range(40)], who="alice")
        reign = await here.lead()
        reign.moves._most = 7
        await reign.name()
        await reign.reconciler.turn()
        return reign

    assert asyncio.run(scenario()).around.vitals.state == "ok"
    assert here.stored() == here.wanted()
