"""Writes whose answer was lost: the rows are read again before anything is compared with them (C47)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from holdfast.inventory.api import DatabaseAway
from holdfast.model.base.time import seconds
from holdfast.model.calico.endpoint_status import EndpointState
from holdfast.testing.fault import fault
from tests.inventory.harness import endpoint, host
from tests.server.harness import StatusHarness, Working, status_harness, status_key

T = TypeVar("T")
ACTIVE, DOWN = b'{"status":"ACTIVE"}', b'{"status":"DOWN"}'


@pytest.fixture
def here(tmp_path: Path) -> Iterator[StatusHarness]:
    with status_harness(tmp_path) as made:
        made.editor.change([host(1), endpoint(1, on="r1"), endpoint(2, on="r1")], who="alice")
        yield made


async def all_up(here: StatusHarness, working: Working[Any, Any]) -> None:
    await here.report("r1")
    for number in (1, 2):
        await here.say(number, EndpointState.UP)
    await working.turn()
    assert set(here.rows("endpoint").values()) == {ACTIVE}


def lose_answers(working: Working[Any, Any], *, committed: bool, count: int = 1) -> list[int]:
    """Lose the answers of the next calls to the database, after or before they took effect. Returns those lost."""
    run, lost = working.term.target._run_in_thread, list[int]()

    async def losing(call: Callable[[], T]) -> T:
        if len(lost) < count:
            lost.append(1)
            if committed:
                call()
            raise DatabaseAway("server closed the connection unexpectedly")
        return await run(call)

    working.term.target._run_in_thread = losing
    return lost


@fault(
    "C47",
    without="holdfast.server.status.target:ObservedTarget._note_uncertain",
    sees=(AssertionError, r'here.rows\("endpoint"\)\[status_key\(1\)\] == ACTIVE'),
)
def test_C47_a_value_that_changed_back_after_a_lost_answer_is_written_again(here: StatusHarness) -> None:
    async def scenario() -> None:
        async with here.endpoints() as working:
            await all_up(here, working)
            await here.say(1, EndpointState.DOWN)
            lose_answers(working, committed=True)
            await working.turn()
            assert working.term.context.vitals.state == "waiting: database"
            assert here.rows("endpoint")[status_key(1)] == DOWN, "the scenario needs a write that was committed"
            await here.say(1, EndpointState.UP)
            await working.turn()
            assert here.rows("endpoint")[status_key(1)] == ACTIVE

    asyncio.run(scenario())


@fault(
    "C47",
    without="holdfast.server.status.target:ObservedTarget._note_uncertain",
    sees=(AssertionError, r'len\(here.rows\("agent"\)\) == 2'),
)
def test_C47_a_row_that_was_removed_without_an_answer_is_made_again(here: StatusHarness) -> None:
    async def scenario() -> None:
        async with here.agents() as working:
            await here.report("unknown")
            await working.turn()
            assert len(here.rows("agent")) == 2
            await here.silence("unknown")
            lose_answers(working, committed=True)
            await working.turn()
            assert len(here.rows("agent")) == 1, "the scenario needs a delete that was committed"
            await here.report("unknown")
            await working.turn()
            assert len(here.rows("agent")) == 2

    asyncio.run(scenario())


@pytest.mark.parametrize("committed", [True, False])
def test_the_rest_is_not_read_again_and_a_lost_write_is_repeated(here: StatusHarness, committed: bool) -> None:
    async def scenario() -> int:
        async with here.endpoints() as working:
            await all_up(here, working)
            await here.say(2, EndpointState.DOWN)
            lose_answers(working, committed=committed)
            await working.turn()
            before = working.term.target.writes
            await working.turn()
            assert here.rows("endpoint") == {status_key(1): ACTIVE, status_key(2): DOWN}
            return working.term.target.writes - before

    assert asyncio.run(scenario()) == (0 if committed else 1)


def test_a_database_that_stays_away_leaves_the_write_uncertain_until_it_is_back(here: StatusHarness) -> None:
    async def scenario() -> None:
        async with here.endpoints() as working:
            await all_up(here, working)
            await here.say(1, EndpointState.DOWN)
            lose_answers(working, committed=True, count=4)
            for _ in range(4):
                await working.turn()
                await here.say(1, EndpointState.UP)
                here.clock.advance(seconds(5))
            assert here.rows("endpoint")[status_key(1)] == DOWN
            await working.turn()
            assert here.rows("endpoint")[status_key(1)] == ACTIVE

    asyncio.run(scenario())


def test_an_audit_reads_uncertain_rows_like_all_others(here: StatusHarness) -> None:
    async def scenario() -> None:
        async with here.endpoints() as working:
            await all_up(here, working)
            await here.say(1, EndpointState.DOWN)
            lose_answers(working, committed=True)
            await working.turn()
            await here.say(1, EndpointState.UP)
            working.term.reconciler.dirty.mark_all()
            await working.turn()
            assert here.rows("endpoint")[status_key(1)] == ACTIVE
            assert not working.term.target._uncertain

    asyncio.run(scenario())
