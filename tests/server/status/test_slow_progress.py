"""A database that crawls is no stall: every page and every transaction is an attempt (C48)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from holdfast.config.sections.pulse import PulseSettings
from holdfast.inventory.sql.observed import SqlObserved
from holdfast.model.base.time import Duration, seconds
from holdfast.runtime.daemon.pulse import PulseVerdict, WorkerSigns, worker_verdict
from holdfast.server.status.target import TransactionSize
from holdfast.testing.fault import fault
from tests.inventory.harness import host
from tests.server.harness import StatusHarness, Working, status_harness

T = TypeVar("T")
HOSTS = 200
PER_ROW = seconds(1.5)
"""All rows in one transaction would take five minutes."""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[StatusHarness]:
    with status_harness(tmp_path) as made:
        made.editor.change([host(number) for number in range(1, HOSTS + 1)], who="alice")
        yield made


class Crawl:
    """Database that takes its time for every row, while the supervisor looks at the worker's pulse every second."""

    def __init__(self, here: StatusHarness, working: Working[Any, Any]) -> None:
        self._here, self._working = here, working
        self._started = here.clock.now()
        self.took = Duration(0)
        self.verdicts: set[PulseVerdict] = set()
        working.term.target._run_in_thread = self

    async def __call__(self, call: Callable[[], T]) -> T:
        answer = call()
        assert isinstance(call, partial)
        self.pass_time(PER_ROW * _rows(call, answer))
        return answer

    def pass_time(self, duration: Duration) -> None:
        self.took += duration
        while duration > Duration(0):
            step = min(duration, seconds(1))
            self._here.clock.advance(step)
            self.verdicts.add(self.look())
            duration -= step

    def look(self) -> PulseVerdict:
        now = self._here.clock.now()
        pulse = self._working.term.context.vitals.pulse(1, now)
        return worker_verdict(WorkerSigns(self._started, pulse), PulseSettings(), now)


def _rows(call: partial[Any], answer: object) -> int:
    if call.func.__name__ == SqlObserved.write.__name__:
        return sum(map(len, call.args[2].values())) + len(call.args[3])
    assert isinstance(answer, list)
    return len(answer)


@fault(
    "C48",
    without="holdfast.server.status.target:ObservedTarget.note_attempt",
    sees=(AssertionError, "PulseVerdict.STALLED not in crawl.verdicts"),
)
def test_C48_a_write_of_minutes_in_small_transactions_is_not_taken_for_a_stall(here: StatusHarness) -> None:
    async def scenario() -> Crawl:
        async with here.agents() as working:
            await working.turn()
            for number in range(1, HOSTS + 1):
                await here.report(f"r{number}")
            await working.receive()
            working.term.target._size = TransactionSize(20, most=30)
            crawl = Crawl(here, working)
            await working.term.reconciler.turn()
            assert not working.term.backlog()
            return crawl

    crawl = asyncio.run(scenario())
    assert crawl.took >= seconds(300)
    assert PulseVerdict.STALLED not in crawl.verdicts


@fault(
    "C48",
    without="holdfast.server.status.target:ObservedTarget.note_attempt",
    sees=(AssertionError, "PulseVerdict.STALLED not in crawl.verdicts"),
)
def test_C48_a_pass_over_pages_of_seconds_is_not_taken_for_a_stall(here: StatusHarness) -> None:
    async def scenario() -> Crawl:
        async with here.agents() as working:
            await working.turn()
            working.term.target.page = 20
            crawl = Crawl(here, working)
            working.term.reconciler.dirty.mark_all()
            await here.report("r1")
            await working.receive()
            await working.term.reconciler.turn()
            return crawl

    crawl = asyncio.run(scenario())
    assert crawl.took >= seconds(300)
    assert PulseVerdict.STALLED not in crawl.verdicts


def test_a_call_that_never_ends_is_a_stall_after_a_minute(here: StatusHarness) -> None:
    async def scenario() -> tuple[PulseVerdict, PulseVerdict]:
        async with here.agents() as working:
            await working.turn()
            await here.report("r1")
            await working.receive()
            crawl = Crawl(here, working)
            crawl.look()  # the heartbeat after the report came
            crawl.pass_time(seconds(59))
            before = crawl.look()
            crawl.pass_time(seconds(2))
            return before, crawl.look()

    assert asyncio.run(scenario()) == (PulseVerdict.HEALTHY, PulseVerdict.STALLED)


def test_transactions_grow_while_they_are_quick_and_shrink_when_they_are_slow() -> None:
    size = TransactionSize()
    for _ in range(10):
        size = size.after(seconds(0.1))
    assert size.rows == 5_000
    assert size.after(seconds(3)).rows == 5_000
    for _ in range(20):
        size = size.after(seconds(10))
    assert size.rows == 10


def test_a_first_transaction_takes_seconds_where_all_rows_would_take_minutes() -> None:
    per_row = seconds(60) / 5_000
    assert TransactionSize().rows * per_row < seconds(10)
