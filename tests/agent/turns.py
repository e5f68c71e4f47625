"""How often somebody else had a turn of the loop while something long was done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def turns_of_others() -> AsyncIterator[list[None]]:
    """Grows by one with each turn."""
    turns: list[None] = []

    async def other() -> None:
        while True:
            await asyncio.sleep(0)
            turns.append(None)

    beside = asyncio.create_task(other())
    try:
        yield turns
    finally:
        beside.cancel()
