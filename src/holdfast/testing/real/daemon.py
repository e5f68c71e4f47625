"""Run a Holdfast daemon as an operator does: configuration file, process tree and control socket, in a namespace."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.runtime.control import Answer, Request, ask
from holdfast.testing.real.netns import Namespace
from holdfast.testing.real.processes import Process, run

HOLDFAST = (sys.executable, "-P", "-m", "holdfast.cli")
PATIENCE = 180.0
"""Seconds that a daemon on a busy machine may need for anything that a test waits for."""


class Daemon:
    """`holdfast ROLE` with state, runtime folder and log below `home`."""

    def __init__(self, role: str, namespace: Namespace, home: Path, config: Sequence[str] = ()) -> None:
        self.role = role
        self.namespace = namespace
        self.home = home
        self.file = home / "holdfast.yaml"
        home.mkdir(parents=True)
        self.write_config(config)
        self.process = self._process(HOLDFAST)

    def write_config(self, lines: Sequence[str]) -> None:
        """Replace the configuration; it takes effect at the next start or reload."""
        paths = f"paths: {{state: {self.home}/state, runtime: {self.home}/run}}"
        self.file.write_text("\n".join([paths, *lines]) + "\n")

    def start(self) -> None:
        self.process.start()

    def restart_as(self, program: Sequence[str]) -> None:
        """Stop it in order, and start it as another program: an upgrade, or a way back."""
        self.process.stop(within=PATIENCE)
        self.process = self._process(program)
        self.start()

    def _process(self, program: Sequence[str]) -> Process:
        command = self.namespace.command(*program, self.role, "--config", str(self.file))
        return Process(command, log=self.home / "log")

    def kill(self) -> None:
        """SIGKILL supervisor and workers."""
        self.process.kill_tree()

    def request(self, request: Request) -> Answer:
        """Send a request to the supervisor's control socket."""
        return asyncio.run(ask(self.home / "run" / f"{self.role}.sock", request))

    def ask(self, worker: str, do: str, **args: object) -> Any:
        """Return a worker's answer to a command; None while it does not answer."""
        answer = self.request(Request("tell", {"do": do, "args": args}, worker))
        return None if answer.error else answer.result

    def worker(self, name: str) -> Mapping[str, Any]:
        """Return the status of one worker; empty while the daemon does not answer."""
        answer = self.request(Request("status"))
        workers = [] if answer.error else answer.result["workers"]
        return next((one for one in workers if one["name"] == name), {})

    def cli(self, *words: str) -> str:
        """Run a `holdfast` command against this daemon and return its output."""
        return run([*HOLDFAST, *words, "--runtime", str(self.home / "run")])
