"""The inventory's history is pruned after a resync; a failure is shown and retried."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from holdfast.inventory.api import DatabaseAway
from holdfast.inventory.changes import WantedObject
from holdfast.inventory.sql import history
from holdfast.inventory.sql.engine import writing
from holdfast.inventory.sql.schema import CHANGES
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.server.syncer.pruning import HISTORY, RETRY
from holdfast.server.syncer.term import SyncerTerm
from tests.inventory.harness import endpoint, endpoint_key, endpoint_name, host
from tests.server.harness import SyncerHarness, syncer_harness


@pytest.fixture
def here(tmp_path: Path) -> Iterator[SyncerHarness]:
    with syncer_harness(tmp_path) as made:
        yield made


def grow_old(here: SyncerHarness) -> None:
    """Let every recorded change be older than the history that is kept."""
    with writing(here.engine) as connection:
        at = here.clock.wall().astimezone(UTC) - HISTORY - timedelta(days=1)
        connection.execute(update(CHANGES).values(at=at))


def recorded(here: SyncerHarness, number: int) -> int:
    return len(here.editor.history(ENDPOINT, endpoint_name(number)))


async def upkeep(term: SyncerTerm) -> None:
    await term._after_a_resync()


def test_old_changes_are_deleted_a_portion_at_a_time(here: SyncerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "PORTION", 7)

    async def scenario() -> None:
        here.editor.change([host(1), *map(endpoint, range(40))], who="alice")
        term = await here.settled()
        grow_old(here)
        here.editor.change([endpoint(3, gateway="10.0.0.254")], who="alice")
        await term.reconciler.turn()
        await upkeep(term)
        assert term.syncer.metrics.history_pruned._value.get() == 41

    asyncio.run(scenario())
    assert [recorded(here, number) for number in (2, 3)] == [0, 1]


def test_a_change_of_a_held_key_stays(here: SyncerHarness) -> None:
    async def scenario() -> None:
        here.editor.change([host(1), *map(endpoint, range(40))], who="alice")
        term = await here.settled()
        here.editor.change([WantedObject(ENDPOINT, endpoint_name(n)) for n in range(30)], who="alice")
        await here.compared(term)
        assert len(term.reconciler.ledger) == 30, "the brake holds them"
        grow_old(here)
        await upkeep(term)

    asyncio.run(scenario())
    assert set(here.inventory.witness([endpoint_key(n) for n in range(30)])) == {endpoint_key(n) for n in range(30)}
    assert recorded(here, 35) == 0


def test_an_old_delete_that_a_later_change_revoked_is_no_witness_again(here: SyncerHarness) -> None:
    async def scenario() -> None:
        here.editor.change([endpoint(1)], who="alice")
        here.editor.change([WantedObject(ENDPOINT, endpoint_name(1))], who="alice")
        here.editor.change([endpoint(1)], who="alice")
        term = await here.settled()
        grow_old(here)
        with writing(here.engine) as connection:  # a clock that was wrong for the delete alone
            connection.execute(update(CHANGES).where(CHANGES.c.new.is_(None)).values(at=here.clock.wall()))
        await upkeep(term)

    asyncio.run(scenario())
    assert here.inventory.witness([endpoint_key(1)]) == {}


def test_a_failure_is_recorded_counted_and_retried(here: SyncerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> list[float]:
        here.editor.change([host(1), *map(endpoint, range(5))], who="alice")
        term = await here.settled()
        grow_old(here)
        with monkeypatch.context() as patched:
            patched.setattr(history, "_delete", failing)
            await upkeep(term)
            await upkeep(term)
        metrics = term.syncer.metrics
        found = [metrics.history_failures._value.get(), metrics.history_failing._value.get()]
        assert term.pruning.failing, "holdfast status shows it"
        assert recorded(here, 1) == 1
        here.clock.advance(RETRY)
        await upkeep(term)
        assert not term.pruning.failing
        return [*found, metrics.history_failing._value.get()]

    assert asyncio.run(scenario()) == [1, 1, 0]
    assert recorded(here, 1) == 0
    assert here.decisions().count("prune history: failed") == 1


def failing(*_args: object) -> None:
    raise DatabaseAway("canceling statement due to statement timeout")
