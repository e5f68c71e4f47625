"""Our own watch or clock is late: no host is blamed for it (C51)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from holdfast.model.base.time import Duration, seconds
from holdfast.server.status.rules.staleness import Cause
from holdfast.testing.fault import fault
from tests.inventory.harness import host
from tests.server.harness import HandClock, StatusHarness, status_harness

NAMES = [f"r{number}" for number in range(1, 11)]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[StatusHarness]:
    with status_harness(tmp_path) as made:
        made.editor.change([host(number) for number in range(1, len(NAMES) + 1)], who="alice")
        yield made


class SteppedClock(HandClock):
    """Wall clock that somebody has set."""

    off = Duration(0)

    def wall(self) -> datetime:
        return super().wall() + self.off


def blamed(counted: Mapping[Cause, int]) -> set[Cause]:
    return {cause for cause, count in counted.items() if count}


@fault(
    "C51",
    without="holdfast.server.status.rules.staleness:is_shared",
    returns=False,
    sees=(AssertionError, r"blamed\(staleness.counted\) == \{Cause.SERVER\}"),
)
def test_C51_reports_that_our_watch_delivered_late_are_nobody_elses_fault(here: StatusHarness) -> None:
    """Nothing waits here: the reports lay in the stream while this process, or the member, stood still."""

    async def scenario() -> None:
        async with here.agents() as working:
            for name in NAMES:
                await here.report(name)
            await working.turn()
            here.clock.advance(seconds(400))
            for number, name in enumerate(NAMES):
                await here.report(name, ago=390 - number)
                await working.turn()
            staleness = working.term.staleness
            assert blamed(staleness.counted) == {Cause.SERVER}
            assert not staleness.delays

    with capture_logs() as logs:
        asyncio.run(scenario())
    (warning,) = [one for one in logs if one["event"] == "report is stale"]
    assert warning["cause"] == Cause.SERVER.value


@fault(
    "C51",
    without="holdfast.server.status.rules.staleness:is_shared",
    returns=False,
    sees=(AssertionError, r"blamed\(staleness.counted\) == \{Cause.SERVER\}"),
)
def test_C51_the_clock_of_this_server_is_set_forward_and_no_host_is_blamed(here: StatusHarness) -> None:
    here.clock = clock = SteppedClock()

    async def scenario() -> None:
        async with here.agents() as working:
            for name in NAMES:
                await here.report(name)
            await working.turn()
            clock.off = seconds(3_600)
            for _ in range(3):
                for name in NAMES:
                    clock.advance(seconds(3))
                    await here.report(name, ago=3_600)
                    await working.turn()
            staleness = working.term.staleness
            assert blamed(staleness.counted) == {Cause.SERVER}
            assert staleness.skews() == {}
            assert staleness.own_offset() == seconds(3_600)

    asyncio.run(scenario())


def test_one_host_with_a_wrong_clock_is_still_named(here: StatusHarness) -> None:
    async def scenario() -> None:
        async with here.agents() as working:
            for _ in range(3):
                for name in NAMES:
                    here.clock.advance(seconds(3))
                    await here.report(name, ago=3_600 if name == "r3" else 0)
                    await working.turn()
            staleness = working.term.staleness
            assert blamed(staleness.counted) == {Cause.AGENT, Cause.CLOCK}
            assert staleness.skews() == {"r3": seconds(-3_600)}
            assert staleness.own_offset() == Duration(0)

    asyncio.run(scenario())


def test_a_new_leader_with_a_wrong_clock_blames_nobody_either(here: StatusHarness) -> None:
    """What a list shows is no reason for a warning, but it tells whose clock is off."""

    async def scenario() -> None:
        for name in NAMES:
            await here.report(name, ago=3_600)
        async with here.agents() as working:
            await working.turn()
            await here.report("r1", ago=3_599)
            await working.turn()
            assert blamed(working.term.staleness.counted) == {Cause.SERVER}

    asyncio.run(scenario())
