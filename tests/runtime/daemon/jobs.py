"""Jobs that misbehave on demand: a test writes a file into the state folder, and the job deletes it."""

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
    """Idles, and misbehaves on demand."""
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
    """A queue whose work is never done."""

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
    """A one-shot job that waits for an empty queue until a file lets it complete."""
    worker.vitals.consumes(Heap(1))
    while not (worker.paths.state / "finish").exists():  # noqa: ASYNC110
        await asyncio.sleep(0.05)


async def waiting(worker: Worker) -> None:
    """Retries for ever: its database is unreachable."""
    worker.vitals.consumes(Heap(3))
    while not await worker.stopped(seconds(0.1)):
        worker.vitals.attempted(success=False, state="waiting: database")


async def dragging(worker: Worker) -> None:
    """Ignores the stop event; it can only be cancelled."""
    log.info(f"{worker.name} runs")
    await asyncio.Event().wait()


async def unending(worker: Worker) -> None:
    """Runs for ever, and blocks its event loop once it must stop."""
    await worker.stopping.wait()
    time.sleep(3_600)  # noqa: ASYNC251


async def telling(worker: Worker) -> None:
    """Logs the configuration it runs with."""
    log.info(f"{worker.name} runs with level {worker.config.log.level}")
    while not await worker.stopped(seconds(0.05)):
        if worker.reloaded.is_set():
            worker.reloaded.clear()
            log.warning(f"{worker.name} changed to level {worker.config.log.level}")


def last_success(pulse: Pulse) -> Instant:
    """Stands in for the protection of C25: only success counts as a sign of life."""
    return pulse.success
