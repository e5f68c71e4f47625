"""Blocking calls beside the event loop: the database must not hold up the heartbeat."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class RunInThread(Protocol):
    """Makes a blocking call where it may block. Calls are made one after the other."""

    async def __call__(self, call: Callable[[], T]) -> T: ...


class DatabaseThread:
    """One thread for one caller: its calls keep their order, and a snapshot stays on the thread that opened it."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def __call__(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)
