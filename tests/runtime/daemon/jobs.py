"""Jobs of workers that misbehave when they are told to: by a file in the state folder, which they take away."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from holdfast.model.base.time import NEVER, Instant, seconds
from holdfast.runtime.daemon.pulse import Pulse
from holdfast.runtime.daemon.worker import Worker

log = structlog.get_logger(__name__)


def order_file(state: Path, worker: str) -> Path:
    return state / f"{worker}.do"


def _order(worker: Worker) -> str:
    path = order_file(worker.paths.state, worker.name)
    try:
        order = path.read_text()
    except FileNotFoundError:
        return ""
    path.unlink()
    return order


async def steady(worker: Worker) -> None:
    """Does nothing, well; and what it is told."""
    while not await worker.stopped(seconds(0.05)):
        order = _order(worker)
        if order:
            ORDERS[order](worker)
    log.info(f"{worker.name} stops")


def _crash(_worker: Worker) -> None:
    raise RuntimeError("told to crash")


def _loop(_worker: Worker) -> None:
    while True:
        pass


def _neglect(worker: Worker) -> None:
    worker.vitals.duty = worker.clock.now() + seconds(0.2)


def _overdue(worker: Worker) -> None:
    worker.vitals.audit = worker.clock.now() + seconds(0.2)


def _stall(worker: Worker) -> None:
    worker.vitals.consumes(Heap(5))


def _lose_a_task(_worker: Worker) -> None:
    async def die() -> None:
        raise RuntimeError("nobody awaits me")

    asyncio.get_running_loop().create_task(die())


ORDERS: dict[str, Callable[[Worker], None]] = {
    "exit": lambda _worker: os._exit(3),
    "crash": _crash,
    "loop": _loop,
    "neglect": _neglect,
    "overdue": _overdue,
    "stall": _stall,
    "lose a task": _lose_a_task,
}


class Heap:
    """Work that nobody does."""

    def __init__(self, size: int) -> None:
        self._size = size

    def backlog(self) -> int:
        return self._size

    def oldest(self) -> Instant:
        return NEVER


async def crashing(_worker: Worker) -> None:
    raise RuntimeError("cannot run")


async def finishing(worker: Worker) -> None:
    """A one-shot job."""
    with (worker.paths.state / "finished").open("a") as file:
        file.write("done\n")


async def hanging_once(worker: Worker) -> None:
    """A one-shot job that waits for ever, for a queue that nobody fills, until a file lets it finish."""
    worker.vitals.consumes(Heap(1))
    while not (worker.paths.state / "finish").exists():  # noqa: ASYNC110
        await asyncio.sleep(0.05)


async def waiting(worker: Worker) -> None:
    """Tries again and again; its database is away."""
    worker.vitals.consumes(Heap(3))
    while not await worker.stopped(seconds(0.1)):
        worker.vitals.attempted(success=False, state="waiting: database")


async def dragging(worker: Worker) -> None:
    """Does not care for being told to stop; it can only be cancelled."""
    log.info(f"{worker.name} runs")
    await asyncio.Event().wait()


async def unending(worker: Worker) -> None:
    """Works for ever, and blocks its loop as soon as it is told to stop."""
    await worker.stopping.wait()
    time.sleep(3_600)  # noqa: ASYNC251


async def telling(worker: Worker) -> None:
    """Tells which configuration it runs with."""
    log.info(f"{worker.name} runs with level {worker.config.log.level}")
    while not await worker.stopped(seconds(0.05)):
        if worker.reloaded.is_set():
            worker.reloaded.clear()
            log.warning(f"{worker.name} changed to level {worker.config.log.level}")


def last_success(pulse: Pulse) -> Instant:
    """Stands in for the protection of C25: only success counts as a sign of life."""
    return pulse.success
