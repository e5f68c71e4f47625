"""Agents that vanish: one is down at once; many at once are held, and held losses are no backlog."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from structlog.testing import capture_logs

from holdfast.model.base.time import seconds
from holdfast.model.fleet.observed import AgentSeen
from holdfast.server.status.commands import view
from holdfast.server.status.rules.staleness import Backlog, Cause
from tests.inventory.harness import host
from tests.reconcile.pauses import a_pause
from tests.server.harness import StatusHarness, Working, agent_key, status_harness

T = TypeVar("T")
FLEET = 20
NAMES = [f"r{number}" for number in range(1, FLEET + 1)]
HALF = NAMES[: FLEET // 2]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[StatusHarness]:
    with status_harness(tmp_path) as made:
        made.editor.change([host(number) for number in range(1, FLEET + 1)], who="alice")
        yield made


@contextlib.asynccontextmanager
async def all_alive(here: StatusHarness) -> AsyncIterator[Working[Any, AgentSeen]]:
    """A leader that has seen every host report; no two of them did at the same time."""
    for ago, name in enumerate(NAMES):
        await here.report(name, ago=ago)
    async with here.agents() as working:
        await working.turn()
        yield working


async def silence(here: StatusHarness, names: Iterable[str]) -> None:
    for name in names:
        await here.silence(name)


async def turns(working: Working[Any, AgentSeen], count: int) -> None:
    for _ in range(count):
        await working.turn()


def dead(here: StatusHarness) -> int:
    return sum(b'"alive":false' in doc for doc in here.rows("agent").values())


def test_many_agents_that_vanish_at_once_are_held(here: StatusHarness) -> None:
    async def scenario() -> str:
        async with all_alive(here) as working:
            await silence(here, HALF)
            await working.turn()
            return working.term.context.vitals.state

    assert asyncio.run(scenario()) == "held: mass_loss"
    assert dead(here) == 0


def test_a_loss_that_was_held_is_shown_with_the_time_at_which_it_happened(here: StatusHarness) -> None:
    async def scenario() -> list[float]:
        async with all_alive(here) as working:
            await silence(here, HALF)
            await working.turn()
            await here.report(NAMES[-1])
            await working.turn()
            here.clock.advance(seconds(40))
            await turns(working, 2)
            here.clock.advance(seconds(5))
            return [one["since_s"] for one in view(working.term)["silent"]]

    assert asyncio.run(scenario()) == [45.0] * len(HALF)


def test_the_hold_ends_when_another_agent_has_proven_that_the_store_lives(here: StatusHarness) -> None:
    async def scenario() -> list[int]:
        async with all_alive(here) as working:
            await silence(here, HALF)
            await working.turn()
            here.clock.advance(seconds(31))
            await working.turn()
            unproven = dead(here)
            await here.report(NAMES[-1])
            await working.turn()
            here.clock.advance(seconds(2))
            await turns(working, 2)  # the first of them finds the gate open
            return [unproven, dead(here)]

    assert asyncio.run(scenario()) == [0, len(HALF)]


def test_a_loss_that_no_watch_showed_is_held_as_well(here: StatusHarness) -> None:
    """The store was away, all leases ran out, and the server was restarted meanwhile."""

    async def scenario() -> None:
        async with all_alive(here):
            pass
        await silence(here, NAMES)
        async with here.agents() as working:
            await working.turn()

    asyncio.run(scenario())
    assert dead(here) == 0


@pytest.mark.parametrize("why", ["a hold", "a pause"])
def test_held_losses_are_no_backlog(here: StatusHarness, why: str) -> None:
    async def scenario() -> None:
        async with all_alive(here) as working:
            if why == "a pause":
                working.term.pause.pauses = (a_pause("alice", "maintenance", here.clock.now()),)
            await silence(here, NAMES)
            for _ in range(200):
                here.clock.advance(seconds(2))
                await working.turn()
            assert working.term.behind() == Backlog()
            assert working.term.backlog() == FLEET
            here.clock.advance(seconds(2))
            await here.report(NAMES[-1], ago=400)
            await working.turn()
            last = working.term.staleness.last
            assert last is not None
            assert last.cause is Cause.AGENT

    with capture_logs() as logs:
        asyncio.run(scenario())
    assert [one["event"] for one in logs if "backlog" in str(one["event"])] == []


def test_hosts_that_a_list_brought_back_are_held_when_they_vanish_again(here: StatusHarness) -> None:
    async def scenario() -> None:
        async with all_alive(here) as working:
            await silence(here, HALF)
            await working.turn()
            assert working.term.mass_loss.allow(here.clock.now()) == len(HALF)
            for _ in range(2):
                working.term.reconciler.dirty.mark_all()
                await working.turn()
            assert dead(here) == len(HALF)
            working.client.link.cut()
            await working.fill_mirror()
            for name in HALF:
                await here.report(name)
            here.fake.compact()
            working.client.link.lose_continuity()
            working.client.link.heal()
            await turns(working, 4)
            assert dead(here) == 0
            here.clock.advance(seconds(12))
            await silence(here, HALF)
            await working.turn()
            assert len(working.term.mass_loss.held) == len(HALF)
            assert dead(here) == 0

    asyncio.run(scenario())


def test_hosts_that_came_back_unreadable_are_held_when_they_vanish_together(here: StatusHarness) -> None:
    async def scenario() -> None:
        async with all_alive(here) as working:
            for name in HALF:
                await here.silence(name)
                await working.turn()
                here.clock.advance(seconds(60))
                await here.world.put(agent_key(name), b"what a later version writes")
                await turns(working, 3)
            assert dead(here) == 0
            await silence(here, HALF)
            await turns(working, 2)
            assert len(working.term.mass_loss.held) == len(HALF)

    asyncio.run(scenario())


def test_what_became_of_them_is_one_line_in_the_log(here: StatusHarness) -> None:
    async def scenario() -> None:
        async with all_alive(here) as working:
            await silence(here, NAMES[:4])
            await working.turn()

    with capture_logs() as logs:
        asyncio.run(scenario())
    applied = [one for one in logs if one["event"] == "changes applied" and one["op"] == "replace"]
    assert [(one["place"], one["keys"], one["values"]) for one in applied] == [
        ("agent-status", "4 (agent r1, agent r2, agent r3, and 1 more)", "alive → silent")
    ]


def test_a_loss_that_was_held_for_long_and_is_slow_to_be_written_is_a_backlog_only_since_its_release(
    here: StatusHarness,
) -> None:
    async def scenario() -> float:
        async with all_alive(here) as working:
            await silence(here, NAMES)
            for _ in range(300):
                here.clock.advance(seconds(2))
                await working.turn()
            working.term.mass_loss.allow(here.clock.now())
            ages: list[float] = []

            async def slow(call: Callable[[], T]) -> T:
                here.clock.advance(seconds(7))
                ages.append(working.term.behind().oldest.total_seconds())
                return call()

            working.term.target._run_in_thread = slow
            working.term.reconciler.dirty.mark([agent_key(name) for name in NAMES])
            await working.term.reconciler.turn()
            assert dead(here) == FLEET
            return max(ages)

    assert asyncio.run(scenario()) == 7


def test_hosts_that_the_inventory_does_not_know_are_neither_counted_nor_held(here: StatusHarness) -> None:
    strangers = [f"x{number}" for number in range(200)]

    async def scenario() -> None:
        async with all_alive(here) as working:
            for name in strangers:
                await here.report(name)
            await working.turn()
            assert len(here.rows("agent")) == FLEET + len(strangers)
            await silence(here, HALF)
            await turns(working, 2)
            assert len(working.term.mass_loss.held) == len(HALF), "200 strangers made half of the fleet a small part"
            await silence(here, strangers)
            await turns(working, 2)
            assert len(working.term.mass_loss.held) == len(HALF)
            assert len(here.rows("agent")) == FLEET

    asyncio.run(scenario())
