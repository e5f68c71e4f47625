"""Cooperative work: long computations as generators, run at once or interleaved with other tasks of an event loop.

The generator yields after a millisecond or two of work, where other tasks may run, and returns the result. A step is
an amount of work, never a duration, so that a simulation takes the same steps each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]


LISTED_AT_A_TIME = 500


def listed(items: Iterable[T]) -> Steps[list[T]]:
    """Collect items whose computation takes long."""
    found: list[T] = []
    for at, item in enumerate(items, 1):
        found.append(item)
        if at % LISTED_AT_A_TIME == 0:
            yield
    return found


def at_once(steps: Steps[T]) -> T:
    """Run all steps now."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


async def in_turns(steps: Steps[T], after_step: Callable[[], object] = bool) -> T:
    """Run all steps, letting other tasks run in between. A cancellation reaches the generator as `GeneratorExit`.
    `after_step` is called after each, such as to show that there is progress."""
    try:
        while True:
            next(steps)
            after_step()
            await asyncio.sleep(0)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()
