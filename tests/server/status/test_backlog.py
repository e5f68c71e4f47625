"""Reports pour in while the database crawls: what waits is bounded by the hosts, the last state of each is right."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import pytest
from structlog.testing import capture_logs

from holdfast.model.base.time import Duration, seconds
from holdfast.model.calico.agent_status import AGENT_STATUS, AgentStatus
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.reconciler.dirty import Dirty
from holdfast.server.status.rules.staleness import Staleness
from tests.server.harness import HandClock, StatusHarness, agent_key, status_harness

T = TypeVar("T")
CRAWL_S = 0.4


class Patient:
    async def wait(self, most: Duration) -> None:
        await asyncio.sleep(most.total_seconds())

    async def close(self) -> None:
        return None


class CrawlingDatabase:
    """Takes its time for every call, and answers none before the worker has warned that it is behind.

    The wait for the warning keeps the test independent of speed: a fast machine reports everything before the first
    report is old.
    """

    def __init__(self) -> None:
        self.warned = asyncio.Event()

    async def __call__(self, call: Callable[[], T]) -> T:
        await asyncio.sleep(CRAWL_S)
        await self.warned.wait()
        return call()


@pytest.mark.parametrize(("hosts", "updates"), [(200, 5_000), pytest.param(2_000, 1_000_000, marks=pytest.mark.soak)])
def test_however_many_reports_come_one_per_host_waits_and_the_last_one_is_written(
    tmp_path: Path, hosts: int, updates: int
) -> None:
    with status_harness(tmp_path) as here, capture_logs() as logs:
        peak, wrong = asyncio.run(pour(here, hosts, updates))
    assert peak <= hosts + 1, "more waits than there are objects"
    assert wrong == []
    warnings = [one for one in logs if one["event"] in ("status is behind", "report is stale")]
    assert warnings
    assert all(one["cause"] == "our backlog" and {"revisions_behind", "waiting"} <= one.keys() for one in warnings)


async def pour(here: StatusHarness, hosts: int, updates: int) -> tuple[int, list[str]]:
    here.clock = SystemClock()  # type: ignore[assignment]
    async with here.agents() as working:
        term, peak, database = working.term, 0, CrawlingDatabase()
        await working.turn()
        staleness = Staleness(stale_after=seconds(0.3), warn_every=seconds(0.1))
        term.staleness = term.feed._staleness = staleness
        term._waker = Patient()
        term.target._run_in_thread = database

        def check() -> None:
            term.check()
            if staleness.last is not None:
                database.warned.set()

        running = asyncio.create_task(term.run(asyncio.Event()))
        last: dict[str, bytes] = {}
        for number in range(updates):
            host = f"r{number % hosts}"
            last[host] = AGENT_STATUS.encode(AgentStatus(uptime=float(number)))
            await here.world.put(agent_key(host), last[host])
            if number % 100 == 0:
                peak = max(peak, term.backlog())
                check()
                await asyncio.sleep(0)
            if number % 20_000 == 0:
                here.fake.history.clear()  # the store's memory is not what is tested
                here.fake.compact()
        async with asyncio.timeout(60):
            while term.backlog() or _unwritten(here, last):
                peak = max(peak, term.backlog())
                check()
                await asyncio.sleep(0.05)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return peak, _unwritten(here, last)


def _unwritten(here: StatusHarness, last: Mapping[str, bytes]) -> list[str]:
    """Hosts whose last report is not in the inventory."""
    rows = here.rows("agent")
    return [host for host, value in last.items() if _uptime(value) not in rows.get(agent_key(host), b"")]


def _uptime(value: bytes) -> bytes:
    return value[value.index(b'"uptime"') :].partition(b",")[0].rstrip(b"}")


def test_a_report_keeps_its_age_on_its_way_through_the_feed_and_the_loop(tmp_path: Path) -> None:
    async def scenario(here: StatusHarness) -> list[float]:
        async with here.agents() as working:
            await working.turn()
            ages: list[float] = []
            term = working.term
            term.feed._since = here.clock.now()  # as `listen` sets it
            await here.report("r1")
            await working.receive()

            async def slow(call: Callable[[], T]) -> T:
                here.clock.advance(seconds(20))
                ages.append(term.behind().oldest.total_seconds())
                return call()

            term.target._run_in_thread = slow
            here.clock.advance(seconds(40))
            ages.append(term.behind().oldest.total_seconds())
            await term.reconciler.turn()
            return [*ages, term.behind().oldest.total_seconds()]

    with status_harness(tmp_path) as here:
        assert asyncio.run(scenario(here)) == [40, 60, 0]


def test_keys_that_are_put_back_are_older_than_those_marked_meanwhile() -> None:
    clock = HandClock()
    dirty: Dirty[int] = Dirty(clock)
    dirty.mark([1])
    taken = dirty.take()
    clock.advance(seconds(30))
    dirty.mark([2])
    dirty.mark(taken.keys, taken.since)
    assert clock.now() - dirty.oldest() == seconds(30)
    dirty.take()
    assert not dirty.oldest()
