"""Worker: one fresh process with one job, started by a supervisor (`python -m holdfast.runtime.daemon`).

The heartbeat runs on the event loop of the job, so a blocked loop has no heartbeat. The kernel kills the process when
its supervisor dies; the process ends by itself when the supervisor has been silent for too long. No task fails
silently: an uncaught exception ends the process, and the supervisor starts a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol, cast

import structlog

from holdfast.config.root import Config, digest, restore
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.runtime.clock import Clock, SystemClock
from holdfast.runtime.control import ControlServer, Handler, Request, Who
from holdfast.runtime.daemon.board import Board
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.daemon.process import die_with, name_process
from holdfast.runtime.daemon.pulse import Pulse, was_suspended
from holdfast.runtime.daemon.vitals import Vitals
from holdfast.runtime.decision_log import DecisionLog
from holdfast.runtime.log import setup_logging
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.runtime.paths import RolePaths

log = structlog.get_logger(__name__)

BEAT = 0.5
_DRAIN = 0.6  # share of the grace period for draining; the rest is for resigning and closing
_ABANDONED = 75
_UNFINISHED = 71
_RETURNED = 70


@dataclass(frozen=True, slots=True)
class Spec:
    """Declaration of a worker in a role."""

    name: str
    entry: str
    """`module:function`; the function is `async def run(worker: Worker) -> None`."""
    once: bool = False
    """A one-shot job, complete when the function returns."""


class Job(Protocol):
    def __call__(self, worker: Worker) -> Awaitable[None]: ...


class Worker:
    """Process environment of a job: its configuration, clock, vitals, metrics, decision log, stop and reload events."""

    def __init__(self, spec: Spec, role: str, paths: RolePaths, config: Config, clock: Clock, board: Board) -> None:
        self.name = spec.name
        self.role = role
        self.paths = paths
        self.config = config
        self.clock = clock
        self.board = board
        self.vitals = Vitals(clock)
        self.vitals.config = digest(config)
        self.metrics = WorkerMetrics()
        self.decisions = DecisionLog(paths.decisions, f"{role}.{spec.name}", ring=config.log.decisions_size)
        self.stopping = asyncio.Event()
        self.reloaded = asyncio.Event()
        self.handlers: dict[str, Handler] = {"metrics": self._metrics}
        """Commands on the worker's control socket; the job adds its own."""

    @property
    def context(self) -> Context:
        return Context(self.clock, self.vitals, self.decisions, self.metrics)

    async def stopped(self, most: Duration) -> bool:
        """Sleep that long, or until the worker must stop; returns True when it must."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(most.total_seconds()):
                await self.stopping.wait()
        return self.stopping.is_set()

    async def _metrics(self, _request: Request, _who: Who) -> str:
        return self.metrics.text()

    def reload(self) -> None:
        """Read the configuration that the supervisor has checked and written."""
        self.config = restore(self.paths.config.read_bytes())
        setup_logging(self.config.log, role=self.role, worker=self.name)
        self.vitals.config = digest(self.config)
        self.reloaded.set()
        log.info("configuration reloaded", worker=self.name)

    def catch_up(self) -> None:
        """Apply a reload that came before the first pulse; the supervisor signals only workers with a pulse."""
        if restore(self.paths.config.read_bytes()) != self.config:
            self.reload()


class Heartbeat:
    """Writes the pulse twice a second, and watches the supervisor in return."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._pulse = worker.board.cell(worker.name, Pulse)
        self._supervisor = worker.board.cell("supervisor", Pulse)
        self._last = worker.clock.now()  # a suspend before the first check counts as well
        self._resumed = NEVER

    def beat(self) -> Instant:
        now = self._worker.clock.now()
        pulse = self._worker.vitals.pulse(os.getpid(), now)
        self._pulse.write(pulse)
        self._worker.metrics.backlog.set(pulse.backlog or 0)
        self._worker.metrics.lag.set((now - pulse.oldest).total_seconds() if pulse.oldest else 0)
        return now

    async def run(self) -> None:
        """Beat until the supervisor hangs."""
        while not self._abandoned(self.beat()):
            due = asyncio.get_running_loop().time() + BEAT
            await asyncio.sleep(BEAT)
            self._worker.metrics.loop_lag.set(max(0.0, asyncio.get_running_loop().time() - due))

    def _abandoned(self, now: Instant) -> bool:
        """True when the supervisor hangs. Its silence counts from the last resume: a suspend stops both processes."""
        bounds = self._worker.config.runtime
        if was_suspended(self._last, now, bounds):
            self._resumed = now
        self._last = now
        supervisor = self._supervisor.read()
        return supervisor is not None and now - max(supervisor.beat, self._resumed) > bounds.supervisor_silent_after


