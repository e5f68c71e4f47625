"""What Linux offers to keep a family of processes together: die with the parent, a name, boot id, one at a time."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_UNLESS_ORPHANED = '[ "$PPID" = "$0" ] && exec "$@"'
"""For the shell: who is orphaned before the signal was arranged would never get it."""


def _prctl(option: int, value: int | bytes) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl: {os.strerror(number)}")


def die_with(parent: int) -> bool:
    """Asks the kernel to kill this process at once when its parent dies. False: the parent is gone already."""
    _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    return os.getppid() == parent


def dying_with_us(command: Sequence[str]) -> Sequence[str]:
    """The command line of a program that the kernel kills as soon as the thread that starts it is gone. By a tool:
    code of our own between fork and exec may hang where there are threads. Where the tool (setpriv, of util-linux) is
    missing, the program is started as it is."""
    guard = shutil.which("setpriv")
    if guard is None:
        return command
    return [guard, "--pdeathsig", "KILL", "--", "/bin/sh", "-c", _UNLESS_ORPHANED, str(os.getpid()), *command]


def name_process(name: str) -> None:
    """What `ps -o comm` and `top` show; the kernel keeps 15 bytes."""
    _prctl(_PR_SET_NAME, name.encode()[:15])


def cpu_s(pid: int) -> float:
    """CPU that a process has used so far, user and system, in steps of a clock tick (10 ms); 0 of one that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


class AlreadyRunning(Exception):
    """Another process holds the lock; the message is one sentence for the operator."""


class Lock:
    """One daemon of a role per runtime folder. The kernel lets go of it when the process ends, however it ends."""

    def __init__(self, path: Path, what: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._fd)
            raise AlreadyRunning(
                f"{what} runs already (pid {holder}) in {path.parent}: stop it first, or set another paths.runtime"
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        os.close(self._fd)


def give_back_memory() -> None:
    """Returns to the system what this process has used for a while and does not use now; not every libc can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
