"""Processes and folders of a test run that never outlive it, however the run ends.

A child gets a signal when the thread that started it is gone (PDEATHSIG, set by `setpriv`). A folder or namespace
carries the identity of the run in its name, pid and start time, so that the next run can tell what was left behind
by a dead one and sweep it.
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

PREFIX: Final = "hft"
_UNLESS_ORPHANED: Final = '[ "$PPID" = "$0" ] && exec "$@"'
"""Who is orphaned before the signal was arranged would never get it."""
_OWNER = re.compile(rf"{PREFIX}-(\d+)-(\d+)-")


class Unavailable(Exception):
    """A fixture cannot be had here; the message says what is missing. Tests skip with it."""


def owner_tag() -> str:
    """How this run marks what it owns."""
    return f"{PREFIX}-{os.getpid()}-{_started(os.getpid())}-"


def abandoned(name: str) -> bool:
    """Whether something of that name was left behind by a run that is over."""
    match = _OWNER.match(name)
    return match is not None and _started(int(match[1])) != int(match[2])


def _started(pid: int) -> int | None:
    """When a process started, in ticks since boot: with the pid it names one process for ever."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder for this run, in memory where possible; what dead runs left is removed first."""
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
    """The path of the first of these programs that is installed."""
    for name in names:
        found = shutil.which(name) or shutil.which(name, path="/usr/local/sbin:/usr/sbin:/sbin")
        if found:
            return found
    raise Unavailable(f"{names[0]} is not installed")


@contextlib.contextmanager
def reserved_ports(count: int) -> Iterator[Sequence[int]]:
    """Ports on loopback that nobody listens on, and that nobody else is given before the block ends.

    Each is held by a socket that is bound and does not listen: who connects is refused, the kernel gives the port to
    nobody who asks for any, and a server that asks for this one (with SO_REUSEADDR, as they do) may have it, again and
    again. A port that was merely found free may be a neighbour's before its server is up, or while that is down.
    """
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("127.0.0.1", 0))
        yield [sock.getsockname()[1] for sock in sockets]


def wait_until(condition: Callable[[], bool], what: str, *, within: float = 30.0) -> None:
    """Waits for a condition; a `TimeoutError` names what did not come about."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {within:g} s")
        time.sleep(0.02)


def running(pid: int) -> bool:
    """Whether a process still does anything. A zombie does not, even if nobody has noticed its end yet."""
    return bool(_states(pid) - {"Z"})


def _states(pid: int) -> set[str]:
    """The states of a process's threads, in the kernel's letters; none when it is gone."""
    states = set()
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread may end while we look
            states.add(stat.read_text().rpartition(")")[2].split()[0])
    return states


def children(pid: int) -> Sequence[int]:
    """The processes that a process has started and that are still its own."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def as_user(user: str | None, *options: str) -> Sequence[str]:
    """The beginning of a command line that runs the rest as that user, or as it is."""
    if user is None:
        return [tool("setpriv"), *options, "--"]
    account = pwd.getpwnam(user)
    ids = ["--reuid", str(account.pw_uid), "--regid", str(account.pw_gid), "--clear-groups"]
    return [tool("setpriv"), *ids, *options, "--"]


class Process:
    """One child process that can be killed, frozen, thawed and started again with the same command."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        user: str | None = None,
        orphaned: signal.Signals = signal.SIGKILL,
    ) -> None:
        """`orphaned` is the signal that the process gets when this one is gone."""
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
        """What the process printed so far, over all its starts."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def start(self) -> None:
        assert not self.alive, "the process is running already"
        with self._log.open("ab") as sink:
            self._child = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)  # noqa: S603

    def pause(self) -> None:
        """Freezes it (SIGSTOP): connections stay open, nothing answers. Returns when its last thread stands."""
        self._signal(signal.SIGSTOP)
        wait_until(lambda: _states(self.pid) <= {"T"}, f"process {self.pid} is stopped")

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Ends it without a chance to clean up (SIGKILL)."""
        self._end(signal.SIGKILL)

    def stop(self, how: signal.Signals = signal.SIGTERM, *, within: float = 60.0) -> None:
        """Ends it in order; what does not end within the time is killed. A supervisor needs longer than it gives each
        of its workers: killed before that, it would leave them behind."""
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
    """Runs a program to its end and returns what it printed; a failure carries its own words."""
    done = subprocess.run(command, stdin=stdin, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
