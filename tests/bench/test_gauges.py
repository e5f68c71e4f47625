"""The instruments show what they claim to show."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator

import msgspec
import pytest

from bench.benchmark import Unmeasurable
from bench.gauges import LoopBlock, PeakMemory, Stopwatch
from bench.parts import started
from holdfast.runtime.daemon.process import cpu_s


class Number(msgspec.Struct):
    value: int


async def countdown(start: Number) -> AsyncIterator[Number]:
    """A part that reports and, from a negative number, falls over."""
    print("a stray print is no report")  # noqa: T201 -- the fault that is to be seen
    for value in range(start.value, 0, -1):
        yield Number(value)
    if start.value < 0:
        os._exit(3)


async def memory_taken_and_freed(megabytes: Number) -> AsyncIterator[Number]:
    """A part that reports what its peak gauge shows of a block that is gone again."""
    memory = PeakMemory()
    block = bytearray(os.urandom(1)) * (megabytes.value << 20)
    del block
    yield Number(round(memory.growth_mb))


def test_a_stopwatch_counts_cpu_only_while_this_process_works() -> None:
    watch = Stopwatch()
    time.sleep(0.05)
    slept = watch.cpu_s
    while watch.cpu_s < slept + 0.05:
        pass
    assert watch.wall_s >= 0.1
    assert slept < 0.05


def test_the_cpu_of_a_process_is_what_the_kernel_counts_for_it() -> None:
    assert abs(cpu_s(os.getpid()) - time.process_time()) < 0.1


def test_freed_memory_still_counts_as_peak() -> None:
    """In a process of its own, as benchmarks do: what other tests left in this one grows and shrinks meanwhile."""

    async def scenario() -> float:
        async with started(memory_taken_and_freed, Number(256)) as part:
            return (await part.report()).value

    assert 224 < asyncio.run(scenario()) < 320


def test_a_callback_that_does_not_return_is_seen_as_a_blocked_loop() -> None:
    async def scenario() -> float:
        async with LoopBlock.watched() as block:
            await asyncio.sleep(0.01)
            time.sleep(0.1)  # noqa: ASYNC251 -- the fault that is to be seen
            await asyncio.sleep(0.01)
            return block.max_s

    assert asyncio.run(scenario()) >= 0.09


def test_a_part_reports_from_a_process_of_its_own() -> None:
    async def scenario() -> list[int]:
        async with started(countdown, Number(2)) as part:
            return [(await part.report()).value, (await part.report()).value]

    assert asyncio.run(scenario()) == [2, 1]


def test_a_part_that_fails_is_one_sentence() -> None:
    async def scenario() -> None:
        async with started(countdown, Number(-1)) as part:
            await part.report()

    with pytest.raises(Unmeasurable, match="countdown ended with status 3 before it was done"):
        asyncio.run(scenario())
