"""Network namespaces, by the names that `ip netns` shows: runs a function or moves a process into one.

A socket belongs for life to the namespace in which it was created. So a thread that enters, works and ends is mostly
enough (`inside`). A process that moves as a whole (`NetworkNamespace`) keeps a namespace alive after its name is gone:
one that was deleted and created again is another one, and from the old one all backends would look dead (B14).
Everything here raises `Away` where a namespace cannot be entered.
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
    """Run `work` in that namespace, in a thread that ends with it, and return its result."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(enter, name).result()
        return thread.submit(work).result()


def enter(name: str) -> None:
    """Move the calling thread, and no other, there for good."""
    there = _open(name)
    try:
        _move(there, name)
    finally:
        os.close(there)


def identity(name: str) -> tuple[int, int] | None:
    """Return what tells the namespace that has this name now from any other that is still in use; None without one."""
    try:
        found = (_NAMES / name).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


class NamespaceHandle:
    """Network namespace of the thread that created this; any other thread can run work in it."""

    def __init__(self) -> None:
        self._there = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)

    def run(self, work: Callable[[], T]) -> T:
        """Run `work` there: in this thread if it is there, in one of its own otherwise."""
        if _OWN.stat().st_ino == os.fstat(self._there).st_ino:
            return work()
        with ThreadPoolExecutor(1) as thread:
            thread.submit(_move, self._there, "of the dataplane").result()
            return thread.submit(work).result()

    def close(self) -> None:
        os.close(self._there)


class NetworkNamespace:
    """Network namespace of this (single-threaded) process."""

    def __init__(self) -> None:
        self._home = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
        self._here = os.fstat(self._home).st_ino

    def settle(self, name: str) -> bool:
        """Move to the namespace of that name (empty: where the process was started); return whether that is another
        one."""
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
        raise Away(f"network namespace {name}", f"{error.strerror}; ip netns lists the existing ones") from error


def _move(there: int, name: str) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(there, _CLONE_NEWNET) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise Away(f"network namespace {name}", f"cannot enter it ({reason}): give the process CAP_SYS_ADMIN")
