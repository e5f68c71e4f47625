"""Network namespaces: the whole process moves into a named one, and notices when another takes over the name.

Sockets stay in the namespace they were made in, and a process in a namespace keeps it alive after its name is gone:
a namespace that was deleted and made again is another one, and from the old one all backends would look dead (B14).
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_NAMES = Path("/run/netns")
_OWN = Path("/proc/self/ns/net")
_CLONE_NEWNET = 0x4000_0000


class NamespaceError(Exception):
    """A namespace cannot be entered; the message is one sentence for the operator."""


class Whereabouts:
    """In which network namespace this (single-threaded) process is."""

    def __init__(self) -> None:
        self._home = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
        self._here = os.fstat(self._home).st_ino

    def settle(self, name: str) -> bool:
        """Moves to the namespace of that name (empty: where the process was started); whether that is another one."""
        try:
            fd = os.open(_NAMES / name, os.O_RDONLY | os.O_CLOEXEC) if name else os.dup(self._home)
        except OSError as error:
            raise NamespaceError(
                f"the network namespace {name} cannot be opened ({error.strerror}): make it, or change balancer.netns"
            ) from error
        try:
            there = os.fstat(fd).st_ino
            if there == self._here:
                return False
            _enter(fd, name)
            self._here = there
            return True
        finally:
            os.close(fd)

    def close(self) -> None:
        os.close(self._home)


def _enter(fd: int, name: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(fd, _CLONE_NEWNET) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise NamespaceError(
            f"the network namespace {name or 'of the start'} cannot be entered ({reason}): give CAP_SYS_ADMIN"
        )
