"""A real supervisor with jobs of `tests.runtime.daemon.jobs` and bounds that are short where a test needs them to be.

    python -m tests.runtime.daemon.harness FOLDER

FOLDER/plan.json says which workers and bounds; it is read again at a reload.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from holdfast.config.root import Config
from holdfast.config.sections.log import LogSettings
from holdfast.config.sections.paths import PathSettings
from holdfast.config.sections.pulse import PulseSettings
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.control import Answer, Request, ask
from holdfast.runtime.daemon import supervisor
from holdfast.runtime.daemon.board import Board, BoardError
from holdfast.runtime.daemon.process import AlreadyRunning
from holdfast.runtime.daemon.report import WorkerReport, report
from holdfast.runtime.daemon.supervisor import Supervisor
from holdfast.runtime.daemon.worker import Spec
from holdfast.runtime.decision_log import Decision, history
from holdfast.runtime.log import setup_logging
from holdfast.runtime.paths import RolePaths
from holdfast.testing.real.processes import tool, wait_until

ROLE = "lab"
WITHIN = 120.0
"""Far beyond the 30 s after which a worker that does not start is started again."""
ROOT = Path(__file__).parents[3]
Named = str | tuple[str, str]
"""A worker by its job, or by its name and its job."""
PATIENT = {
    "heartbeat_after": 60.0,
    "stalled_after": 90.0,
    "term_grace": 10.0,
    "backoff_first": 0.1,
    "backoff_most": 0.2,
    "supervisor_silent_after": 60.0,
    "grace_after": 30.0,
}
"""Bounds that no loaded machine reaches by accident; each test shortens its own."""


def paths(folder: Path) -> RolePaths:
    return RolePaths(ROLE, folder / "run", folder / "state")


def configuration(folder: Path, plan: Mapping[str, Any]) -> Config | str:
    if "broken" in plan:
        return f"{folder}/plan.json:1: {plan['broken']}"
    bounds: dict[str, Any] = {name: timedelta(seconds=value) for name, value in {**PATIENT, **plan["bounds"]}.items()}
    folders = PathSettings(state=plan.get("state", str(folder / "state")), runtime=str(folder / "run"))
    return Config(paths=folders, log=LogSettings(format="json", level=plan["level"]), runtime=PulseSettings(**bounds))


def main(folder: Path) -> int:
    def load() -> Config | str:
        return configuration(folder, json.loads((folder / "plan.json").read_text()))

    plan = json.loads((folder / "plan.json").read_text())
    config = load()
    assert isinstance(config, Config)
    setup_logging(config.log, role=ROLE, worker="supervisor")
    sys.executable = plan.get("python", sys.executable)
    supervisor.CHECK_EVERY_S = 0.25
    specs = [Spec(name, entry, once=once) for name, entry, once in plan["workers"]]
    try:
        return asyncio.run(Supervisor(ROLE, specs, config, paths(folder), reload=load).run())
    except AlreadyRunning as error:
        click.echo(f"Error: {error}", err=True)
        return 1


class Daemon:
    """A supervisor process, as a test sees it."""

    def __init__(self, folder: Path, workers: Sequence[Named], **plan: Any) -> None:
        """`workers` are names of jobs, or (name, job); a job that is called finishing or …_once is a one-shot."""
        pairs = [(one, one) if isinstance(one, str) else one for one in workers]
        self.folder = folder
        self.paths = paths(folder)
        self.plan: dict[str, Any] = {
            "workers": [(name, _entry(job), job == "finishing" or job.endswith("_once")) for name, job in pairs],
            "bounds": {},
            "level": "info",
            **plan,
        }
        self.pids: dict[str, int | None] = {}
        """Process ids that a test remembers."""
        self.known: dict[str, int] = {}
        """Number of decisions on each worker that a test remembers."""
        self._process: subprocess.Popen[bytes] | None = None
        self.write_plan()

    def write_plan(self, **changed: Any) -> None:
        self.plan |= changed
        (self.folder / "plan.json").write_text(json.dumps(self.plan))

    def start(self, **environ: str) -> None:
        command = [
            tool("setpriv"),
            "--pdeathsig",
            "KILL",
            "--",
            sys.executable,
            "-P",
            "-m",
            "tests.runtime.daemon.harness",
        ]
        here = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), str(ROOT)]))
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": here, **environ},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def send_group(self, number: signal.Signals) -> None:
        """Sends a signal to the whole process group, as a terminal does."""
        os.killpg(self.pid, number)

    def wait(self, within: float = WITHIN) -> int:
        assert self._process is not None
        return self._process.wait(within)

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.send_group(signal.SIGKILL)
            self._process.wait()

    def worker(self, name: str) -> WorkerReport:
        return next(one for one in self.workers() if one.name == name)

    def workers(self) -> list[WorkerReport]:
        """Returns what the board shows, also without the supervisor."""
        try:
            board = Board.open(self.paths.board, read_only=True)
        except BoardError:
            return []
        shown = report(board, ROLE, "", SystemClock().now())
        return shown.workers if shown.supervisor_pid == self.pid else []

    def pid_of(self, name: str) -> int:
        pid = self.worker(name).pid
        assert pid is not None
        return pid

    def ask(self, command: str, to: str = "", **args: Any) -> Answer:
        return asyncio.run(ask(self.paths.socket(), Request(command, args, to), 30.0))

    def order(self, worker: str, what: str) -> None:
        """Tells a steady job to misbehave."""
        path = self.paths.state / f"{worker}.do"
        path.with_suffix(".new").write_text(what)
        path.with_suffix(".new").replace(path)

    def log(self) -> list[str]:
        """Returns all log lines so far as `event field=value …`, of the supervisor and its workers."""
        return [_sentence(line) for line in (self.folder / "log").read_text(errors="replace").splitlines()]

    def said(self, *parts: str) -> bool:
        """True when one log line has all these parts."""
        return any(all(part in line for part in parts) for line in self.log())

    def ends(self) -> list[str]:
        """Returns the log lines about the end of each worker, in order."""
        begins = ("killing worker", "job cancelled")
        return [line for line in self.log() if line.startswith(begins) or line.endswith(" stops")]

    def decided(self, worker: str) -> list[tuple[str, str]]:
        """(outcome, sentence) of what the decision log has on a worker."""
        return [(one.outcome, one.sentence) for one in self.decisions(f"worker/{worker}")]

    def decisions(self, key: str) -> list[Decision]:
        return history(self.paths.decisions, key)

    def until(self, condition: Callable[[], bool], what: str, within: float = WITHIN) -> None:
        try:
            wait_until(condition, what, within=within)
        except TimeoutError as error:
            shown = "\n".join(map(repr, self.workers()))
            raise AssertionError(f"{error}\n{shown}\n" + "\n".join(self.log()[-30:])) from None

    def until_well(self, *names: str, within: float = WITHIN) -> None:
        """Waits until all workers, or these, show a pulse."""

        def well() -> bool:
            found = [one for one in self.workers() if not names or one.name in names]
            return bool(found) and all(one.pid or one.phase == "completed" for one in found)

        self.until(well, "the workers run", within)

    def until_replaced(self, name: str, pid: int, within: float = WITHIN) -> None:
        self.until(lambda: self.worker(name).pid not in (None, pid), f"{name} is replaced", within)

    def until_back(self, name: str, within: float = WITHIN) -> None:
        self.until(lambda: self.worker(name).back_after_s is not None, f"{name} is back", within)


def _entry(job: str) -> str:
    return job if ":" in job else f"tests.runtime.daemon.jobs:{job}"


def _sentence(line: str) -> str:
    try:
        fields = json.loads(line)
        event = fields.pop("event")
    except (ValueError, KeyError, TypeError):
        return line
    rest = [f"{name}={value}" for name, value in fields.items() if name not in ("level", "timestamp", "process")]
    return " ".join([event, *rest])


@contextlib.contextmanager
def daemon(folder: Path, workers: Sequence[Named], **plan: Any) -> Iterator[Daemon]:
    """A running daemon whose workers all show a pulse; nothing of it is left afterwards."""
    one = Daemon(folder, workers, **plan)
    one.start()
    try:
        one.until_well()
        yield one
    finally:
        one.end()


def alive(pid: int) -> bool:
    """True for a process that exists and is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
