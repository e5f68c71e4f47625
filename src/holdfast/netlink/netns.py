"""Network namespaces, by the names that `ip netns` shows: who moves there, and what stays there.

A socket belongs to the namespace that it was made in, for life, whoever uses it afterwards. So mostly a thread that
goes there, works and ends is enough (`inside`). A process that moves as a whole (`NetworkNamespace`) keeps a
namespace alive
after its name is gone: one that was deleted and made again is another one, and from the old one all backends would look
dead (B14). All of it raises `Away` where a namespace cannot be entered.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from holdfast.reconcile import Away

T = TypeVar("T")

_NAMES = Path("/run/netns")
_OWN = Path("/proc/thread-self/ns/net")
_CLONE_NEWNET = 0x4000_0000


def inside(name: str, work: Callable[[], T]) -> T:
    """What the work gives when it is done there, by a thread that ends with it."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(enter, name).result()
        return thread.submit(work).result()


def enter(name: str) -> None:
    """Moves the calling thread, and no other, there for good."""
    there = _open(name)
    try:
        _move(there, name)
    finally:
        os.close(there)


class NetworkNamespace:
    """In which network namespace this (single-threaded) process is."""

    def __init__(self) -> None:
        self._home = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
        self._here = os.fstat(self._home).st_ino

    def settle(self, name: str) -> bool:
        """Moves to the namespace of that name (empty: where the process was started); whether that is another one."""
        there = _open(name) if name else os.dup(self._home)
        try:
            number = os.fstat(there).st_ino
            if number == self._here:
                return False
            _move(there, name or "of the start")
            self._here = number
            return True
        finally:
            os.close(there)

    def close(self) -> None:
        os.close(self._home)


def _open(name: str) -> int:
    try:
        return os.open(_NAMES / name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Away(f"network namespace {name}", f"{error.strerror}; ip netns lists those that there are") from error


def _move(there: int, name: str) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(there, _CLONE_NEWNET) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise Away(f"network namespace {name}", f"it cannot be entered ({reason}): give CAP_SYS_ADMIN")
