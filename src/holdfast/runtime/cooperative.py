"""Cooperative work: long computations as generators, run at once or interleaved with other tasks of an event loop.

The generator yields after a millisecond or two of work, where other tasks may run, and returns the result. A step is
an amount of work, never a duration, so that a simulation takes the same steps each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]


def at_once(steps: Steps[T]) -> T:
    """Run all steps now."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


async def in_turns(steps: Steps[T]) -> T:
    """Run all steps, letting other tasks run in between. A cancellation reaches the generator as `GeneratorExit`."""
    try:
        while True:
            next(steps)
            await asyncio.sleep(0)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()
