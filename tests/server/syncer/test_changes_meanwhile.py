"""A change of the inventory during a resync is never overwritten by its older state."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.inventory.changes import WantedObject
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.server.syncer.term import SyncerTerm
from holdfast.testing.fault import fault
from tests.inventory.harness import endpoint, endpoint_key, endpoint_name
from tests.server.harness import SyncerHarness, syncer_harness


@pytest.fixture
def here(tmp_path: Path) -> Iterator[SyncerHarness]:
    with syncer_harness(tmp_path) as made:
        yield made


async def resynced(here: SyncerHarness, meanwhile: list[WantedObject]) -> SyncerTerm:
    """A resync that has read the inventory when an operator changes it."""
    term = await here.settled()
    read = term.source.read

    async def read_and_then(after: bytes | None, upto: bytes | None) -> Any:
        found = await read(after, upto)
        here.editor.change(meanwhile, who="alice")
        return found

    here.editor.change([endpoint(n) for n in range(5)], who="alice")
    term.source.read = read_and_then  # type: ignore[method-assign]
    term.reconciler.dirty.mark_all()
    await term.reconciler.turn()
    await term.reconciler.turn()
    return term


def ever_written(here: SyncerHarness, key: bytes) -> list[bytes]:
    events = [event for write in here.fake.history for event in write.events if event.key == key]
    return [event.entry.value for event in events if event.entry is not None]


@fault(
    "C22",
    without="holdfast.runtime.reconciler.loop:Reconciler._unchanged_since",
    by="tests.server.syncer.without_protection:as_it_was_listed",
    sees=(AssertionError, r"ever_written\(here, endpoint_key\(3\)\) == \[\]"),
)
def test_C22_what_was_deleted_since_the_list_was_read_does_not_come_back(here: SyncerHarness) -> None:
    asyncio.run(resynced(here, [WantedObject(ENDPOINT, endpoint_name(3))]))
    assert ever_written(here, endpoint_key(3)) == []
    assert here.stored() == here.wanted()
    assert here.inventory.waiting() == 0


def test_what_was_changed_since_the_list_was_read_is_written_once_as_it_is_now(here: SyncerHarness) -> None:
    asyncio.run(resynced(here, [endpoint(3, gateway="10.0.0.254")]))
    (value,) = ever_written(here, endpoint_key(3))
    assert b'"ipv4Gateway":"10.0.0.254"' in value
    assert here.stored() == here.wanted()


def test_what_moved_since_the_list_was_read_is_written_where_it_is_now(here: SyncerHarness) -> None:
    asyncio.run(resynced(here, [endpoint(3, on="r9")]))
    assert ever_written(here, endpoint_key(3)) == []
    assert here.stored() == here.wanted()
