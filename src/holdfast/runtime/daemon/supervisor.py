"""The supervisor: starts a role's workers in their order, watches their pulse, replaces what must be replaced.

It decides nothing itself: `pulse` judges the signs, `care` says what to do, here it is done. Its own heartbeat is on
the board as well, because the workers watch it in return. systemd's watchdog is petted while its loop runs.
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

from holdfast.config.root import Config, dump
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.runtime import log as logging
from holdfast.runtime.clock import Clock, SystemClock
from holdfast.runtime.control import ControlServer
from holdfast.runtime.daemon.board import Board, Cell
from holdfast.runtime.daemon.commands import SupervisorCommands
from holdfast.runtime.daemon.process import Lock, cpu_s, name_process
from holdfast.runtime.daemon.pulse import START_CPU_S, Pulse, PulseVerdict, WorkerSigns, came_back, evidence, judge
from holdfast.runtime.daemon.report import WorkerRecord
from holdfast.runtime.daemon.restart import Effect, RestartState, WorkerCheck, WorkerPhase, step
from holdfast.runtime.daemon.sd_notify import ServiceManager
from holdfast.runtime.daemon.worker import Spec
from holdfast.runtime.decision_log import Decision, DecisionLog
from holdfast.runtime.paths import RolePaths, write_atomically

log = structlog.get_logger(__name__)

LOOK = 1.0

Reload = Callable[[], Config | str]
"""Reads the configuration anew: a checked one, or all that is wrong with it."""


@dataclass
class SupervisedWorker:
    """One worker in the supervisor's charge."""

    spec: Spec
    pulse: Cell[Pulse]
    sheet: Cell[WorkerRecord]
    care: RestartState = field(default_factory=RestartState)
    verdict: PulseVerdict = PulseVerdict.STARTING
    alerted: bool = False
    process: subprocess.Popen[bytes] | None = None
    pidfd: int = -1
    cpu_s: float = 0.0
    moved: Instant = NEVER

    def shown(self) -> Pulse | None:
        """The pulse of the process that runs now, not of one before it."""
        pulse = self.pulse.read()
        return pulse if pulse and self.process and pulse.pid == self.process.pid else None

    def look_for_progress(self, now: Instant) -> None:
        """While it starts, using the CPU is the only sign of life that a process gives."""
        used = cpu_s(self.process.pid) if self.process is not None else 0.0
        if self.cpu_s < used <= START_CPU_S:
            self.moved = now
        self.cpu_s = used


