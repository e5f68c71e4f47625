"""A daemon of a simulated machine: the shipped supervisor, and workers in the shipped frame with shipped jobs.

What a kernel does stands here: start a process, send it a signal, say how it ended. Checks, backoff, pulses, the drain
at the end and exit codes are those of `holdfast.runtime.daemon`.
"""

from __future__ import annotations

import asyncio
import contextvars
import signal
from collections.abc import Sequence
from typing import Any, cast

from holdfast.config.root import Config, restore
from holdfast.runtime.daemon.board import Board
from holdfast.runtime.daemon.supervisor import SupervisedWorker, Supervisor
from holdfast.runtime.daemon.worker import Spec, Worker, load, run_job
from holdfast.runtime.paths import RolePaths
from holdfast.testing.sim.machine import FIRST_PID, SimMachine
from holdfast.testing.sim.nodes import Node, SimProcess

KILLED = -int(signal.SIGKILL)
EXIT_CRASHED = 1


class SimChild:
    """One process of a daemon, as `subprocess.Popen` shows it."""

    def __init__(self, node: Node, process: SimProcess) -> None:
        self.pid = FIRST_PID + process.number
        self.returncode: int | None = None
        self._node = node
        self._process = process

    def poll(self) -> int | None:
        if self.returncode is None and self._process.dead:
            self.returncode = KILLED
        return self.returncode

    def send_signal(self, sig: int) -> None:
        if self._process.dead:
            return
        loop = self._node.loop
        if sig == signal.SIGKILL or not loop.send_signal(self._process, sig):
            self.kill()

    def kill(self) -> None:
        if self._node.process is self._process:
            self._node.kill()

    def wait(self) -> int | None:
        return self.poll()

    def exited(self, code: int) -> None:
        self.returncode = code
        self._process.end()


class SimSupervisor(Supervisor):
    """The shipped supervisor; its children are simulated processes."""

    daemon: SimDaemon

    async def run(self) -> int:
        self.paths.prepare()
        self._open_board()
        self._handle_signals()
        await self._watch()
        await self._stop_workers()
        return 0

    def _until_next_check(self) -> float:
        """Never 0: time would not pass for a worker that is due in less than a clock can show."""
        return max(0.001, super()._until_next_check())

    def _spawn(self, worker: SupervisedWorker) -> None:
        worker.process = cast("Any", self.daemon.start_worker(worker, self))

    def _on_exit(self, worker: SupervisedWorker) -> None:
        if not self._stop.is_set():
            self._check(worker, self.clock.now())

    def _forget_process(self, worker: SupervisedWorker) -> None:
        worker.process = None


class SimDaemon:
    """One role on one machine; `start` after a kill is a restart by the service manager."""

    def __init__(
        self, machine: SimMachine, role: str, specs: Sequence[Spec], config: Config, cells: Sequence[str] = ()
    ) -> None:
        self.machine = machine
        self.role = role
        self.specs = specs
        self.config = config
        self.cells = cells
        self.paths = RolePaths(role, machine.folder / role / "run", machine.folder / role / "state")
        self.workers: dict[str, Worker] = {}
        """The workers by name, as they were started last."""
        self._supervisors: list[SimSupervisor] = []
        self._node = machine.node(f"{role}.supervisor")
        self._open: list[Worker] = []
        machine.daemons.append(self)

    @property
    def alive(self) -> bool:
        return self._node.alive

    def node(self, worker: str) -> Node:
        return self.machine.node(f"{self.role}.{worker}")

    def start(self) -> None:
        """Start the daemon, if it does not run."""
        if self.alive:
            return
        for folder in (self.paths.runtime, self.paths.state):
            folder.mkdir(parents=True, exist_ok=True)
        made = SimSupervisor(
            self.role,
            self.specs,
            self.config,
            self.paths,
            reload=lambda: self.config,
            cells=self.cells,
            clock=self.machine.first.clock,
        )
        made.daemon = self
        self._supervisors.append(made)
        task = self._node.run(made.run())
        process = self._node.process
        assert process is not None
        task.add_done_callback(lambda _task: process.end(), context=contextvars.Context())

    def kill(self) -> None:
        """SIGKILL the supervisor; the kernel kills the workers with it."""
        self._node.kill()
        for spec in self.specs:
            self.node(spec.name).kill()

    async def stop(self) -> None:
        """SIGTERM: the supervisor ends its workers one after the other, and then itself."""
        process = self._node.process
        if process is None or process.dead:
            return
        self._node.loop.send_signal(process, signal.SIGTERM)
        while not process.dead:  # noqa: ASYNC110 -- the end of a process sets no event
            await asyncio.sleep(0.1)

    def start_worker(self, worker: SupervisedWorker, supervisor: SimSupervisor) -> SimChild:
        node = self.node(worker.spec.name)
        supervisor_pid = FIRST_PID + cast("SimProcess", self._node.process).number
        task = node.run(self._work(worker.spec, node, supervisor_pid), may_fail=True)
        assert node.process is not None
        child, on_exit = SimChild(node, node.process), contextvars.copy_context()

        def ended(task: asyncio.Task[int]) -> None:
            if node.process is None or task.cancelled():
                return
            error = task.exception()
            if error is not None:
                self.machine.world.fail(f"{self.machine.name}/{self.role}.{worker.spec.name}", error)
            child.exited(EXIT_CRASHED if error is not None else task.result())
            node.loop.call_soon(supervisor._on_exit, worker, context=on_exit)

        task.add_done_callback(ended, context=contextvars.Context())
        return child

    async def _work(self, spec: Spec, node: Node, supervisor: int) -> int:
        config = restore(self.paths.config.read_bytes())
        worker = Worker(spec, self.role, self.paths, config, node.clock, Board.open(self.paths.board))
        self.workers[spec.name] = worker
        self._open.append(worker)
        return await run_job(worker, load(spec.entry), supervisor, once=spec.once)

    def close(self) -> None:
        """Close the files that killed processes have left open."""
        for worker in self._open:
            worker.decisions.close()
        for supervisor in self._supervisors:
            supervisor._decisions.close()
