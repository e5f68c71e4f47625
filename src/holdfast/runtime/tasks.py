"""Concurrent tasks of one term: when one ends or fails, all end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any


async def until_first(named: Mapping[str, Coroutine[Any, Any, None]]) -> None:
    """Run the tasks until the first ends, then cancels the others. Raises its exception as it is, not in a group:
    callers match on it (`Deposed`)."""
    tasks = [asyncio.create_task(work, name=name) for name, work in named.items()]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
