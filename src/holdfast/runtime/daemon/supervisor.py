"""Supervisor: starts the workers of a role in order, watches their pulse, and restarts those that fail.

It decides nothing itself: `pulse` gives the verdict, `restart` the effects; the supervisor carries them out. Its own
heartbeat is on the board as well, because workers watch the supervisor in return. It notifies the systemd watchdog as
long as its loop runs.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from holdfast.config.loading.reload import Reload, compare, mixture_problems
from holdfast.config.root import Config, digest, dump
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.runtime.caller import Access, group_id
from holdfast.runtime.clock import Clock, SystemClock
from holdfast.runtime.control import ControlServer
from holdfast.runtime.daemon.board import Board, Cell
from holdfast.runtime.daemon.commands import SupervisorCommands
from holdfast.runtime.daemon.process import Lock, cpu_s, name_process
from holdfast.runtime.daemon.pulse import (
    START_CPU_S,
    Pulse,
    PulseVerdict,
    WorkerSigns,
    evidence,
    was_suspended,
    worker_verdict,
)
from holdfast.runtime.daemon.report import WorkerRecord
from holdfast.runtime.daemon.restart import Effect, RestartState, WorkerCheck, WorkerPhase, request_restart, step
from holdfast.runtime.daemon.sd_notify import ServiceManager
from holdfast.runtime.daemon.worker import Spec
from holdfast.runtime.decision_log import Decision, DecisionLog
from holdfast.runtime.http import HttpServer
from holdfast.runtime.log import setup_logging
from holdfast.runtime.paths import FolderError, RolePaths, write_atomically

log = structlog.get_logger(__name__)

CHECK_EVERY_S = 1.0

ReadConfig = Callable[[], Config | str]
"""Reads the configuration again: returns a checked one, or the text of all its errors."""


@dataclass
class SupervisedWorker:
    """A worker of this supervisor, with its process and restart state."""

    spec: Spec
    pulse: Cell[Pulse]
    record: Cell[WorkerRecord]
    state: RestartState = field(default_factory=RestartState)
    verdict: PulseVerdict = PulseVerdict.STARTING
    alerted: bool = False
    process: subprocess.Popen[bytes] | None = None
    pidfd: int = -1
    cpu_s: float = 0.0
    moved: Instant = NEVER

    def shown(self) -> Pulse | None:
        """Return the pulse of the current process, not of one before it."""
        pulse = self.pulse.read()
        return pulse if pulse and self.process and pulse.pid == self.process.pid else None

    def note_cpu_use(self, now: Instant) -> None:
        """Note whether a starting process has used the CPU, its only sign of life before the first heartbeat."""
        used = cpu_s(self.process.pid) if self.process is not None else 0.0
        if self.cpu_s < used <= START_CPU_S:
            self.moved = now
        self.cpu_s = used


class Supervisor:
    """Runs the workers of one role until SIGTERM or SIGINT."""

    def __init__(
        self,
        role: str,
        specs: Sequence[Spec],
        config: Config,
        paths: RolePaths,
        *,
        reload: ReadConfig,
        cells: Sequence[str] = (),
        clock: Clock | None = None,
        ready: Callable[[], None] | None = None,
        changed: Callable[[Instant], bool] | None = None,
    ) -> None:
        """`changed` is asked every second; True means that the configuration is to be reloaded."""
        self.role = role
        self.paths = paths
        self.config = config
        self.clock = clock or SystemClock()
        self.started = self.clock.now()
        self._reload_from = reload
        self._specs = specs
        self._cells = cells
        self._ready = ready
        self._changed = changed
        self._manager = ServiceManager.of_this_process()
        self._decisions = DecisionLog(paths.decisions, f"{role}.supervisor", ring=8 << 20)
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._checked = NEVER
        self._resumed = NEVER
        self.workers: list[SupervisedWorker] = []
        self.config_refused = ""
        """Errors of the configuration that was refused last; empty once one is taken."""

    async def run(self) -> int:
        """Run until SIGTERM or SIGINT; a second signal kills the workers at once. Returns the exit code."""
        access = self._access()
        self.paths.prepare(shared=access.has_groups)
        lock = Lock(self.paths.lock, f"holdfast {self.role}")
        try:
            name_process(f"hf:{self.role}")
            self._open_board()
            commands = SupervisorCommands(self.paths, [spec.name for spec in self._specs], self.clock, self)
            listens_on = self.config.http.listens_on(self.role)
            metrics = HttpServer(listens_on, {"/metrics": commands.metrics}, self.paths.http)
            async with ControlServer(self.paths.socket(), commands.handlers(), access=access), metrics:
                self._handle_signals()
                await self._watch()
                await self._stop_workers()
            return 0
        finally:
            self._decisions.close()
            self._manager.close()
            lock.release()

    def _access(self) -> Access:
        try:
            groups = group_id(self.config.control.operators), group_id(self.config.control.readers)
        except LookupError as missing:
            raise FolderError(
                f"control.operators and control.readers name groups of this machine: {missing}"
            ) from missing
        return Access(os.geteuid(), *groups)

    def reload(self) -> Reload | str:
        """Apply what a running daemon can take over from a changed configuration, if all of it is valid; else keep the
        running one. Returns what was applied and what needs a restart, or the errors."""
        self._manager.reloading()
        result = self._apply_config()
        self.config_refused = result if isinstance(result, str) else ""
        if isinstance(result, str):
            log.error("configuration rejected; the running one stays in force", errors=result)
            self._manager.ready("new configuration rejected; the running one stays in force")
            return result
        setup_logging(self.config.log, role=self.role, worker="supervisor")
        for worker in self.workers:
            if worker.process and worker.shown():
                worker.process.send_signal(signal.SIGHUP)
        log.info(
            "configuration reloaded",
            applied=[change.path for change in result.applied],
            needs_restart=[change.path for change in result.needs_restart],
        )
        self._manager.ready("running")
        return result

    def _apply_config(self) -> Reload | str:
        """Write a changed configuration to the file that workers read; returns what changed, or its errors."""
        loaded = self._reload_from()
        if isinstance(loaded, str):
            return loaded
        merged, result = compare(self.config, loaded, self.role)
        wrong = mixture_problems(merged)
        if wrong:
            return wrong
        try:
            write_atomically(self.paths.config, dump(merged))
        except OSError as error:
            return f"{self.paths.config} cannot be written ({error.strerror})"
        self.config = merged
        return result

    def unconfirmed(self) -> tuple[str, ...]:
        """Return the workers that run without having shown the current configuration on the board."""
        current = digest(self.config)
        shown = {worker.spec.name: worker.shown() for worker in self.workers if worker.process is not None}
        return tuple(name for name, pulse in shown.items() if pulse is None or pulse.config != current)

    def restart(self, name: str, who: str, why: str) -> None:
        """Restart a worker that runs, because an operator asked for it."""
        worker = next(one for one in self.workers if one.spec.name == name)
        self._record(worker, "asked", f"{who} asked for a restart of {name}: “{why}”")
        worker.state, effects = request_restart(worker.state, self.clock.now(), self.config.runtime)
        for effect in effects:
            self._apply(effect, worker)

    def _open_board(self) -> None:
        write_atomically(self.paths.config, dump(self.config))
        names = [name for spec in self._specs for name in (spec.name, f"{spec.name}/record")]
        board = Board.create(self.paths.board, ["supervisor", *names, *self._cells])
        self._own = board.cell("supervisor", Pulse)
        self.workers = [
            SupervisedWorker(spec, board.cell(spec.name, Pulse), board.cell(f"{spec.name}/record", WorkerRecord))
            for spec in self._specs
        ]

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._request_stop)
        loop.add_signal_handler(signal.SIGHUP, self.reload)

    def _request_stop(self) -> None:
        if self._stop.is_set():
            self._stop_now.set()
        self._stop.set()

    async def _watch(self) -> None:
        announced = False
        while not self._stop.is_set():
            self._check_all()
            if not announced and all(
                worker.shown() or worker.state.phase is WorkerPhase.COMPLETED for worker in self.workers
            ):
                announced = True
                self._announce()
            if self._changed is not None and self._changed(self.clock.now()):
                self.reload()
            self._manager.alive()
            await _wait(self._until_next_check(), self._stop)

    def _until_next_check(self) -> float:
        """Return a second, or less when a worker is due to start before that."""
        now = self.clock.now()
        starts = [(one.state.start - now).total_seconds() for one in self.workers if one.state.phase is WorkerPhase.DUE]
        return max(0.0, min([CHECK_EVERY_S, *starts]))

    def _announce(self) -> None:
        log.info("running", role=self.role, workers=len(self.workers))
        self._manager.ready("running")
        if self._ready:
            self._ready()

    def _check_all(self) -> None:
        now = self.clock.now()
        if was_suspended(self._checked, now, self.config.runtime):
            log.warning("supervisor was suspended; ages count from now", suspended_for=_s(now - self._checked))
            self._resumed = now
        self._checked = now
        for worker in self.workers:
            self._check(worker, now)
        self._own.write(Pulse(pid=os.getpid(), beat=now, state="stopping" if self._stop.is_set() else "ok"))

    def _check(self, worker: SupervisedWorker, now: Instant) -> None:
        signs = self._signs(worker, now)
        running = worker.process is not None
        worker.verdict = worker_verdict(signs, self.config.runtime, now) if running else _without_process(worker.state)
        why = evidence(worker.verdict, signs, now)
        before, alerted = worker.state, worker.alerted
        worker.alerted = worker.verdict is PulseVerdict.OVERDUE
        check = WorkerCheck(worker.verdict, why, now, random.random())
        worker.state, effects = step(before, check, self.config.runtime)
        for effect in effects:
            self._apply(effect, worker)
        if worker.process is not None and worker.state.phase in (WorkerPhase.DUE, WorkerPhase.COMPLETED):
            self._forget_process(worker)
        self._log_transition(worker, before, now)
        if worker.alerted and not alerted:
            self._record(worker, "resync_overdue", f"{worker.spec.name} {worker.verdict.value} ({why})")
        worker.record.write(WorkerRecord.of(worker.state, worker.verdict, self.config.runtime, now))

    def _signs(self, worker: SupervisedWorker, now: Instant) -> WorkerSigns:
        exit_code, shown = worker.process.poll() if worker.process else None, worker.shown()
        if shown is None and exit_code is None:
            worker.note_cpu_use(now)
        return WorkerSigns(worker.state.started, shown, exit_code, worker.spec.once, self._resumed, worker.moved)

    def _apply(self, effect: Effect, worker: SupervisedWorker) -> None:
        if effect is Effect.START:
            self._spawn(worker)
        elif worker.process is not None:
            worker.process.send_signal(signal.SIGTERM if effect is Effect.TERM else signal.SIGKILL)

    def _spawn(self, worker: SupervisedWorker) -> None:
        spec = worker.spec
        command = [sys.executable, "-P", "-m", "holdfast.runtime.daemon", self.role, spec.name, spec.entry]
        command += [str(self.paths.runtime), str(os.getpid()), *(["--once"] if spec.once else [])]
        # Ctrl-C reaches the whole process group. Blocked before the start, it spares a worker that still imports.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            worker.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603 - own interpreter
        except OSError as error:  # no memory, no pids: the next check finds it dead, and backs off
            log.error("worker cannot be started", worker=spec.name, error=error.strerror)
            return
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._watch_exit(worker, worker.process.pid)

    def _watch_exit(self, worker: SupervisedWorker, pid: int) -> None:
        try:
            worker.pidfd = os.pidfd_open(pid)
        except OSError as error:  # no more file descriptors: the next check sees the exit
            log.warning("worker exit will be noticed late", worker=worker.spec.name, error=error.strerror)
            return
        asyncio.get_running_loop().add_reader(worker.pidfd, self._on_exit, worker)

    def _on_exit(self, worker: SupervisedWorker) -> None:
        """Check a worker that has exited now, not at the next full second."""
        asyncio.get_running_loop().remove_reader(worker.pidfd)
        if not self._stop.is_set():
            self._check(worker, self.clock.now())

    def _forget_process(self, worker: SupervisedWorker) -> None:
        if worker.pidfd >= 0:
            asyncio.get_running_loop().remove_reader(worker.pidfd)
            os.close(worker.pidfd)
        worker.process, worker.pidfd = None, -1

    def _log_transition(self, worker: SupervisedWorker, before: RestartState, now: Instant) -> None:
        """Log and record what changed in the state of a worker."""
        name, state = worker.spec.name, worker.state
        trouble = state.trouble
        if state.phase is WorkerPhase.COMPLETED and before.phase is not WorkerPhase.COMPLETED:
            self._record(worker, "completed", f"{name} completed its job")
        elif state.phase is WorkerPhase.ENDING and before.phase is WorkerPhase.RUNNING and trouble:
            self._record(worker, "ending", f"{name} {trouble.verdict.value} ({trouble.evidence}): sending SIGTERM")
        elif state.phase is WorkerPhase.KILLED and before.phase is WorkerPhase.ENDING:
            self._record(worker, "killed", f"{name} did not end within {_s(self._grace)}: sending SIGKILL")
        elif before.asked and state.phase is WorkerPhase.DUE:
            self._record(worker, "restarted", f"{name} has ended and starts again, as asked for")
        elif state.phase is WorkerPhase.DUE and before.phase is not WorkerPhase.DUE and trouble:
            pause = _s(state.start - now)
            self._record(
                worker, "restart", f"{name} {trouble.verdict.value} ({trouble.evidence}): restarting in {pause}"
            )
            if state.crash_looping(self.config.runtime, now) and not before.crash_looping(self.config.runtime, now):
                self._record(worker, "crash-looping", f"{name} is crash-looping; the other workers are not affected")
        elif trouble and trouble.back is not None and (before.trouble is None or before.trouble.back is None):
            self._record(
                worker, "back", f"{name} recovered {_s(trouble.back - trouble.at)} after it {trouble.verdict.value}"
            )

    def _record(self, worker: SupervisedWorker, outcome: str, sentence: str) -> None:
        emit = log.info if outcome in ("asked", "back", "completed", "restarted") else log.warning
        emit("worker state changed", worker=worker.spec.name, outcome=outcome, why=sentence)
        record = Decision(self.clock.wall(), "supervisor", "worker", f"worker/{worker.spec.name}", outcome, sentence)
        self._decisions.write([record])

    async def _stop_workers(self) -> None:
        """Stop the workers in reverse order; each gets its own grace period."""
        self._manager.stopping()
        log.info("stopping", role=self.role)
        for worker in reversed(self.workers):
            if worker.process is None:
                continue
            worker.process.send_signal(signal.SIGTERM)
            if not await self._has_ended(worker, self._grace):
                why = "second stop signal" if self._stop_now.is_set() else f"still running after {_s(self._grace)}"
                log.warning("killing worker", worker=worker.spec.name, why=why)
                worker.process.kill()
                worker.process.wait()
            self._forget_process(worker)

    @property
    def _grace(self) -> Duration:
        return self.config.runtime.term_grace

    async def _has_ended(self, worker: SupervisedWorker, most: Duration) -> bool:
        assert worker.process is not None
        until = self.clock.now() + most
        while worker.process.poll() is None:
            self._own.write(Pulse(pid=os.getpid(), beat=self.clock.now(), state="stopping"))
            if self._stop_now.is_set() or self.clock.now() > until:
                return False
            await _wait(0.02, self._stop_now)
        return True


def _without_process(state: RestartState) -> PulseVerdict:
    if state.phase is WorkerPhase.RUNNING:
        return PulseVerdict.DEAD  # it was due to start and could not be started
    return PulseVerdict.COMPLETED if state.phase is WorkerPhase.COMPLETED else PulseVerdict.STARTING


async def _wait(most: float, event: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(most):
            await event.wait()
    except TimeoutError:
        return


def _s(duration: Duration) -> str:
    return f"{duration.total_seconds():.1f} s"
