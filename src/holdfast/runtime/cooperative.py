"""Long work in steps: written once, done at once where nobody waits, or in turns with all others in an event loop.

The work is a generator: it yields where others may run, after a millisecond or two of work, and returns what came of
it. What a step is depends on the amount of work and never on a clock, so a simulation takes the same steps each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]


def at_once(steps: Steps[T]) -> T:
    """All of it, now."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


async def in_turns(steps: Steps[T]) -> T:
    """All of it, while others run. Cancelled, it ends at its last step, which hears of it as `GeneratorExit`."""
    try:
        while True:
            next(steps)
            await asyncio.sleep(0)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()
