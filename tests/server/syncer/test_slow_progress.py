"""Slow pages and slow transactions of the syncer are progress, not a stall."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.config.sections.pulse import PulseSettings
from holdfast.model.base.time import Duration, Instant, seconds
from holdfast.server.syncer.term import SyncerTerm
from holdfast.testing.fault import fault
from tests.inventory.harness import endpoint, host
from tests.server.harness import SyncerHarness, syncer_harness

STALLED = PulseSettings().stalled_after
SLOW = seconds(20)
SLOW_TRANSACTION = seconds(8)
"""Four are in flight at a time, one after the other on this clock."""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[SyncerHarness]:
    with syncer_harness(tmp_path) as made:
        yield made


def longest_silence(here: SyncerHarness, term: SyncerTerm) -> Duration:
    """Run one turn; returns the longest time without an attempt."""
    attempts: list[Instant] = [here.clock.now()]
    vitals = term.syncer.context.vitals
    noted = vitals.attempted

    def attempted(**kwargs: Any) -> None:
        attempts.append(here.clock.now())
        noted(**kwargs)

    vitals.attempted = attempted  # type: ignore[method-assign]
    asyncio.run(term.reconciler.turn())
    return max(later - earlier for earlier, later in zip(attempts, [*attempts[1:], here.clock.now()], strict=True))


def slowed(here: SyncerHarness, call: Callable[..., Any]) -> Callable[..., Any]:
    async def slowly(*args: Any, **kwargs: Any) -> Any:
        here.clock.advance(SLOW_TRANSACTION)
        return await call(*args, **kwargs)

    return slowly


@fault(
    "C48",
    without="holdfast.server.syncer.term:SyncerTerm.note_progress",
    sees=(AssertionError, r"longest_silence\(here, term\) < STALLED"),
)
def test_C48_slow_transactions_of_one_batch_are_progress(here: SyncerHarness) -> None:
    here.editor.change([host(1), *map(endpoint, range(3_000))], who="alice")
    term = asyncio.run(here.lead())
    asyncio.run(term.check_identity())
    store: Any = term.syncer.store
    store.txn = slowed(here, store.txn)
    assert longest_silence(here, term) < STALLED
    assert here.stored() == here.wanted()


@fault(
    "C48",
    without="holdfast.server.syncer.term:SyncerTerm.note_progress",
    sees=(AssertionError, r"longest_silence\(here, term\) < STALLED"),
)
def test_C48_slow_pages_of_the_database_are_progress(here: SyncerHarness) -> None:
    here.editor.change([host(1), *map(endpoint, range(20))], who="alice")
    term = asyncio.run(here.settled())
    here.editor.change([endpoint(number, on="r2") for number in range(20)], who="alice")
    inventory: Any = here.inventory
    for name in ("outbox", "read_keys", "find_all", "witness", "settle", "mark"):
        setattr(inventory, name, _slow(here, getattr(inventory, name)))
    assert longest_silence(here, term) < STALLED


def _slow(here: SyncerHarness, call: Callable[..., Any]) -> Callable[..., Any]:
    def slowly(*args: Any, **kwargs: Any) -> Any:
        here.clock.advance(SLOW)
        return call(*args, **kwargs)

    return slowly
