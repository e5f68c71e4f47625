"""Work in another network namespace, from a process that stays where it is: only a thread goes there, and ends.

What was made there stays there: a socket belongs to its namespace for life, whoever uses it afterwards.
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
_CLONE_NEWNET = 0x4000_0000


def inside(name: str, work: Callable[[], T]) -> T:
    """What the work gives when it is done in the namespace of that name. Raises `Away` where it cannot be entered."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(_enter, name).result()
        return thread.submit(work).result()


def _enter(name: str) -> None:
    try:
        there = os.open(_NAMES / name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Away(f"network namespace {name}", f"{error.strerror}; ip netns lists those that there are") from error
    try:
        if ctypes.CDLL(None, use_errno=True).setns(there, _CLONE_NEWNET) != 0:
            reason = os.strerror(ctypes.get_errno())
            raise Away(f"network namespace {name}", f"it cannot be entered ({reason}): give CAP_SYS_ADMIN")
    finally:
        os.close(there)
