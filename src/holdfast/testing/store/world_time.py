"""Running something as the world does it, not as the simulated node that happens to be calling.

The virtual loop marks every callback and timer with the node that made it, by the context it carries. What travels on
the network or happens in the store must carry no such mark: it goes on while the node is paused, and after its death.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def outside(function: Callable[[], T]) -> T:
    """Calls `function` outside any node; timers and tasks that it makes belong to no node either."""
    return contextvars.Context().run(function)


def world_time() -> float:
    """Seconds on the clock of the running loop as no node sees it; without a loop, the machine's own clock."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return time.monotonic()
    return outside(loop.time)


def later(delay: float, action: Callable[[], None]) -> asyncio.Handle:
    """Runs `action` outside any node after `delay` seconds, in the order of the calls when there is no delay."""
    loop = asyncio.get_running_loop()
    if delay <= 0:
        return outside(lambda: loop.call_soon(action))
    return outside(lambda: loop.call_later(delay, action))
