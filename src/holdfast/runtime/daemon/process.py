"""Linux process facilities: parent-death signal, name, CPU time, parents, boot id, lock file, returning memory."""

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
"""Shell guard: a process orphaned before the parent-death signal was set would never receive it."""


def _prctl(option: int, value: int | bytes) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl: {os.strerror(number)}")


def die_with(parent: int) -> bool:
    """Make the kernel kill this process when its parent dies. Returns False when the parent is gone already."""
    _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    return os.getppid() == parent


def dying_with_us(command: Sequence[str]) -> Sequence[str]:
    """Wrap a command line so that the kernel kills the program when the thread that starts it ends. It uses setpriv
    (util-linux), because Python code between fork and exec may hang in a process with threads; without setpriv it
    returns the command unchanged."""
    guard = shutil.which("setpriv")
    if guard is None:
        return command
    return [guard, "--pdeathsig", "KILL", "--", "/bin/sh", "-c", _UNLESS_ORPHANED, str(os.getpid()), *command]


def name_process(name: str) -> None:
    """Set the name that `ps -o comm` and `top` show; the kernel keeps 15 bytes."""
    _prctl(_PR_SET_NAME, name.encode()[:15])


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process, user and system, in clock ticks of 10 ms; 0 for one that is gone."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS if fields else 0.0


def _stat(pid: int) -> list[str]:
    """Return what the kernel says of a process, behind its name; nothing for one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


class AlreadyRunning(Exception):
    """Another process holds the lock; the message is for the operator."""


class Lock:
    """Allows one daemon of a role per runtime folder. The kernel releases it when the process ends, however it ends."""

    def __init__(self, path: Path, what: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._fd)
            raise AlreadyRunning(
                f"{what} is already running (pid {holder}) in {path.parent}: stop it, or set another paths.runtime"
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        os.close(self._fd)


def lock_holder(path: Path) -> int | None:
    """Return the process that holds the lock of this file; None if none does."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return int(os.read(fd, 32) or 0) or None  # it has the lock and is about to write its id
    finally:
        os.close(fd)
    return None


def parent_of(pid: int) -> int | None:
    """Return the parent of a process; None if it is gone."""
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def descendants(pid: int) -> list[int]:
    """Return the children of a process, their children, and so on."""
    children: dict[int | None, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        one = int(folder.name)
        children.setdefault(parent_of(one), []).append(one)
    found = list(children.get(pid, ()))
    for one in found:  # grows while it is read
        found += children.get(one, ())
    return found


def trim_memory() -> None:
    """Return free heap memory to the system, where the libc can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
