"""Decides whether the process behind a key has exited, so that its key need not wait for its lease.

A pid that is gone proves something only where that pid could be seen: in the same boot of the same kernel, and in the
same PID namespace (C12: a container's live leader was taken for dead because its pid meant nothing outside).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from holdfast.model.control.leader import Leader
from holdfast.model.control.server import Server


def certainly_dead(other: Leader | Server, me: Leader, is_gone: Callable[[int], bool]) -> bool:
    """False also when it cannot be known from here: then the lease decides."""
    return same_kernel(other, me) and is_gone(other.pid)


def same_kernel(other: Leader | Server, me: Leader) -> bool:  # protection: C12
    """True if a pid of that process means the same here; False when the process did not record where it ran."""
    theirs = (other.boot_id, other.pid_namespace)
    return all(theirs) and theirs == (me.boot_id, me.pid_namespace)


def pid_namespace() -> str:  # protection: C12
    return str(Path("/proc/self/ns/pid").readlink())


def is_gone(pid: int) -> bool:
    if not 0 < pid < 2**31:
        return False  # no process can have it, so the entry was not written by one of ours
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    # A zombie is dead, although it still occupies its pid.
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
