"""A supervised `routes` worker in processes of its own, and the operator's commands on it.

python -m tests.cli.harness FOLDER
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from click.testing import CliRunner, Result

from holdfast.cli import main
from holdfast.cli.daemons.run import run_role
from holdfast.config import FlagValue
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.daemon.board import Board, BoardError
from holdfast.runtime.daemon.report import WorkerReport, report
from holdfast.testing.real.processes import tool, wait_until
from tests.cli import route_worker

ROOT = Path(__file__).parents[2]
ALL = {f"10.28.{host}.0/26": f"192.0.2.{host}" for host in range(1, route_worker.HOSTS + 1)}


class Routes:
    """A running daemon with a `routes` worker."""

    def __init__(self, folder: Path, module: str = "tests.cli.harness", *arguments: str) -> None:
        self.folder = folder
        self.runtime, self.state = folder / "run", folder / "state"
        self.log_file = folder / "log"
        command = [tool("setpriv"), "--pdeathsig", "KILL", "--", sys.executable, "-m", module, *arguments]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)])),
                },
            )

    def holdfast(self, *arguments: str, confirm: str = "") -> Result:
        return CliRunner().invoke(main, [*arguments, "--runtime", str(self.runtime)], input=confirm)

    def want(self, routes: Mapping[str, str] | str) -> None:
        """Replace the list of wanted routes by renaming a new file over it, as an editor does."""
        text = routes if isinstance(routes, str) else json.dumps(routes)
        path = route_worker.wanted_file(self.state)
        path.with_suffix(".edit").write_text(text)
        path.with_suffix(".edit").replace(path)

    def dataplane(self) -> dict[str, str]:
        with contextlib.suppress(FileNotFoundError):
            table = route_worker.decode(route_worker.dataplane_file(self.state).read_bytes())
            return {route_worker.show(key): gateway for key, gateway in table.items()}
        return {}

    def worker(self, name: str = "routes") -> WorkerReport | None:
        try:
            board = Board.open(self.runtime / "lab.board", read_only=True)
        except BoardError:
            return None
        return next(one for one in report(board, "lab", "", SystemClock().now()).workers if one.name == name)

    def pid_of_worker(self) -> int:
        self.until(lambda: (shown := self.worker()) is not None and shown.pid is not None, "the worker runs")
        shown = self.worker()
        assert shown is not None
        return shown.pid or 0

    def said(self, text: str) -> int:
        return self.log_file.read_text(errors="replace").count(text)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        try:
            wait_until(condition, what, within=120.0)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.dataplane()}\n{self.log_file.read_text()[-3_000:]}") from None

    def until_routes_are(self, routes: Mapping[str, str]) -> None:
        self.until(lambda: self.dataplane() == routes, f"the dataplane has {len(routes)} routes")

    def until_state_is(self, state: str) -> None:
        self.until(lambda: (shown := self.worker()) is not None and shown.state == state, f"its state is {state}")

    def until_recorded(self, what: str) -> None:
        """Wait for the history: a decision is recorded after it was applied."""
        self.until(lambda: what in self.holdfast("history").stdout, f"the history has: {what}")

    def end(self) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Routes]:
    one = Routes(folder, "tests.cli.harness", str(folder))
    try:
        one.until_routes_are(ALL)
        yield one
    finally:
        one.end()


if __name__ == "__main__":
    base = Path(sys.argv[1])
    settings = {
        "paths.state": str(base / "state"),
        "paths.runtime": str(base / "run"),
        "runtime.backoff_first": "50ms",
        "runtime.backoff_most": "100ms",
    }
    run_role("lab", route_worker.WORKERS, None, [FlagValue("test", name, value) for name, value in settings.items()])