class Supervisor:
    def __init__(
        self,
        role: str,
        workers: Sequence[Spec],
        config: Config,
        paths: RolePaths,
        *,
        reload: Reload,
        cells: Sequence[str] = (),
        clock: Clock | None = None,
        ready: Callable[[], None] | None = None,
    ) -> None:
        self.role = role
        self.paths = paths
        self.config = config
        self.clock = clock or SystemClock()
        self.started = self.clock.now()
        self._reload_from = reload
        self._specs = workers
        self._cells = cells
        self._ready = ready
        self._manager = ServiceManager.of_this_process()
        self._decisions = DecisionLog(paths.decisions, f"{role}.supervisor", ring=8 << 20)
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._looked = NEVER
        self._back = NEVER
        self.charges: list[SupervisedWorker] = []

    async def run(self) -> int:
        """Runs until SIGTERM or SIGINT; a second one does not wait for anybody."""
        self.paths.prepare()
        lock = Lock(self.paths.lock, f"holdfast {self.role}")
        try:
            name_process(f"hf:{self.role}")
            self._open_board()
            desk = SupervisorCommands(self.paths, [spec.name for spec in self._specs], self.clock, self.reload)
            async with ControlServer(self.paths.socket(), desk.handlers()):
                self._listen_to_signals()
                await self._watch()
                await self._end_all()
            return 0
        finally:
            self._decisions.close()
            self._manager.close()
            lock.release()

    def reload(self) -> str:
        """Takes over a changed configuration if all of it is right; else the running one stays. Says which."""
        self._manager.reloading()
        wrong = self._take_over()
        if wrong:
            log.error(f"the new configuration cannot be used, the running one stays:\n{wrong}")
            self._manager.ready("the running configuration stays: the new one cannot be used")
            return wrong
        logging.setup(self.config.log, role=self.role, worker="supervisor")
        for charge in self.charges:
            if charge.process and charge.shown():
                charge.process.send_signal(signal.SIGHUP)
        log.info("the new configuration is in force")
        self._manager.ready("running")
        return ""

    def _take_over(self) -> str:
        """Puts a changed configuration where workers find it; what is wrong with it, if anything is."""
        loaded = self._reload_from()
        if isinstance(loaded, str):
            return loaded
        if loaded.paths != self.config.paths:
            return "paths.state and paths.runtime cannot change under a running daemon: restart it to move its files"
        try:
            write_atomically(self.paths.config, dump(loaded))
        except OSError as error:
            return f"{self.paths.config} cannot be written ({error.strerror})"
        self.config = loaded
        return ""

    def _open_board(self) -> None:
        write_atomically(self.paths.config, dump(self.config))
        names = [name for spec in self._specs for name in (spec.name, f"{spec.name}/sheet")]
        board = Board.create(self.paths.board, ["supervisor", *names, *self._cells])
        self._own = board.cell("supervisor", Pulse)
        self.charges = [
            SupervisedWorker(spec, board.cell(spec.name, Pulse), board.cell(f"{spec.name}/sheet", WorkerRecord))
            for spec in self._specs
        ]

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._asked_to_stop)
        loop.add_signal_handler(signal.SIGHUP, self.reload)

    def _asked_to_stop(self) -> None:
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    async def _watch(self) -> None:
        announced = False
        while not self._stop.is_set():
            self._look_at_all()
            if not announced and all(
                charge.shown() or charge.care.phase is WorkerPhase.COMPLETED for charge in self.charges
            ):
                announced = True
                self._announce()
            self._manager.alive()
            await _first(self._until_next_look(), self._stop)

    def _until_next_look(self) -> float:
        """A second, or less when a worker is to be started before that."""
        now = self.clock.now()
        starts = [(one.care.start - now).total_seconds() for one in self.charges if one.care.phase is WorkerPhase.DUE]
        return max(0.0, min([LOOK, *starts]))

    def _announce(self) -> None:
        log.info(f"holdfast {self.role} runs with {len(self.charges)} workers")
        self._manager.ready("running")
        if self._ready:
            self._ready()

    def _look_at_all(self) -> None:
        now = self.clock.now()
        if came_back(self._looked, now, self.config.runtime):
            away = (now - self._looked).total_seconds()
            log.warning(f"the supervisor itself was away for {away:.1f} s; no pulse is judged by what was before")
            self._back = now
        self._looked = now
        for charge in self.charges:
            self._look_at(charge, now)
        self._own.write(Pulse(pid=os.getpid(), beat=now, state="stopping" if self._stop.is_set() else "ok"))

    def _look_at(self, charge: SupervisedWorker, now: Instant) -> None:
        signs = self._signs(charge, now)
        running = charge.process is not None
        charge.verdict = judge(signs, self.config.runtime, now) if running else _without_process(charge.care)
        why = evidence(charge.verdict, signs, now)
        before, alerted = charge.care, charge.alerted
        charge.alerted = charge.verdict is PulseVerdict.OVERDUE
        look = WorkerCheck(charge.verdict, why, now, random.random())
        charge.care, effects = step(before, look, self.config.runtime)
        for effect in effects:
            self._do(effect, charge)
        if charge.process is not None and charge.care.phase in (WorkerPhase.DUE, WorkerPhase.COMPLETED):
            self._let_go(charge)
        self._tell(charge, before, now)
        if charge.alerted and not alerted:
            self._say(charge, "resync_overdue", f"{charge.spec.name} {charge.verdict.value} ({why})")
        charge.sheet.write(WorkerRecord.of(charge.care, charge.verdict, self.config.runtime, now))

    def _signs(self, charge: SupervisedWorker, now: Instant) -> WorkerSigns:
        exit_code, shown = charge.process.poll() if charge.process else None, charge.shown()
        if shown is None and exit_code is None:
            charge.look_for_progress(now)
        return WorkerSigns(charge.care.started, shown, exit_code, charge.spec.once, self._back, charge.moved)

    def _do(self, effect: Effect, charge: SupervisedWorker) -> None:
        if effect is Effect.START:
            self._spawn(charge)
        elif charge.process is not None:
            charge.process.send_signal(signal.SIGTERM if effect is Effect.TERM else signal.SIGKILL)

    def _spawn(self, charge: SupervisedWorker) -> None:
        spec = charge.spec
        command = [sys.executable, "-P", "-m", "holdfast.runtime.daemon.worker", self.role, spec.name, spec.entry]
        command += [str(self.paths.runtime), str(os.getpid()), *(["--once"] if spec.once else [])]
        # Ctrl-C reaches the whole group. Blocked before the start, it does not even hit a worker that still imports.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            charge.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603 - our own interpreter and names
        except OSError as error:  # no memory, no pids: the next look finds it dead, and backs off
            log.error(f"{spec.name} cannot be started: {error.strerror}")
            return
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._listen_for_exit(charge, charge.process.pid)

    def _listen_for_exit(self, charge: SupervisedWorker, pid: int) -> None:
        try:
            charge.pidfd = os.pidfd_open(pid)
        except OSError as error:  # no more file descriptors: its exit is then seen at the next look
            log.warning(f"the exit of {charge.spec.name} will be noticed late: {error.strerror}")
            return
        asyncio.get_running_loop().add_reader(charge.pidfd, self._look_soon, charge)

    def _look_soon(self, charge: SupervisedWorker) -> None:
        """A worker has exited: it is looked at now, not at the next full second."""
        asyncio.get_running_loop().remove_reader(charge.pidfd)
        if not self._stop.is_set():
            self._look_at(charge, self.clock.now())

    def _let_go(self, charge: SupervisedWorker) -> None:
        if charge.pidfd >= 0:
            asyncio.get_running_loop().remove_reader(charge.pidfd)
            os.close(charge.pidfd)
        charge.process, charge.pidfd = None, -1

    def _tell(self, charge: SupervisedWorker, before: RestartState, now: Instant) -> None:
        """One sentence for what changed in the care of a worker."""
        name, care = charge.spec.name, charge.care
        trouble = care.trouble
        if care.phase is WorkerPhase.COMPLETED and before.phase is not WorkerPhase.COMPLETED:
            self._say(charge, "completed", f"{name} has finished its job")
        elif care.phase is WorkerPhase.ENDING and before.phase is WorkerPhase.RUNNING and trouble:
            self._say(charge, "ending", f"{name} {trouble.verdict.value} ({trouble.evidence}): it is ended")
        elif care.phase is WorkerPhase.KILLED and before.phase is WorkerPhase.ENDING:
            self._say(charge, "killed", f"{name} did not end within {_s(self._patience)}: it is killed")
        elif care.phase is WorkerPhase.DUE and before.phase is not WorkerPhase.DUE and trouble:
            pause = _s(care.start - now)
            self._say(
                charge, "restart", f"{name} {trouble.verdict.value} ({trouble.evidence}): it starts again in {pause}"
            )
            if care.crash_looping(self.config.runtime, now) and not before.crash_looping(self.config.runtime, now):
                self._say(charge, "crash-looping", f"{name} is crash-looping; the other workers go on")
        elif trouble and trouble.back is not None and (before.trouble is None or before.trouble.back is None):
            self._say(
                charge, "back", f"{name} is back {_s(trouble.back - trouble.at)} after it {trouble.verdict.value}"
            )

    def _say(self, charge: SupervisedWorker, outcome: str, sentence: str) -> None:
        log.log(30 if outcome not in ("back", "completed") else 20, sentence)
        record = Decision(self.clock.wall(), "supervisor", "worker", f"worker/{charge.spec.name}", outcome, sentence)
        self._decisions.write([record])

    async def _end_all(self) -> None:
        """Stops the workers in reverse order, each with its own patience."""
        self._manager.stopping()
        log.info(f"holdfast {self.role} stops")
        for charge in reversed(self.charges):
            if charge.process is None:
                continue
            charge.process.send_signal(signal.SIGTERM)
            if not await self._ended(charge, self._patience):
                why = "has not ended yet" if self._hurry.is_set() else f"did not end within {_s(self._patience)}"
                log.warning(f"{charge.spec.name} {why}: it is killed")
                charge.process.kill()
                charge.process.wait()
            self._let_go(charge)

    @property
    def _patience(self) -> Duration:
        return self.config.runtime.term_grace

    async def _ended(self, charge: SupervisedWorker, most: Duration) -> bool:
        assert charge.process is not None
        until = self.clock.now() + most
        while charge.process.poll() is None:
            self._own.write(Pulse(pid=os.getpid(), beat=self.clock.now(), state="stopping"))
            if self._hurry.is_set() or self.clock.now() > until:
                return False
            await _first(0.02, self._hurry)
        return True


def _without_process(care: RestartState) -> PulseVerdict:
    if care.phase is WorkerPhase.RUNNING:
        return PulseVerdict.DEAD  # it was to be started and could not be
    return PulseVerdict.COMPLETED if care.phase is WorkerPhase.COMPLETED else PulseVerdict.STARTING


async def _first(most: float, event: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(most):
            await event.wait()
    except TimeoutError:
        return


def _s(duration: Duration) -> str:
    return f"{duration.total_seconds():.1f} s"
