"""Processes and folders that never outlive the test run, however it ends.

A child gets a signal when the thread that started it is gone (PDEATHSIG, set by `setpriv`). The name of a folder or
namespace carries the pid and start time of its run, so that the next run recognises and sweeps what a killed run left.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final

from holdfast.testing.protection import patience

PREFIX: Final = "hft"
_UNLESS_ORPHANED: Final = '[ "$PPID" = "$0" ] && exec "$@"'
"""A child that is orphaned before PDEATHSIG is set would never get the signal: it ends itself."""
_OWNER = re.compile(rf"{PREFIX}-(\d+)-(\d+)-")


class Unavailable(Exception):
    """A fixture cannot be provided on this machine; the message says what is missing. Tests skip with it."""


def owner_tag() -> str:
    """Return the prefix of everything that this run owns."""
    return f"{PREFIX}-{os.getpid()}-{_started(os.getpid())}-"


def abandoned(name: str) -> bool:
    """Return True for the name of something that a finished run left behind."""
    match = _OWNER.match(name)
    return match is not None and _started(int(match[1])) != int(match[2])


def _started(pid: int) -> int | None:
    """Return when a process started, in ticks since boot: pid and start time identify one process for ever."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Make a folder for this run, in memory where possible, after removing those of dead runs."""
    base = Path("/dev/shm")  # noqa: S108 -- shared on purpose: the sweep looks there, mkdtemp makes it private
    if not base.is_dir() or not os.access(base, os.W_OK):
        base = Path(tempfile.gettempdir())
    for left in base.glob(f"{PREFIX}-*"):
        if abandoned(left.name):
            shutil.rmtree(left, ignore_errors=True)
    path = Path(tempfile.mkdtemp(prefix=owner_tag(), dir=base))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def tool(*names: str) -> str:
    """Return the path of the first of these programs that is installed. Raises `Unavailable`."""
    for name in names:
        found = shutil.which(name) or shutil.which(name, path="/usr/local/sbin:/usr/sbin:/sbin")
        if found:
            return found
    raise Unavailable(f"{names[0]} is not installed")


@contextlib.contextmanager
def reserved_ports(count: int) -> Iterator[Sequence[int]]:
    """Reserve loopback ports until the block ends.

    Each port is held by a socket that is bound and does not listen: connections are refused, the kernel assigns the
    port to no other process, and a server that asks for it (with SO_REUSEADDR) gets it, repeatedly. A port that was
    merely found free may be taken by another test run before its server is up, or while it is down.
    """
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("127.0.0.1", 0))
        yield [sock.getsockname()[1] for sock in sockets]


def wait_until(condition: Callable[[], bool], what: str, *, within: float = 30.0) -> None:
    """Poll until the condition holds; the `TimeoutError` names what did not happen. In a fault test that runs without
    its protection the wait is shortened."""
    within = patience(within)
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {within:g} s")
        time.sleep(0.02)


def running(pid: int) -> bool:
    """Return True while the process runs; a zombie does not, even before its parent has reaped it."""
    return bool(_states(pid) - {"Z"})


def _states(pid: int) -> set[str]:
    """Return the states of the process's threads, in the kernel's letters; empty when it is gone."""
    states = set()
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread ended after the glob
            states.add(stat.read_text().rpartition(")")[2].split()[0])
    return states


def children(pid: int) -> Sequence[int]:
    """Return the pids of the process's direct children."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def as_user(user: str | None, *options: str) -> Sequence[str]:
    """Return the beginning of a command line that runs the rest as that user; None keeps the current user."""
    if user is None:
        return [tool("setpriv"), *options, "--"]
    account = pwd.getpwnam(user)
    ids = ["--reuid", str(account.pw_uid), "--regid", str(account.pw_gid), "--clear-groups"]
    return [tool("setpriv"), *ids, *options, "--"]


class Process:
    """One child process that can be killed, paused, resumed and started again with the same command."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        user: str | None = None,
        orphaned: signal.Signals = signal.SIGKILL,
    ) -> None:
        """`orphaned` is the signal that the child gets when this process is gone."""
        guarded = as_user(user, "--pdeathsig", orphaned.name.removeprefix("SIG"))
        self._command = [*guarded, "/bin/sh", "-c", _UNLESS_ORPHANED, str(os.getpid()), *command]
        self._log = log
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._child is not None, "the process was not started"
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def output(self) -> str:
        """Everything printed so far, over all starts."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def start(self) -> None:
        assert not self.alive, "the process is running already"
        with self._log.open("ab") as sink:
            self._child = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)  # noqa: S603

    def pause(self) -> None:
        """Send SIGSTOP and wait until every thread has stopped: connections stay open, nothing answers."""
        self._signal(signal.SIGSTOP)
        wait_until(lambda: _states(self.pid) <= {"T"}, f"process {self.pid} is stopped")

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Send SIGKILL and reap."""
        self._end(signal.SIGKILL)

    def tree(self) -> Sequence[int]:
        """Return the pids of the process and its descendants, parents first."""
        found = [self.pid] if self.alive else []
        for pid in found:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += children(pid)
        return found

    def signal_tree(self, number: signal.Signals) -> None:
        """Send a signal to the process and all its descendants."""
        for pid in self.tree():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill_tree(self) -> None:
        """SIGKILL the process and all its descendants; return when all of them are gone."""
        self.pause()  # a supervisor must not start another worker between the listing and the kill
        pids = self.tree()
        self.signal_tree(signal.SIGKILL)
        self.kill()
        wait_until(lambda: not any(map(running, pids)), f"the processes {pids} are gone")

    def stop(self, how: signal.Signals = signal.SIGTERM, *, within: float = 60.0) -> None:
        """End it in order, then by SIGKILL after `within` seconds. A supervisor needs longer than it grants each of its
        workers: killed before that, it would leave them behind."""
        if self.alive:
            self.resume()
            self._end(how, within)

    def _signal(self, number: signal.Signals) -> None:
        assert self._child is not None, "the process was not started"
        self._child.send_signal(number)

    def _end(self, how: signal.Signals, within: float = 10.0) -> None:
        assert self._child is not None, "the process was not started"
        self._signal(how)
        try:
            self._child.wait(within)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait(within)


def run(command: Sequence[str], *, stdin: IO[bytes] | int = subprocess.DEVNULL) -> str:
    """Run a program to its end and return its output. Raises `RuntimeError` with what it printed."""
    done = subprocess.run(command, stdin=stdin, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
