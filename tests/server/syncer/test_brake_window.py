"""The brake's sliding minute survives a restart of the syncer and a takeover."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.inventory.changes import WantedObject
from holdfast.model.base.time import seconds
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.server.syncer.term import SyncerTerm
from holdfast.testing.fault import fault
from tests.inventory.harness import endpoint, endpoint_name, host
from tests.server.harness import SyncerHarness, syncer_harness


@pytest.fixture
def here(tmp_path: Path) -> Iterator[SyncerHarness]:
    with syncer_harness(tmp_path) as made:
        yield made


def delete(here: SyncerHarness, first: int, count: int) -> None:
    here.editor.change([WantedObject(ENDPOINT, endpoint_name(first + n)) for n in range(count)], who="alice")


async def taken_over(here: SyncerHarness) -> SyncerTerm:
    """A new leader, whose first pass is done."""
    term = await here.lead()
    await term.check_identity()
    await term.reconciler.turn()
    return term


def left(here: SyncerHarness) -> int:
    return len([key for key in here.stored() if b"workloadendpoints" in key])


@fault("C27", without="holdfast.server.syncer.term:recall_deletes", sees=(AssertionError, r"left\(here\) == 85"))
def test_C27_leaders_that_take_over_one_after_the_other_delete_no_more_than_one(here: SyncerHarness) -> None:
    async def scenario() -> None:
        here.editor.change([host(1), *map(endpoint, range(100))], who="alice")
        term = await here.settled()
        for first in range(0, 60, 15):
            delete(here, first, 15)
            await term.reconciler.turn()
            here.clock.advance(seconds(5))
            term = await taken_over(here)

    asyncio.run(scenario())
    assert left(here) == 85


def test_deletes_that_left_the_window_are_not_counted(here: SyncerHarness) -> None:
    async def scenario() -> None:
        here.editor.change([host(1), *map(endpoint, range(100))], who="alice")
        term = await here.settled()
        delete(here, 0, 15)
        await term.reconciler.turn()
        here.clock.advance(seconds(61))
        term = await taken_over(here)
        delete(here, 15, 15)
        await term.reconciler.turn()

    asyncio.run(scenario())
    assert left(here) == 70
