"""Several works of one reign, side by side: when one ends, or fails, all end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any


async def until_first(works: Mapping[str, Coroutine[Any, Any, None]]) -> None:
    """Until the first ends. Raises what it raised, as it is (`Deposed` must be recognised); cancels the others."""
    tasks = [asyncio.create_task(work, name=name) for name, work in works.items()]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
