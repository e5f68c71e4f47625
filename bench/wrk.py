"""wrk in a network namespace: a client that opens a new connection for each request."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.benchmark import Unmeasurable
from holdfast.testing.real.netns import Namespace
from holdfast.testing.real.processes import as_user, tool

THREADS = 3
CONNECTIONS = 32


class Load(msgspec.Struct, frozen=True):
    """Result of one run of wrk."""

    requests: int
    failed: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Wrk:
    """A running wrk with one URL."""

    process: subprocess.Popen[str]

    @classmethod
    def start(cls, namespace: Namespace, url: str, seconds: float, script: Path | None = None) -> Wrk:
        words = [tool("wrk"), f"-t{THREADS}", f"-c{CONNECTIONS}", f"-d{seconds:.0f}s", "-H", "Connection: close"]
        words += [] if script is None else ["-s", str(script)]
        guarded = [*as_user(None, "--pdeathsig", "KILL"), *namespace.command(*words, url)]
        return cls(subprocess.Popen(guarded, stdout=subprocess.PIPE, text=True))

    def stop(self) -> None:
        """End it early; `result` still has to be called."""
        os.kill(self.process.pid, signal.SIGINT)  # Popen.send_signal would reap it, and its CPU time would be lost

    def result(self) -> Load:
        """Wait for its end and return what it measured."""
        assert self.process.stdout is not None
        output = self.process.stdout.read()
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.process.stdout.close()
        found = re.search(r"(\d+) requests in", output)
        if self.process.returncode or found is None:
            raise Unmeasurable(f"wrk ended with status {self.process.returncode}: {output.strip() or 'no output'}")
        errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", output)
        other = re.search(r"Non-2xx or 3xx responses: (\d+)", output)
        failed = sum(map(int, errors.groups())) if errors else 0
        return Load(int(found[1]), failed + (int(other[1]) if other else 0), usage.ru_utime + usage.ru_stime)