async def run_job(worker: Worker, job: Job, supervisor: int, *, once: bool) -> int:
    """Run the job beside its heartbeat. Returns the exit code."""
    _handle_signals(worker)
    starting = worker.vitals.is_starting
    async with ControlServer(
        worker.paths.socket(worker.name), worker.handlers, trusted=supervisor, is_starting=starting
    ):
        heartbeat = Heartbeat(worker)
        heartbeat.beat()
        worker.catch_up()
        beating = asyncio.create_task(heartbeat.run(), name="heartbeat")
        work = asyncio.ensure_future(job(worker))
        stop = asyncio.create_task(worker.stopping.wait(), name="stop")
        await asyncio.wait({beating, work, stop}, return_when=asyncio.FIRST_COMPLETED)
        if beating.done():
            beating.result()
            log.error("no heartbeat from the supervisor; worker exits", worker=worker.name, supervisor_pid=supervisor)
            worker.stopping.set()
        if not work.done():
            await _drain(worker, work)
        beating.cancel()
        stop.cancel()
        worker.decisions.close()
        if beating.done() and not beating.cancelled():
            return _ABANDONED
        return _exit_code(worker, work, once=once)


async def _drain(worker: Worker, work: asyncio.Future[None]) -> None:
    """Give the job a bounded time to finish its current work, then cancels it."""
    most = (_DRAIN * worker.config.runtime.term_grace).total_seconds()
    done, _ = await asyncio.wait({work}, timeout=most)
    if not done:
        log.warning("job cancelled; it resumes at the next start", worker=worker.name, after_s=most)
        work.cancel()
        await asyncio.wait({work})


def _exit_code(worker: Worker, work: asyncio.Future[None], *, once: bool) -> int:
    if work.cancelled():
        return _UNFINISHED if once else 0
    work.result()
    if once or worker.stopping.is_set():
        return 0
    log.error("job returned although the worker was not stopping", worker=worker.name)
    return _RETURNED


def _handle_signals(worker: Worker) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, worker.stopping.set)
    loop.add_signal_handler(signal.SIGHUP, worker.reload)
    loop.set_exception_handler(_on_task_error)


def _on_task_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """End the process when a task fails unnoticed: data would silently get hours old (C3)."""
    log.error("task failed; the process ends", why=context.get("message"), exc_info=context.get("exception"))
    os._exit(_RETURNED)


def load(entry: str) -> Job:
    module, _, function = entry.partition(":")
    return cast("Job", getattr(importlib.import_module(module), function))


def main(arguments: list[str]) -> int:
    role, name, entry, folder, parent = arguments[:5]
    if not die_with(int(parent)):
        return _ABANDONED
    name_process(f"hf:{name}")
    runtime = Path(folder)
    config = restore((runtime / f"{role}.json").read_bytes())
    setup_logging(config.log, role=role, worker=name)
    paths = RolePaths(role, runtime, Path(config.paths.state))
    spec = Spec(name, entry, once="--once" in arguments[5:])
    try:
        return asyncio.run(_run(spec, role, paths, config, int(parent)))
    except Exception:
        log.exception("worker failed", worker=name)
        return 1


async def _run(spec: Spec, role: str, paths: RolePaths, config: Config, supervisor: int) -> int:
    worker = Worker(spec, role, paths, config, SystemClock(), Board.open(paths.board))
    return await run_job(worker, load(spec.entry), supervisor, once=spec.once)


def leave(code: int) -> NoReturn:
    """End the process without interpreter shutdown, which takes up to 0.1 s: workers stop one after another, the
    elector last, and the next leader waits for all of them."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
