"""Cooperative work gives the same result at once and in turns."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.runtime.cooperative import Steps, at_once, in_turns, listed


def counting(upto: int, said: list[str]) -> Steps[int]:
    try:
        for number in range(upto):
            said.append(f"step {number}")
            yield
    except GeneratorExit:
        said.append("abandoned")
        raise
    return upto


def test_at_once_gives_what_came_of_it() -> None:
    said: list[str] = []
    assert at_once(counting(2, said)) == 2
    assert said == ["step 0", "step 1"]


def test_in_turns_others_run_after_every_step() -> None:
    said: list[str] = []

    async def other() -> None:
        for _ in range(2):
            said.append("other")
            await asyncio.sleep(0)

    async def scene() -> int:
        beside = asyncio.create_task(other())
        made = await in_turns(counting(2, said))
        await beside
        return made

    assert asyncio.run(scene()) == 2
    assert said == ["step 0", "other", "step 1", "other"]


def test_work_that_is_cancelled_stops_at_once() -> None:
    said: list[str] = []

    async def scene() -> None:
        work = asyncio.create_task(in_turns(counting(9, said)))
        await asyncio.sleep(0)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(scene())
    assert said == ["step 0", "abandoned"]


def test_what_goes_wrong_in_a_step_goes_wrong_for_whoever_waits() -> None:
    def failing() -> Steps[None]:
        yield
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        at_once(failing())
    with pytest.raises(ValueError, match="no"):
        asyncio.run(in_turns(failing()))


def test_a_long_list_is_collected_in_steps_and_after_each_there_is_progress() -> None:
    progress: list[int] = []
    made = asyncio.run(in_turns(listed(iter(range(1_700))), lambda: progress.append(1)))
    assert made == list(range(1_700))
    assert len(progress) == 3
