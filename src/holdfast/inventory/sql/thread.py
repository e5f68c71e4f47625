"""Runs blocking calls in a thread: the database must not block the event loop and its heartbeat.

A protocol of its own, because simulations replace the thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class RunInThread(Protocol):
    """Runs blocking calls outside the event loop, one after the other."""

    async def __call__(self, call: Callable[[], T]) -> T: ...


class DatabaseThread:
    """One thread per caller: calls keep their order, and a snapshot stays on the thread that opened it."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def __call__(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)


class NotedCalls:
    """Calls `done` after each call that was answered."""

    def __init__(self, run_in_thread: RunInThread, done: Callable[[], None]) -> None:
        self._run_in_thread = run_in_thread
        self._done = done

    async def __call__(self, call: Callable[[], T]) -> T:
        result = await self._run_in_thread(call)
        self._done()
        return result
